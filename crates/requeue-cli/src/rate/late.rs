//! The messages of a run that cannot be called in order: the table was throttled or down when they
//! asked, or Lambda delivered them late, since its pollers had too many others.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use requeue::{Deferral, Disposition, Outcome};
use tokio::time::Instant;

use crate::simulated::{BATCHING_WINDOW, Handled};

/// A free poller delivers a message so soon after the batching window.
const ON_TIME: Duration = Duration::from_millis(100);

/// The late messages so far.
#[derive(Default)]
pub(super) struct LateMessages {
    /// The numbers of the messages, by the ids of their first deliveries.
    numbers: HashMap<String, u32>,
    /// When a message that waits is due.
    due: HashMap<u32, Instant>,
    late: BTreeSet<u32>,
}

impl LateMessages {
    pub(super) fn add(&mut self, id: String, number: u32) {
        self.numbers.insert(id, number);
    }

    /// Notes a batch. `was_throttled` says that the table took no request of it at first.
    pub(super) fn note(&mut self, handled: &Handled<'_>, was_throttled: bool) {
        let now = Instant::now();
        for outcome in &handled.report.outcomes {
            let id = outcome.original_message_id.as_ref();
            let Some(&number) = id.and_then(|id| self.numbers.get(id)) else { continue };
            let is_late = |due| handled.delivered > due + BATCHING_WINDOW + ON_TIME;
            if self.due.remove(&number).is_some_and(is_late) || was_throttled || is_put_off(outcome)
            {
                self.late.insert(number);
            }
            if let Some(wait) = outcome.disposition.wait() {
                self.due.insert(number, now + wait.total());
            }
        }
    }

    pub(super) fn into_numbers(self) -> BTreeSet<u32> {
        self.late
    }
}

/// Whether the table took no request for a message, or gave no answer.
pub(super) fn is_put_off(outcome: &Outcome) -> bool {
    use Deferral::{TableThrottled, TableUnavailable};
    matches!(
        outcome.disposition,
        Disposition::Defer { reason: TableThrottled | TableUnavailable, .. }
    )
}
