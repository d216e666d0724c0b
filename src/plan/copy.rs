//! A copy to be sent: its text, its delay and its destination. It is built once, together with the
//! check that SQS can take it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::clock::timestamp_text;
use crate::delay::{Delay, Wait};
use crate::delivery::Delivery;
use crate::disposition::{DeadLetterReason, Deferral};
use crate::failure::Failure;
use crate::limit::StartTag;
use crate::queue::{Attribute, MESSAGE_TOO_LONG, Outgoing, QueueArn};
use crate::state::RetryState;
use crate::wire::{self, DeadLetterInfo, NotWrappable, Stamped};

use super::{Decision, Planner};

#[derive(Debug)]
pub(crate) struct Copy {
    /// The queue of the original.
    pub(crate) from: Arc<QueueArn>,
    pub(crate) to: Arc<QueueArn>,
    body: Stamped,
    delay: Delay,
    /// How long the original is hidden if SQS refuses the copy for its length; otherwise the least
    /// time for which it is hidden if SQS does not confirm the copy. `None` leaves the original to
    /// its visibility timeout.
    pub(crate) hidden_if_unsent: Option<Duration>,
}

/// Why no copy can be sent.
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
    /// The code in a settlement.
    pub(crate) fn code(self) -> String {
        match self {
            Self::NotWrappable => "NotWrappable",
            Self::MessageTooLong => MESSAGE_TOO_LONG,
            Self::NoDeadLetterQueue => "NoDeadLetterQueue",
        }
        .to_owned()
    }
}

impl From<NotWrappable> for Unsendable {
    fn from(NotWrappable: NotWrappable) -> Self {
        Self::NotWrappable
    }
}

impl Copy {
    /// A copy of `delivery` that carries `state`.
    pub(super) fn new(
        planner: &Planner<'_>,
        delivery: &Delivery,
        state: &RetryState,
        delay: Delay,
        (from, to): (Arc<QueueArn>, Arc<QueueArn>),
        hidden_if_unsent: Option<Duration>,
    ) -> Result<Self, Unsendable> {
        let body = wire::stamp(delivery.payload(), state, planner.wrap)?;
        let max_bytes = (planner.max_bytes)(&to);
        let copy = Self { from, to, body, delay, hidden_if_unsent };
        if copy.outgoing(delivery).size() > max_bytes {
            Err(Unsendable::MessageTooLong)
        } else {
            Ok(copy)
        }
    }

    /// Writes the time of sending into the body.
    pub(crate) fn set_timestamp(&mut self, now: SystemTime) {
        self.body.set_timestamp(now);
    }

    /// The entry that sends this copy of `delivery`.
    pub(crate) fn outgoing<'a>(&'a self, delivery: &'a Delivery) -> Outgoing<'a> {
        let id = delivery.message_id.as_deref().filter(|_| self.to.is_fifo());
        let mut outgoing = Outgoing::new(self.body.as_str(), &delivery.attributes);
        outgoing.delay = self.delay;
        outgoing.group_id = delivery.group_id.as_deref().or(id);
        // If the dead letter is sent twice, it is in the dead-letter queue once.
        outgoing.deduplication_id = id;
        outgoing
    }
}

/// The state that every copy of this delivery carries.
fn carried(delivery: &Delivery) -> RetryState {
    let mut state = delivery.state.clone();
    state.original_message_id = delivery.original_id().map(str::to_owned);
    state.first_sent = Some(delivery.first_sent);
    state.first_received = Some(delivery.first_received);
    state.copies_in_row =
        delivery.copies_in_row.map_or(0, |copies_in_row| copies_in_row.saturating_add(1));
    state.not_before = None;
    // An attribute travels by itself.
    let has_own = delivery.own_traceparent().is_some();
    state.traceparent = delivery.traceparent().filter(|_| !has_own).map(Cow::into_owned);
    state
}

/// The state of a copy that waits: deferred if `why` is set, otherwise for its next retry.
pub(super) fn waiting(decision: &Decision, why: Option<Deferral>, wait: Wait) -> RetryState {
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
            state.note_put_off(at.checked_add(wait.total()));
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

/// The state of a dead letter. A message that was dead-lettered on an earlier receive has its reason
/// already.
pub(super) fn dead_lettered(
    delivery: &Delivery,
    reason: DeadLetterReason,
    failure: Option<&Failure>,
    at: SystemTime,
) -> RetryState {
    let mut state = carried(delivery);
    state.dead_letter.get_or_insert_with(|| annotation(delivery, reason, failure, at));
    state
}

/// The state of a dead letter that is sent to another queue. SQS notes the source only for the
/// messages that it moves itself.
pub(super) fn sent_elsewhere(
    delivery: &Delivery,
    reason: DeadLetterReason,
    failure: Option<&Failure>,
    at: SystemTime,
) -> RetryState {
    let source = delivery.queue.as_ref().map(ToString::to_string);
    RetryState { source, ..dead_lettered(delivery, reason, failure, at) }
}

/// Why a message was dead-lettered, as a reader of the dead-letter queue sees it.
fn annotation(
    delivery: &Delivery,
    reason: DeadLetterReason,
    failure: Option<&Failure>,
    at: SystemTime,
) -> String {
    // The text must not quote the message.
    let text = |failure: &Failure| {
        let attributes = delivery.attributes.values().filter_map(Attribute::as_text);
        let texts: Vec<&str> = [delivery.payload()].into_iter().chain(attributes).collect();
        failure.said_besides(&texts)
    };
    let class = failure.map(Failure::class).or(delivery.state.class);
    DeadLetterInfo {
        class: class.map(|class| class.as_str().to_owned()),
        reason: Some(reason.as_str().to_owned()),
        detail: failure.map(|failure| failure.detail().to_owned()),
        text: failure.and_then(text),
        retry_count: Some(delivery.retries()),
        failed_at: Some(timestamp_text(at)),
        source: None,
    }
    .to_text()
}
