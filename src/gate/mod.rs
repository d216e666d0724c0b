//! Decides which messages are settled without a call of the handler, by the values it is given;
//! reads no clock. The health of the downstream services is in `protection`.

use std::time::SystemTime;

use crate::delay::Wait;
use crate::delivery::Delivery;
use crate::disposition::{DeadLetterReason, Deferral, Disposition, ReleaseReason};
use crate::policy::{self, RetryPolicy};
use crate::settings::DeadLetterMode;
use crate::wire::DeadLetterInfo;

mod protection;
mod health;
mod hold;
mod call;
mod scope;
#[cfg(test)]
mod tests;

pub(crate) use call::{Caller, Change, Held, Reply};
pub(crate) use protection::{Permit, Protection, Standstill};
pub use scope::Scope;

/// How much of the invocation is left for a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeLeft {
    Enough,
    /// The reserve for settling has begun: nothing starts any more.
    TooLittle,
}

/// `None` when the handler is to be called. `given_up` is why this process gave the message up on
/// an earlier receive.
pub(crate) fn gate(
    policy: &RetryPolicy,
    dead_letter: &DeadLetterMode,
    delivery: &Delivery,
    given_up: Option<DeadLetterReason>,
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
    // Before all else: a message that was given up must not be given up again, or its annotation
    // would be sent for ever.
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
    let age = now.duration_since(delivery.first_sent).unwrap_or_default();
    let ttl = [policy.message_ttl, delivery.limits.ttl].into_iter().flatten().min();
    let is_expired = ttl.is_some_and(|ttl| age > ttl);
    // Its group may pass a message that has expired.
    if let Some(reason) = given_up.filter(|_| !(is_expired && delivery.is_fifo())) {
        return Some(match dead_letter {
            // A copy of it would be handled anew.
            DeadLetterMode::Redrive => Disposition::Release(ReleaseReason::GivenUp),
            // Its copy was not confirmed.
            DeadLetterMode::Annotate | DeadLetterMode::Direct(_) => Disposition::DeadLetter(reason),
        });
    }
    // No handler is given this record, so it costs no time; and it must not be deferred: a copy
    // would lack what could not be read.
    if delivery.defect.is_some() {
        return None;
    }
    // On a FIFO queue nobody of us has written it.
    let ours = delivery.state.not_before.filter(|_| !delivery.is_fifo());
    let due =
        ours.map(|due| policy::believed_due(policy, due, now)).max(delivery.limits.not_before);
    if let Some(due) = due.filter(|due| *due > now) {
        return Some(Disposition::Defer { why: Deferral::NotDue, wait: Wait::until(due, now) });
    }
    if is_expired {
        return Some(Disposition::DeadLetter(DeadLetterReason::Expired));
    }
    let usage = delivery.usage();
    if let Some(reason) = policy::given_up(policy, &usage, delivery.copy_first_received) {
        match (dead_letter, usage.receives_are_retries) {
            (DeadLetterMode::Direct(_), false) => return Some(Disposition::DeadLetter(reason)),
            (_, false) => return Some(Disposition::Release(ReleaseReason::GivenUp)),
            // Its successors in its group have been let past.
            (DeadLetterMode::Redrive | DeadLetterMode::Annotate, true) if delivery.is_fifo() => {
                return Some(Disposition::Release(ReleaseReason::GivenUp));
            }
            // Receives without a call count too, so that it may never have been handled.
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
