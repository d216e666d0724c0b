//! The question before something is changed.

use std::io::{IsTerminal, Write, stderr, stdin};

use crate::Error;

/// Whether the person agrees. Asked before any signal is caught, so that Ctrl-C simply ends the
/// process.
pub(crate) fn agreed(what: &str) -> Result<bool, Error> {
    if !stdin().is_terminal() {
        return Err(format!(
            "{what}: add --yes, as there is no terminal to ask on; --dry-run shows more"
        )
        .into());
    }
    let _ = write!(stderr(), "{what}. Go on? [y/N] ");
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
