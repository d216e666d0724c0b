//! The time of day, which messages carry, and the one random number of each message. Both are
//! injected, so that every run can be repeated.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
pub use requeue_sqs::Clock;
pub(crate) use requeue_sqs::epoch_millis;
use tokio::time::Instant;

use crate::lock::lock;

/// The source of the random number of each message: uniform in `0.0..1.0`.
#[derive(Clone)]
pub struct Sampler(Arc<dyn Fn() -> f64 + Send + Sync>);

impl Sampler {
    /// The thread's random generator, seeded by the operating system.
    #[allow(clippy::disallowed_methods, reason = "the one place that draws")]
    pub fn random() -> Self {
        Self(Arc::new(rand::random::<f64>))
    }

    /// The same numbers in every run with the same seed.
    pub fn seeded(seed: u64) -> Self {
        use rand::{RngExt, SeedableRng, rngs::StdRng};
        let generator = std::sync::Mutex::new(StdRng::seed_from_u64(seed));
        Self(Arc::new(move || lock(&generator).random()))
    }

    /// The same number for every message, for tests of the bounds of a jitter.
    pub fn always(sample: f64) -> Self {
        Self(Arc::new(move || sample))
    }

    /// The next number. A number below 0, or NaN, counts as 0; one above 1 counts as 1.
    pub fn sample(&self) -> f64 {
        let sample = (self.0)();
        if sample > 0.0 { sample.min(1.0) } else { 0.0 }
    }
}

impl Default for Sampler {
    fn default() -> Self {
        Self::random()
    }
}

requeue_sqs::debug_by_name!(Sampler);

/// A time longer than the life of any process, and short enough for every clock to add it to now.
const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);

/// This long from now, or as long as any process lives. A duration without a limit would panic when
/// it is added to a time.
pub(crate) fn after(wait: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(wait.min(FAR)).unwrap_or(now)
}

/// The inverse of [`epoch_millis`]. A number beyond the range of the clock counts as the epoch.
pub(crate) fn from_epoch_millis(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_millis(millis))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The time as RFC 3339 has it, in UTC and with milliseconds. Times outside the years 1970 to 9999
/// become the nearest time inside, so that the length never varies.
pub(crate) fn timestamp_text(time: SystemTime) -> String {
    let millis = i64::try_from(epoch_millis(time)).unwrap_or(i64::MAX);
    let timestamp = Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
    format!("{timestamp:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wait_is_too_long_to_be_added_to_now() {
        for wait in [
            Duration::ZERO,
            Duration::from_secs(900),
            FAR,
            Duration::from_secs(u64::MAX),
            Duration::MAX,
        ] {
            let until = after(wait).duration_since(Instant::now());
            assert!(
                until <= FAR && until + Duration::from_secs(60) >= wait.min(FAR),
                "{wait:?}: {until:?}"
            );
        }
    }
}
