//! A rate limit as an operator sees it.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime};

use super::{Claim, KnownLimit, LimitState, epoch_nanos, from_epoch_nanos, nanos};
use crate::policy::RateLimit;

/// A rate limit at a moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LimitStatus {
    /// Whether no message has asked for it lately, and no operator has changed it.
    pub is_new: bool,
    /// Whether it counts units instead of calls.
    pub counts_units: bool,
    /// The limit of the policy.
    pub of_policy: RateLimit,
    /// The limit that counts now.
    pub limit: RateLimit,
    /// An operator has set this limit until then.
    pub set_until: Option<SystemTime>,
    /// An operator has paused the calls until then.
    pub paused_until: Option<SystemTime>,
    /// The service has asked for a pause, or its circuit is open: for so long, or while it is probed.
    pub service_paused: Option<Duration>,
    /// The part of the limit that counts now. Refused calls lower an adaptive one, and the headers
    /// of responses one that follows them.
    pub pace: f64,
    /// The units of the messages that wait in line.
    pub waiting: u64,
    /// The tenants with messages in line, those with the most first.
    pub tenants: Vec<TenantStatus>,
}

/// A tenant of a limit that is shared fairly, or several tenants that share a place in its line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantStatus {
    /// Its value, if the policy gives it a weight.
    pub name: Option<String>,
    /// The digits 5 to 8 of the SHA-256 of `text acme` or `number 7`. The value itself is not in the
    /// table.
    pub hash: u16,
    /// Its weight.
    pub weight: u8,
    /// The units of its messages that wait in line.
    pub waiting: u64,
}

impl LimitStatus {
    /// Calls in each period of the policy.
    #[must_use]
    pub fn calls_per_period(&self) -> u32 {
        let calls = self.of_policy.period.as_nanos().div_ceil(self.limit.interval().as_nanos());
        u32::try_from(calls).unwrap_or(u32::MAX)
    }

    /// The time until all that wait are called, if no more come.
    #[must_use]
    pub fn clears_in(&self) -> Duration {
        let calls = u32::try_from(self.waiting).unwrap_or(u32::MAX);
        self.limit.interval().saturating_mul(calls).div_f64(self.pace.max(0.001))
    }
}

impl LimitState {
    /// The limit as an operator sees it, but for what its service does.
    pub(crate) fn status(&self, of_policy: &RateLimit, now: SystemTime) -> LimitStatus {
        let (shown, at) = (now, epoch_nanos(now));
        let limit = self.overrides.in_effect(&KnownLimit::own(of_policy), at).limit;
        let whole = self.pace.interval(&limit);
        let now = nanos(Claim::new(&KnownLimit::own(of_policy), *self, now).interval());
        let mut tenants = self.line.tenants();
        tenants.sort_unstable_by_key(|tenant| Reverse(tenant.waiting));
        #[expect(clippy::cast_precision_loss, reason = "it is a part")]
        LimitStatus {
            is_new: *self == Self::default(),
            counts_units: of_policy.has_units,
            of_policy: *of_policy,
            limit: self.in_effect(of_policy, shown),
            set_until: self.overrides.set_until(at).map(from_epoch_nanos),
            paused_until: self.overrides.paused_until(at).map(from_epoch_nanos),
            service_paused: None,
            pace: (whole as f64 / now as f64).min(1.0),
            waiting: self.line.backlog(),
            tenants,
        }
    }
}
