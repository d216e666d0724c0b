//! One batch and its outcomes, over the real SDK client and an embedded queue, in virtual time.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "tests")]

mod world;

mod answers;
mod attempts;
mod budgets;
mod bulk;
mod calls;
mod conservation;
mod dead_letters;
mod deadline;
mod direct;
mod duplicates;
mod events;
mod fallback;
mod fifo;
mod fifo_histories;
mod dead_lettered;
mod guide;
mod hangs;
mod hostile;
mod in_place;
mod isolation;
mod loops;
mod pages;
mod idempotency;
mod outages;
mod patience;
mod producer_limits;
mod protection;
mod protection_shared;
mod queues;
mod key_limits;
mod limit_control;
mod rate_headers;
mod rate_limit;
mod rate_windows;
mod receives;
mod recipes;
mod redrives;
mod reporting;
mod retention;
mod secrecy;
mod senders;
mod edges;
mod settling;
mod shutdown;
mod stalled;
mod stopping;
mod stuck;
mod tampering;
mod wire_through;
mod worker;
mod worlds;

/// All histories where `REQUEUE_TEST_SEEDS` is set, as by `tests/run`, and a tenth of them elsewhere.
fn share(histories: u64) -> u64 {
    if std::env::var_os("REQUEUE_TEST_SEEDS").is_some() { histories } else { histories / 10 }
}
