//! A rate limit on the way of a message to its call.

use std::time::SystemTime;

use tokio::time::Instant;

use super::super::decide::Attempts;
use super::super::inner::{QueuePolicy, Slots};
use super::tenant::{key_scope, units};
use crate::delivery::Delivery;
use crate::gate::Scope;
use crate::limit::{KnownLimit, StartTag};
use crate::policy::{KeyLimit, MessageKey, RateLimit, RetryPolicy};

/// A limit on the way of a message to its call.
#[derive(Clone, Copy)]
pub(super) struct Gate {
    /// 0 for the limit of all messages of the scope. Those of keys count from 1.
    pub(super) number: usize,
    pub(super) scope: Scope,
    pub(super) limit: RateLimit,
    /// The units of its call by the message, and those that the call is likely to use.
    estimated: u32,
    pub(super) units: u32,
    /// Calls of its burst that are kept for messages which have their slots, and wait for the limits
    /// after this one.
    pub(super) kept: u32,
}

impl Gate {
    /// Those of a message: of its keys, and that of all messages.
    pub(super) fn all(
        policy: &RetryPolicy,
        total: Option<&RateLimit>,
        scope: Scope,
        delivery: &Delivery,
    ) -> Vec<Self> {
        let limits = &policy.key_limits;
        let of_key = |(number, limit): (usize, &KeyLimit)| {
            let later = limits[number + 1..].iter().map(|limit| &limit.limit).chain(total);
            let kept = limit.limit.together(later);
            let burst = limit.limit.burst.saturating_sub(kept).max(1);
            let limited = RateLimit { burst, ..limit.limit };
            let scope = key_scope(scope, &limit.key, delivery);
            Self::new(number + 1, scope, limited, kept, limit.units.as_ref(), delivery)
        };
        let total =
            total.map(|limit| Self::new(0, scope, *limit, 0, policy.units.as_ref(), delivery));
        limits.iter().enumerate().map(of_key).chain(total).collect()
    }

    fn new(
        number: usize,
        scope: Scope,
        limit: RateLimit,
        kept: u32,
        place: Option<&MessageKey>,
        delivery: &Delivery,
    ) -> Self {
        let units = units(place, limit.limit, delivery);
        let limit = RateLimit { has_units: place.is_some(), ..limit };
        Self { number, scope, limit, estimated: units, units, kept }
    }

    /// A start tag of its line, as a message carries it.
    pub(super) fn carried(&self, tag: StartTag) -> StartTag {
        tag.of_limit(self.number)
    }

    pub(super) fn is_total(&self) -> bool {
        self.number == 0
    }

    /// The same limit, with the units that the call is likely to use.
    pub(super) fn likely(self, slots: &Slots, now: SystemTime) -> Self {
        let Self { scope, limit, estimated, .. } = self;
        if !limit.has_units {
            return self;
        }
        let units = match slots {
            Slots::Own(limiter) => {
                limiter.with(scope, (now, Instant::now()), |state| state.likely(estimated, &limit))
            }
            Slots::Shared(shared) => shared.likely(scope, &limit, estimated),
        };
        Self { units, ..self }
    }

    /// Tells the limit what its call used, and what its response says is left.
    pub(super) async fn learn(&self, attempts: &Attempts, delivery: &Delivery) {
        let Self { scope, limit, .. } = *self;
        if limit.has_units {
            self.correct(attempts, delivery).await;
        }
        let allowances = delivery.allowances();
        if !limit.headers || allowances.is_empty() {
            return;
        }
        match &attempts.inner.policy(delivery).slots {
            Slots::Own(limiter) => {
                let now = (attempts.now(), Instant::now());
                limiter.with(scope, now, |state| {
                    let capped = state.capped(&KnownLimit::own(&limit), allowances, now.0);
                    *state = capped.unwrap_or(*state);
                });
            }
            Slots::Shared(shared) => shared.capped(scope, &limit, allowances).await,
        }
    }

    /// Counts the units that a call used instead of those that were estimated.
    async fn correct(&self, attempts: &Attempts, delivery: &Delivery) {
        let Self { scope, limit, estimated, units, .. } = *self;
        let Some(used) = delivery.used().map(|used| used.min(limit.limit)) else { return };
        let QueuePolicy { slots, pacer, .. } = attempts.inner.policy(delivery);
        if used != units {
            pacer.gate(scope).correct(&limit, units, used).await;
        }
        match slots {
            Slots::Own(limiter) => {
                let now = (attempts.now(), Instant::now());
                limiter.with(scope, now, |state| {
                    state.note_used(estimated, used);
                    *state = state.corrected(&limit, i64::from(used) - i64::from(units));
                });
            }
            Slots::Shared(shared) => shared.correct(scope, &limit, (estimated, units), used).await,
        }
    }
}
