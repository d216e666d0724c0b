//! The retries of a message that fails with the same class until it is dead-lettered. The library does
//! the arithmetic; this code calls it repeatedly with its own clock, and counts requests and their price.

use std::time::{Duration, SystemTime};

use requeue::policy::{History, RetryPolicy};
use requeue::queue::{MAX_BATCH_BYTES, MAX_BATCH_ENTRIES, MAX_VISIBILITY};
use requeue::{
    DeadLetterMode, DeadLetterReason, Disposition, Failure, FailureClass, Strategy, Wait,
};
use serde::Serialize;

use super::{DeadLetterArgument, QueueModel};

/// The longest wait with the visibility timeout. SQS's limit counts from the receive, up to six
/// minutes before the invocation, and the invocation takes up to fifteen.
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
    /// With its visibility timeout; the queue allows this many receives.
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
                // Rounded up to whole seconds, only a draw of exactly zero is none.
                Disposition::Requeue { wait, .. } => {
                    Wait::from(wait.total().max(Duration::from_secs(1)), now)
                }
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
                    // No state has this delay, so the curve without jitter gives it.
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

/// US dollars for a million requests to a standard queue, the first hundred billion of a month, in
/// us-east-1 in 2026, after the million of each month that is free. Source:
/// aws.amazon.com/sqs/pricing. Regions and years differ, so it is an option.
pub(crate) const PRICE: f64 = 0.40;
/// Each 64 KiB of a payload are billed as one request. Source: aws.amazon.com/sqs/pricing.
const CHUNK_BYTES: u32 = 65_536;
#[allow(clippy::cast_possible_truncation, reason = "both are far below it")]
const MAX_ENTRIES: u32 = MAX_BATCH_ENTRIES as u32;
#[allow(clippy::cast_possible_truncation, reason = "both are far below it")]
pub(crate) const MAX_BYTES: u32 = MAX_BATCH_BYTES as u32;

/// Requests for one message, from the producer's send until it is in the dead-letter queue. The
/// move by the redrive policy is no request, and empty receives are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Requests {
    pub(crate) receives: u32,
    pub(crate) sends: u32,
    pub(crate) deletes: u32,
    /// Lambda's poller deletes each message that the function does not report as failed, even if
    /// the function has already deleted it.
    pub(crate) poller_deletes: u32,
    pub(crate) visibility_changes: u32,
    /// Calls by one execution environment, which remembers the messages that it dead-lettered.
    #[serde(rename = "handlerCalls")]
    pub(crate) calls: u32,
}

impl Requests {
    pub(crate) fn of(
        timeline: &Timeline,
        dead_lettering: &DeadLettering,
        queue: &QueueModel,
    ) -> Self {
        let retries = timeline.count();
        let (mut copies, mut visibility_changes) =
            (dead_lettering.copies, dead_lettering.visibility_changes);
        match queue.strategy {
            Strategy::Copy => copies += retries + timeline.hops(),
            _ => visibility_changes += retries,
        }
        // The handler is not called for an expired message.
        let last_call =
            u32::from(timeline.end != TimelineEnd::DeadLettered(DeadLetterReason::Expired));
        Self {
            receives: 1 + retries + timeline.hops() + dead_lettering.receives,
            sends: 1 + copies,
            deletes: copies,
            poller_deletes: copies,
            visibility_changes,
            calls: retries + last_call,
        }
    }

    /// Billed requests: with one message in each call, or with as many as a call holds.
    pub(crate) fn billed(&self, queue: &QueueModel, batching: Batching) -> f64 {
        let entries = match batching {
            Batching::Alone => 1,
            Batching::Full => (MAX_BYTES / queue.message_bytes).clamp(1, MAX_ENTRIES),
        };
        let chunks = (entries * queue.message_bytes).div_ceil(CHUNK_BYTES);
        let with_payload = self.receives + self.sends;
        let without = self.deletes + self.poller_deletes + self.visibility_changes;
        let requests = with_payload * chunks + without;
        f64::from(requests) / f64::from(entries)
    }

    pub(crate) fn million(&self, queue: &QueueModel, batching: Batching) -> f64 {
        self.billed(queue, batching) * queue.price_per_million
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batching {
    Alone,
    Full,
}

/// The steps after the last decision about a message, and their duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeadLettering {
    /// Annotated copies, with the reason why the message was dead-lettered.
    pub(crate) copies: u32,
    pub(crate) receives: u32,
    pub(crate) visibility_changes: u32,
    pub(crate) visibility_timeouts: u32,
    pub(crate) time: Duration,
}

impl DeadLettering {
    pub(crate) fn of(timeline: &Timeline, queue: &QueueModel) -> Self {
        match (timeline.end, queue.dead_letter) {
            (TimelineEnd::ReceivesExhausted { wait }, _) => {
                Self { visibility_changes: 1, time: wait, ..Self::default() }
            }
            (TimelineEnd::DeadLettered(_), DeadLetterArgument::Redrive) => {
                Self::received_again(timeline, queue)
            }
            (TimelineEnd::DeadLettered(_), DeadLetterArgument::Annotate) => {
                let hurried = queue.max_receives().min(DeadLetterMode::MAX_SHOWN_RECEIVES);
                let visibility_timeouts = queue.max_receives() - hurried;
                let delay = Duration::from_secs(DeadLetterMode::ANNOTATION_DELAY.as_secs().into());
                Self {
                    copies: 1,
                    receives: queue.max_receives(),
                    visibility_changes: hurried,
                    visibility_timeouts,
                    time: delay + queue.visibility() * visibility_timeouts,
                }
            }
            (TimelineEnd::DeadLettered(_), DeadLetterArgument::Direct) => {
                Self { copies: 1, ..Self::default() }
            }
        }
    }

    /// SQS redelivers it until its receives are used up. The execution environment that dead-lettered it
    /// remembers that, and does not call the handler again.
    fn received_again(timeline: &Timeline, queue: &QueueModel) -> Self {
        let had = match queue.strategy {
            Strategy::Copy => 1,
            _ => timeline.count() + 1,
        };
        let receives = queue.max_receives() - had;
        let visibility_timeouts = receives + 1;
        Self {
            receives,
            visibility_timeouts,
            time: queue.visibility() * visibility_timeouts,
            ..Self::default()
        }
    }
}
