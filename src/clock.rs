//! The time of day, which messages carry, and the one random number of each message. Both are
//! injected, so that every run can be repeated.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::civil::Time;
use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;
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

/// Reads a time as RFC 3339 has it, which sets no maximum of digits. Those beyond the nanoseconds are
/// cut.
pub fn rfc3339(text: &str) -> Option<SystemTime> {
    read_timestamp(text, None)
}

/// As [`rfc3339`], but with a zone for a time without an offset, or a date alone.
pub(crate) fn read_timestamp(text: &str, zone: Option<Offset>) -> Option<SystemTime> {
    let fraction = text.find(['.', ',']).map_or(text.len(), |at| at + 1);
    let digits = text[fraction..].bytes().take_while(u8::is_ascii_digit).count();
    let text = match digits {
        0..=9 => Cow::Borrowed(text),
        _ => Cow::Owned([&text[..fraction + 9], &text[fraction + digits..]].concat()),
    };
    let pieces = Pieces::parse(&*text).ok()?;
    let time = pieces.time().or(zone.map(|_| Time::midnight()))?;
    // The parser also accepts 24 and 25 hours.
    let offset = pieces.to_numeric_offset().or(zone)?;
    let offset = Some(offset).filter(|offset| offset.seconds().abs() < 24 * 3_600)?;
    Some(offset.to_timestamp(pieces.date().to_datetime(time)).ok()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_may_have_any_fraction_and_no_offset_of_a_day() {
        let millis = |text| rfc3339(text).map(epoch_millis);
        let nanos = rfc3339("1970-01-01T00:00:00.1234567899Z");
        assert_eq!(nanos, Some(SystemTime::UNIX_EPOCH + Duration::from_nanos(123_456_789)));
        let many = format!("1970-01-01T00:00:01.5{}+00:00", "0".repeat(10_000));
        for (text, expected) in [
            ("1970-01-01T00:00:00.12345678Z", Some(123)),
            ("1970-01-01T00:00:00.123456789Z", Some(123)),
            ("1970-01-01T00:00:00.1234567890Z", Some(123)),
            ("1970-01-01 01:00:01.9999999999+01:00", Some(1_999)),
            (many.as_str(), Some(1_500)),
            ("1970-01-01T23:59:00+23:59", Some(0)),
            ("1969-12-31T00:01:00-23:59", Some(0)),
            ("1970-01-02T00:00:00+24:00", None),
            ("1970-01-02T01:00:00+25:00", None),
            ("1969-12-31T00:00:00-24:00", None),
            ("1970-01-01T00:00:00.Z", None),
            ("1970-01-01T00:00:00.1234567890xZ", None),
            ("1970-01-01T00:00:00.1234567890", None),
            ("1970-01-01", None),
            ("", None),
        ] {
            assert_eq!(millis(text), expected, "{text}");
        }
    }

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
