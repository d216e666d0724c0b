//! How a delay is spread, so that what failed together does not come back together.

use std::time::Duration;

/// How a delay is spread. It is applied after the cap, so that it survives the cap.
///
/// ```
/// use std::time::Duration;
/// use requeue::policy::{Jitter, Spread};
///
/// let spread = Spread { delay: Duration::from_secs(60), base: Duration::from_secs(2), cap: Duration::from_secs(60), previous: None };
/// assert_eq!(Jitter::Equal.apply(&spread, 0.0), Duration::from_secs(30));
/// assert_eq!(Jitter::Proportional(0.1).apply(&spread, 0.5), Duration::from_secs(57));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Jitter {
    /// 0 … v
    Full,
    /// v/2 … v
    Equal,
    /// v·(1−p) … v, with p in `0.0..=1.0`
    Proportional(f64),
    /// base … max(base, min(cap, 3 · previous delay))
    Decorrelated,
    /// v
    None,
}

/// What a jitter spreads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The capped delay, v.
    pub delay: Duration,
    /// The first delay of the backoff.
    pub base: Duration,
    /// The cap.
    pub cap: Duration,
    /// The delay before this one; the base when there was none.
    pub previous: Option<Duration>,
}

impl Jitter {
    /// The delay that `sample`, in `0.0..1.0`, picks from the range.
    #[must_use]
    pub fn apply(self, spread: &Spread, sample: f64) -> Duration {
        let Spread { delay, base, cap, previous } = *spread;
        let (from, to) = match self {
            Self::Full => (Duration::ZERO, delay),
            Self::Equal => (delay / 2, delay),
            Self::Proportional(share) => (delay.mul_f64((1.0 - share).clamp(0.0, 1.0)), delay),
            Self::Decorrelated => (base, base.max(cap.min(previous.unwrap_or(base).saturating_mul(3)))),
            Self::None => (delay, delay),
        };
        from + to.saturating_sub(from).mul_f64(sample.clamp(0.0, 1.0))
    }
}
