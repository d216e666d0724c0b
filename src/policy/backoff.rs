//! How a delay grows.

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
}
