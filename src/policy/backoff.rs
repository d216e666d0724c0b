//! How a delay grows, and how it is spread, so that messages that failed together are not received
//! together again.

use std::fmt;
use std::time::Duration;

/// How the delay grows with the number of retries, before the cap and the jitter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Backoff {
    /// `base · multiplierⁿ`
    Exponential {
        /// The first delay.
        base: Duration,
        /// At least 1; a lower value, or NaN, counts as 1.
        multiplier: f64,
    },
    /// `base · (n + 1)`
    Linear {
        /// The first delay, and the step of each further one.
        base: Duration,
    },
    /// `base` times 1, 1, 2, 3, 5, 8, 13, …: each the sum of the two before it.
    Fibonacci {
        /// The first delay, and the second.
        base: Duration,
    },
    /// `base`, always.
    Constant {
        /// The delay.
        base: Duration,
    },
    /// One delay after the other; the last one repeats.
    List {
        /// The first delay.
        first: Duration,
        /// The delays after it.
        then: Vec<Duration>,
    },
}

impl Backoff {
    /// The delay after `retries` retries. Saturates.
    pub fn delay(&self, retries: u32) -> Duration {
        match self {
            Self::Exponential { base, multiplier } => exponential(*base, *multiplier, retries),
            Self::Linear { base } => base.saturating_mul(retries.saturating_add(1)),
            Self::Fibonacci { base } => fibonacci(*base, retries),
            Self::Constant { base } => *base,
            Self::List { first, then } => listed(*first, then, retries),
        }
    }

    /// The word of the policy document; `list` for a list of delays.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Exponential { .. } => "exponential",
            Self::Linear { .. } => "linear",
            Self::Fibonacci { .. } => "fibonacci",
            Self::Constant { .. } => "constant",
            Self::List { .. } => "list",
        }
    }

    /// The first delay.
    pub const fn base(&self) -> Duration {
        match self {
            Self::Exponential { base, .. }
            | Self::Linear { base }
            | Self::Fibonacci { base }
            | Self::Constant { base }
            | Self::List { first: base, .. } => *base,
        }
    }
}

fn exponential(base: Duration, multiplier: f64, retries: u32) -> Duration {
    // 0 · ∞ is NaN: a base of zero stays zero.
    if base.is_zero() {
        return base;
    }
    let factor = multiplier.max(1.0).powf(f64::from(retries));
    Duration::try_from_secs_f64(base.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

fn fibonacci(base: Duration, retries: u32) -> Duration {
    // The 140th number exceeds every `Duration` in nanoseconds, so further steps change nothing.
    const STEPS: u32 = 140;
    let (delay, _) = (0..retries.min(STEPS))
        .fold((base, base), |(delay, next), _| (next, delay.saturating_add(next)));
    delay
}

fn listed(first: Duration, then: &[Duration], retries: u32) -> Duration {
    let last = then.last().copied().unwrap_or(first);
    match usize::try_from(retries) {
        Ok(0) => first,
        Ok(retry) => then.get(retry - 1).copied().unwrap_or(last),
        Err(_) => last,
    }
}

/// How a delay is spread. The jitter is applied after the cap, so that the cap does not remove it.
///
/// Its range reaches neither beyond the capped delay nor, for [`Decorrelated`](Self::Decorrelated),
/// beyond the cap.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Jitter {
    /// 0 … v
    Full,
    /// v/2 … v
    Equal,
    /// v·(1−p) … v, with p in `0.0..=1.0`; a value outside counts as the nearer end.
    Proportional(f64),
    /// base … max(base, min(cap, 3 · previous delay))
    Decorrelated,
    /// v
    None,
}

/// The delay that a jitter spreads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    /// The capped delay, v.
    pub(super) delay: Duration,
    pub(super) base: Duration,
    pub(super) cap: Duration,
    /// The delay before this one; the base when there was none.
    pub(super) previous: Option<Duration>,
}

impl Spread {
    pub(super) fn of(
        backoff: &Backoff,
        retries: u32,
        cap: Duration,
        previous: Option<Duration>,
    ) -> Self {
        Self { delay: backoff.delay(retries).min(cap), base: backoff.base(), cap, previous }
    }
}

/// The word of the policy document, and the share of [`Proportional`](Jitter::Proportional):
/// `proportional 0.1`.
impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full"),
            Self::Equal => f.write_str("equal"),
            Self::Proportional(share) => write!(f, "proportional {share}"),
            Self::Decorrelated => f.write_str("decorrelated"),
            Self::None => f.write_str("none"),
        }
    }
}

