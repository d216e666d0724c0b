//! The SQS that `requeue serve` and the simulations have on this machine: its queues and its port.

use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use requeue::embedded::{DEFAULT_REGION, EmbeddedSqs};
use requeue::queue::QueueArn;
use tokio::net::TcpListener;

use crate::Error;

pub(crate) const SQS_PORT: u16 = 9324;
/// A program on this machine accepts a connection in less.
const LOOPBACK_TIMEOUT: Duration = Duration::from_millis(250);

#[derive(Clone)]
pub(crate) struct ServedQueue {
    pub(crate) queue: QueueArn,
    pub(crate) dead_letters: QueueArn,
}

/// The dead-letter queue of a served queue, by name or URL.
pub(crate) fn dead_letters_of(queue: &str) -> String {
    match queue.strip_suffix(".fifo") {
        Some(stem) => format!("{stem}-dlq.fifo"),
        None => format!("{queue}-dlq"),
    }
}

impl ServedQueue {
    pub(crate) fn create(
        sqs: &EmbeddedSqs,
        name: &str,
        max_receives: u16,
        visibility: Duration,
    ) -> Result<Self, Error> {
        let refused = |error| format!("--queue {name}: {error}");
        let retention = [("MessageRetentionPeriod", "1209600")];
        let dead_letters = sqs.create_queue(&dead_letters_of(name), retention).map_err(refused)?;
        let redrive = format!(
            r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":{max_receives}}}"#
        );
        let visibility = visibility.as_secs().to_string();
        let attributes = [("VisibilityTimeout", &*visibility), ("RedrivePolicy", &redrive)];
        let queue = sqs.create_queue(name, attributes).map_err(refused)?;
        Ok(Self { queue, dead_letters })
    }
}

pub(crate) async fn listen(port: u16, option: &str) -> Result<TcpListener, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    listener.map_err(|error| taken(port, option, &error))
}

pub(crate) fn taken(port: u16, option: &str, error: &io::Error) -> String {
    format!("port {port} of 127.0.0.1 cannot be opened: {error}; choose another one with {option}")
}

/// The line for a terminal in which programs are to use this SQS. It takes all credentials.
pub(crate) fn variables(url: &str) -> String {
    format!(
        "export AWS_ENDPOINT_URL_SQS={url} AWS_REGION={DEFAULT_REGION} \
         AWS_DEFAULT_REGION={DEFAULT_REGION} AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any"
    )
}

/// The end of an error of AWS, if an SQS listens on this port of this machine.
pub(crate) fn beside(port: u16) -> Option<String> {
    TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), LOOPBACK_TIMEOUT).ok()?;
    let variables = variables(&format!("http://127.0.0.1:{port}"));
    Some(format!("; for the SQS of `requeue serve` on this machine, first\n{variables}"))
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
}
