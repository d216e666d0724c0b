//! The progress of a worker: how many messages it received, their outcomes, and what holds the others
//! back.

use std::time::Duration;

use crate::disposition::{Deferral, Disposition, ReleaseReason};
use crate::gate::Scope;
use crate::processor::Deletes;
use crate::report::{Outcome, Settlement};
use crate::settings::Mode;

/// The counts of a worker's messages so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Messages received, those in hand included.
    pub received: u64,
    /// Messages that are done.
    pub completed: u64,
    /// Messages that wait for another attempt.
    pub requeued: u64,
    /// Messages dead-lettered, and messages left to SQS on their last receive: by `maxReceiveCount`, SQS
    /// moves them to the dead-letter queue.
    pub dead_lettered: u64,
    /// Messages that were deferred or left to SQS: usually without a call, since it was not their
    /// turn or they were dead-lettered before. A message that was done before and is only deleted now
    /// counts here. A message whose copy was not sent counts here too, and in the mode `report` one
    /// that the mode `requeue` would dead-letter.
    pub waiting: u64,
    /// Messages that are done or copied, and that SQS has not confirmed as deleted since. SQS
    /// delivers them again, or moves them to the dead-letter queue.
    pub not_deleted: u64,
}

/// A pause or an open circuit of a worker, as [`Worker::pauses`](crate::Worker::pauses) lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScopePause {
    /// The scope of the messages that wait.
    pub scope: Scope,
    /// [`Deferral::Paused`] or [`Deferral::CircuitOpen`].
    pub reason: Deferral,
    /// The time until any message may probe; zero if messages probe, or if the next one will.
    pub rest: Duration,
}

impl Progress {
    /// Messages that were received and are not settled. At the end of the worker these are the ones
    /// that were not settled in time, some of which may be done: SQS delivers them again.
    pub fn not_settled(&self) -> u64 {
        let settled = self.completed + self.requeued + self.dead_lettered + self.waiting;
        self.received.saturating_sub(settled)
    }

    /// `max_receives` is the queue's `maxReceiveCount`.
    pub(super) fn add(
        &mut self,
        outcomes: &[Outcome],
        mode: Mode,
        max_receives: Option<u32>,
        deletes: Deletes,
    ) {
        let number = |count| u64::try_from(count).unwrap_or(u64::MAX);
        let known = number(deletes.known);
        self.waiting += known;
        // Those were counted when they could not be deleted.
        self.not_deleted =
            (self.not_deleted + number(deletes.deleted.failed)).saturating_sub(known);
        for outcome in outcomes {
            let is_unconfirmed = matches!(outcome.settlement, Settlement::Unconfirmed { .. });
            let stays = is_unconfirmed
                || matches!(
                    outcome.settlement,
                    Settlement::Kept | Settlement::KeptNotDelayed { .. }
                );
            let is_last = stays && max_receives.is_some_and(|max| outcome.receive_count >= max);
            *match outcome.disposition {
                Disposition::Complete => &mut self.completed,
                // It was counted when it was dead-lettered.
                Disposition::Release(ReleaseReason::NotRetried | ReleaseReason::Annotated) => {
                    &mut self.waiting
                }
                _ if is_last => &mut self.dead_lettered,
                _ if is_unconfirmed => &mut self.waiting,
                Disposition::Requeue { .. } => &mut self.requeued,
                Disposition::Defer { .. } if outcome.failed_in_outage() => &mut self.requeued,
                Disposition::DeadLetter(_) if mode == Mode::Requeue => &mut self.dead_lettered,
                Disposition::Defer { .. }
                | Disposition::Release(_)
                | Disposition::DeadLetter(_) => &mut self.waiting,
            } += 1;
        }
    }
}
