//! The lines of `requeue serve` about batches and dead letters.

use std::fmt;
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use requeue::DeadLetter;
use requeue::embedded::{DEFAULT_REGION, MessageView};

use crate::local_function::{LineOutput, one_line};
use crate::observe::short_id;
use crate::table::counted;

/// A program on this machine accepts a connection in less.
const LOOPBACK_TIMEOUT: Duration = Duration::from_millis(250);

/// The line for another terminal in which `requeue`, the AWS CLI and the SDKs are to use the SQS at
/// this URL. It takes all credentials.
pub(crate) fn variables(url: &str) -> String {
    format!(
        "export AWS_ENDPOINT_URL_SQS={url} AWS_REGION={DEFAULT_REGION} AWS_ACCESS_KEY_ID=any \
         AWS_SECRET_ACCESS_KEY=any"
    )
}

/// The end of an error of AWS, if an SQS listens on this port of this machine.
pub(crate) fn beside(port: u16) -> Option<String> {
    TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), LOOPBACK_TIMEOUT).ok()?;
    let variables = variables(&format!("http://127.0.0.1:{port}"));
    Some(format!("; for the SQS of `requeue serve` on this machine, first\n{variables}"))
}

/// Requeue's reasons have at most 256 characters, but a body may have a longer one.
const MAX_REASON: usize = 400;

pub(super) struct FinishedBatch<'a> {
    pub(super) number: u64,
    /// `None` if there is only one.
    pub(super) queue: Option<&'a str>,
    pub(super) messages: usize,
    /// Messages that SQS keeps, by the response or because of a function error.
    pub(super) kept: usize,
    /// The delays of the messages that the function sent to its queue, in seconds.
    pub(super) sent: Vec<u64>,
    pub(super) took: Duration,
    /// `None` if a response came.
    pub(super) error: Option<&'a str>,
}

impl fmt::Display for FinishedBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, messages, kept, took, .. } = self;
        let queue = self.queue.map(|queue| format!("{queue} ")).unwrap_or_default();
        write!(f, "#{number} {queue}{}: ", counted(*messages, "message"))?;
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

/// The id of the first delivery and the reason, and the queue if there are several.
pub(super) fn dead_letter(message: &MessageView, queue: Option<&str>) {
    let dead = DeadLetter::read(&message.body);
    let why = match (dead.reason(), dead.detail()) {
        (Some(reason), Some(detail)) if detail != reason => format!("{reason} ({detail})"),
        (Some(reason), _) => reason.to_owned(),
        (None, _) => format!("after {}", counted(message.receive_count, "receive")),
    };
    let id = short_id(dead.original_message_id().unwrap_or(&message.id));
    let queue = queue.map(|queue| format!("{queue} ")).unwrap_or_default();
    LineOutput::Stdout.line(one_line(&format!("dead letter {queue}{id}: {why}"), MAX_REASON));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_sqs_on_this_machine_is_named_while_it_listens() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let hint = beside(port).expect("it listens");
        let line =
            format!("export AWS_ENDPOINT_URL_SQS=http://127.0.0.1:{port} AWS_REGION=us-east-1");
        assert!(hint.contains(&format!("\n{line} ")), "{hint}");
        drop(listener);
        assert_eq!(beside(port), None);
    }

    #[test]
    fn a_batch_is_one_line() {
        let whole = || FinishedBatch {
            number: 12,
            queue: None,
            messages: 10,
            kept: 0,
            sent: Vec::new(),
            took: Duration::from_millis(142),
            error: None,
        };
        for (batch, said) in [
            (whole(), "#12 10 messages: 10 deleted, 142 ms"),
            (FinishedBatch { messages: 1, ..whole() }, "#12 1 message: 1 deleted, 142 ms"),
            (
                FinishedBatch { queue: Some("refunds"), ..whole() },
                "#12 refunds 10 messages: 10 deleted, 142 ms",
            ),
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
            assert!("00:00:00Z ".len() + said.len() <= 80, "a terminal's usual width: {said}");
        }
    }
}
