//! Remembers the messages that this process gave up and that are still in their queue. They are
//! left to its redrive policy, or SQS did not confirm the copy with the reason. SQS delivers them
//! again until it moves them, and another call of their handlers would change nothing.

use std::time::SystemTime;

use super::memory::Memory;
use crate::delivery::Delivery;
use crate::disposition::{DeadLetterReason, Disposition};
use crate::failure::Failure;
use crate::plan::Decision;
use crate::report::Settlement;
use crate::settle::Settled;

/// The memory of given-up messages.
#[derive(Default)]
pub(super) struct GivenUp(Memory<Why>);

/// Why a message was given up.
#[derive(Clone)]
pub(super) struct Why {
    pub(super) reason: DeadLetterReason,
    /// The failure, for the copy with the reason.
    pub(super) failure: Option<Failure>,
}

impl GivenUp {
    /// Notes a message that stays in its queue, if it was given up.
    pub(super) fn note(&self, kept: &Settled) {
        let Decision { delivery, disposition, failure, at, .. } = &kept.decision;
        let Disposition::DeadLetter(reason) = disposition else { return };
        let why = match &kept.settlement {
            Settlement::Unconfirmed { .. } => Why { reason: *reason, failure: failure.clone() },
            _ => Why { reason: *reason, failure: None },
        };
        self.0.note(delivery, *at, why);
    }

    /// Why this message was given up on an earlier receive, if it was.
    pub(super) fn find(&self, delivery: &Delivery, now: SystemTime) -> Option<Why> {
        self.0.find(delivery, now)
    }
}
