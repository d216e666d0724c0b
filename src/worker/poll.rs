//! Receives: how long one waits for a message, and the pause after one that failed, or while
//! messages could only be deferred.

use std::mem;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, MutexGuard};
use tokio::time::Instant;

use super::settings::Until;
use crate::clock::Sampler;
use crate::disposition::Deferral;
use crate::gate::Standstill;
use crate::lock::lock;
use crate::observer::{Event, Observers};
use crate::policy::CallPolicy;
use crate::processor::Deletes;
use crate::queue::{CallError, CallErrorKind, Description, MAX_WAIT, QueueArn, Record};
use crate::report::{Outcome, Report};

/// The longest receive is this part of the visibility timeout.
const PART: u32 = 3;
/// The longest receive of a queue that is being drained.
const DRAIN_WAIT: Duration = Duration::from_secs(1);
/// The least time between two receives that return no message. Some emulators of SQS do not wait.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// The interval between two log lines about the messages of a queue that is being drained.
const COUNT_LINES: Duration = Duration::from_secs(30);

/// How long a receive waits for a message: whole seconds, as SQS counts them. It does not wait if
/// the visibility timeout is shorter than 3 s.
pub(super) fn wait(until: Until, visibility: Duration) -> Duration {
    let longest = match until {
        Until::Shutdown => MAX_WAIT,
        Until::Empty => DRAIN_WAIT,
    };
    longest.min(Duration::from_secs((visibility / PART).as_secs()))
}

/// Messages, and the time before the request for them: none was hidden earlier.
pub(super) struct Received {
    pub(super) records: Vec<Record>,
    pub(super) asked: Instant,
}

pub(super) struct Trouble {
    queue: QueueArn,
    endpoint: Option<String>,
    observers: Observers,
    since: Mutex<Option<Instant>>,
    /// When the count of a queue that is being drained was last logged.
    told_count: Mutex<Option<Instant>>,
}

impl Trouble {
    pub(super) fn none(queue: &Description, observers: Observers) -> Self {
        let (queue, endpoint) = (queue.arn.clone(), queue.endpoint.clone());
        Self { queue, endpoint, observers, since: Mutex::default(), told_count: Mutex::default() }
    }

    fn begin(&self) {
        lock(&self.since).get_or_insert_with(Instant::now);
    }

    /// Whether a queue that is being drained has no message, by SQS's count.
    pub(super) fn is_empty(&self, described: Result<Description, CallError>) -> bool {
        match described {
            Ok(description) if description.messages == 0 => return true,
            Ok(Description { messages, in_flight, .. }) if self.is_count_due() => {
                tracing::info!(
                    queue = %self.queue,
                    messages,
                    inFlight = in_flight,
                    "not empty: waiting for messages that are in flight or delayed"
                );
            }
            Err(error) if self.is_count_due() => {
                tracing::warn!(
                    action = "sqs:GetQueueAttributes",
                    queue = %self.queue,
                    endpoint = self.endpoint,
                    code = error.code,
                    "not known whether the queue is empty, so the worker goes on"
                );
            }
            _ => {}
        }
        false
    }

    fn is_count_due(&self) -> bool {
        let mut told = lock(&self.told_count);
        let is_due = told.is_none_or(|told| told.elapsed() >= COUNT_LINES);
        if is_due {
            *told = Some(Instant::now());
        }
        is_due
    }

    /// A receive has worked.
    pub(super) fn end(&self) {
        let since = lock(&self.since).take();
        if let Some(since) = since {
            let trouble = since.elapsed();
            self.observers.tell(&Event::ReceivingWorks { queue: &self.queue, trouble });
        }
    }
}

/// Failures in a row: receives, or batches of which SQS deleted no message.
#[derive(Default)]
pub(super) struct Failures {
    count: u32,
    pause: Option<Duration>,
}

impl Failures {
    /// Notes a receive that failed and returns the pause. If SQS refused it, an operator may fix
    /// the cause, so the worker asks again, after the longest pause.
    pub(super) fn add_receive(
        &mut self,
        policy: &CallPolicy,
        sampler: &Sampler,
        error: &CallError,
        trouble: &Trouble,
    ) -> Duration {
        trouble.begin();
        let is_refused = error.kind == CallErrorKind::Refused;
        let pause = self.add(policy, sampler, is_refused);
        trouble.observers.tell(&Event::ReceivingFailed {
            queue: &trouble.queue,
            endpoint: trouble.endpoint.as_deref(),
            code: &error.code,
            attempts: self.count,
            pause,
            is_lasting: is_refused
                || error.kind == CallErrorKind::Malformed
                || self.count >= policy.max_attempts,
        });
        pause
    }

