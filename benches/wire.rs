//! What it costs to read a body and to stamp a copy.
//!
//! `cargo bench --bench wire`

#![allow(dead_code, unused_imports, missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

mod rooms;

use rooms::{after_three_retries, clock, copy, failure, object, printable, state, wire};
use wire::{Origin, Wrap, read, stamp};

fn main() {
    divan::main();
}

/// Sizes of a body: a small event, the usual, and one that bills as a second request.
const SIZES: [usize; 3] = [100, 600, 65_536];

#[divan::bench(args = SIZES)]
fn read_first_delivery(bencher: divan::Bencher, size: usize) {
    let body = object(size);
    bencher.counter(divan::counter::BytesCount::of_str(&body)).bench(|| read(divan::black_box(&body), 50));
}

#[divan::bench(args = SIZES)]
fn read_copy(bencher: divan::Bencher, size: usize) {
    let copy = copy(size);
    assert!(matches!(read(&copy, 50).origin, Origin::Ours(_)));
    bencher.counter(divan::counter::BytesCount::of_str(&copy)).bench(|| read(divan::black_box(&copy), 50));
}

#[divan::bench(args = SIZES)]
fn stamp_object(bencher: divan::Bencher, size: usize) {
    let (body, state) = (object(size), after_three_retries());
    bencher
        .counter(divan::counter::BytesCount::of_str(&body))
        .bench(|| stamp(divan::black_box(&body), &state, Wrap::WhenNeeded));
}

#[divan::bench(args = SIZES)]
fn stamp_text(bencher: divan::Bencher, size: usize) {
    let (body, state) = ("x".repeat(size), after_three_retries());
    bencher
        .counter(divan::counter::BytesCount::of_str(&body))
        .bench(|| stamp(divan::black_box(&body), &state, Wrap::WhenNeeded));
}
