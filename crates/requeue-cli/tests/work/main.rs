//! `requeue work` as a process between SQS on loopback and an HTTP target: it is killed and told to
//! end in the middle of its work, and no message is lost.
//!
//! The full run, with 5,000 messages on an independent SQS, takes its endpoint from
//! `REQUEUE_TEST_MINISTACK` as `tests/run` sets it.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod function;
mod limits;
mod ordeal;
mod process;
mod proxy;
mod shop;
mod soak;
mod terminal;
