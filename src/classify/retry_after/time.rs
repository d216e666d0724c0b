//! Reads a delay or a time of day, in the forms in which services write it.

use std::time::{Duration, SystemTime};

use jiff::fmt::{friendly, rfc2822, temporal};
use jiff::tz::Offset;
use jiff::{SpanRelativeTo, Timestamp};

use crate::clock::read_timestamp;

/// The longest plausible delay.
pub(in crate::classify) const LONGEST: Duration = Duration::from_hours(365 * 24);
/// The oldest plausible time, before the time of the response: clocks and caches are late.
const OLDEST: Duration = Duration::from_hours(24);
/// The longest short name of a zone: `AEST`, `+0530`.
const MAX_ZONE: usize = 5;

pub(super) fn unquoted(value: &[u8]) -> &[u8] {
    let value = value.trim_ascii();
    let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    inner.map_or(value, <[u8]>::trim_ascii)
}

/// A delay, or a time of day.
#[derive(Clone, Copy)]
pub(super) enum Told {
    In(Duration),
    At(SystemTime),
}

impl Told {
    /// The delay from `reference` on, unless it is implausible.
    pub(super) fn delay(self, reference: SystemTime) -> Option<Duration> {
        let delay = match self {
            Self::In(delay) => delay,
            Self::At(time) => match time.duration_since(reference) {
                Ok(delay) => delay,
                Err(past) if past.duration() <= OLDEST => Duration::ZERO,
                Err(_) => return None,
            },
        };
        (delay <= LONGEST).then_some(delay)
    }
}

/// Some providers name seconds from now, some a duration with its units, some a time of day.
pub(super) fn told(value: &[u8]) -> Option<Told> {
    let text = str::from_utf8(value).ok()?;
    let length = text.find('.').unwrap_or(text.len());
    if let Some(amount) = decimal(text) {
        let time = match text[..length].trim_start_matches('0').len() {
            0..=9 => return Some(Told::In(amount)),
            10 => Some(amount),
            // Milliseconds, microseconds and nanoseconds since the epoch.
            13 => Some(amount / 1_000),
            16 => Some(amount / 1_000_000),
            19 => Some(amount / 1_000_000_000),
            _ => None,
        };
        let time = time.and_then(|amount| SystemTime::UNIX_EPOCH.checked_add(amount));
        return Some(time.map_or(Told::In(Duration::MAX), Told::At));
    }
    // `88ms`, `6m0s`, `2m52.8s`, `1h2m3s`, `1d2h`; `PT90S`, `P1D`
    let seconds = || text.strip_suffix('s').and_then(decimal).map(Told::In);
    let duration = || {
        let friendly = || friendly::SpanParser::new().parse_span(value.to_ascii_lowercase()).ok();
        let iso = || temporal::SpanParser::new().parse_span(value).ok();
        let span = friendly().or_else(iso)?;
        let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
        length.try_into().ok().map(Told::In)
    };
    seconds()
        .or_else(duration)
        .or_else(|| timestamp(text).or_else(|| without_zone(text)).map(Told::At))
        .or_else(|| date(value).map(Told::At))
}

/// `2023-11-14T22:14:20Z`; as Go, Ruby and Python print it, with ` +0800` and the zone's name; as
/// JavaScript, WSO2 and Java do.
fn timestamp(text: &str) -> Option<SystemTime> {
    const FORMS: [&str; 3] =
        ["%a %b %d %Y %H:%M:%S GMT%z", "%Y-%b-%d %H:%M:%S%z", "%a %b %d %H:%M:%S %z %Y"];
    let text = text.split(" (").next()?.split(" m=").next()?;
    let text = text.replace(" UTC ", " +0000 ").replace(" GMT ", " +0000 ");
    let read = |text: &str| {
        let form = |form: &&str| Timestamp::strptime(form, text).ok().map(SystemTime::from);
        let joined = text.replace(" +", "+").replace(" -", "-");
        read_timestamp(&joined, None).or_else(|| FORMS.iter().find_map(form))
    };
    let named = || {
        let (time, zone) = text.rsplit_once(' ')?;
        let is_utc = ["UTC", "GMT", "Z"].contains(&zone);
        let utc = || is_utc.then(|| read(&format!("{time}Z")))?;
        (zone.len() <= MAX_ZONE).then(|| read(time)).flatten().or_else(utc)
    };
    read(&text).or_else(named)
}

/// The time of day in UTC, if no zone is named.
pub(super) fn without_zone(text: &str) -> Option<SystemTime> {
    let is_zoneless = read_timestamp(text, None).is_none();
    is_zoneless.then(|| read_timestamp(text, Some(Offset::UTC))).flatten()
}

/// `15`, `64.57`: no sign, no unit. Digits beyond the nanoseconds, as a `double` prints them, are cut.
pub(super) fn decimal(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let whole = number(whole.as_bytes())?;
    number(fraction.as_bytes())?;
    let nanos = format!("{fraction:0<9.9}").parse().ok()?;
    Some(Duration::from_secs(whole).saturating_add(Duration::from_nanos(nanos)))
}

/// A date in one of the three forms of RFC 9110, or of RFC 5322: with a day of one digit, or another
/// zone.
pub(super) fn date(value: &[u8]) -> Option<SystemTime> {
    let text = str::from_utf8(value).ok()?;
    let zone = text.strip_suffix("UTC").map(|date| format!("{date}GMT"));
    let text = zone.as_deref().unwrap_or(text);
    // Without its day of the week, it may be a part of a list.
    let other = || text.contains(',').then(|| rfc2822::parse(text).ok())?;
    let date = httpdate::parse_http_date(text).ok();
    date.or_else(|| Some(other()?.timestamp().into()))
}

/// Digits and nothing else. A number that does not fit counts as the largest one.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    all_digits.then(|| str::from_utf8(digits).ok()?.parse().ok().or(Some(u64::MAX)))?
}
