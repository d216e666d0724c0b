//! Plans how a decision is carried out for one delivery, and whether its successors in its FIFO
//! group may proceed; builds copies. It is pure. Only this module knows how FIFO queues,
//! strategies, dead-letter modes and missing ids change a disposition.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::delay::{Delay, Wait, whole_secs};
use crate::delivery::Delivery;
use crate::disposition::{Deferral, Disposition, IdempotencyNotes, ReleaseReason, Strategy};
use crate::failure::Failure;
use crate::limit::StartTag;
use crate::policy::{self, RetryPolicy};
use crate::queue::{MESSAGE_TOO_LONG, Outgoing, QueueArn};
use crate::settings::{DeadLetterMode, Mode};
use crate::state::RetryState;
use crate::wire::{self, Stamped, Wrap};

mod dead_letter;

pub(crate) struct Decision {
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) disposition: Disposition,
    pub(crate) failure: Option<Failure>,
    /// How long the handler ran; `None` if it was not called.
    pub(crate) elapsed: Option<Duration>,
    pub(crate) joined_call: bool,
    pub(crate) at: SystemTime,
    /// The random number of this delivery.
    pub(crate) sample: f64,
    /// The start tag in the waiting list of the rate limit, if the message is in it.
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
    /// SQS keeps the message unchanged. `unsent` is why a wanted copy cannot be sent.
    Keep { unsent: Option<Unsendable> },
    /// SQS keeps the message and delivers it again at once, or later if SQS refuses that.
    Show { queue: Arc<QueueArn> },
    /// SQS keeps the message, and hides it for `wait`. `unsent` is why a wanted copy cannot be
    /// sent.
    Hide { queue: Arc<QueueArn>, wait: Duration, unsent: Option<Unsendable> },
    /// Requeue sends a copy. After SQS confirms it, Requeue deletes the original.
    Copy(Copy),
}

/// Whether a message's successors in its FIFO group may proceed. Without a group, it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Successors {
    Proceed,
    /// They may be handled once SQS has confirmed the copy in the dead-letter queue.
    ProceedOnceMoved,
    /// The message is handled again, before its successors.
    Wait,
}

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
    /// The longest message of a queue, as far as it is known.
    pub(crate) max_bytes: &'a (dyn Fn(&QueueArn) -> usize + Send + Sync),
}

