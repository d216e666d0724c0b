//! The one sender of dead letters: in batches that SQS accepts, at a rate, each once, and with
//! SQS's confirmation. In a FIFO queue no message overtakes one of its group that was not sent.

use std::collections::HashSet;
use std::time::Duration;

use requeue::queue::{
    CallError, CallErrorKind, EntryError, MAX_BATCH_BYTES, MAX_BATCH_ENTRIES, Outgoing, QueueArn,
};
use tokio::time::{Instant, sleep_until};

use super::sqs::Sqs;
use crate::Error;
use crate::failed_call::may_be_carried_out;
use crate::stop::Stop;

/// A command ends after this many sends in a row without any confirmation.
const MAX_UNCONFIRMED: usize = 8;

/// The end of the code of a message that SQS may have stored, although it did not confirm it.
pub(super) const MAY_EXIST: &str = "; the copy may exist";
/// The code of a message of a FIFO queue that has to wait.
pub(super) const BEHIND: &str = "an earlier message of its group failed";

/// A message that can be sent.
pub(super) trait Sendable {
    /// As the queue takes it: in a FIFO queue it has a group.
    fn outgoing(&self, to: &QueueArn) -> Outgoing<'_>;
}

pub(super) struct ConfirmedSender<'a> {
    sqs: &'a Sqs,
    stop: &'a Stop,
    work: &'static str,
    /// At most this many messages in a second, also after a long wait for SQS.
    rate: Option<u16>,
    next: Instant,
    /// Groups with a message that was not sent.
    blocked: HashSet<String>,
    unconfirmed: usize,
}

pub(super) struct Sent {
    began: Instant,
    /// By the positions of the messages in the batch: sent, or the code of the failure.
    pub(super) each: Vec<Result<(), String>>,
    error: Option<CallError>,
}

impl<'a> ConfirmedSender<'a> {
    /// The first message is due at this time.
    pub(super) fn new(
        sqs: &'a Sqs,
        stop: &'a Stop,
        work: &'static str,
        rate: Option<u16>,
        next: Instant,
    ) -> Self {
        Self { sqs, stop, work, rate, next, blocked: HashSet::new(), unconfirmed: 0 }
    }

    /// Waits for the time of the next message, or for the end.
    pub(super) async fn wait(&self) {
        tokio::select! {
            () = sleep_until(self.next) => {}
            () = self.stop.told() => {}
        }
    }

    /// Takes out the messages of a FIFO queue that have to wait for one of their group.
    pub(super) fn take_blocked<T: Sendable>(&self, to: &QueueArn, batch: &mut Vec<T>) -> Vec<T> {
        let is_blocked = |message: &mut T| {
            let group = message.outgoing(to).group_id;
            to.is_fifo() && group.is_some_and(|group| self.blocked.contains(group))
        };
        batch.extract_if(.., is_blocked).collect()
    }

    pub(super) fn block(&mut self, group: Option<&str>) {
        self.blocked.extend(group.map(str::to_owned));
    }

    /// Sends a batch in one request. The caller notes the result with [`note`](Self::note).
    pub(super) async fn send<T: Sendable>(&self, to: &QueueArn, batch: &[T]) -> Sent {
        let began = Instant::now();
        let entries: Vec<Outgoing<'_>> = batch.iter().map(|message| message.outgoing(to)).collect();
        match self.sqs.send(to, &entries).await {
            Ok(confirmations) => {
                let code = |error: EntryError| match error {
                    error if error == EntryError::unconfirmed() => may_exist(&error.code),
                    error => error.code,
                };
                let each = confirmations.into_iter().map(|entry| entry.map_err(code)).collect();
                Sent { began, each, error: None }
            }
            Err(error) => {
                let may_be_stored = may_be_carried_out(&error);
                let code = if may_be_stored { may_exist(&error.code) } else { error.code.clone() };
                Sent { began, error: Some(error), ..Sent::nothing(&code, batch) }
            }
        }
    }

