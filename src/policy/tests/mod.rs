//! The decision, told as tables.

use std::time::{Duration, SystemTime};

use super::*;
use crate::delay::Wait;
use crate::disposition::{DeadLetterReason, Deferral, Disposition};
use crate::failure::{Failure, FailureClass};
use crate::state::RetryState;

mod budgets;
mod curve;
mod pausing;
mod named;
mod outages;
mod properties;
mod spread;

/// What a random generator draws at most.
const ALMOST_ONE: f64 = 1.0_f64.next_down();

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// When every message of these tests was first received.
fn received() -> SystemTime {
    SystemTime::UNIX_EPOCH + secs(1_800_000_000)
}

fn failure(class: FailureClass) -> Failure {
    match class {
        FailureClass::RateLimit => Failure::rate_limit("too many"),
        FailureClass::Quota => Failure::quota("used up"),
        FailureClass::Temporary => Failure::temporary("away"),
        FailureClass::NonRetryable => Failure::non_retryable("wrong"),
    }
}

/// 10 s doubled up to 1,000 s, without jitter, retries and time in plenty.
fn plain() -> ClassPolicy {
    ClassPolicy {
        backoff: Backoff::Exponential { base: secs(10), multiplier: 2.0 },
        max_delay: secs(1_000),
        jitter: Jitter::None,
        max_retries: None,
        total_timeout: secs(100_000),
    }
}

fn policy(temporary: ClassPolicy) -> RetryPolicy {
    RetryPolicy { temporary, ..RetryPolicy::default() }
}

fn after_retries(retries: u32) -> History {
    History { retries, class_retries: retries, ..History::starting(received()) }
}

fn delay_secs(disposition: Disposition) -> Option<u64> {
    disposition.wait().map(|wait| wait.total().as_secs())
}

fn requeued(wait: u64, hidden_if_unsent: u64) -> Disposition {
    Disposition::Requeue {
        wait: Wait::from(secs(wait), received()),
        hidden_if_unsent: secs(hidden_if_unsent),
    }
}
