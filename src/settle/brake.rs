//! What keeps lost answers from breeding copies. A send without an answer may have stored its copies, and their originals stay: if
//! every answer is lost, each of them is sent again when its time comes, and so is each copy, so that their number doubles and doubles.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::queue::CallErrorKind;

/// After a send without an answer none begins for so long; then one goes ahead and the others follow when it is answered.
const HOLD: Duration = Duration::from_secs(30);

/// Lets sends begin, or not. What may not be sent waits by its visibility timeout.
#[derive(Default)]
pub(crate) struct Brake(Mutex<Option<Instant>>);

impl Brake {
    /// Whether a send may begin now.
    pub(super) fn lets_pass(&self) -> bool {
        let mut held_until = self.held_until();
        match *held_until {
            None => true,
            Some(until) if Instant::now() < until => false,
            Some(_) => {
                // This one goes ahead. Should it never come to an end, another does later.
                *held_until = Some(Instant::now() + HOLD);
                true
            }
        }
    }

    /// Learns how a send ended.
    pub(super) fn note(&self, trouble: Option<CallErrorKind>) {
        *self.held_until() = match trouble {
            Some(CallErrorKind::Ambiguous) => Some(Instant::now() + HOLD),
            None | Some(CallErrorKind::Refused | CallErrorKind::Malformed | CallErrorKind::Unavailable) => None,
        };
    }

    fn held_until(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
