//! The messages that a FIFO queue remembers as accepted, even after they are deleted.

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

/// A deduplication id, with its group if ids are compared only within their group.
pub(crate) type Scoped = (Option<String>, String);

impl Memory {
    /// The message that was accepted under this id, if its id is still remembered.
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
