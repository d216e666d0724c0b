//! The number of messages of a batch for each outcome. Each number is a metric. All but `failed`,
//! `abandoned` and those about the table or `idempotency` are fields of the batch's log line too.

use crate::disposition::{Deferral, Disposition, IdempotencyNotes, ReleaseReason};
use crate::report::{Outcome, Settlement};

#[derive(Default)]
pub(super) struct Counts {
    pub(super) received: u64,
    pub(super) completed: u64,
    /// Of the completed: their event was done before, so they were not called.
    pub(super) already_completed: u64,
    /// The body had no name for the event.
    pub(super) idempotency_key_missing: u64,
    /// The table did not answer about the event, or did not confirm that it is done.
    pub(super) idempotency_unconfirmed: u64,
    /// The handler was called and failed, or the record did not allow a call.
    pub(super) failed: u64,
    pub(super) requeued: u64,
    pub(super) deferred: u64,
    /// Of the deferred: the table of the rate limits was throttled.
    pub(super) table_throttled: u64,
    /// Of the deferred: the table of the rate limits did not answer.
    pub(super) table_unavailable: u64,
    pub(super) released: u64,
    /// Of the released: handlers that were cancelled and did not yield.
    pub(super) abandoned: u64,
    pub(super) dead_lettered: u64,
    pub(super) send_unconfirmed: u64,
    pub(super) delete_failed: u64,
}

impl Counts {
    pub(super) fn add(&mut self, outcome: &Outcome) {
        self.received += 1;
        self.failed += u64::from(outcome.class.is_some());
        let IdempotencyNotes { is_already_done, is_key_missing, is_unconfirmed } =
            outcome.idempotency;
        self.already_completed += u64::from(is_already_done);
        self.idempotency_key_missing += u64::from(is_key_missing);
        self.idempotency_unconfirmed += u64::from(is_unconfirmed);
        match outcome.disposition {
            Disposition::Complete => self.completed += 1,
            Disposition::Requeue { .. } => self.requeued += 1,
            Disposition::Defer { reason: why, .. } => {
                self.deferred += 1;
                self.table_throttled += u64::from(why == Deferral::TableThrottled);
                self.table_unavailable += u64::from(matches!(
                    why,
                    Deferral::TableUnavailable | Deferral::IdempotencyUnavailable
                ));
            }
            Disposition::Release(reason) => {
                self.released += 1;
                self.abandoned += u64::from(reason == ReleaseReason::Abandoned);
            }
            Disposition::DeadLetter(_) => self.dead_lettered += 1,
        }
        match outcome.settlement {
            Settlement::Unconfirmed { .. } => self.send_unconfirmed += 1,
            Settlement::MovedNotDeleted { .. } => self.delete_failed += 1,
            Settlement::Done
            | Settlement::Kept
            | Settlement::KeptNotDelayed { .. }
            | Settlement::Moved => {}
        }
    }
}