impl Planner<'_> {
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
            // The last attempt may be the one in progress. The receives of a copy would begin at 1,
            // so SQS would never move it.
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
            Disposition::DeadLetter(reason) => self.dead_letter(&decision, reason, dead_letter),
        };
        Planned { decision, plan, successors }
    }

    /// The disposition that is possible for this record. A copy needs a queue, and a message that
    /// no other receiver has. Without an id, Requeue cannot ask SQS to keep the message.
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

    /// Whether a copy is sent because Requeue cannot ask SQS to keep the message without an id.
    fn is_sent_for_want_of_an_id(&self, delivery: &Delivery) -> bool {
        let can_be_copied =
            delivery.defect.is_none() && delivery.queue.is_some() && !delivery.is_fifo();
        delivery.message_id.is_none() && can_be_copied && self.mode == Mode::Requeue
    }

    /// Plans a wait: a deferral if `why` is set, otherwise the wait for the next retry. If no copy
    /// can be sent, the message is hidden for `hidden_if_unsent`.
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
        let state = waiting(decision, why, wait);
        let route = (Arc::clone(&queue), Arc::clone(&queue));
        match Copy::new(self, delivery, &state, wait.delay(), route, Some(hidden_if_unsent)) {
            Ok(copy) => Plan::Copy(copy),
            Err(unsent) => Plan::Hide { queue, wait: hidden_if_unsent, unsent: Some(unsent) },
        }
    }

    /// Plans a message that SQS keeps, but not for a retry.
    fn release(&self, delivery: &Delivery, reason: ReleaseReason) -> (Plan, Successors) {
        match reason {
            // If the shutdown of the host stops this message, it stops all its successors too.
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
}

fn hide(delivery: &Delivery, wait: Duration) -> Plan {
    let hidden = |queue| Plan::Hide { queue, wait, unsent: None };
    delivery.queue.clone().map_or(Plan::Keep { unsent: None }, hidden)
}

fn show(delivery: &Delivery) -> Plan {
    delivery.queue.clone().map_or(Plan::Keep { unsent: None }, |queue| Plan::Show { queue })
}

#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) from: Arc<QueueArn>,
    pub(crate) to: Arc<QueueArn>,
    body: Stamped,
    delay: Delay,
    /// How long the original is hidden if SQS refuses the copy for its length, and the least time
    /// if SQS does not confirm the copy. `None` leaves the original to its visibility timeout.
    pub(crate) hidden_if_unsent: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsendable {
    /// The body cannot carry the count, and wrapping is switched off.
    NotWrappable,
    /// The message has no room for the retry fields.
    MessageTooLong,
    /// The dead-letter queue is the queue itself.
    NoDeadLetterQueue,
}

impl Unsendable {
    pub(crate) fn code(self) -> String {
        match self {
            Self::NotWrappable => "NotWrappable",
            Self::MessageTooLong => MESSAGE_TOO_LONG,
            Self::NoDeadLetterQueue => "NoDeadLetterQueue",
        }
        .to_owned()
    }
}

impl Copy {
    pub(super) fn new(
        planner: &Planner<'_>,
        delivery: &Delivery,
        state: &RetryState,
        delay: Delay,
        (from, to): (Arc<QueueArn>, Arc<QueueArn>),
        hidden_if_unsent: Option<Duration>,
    ) -> Result<Self, Unsendable> {
        let body = wire::stamp(delivery.payload(), state, planner.wrap);
        let body = body.ok_or(Unsendable::NotWrappable)?;
        let max_bytes = (planner.max_bytes)(&to);
        let copy = Self { from, to, body, delay, hidden_if_unsent };
        if copy.outgoing(delivery).size() > max_bytes {
            Err(Unsendable::MessageTooLong)
        } else {
            Ok(copy)
        }
    }

    pub(crate) fn set_timestamp(&mut self, now: SystemTime) {
        self.body.set_timestamp(now);
    }

    pub(crate) fn outgoing<'a>(&'a self, delivery: &'a Delivery) -> Outgoing<'a> {
        let id = delivery.message_id.as_deref().filter(|_| self.to.is_fifo());
        let mut outgoing = Outgoing::new(self.body.as_str(), &delivery.attributes);
        outgoing.delay = self.delay;
        outgoing.group_id = delivery.group_id.as_deref().or(id);
        // If the dead letter is sent twice, the dead-letter queue has it once.
        outgoing.deduplication_id = id;
        outgoing
    }
}

fn carried(delivery: &Delivery) -> RetryState {
    let mut state = delivery.state.clone();
    state.original_message_id = delivery.original_id().map(str::to_owned);
    state.first_sent = Some(delivery.first_sent);
    state.first_received = Some(delivery.first_received);
    state.copies_in_row =
        delivery.copies_in_row.map_or(0, |copies_in_row| copies_in_row.saturating_add(1));
    state.not_before = None;
    // An attribute is copied with the message.
    let has_own = delivery.own_traceparent().is_some();
    state.traceparent = delivery.traceparent().filter(|_| !has_own).map(Cow::into_owned);
    state
}

/// The state of a copy that waits: deferred if `why` is set, otherwise for its next retry.
fn waiting(decision: &Decision, why: Option<Deferral>, wait: Wait) -> RetryState {
    let Decision { delivery, failure, at, start_tag, .. } = decision;
    let class = failure.as_ref().map(Failure::class);
    let mut state = carried(delivery);
    state.not_before = wait.not_before();
    state.is_alone = delivery.is_alone();
    match why {
        None => state.note_retry(delivery.retries(), class, wait.total()),
        Some(Deferral::NotDue) => state.note_hop(),
        Some(Deferral::Postponed) => state.note_postponement(),
        Some(Deferral::RateLimited) => {
            state.note_rate_limit(start_tag.map(|tag| tag.0), at.checked_add(wait.total()));
        }
        Some(Deferral::TableThrottled | Deferral::TableUnavailable | Deferral::InProgress) => {
            state.note_deferred(at.checked_add(wait.total()));
        }
        Some(Deferral::Paused | Deferral::CircuitOpen) if let Some(class) = class => {
            state.note_failure(Some(class), wait.total());
        }
        Some(
            Deferral::Paused
            | Deferral::CircuitOpen
            | Deferral::Unclear
            | Deferral::CallRefused
            | Deferral::IdempotencyUnavailable
            | Deferral::NoTimeLeft
            | Deferral::Unreportable
            | Deferral::SenderUnknown,
        ) => {
            state.note_deferral();
            if let Some(StartTag(tag)) = start_tag {
                state.note_paused_in_line(*tag, at.checked_add(wait.total()));
            }
        }
    }
    state
}
