//! The built Lambda binaries as Lambda runs them: real processes between a Runtime API, SQS on
//! loopback and an HTTP target. Where a message is in the end is read from the queue, never from
//! our own report.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod runtime_api;
mod stage;

mod concurrent;
mod crash;
mod delivery;
mod events;
mod function;
#[cfg(target_os = "linux")]
mod floods;
mod frozen;
mod hangs;
mod hostile;
mod idle;
mod isolation;
mod idempotency;
mod proxy;
mod secrecy;
mod secrets;
mod soak;
mod start;
mod target;
mod telemetry;
mod tls;
