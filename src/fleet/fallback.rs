//! The calls of one execution environment while the store does not answer: its share of the limit.

use std::time::{Duration, SystemTime};

use crate::limit::{Admission, Ask, LimitState};
use crate::policy::RateLimit;

/// The share is that of the calls of so long, or of up to twice as long.
const WINDOW: Duration = Duration::from_secs(15);

/// The calls of a scope, of this execution environment and of all, and its own gate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fallback {
    began: Option<SystemTime>,
    /// The number of calls of all when the window began.
    all_before: u64,
    own: u64,
    all: u64,
    /// Own calls and all calls in the window before.
    last: (u64, u64),
    /// The gate while there is no store.
    alone: Option<LimitState>,
}

impl Fallback {
    /// Notes calls that the store allowed, and the number of calls of all before these.
    pub(super) fn note(&mut self, own: u64, all_before: u64, now: SystemTime) {
        self.alone = None;
        let is_over = self
            .began
            .is_none_or(|began| now.duration_since(began).is_err() || now > began + WINDOW);
        if is_over || all_before < self.all_before {
            self.last = (self.own, self.all);
            (self.began, self.all_before, self.own) = (Some(now), all_before, 0);
        }
        self.own += own;
        self.all = all_before.saturating_add(own) - self.all_before;
    }

    /// Admits one message without a store. It joins no line, since the line would wait for longer
    /// than the store is away. `sample` spreads the first calls of the execution environments.
    pub(super) fn admit(
        &mut self,
        limit: &RateLimit,
        max_environments: u32,
        longest: Duration,
        now: SystemTime,
        sample: f64,
    ) -> Admission {
        let (own, all) = (self.own + self.last.0, self.all + self.last.1);
        #[expect(clippy::cast_precision_loss, reason = "the calls of half a minute")]
        let share = match own {
            0 => 1.0 / f64::from(max_environments.max(1)),
            _ => own as f64 / all.max(own) as f64,
        };
        let own = RateLimit { burst: 1, period: limit.period.div_f64(share), ..*limit };
        let alone = self
            .alone
            .get_or_insert_with(|| LimitState::free_after(own.interval().mul_f64(sample), now));
        alone.admit(&own, Ask::Retry, longest, now)
    }
}
