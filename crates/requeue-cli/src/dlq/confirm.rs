//! The question before something is changed.

use std::io::{IsTerminal, stdin};
use std::thread;

use rustix::termios::{QueueSelector, tcflush};
use tokio::sync::oneshot;

use crate::stop::Stop;
use crate::{Error, output};

/// An error if nobody can answer a question about this.
pub(crate) fn require_terminal(what: &str) -> Result<(), Error> {
    if stdin().is_terminal() {
        return Ok(());
    }
    Err(format!(
        "{what}; there is no terminal for a question: add --yes, or see the plan with --dry-run"
    )
    .into())
}

/// Whether the user agrees. A signal declines.
pub(crate) async fn agreed(what: &str, stop: &Stop) -> Result<bool, Error> {
    require_terminal(what)?;
    // Keys typed before the question do not answer it.
    tcflush(stdin(), QueueSelector::IFlush)?;
    output::question(&format!("{what}. Continue? [y/N] "));
    let (told, answer) = oneshot::channel();
    // A thread of its own, because the end of the runtime would wait for a blocked one of tokio.
    thread::spawn(move || {
        let mut answer = String::new();
        let read = stdin().read_line(&mut answer).map(|_| answer);
        let _ = told.send(read);
    });
    let answer = tokio::select! {
        answer = answer => answer?,
        () = stop.told() => return Ok(false),
    };
    Ok(matches!(answer?.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
