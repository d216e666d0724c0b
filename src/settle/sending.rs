//! A copy with its progress: sent or not, confirmed or not. And the chunks of entries that share a
//! request: each is gathered until it is full, or until its first entry has waited long enough.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Settled, Waiting};
use crate::plan::{Copy, Decision};
use crate::queue::{
    CallError, CallErrorKind, Confirmation, MAX_BATCH_BYTES, MAX_BATCH_ENTRIES, MESSAGE_TOO_LONG,
    Outgoing, QueueArn,
};
use crate::report::Settlement;

/// Every server takes a request of this length, which was SQS's own limit until 2025. Only a longer
/// one can be too long; without this check, one wrong response would set a limit for all copies.
const LEAST_REQUEST: usize = 262_144;

/// The queue of the original, and the queue of the copy.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Route {
    pub(super) from: Arc<QueueArn>,
    pub(super) to: Arc<QueueArn>,
}

pub(super) struct Sending {
    pub(super) decision: Decision,
    pub(super) copy: Copy,
    waiting: Waiting,
    pub(super) sent: Sent,
    pub(super) not_deleted: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// To be sent, or to be sent again after an error with this code.
    NotYet(Option<String>),
    Confirmed,
    /// It cannot be sent, or not in time.
    Refused(String),
}

impl Sending {
    pub(super) fn new(decision: Decision, copy: Copy, waiting: Waiting) -> Self {
        Self { decision, copy, waiting, sent: Sent::NotYet(None), not_deleted: None }
    }

    pub(super) fn size(&self) -> usize {
        self.outgoing().size()
    }

    pub(super) fn is_pending(&self) -> bool {
        matches!(self.sent, Sent::NotYet(_))
    }

    /// Whether the rest of its group waits for this copy.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self.waiting, Waiting::ForMove(_))
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.sent == Sent::Confirmed
    }

    pub(super) fn is_too_long(&self) -> bool {
        matches!(&self.sent, Sent::Refused(code) if code == MESSAGE_TOO_LONG)
    }

    pub(super) fn outgoing(&self) -> Outgoing<'_> {
        self.copy.outgoing(&self.decision.delivery)
    }

    pub(super) fn receipt_handles(&self) -> &[String] {
        &self.decision.delivery.receipt_handles
    }

    pub(super) fn into_settled(self) -> Settled {
        let settlement = match (self.sent, self.not_deleted) {
            (Sent::Confirmed, None) => Settlement::Moved,
            (Sent::Confirmed, Some(code)) => Settlement::MovedNotDeleted { code },
            (Sent::Refused(code) | Sent::NotYet(Some(code)), _) => Settlement::Unconfirmed { code },
            (Sent::NotYet(None), _) => Settlement::Unconfirmed { code: "NotSent".to_owned() },
        };
        if let (Waiting::ForMove(moved), false) = (self.waiting, settlement.is_kept()) {
            // The receiver may be gone if its time is over.
            let _ = moved.send(());
        }
        Settled { decision: self.decision, settlement }
    }
}

/// Notes the response in its copies; returns the error that remains, if any.
pub(super) fn record(
    response: Result<Vec<Confirmation>, CallError>,
    copies: Vec<&mut Sending>,
) -> Option<CallErrorKind> {
    match response {
        Ok(confirmations) => {
            let mut failed = None;
            let mut confirmations = confirmations.into_iter();
            for copy in copies {
                copy.sent = match confirmations.next() {
                    Some(Ok(())) => Sent::Confirmed,
                    Some(Err(error)) if !error.sender_fault => {
                        failed = Some(CallErrorKind::Unavailable);
                        Sent::NotYet(Some(error.code))
                    }
                    Some(Err(error)) => Sent::Refused(error.code),
                    None => Sent::Refused("Unconfirmed".to_owned()),
                };
            }
            failed
        }
        Err(error) => {
            // If a copy is alone in its request, the error applies to that copy.
            let is_too_long = match copies.as_slice() {
                [copy] if error.code == "BatchRequestTooLong" => copy.size() > LEAST_REQUEST,
                [_] => error.code == MESSAGE_TOO_LONG,
                _ => false,
            };
            for copy in copies {
                copy.sent = match error.kind {
                    _ if is_too_long => Sent::Refused(MESSAGE_TOO_LONG.to_owned()),
                    CallErrorKind::Refused => Sent::Refused(error.code.clone()),
                    CallErrorKind::Malformed
                    | CallErrorKind::Unavailable
                    | CallErrorKind::Ambiguous => Sent::NotYet(Some(error.code.clone())),
                };
            }
            Some(error.kind)
        }
    }
}

