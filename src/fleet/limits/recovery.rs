//! The calls after an outage, of a service without a rate limit. They pass the gate of a limit that
//! grows, so that a service that has just come back does not get a whole backlog at once.

use std::sync::Arc;

use tokio::time::sleep;

use super::{Admitted, Request, SharedLimits};
use crate::disposition::Deferral;
use crate::fleet::holds::{NoTicket, Ticket};
use crate::gate::{Caller, Held, Recovery, Scope};
use crate::limit::{Admission, Ask};

impl SharedLimits {
    /// Whether the service came back a moment ago.
    pub(crate) fn recovery(&self, scope: Scope) -> Option<Recovery> {
        self.holds.as_ref()?.health(scope).recovery(self.fleet.now())
    }

    /// Waits for a slot of a service that recovers. So many `others` are about to ask. Trouble of the
    /// store stops no call.
    pub(crate) async fn recover(
        self: &Arc<Self>,
        recovery: Recovery,
        scope: Scope,
        caller: Caller,
        ticket: Ticket,
        others: usize,
    ) -> Result<Ticket, NoTicket> {
        let Recovery { limit, rest } = recovery;
        // Nobody stands in line, since the limit of now says nothing about the time of a turn.
        let longest = limit.max_slot_wait;
        let request = Request { ask: Ask::Retry, longest, sample: 0.0, may_be_held: false };
        match (self.admit(scope, &limit, request, others).await, &self.holds) {
            (Admitted::By(Admission::Slot(wait)), Some(holds)) => {
                sleep(wait).await;
                // The circuit may have opened again meanwhile.
                holds.look(scope, caller, None).map_err(NoTicket::Held)
            }
            (Admitted::By(_) | Admitted::Held, _) => {
                Err(NoTicket::Held(Held { why: Deferral::CircuitOpen, rest }))
            }
            (Admitted::PutOff { .. }, _) => Ok(ticket),
        }
    }
}
