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
        /// At least 1; what is less, or no number, counts as 1.
        multiplier: f64,
    },
}

impl Backoff {
    /// The delay after `retries` retries. Saturates.
    #[must_use]
    pub fn delay(&self, retries: u32) -> Duration {
        match *self {
            Self::Exponential { base, multiplier } => exponential(base, multiplier, retries),
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

fn exponential(base: Duration, multiplier: f64, retries: u32) -> Duration {
    // 0 · ∞ is no number: a base of zero stays zero.
    if base.is_zero() {
        return base;
    }
    let factor = multiplier.max(1.0).powf(f64::from(retries));
    Duration::try_from_secs_f64(base.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exponential_delay_is_multiplied_each_time_and_saturates() {
        let exponential = |base, multiplier| Backoff::Exponential {
            base: Duration::from_secs_f64(base),
            multiplier,
        };
        let table = [
            (exponential(2.0, 3.0), 0, Duration::from_secs(2)),
            (exponential(2.0, 3.0), 4, Duration::from_secs(162)),
            (exponential(60.0, 3.0), 2, Duration::from_secs(540)),
            (exponential(0.1, 2.0), 3, Duration::from_millis(800)),
            (exponential(10.0, 1.1), 1, Duration::from_secs(11)),
            (exponential(2.0, 3.0), u32::MAX, Duration::MAX),
            (exponential(2.0, f64::INFINITY), 1, Duration::MAX),
            (exponential(5.0, 1.0), u32::MAX, Duration::from_secs(5)),
            (exponential(5.0, 0.5), 9, Duration::from_secs(5)),
            (exponential(5.0, -3.0), 9, Duration::from_secs(5)),
            (exponential(5.0, f64::NAN), 9, Duration::from_secs(5)),
            (exponential(0.0, 3.0), u32::MAX, Duration::ZERO),
        ];
        for (backoff, retries, expected) in table {
            assert_eq!(backoff.delay(retries), expected, "{backoff:?} after {retries}");
        }
    }
}
