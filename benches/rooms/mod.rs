//! The room `wire/`, which is not public, and what it stands on, compiled into a benchmark; and what to feed it with.

#![allow(dead_code, unused_imports, missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

#[path = "../../src/clock.rs"]
pub mod clock;
#[path = "../../src/failure.rs"]
pub mod failure;
#[path = "../../src/printable.rs"]
pub mod printable;
#[path = "../../src/state.rs"]
pub mod state;
#[path = "../../src/wire/mod.rs"]
pub mod wire;

use state::RetryState;
use wire::{Wrap, stamp};

/// A JSON object of about this size, with many members.
pub fn object(size: usize) -> String {
    let mut text = String::from("{\"orderId\":\"A-1\"");
    for n in 0.. {
        if text.len() >= size {
            break;
        }
        text.push_str(&format!(",\"line{n}\":{{\"sku\":\"X-{n}\",\"quantity\":{n}}}"));
    }
    text + "}"
}

/// The same as a copy.
pub fn copy(size: usize) -> String {
    stamp(&object(size), &after_three_retries(), Wrap::WhenNeeded).expect("wraps").as_str().to_owned()
}

pub(crate) fn after_three_retries() -> RetryState {
    RetryState {
        retry_count: 3,
        original_message_id: Some("0b6f1bd4-8d2f-4b58-9d2a-5f1c9c1f0a11".to_owned()),
        ..Default::default()
    }
}
