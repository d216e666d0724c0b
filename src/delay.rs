//! The wait of a message, in whole seconds as SQS counts them.

use std::time::{Duration, SystemTime};

pub use requeue_sqs::Delay;
pub(crate) use requeue_sqs::whole_secs;

/// The wait of a copy. SQS delays the copy as long as it can. If that is too short, the copy
/// carries `not_before` and waits until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    total: Duration,
    not_before: Option<SystemTime>,
}

impl Wait {
    /// A wait of `total`, rounded up to whole seconds, that begins `now`.
    pub fn from(total: Duration, now: SystemTime) -> Self {
        let total = Duration::from_secs(whole_secs(total));
        let too_long = total > Duration::from_secs(u64::from(Delay::MAX.as_secs()));
        let not_before = if too_long { now.checked_add(total) } else { None };
        Self { total, not_before }
    }

    /// A wait until `due`. A copy that must hop once more carries `due` again.
    pub fn until(due: SystemTime, now: SystemTime) -> Self {
        Self {
            not_before: Some(due),
            ..Self::from(due.duration_since(now).unwrap_or_default(), now)
        }
    }

    /// The whole wait, in whole seconds.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// The delay for SQS in this hop.
    pub fn delay(&self) -> Delay {
        Delay::at_most(self.total)
    }

    /// The earliest time at which the handler may get the message, if one delay of SQS is too
    /// short.
    pub fn not_before(&self) -> Option<SystemTime> {
        self.not_before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_longer_than_sqs_can_hold_carries_its_end() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let carried = |secs| Wait::from(Duration::from_secs(secs), now).not_before();
        assert_eq!(carried(899), None);
        assert_eq!(carried(900), None);
        assert_eq!(carried(901), Some(now + Duration::from_secs(901)));
    }

    #[test]
    fn the_last_hop_ends_at_the_time_that_was_named() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let due = now + Duration::from_millis(1_500);
        let hop = Wait::until(due, now);
        assert_eq!((hop.delay().as_secs(), hop.not_before()), (2, Some(due)));
        assert_eq!(Wait::until(due, due + Duration::from_secs(9)).delay().as_secs(), 0);
    }
}
