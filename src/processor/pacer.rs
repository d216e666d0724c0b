//! The last gate before a call: the calls of this execution environment, as they are made. A call may
//! come later than its slot: its thread was blocked, the process was frozen, or a table
//! answered late. Two late calls would come closer together than their slots. So each call passes
//! here once more, by the monotonic clock: it may stand still in a freeze, but nothing sets it
//! forward.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync;
use tokio::time::{Instant, sleep};

use crate::gate::Scope;
use crate::lock::lock;
use crate::policy::RateLimit;

/// The most scopes with a gate of their own. If so many are in use, further ones share one gate.
const MAX_SCOPES: usize = 10_000;

#[derive(Default)]
pub(super) struct Pacer {
    own: Mutex<HashMap<Scope, Arc<PacerGate>>>,
    others: Arc<PacerGate>,
}

/// The gate of a scope. The calls that wait get the lock in the order in which they came.
#[derive(Default)]
pub(super) struct PacerGate(sync::Mutex<Option<Instant>>);

impl PacerGate {
    /// Whether a call may go on at once.
    pub(super) fn lets_through(&self, limit: &RateLimit, units: u32) -> bool {
        self.0.try_lock().is_ok_and(|mut next| Self::pass(&mut next, limit, units).is_ok())
    }

    /// Waits until a call may go on.
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

    /// Lets a call through now, or says how long it has to wait. `next` is the theoretical arrival
    /// time of the generic cell rate algorithm.
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
    /// The time for which the calls that wait here keep the gate.
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
