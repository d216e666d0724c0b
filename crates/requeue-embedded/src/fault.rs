//! Faults: failures that a caller chooses for a request, to test its own code.

use std::sync::Arc;
use std::time::Duration;

pub(crate) const REFUSED: &str = "refused by a fault";

/// A request that has arrived, before it is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The operation's name, as in `SendMessageBatch`.
    pub operation: String,
    /// 1 for the first request of all.
    pub number: u64,
    /// 1 for the first request of this operation; the SDK's own retries count.
    pub of_operation: u64,
    /// The queue's name, if the request names one.
    pub queue: Option<String>,
    /// The number of entries of a batch; 0 for any other request.
    pub entries: usize,
}

/// The fault of a request.
///
/// ```
/// use requeue::embedded::Fault;
/// use std::time::Duration;
/// let fault = Fault::after(Duration::from_millis(40), Fault::refuse(503, "ServiceUnavailable"));
/// assert!(matches!(fault, Fault::After(..)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// No fault.
    None,
    /// The request is not carried out, and the response has this HTTP status with this error code.
    Refuse {
        /// The HTTP status.
        status: u16,
        /// The error code.
        code: String,
    },
    /// The request is not carried out, and the connection breaks.
    LoseRequest,
    /// The request is carried out, and the connection breaks before the response.
    LoseResponse,
    /// The request is carried out, and the response arrives this much later.
    RespondAfter(Duration),
    /// The request is not carried out, and no response ever arrives.
    Hang,
    /// These entries of a batch have faults of their own; the others are carried out.
    Entries(Vec<EntryFault>),
    /// The request arrives this much later, and then meets the other fault.
    After(Duration, Box<Fault>),
}

impl Fault {
    /// [`Fault::Refuse`].
    pub fn refuse(status: u16, code: impl Into<String>) -> Self {
        Self::Refuse { status, code: code.into() }
    }

    /// [`Fault::After`].
    pub fn after(latency: Duration, then: Self) -> Self {
        Self::After(latency, Box::new(then))
    }
}

/// A fault of one entry of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryFault {
    /// The position of the entry in the request.
    pub position: usize,
    /// The outcome of the entry.
    pub outcome: EntryOutcome,
}

impl EntryFault {
    /// The fault of the entry at this position.
    pub const fn new(position: usize, outcome: EntryOutcome) -> Self {
        Self { position, outcome }
    }
}

/// The outcome of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryOutcome {
    /// It is not carried out, and the response lists it among the failed ones.
    Refused {
        /// The error code.
        code: String,
        /// Whether the caller is to blame.
        sender_fault: bool,
    },
    /// It is not carried out, and the response does not mention it.
    Ignored,
    /// It is carried out, and the response does not mention it.
    Unmentioned,
}

pub(crate) type FaultHook = Arc<dyn Fn(&Call) -> Fault + Send + Sync>;
