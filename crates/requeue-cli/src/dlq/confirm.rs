//! The question before something is changed.

use std::io::{IsTerminal, Write, stderr, stdin};

use crate::Error;

/// Whether the user agrees. The question comes before any signal is caught, so Ctrl-C simply ends
/// the process.
pub(crate) fn agreed(what: &str) -> Result<bool, Error> {
    if !stdin().is_terminal() {
        return Err(format!(
            "{what}; there is no terminal for a question: add --yes, or see the plan with --dry-run"
        )
        .into());
    }
    let _ = write!(stderr(), "{what}. Continue? [y/N] ");
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
