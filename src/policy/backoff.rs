//! How a delay grows.

use std::time::Duration;

/// How the delay grows with the number of retries, before the cap and the jitter.
///
/// ```
/// use std::time::Duration;
/// use requeue::policy::Backoff;
///
/// let backoff = Backoff::Exponential { base: Duration::from_secs(2), multiplier: 3.0 };
/// assert_eq!(backoff.delay(0), Duration::from_secs(2));
/// assert_eq!(backoff.delay(3), Duration::from_secs(54));
/// assert_eq!(backoff.delay(u32::MAX), Duration::MAX);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Backoff {
    /// `base · multiplierⁿ`
    Exponential {
        /// The first delay.
        base: Duration,
        /// At least 1.
        multiplier: f64,
    },
}

impl Backoff {
    /// The delay after `retries` retries. Saturates.
    #[must_use]
    pub fn delay(&self, retries: u32) -> Duration {
        match *self {
            Self::Exponential { base, multiplier } => {
                let secs = base.as_secs_f64() * multiplier.powf(f64::from(retries));
                // 0 · ∞ is no number: a base of zero stays zero.
                if base.is_zero() { base } else { Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX) }
            }
        }
    }

    /// The first delay.
    #[must_use]
    pub const fn base(&self) -> Duration {
        match *self {
            Self::Exponential { base, .. } => base,
        }
    }
}
