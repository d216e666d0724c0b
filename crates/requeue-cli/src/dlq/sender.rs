//! The one sender of dead letters, for redrives and imports: in batches that SQS accepts, at a rate,
//! each message once, and with SQS's confirmation of each. In a FIFO queue no message overtakes one
//! of its group that was not sent.

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

/// After so many sends in a row without any confirmation a command ends: each further one would leave
/// more messages in doubt.
const MAX_UNCONFIRMED: usize = 8;

/// The end of the code of a message that SQS may have stored, though it did not confirm it.
pub(super) const MAY_EXIST: &str = "; the copy may exist";
/// The code of a message of a FIFO queue that has to wait.
pub(super) const BEHIND: &str = "behind one of its group that failed";

/// A message that can be sent.
pub(super) trait Sendable {
    /// As the queue takes it: in a FIFO queue it has a group.
    fn outgoing(&self, to: &QueueArn) -> Outgoing<'_>;
}

pub(super) struct ConfirmedSender<'a> {
    sqs: &'a Sqs,
    stop: &'a Stop,
    /// The name of its work, as in `redrive`.
    work: &'static str,
    /// At most so many messages in a second, also after a long wait for SQS.
    rate: Option<u16>,
    /// The time of the next message.
    next: Instant,
    /// Groups with a message that was not sent.
    blocked: HashSet<String>,
    /// The sends in a row of which SQS confirmed nothing.
    unconfirmed: usize,
}

/// The result of one request.
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

    /// Keeps back later messages of this group.
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

    /// Notes the result of a request: the time of the next one, and the groups that have to wait.
    /// The error makes it pointless to continue.
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
        if !self.has_given_up() {
            return Ok(());
        }
        let work = self.work;
        Err(format!(
            "{refusal}; the {work} ends after {MAX_UNCONFIRMED} sends in a row without a confirmation"
        )
        .into())
    }

    /// Whether too many sends in a row had no confirmation.
    pub(super) fn has_given_up(&self) -> bool {
        self.unconfirmed >= MAX_UNCONFIRMED
    }

    /// Notes messages whose request began at this time, also those that SQS did not confirm. Time in
    /// which none was sent is lost, since its messages would come in a burst.
    fn spend(&mut self, began: Instant, count: u64) {
        if let (Some(rate), 1..) = (self.rate, count) {
            self.next = self.next.max(began) + Duration::from_secs(count) / u32::from(rate);
        }
    }
}

impl Sent {
    /// For a batch that was not sent, for this reason.
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

/// Messages for one request: at most ten and 1 MiB. For a FIFO queue they have one message of each
/// group, because later messages must not overtake one that fails.
pub(super) struct Batch<T> {
    messages: Vec<T>,
    bytes: usize,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self { messages: Vec::new(), bytes: 0 }
    }
}

impl<T: Sendable> Batch<T> {
    /// Adds a message. Returns the messages before it, if there is no room beside them.
    pub(super) fn add(&mut self, message: T, to: &QueueArn) -> Option<Vec<T>> {
        let next = message.outgoing(to);
        let is_of_group = |other: &T| other.outgoing(to).group_id == next.group_id;
        let follows = to.is_fifo() && self.messages.iter().any(is_of_group);
        let size = next.size();
        let has_room = self.messages.len() < MAX_BATCH_ENTRIES
            && self.bytes + size <= MAX_BATCH_BYTES
            && !follows;
        let full = if has_room { None } else { self.take() };
        self.bytes += size;
        self.messages.push(message);
        full
    }

    /// The messages so far; `None` if there are none.
    pub(super) fn take(&mut self) -> Option<Vec<T>> {
        let Self { messages, .. } = std::mem::take(self);
        (!messages.is_empty()).then_some(messages)
    }
}

/// All messages in batches, in their order.
pub(super) fn batches<T: Sendable>(to: &QueueArn, messages: Vec<T>) -> Vec<Vec<T>> {
    let mut batch = Batch::default();
    let mut full: Vec<Vec<T>> =
        messages.into_iter().filter_map(|message| batch.add(message, to)).collect();
    full.extend(batch.take());
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
