//! The last gate before a call: the calls of this execution environment, as they are made.
//!
//! A call may come later than its slot: its thread was blocked, the process was frozen, or a store
//! answered late. Two late calls would come closer together than their slots. So each call passes
//! here once more, by the monotonic clock: it may stand still in a freeze, but nothing sets it
//! forward.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync;
use tokio::time::{Instant, sleep, timeout_at};

use super::attempt::Attempts;
use super::deadlines::Turn;
use super::handled::{Call, Handled};
use super::policies::{QueuePolicy, Slots};
use crate::gate::Scope;
use crate::handler::Handler;
use crate::message::Body;
use crate::policy::RateLimit;
use crate::queue::Queue;

/// The most scopes with a gate of their own. If so many are in use, further ones share one gate.
const MAX_SCOPES: usize = 10_000;

/// The gates of all scopes.
#[derive(Default)]
pub(super) struct Pacer {
    own: Mutex<HashMap<Scope, Arc<PacerGate>>>,
    others: Arc<PacerGate>,
}

/// The gate of a scope. The calls that wait get the lock in the order in which they came.
#[derive(Default)]
struct PacerGate(sync::Mutex<Option<Instant>>);

impl PacerGate {
    /// Lets a call through now, or says how long it has to wait. `next` is the theoretical arrival
    /// time of the generic cell rate algorithm.
    fn pass(next: &mut Option<Instant>, limit: &RateLimit) -> Result<(), Duration> {
        let now = Instant::now();
        let interval = limit.interval();
        let at = next.map_or(now, |next| next.max(now));
        let ahead = interval.saturating_mul(limit.burst.max(1) - 1);
        match at.duration_since(now).checked_sub(ahead) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                *next = Some(at + interval);
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
        let gates = self.gates();
        let waiting = gates.get(&scope).map_or(0, |gate| Arc::strong_count(gate) - 1);
        limit.interval().saturating_mul(u32::try_from(waiting).unwrap_or(u32::MAX))
    }

    fn gate(&self, scope: Scope) -> Arc<PacerGate> {
        let mut gates = self.gates();
        if gates.len() >= MAX_SCOPES && !gates.contains_key(&scope) {
            gates.retain(|_, gate| Arc::strong_count(gate) > 1 || !gate.is_idle());
            if gates.len() >= MAX_SCOPES {
                return Arc::clone(&self.others);
            }
        }
        Arc::clone(gates.entry(scope).or_default())
    }

    fn gates(&self) -> MutexGuard<'_, HashMap<Scope, Arc<PacerGate>>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H, Q, T> Attempts<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// Waits until the call may be made, and it must be made at once then. Returns the turn of the
    /// handler if it begins later than expected.
    pub(super) async fn pace(
        &self,
        call: &Call<'_, Self>,
        limit: &RateLimit,
    ) -> Result<Option<Turn>, Handled> {
        let Call { delivery, slot, scope, .. } = *call;
        let QueuePolicy { pacer, slots, .. } = self.processor.inner.policy(delivery);
        let limit = &match slots {
            Slots::Own(_) => *limit,
            Slots::Shared(shared) => shared.in_effect(scope, limit),
        };
        let gate = pacer.gate(scope);
        if let Ok(mut next) = gate.0.try_lock()
            && PacerGate::pass(&mut next, limit).is_ok()
        {
            return Ok(None);
        }
        // The handler's time begins afterwards.
        slot.wait(pacer.backlog(scope, limit));
        let passed = async {
            let mut next = gate.0.lock().await;
            while let Err(wait) = PacerGate::pass(&mut next, limit) {
                sleep(wait).await;
            }
        };
        tokio::select! {
            biased;
            () = self.deadlines.stop.starting.cancelled() => return Err(Handled::Stopped),
            passed = timeout_at(self.deadlines.cutoff, passed) => {
                passed.map_err(|_| Handled::NotStarted)?;
            }
        }
        self.begin(delivery, slot).map(Some)
    }
}
