//! What only a FIFO queue needs: the message of each group that may be received next, and the
//! messages that it remembers as accepted, even after they are deleted.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::SystemTime;

use super::limits;
use super::message::Sent;

/// The place of a message in its queue: later messages have higher keys.
pub(crate) type Key = u64;

/// The groups of one queue. A group is *ready* when its first message is visible. Its messages up to
/// the first one that is not visible can be received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    by_id: HashMap<String, Group>,
    /// Ready groups by their first message, so that the oldest message of the queue goes first.
    ready: BTreeSet<(Key, String)>,
}

#[derive(Clone, Debug, Default)]
struct Group {
    /// All messages, in order, and whether each could be received if it were alone.
    messages: std::collections::BTreeMap<Key, bool>,
    ready_as: Option<Key>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Visible,
    /// It is in flight or delayed.
    Hidden,
    Gone,
}

impl Groups {
    pub(crate) fn note(&mut self, id: &str, key: Key, turn: Turn) {
        let group = self.by_id.entry(id.to_owned()).or_default();
        match turn {
            Turn::Gone => group.messages.remove(&key),
            Turn::Visible => group.messages.insert(key, true),
            Turn::Hidden => group.messages.insert(key, false),
        };
        let first = group.messages.first_key_value();
        let ready = first.filter(|(_, visible)| **visible).map(|(key, _)| *key);
        if ready != group.ready_as {
            if let Some(old) = group.ready_as {
                self.ready.remove(&(old, id.to_owned()));
            }
            if let Some(new) = ready {
                self.ready.insert((new, id.to_owned()));
            }
            group.ready_as = ready;
        }
        if group.messages.is_empty() {
            self.by_id.remove(id);
        }
    }

    /// The first `limit` messages of the ready group that has waited longest, up to the first
    /// message that is not visible.
    pub(crate) fn next(&self, limit: usize) -> Option<Vec<Key>> {
        let (_, id) = self.ready.first()?;
        let group = self.by_id.get(id)?;
        let visible = group.messages.iter().take_while(|(_, visible)| **visible);
        Some(visible.map(|(key, _)| *key).take(limit).collect())
    }
}

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

    pub(crate) fn remember(&mut self, id: Scoped, sent: Sent, now: SystemTime) {
        if self.seen.insert(id.clone(), sent).is_none() {
            self.oldest_first.push_back((now, id));
        }
    }
}
