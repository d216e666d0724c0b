//! Faults: what a caller may let go wrong with a request, to see what its own code makes of it.

use std::sync::Arc;
use std::time::Duration;

/// A request that has arrived, before anything is done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The operation's name, as in `SendMessageBatch`.
    pub operation: String,
    /// 1 for the first request of all.
    pub number: u64,
    /// 1 for the first request of this operation; the SDK's own retries count.
    pub of_operation: u64,
    /// The queue's name, where the request names one.
    pub queue: Option<String>,
    /// The number of entries of a batch; 0 of another request.
    pub entries: usize,
}

/// What goes wrong with a request.
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
    /// Nothing.
    None,
    /// Nothing is done, and the response has this HTTP status with this error code.
    Refuse {
        /// The HTTP status.
        status: u16,
        /// The error code.
        code: String,
    },
    /// Nothing is done, and the connection breaks.
    LoseRequest,
    /// The request is carried out, and the connection breaks before the response.
    LoseResponse,
    /// The request is carried out, and the response comes so much later.
    RespondAfter(Duration),
    /// Nothing is done, and no response ever comes.
    Hang,
    /// These entries of a batch have faults of their own; the others are carried out.
    Entries(Vec<EntryFault>),
    /// The request arrives so much later, and then meets the other fault.
    After(Duration, Box<Fault>),
}

impl Fault {
    /// [`Fault::Refuse`].
    #[must_use]
    pub fn refuse(status: u16, code: impl Into<String>) -> Self {
        Self::Refuse { status, code: code.into() }
    }

    /// [`Fault::After`].
    #[must_use]
    pub fn after(latency: Duration, then: Self) -> Self {
        Self::After(latency, Box::new(then))
    }
}

/// A fault of one entry of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryFault {
    /// Its position in the request.
    pub position: usize,
    /// What becomes of it.
    pub outcome: EntryOutcome,
}

impl EntryFault {
    /// The fault of the entry at this position.
    #[must_use]
    pub const fn new(position: usize, outcome: EntryOutcome) -> Self {
        Self { position, outcome }
    }
}

/// What becomes of an entry.
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

/// The caller's function that decides.
pub(crate) type FaultHook = Arc<dyn Fn(&Call) -> Fault + Send + Sync>;

/// The faults of the entries of one call.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntryFaults(Vec<EntryFault>);

impl EntryFaults {
    pub(crate) fn new(faults: Vec<EntryFault>) -> Self {
        Self(faults)
    }

    pub(crate) fn of(&self, position: usize) -> Option<&EntryOutcome> {
        self.0.iter().find(|fault| fault.position == position).map(|fault| &fault.outcome)
    }
}
