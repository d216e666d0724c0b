//! Decides which messages are settled without a call of the handler, by its arguments alone: it
//! reads no clock. `protection` has the health of the downstream services.

use std::time::SystemTime;

use crate::delay::Wait;
use crate::delivery::Delivery;
use crate::disposition::{DeadLetterReason, Deferral, Disposition, ReleaseReason};
use crate::policy::{self, RetryPolicy};
use crate::settings::DeadLetterMode;
use crate::wire::DeadLetterInfo;

mod protection;
mod limiter;
mod health;
mod pause;
mod shared;
mod call;
#[cfg(test)]
mod tests;

pub(crate) use call::{Caller, Change, NotPermitted, Noted, Reply, is_refused};
pub(crate) use limiter::Limiter;
pub(crate) use pause::Recovery;
pub(crate) use protection::{Permit, Protection, Standstill};
pub(crate) use shared::{PauseStanding, ProbeLock, Results, SharedHealth};

/// Whether enough of the invocation is left for a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeLeft {
    Enough,
    /// The reserve for settling has begun: no call starts.
    TooLittle,
}

pub(crate) fn expires(policy: &RetryPolicy, delivery: &Delivery) -> Option<SystemTime> {
    let ttl = [policy.message_ttl, delivery.limits.ttl].into_iter().flatten().min()?;
    delivery.first_sent.checked_add(ttl)
}

/// `None` if the handler is to be called. `dead_lettered` is the reason of an earlier receive.
pub(crate) fn gate(
    policy: &RetryPolicy,
    dead_letter: &DeadLetterMode,
    delivery: &Delivery,
    dead_lettered: Option<DeadLetterReason>,
    now: SystemTime,
    time_left: TimeLeft,
    sample: f64,
) -> Option<Disposition> {
    if delivery.is_unverified {
        return Some(policy::defer_unverified(delivery.usage().receive_count, now, sample));
    }
    if delivery.is_of_later_version {
        return Some(Disposition::Release(ReleaseReason::LaterVersion));
    }
    // First, since a second dead letter of a message would send its annotation for ever.
    if let Some(said) = &delivery.state.dead_letter {
        return Some(match dead_letter {
            DeadLetterMode::Redrive | DeadLetterMode::Annotate => {
                Disposition::Release(ReleaseReason::Annotated)
            }
            DeadLetterMode::Direct(_) => {
                let reason =
                    DeadLetterInfo::read(said).reason().and_then(DeadLetterReason::from_name);
                Disposition::DeadLetter(reason.unwrap_or(DeadLetterReason::RetriesExhausted))
            }
        });
    }
    let is_expired = expires(policy, delivery).is_some_and(|end| now > end);
    // An expired message is excluded, since its group may pass it.
    if let Some(reason) = dead_lettered.filter(|_| !(is_expired && delivery.is_fifo())) {
        return Some(match dead_letter {
            // A copy of it would be handled again.
            DeadLetterMode::Redrive => Disposition::Release(ReleaseReason::NotRetried),
            // SQS has not confirmed its copy.
            DeadLetterMode::Annotate | DeadLetterMode::Direct(_) => Disposition::DeadLetter(reason),
        });
    }
    // Such a record fails without a call. A deferral needs a copy, which would lack the unreadable
    // part.
    if delivery.defect.is_some() {
        return None;
    }
    // Requeue writes no `notBefore` on a FIFO queue, so there the field is not Requeue's.
    let ours = delivery.state.not_before.filter(|_| !delivery.is_fifo());
    let due = ours
        .map(|due| policy::believed_due(policy, &delivery.state, due, delivery.sent))
        .max(delivery.limits.not_before);
    // If SQS received it after that time, it is due, even if this clock disagrees.
    let latest = now.max(delivery.copy_first_received.unwrap_or(now));
    if let Some(due) = due.filter(|due| *due > latest || delivery.waits_for_its_time()) {
        return Some(Disposition::Defer { reason: Deferral::NotDue, wait: Wait::until(due, now) });
    }
    if is_expired {
        return Some(Disposition::DeadLetter(DeadLetterReason::Expired));
    }
    let usage = delivery.usage();
    if let Some(reason) = policy::dead_lettered(policy, &usage, delivery.copy_first_received) {
        match (dead_letter, usage.receives_are_retries) {
            (DeadLetterMode::Direct(_), false) => return Some(Disposition::DeadLetter(reason)),
            (_, false) => return Some(Disposition::Release(ReleaseReason::NotRetried)),
            // Its successors in the group have already passed it.
            (DeadLetterMode::Redrive | DeadLetterMode::Annotate, true) if delivery.is_fifo() => {
                return Some(Disposition::Release(ReleaseReason::NotRetried));
            }
            // Receives without a call count too, so the message may never have been handled.
            (_, true) => {}
        }
    }
    match time_left {
        TimeLeft::Enough => None,
        TimeLeft::TooLittle => {
            Some(policy::defer(policy, Deferral::NoTimeLeft, delivery.deferrals(), now, sample))
        }
    }
}
