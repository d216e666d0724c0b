//! The retries of a message that fails with the same class until it is dead-lettered. The library does
//! the arithmetic; this code calls it repeatedly with its own clock.

use std::time::{Duration, SystemTime};

use requeue::policy::{History, RetryPolicy};
use requeue::queue::MAX_VISIBILITY;
use requeue::{DeadLetterReason, Disposition, Failure, FailureClass, Wait};
use serde::Serialize;

/// The longest wait by visibility. SQS's limit counts from the receive, up to six minutes before
/// the invocation, and the invocation takes up to fifteen.
const LONGEST_IN_PLACE: Duration = MAX_VISIBILITY.saturating_sub(Duration::from_mins(6 + 15));

/// The greatest draw of a random generator.
const ALMOST_ONE: f64 = 1.0_f64.next_down();

/// One value for each of three jitters: every draw the least, the middle one, or the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct JitterRange<T> {
    pub(crate) min: T,
    pub(crate) median: T,
    pub(crate) max: T,
}

impl<T> JitterRange<T> {
    pub(crate) fn map<U>(&self, f: impl Fn(&T) -> U) -> JitterRange<U> {
        JitterRange { min: f(&self.min), median: f(&self.median), max: f(&self.max) }
    }

    pub(crate) fn with<U, V>(
        &self,
        other: &JitterRange<U>,
        f: impl Fn(&T, &U) -> V,
    ) -> JitterRange<V> {
        JitterRange {
            min: f(&self.min, &other.min),
            median: f(&self.median, &other.median),
            max: f(&self.max, &other.max),
        }
    }

    pub(crate) fn most<U: Ord + Default>(&self, f: impl Fn(&T) -> U) -> U {
        self.each().map(|(_, value)| f(value)).into_iter().max().unwrap_or_default()
    }

    pub(crate) fn each(&self) -> [(&'static str, &T); 3] {
        [("min", &self.min), ("median", &self.median), ("max", &self.max)]
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitMode {
    InCopies,
    /// By its visibility timeout; the queue allows this many receives.
    InPlace {
        max_receives: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimelineEnd {
    /// The policy ends it.
    DeadLettered(DeadLetterReason),
    /// The queue ends it: `maxReceiveCount` is used up, so SQS moves the message after this wait.
    ReceivesExhausted { wait: Duration },
}

impl TimelineEnd {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::DeadLettered(reason) => reason.as_str(),
            Self::ReceivesExhausted { .. } => "receives-exhausted",
        }
    }
}

/// From the first receive to the last decision. The model assumes that calls take no time, and that
/// each message is received when it is due.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Timeline {
    pub(crate) retries: Vec<TimelineRetry>,
    pub(crate) end: TimelineEnd,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TimelineRetry {
    /// From the failure before it to this retry.
    pub(crate) delay: Duration,
    pub(crate) hops: u32,
    /// From the first receive to this retry.
    pub(crate) age: Duration,
}

impl Timeline {
    pub(crate) fn range(
        policy: &RetryPolicy,
        class: FailureClass,
        waiting: WaitMode,
    ) -> JitterRange<Self> {
        JitterRange { min: 0.0, median: 0.5, max: ALMOST_ONE }
            .map(|sample| Self::simulate(policy, class, waiting, *sample))
    }

    fn simulate(policy: &RetryPolicy, class: FailureClass, waiting: WaitMode, sample: f64) -> Self {
        let failure = failure(class);
        let received = SystemTime::UNIX_EPOCH;
        let mut history = History::starting(received);
        let mut retries = Vec::new();
        let mut age = Duration::ZERO;
        loop {
            // The message did not wait before its first receive, so that is its send time.
            if policy.message_ttl.is_some_and(|ttl| age > ttl) {
                return Self { retries, end: TimelineEnd::DeadLettered(DeadLetterReason::Expired) };
            }
            let now = received + age;
            let wait = match policy.decide(&history, &failure, now, sample) {
                Disposition::Requeue { wait, .. } => wait,
                Disposition::DeadLetter(reason) => {
                    return Self { retries, end: TimelineEnd::DeadLettered(reason) };
                }
                Disposition::Complete | Disposition::Defer { .. } | Disposition::Release(_) => {
                    unreachable!("a failure without a delay of its own is retried or dead-lettered")
                }
            };
            let class_policy = policy.class(class).expect("a retried class has a policy");
            let (delay, hops, previous) = match waiting {
                WaitMode::InCopies => (wait.total(), hops(wait, now), wait.total()),
                WaitMode::InPlace { max_receives } => {
                    let delay = wait.total().min(LONGEST_IN_PLACE);
                    if history.receives == max_receives {
                        return Self {
                            retries,
                            end: TimelineEnd::ReceivesExhausted { wait: delay },
                        };
                    }
                    history.receives += 1;
                    // No state holds this delay, so the curve without jitter gives it.
                    (
                        delay,
                        0,
                        class_policy
                            .backoff
                            .delay(history.class_retries)
                            .min(class_policy.max_delay),
                    )
                }
            };
            age += delay;
            retries.push(TimelineRetry { delay, hops, age });
            history.retries += 1;
            history.class_retries += 1;
            history.previous = Some(previous);
        }
    }

    /// From the first receive to the end, which is a decision.
    pub(crate) fn age(&self) -> Duration {
        self.retries.last().map_or(Duration::ZERO, |last| last.age)
    }

    pub(crate) fn hops(&self) -> u32 {
        self.retries.iter().map(|retry| retry.hops).sum()
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.retries.len()).expect("a policy counts its retries in 32 bits")
    }
}

fn failure(class: FailureClass) -> Failure {
    match class {
        FailureClass::RateLimit => Failure::rate_limit(class),
        FailureClass::Quota => Failure::quota(class),
        FailureClass::Temporary => Failure::temporary(class),
        FailureClass::NonRetryable => Failure::non_retryable(class),
    }
}

fn hops(mut wait: Wait, mut now: SystemTime) -> u32 {
    let mut hops = 0;
    while let Some(due) = wait.not_before() {
        now += Duration::from_secs(u64::from(wait.delay().as_secs()));
        if due <= now {
            break;
        }
        hops += 1;
        wait = Wait::until(due, now);
    }
    hops
}
