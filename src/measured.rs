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
        let original_message_id = Some("0b6f1bd4-8d2f-4b58-9d2a-5f1c9c1f0a11".to_owned());
        Self(RetryState { retry_count: 3, original_message_id, ..RetryState::default() })
    }
}

/// Splits a received body. Returns whether it is that of a copy.
pub fn read(body: &str) -> bool {
    matches!(wire::read(body, 50).origin, Origin::Ours(_))
}

/// Makes the body of a copy, and wraps the payload if it must.
pub fn stamp(payload: &str, state: &State) -> Option<String> {
    wire::stamp(payload, &state.0, Wrap::WhenNeeded).map(wire::Stamped::into_text)
}
