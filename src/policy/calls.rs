//! Retries of a call to SQS within one invocation. The retries of messages are separate.

use std::time::Duration;

use super::{Backoff, Jitter, Spread};

/// The retries of a call to SQS. They use no retry of a message.
///
/// These limits apply to every policy:
///
/// - A send without a response is tried again at most once, since each further try may store the
///   copies once more.
/// - A delete is tried again at most once, since the event source mapping deletes too.
/// - A send takes at most 60 s, with all tries and pauses.
/// - A change of visibility is tried again only if SQS responded that it cannot do it now.
/// - No try and no pause outlives the invocation's deadline.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CallPolicy {
    /// Most attempts, the first one included; 0 counts as 1. Default 5.
    pub max_attempts: u32,
    /// How the pause grows with the attempts. Default 100 ms × 2ⁿ.
    pub backoff: Backoff,
    /// The pause grows no further than this. Default 5 s.
    pub max_delay: Duration,
    /// How the pause is spread, after the cap. Default: shortened by up to a tenth.
    pub jitter: Jitter,
}

impl CallPolicy {
    /// The multiplier of the default backoff.
    pub(crate) const MULTIPLIER: f64 = 2.0;

    /// A policy without retries.
    pub fn off() -> Self {
        Self { max_attempts: 1, ..Self::default() }
    }

    /// The retries of a worker's receive: 500 ms × 2ⁿ, at most 10 s, shortened by up to a fifth.
    /// They never end. A failure after these attempts is an error in the worker's log.
    pub fn receiving() -> Self {
        Self {
            max_attempts: 3,
            backoff: Backoff::Exponential {
                base: Duration::from_millis(500),
                multiplier: Self::MULTIPLIER,
            },
            max_delay: Duration::from_secs(10),
            jitter: Jitter::Proportional(0.2),
        }
    }

    /// The pause after this many attempts; `None` if no other attempt follows. `previous` is the
    /// pause before this one, for [`Jitter::Decorrelated`], and `sample` is uniform in `0.0..1.0`.
    pub fn pause(
        &self,
        attempts: u32,
        previous: Option<Duration>,
        sample: f64,
    ) -> Option<Duration> {
        let spread =
            Spread::of(&self.backoff, attempts.saturating_sub(1), self.max_delay, previous);
        (attempts < self.max_attempts).then(|| self.jitter.apply(&spread, sample))
    }
}

impl Default for CallPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            backoff: Backoff::Exponential {
                base: Duration::from_millis(100),
                multiplier: Self::MULTIPLIER,
            },
            max_delay: Duration::from_secs(5),
            jitter: Jitter::Proportional(0.1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All pauses of a call that always fails, in milliseconds.
    fn pauses(policy: &CallPolicy, sample: f64) -> Vec<u128> {
        let mut previous = None;
        let mut next = |attempts| {
            previous = policy.pause(attempts, previous, sample);
            previous.map(|pause| pause.as_millis())
        };
        (1..=20).map_while(&mut next).collect()
    }

    #[test]
    fn a_policy_gives_its_exact_pauses() {
        let slow = CallPolicy { max_attempts: 10, ..CallPolicy::default() };
        let decorrelated = CallPolicy { jitter: Jitter::Decorrelated, ..CallPolicy::default() };
        let table: [(&CallPolicy, f64, &[u128]); 8] = [
            (&CallPolicy::default(), 0.0, &[90, 180, 360, 720]),
            (&CallPolicy::default(), 1.0, &[100, 200, 400, 800]),
            (&slow, 1.0, &[100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000]),
            (&slow, 0.0, &[90, 180, 360, 720, 1_440, 2_880, 4_500, 4_500, 4_500]),
            (&decorrelated, 1.0, &[300, 900, 2_700, 5_000]),
            (&CallPolicy { max_attempts: 2, ..CallPolicy::default() }, 1.0, &[100]),
            (&CallPolicy::off(), 1.0, &[]),
            (&CallPolicy { max_attempts: 0, ..CallPolicy::default() }, 1.0, &[]),
        ];
        for (policy, sample, expected) in table {
            assert_eq!(pauses(policy, sample), expected, "{policy:?} at {sample}");
        }
    }

    #[test]
    fn no_number_of_attempts_is_too_large() {
        let endless = CallPolicy {
            max_attempts: u32::MAX,
            max_delay: Duration::MAX,
            ..CallPolicy::default()
        };
        assert_eq!(endless.pause(u32::MAX - 1, None, 1.0), Some(Duration::MAX));
        assert_eq!(endless.pause(u32::MAX, None, 1.0), None);
    }
}
