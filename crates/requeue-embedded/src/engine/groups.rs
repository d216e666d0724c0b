//! The order of a FIFO queue: the message of each group that may be received next.

use std::collections::{BTreeSet, HashMap};

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

/// The state of a message of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Visible,
    /// It is in flight or delayed.
    Hidden,
    Gone,
}

impl Groups {
    /// Notes the new state of a message.
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