    /// Notes the deletes of a batch and returns the pause. If SQS deletes none, each further
    /// message would be done and stay in the queue.
    pub(super) fn add_deletes(
        &mut self,
        policy: &CallPolicy,
        sampler: &Sampler,
        deletes: Deletes,
    ) -> Duration {
        if deletes.deleted.confirmed > 0 {
            *self = Self::default();
        }
        if deletes.deleted.confirmed > 0 || deletes.deleted.failed == 0 {
            return Duration::ZERO;
        }
        self.add(policy, sampler, false)
    }

    /// The pause after one more failure, however many there are.
    fn add(&mut self, policy: &CallPolicy, sampler: &Sampler, is_longest: bool) -> Duration {
        self.count = self.count.saturating_add(1);
        let endless = CallPolicy { max_attempts: u32::MAX, ..policy.clone() };
        let attempts = if is_longest { u32::MAX - 1 } else { self.count };
        let pause = endless.pause(attempts, self.pause, sampler.sample());
        *self.pause.insert(pause.unwrap_or(policy.max_delay))
    }
}

/// While probes run, the worker checks again after this time.
pub(super) const PROBING: Duration = Duration::from_secs(1);
/// The longest time between two receives if none of the received messages may probe.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The most batches that are deferred after a failed probe, as a power of four.
const MOST_PASSED: u32 = 3;

/// The standstill, shared by the receivers of a worker. The receiver of probes keeps it locked
/// until their messages are settled.
#[derive(Default)]
pub(super) struct Standing {
    is_still: AtomicBool,
    asked: AsyncMutex<Asked>,
}

/// The last pause for which a receiver asked.
#[derive(Default)]
pub(super) struct Asked {
    /// The pause, and how many messages might probe.
    last: Option<(u64, u32)>,
    /// The receives in a row without a message that probed.
    in_vain: u32,
    /// Whether the messages of the last receive were on their way to the dead-letter queue. SQS
    /// delivers their successors next.
    has_passed: bool,
    passing: Passing,
}

/// The batches that a worker defers so that other messages probe next. A row of messages that fail
/// for their own reasons would otherwise probe one by one, and keep the circuit open. After each
/// failed probe they are four times as many, until only copies come.
#[derive(Clone, Copy, Default)]
struct Passing {
    pause: Option<u64>,
    /// The pauses of this standstill so far.
    pauses: u32,
    /// The batches still to be deferred in this pause.
    batches: u32,
    /// Whether only copies came: each message was deferred once.
    is_over: bool,
}

impl Passing {
    /// Whether another batch is to be deferred in this pause.
    fn goes_on(&mut self, still: &Standstill) -> bool {
        if self.pause.replace(still.pause) != Some(still.pause) {
            self.batches = 4_u32.pow(self.pauses.min(MOST_PASSED + 1)) / 4;
            self.pauses += 1;
        }
        let goes_on = self.batches > 0 && !self.is_over && still.why == Deferral::CircuitOpen;
        self.batches -= u32::from(goes_on);
        goes_on
    }
}

pub(super) type Asking<'a> = MutexGuard<'a, Asked>;

impl Standing {
    /// Waits for the lock.
    pub(super) async fn turn(&self) -> Asking<'_> {
        self.asked.lock().await
    }

    pub(super) fn begin(
        &self,
        asked: &mut Asked,
        still: &Standstill,
        queue: &QueueArn,
        observers: &Observers,
    ) {
        if !self.is_still.swap(true, Ordering::Relaxed) {
            asked.passing = Passing::default();
            let Standstill { why, rest, .. } = *still;
            observers.tell(&Event::ReceivingStopped { queue, reason: why, rest });
        }
    }

    pub(super) fn end(&self, queue: &QueueArn, observers: &Observers) {
        if self.is_still.swap(false, Ordering::Relaxed) {
            observers.tell(&Event::ReceivingResumed { queue });
        }
    }
}

impl Asked {
    /// How many messages to receive: as many as may probe. If received messages did not probe, as
    /// many as possible: SQS delivers the oldest first, and the others may be far back in the
    /// queue.
    pub(super) fn most(&self, still: &Standstill) -> usize {
        if self.in_vain > 0 || !still.rest.is_zero() {
            usize::MAX
        } else {
            usize::try_from(still.permits).unwrap_or(usize::MAX)
        }
    }

