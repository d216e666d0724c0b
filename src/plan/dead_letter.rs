//! Plans dead letters: the mode by which one reaches its queue, and its reason.

use std::sync::Arc;
use std::time::SystemTime;

use super::{Copy, Decision, Plan, Planner, Successors, Unsendable, carried, show};
use crate::clock::timestamp_text;
use crate::delay::Delay;
use crate::delivery::Delivery;
use crate::disposition::DeadLetterReason;
use crate::failure::{Detail, Failure};
use crate::policy;
use crate::queue::{Attribute, QueueArn, QueueUrl};
use crate::settings::DeadLetterMode;
use crate::state::RetryState;
use crate::wire::{self, DeadLetterInfo};

impl<'a> Planner<'a> {
    /// The mode of the settings, or [`DeadLetterMode::Redrive`] if that mode's copy cannot be made.
    /// A copy needs the whole record, and on a FIFO queue it would lose its order. If a FIFO
    /// message cannot be sent to the dead-letter queue, its receives move it there; otherwise SQS
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

    pub(super) fn dead_letter(
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
                let state = dead_lettered(delivery, reason, failure.as_ref(), *at);
                let route = (Arc::clone(queue), Arc::clone(queue));
                let delay = DeadLetterMode::ANNOTATION_DELAY;
                let copy = Copy::new(self, delivery, &state, delay, route, None);
                (copy_or_keep(copy), Successors::Wait)
            }
            (DeadLetterMode::Direct(url), Some(from)) => {
                let to = dead_letter_queue_of(from, url).ok_or(Unsendable::NoDeadLetterQueue);
                let state = sent_elsewhere(delivery, reason, failure.as_ref(), *at);
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

    /// Whether the successors of a message that was dead-lettered without a copy may pass it. Until
    /// its receives use up its retries, another process may handle it again on any receive, since
    /// that process does not know that it was dead-lettered.
    pub(super) fn is_left_behind(&self, delivery: &Delivery) -> bool {
        delivery.is_fifo() && policy::is_spent(self.policy, &delivery.usage())
    }

    /// Plans a FIFO message that is on its way to the dead-letter queue, and lets its successors
    /// pass. SQS blocks them while it is in flight, so it is made visible at once. Without a
    /// redrive policy that would never end, so a stuck message is kept.
    pub(super) fn leave_behind(&self, delivery: &Delivery) -> (Plan, Successors) {
        let is_stuck = policy::is_stuck(self.policy, &delivery.usage());
        (if is_stuck { Plan::Keep { unsent: None } } else { show(delivery) }, Successors::Proceed)
    }

    /// Whether a dead letter can be sent, with a reason of any length.
    fn fits(&self, delivery: &Delivery, url: &QueueUrl, now: SystemTime) -> bool {
        let reason = DeadLetterReason::RetriesExhausted;
        let to = delivery.queue.as_ref().and_then(|from| dead_letter_queue_of(from, url));
        to.is_some_and(|to| {
            let state = sent_elsewhere(delivery, reason, None, now);
            wire::stamp(delivery.payload(), &state, self.wrap).is_some_and(|body| {
                requeue_sqs::message_bytes(body.as_str(), &delivery.attributes)
                    + Detail::MAX_BYTES
                    + Failure::MAX_SAID
                    <= (self.max_bytes)(&to)
            })
        })
    }
}

/// If a dead letter cannot be sent, it stays in its queue.
fn copy_or_keep(copy: Result<Copy, Unsendable>) -> Plan {
    copy.map_or_else(|unsent| Plan::Keep { unsent: Some(unsent) }, Plan::Copy)
}

/// The queue to which the dead letters of a queue are sent. `None` if it is the queue itself, since
/// they would return for ever.
fn dead_letter_queue_of(queue: &QueueArn, url: &QueueUrl) -> Option<Arc<QueueArn>> {
    Some(url.arn(queue.partition(), queue.region())).filter(|other| other != queue).map(Arc::new)
}

/// The state of a dead letter. If it was dead-lettered on an earlier receive, it keeps that reason.
fn dead_lettered(
    delivery: &Delivery,
    reason: DeadLetterReason,
    failure: Option<&Failure>,
    at: SystemTime,
) -> RetryState {
    let mut state = carried(delivery);
    state.dead_letter.get_or_insert_with(|| annotation(delivery, reason, failure, at));
    state
}

/// The state of a dead letter that is sent to another queue. SQS notes the source only of its
/// moves.
fn sent_elsewhere(
    delivery: &Delivery,
    reason: DeadLetterReason,
    failure: Option<&Failure>,
    at: SystemTime,
) -> RetryState {
    let source = delivery.queue.as_ref().map(ToString::to_string);
    RetryState { source, ..dead_lettered(delivery, reason, failure, at) }
}

/// The text for readers of the dead-letter queue: why the message was dead-lettered.
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
