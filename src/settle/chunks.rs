//! Entries that share one request. Entries for one place are gathered until the request is full, or
//! until the first of them has waited long enough.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::queue::{MAX_BATCH_BYTES, MAX_BATCH_ENTRIES};

/// The longest wait of the oldest entry of a chunk for further entries.
const MAX_LINGER: Duration = Duration::from_millis(250);

/// The chunks in the making, one for each place.
pub(super) struct Chunks<K, T>(BTreeMap<K, Chunk<T>>);

struct Chunk<T> {
    entries: Vec<T>,
    bytes: usize,
    /// When the oldest entry was added.
    since: Instant,
}

impl<K: Ord + Clone, T> Chunks<K, T> {
    pub(super) fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Adds an entry of so many bytes. Returns the entries to send now: the chunk if it is full, or
    /// all earlier entries if this one does not fit.
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

    /// When the next chunk must be sent.
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
