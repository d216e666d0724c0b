//! The units of calls: those that are estimated before a call, and those that it used.

use std::time::SystemTime;

use super::{FURTHEST_SLOT, LimitState, TAT, epoch_nanos, nanos};
use crate::policy::RateLimit;
use crate::table::Update;

impl LimitState {
    /// The units that a call is likely to use, of these estimated ones.
    pub(crate) fn likely(&self, units: u32, limit: &RateLimit) -> u32 {
        let likely = self.units.likely(units.into()).clamp(1, limit.limit.max(1).into());
        u32::try_from(likely).unwrap_or(units)
    }

    /// Notes the units that a call used.
    pub(crate) fn note_used(&mut self, estimated: u32, used: u32) {
        self.units.note(estimated.into(), used.into());
    }

    /// This state, with the units that the last calls of another one used.
    pub(crate) fn with_units_of(self, other: &Self) -> Self {
        Self { units: other.units, ..self }
    }

    /// The state after a call used so many units more than its reservation had, or fewer. Those that
    /// nobody used are free at once.
    pub(crate) fn corrected(self, limit: &RateLimit, units: i64) -> Self {
        let time = limit.interval_nanos().saturating_mul(units.unsigned_abs());
        let tat =
            if units > 0 { self.tat.saturating_add(time) } else { self.tat.saturating_sub(time) };
        Self { tat, ..self }
    }

    /// The same change in a table. Debts beyond the furthest slot are forgiven: the gate is closed.
    pub(crate) fn correction(&self, limit: &RateLimit, units: i64, now: SystemTime) -> Update {
        let next = self.corrected(limit, units);
        if units < 0 {
            return Update::new().when(TAT, self.tat..=self.tat).set(TAT, next.tat);
        }
        let more = next.tat - self.tat;
        let largest = limit.interval_nanos().saturating_mul(limit.largest().into());
        let furthest =
            epoch_nanos(now).saturating_add(nanos(FURTHEST_SLOT)).saturating_add(largest);
        Update::new().when(TAT, 0..=furthest.saturating_sub(more)).add(TAT, more)
    }
}

/// The units that the last calls of this execution environment were expected to use, and used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LastUnits {
    estimated: u64,
    used: u64,
}

impl LastUnits {
    /// About so many calls say how many units the next ones use.
    const CALLS: u64 = 64;

    fn note(&mut self, estimated: u64, used: u64) {
        if self.estimated > Self::CALLS * estimated {
            (self.estimated, self.used) = (self.estimated / 2, self.used / 2);
        }
        (self.estimated, self.used) = (self.estimated + estimated, self.used + used);
    }

    /// So many units are likely to be used, of these estimated ones.
    fn likely(&self, units: u64) -> u64 {
        if self.estimated == 0 {
            return units;
        }
        let used = u128::from(units) * u128::from(self.used);
        u64::try_from(used.div_ceil(u128::from(self.estimated))).unwrap_or(u64::MAX)
    }
}
