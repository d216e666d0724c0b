//! Remembers how long a message may be in each queue: its `MaximumMessageSize` may be lower than what
//! SQS allows. A function cannot read that attribute, so the refusals of copies tell it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;
use crate::queue::{MAX_BATCH_BYTES, QueueArn};

/// After so long, a copy of any length is tried again: the attribute may have been raised. It is longer
/// than most visibility timeouts.
const REMEMBERED: Duration = Duration::from_mins(15);

/// The longest message of each queue that has refused one.
#[derive(Default)]
pub(crate) struct MaxLengths(Mutex<BTreeMap<Arc<QueueArn>, (usize, Instant)>>);

impl MaxLengths {
    /// The most bytes of a message in this queue, as far as is known.
    pub(crate) fn of(&self, queue: &QueueArn) -> usize {
        match lock(&self.0).get(queue) {
            Some((max, until)) if Instant::now() < *until => *max,
            _ => MAX_BATCH_BYTES,
        }
    }

    /// Learns that a message of so many bytes was refused.
    pub(super) fn note_refused(&self, queue: &Arc<QueueArn>, bytes: usize) {
        let max = self.of(queue).min(bytes.saturating_sub(1));
        lock(&self.0).insert(Arc::clone(queue), (max, Instant::now() + REMEMBERED));
    }
}
