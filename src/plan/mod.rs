//! Plans how a decision is carried out for one delivery, and whether the messages behind it in its
//! FIFO group may proceed. It is pure. No other module knows how FIFO queues, strategies,
//! dead-letter modes and missing ids change a disposition.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::delay::{Delay, Wait, whole_secs};
use crate::delivery::Delivery;
use crate::disposition::{
    DeadLetterReason, Deferral, Disposition, IdempotencyNotes, ReleaseReason, Strategy,
};
use crate::failure::{Detail, Failure};
use crate::limit::StartTag;
use crate::policy::{self, RetryPolicy};
use crate::queue::{QueueArn, QueueUrl};
use crate::settings::{DeadLetterMode, Mode};
use crate::wire::{self, Wrap};

mod copy;

pub(crate) use copy::{Copy, Unsendable};

pub(crate) struct Decision {
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) disposition: Disposition,
    pub(crate) failure: Option<Failure>,
    /// How long the handler ran; `None` if it was not called.
    pub(crate) elapsed: Option<Duration>,
    /// Whether its call was that of another message.
    pub(crate) joined_call: bool,
    pub(crate) at: SystemTime,
    /// The random number of this delivery.
    pub(crate) sample: f64,
    /// The start tag in the line of the rate limit, if the message waits there.
    pub(crate) start_tag: Option<StartTag>,
    pub(crate) idempotency: IdempotencyNotes,
}

impl Decision {
    /// The decision about a delivery whose handler was not called.
    pub(crate) fn uncalled(
        delivery: Arc<Delivery>,
        disposition: Disposition,
        at: SystemTime,
        sample: f64,
    ) -> Self {
        let idempotency = IdempotencyNotes::default();
        Self {
            delivery,
            disposition,
            failure: None,
            elapsed: None,
            joined_call: false,
            at,
            sample,
            start_tag: None,
            idempotency,
        }
    }
}

/// How a decision is carried out.
#[derive(Debug)]
pub(crate) enum Plan {
    /// The host deletes the message.
    Done,
    /// SQS keeps the message unchanged; `unsent` says why no copy can be sent, if one was wanted.
    Keep { unsent: Option<Unsendable> },
    /// SQS keeps the message and delivers it again at once. If SQS refuses that, the delivery is
    /// only later.
    Show { queue: Arc<QueueArn> },
    /// SQS keeps the message, and hides it for so long; `unsent` says why no copy can be sent, if
    /// one was wanted.
    Hide { queue: Arc<QueueArn>, wait: Duration, unsent: Option<Unsendable> },
    /// A copy is sent. After SQS confirms it, the original is deleted.
    Copy(Copy),
}

/// Whether the messages behind a message in its FIFO group may proceed. Without a group, no message
/// is behind another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Successors {
    /// They may be handled.
    Proceed,
    /// They may be handled once SQS has confirmed the copy in the dead-letter queue.
    ProceedOnceMoved,
    /// The message is handled again, and comes first.
    Wait,
}

/// A decision, and how it is carried out.
pub(crate) struct Planned {
    pub(crate) decision: Decision,
    pub(crate) plan: Plan,
    pub(crate) successors: Successors,
}

/// The settings by which decisions are planned.
#[derive(Clone, Copy)]
pub(crate) struct Planner<'a> {
    pub(crate) policy: &'a RetryPolicy,
    pub(crate) mode: Mode,
    pub(crate) dead_letter: &'a DeadLetterMode,
    pub(crate) wrap: Wrap,
    /// The longest message that a queue takes, as far as is known.
    pub(crate) max_bytes: &'a (dyn Fn(&QueueArn) -> usize + Send + Sync),
}

