//! Limits of SQS, and of Lambda as its consumer, each with its source.

use std::fmt;
use std::time::Duration;

/// Most entries in one batch call. Source: SQS API reference, `SendMessageBatch`.
pub const MAX_BATCH_ENTRIES: usize = 10;
/// Most bytes of one message, and of all messages in one batch call. Source: SQS API reference,
/// `SendMessageBatch`.
pub const MAX_BATCH_BYTES: usize = 1_048_576;
/// Longest visibility timeout, counted from the receive. Source: SQS API reference,
/// `ChangeMessageVisibility`.
pub const MAX_VISIBILITY: Duration = Duration::from_secs(43_200);
/// Longest wait of a receive. Source: SQS API reference, `ReceiveMessage`.
pub const MAX_WAIT: Duration = Duration::from_secs(20);
/// Longest delay of a message. Source: SQS API reference, `SendMessage`.
pub const MAX_DELAY: Duration = Duration::from_secs(900);
/// Longest retention of a queue, 14 days. Source: SQS API reference, `SetQueueAttributes`.
pub const MAX_RETENTION: Duration = Duration::from_secs(1_209_600);
/// Greatest `maxReceiveCount`. Source: the console's form; the documents name no bound.
pub const MAX_RECEIVES: u64 = 1_000;
/// Most messages in flight at once. Source: SQS developer guide, "Amazon SQS message quotas".
pub const MAX_IN_FLIGHT: u32 = 120_000;
/// Most characters of a queue's name, with `.fifo`. Source: SQS API reference, `CreateQueue`.
pub const MAX_QUEUE_NAME: usize = 80;
/// Most messages of a batch of an event source mapping. Source: Lambda developer guide,
/// "Configuring scaling behavior for SQS event source mappings".
pub const MAX_MAPPING_BATCH: usize = 10_000;
/// Most bytes of an invocation's event. Source: Lambda quotas, "Invocation payload".
pub const MAX_EVENT: usize = 6 * 1024 * 1024;
/// Longest run of a function, except on Lambda Managed Instances. Source: Lambda quotas.
pub const MAX_RUN: Duration = Duration::from_secs(900);

/// A delay that SQS accepts for one message: whole seconds, 0 to 900.
///
/// Source: `DelaySeconds` of the SQS API reference, `SendMessage`.
///
/// ```
/// use std::time::Duration;
/// use requeue::Delay;
/// assert_eq!(Delay::at_most(Duration::from_millis(1_001)).as_secs(), 2);
/// assert_eq!(Delay::at_most(Duration::from_secs(3_600)), Delay::MAX);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Delay(u16);

impl Delay {
    /// 15 minutes, the longest delay of SQS.
    pub const MAX: Self = Self(900);

    /// `delay` rounded up to whole seconds, or [`Delay::MAX`] when it is longer.
    pub fn at_most(delay: Duration) -> Self {
        let secs = whole_secs(delay).min(u64::from(Self::MAX.0));
        Self(u16::try_from(secs).unwrap_or(Self::MAX.0))
    }

    /// Whole seconds.
    ///
    /// # Panics
    ///
    /// If there are more than 900.
    pub const fn secs(secs: u16) -> Self {
        assert!(secs <= Self::MAX.0, "SQS holds nothing back for longer");
        Self(secs)
    }

    /// The seconds.
    #[must_use]
    pub const fn as_secs(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0)
    }
}

/// Rounded up: SQS knows no fractions, and a named delay is a lower bound.
pub fn whole_secs(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_whole_seconds_up_to_900() {
        for (millis, secs) in [
            (0, 0),
            (1, 1),
            (1_000, 1),
            (899_001, 900),
            (900_000, 900),
            (900_001, 900),
            (u64::MAX, 900),
        ] {
            assert_eq!(
                Delay::at_most(Duration::from_millis(millis)).as_secs(),
                secs,
                "{millis} ms"
            );
        }
    }
}
