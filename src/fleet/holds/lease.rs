//! The lease to probe of a message that waits for its slot.

use std::sync::Arc;
use std::time::Duration;

use super::{GRACE, SharedHolds, Ticket};
use crate::store::StoreError;

impl SharedHolds {
    /// Keeps the lease of a message whose call ends only after `lasts`, since it waits for its slot.
    /// Returns whether the message may still call. A lease that is long enough costs no request.
    pub(crate) async fn keep_lease(&self, ticket: &mut Ticket, lasts: Duration) -> bool {
        let Some(lease) = ticket.lease else { return true };
        let lasts = lasts + GRACE;
        if lease.lasts(lasts, self.fleet.now()) {
            return true;
        }
        let state = Arc::clone(&ticket.state);
        let _asking = state.asking.lock().await;
        let (health, now) = (state.seen().health, self.fleet.now());
        let (update, longer) = health.lengthen(lease, now, lasts);
        if health.generation() != ticket.generation || !longer.lasts(lasts, now) {
            return false;
        }
        match self.change(&state, &update).await {
            // A store that does not answer may have made the change all the same.
            Ok(Some(_)) | Err(StoreError::Unavailable(_)) => ticket.lease = Some(longer),
            Ok(None) | Err(StoreError::Throttled) => return false,
        }
        true
    }
}