impl<'a> Planner<'a> {
    /// Plans one decision. If `is_lapsed` is set, SQS may have delivered the message to another
    /// receiver.
    pub(crate) fn plan(&self, mut decision: Decision, is_lapsed: bool) -> Planned {
        let dead_letter = self.dead_letter_mode(&decision.delivery, decision.at);
        decision.disposition = self.feasible(&decision, dead_letter, is_lapsed);
        let (plan, successors) = match decision.disposition {
            Disposition::Complete => (Plan::Done, Successors::Proceed),
            Disposition::Requeue { wait, hidden_if_unsent } => {
                let hidden_if_unsent = Duration::from_secs(whole_secs(hidden_if_unsent));
                (self.wait(&decision, None, wait, hidden_if_unsent), Successors::Wait)
            }
            Disposition::Defer { reason: Deferral::Unclear, wait }
                if decision.delivery.message_id.is_some() =>
            {
                (hide(&decision.delivery, wait.total()), Successors::Wait)
            }
            // Its last attempt may be the one in progress. In a copy its receives would begin anew, so
            // SQS would never move it.
            Disposition::Defer { reason: Deferral::InProgress, wait }
                if decision.delivery.receive_count > 1
                    && decision.delivery.message_id.is_some()
                    && *dead_letter == DeadLetterMode::Redrive =>
            {
                (hide(&decision.delivery, wait.total()), Successors::Wait)
            }
            Disposition::Defer { reason: why, wait } => {
                (self.wait(&decision, Some(why), wait, wait.total()), Successors::Wait)
            }
            Disposition::Release(reason) => self.release(&decision.delivery, reason),
            Disposition::DeadLetter(reason) => self.give_up(&decision, reason, dead_letter),
        };
        Planned { decision, plan, successors }
    }

