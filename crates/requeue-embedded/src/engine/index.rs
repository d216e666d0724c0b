//! The places of a queue's messages, in the orders in which they are needed: next to receive, due,
//! and too old. It holds keys, not messages.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use super::groups::{Groups, Key, Turn};
use super::message::{Message, State};
use super::settings::Fifo;

type ByTime = BTreeSet<(SystemTime, Key)>;

/// The orders of one queue.
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
    /// On a standard queue, the message that has been visible longest is next; on a FIFO queue, the
    /// first message of a group.
    pub(crate) fn of(fifo: Option<&Fifo>) -> Self {
        Self { groups: fifo.map(|_| Groups::default()), ..Self::default() }
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
