//! Asking the queue for messages: how long a receive waits, and how long to pause after one that
//! failed.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::settings::Until;
use crate::clock::Sampler;
use crate::lock::lock;
use crate::observer::{Event, Observers};
use crate::policy::CallPolicy;
use crate::processor::Deletes;
use crate::queue::{CallError, CallErrorKind, Description, MAX_WAIT, QueueArn, Record};

/// The longest receive is this part of the visibility timeout. A message counts as hidden from the
/// request for it, so the rest of the time is left for the work.
const PART: u32 = 3;
/// The longest receive of a queue that is being drained.
const DRAIN_WAIT: Duration = Duration::from_secs(1);
/// The pause between two receives that do not wait and return no message.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// The interval between two lines about the messages of a queue that is being drained.
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

/// Messages, and the time before the request for them: none of them was hidden earlier.
pub(super) struct Received {
    pub(super) records: Vec<Record>,
    pub(super) asked: Instant,
}

/// The failures to receive from a queue, and the lines about its drain, shared by the receivers of a
/// worker.
pub(super) struct Trouble {
    queue: QueueArn,
    endpoint: Option<String>,
    observers: Observers,
    since: Mutex<Option<Instant>>,
    /// When the last line was written about the messages of a queue that is being drained.
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

    /// Whether a queue that is being drained has no message. If SQS does not tell, it counts as not
    /// empty.
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
    /// Notes a receive that failed and returns how long to pause. An operator may fix a refusal of
    /// SQS, so the worker asks again after that too, but only after the longest pause.
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

    /// Notes the deletes of a batch and returns how long to pause. Each further message would be done
    /// and stay in the queue.
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
}