impl Jitter {
    /// The delay that `sample`, in `0.0..1.0`, picks from the range.
    pub(super) fn apply(self, spread: &Spread, sample: f64) -> Duration {
        let Spread { delay, base, cap, previous } = *spread;
        let (from, to) = match self {
            Self::Full => (Duration::ZERO, delay),
            Self::Equal => (delay / 2, delay),
            Self::Proportional(share) => (part(delay, 1.0 - share), delay),
            Self::Decorrelated => {
                let base = base.min(cap);
                (base, base.max(cap.min(previous.unwrap_or(base).saturating_mul(3))))
            }
            Self::None => (delay, delay),
        };
        from + part(to.saturating_sub(from), sample)
    }
}

/// This wait, and up to as much again.
pub(super) fn spread(wait: Duration, sample: f64) -> Duration {
    wait.saturating_add(part(wait, sample))
}

/// This share of the whole. A share below 0, or NaN, counts as 0; a share above 1 counts as 1. So
/// no arithmetic here can panic, and no part exceeds the whole.
pub(super) fn part(whole: Duration, share: f64) -> Duration {
    let share = if share > 0.0 { share.min(1.0) } else { 0.0 };
    Duration::try_from_secs_f64(whole.as_secs_f64() * share).map_or(whole, |part| part.min(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn an_exponential_delay_is_multiplied_each_time_and_saturates() {
        let exponential = |base, multiplier| Backoff::Exponential {
            base: Duration::from_secs_f64(base),
            multiplier,
        };
        let table = [
            (exponential(2.0, 3.0), 0, secs(2)),
            (exponential(2.0, 3.0), 4, secs(162)),
            (exponential(60.0, 3.0), 2, secs(540)),
            (exponential(0.1, 2.0), 3, Duration::from_millis(800)),
            (exponential(10.0, 1.1), 1, secs(11)),
            (exponential(2.0, 3.0), u32::MAX, Duration::MAX),
            (exponential(2.0, f64::INFINITY), 1, Duration::MAX),
            (exponential(5.0, 1.0), u32::MAX, secs(5)),
            (exponential(5.0, 0.5), 9, secs(5)),
            (exponential(5.0, -3.0), 9, secs(5)),
            (exponential(5.0, f64::NAN), 9, secs(5)),
            (exponential(0.0, 3.0), u32::MAX, Duration::ZERO),
        ];
        for (backoff, retries, expected) in table {
            assert_eq!(backoff.delay(retries), expected, "{backoff:?} after {retries}");
        }
    }

    #[test]
    fn each_backoff_gives_its_exact_sequence() {
        let table: [(Backoff, [u64; 7]); 6] = [
            (
                Backoff::Exponential { base: secs(2), multiplier: 3.0 },
                [2, 6, 18, 54, 162, 486, 1_458],
            ),
            (Backoff::Linear { base: secs(5) }, [5, 10, 15, 20, 25, 30, 35]),
            (Backoff::Fibonacci { base: secs(5) }, [5, 5, 10, 15, 25, 40, 65]),
            (Backoff::Constant { base: secs(5) }, [5, 5, 5, 5, 5, 5, 5]),
            (
                Backoff::List { first: secs(5), then: vec![secs(30), secs(300)] },
                [5, 30, 300, 300, 300, 300, 300],
            ),
            (Backoff::List { first: secs(5), then: Vec::new() }, [5, 5, 5, 5, 5, 5, 5]),
        ];
        for (backoff, expected) in table {
            let delays: Vec<u64> = (0..7).map(|retries| backoff.delay(retries).as_secs()).collect();
            assert_eq!(delays, expected, "{backoff:?}");
            assert_eq!(backoff.base(), backoff.delay(0), "{backoff:?}");
        }
    }

    #[test]
    fn no_number_of_retries_is_too_large() {
        let nanosecond = Duration::from_nanos(1);
        let table = [
            (Backoff::Linear { base: secs(1) }, secs(u64::from(u32::MAX))),
            (Backoff::Linear { base: Duration::MAX }, Duration::MAX),
            (Backoff::Fibonacci { base: nanosecond }, Duration::MAX),
            (Backoff::Fibonacci { base: Duration::MAX }, Duration::MAX),
            (Backoff::Fibonacci { base: Duration::ZERO }, Duration::ZERO),
            (Backoff::Constant { base: nanosecond }, nanosecond),
            (Backoff::List { first: secs(1), then: vec![secs(2)] }, secs(2)),
        ];
        for (backoff, expected) in table {
            assert_eq!(backoff.delay(u32::MAX), expected, "{backoff:?}");
        }
        // The number of steps after which Fibonacci's numbers are cut off changes nothing.
        let shortest = Backoff::Fibonacci { base: nanosecond };
        assert_eq!((shortest.delay(139), shortest.delay(140)), (Duration::MAX, Duration::MAX));
    }

    /// The largest number that a random generator draws.
    const ALMOST_ONE: f64 = 1.0_f64.next_down();

    fn spread(delay: u64, previous: Option<u64>) -> Spread {
        let secs = Duration::from_secs;
        Spread { delay: secs(delay), base: secs(2), cap: secs(60), previous: previous.map(secs) }
    }

    #[test]
    fn a_sample_picks_its_place_in_the_range() {
        let table = [
            (Jitter::Full, spread(60, None), [0.0, 30.0, 60.0]),
            (Jitter::Equal, spread(60, None), [30.0, 45.0, 60.0]),
            (Jitter::Equal, spread(1, None), [0.5, 0.75, 1.0]),
            (Jitter::Proportional(0.1), spread(60, None), [54.0, 57.0, 60.0]),
            (Jitter::Proportional(0.0), spread(60, None), [60.0, 60.0, 60.0]),
            (Jitter::Proportional(1.0), spread(60, None), [0.0, 30.0, 60.0]),
            (Jitter::Decorrelated, spread(2, None), [2.0, 4.0, 6.0]),
            (Jitter::Decorrelated, spread(18, Some(10)), [2.0, 16.0, 30.0]),
            (Jitter::Decorrelated, spread(60, Some(20)), [2.0, 31.0, 60.0]),
            (Jitter::Decorrelated, spread(60, Some(21)), [2.0, 31.0, 60.0]),
            (Jitter::Decorrelated, spread(2, Some(0)), [2.0, 2.0, 2.0]),
            (Jitter::None, spread(60, None), [60.0, 60.0, 60.0]),
        ];
        for (jitter, spread, expected) in table {
            for (sample, secs) in [0.0, 0.5, ALMOST_ONE].into_iter().zip(expected) {
                let delay = jitter.apply(&spread, sample);
                assert_eq!(
                    delay,
                    Duration::from_secs_f64(secs),
                    "{jitter:?} of {spread:?} at {sample}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_share_counts_as_the_nearer_end() {
        for (share, from) in [(-0.1, 60), (1.1, 0), (f64::INFINITY, 0), (f64::NAN, 0)] {
            let delay = Jitter::Proportional(share).apply(&spread(60, None), 0.0);
            assert_eq!(delay, Duration::from_secs(from), "proportional {share}");
        }
        for (sample, secs) in [
            (-0.1, 0),
            (1.0, 60),
            (7.0, 60),
            (f64::NEG_INFINITY, 0),
            (f64::INFINITY, 60),
            (f64::NAN, 0),
        ] {
            let delay = Jitter::Full.apply(&spread(60, None), sample);
            assert_eq!(delay, Duration::from_secs(secs), "sample {sample}");
        }
    }

    #[test]
    fn the_longest_delay_there_is_can_be_spread() {
        let spread = Spread {
            delay: Duration::MAX,
            base: Duration::MAX,
            cap: Duration::MAX,
            previous: Some(Duration::MAX),
        };
        let jitters = [
            Jitter::Full,
            Jitter::Equal,
            Jitter::Proportional(0.0),
            Jitter::Proportional(0.5),
            Jitter::Decorrelated,
            Jitter::None,
        ];
        for jitter in jitters {
            for sample in [0.0, 0.5, ALMOST_ONE, 1.0] {
                assert!(jitter.apply(&spread, sample) <= Duration::MAX);
            }
            assert_eq!(jitter.apply(&spread, 1.0), Duration::MAX, "{jitter:?}");
        }
    }

    #[test]
    fn a_base_above_the_cap_does_not_lift_it() {
        let spread = Spread { base: Duration::from_secs(90), ..spread(60, None) };
        assert_eq!(Jitter::Decorrelated.apply(&spread, 0.5), spread.cap);
    }
}
