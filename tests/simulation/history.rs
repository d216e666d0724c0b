//! The history of a run, and the invariants that it broke.

use std::fmt::{self, Write as _};
use std::time::Duration;

use tokio::time::Instant;

/// One event. It is about one message, or about none in particular.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: Duration,
    pub message: Option<usize>,
    pub what: String,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.message.map_or("-".to_owned(), |n| n.to_string());
        write!(f, "{:>12.3} s  {message:>3}  {}", self.at.as_secs_f64(), self.what)
    }
}

pub struct History {
    origin: Instant,
    pub events: Vec<Event>,
    /// The first thing that should not have happened, and to which message.
    pub violation: Option<(Option<usize>, String)>,
}

impl History {
    pub fn new() -> Self {
        Self { origin: Instant::now(), events: Vec::new(), violation: None }
    }

    pub fn note(&mut self, message: Option<usize>, what: impl Into<String>) {
        self.events.push(Event { at: self.origin.elapsed(), message, what: what.into() });
    }

    pub fn violate(&mut self, message: Option<usize>, what: impl Into<String>) {
        let what = what.into();
        self.note(message, format!("VIOLATION: {what}"));
        self.violation.get_or_insert((message, what));
    }

    /// The events of a message and of none in particular, or all of them.
    pub fn of(events: &[Event], message: Option<usize>) -> String {
        let mut text = String::new();
        for event in events.iter().filter(|event| {
            message.is_none() || event.message.is_none() || event.message == message
        }) {
            writeln!(text, "{event}").expect("a string takes everything");
        }
        text
    }
}
