//! One copy on its way to a queue, and its progress.

use super::{Settled, Waiting};
use crate::plan::{Copy, Decision};
use crate::queue::Outgoing;
use crate::report::Settlement;

/// A copy to be sent, and the decision that asked for it.
pub(super) struct Sending {
    pub(super) decision: Decision,
    pub(super) copy: Copy,
    pub(super) waiting: Waiting,
    pub(super) sent: Sent,
    /// Why the original could not be deleted.
    pub(super) not_deleted: Option<String>,
}

/// The progress of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// To be sent, or to be sent again after an error with this code.
    NotYet(Option<String>),
    /// SQS's response names it as sent.
    Confirmed,
    /// It cannot be sent, or not in time.
    Refused(String),
}

impl Sending {
    pub(super) fn new(decision: Decision, copy: Copy, waiting: Waiting) -> Self {
        Self { decision, copy, waiting, sent: Sent::NotYet(None), not_deleted: None }
    }

    /// The bytes that the copy takes in a request.
    pub(super) fn size(&self) -> usize {
        self.outgoing().size()
    }

    pub(super) fn is_pending(&self) -> bool {
        matches!(self.sent, Sent::NotYet(_))
    }

    /// Whether the rest of its group waits for this copy.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self.waiting, Waiting::ForMove(_))
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.sent == Sent::Confirmed
    }

    pub(super) fn outgoing(&self) -> Outgoing<'_> {
        self.copy.outgoing(&self.decision.delivery)
    }

    pub(super) fn receipt_handles(&self) -> &[String] {
        &self.decision.delivery.receipt_handles
    }

    pub(super) fn into_settled(self) -> Settled {
        let settlement = match (self.sent, self.not_deleted) {
            (Sent::Confirmed, None) => Settlement::Moved,
            (Sent::Confirmed, Some(code)) => Settlement::MovedNotDeleted { code },
            (Sent::Refused(code) | Sent::NotYet(Some(code)), _) => Settlement::Unconfirmed { code },
            (Sent::NotYet(None), _) => Settlement::Unconfirmed { code: "NotSent".to_owned() },
        };
        if let (Waiting::ForMove(moved), false) = (self.waiting, settlement.is_kept()) {
            // The receiver may be gone if its time is over.
            let _ = moved.send(());
        }
        Settled { decision: self.decision, settlement }
    }
}