    /// Notes the next time and the groups that have to wait. An error makes it pointless to
    /// continue.
    pub(super) fn note<T: Sendable>(
        &mut self,
        to: &QueueArn,
        batch: &[T],
        sent: &Sent,
    ) -> Result<(), Error> {
        for (message, sent) in batch.iter().zip(&sent.each) {
            if sent.is_err() {
                self.block(message.outgoing(to).group_id);
            }
        }
        self.spend(sent.began, sent.stored());
        if sent.each.iter().any(Result::is_ok) {
            self.unconfirmed = 0;
        }
        let Some(error) = &sent.error else { return Ok(()) };
        let refusal = self.sqs.refusal("SendMessageBatch", to, error);
        if error.kind == CallErrorKind::Refused {
            return Err(refusal);
        }
        self.unconfirmed += 1;
        if !self.has_stopped() {
            return Ok(());
        }
        let work = self.work;
        Err(format!(
            "{refusal}; the {work} ends after {MAX_UNCONFIRMED} sends in a row without a confirmation"
        )
        .into())
    }

    /// Whether too many sends in a row had no confirmation.
    pub(super) fn has_stopped(&self) -> bool {
        self.unconfirmed >= MAX_UNCONFIRMED
    }

    /// Notes messages whose request began at this time, even those that SQS did not confirm. Unused
    /// time is not saved, since it would allow a burst.
    fn spend(&mut self, began: Instant, count: u64) {
        if let (Some(rate), 1..) = (self.rate, count) {
            self.next = self.next.max(began) + Duration::from_secs(count) / u32::from(rate);
        }
    }
}

impl Sent {
    pub(super) fn nothing<T>(code: &str, batch: &[T]) -> Self {
        let each = batch.iter().map(|_| Err(code.to_owned())).collect();
        Self { began: Instant::now(), each, error: None }
    }

    /// The messages that SQS has stored or may have stored.
    fn stored(&self) -> u64 {
        let is_stored = |sent: &&Result<(), String>| {
            sent.as_ref().err().is_none_or(|code| code.ends_with(MAY_EXIST))
        };
        u64::try_from(self.each.iter().filter(is_stored).count()).unwrap_or(u64::MAX)
    }
}

fn may_exist(code: &str) -> String {
    format!("{code}{MAY_EXIST}")
}

/// Adds a message to those of one request: at most ten and 1 MiB, and for a FIFO queue one of each
/// group, because later messages must not overtake one that fails. If the message does not fit,
/// returns the messages before it.
pub(super) fn add<T: Sendable>(batch: &mut Vec<T>, message: T, to: &QueueArn) -> Option<Vec<T>> {
    let next = message.outgoing(to);
    let is_of_group = |other: &T| other.outgoing(to).group_id == next.group_id;
    let follows = to.is_fifo() && batch.iter().any(is_of_group);
    let bytes: usize = batch.iter().map(|other| other.outgoing(to).size()).sum();
    let is_full = batch.len() >= MAX_BATCH_ENTRIES || bytes + next.size() > MAX_BATCH_BYTES;
    let before = (is_full || follows).then(|| std::mem::take(batch));
    batch.push(message);
    before.filter(|before| !before.is_empty())
}

/// All messages in batches, in their order.
pub(super) fn batches<T: Sendable>(to: &QueueArn, messages: Vec<T>) -> Vec<Vec<T>> {
    let mut batch = Vec::new();
    let messages = messages.into_iter();
    let mut full: Vec<Vec<T>> =
        messages.filter_map(|message| add(&mut batch, message, to)).collect();
    full.push(batch);
    full
}

#[cfg(test)]
mod tests {
    use requeue::Clock;
    use requeue::embedded::EmbeddedSqs;

    use super::*;

    #[test]
    fn no_second_has_more_copies_than_the_rate_whatever_the_waits() {
        let sqs = Sqs::new(EmbeddedSqs::new(Clock::system()).client());
        let (_told, stop) = Stop::by_hand();
        let first = Instant::now();
        let after = |millis| first + Duration::from_millis(millis);
        let mut sender = ConfirmedSender::new(&sqs, &stop, "redrive", Some(5), first);
        // Each request begins at the time of the next copy, or later.
        for (began, count, next) in [
            (0, 1, 200),
            (200, 2, 600),
            (30_000, 1, 30_200),
            (30_200, 1, 30_400),
            (30_500, 10, 32_500),
        ] {
            sender.spend(after(began), count);
            assert_eq!(sender.next, after(next), "{count} at {began} ms");
        }
        let mut unlimited = ConfirmedSender::new(&sqs, &stop, "redrive", None, first);
        unlimited.spend(after(0), 1_000);
        assert_eq!(unlimited.next, first);
    }
}