    /// The mode of the settings, or [`DeadLetterMode::Redrive`] if that mode's copy cannot be made.
    /// A copy needs the whole record, and on a FIFO queue it would lose its place. If a FIFO
    /// message cannot be sent to the dead-letter queue, its receives get it there; otherwise SQS
    /// would move its group there unhandled.
    pub(crate) fn dead_letter_mode(
        &self,
        delivery: &Delivery,
        now: SystemTime,
    ) -> &'a DeadLetterMode {
        let is_copyable = delivery.defect.is_none() && delivery.queue.is_some();
        let is_last = || delivery.is_fifo() && policy::is_spent(self.policy, &delivery.usage());
        match self.dead_letter {
            _ if !is_copyable => &DeadLetterMode::Redrive,
            DeadLetterMode::Annotate if delivery.is_fifo() || delivery.ends_its_row() => {
                &DeadLetterMode::Redrive
            }
            DeadLetterMode::Direct(url) if is_last() && !self.fits(delivery, url, now) => {
                &DeadLetterMode::Redrive
            }
            mode => mode,
        }
    }

    /// Whether the dead letter of a message is sent, so that SQS need not move the message.
    pub(crate) fn sends_dead_letter(&self, delivery: &Delivery, now: SystemTime) -> bool {
        match self.dead_letter {
            DeadLetterMode::Direct(url) => {
                delivery.defect.is_none() && self.fits(delivery, url, now)
            }
            DeadLetterMode::Redrive | DeadLetterMode::Annotate => false,
        }
    }

    /// The disposition that can be carried out for this record. A copy needs a queue, and a message
    /// that no other receiver has. Without an id, SQS cannot be told to keep a message.
    fn feasible(
        &self,
        decision: &Decision,
        dead_letter: &DeadLetterMode,
        is_lapsed: bool,
    ) -> Disposition {
        let Decision { delivery, disposition: wanted, at, sample, .. } = decision;
        let unreportable = || {
            policy::defer(self.policy, Deferral::Unreportable, delivery.deferrals(), *at, *sample)
        };
        match *wanted {
            // A finished message is done, even if another receiver has it. An abandoned handler
            // causes no call.
            Disposition::Complete | Disposition::Release(ReleaseReason::Abandoned) => *wanted,
            _ if is_lapsed => Disposition::Release(ReleaseReason::Lapsed),
            Disposition::Requeue { .. } if self.mode == Mode::Report => {
                Disposition::Release(ReleaseReason::Reported)
            }
            // In every other mode, a message without an id waits in a copy.
            Disposition::Defer { reason, .. }
                if self.mode == Mode::Report
                    && (delivery.strategy == Strategy::Copy || reason == Deferral::Unclear) =>
            {
                Disposition::Release(ReleaseReason::Reported)
            }
            Disposition::Requeue { .. } | Disposition::Defer { .. } if delivery.queue.is_none() => {
                Disposition::Release(ReleaseReason::NoQueue)
            }
            Disposition::Defer { reason: Deferral::NoTimeLeft, .. }
                if delivery.state.deferrals >= self.policy.max_deferrals =>
            {
                Disposition::Release(ReleaseReason::DeferredTooOften)
            }
            Disposition::Defer { reason, wait }
                if delivery.strategy == Strategy::Visibility && reason.is_rarer_by_visibility() =>
            {
                Disposition::Defer { reason, wait: policy::deferred_by_visibility(wait, *at) }
            }
            Disposition::DeadLetter(_)
                if *dead_letter == DeadLetterMode::Redrive
                    && self.is_sent_for_want_of_an_id(delivery) =>
            {
                unreportable()
            }
            Disposition::Release(ReleaseReason::NotRetried)
                if self.is_sent_for_want_of_an_id(delivery) =>
            {
                unreportable()
            }
            Disposition::Requeue { .. }
            | Disposition::Defer { .. }
            | Disposition::Release(_)
            | Disposition::DeadLetter(_) => *wanted,
        }
    }

    /// Whether SQS cannot be told to keep the message, but a copy of it can be sent.
    fn is_sent_for_want_of_an_id(&self, delivery: &Delivery) -> bool {
        let can_be_copied =
            delivery.defect.is_none() && delivery.queue.is_some() && !delivery.is_fifo();
        delivery.message_id.is_none() && can_be_copied && self.mode == Mode::Requeue
    }

    /// Plans a wait: a deferral if `why` is set, otherwise the wait for the next retry. If no copy
    /// can be made, the message is hidden for `hidden_if_unsent`.
    fn wait(
        &self,
        decision: &Decision,
        why: Option<Deferral>,
        wait: Wait,
        hidden_if_unsent: Duration,
    ) -> Plan {
        let Decision { delivery, .. } = decision;
        let Some(queue) = delivery.queue.clone() else { return Plan::Keep { unsent: None } };
        if delivery.strategy == Strategy::Visibility {
            return hide(delivery, wait.total());
        }
        let state = copy::waiting(decision, why, wait);
        let route = (Arc::clone(&queue), Arc::clone(&queue));
        match Copy::new(self, delivery, &state, wait.delay(), route, Some(hidden_if_unsent)) {
            Ok(copy) => Plan::Copy(copy),
            Err(unsent) => Plan::Hide { queue, wait: hidden_if_unsent, unsent: Some(unsent) },
        }
    }

    /// Plans a message that SQS keeps, but not for a retry.
    fn release(&self, delivery: &Delivery, reason: ReleaseReason) -> (Plan, Successors) {
        match reason {
            // If the end of the host stops this message, it stops all messages behind it too.
            ReleaseReason::ShuttingDown => (show(delivery), Successors::Proceed),
            ReleaseReason::Annotated if delivery.is_fifo() => self.leave_behind(delivery),
            ReleaseReason::Annotated
                if delivery.receive_count <= DeadLetterMode::MAX_SHOWN_RECEIVES =>
            {
                (show(delivery), Successors::Wait)
            }
            ReleaseReason::NotRetried if self.is_left_behind(delivery) => {
                self.leave_behind(delivery)
            }
            ReleaseReason::NotRetried
            | ReleaseReason::Annotated
            | ReleaseReason::LaterVersion
            | ReleaseReason::Abandoned
            | ReleaseReason::DeferredTooOften
            | ReleaseReason::BehindFailed
            | ReleaseReason::NoQueue
            | ReleaseReason::Reported
            | ReleaseReason::Lapsed => (Plan::Keep { unsent: None }, Successors::Wait),
        }
    }

    fn give_up(
        &self,
        decision: &Decision,
        reason: DeadLetterReason,
        dead_letter: &DeadLetterMode,
    ) -> (Plan, Successors) {
        let Decision { delivery, failure, at, .. } = decision;
        let is_expired = reason == DeadLetterReason::Expired;
        match (dead_letter, &delivery.queue) {
            (DeadLetterMode::Redrive, _) | (_, None) => {
                if delivery.is_fifo() && (is_expired || self.is_left_behind(delivery)) {
                    self.leave_behind(delivery)
                } else {
                    (Plan::Keep { unsent: None }, Successors::Wait)
                }
            }
            (DeadLetterMode::Annotate, Some(queue)) => {
                let state = copy::dead_lettered(delivery, reason, failure.as_ref(), *at);
                let route = (Arc::clone(queue), Arc::clone(queue));
                let delay = DeadLetterMode::ANNOTATION_DELAY;
                let copy = Copy::new(self, delivery, &state, delay, route, None);
                (copy_or_keep(copy), Successors::Wait)
            }
            (DeadLetterMode::Direct(url), Some(from)) => {
                let to = dead_letter_queue_of(from, url).ok_or(Unsendable::NoDeadLetterQueue);
                let state = copy::sent_elsewhere(delivery, reason, failure.as_ref(), *at);
                let route = |to| (Arc::clone(from), to);
                let copy = to.and_then(|to| {
                    Copy::new(self, delivery, &state, Delay::default(), route(to), None)
                });
                let successors =
                    if is_expired { Successors::Proceed } else { Successors::ProceedOnceMoved };
                (copy_or_keep(copy), successors)
            }
        }
    }

    /// Whether the messages behind a message that was dead-lettered without a copy may pass it. Until
    /// its receives use up its retries, another process may handle it again on any receive, not
    /// knowing that it was dead-lettered.
    fn is_left_behind(&self, delivery: &Delivery) -> bool {
        delivery.is_fifo() && policy::is_spent(self.policy, &delivery.usage())
    }

    /// Plans a FIFO message that is on its way to the dead-letter queue and lets its successors
    /// pass. SQS holds them back while it is in flight, so it becomes receivable at once. Without a
    /// redrive policy that would never end, so a stuck message is kept.
    fn leave_behind(&self, delivery: &Delivery) -> (Plan, Successors) {
        let is_stuck = policy::is_stuck(self.policy, &delivery.usage());
        (if is_stuck { Plan::Keep { unsent: None } } else { show(delivery) }, Successors::Proceed)
    }

    /// Whether a dead letter can be sent, with a reason of any length.
    fn fits(&self, delivery: &Delivery, url: &QueueUrl, now: SystemTime) -> bool {
        let reason = DeadLetterReason::RetriesExhausted;
        let to = delivery.queue.as_ref().and_then(|from| dead_letter_queue_of(from, url));
        to.is_some_and(|to| {
            let state = copy::sent_elsewhere(delivery, reason, None, now);
            wire::stamp(delivery.payload(), &state, self.wrap).is_ok_and(|body| {
                requeue_sqs::message_bytes(body.as_str(), &delivery.attributes)
                    + Detail::MAX_BYTES
                    + Failure::MAX_SAID
                    <= (self.max_bytes)(&to)
            })
        })
    }
}

fn hide(delivery: &Delivery, wait: Duration) -> Plan {
    let hidden = |queue| Plan::Hide { queue, wait, unsent: None };
    delivery.queue.clone().map_or(Plan::Keep { unsent: None }, hidden)
}

fn show(delivery: &Delivery) -> Plan {
    delivery.queue.clone().map_or(Plan::Keep { unsent: None }, |queue| Plan::Show { queue })
}

/// A dead letter that cannot be sent stays in its queue.
fn copy_or_keep(copy: Result<Copy, Unsendable>) -> Plan {
    copy.map_or_else(|unsent| Plan::Keep { unsent: Some(unsent) }, Plan::Copy)
}

/// The queue to which the dead letters of a queue are sent. `None` if that is the queue itself,
/// since they would return for ever.
fn dead_letter_queue_of(queue: &QueueArn, url: &QueueUrl) -> Option<Arc<QueueArn>> {
    Some(url.arn(queue.partition(), queue.region())).filter(|other| other != queue).map(Arc::new)
}
