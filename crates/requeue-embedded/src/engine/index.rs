//! The keys of a queue's messages in the orders next to receive, due, and too old; the order of
//! FIFO groups; the messages that a FIFO queue remembers as accepted, even after their deletion.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use super::limits;
use super::message::{Key, Message, Sent, State};

type ByTime = BTreeSet<(SystemTime, Key)>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    // Each message is in exactly one of these three, by the time of its state.
    visible: ByTime,
    delayed: ByTime,
    in_flight: ByTime,
    by_age: ByTime,
    groups: Option<Groups>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) visible: usize,
    pub(crate) delayed: usize,
    pub(crate) in_flight: usize,
}

impl Index {
    /// Next is the message that has been visible longest, or the first of a FIFO group.
    pub(crate) fn of(is_fifo: bool) -> Self {
        Self { groups: is_fifo.then(Groups::default), ..Self::default() }
    }

    pub(crate) fn insert(&mut self, key: Key, message: &Message) {
        self.by_age.insert((message.retained_from, key));
        let turn = match message.state {
            State::Visible { since } => {
                self.visible.insert((since, key));
                Turn::Visible
            }
            State::Delayed { until } => {
                self.delayed.insert((until, key));
                Turn::Hidden
            }
            State::InFlight { until, .. } => {
                self.in_flight.insert((until, key));
                Turn::Hidden
            }
        };
        self.note(key, message, turn);
    }

    pub(crate) fn remove(&mut self, key: Key, message: &Message) {
        self.by_age.remove(&(message.retained_from, key));
        match message.state {
            State::Visible { since } => self.visible.remove(&(since, key)),
            State::Delayed { until } => self.delayed.remove(&(until, key)),
            State::InFlight { until, .. } => self.in_flight.remove(&(until, key)),
        };
        self.note(key, message, Turn::Gone);
    }

    /// The messages to receive next, at most `limit`. On a FIFO queue they are of one group.
    pub(crate) fn next(&self, limit: usize) -> Vec<Key> {
        match &self.groups {
            Some(groups) => groups.next(limit).unwrap_or_default(),
            None => self.visible.iter().take(limit).map(|(_, key)| *key).collect(),
        }
    }

    /// A message whose delay or visibility timeout has ended, and the time of that end.
    pub(crate) fn due(&self, now: SystemTime) -> Option<(SystemTime, Key)> {
        self.first_waiting().filter(|(until, _)| *until <= now)
    }

    pub(crate) fn next_due(&self) -> Option<SystemTime> {
        self.first_waiting().map(|(until, _)| until)
    }

    /// A message that was kept for all of the retention period.
    pub(crate) fn older_than(&self, now: SystemTime, retention: Duration) -> Option<Key> {
        let (from, key) = self.by_age.first().copied()?;
        (from + retention <= now).then_some(key)
    }

    pub(crate) fn oldest_visible(&self) -> Option<Key> {
        self.visible.first().map(|(_, key)| *key)
    }

    pub(crate) fn delayed(&self) -> Vec<Key> {
        self.delayed.iter().map(|(_, key)| *key).collect()
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            visible: self.visible.len(),
            delayed: self.delayed.len(),
            in_flight: self.in_flight.len(),
        }
    }

    fn first_waiting(&self) -> Option<(SystemTime, Key)> {
        let (delayed, in_flight) = (self.delayed.first(), self.in_flight.first());
        delayed.into_iter().chain(in_flight).min().copied()
    }

    fn note(&mut self, key: Key, message: &Message, turn: Turn) {
        if let Some(groups) = &mut self.groups {
            groups.note(message.group.as_deref().unwrap_or_default(), key, turn);
        }
    }
}

/// The groups of one queue. A group is *ready* when its first message is visible. Its messages up
/// to the first one that is not visible can be received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    by_id: HashMap<String, Group>,
    /// Ready groups by their first message, so that the oldest message of the queue goes first.
    ready: BTreeSet<(Key, String)>,
}

#[derive(Clone, Debug, Default)]
struct Group {
    /// All messages, in order, and whether each could be received if it were alone.
    messages: BTreeMap<Key, bool>,
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

    /// Of the ready group that has waited longest, up to its first message that is not visible.
    pub(crate) fn next(&self, limit: usize) -> Option<Vec<Key>> {
        let (_, id) = self.ready.first()?;
        let group = self.by_id.get(id)?;
        let visible = group.messages.iter().take_while(|(_, visible)| **visible);
        Some(visible.map(|(key, _)| *key).take(limit).collect())
    }
}

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
