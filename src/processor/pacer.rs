//! The last gate before a call. A call may be later than its reservation, if its thread was
//! blocked, the process was frozen, or a table responded late. Two late calls could be closer
//! together than their reservations. So each call also passes this gate, by the monotonic clock,
//! which may stop during a freeze but is never set forward.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync;
use tokio::time::{Instant, sleep};

use crate::lock::lock;
use crate::policy::RateLimit;
use crate::scope::Scope;

/// The most scopes with a gate of their own. Further scopes share one gate.
const MAX_SCOPES: usize = 10_000;

#[derive(Default)]
pub(super) struct Pacer {
    own: Mutex<HashMap<Scope, Arc<PacerGate>>>,
    others: Arc<PacerGate>,
}

/// The gate of a scope. Waiting calls get the lock first in, first out.
#[derive(Default)]
pub(super) struct PacerGate(sync::Mutex<Option<Instant>>);

impl PacerGate {
    pub(super) fn lets_through(&self, limit: &RateLimit, units: u32) -> bool {
        self.0.try_lock().is_ok_and(|mut next| Self::pass(&mut next, limit, units).is_ok())
    }

    /// Waits until a call may be made.
    pub(super) async fn passed(&self, limit: &RateLimit, units: u32) {
        let mut next = self.0.lock().await;
        while let Err(wait) = Self::pass(&mut next, limit, units) {
            sleep(wait).await;
        }
    }

    /// Corrects the units of a call that passed.
    pub(super) async fn correct(&self, limit: &RateLimit, estimated: u32, used: u32) {
        let mut next = self.0.lock().await;
        let time = limit.interval().saturating_mul(used.abs_diff(estimated));
        *next = match *next {
            Some(next) if used > estimated => Some(next + time),
            Some(next) => next.checked_sub(time),
            None => None,
        };
    }

    /// Lets a call pass now, or returns its wait. `next` is the theoretical arrival time of the
    /// generic cell rate algorithm.
    fn pass(next: &mut Option<Instant>, limit: &RateLimit, units: u32) -> Result<(), Duration> {
        let now = Instant::now();
        let interval = limit.interval();
        let at = next.map_or(now, |next| next.max(now));
        let ahead = interval.saturating_mul(limit.burst.max(1) - 1);
        match at.duration_since(now).checked_sub(ahead) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                *next = Some(at + interval.saturating_mul(units));
                Ok(())
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.0.try_lock().is_ok_and(|next| next.is_none_or(|next| next <= Instant::now()))
    }
}

impl Pacer {
    /// The time for which the waiting calls use the gate.
    pub(super) fn backlog(&self, scope: Scope, limit: &RateLimit) -> Duration {
        let gates = lock(&self.own);
        let waiting = gates.get(&scope).map_or(0, |gate| Arc::strong_count(gate) - 1);
        limit.interval().saturating_mul(u32::try_from(waiting).unwrap_or(u32::MAX))
    }

    pub(super) fn gate(&self, scope: Scope) -> Arc<PacerGate> {
        let mut gates = lock(&self.own);
        if gates.len() >= MAX_SCOPES && !gates.contains_key(&scope) {
            gates.retain(|_, gate| Arc::strong_count(gate) > 1 || !gate.is_idle());
            if gates.len() >= MAX_SCOPES {
                return Arc::clone(&self.others);
            }
        }
        Arc::clone(gates.entry(scope).or_default())
    }
}