    /// Notes the messages of the last receive.
    pub(super) fn received(&mut self, report: &Report) {
        self.has_passed =
            report.outcomes.iter().all(|outcome| outcome.disposition.stops_retrying());
        let is_copy = |outcome: &Outcome| outcome.message_id != outcome.original_message_id;
        self.passing.is_over |= report.outcomes.iter().all(is_copy);
    }

    /// How long to receive no message. `has_paused` is whether the worker has paused since the last
    /// receive, and `passes` is whether it may defer messages that could not probe.
    pub(super) fn pause(&mut self, still: &Standstill, has_paused: bool, passes: bool) -> Duration {
        let now = Some((still.pause, still.permits));
        match (still.rest, still.permits) {
            (Duration::ZERO, 0) => PROBING,
            (Duration::ZERO, _) if self.last == now && mem::take(&mut self.has_passed) => {
                self.in_vain = self.in_vain.max(1);
                Duration::ZERO
            }
            (Duration::ZERO, _) if self.last == now && !has_paused => {
                let pause = Duration::from_secs(1 << self.in_vain.min(5)).min(LONGEST_PAUSE);
                self.in_vain += 1;
                if still.rest_for_all.is_zero() { pause } else { pause.min(still.rest_for_all) }
            }
            (Duration::ZERO, _) => {
                if self.last != now {
                    *self = Self { last: now, passing: self.passing, ..Self::default() };
                }
                Duration::ZERO
            }
            _ if passes && self.passing.goes_on(still) => Duration::ZERO,
            (rest, _) => rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_leaves_two_thirds_of_the_visibility_timeout() {
        for (visibility, wait_secs) in [
            (1, 0),
            (2, 0),
            (3, 1),
            (5, 1),
            (6, 2),
            (30, 10),
            (59, 19),
            (60, 20),
            (61, 20),
            (43_200, 20),
        ] {
            let visibility = Duration::from_secs(visibility);
            assert_eq!(
                wait(Until::Shutdown, visibility),
                Duration::from_secs(wait_secs),
                "{visibility:?}"
            );
            assert_eq!(
                wait(Until::Empty, visibility),
                Duration::from_secs(wait_secs.min(1)),
                "{visibility:?}"
            );
        }
    }

    #[test]
    fn where_nobody_who_came_may_probe_receives_become_rarer() {
        let why = Deferral::Paused;
        let still = |rest, permits, pause| Standstill {
            why,
            rest: Duration::from_secs(rest),
            rest_for_all: Duration::from_secs(rest),
            permits,
            pause,
        };
        let mut asked = Asked::default();
        for (still, has_paused, pause) in [
            (still(30, 3, 1), false, 30),
            (still(0, 3, 1), true, 0),
            (still(0, 2, 1), false, 0),
            (still(0, 2, 1), false, 1),
            (still(0, 2, 1), true, 0),
            (still(0, 2, 1), false, 2),
            (still(0, 2, 1), true, 0),
            (still(0, 2, 1), false, 4),
            (still(0, 2, 1), false, 8),
            (still(0, 2, 1), false, 10),
            (still(0, 0, 1), false, 1),
            (still(9, 1, 2), false, 9),
            (still(0, 1, 2), true, 0),
            (still(0, 1, 2), false, 1),
        ] {
            assert_eq!(
                asked.pause(&still, has_paused, false),
                Duration::from_secs(pause),
                "{still:?} {has_paused}"
            );
        }
        let soon = Standstill { rest_for_all: Duration::from_millis(1_500), ..still(0, 1, 2) };
        assert_eq!(
            asked.pause(&soon, false, false),
            soon.rest_for_all,
            "then any message may probe"
        );
    }

    #[test]
    fn messages_on_their_way_to_the_dead_letter_queue_make_no_receive_rarer() {
        let rest = Duration::ZERO;
        let why = Deferral::CircuitOpen;
        let still = Standstill { why, rest, rest_for_all: rest, permits: 2, pause: 1 };
        let mut asked = Asked::default();
        assert_eq!((asked.pause(&still, false, false), asked.most(&still)), (rest, 2));
        for _ in 0..100 {
            asked.received(&Report::default());
            assert_eq!((asked.pause(&still, false, false), asked.most(&still)), (rest, usize::MAX));
        }
        assert_eq!(asked.pause(&still, false, false), Duration::from_secs(2));
    }
}
