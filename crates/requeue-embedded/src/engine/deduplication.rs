//! What a FIFO queue remembers of messages it has accepted, also of deleted ones.

use std::collections::{HashMap, VecDeque};
use std::time::SystemTime;

use super::limits;
use super::message::Sent;

/// Deduplication ids, each for five minutes from its first use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    seen: HashMap<Scoped, Sent>,
    oldest_first: VecDeque<(SystemTime, Scoped)>,
}

/// A deduplication id, and its group where ids are compared within their group only.
pub(crate) type Scoped = (Option<String>, String);

impl Memory {
    /// The message that was accepted under this id, if that is not too long ago.
    pub(crate) fn recall(&mut self, id: &Scoped, now: SystemTime) -> Option<Sent> {
        while let Some((first_used, _)) = self.oldest_first.front()
            && *first_used + limits::DEDUPLICATION <= now
        {
            if let Some((_, forgotten)) = self.oldest_first.pop_front() {
                self.seen.remove(&forgotten);
            }
        }
        self.seen.get(id).cloned()
    }

    /// Notes an accepted message.
    pub(crate) fn remember(&mut self, id: Scoped, sent: Sent, now: SystemTime) {
        if self.seen.insert(id.clone(), sent).is_none() {
            self.oldest_first.push_back((now, id));
        }
    }
}
