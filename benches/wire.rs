//! What it costs to read a body and to stamp a copy.
//!
//! `cargo bench --bench wire`. The room is not public, so its sources are compiled into this benchmark.

#![allow(dead_code, unused_imports, missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

#[path = "../src/clock.rs"]
mod clock;
#[path = "../src/failure.rs"]
mod failure;
#[path = "../src/state.rs"]
mod state;
#[path = "../src/wire/mod.rs"]
mod wire;

pub use clock::{Clock, Sampler};
pub use failure::{Evidence, Failure, FailureClass};

use state::RetryState;
use wire::{Origin, Wrap, read, stamp};

fn main() {
    divan::main();
}

/// Sizes of a body: a small event, the usual, and one that bills as a second request.
const SIZES: [usize; 3] = [100, 600, 65_536];

/// A JSON object of about this size, with many members.
fn object(size: usize) -> String {
    let mut text = String::from("{\"orderId\":\"A-1\"");
    for n in 0.. {
        if text.len() >= size {
            break;
        }
        text.push_str(&format!(",\"line{n}\":{{\"sku\":\"X-{n}\",\"quantity\":{n}}}"));
    }
    text + "}"
}

fn state() -> RetryState {
    RetryState {
        retry_count: 3,
        original_message_id: Some("0b6f1bd4-8d2f-4b58-9d2a-5f1c9c1f0a11".to_owned()),
        ..Default::default()
    }
}

#[divan::bench(args = SIZES)]
fn read_first_delivery(bencher: divan::Bencher, size: usize) {
    let body = object(size);
    bencher.counter(divan::counter::BytesCount::of_str(&body)).bench(|| read(divan::black_box(&body), 50));
}

#[divan::bench(args = SIZES)]
fn read_copy(bencher: divan::Bencher, size: usize) {
    let copy = stamp(&object(size), &state(), Wrap::WhenNeeded).expect("wraps").as_str().to_owned();
    assert!(matches!(read(&copy, 50).origin, Origin::Ours(_)));
    bencher.counter(divan::counter::BytesCount::of_str(&copy)).bench(|| read(divan::black_box(&copy), 50));
}

#[divan::bench(args = SIZES)]
fn stamp_object(bencher: divan::Bencher, size: usize) {
    let (body, state) = (object(size), state());
    bencher
        .counter(divan::counter::BytesCount::of_str(&body))
        .bench(|| stamp(divan::black_box(&body), &state, Wrap::WhenNeeded));
}

#[divan::bench(args = SIZES)]
fn stamp_text(bencher: divan::Bencher, size: usize) {
    let (body, state) = ("x".repeat(size), state());
    bencher
        .counter(divan::counter::BytesCount::of_str(&body))
        .bench(|| stamp(divan::black_box(&body), &state, Wrap::WhenNeeded));
}
