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

/// The gate of a scope.
#[derive(Default)]
pub(super) struct PacerGate {
    /// Waiting calls get this lock first in, first out.
    first: sync::Mutex<()>,
    next: Mutex<Option<Instant>>,
}

impl PacerGate {
    pub(super) fn lets_through(&self, limit: &RateLimit, units: u32) -> bool {
        self.first.try_lock().is_ok_and(|_first| self.pass(limit, units).is_ok())
    }

    /// Waits until a call may be made.
    pub(super) async fn passed(&self, limit: &RateLimit, units: u32) {
        let _first = self.first.lock().await;
        while let Err(wait) = self.pass(limit, units) {
            sleep(wait).await;
        }
    }

    /// Corrects the units of a call that passed. A call that waits does not delay this.
    pub(super) fn correct(&self, limit: &RateLimit, estimated: u32, used: u32) {
        let mut next = lock(&self.next);
        let time = limit.interval().saturating_mul(used.abs_diff(estimated));
        *next = match *next {
            Some(next) if used > estimated => Some(next + time),
            Some(next) => next.checked_sub(time),
            None => None,
        };
    }

    /// Lets a call pass now, or returns its wait. `next` is the theoretical arrival time of the
    /// generic cell rate algorithm.
    fn pass(&self, limit: &RateLimit, units: u32) -> Result<(), Duration> {
        let (mut next, now) = (lock(&self.next), Instant::now());
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
        let next = *lock(&self.next);
        self.first.try_lock().is_ok() && next.is_none_or(|next| next <= Instant::now())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_waiting_call_delays_no_correction_and_waits_for_it() {
        let second = Duration::from_secs(1);
        let (gate, limit) = (PacerGate::default(), RateLimit::new(1, second));
        let limit = RateLimit { burst: 1, ..limit };
        let began = Instant::now();
        assert!(gate.lets_through(&limit, 2));
        let ended = async {
            sleep(second).await;
            gate.correct(&limit, 2, 5);
            assert_eq!(began.elapsed(), second);
        };
        tokio::join!(gate.passed(&limit, 1), ended);
        assert_eq!(began.elapsed(), 5 * second);
    }
}
