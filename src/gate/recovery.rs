//! The calls of a service after an open circuit, if it has no rate limit: they grow, so that it does not
//! get a whole backlog at once. The rule is the same for one execution environment and for all.

use std::time::Duration;

use super::call::NotPermitted;
use crate::disposition::Deferral;
use crate::limit::{Ask, Demand, nanos};
use crate::policy::RateLimit;

/// The calls in the first second.
const FIRST_CALLS: u32 = 10;
/// They double in each second. After this, there are as many as come.
const RECOVERY: Duration = Duration::from_secs(7);

/// So far apart the clocks of two execution environments may be. A time further ahead is an error of
/// the clock that set it.
pub(super) const SKEW: Duration = Duration::from_secs(5);

/// A service that came back a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recovery {
    /// The calls that it gets now.
    pub(crate) limit: RateLimit,
    /// The time until it gets as many as come.
    rest: Duration,
}

impl Recovery {
    /// That of a service whose circuit closed at `end`, or whose pause after that ended then.
    pub(super) fn since(end: u64, now: u64) -> Option<Self> {
        let is_wrong = end > now.saturating_add(nanos(SKEW));
        let age = Duration::from_nanos(now.saturating_sub(end));
        let rest = RECOVERY.checked_sub(age).filter(|rest| !rest.is_zero() && !is_wrong)?;
        let limit = RateLimit::new(FIRST_CALLS << age.as_secs(), Duration::from_secs(1));
        Some(Self { limit: RateLimit { max_reservation: limit.period, ..limit }, rest })
    }

    /// The slot of a call. Nobody stands in line, since the limit of now says nothing about the time
    /// of a turn.
    pub(crate) fn demand(&self) -> Demand {
        Demand { ask: Ask::Retry, tenant: None, units: 1, longest: self.limit.max_reservation }
    }

    /// The answer to a message without a slot.
    pub(crate) fn refusal(&self) -> NotPermitted {
        NotPermitted { why: Deferral::CircuitOpen, rest: self.rest }
    }
}
