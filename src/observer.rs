//! Events of the work, and the observers that receive them. This module knows no log and no
//! metrics; they are observers of `telemetry/`.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::disposition::Deferral;
use crate::failure::FailureClass;
use crate::queue::QueueArn;
use crate::report::{Outcome, Report};
use crate::scope::Scope;

/// An event in the work on messages. None of them has a body, an attribute or a receipt handle.
///
/// Later versions add events, so a match needs an arm for others.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A batch of messages is received.
    Received {
        /// The number of its messages.
        messages: usize,
    },
    /// The handler is called with a message.
    Called {
        /// The id of the delivered message.
        message_id: Option<&'a str>,
        /// The id of the first delivery.
        original_message_id: Option<&'a str>,
        /// The number of the call, from 1.
        attempt: u32,
        /// How often SQS delivered this copy.
        receive_count: u32,
    },
    /// A message of a batch is settled. It is reported after the whole batch is settled.
    Settled(&'a Outcome),
    /// A batch is settled, and its messages are reported.
    BatchSettled {
        /// The outcomes of all messages.
        report: &'a Report,
        /// The time by the clock of the processor.
        at: SystemTime,
        /// The messages without [`Settled`](Self::Settled), since the time of the batch was over.
        untold: usize,
    },
    /// A circuit opened: its messages are deferred, and a few of them probe.
    CircuitOpened {
        /// Its messages.
        scope: Scope,
        /// Whether it is the circuit of all execution environments.
        is_shared: bool,
        /// `false` in the mode `report`, which handles every message.
        is_enforced: bool,
        /// The text of the failure that opened it, as in `status 503`.
        cause: &'a str,
        /// The time of the first probe. If it fails, the circuit stays open.
        first_probe: SystemTime,
    },
    /// A circuit closed, since a probe got a response.
    CircuitClosed {
        /// Its messages.
        scope: Scope,
        /// Whether it is the circuit of all execution environments.
        is_shared: bool,
    },
    /// A pause began, since a failure named a delay: its messages are deferred. The execution
    /// environment tells it whose call began it. Not in the mode `report`, nor of a pause by an operator.
    Paused {
        /// Its messages.
        scope: Scope,
        /// Whether it is a pause of all execution environments.
        is_shared: bool,
        /// The class of the failure: a rate limit or a quota.
        class: FailureClass,
        /// The text of the failure, as in `status 429`.
        cause: &'a str,
        /// The time from which messages probe.
        until: SystemTime,
    },
    /// The shared table throttles. The messages that need it are deferred.
    TableThrottled,
    /// The table does not respond. Each environment makes no more calls than in the last 30 s.
    TableUnavailable {
        /// Why.
        code: &'a str,
    },
    /// The table did not confirm that a message is done, so a duplicate of it would be handled again.
    DoneNotRecorded,
    /// The table did not count an attempt, so each receive of its message counts as a retry.
    AttemptNotCounted,
    /// A receive of a worker failed.
    ReceivingFailed {
        /// The queue.
        queue: &'a QueueArn,
        /// The endpoint of SQS, if the client names it.
        endpoint: Option<&'a str>,
        /// The code of the failed request.
        code: &'a str,
        /// The receives in a row of this receiver that failed.
        attempts: u32,
        /// The time until this receiver tries again.
        pause: Duration,
        /// Whether it will probably fail again: SQS refused it, or it has failed several times.
        is_lasting: bool,
    },
    /// A receive of a worker worked after others failed.
    ReceivingWorks {
        /// The queue.
        queue: &'a QueueArn,
        /// The time since the first of those that failed.
        trouble: Duration,
    },
    /// A worker stops receiving, since its messages could only be deferred.
    ReceivingStopped {
        /// The queue.
        queue: &'a QueueArn,
        /// [`Deferral::Paused`] or [`Deferral::CircuitOpen`].
        reason: Deferral,
        /// The time until messages may probe.
        rest: Duration,
    },
    /// A worker receives again.
    ReceivingResumed {
        /// The queue.
        queue: &'a QueueArn,
    },
    /// SQS did not extend the visibility timeout of messages in flight, so it may deliver them
    /// again while their handlers run.
    NotExtended {
        /// The queue.
        queue: &'a QueueArn,
        /// The code of the failed request or entry.
        code: &'a str,
        /// The messages of the request.
        messages: usize,
    },
    /// The done or copied messages of a worker were not deleted, so SQS may deliver them again.
    NotDeleted {
        /// The queue.
        queue: &'a QueueArn,
        /// Their number.
        messages: usize,
    },
}

/// Receives the events of a processor or a worker.
///
/// ```
/// use requeue::{Event, Observer, Observers, Settings};
///
/// struct Circuits;
///
/// impl Observer for Circuits {
///     fn observe(&self, event: &Event<'_>) {
///         if let Event::CircuitOpened { cause, .. } = event {
///             println!("opened by {cause}");
///         }
///     }
/// }
///
/// let mut settings = Settings::default();
/// settings.observers = Observers::default().with(Circuits);
/// ```
pub trait Observer: Send + Sync {
    /// Notes an event. The work waits for it, so it should return at once.
    fn observe(&self, event: &Event<'_>);
}

/// The observers of a processor. Default: [`LogLines`](crate::LogLines) alone.
#[derive(Clone)]
pub struct Observers {
    list: Vec<Arc<dyn Observer>>,
    /// Whether the log lines are among them.
    has_log: bool,
}

impl Observers {
    /// One observer alone, and no log lines about events.
    pub fn only(observer: impl Observer + 'static) -> Self {
        Self { list: vec![Arc::new(observer)], has_log: false }
    }

    /// With another observer.
    #[must_use]
    pub fn with(mut self, observer: impl Observer + 'static) -> Self {
        self.list.push(Arc::new(observer));
        self
    }

    /// With the log lines, if they are among them. They are last, since a log may be slow.
    pub(crate) fn with_log(self, log: impl Observer + 'static) -> Self {
        if self.has_log { Self { has_log: false, ..self.with(log) } } else { self }
    }

    pub(crate) fn tell(&self, event: &Event<'_>) {
        for observer in &self.list {
            observer.observe(event);
        }
    }

    /// Reports a settled batch to each observer, while `has_time` is true. An observer gets the
    /// whole batch before the next one, so a slow observer keeps only later ones waiting.
    pub(crate) fn tell_settled(
        &self,
        report: &Report,
        at: SystemTime,
        has_time: impl Fn() -> bool,
    ) {
        for observer in &self.list {
            let mut outcomes = report.outcomes.iter();
            while has_time()
                && let Some(outcome) = outcomes.next()
            {
                observer.observe(&Event::Settled(outcome));
            }
            observer.observe(&Event::BatchSettled { report, at, untold: outcomes.len() });
        }
    }
}

impl Default for Observers {
    fn default() -> Self {
        Self { list: Vec::new(), has_log: true }
    }
}

requeue_sqs::debug_by_name!(Observers; |it| has_log: it.has_log);