/// The longest wait of the oldest entry of a chunk for further entries.
const MAX_LINGER: Duration = Duration::from_millis(250);

/// The incomplete chunks, one for each place.
pub(super) struct Chunks<K, T>(BTreeMap<K, Chunk<T>>);

struct Chunk<T> {
    entries: Vec<T>,
    bytes: usize,
    since: Instant,
}

impl<K: Ord + Clone, T> Chunks<K, T> {
    pub(super) fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Adds an entry of this many bytes. Returns the entries to send now: the chunk if it is full,
    /// or all earlier entries if this one does not fit.
    pub(super) fn push(&mut self, place: &K, entry: T, bytes: usize) -> Option<Vec<T>> {
        let chunk = self.0.entry(place.clone()).or_default();
        let overflows = chunk.bytes + bytes > MAX_BATCH_BYTES;
        let before =
            (overflows && !chunk.entries.is_empty()).then(|| std::mem::take(chunk).entries);
        chunk.bytes += bytes;
        chunk.entries.push(entry);
        if before.is_none() && chunk.entries.len() == MAX_BATCH_ENTRIES {
            return self.take(place);
        }
        before
    }

    /// The chunk for a place, even if it is not full.
    pub(super) fn take(&mut self, place: &K) -> Option<Vec<T>> {
        self.0.remove(place).map(|chunk| chunk.entries)
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.0.values().map(|chunk| chunk.since + MAX_LINGER).min()
    }

    pub(super) fn take_due(&mut self) -> impl Iterator<Item = (K, Vec<T>)> {
        let now = Instant::now();
        let due = self.0.extract_if(.., move |_, chunk| chunk.since + MAX_LINGER <= now);
        due.map(|(place, chunk)| (place, chunk.entries))
    }

    pub(super) fn into_rest(self) -> impl Iterator<Item = (K, Vec<T>)> {
        self.0.into_iter().map(|(place, chunk)| (place, chunk.entries))
    }
}

impl<T> Default for Chunk<T> {
    fn default() -> Self {
        Self { entries: Vec::with_capacity(MAX_BATCH_ENTRIES), bytes: 0, since: Instant::now() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_entry_leaves_once_in_its_order_and_no_chunk_is_too_large(
            entries in prop::collection::vec((0_u8..3, prop_oneof![0..200_usize, 0..=MAX_BATCH_BYTES]), 0..60),
        ) {
            let mut chunks = Chunks::new();
            let mut left: Vec<(u8, Vec<(usize, usize)>)> = Vec::new();
            for (n, (place, bytes)) in entries.iter().enumerate() {
                left.extend(chunks.push(place, (n, *bytes), *bytes).map(|chunk| (*place, chunk)));
            }
            left.extend(chunks.into_rest());
            for (_, chunk) in &left {
                prop_assert!((1..=MAX_BATCH_ENTRIES).contains(&chunk.len()));
                prop_assert!(chunk.iter().map(|(_, bytes)| bytes).sum::<usize>() <= MAX_BATCH_BYTES);
            }
            for place in 0..3 {
                let came = entries.iter().enumerate().filter(|(_, (to, _))| *to == place).map(|(n, _)| n);
                let went = left.iter().filter(|(to, _)| *to == place).flat_map(|(_, chunk)| chunk.iter().map(|(n, _)| *n));
                prop_assert_eq!(came.collect::<Vec<_>>(), went.collect::<Vec<_>>());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_chunk_leaves_when_its_own_oldest_entry_has_waited_long_enough() {
        let mut chunks = Chunks::new();
        let began = Instant::now();
        chunks.push(&"first", 1, 0);
        tokio::time::sleep(Duration::from_millis(100)).await;
        chunks.push(&"second", 2, 0);
        chunks.push(&"first", 3, 0);
        for (place, after, entries) in [("first", 250, vec![1, 3]), ("second", 350, vec![2])] {
            let due = began + Duration::from_millis(after);
            assert_eq!(chunks.due(), Some(due));
            tokio::time::sleep_until(due - Duration::from_millis(1)).await;
            assert_eq!(chunks.take_due().count(), 0, "{place}");
            tokio::time::sleep_until(due).await;
            assert_eq!(chunks.take_due().collect::<Vec<_>>(), [(place, entries)]);
        }
        assert_eq!(chunks.due(), None);
    }
}
