//! The cost of reading a body and of stamping a copy.
//!
//! `cargo bench --bench wire`

use requeue::measured::{State, read, stamp};
use requeue_testkit::bodies::object;

fn main() {
    divan::main();
}

/// Sizes of a body: a small event, a usual one, and one that SQS bills as a second request.
const SIZES: [usize; 3] = [100, 600, 65_536];

#[divan::bench(args = SIZES)]
fn read_first_delivery(bencher: divan::Bencher, size: usize) {
    let body = object(size);
    bencher
        .counter(divan::counter::BytesCount::of_str(&body))
        .bench(|| read(divan::black_box(&body)));
}

#[divan::bench(args = SIZES)]
fn read_copy(bencher: divan::Bencher, size: usize) {
    let copy = stamp(&object(size), &State::after_three_retries()).expect("it can be wrapped");
    assert!(read(&copy));
    bencher
        .counter(divan::counter::BytesCount::of_str(&copy))
        .bench(|| read(divan::black_box(&copy)));
}

#[divan::bench(args = SIZES)]
fn stamp_object(bencher: divan::Bencher, size: usize) {
    let (body, state) = (object(size), State::after_three_retries());
    bencher
        .counter(divan::counter::BytesCount::of_str(&body))
        .bench(|| stamp(divan::black_box(&body), &state));
}

#[divan::bench(args = SIZES)]
fn stamp_text(bencher: divan::Bencher, size: usize) {
    let (body, state) = ("x".repeat(size), State::after_three_retries());
    bencher
        .counter(divan::counter::BytesCount::of_str(&body))
        .bench(|| stamp(divan::black_box(&body), &state));
}
