//! Where a time of a limit's state is, as an execution environment sees it.

use std::ops::RangeInclusive;

/// Where a time of the state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// The gate is free, or nobody waits in line.
    Over,
    /// Some calls were let through, or some messages wait.
    Ahead,
    /// A clock has left it behind which was set back since. It counts as over.
    Lost { beyond: u64 },
}

impl Time {
    pub(super) fn of(time: u64, now: u64, furthest: u64) -> Self {
        match time {
            _ if time <= now => Self::Over,
            _ if time <= furthest => Self::Ahead,
            _ => Self::Lost { beyond: furthest },
        }
    }

    /// The times for which this is so.
    pub(super) fn range(self, now: u64, latest: u64) -> RangeInclusive<u64> {
        match self {
            Self::Over => 0..=now,
            Self::Ahead => now.saturating_add(1)..=latest,
            Self::Lost { beyond } => beyond.saturating_add(1)..=u64::MAX,
        }
    }
}
