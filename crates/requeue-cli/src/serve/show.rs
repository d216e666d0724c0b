//! The output of `requeue serve` with a function. Its own lines begin with the time in UTC, and
//! those of the function with the number of its environment.

use std::fmt;
use std::process::ExitStatus;
use std::time::Duration;

use requeue::embedded::MessageView;
use requeue::{Clock, DeadLetter, printable};

use super::environment::INIT_TIMEOUT;
use crate::output;
use crate::table::{clock_time, counted, cut};

/// Requeue's reasons have at most 256 characters, but a body may have a longer one.
const MAX_REASON: usize = 400;

/// A finished batch.
pub(super) struct FinishedBatch<'a> {
    pub(super) number: u64,
    pub(super) messages: usize,
    /// Messages that SQS keeps, by the response or because of a function error.
    pub(super) kept: usize,
    /// The delays of the messages that the function sent to its queue, in seconds.
    pub(super) sent: Vec<u64>,
    pub(super) took: Duration,
    /// `None` if a response came.
    pub(super) error: Option<&'a str>,
}

/// Bold on a terminal, to stand out from the function's lines.
pub(super) fn line(line: impl fmt::Display) {
    let text = format!("{} {line}", clock_time(Clock::system().now()));
    // A closed standard output does not stop the function.
    let _ = output::write(&format!("\x1b[1m{}\x1b[0m\n", printable::text(&text)));
}

impl fmt::Display for FinishedBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, messages, kept, took, .. } = self;
        write!(f, "#{number} {}: ", counted(*messages, "message"))?;
        if let Some(error) = self.error {
            write!(f, "all kept, {error}, ")?;
        } else {
            let deleted = messages - kept;
            if deleted > 0 {
                write!(f, "{deleted} deleted, ")?;
            }
            if *kept > 0 {
                write!(f, "{kept} kept, ")?;
            }
        }
        if !self.sent.is_empty() {
            let copies = counted(self.sent.len(), "copy");
            write!(f, "{copies} in {} s, ", delays(&self.sent))?;
        }
        write!(f, "{} ms", took.as_millis())
    }
}

/// `2, 6, 18`; of more than three different ones the least and the greatest: `2 to 60`.
fn delays(delays: &[u64]) -> String {
    let mut delays = delays.to_vec();
    delays.sort_unstable();
    delays.dedup();
    match delays.as_slice() {
        [first, _, _, .., last] if delays.len() > 3 => format!("{first} to {last}"),
        few => few.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    }
}

pub(super) fn exited(status: ExitStatus) -> String {
    format!("function exited ({})", brief(status))
}

pub(super) fn exited_at_start(status: ExitStatus) -> String {
    if status.success() {
        return "function exited (status 0) before it asked for an invocation: it must call \
                requeue::run or lambda_runtime::run"
            .to_owned();
    }
    format!("function exited at its start ({})", brief(status))
}

/// Its command may still build the function, as `cargo run` does.
pub(super) fn no_invocation_asked_for(is_command: bool) {
    let secs = INIT_TIMEOUT.as_secs();
    let rule = if is_command { "if it is already built, it must call" } else { "it must call" };
    line(format_args!(
        "the function has asked for no invocation within {secs} s:\n         {rule} \
         requeue::run or lambda_runtime::run",
    ));
}

/// A message in the dead-letter queue: the id of its first delivery, and the reason in its body.
pub(super) fn dead_letter(message: &MessageView) {
    let dead = DeadLetter::read(&message.body);
    let why = match (dead.reason(), dead.detail()) {
        (Some(reason), Some(detail)) if detail != reason => format!("{reason} ({detail})"),
        (Some(reason), _) => reason.to_owned(),
        (None, _) => format!("after {}", counted(message.receive_count, "receive")),
    };
    let id: String = dead.original_message_id().unwrap_or(&message.id).chars().take(8).collect();
    line(one_line(&format!("dead letter {id}: {why}"), MAX_REASON));
}

/// A foreign text in one line with at most so many characters.
pub(super) fn one_line(text: &str, room: usize) -> String {
    cut(&text.split_whitespace().collect::<Vec<_>>().join(" "), room)
}

/// `status 101`, `signal: 9 (SIGKILL)`
fn brief(status: ExitStatus) -> String {
    status.code().map_or_else(|| status.to_string(), |code| format!("status {code}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_one_line() {
        let whole = || FinishedBatch {
            number: 12,
            messages: 10,
            kept: 0,
            sent: Vec::new(),
            took: Duration::from_millis(142),
            error: None,
        };
        for (batch, said) in [
            (whole(), "#12 10 messages: 10 deleted, 142 ms"),
            (FinishedBatch { messages: 1, ..whole() }, "#12 1 message: 1 deleted, 142 ms"),
            (FinishedBatch { messages: 1, kept: 1, ..whole() }, "#12 1 message: 1 kept, 142 ms"),
            (
                FinishedBatch { kept: 2, sent: vec![18, 2, 6, 2], ..whole() },
                "#12 10 messages: 8 deleted, 2 kept, 4 copies in 2, 6, 18 s, 142 ms",
            ),
            (
                FinishedBatch { sent: vec![1, 2, 3, 900], ..whole() },
                "#12 10 messages: 10 deleted, 4 copies in 1 to 900 s, 142 ms",
            ),
            (
                FinishedBatch { kept: 10, error: Some("function exited (status 1)"), ..whole() },
                "#12 10 messages: all kept, function exited (status 1), 142 ms",
            ),
        ] {
            assert_eq!(batch.to_string(), said);
            assert!("00:00:00 ".len() + said.len() <= 80, "a terminal's usual width: {said}");
        }
    }
}
