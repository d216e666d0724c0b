//! The private functions that `benches/` measure. They are no part of the API, and the library does
//! not use them.

use crate::state::RetryState;
use crate::wire::{self, Origin, Wrap};

/// A message's retry state.
#[derive(Debug)]
pub struct State(RetryState);

impl State {
    /// The state of a message that was retried three times.
    pub fn after_three_retries() -> Self {
        Self(RetryState {
            retry_count: 3,
            original_message_id: Some("0b6f1bd4-8d2f-4b58-9d2a-5f1c9c1f0a11".to_owned()),
            ..RetryState::default()
        })
    }
}

/// A body, taken apart.
#[derive(Debug)]
pub struct Read<'a>(wire::ReadBody<'a>);

impl Read<'_> {
    /// Whether the body is that of a copy.
    pub fn is_of_a_copy(&self) -> bool {
        matches!(self.0.origin, Origin::Ours(_))
    }
}

/// The body of a copy.
#[derive(Debug)]
pub struct Stamped(wire::Stamped);

impl Stamped {
    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// Takes a received body apart.
pub fn read(body: &str) -> Read<'_> {
    Read(wire::read(body, 50))
}

/// Makes the body of a copy, and wraps the payload if it must.
pub fn stamp(payload: &str, state: &State) -> Option<Stamped> {
    wire::stamp(payload, &state.0, Wrap::WhenNeeded).ok().map(Stamped)
}
