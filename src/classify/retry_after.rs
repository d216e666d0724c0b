//! Reads the delay that a response names: `Retry-After`, `RateLimit` and its older relatives, and
//! durations in JSON.
//!
//! A malformed value is ignored, never an error. So is a time that nobody can mean; its header is
//! remembered for the reason of the failure. A time that has just passed is zero.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::fmt::{friendly, rfc2822, temporal};

use super::Response;

mod allowance;

pub(crate) use allowance::{Allowance, allowances};

/// The longest delay that anyone means.
pub(super) const LONGEST: Duration = Duration::from_hours(365 * 24);
/// The oldest time that anyone means, before the time of the response: clocks and caches are late.
const OLDEST: Duration = Duration::from_hours(24);

/// `Retry-After`, and the headers of AWS, `OpenAI`, Azure, Bucket4j and others that mean the same.
const DELAYS: [&str; 7] = [
    "retry-after",
    "x-amz-retry-after",
    "retry-after-ms",
    "x-ms-retry-after-ms",
    "x-rate-limit-retry-after-seconds",
    "x-ratelimit-retry-after",
    "x-retry-after",
];

/// Headers with a number of milliseconds. The last one is `BigCommerce`'s.
const MILLIS: [&str; 4] =
    ["x-amz-retry-after", "retry-after-ms", "x-ms-retry-after-ms", "x-rate-limit-time-reset-ms"];

/// Headers with the rest of the allowance that [`RESETS`] speak of.
const REMAINING: [&str; 3] =
    ["x-ratelimit-remaining", "ratelimit-remaining", "x-rate-limit-remaining"];

/// Headers that say when one allowance is renewed. The first is Discord's delay, which needs no
/// clock.
const RESETS: [&str; 5] = [
    "x-ratelimit-reset-after",
    "ratelimit-reset",
    "x-ratelimit-reset",
    "x-rate-limit-reset",
    "x-rate-limit-time-reset-ms",
];

/// The words in the name of a header with the rest of an allowance, one of the first and the last,
/// as in `x-ratelimit-remaining-tokens`, `anthropic-ratelimit-requests-remaining` and
/// `x-toggl-quota-remaining`; and the words that its reset has instead.
const ALLOWANCES: [&str; 2] = ["limit", "quota"];
const REST: &str = "remaining";
const RENEWED: [&str; 2] = ["reset", "resets-in"];

pub(super) struct Named<'r> {
    response: &'r Response<'r>,
    /// The time from which dates are counted.
    reference: SystemTime,
    ignored: Cell<Option<&'static str>>,
}

impl<'r> Named<'r> {
    /// Dates are counted by the server's own clock if known, so that ours may be wrong.
    pub(super) fn new(response: &'r Response<'r>, now: SystemTime) -> Self {
        let reference = response.values("date").find_map(date).unwrap_or(now);
        Self { response, reference, ignored: Cell::new(None) }
    }

    /// `Retry-After`, the first that is valid; else one of its relatives in milliseconds.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        DELAYS.into_iter().find_map(|name| self.first(name))
    }

    /// When a used-up allowance is renewed. One that is not used up says nothing of this failure.
    pub(super) fn reset(&self) -> Option<Duration> {
        let field = || {
            let fields = self.response.values("ratelimit").flat_map(rate_limit_field);
            fields.filter_map(|renewed| self.meant("ratelimit", renewed?)).max()
        };
        // Of several allowances, the last one counts: `x-ratelimit-remaining-tokens: 0`.
        let allowances = || {
            let resets = used_up(self.response).flat_map(|rest| {
                RENEWED.map(|renewed| rest.to_ascii_lowercase().replace(REST, renewed))
            });
            resets
                .flat_map(|name| self.response.values(&name).collect::<Vec<_>>())
                .filter_map(|value| self.longest("the reset of an allowance", value))
                .max()
        };
        let older = || {
            let mut rests = REMAINING.iter().flat_map(|name| self.response.values(name)).peekable();
            let is_left = rests.peek().is_some() && !rests.any(is_nothing);
            RESETS.into_iter().filter(|_| !is_left).find_map(|name| self.first(name))
        };
        field().or_else(allowances).or_else(older)
    }

    /// The delay of a header's first value that names one.
    fn first(&self, name: &'static str) -> Option<Duration> {
        self.response.values(name).find_map(|value| self.longest(name, value))
    }

    /// The delay that a value names. A proxy may have merged several headers into a list, of which
    /// the longest counts; a date has a comma of its own.
    fn longest(&self, name: &'static str, value: &[u8]) -> Option<Duration> {
        let read = |value: &[u8]| {
            let value = unquoted(value);
            let millis = || Some(Told::In(Duration::from_millis(number(value)?)));
            if MILLIS.contains(&name) { millis() } else { told(value) }
        };
        if let Some(told) = read(value) {
            return self.meant(name, told);
        }
        let items = str::from_utf8(value).ok()?.split(',');
        items.filter_map(|item| self.meant(name, read(item.as_bytes())?)).max()
    }

    /// A header that was read and names a time that nobody can mean.
    pub(super) fn ignored(&self) -> Option<&'static str> {
        self.ignored.get()
    }

    fn meant(&self, name: &'static str, told: Told) -> Option<Duration> {
        let delay = told.delay(self.reference);
        if delay.is_none() {
            self.ignored.set(Some(name));
        }
        delay
    }
}

pub(super) fn is_used_up(response: &Response<'_>) -> bool {
    let fields = || response.values("ratelimit").flat_map(rate_limit_field);
    used_up(response).next().is_some() || fields().next().is_some()
}

/// The headers with the rest of an allowance that is used up.
fn used_up<'r>(response: &Response<'r>) -> impl Iterator<Item = &'r str> {
    let used_up = response.headers.iter().filter(|header| is_nothing(header.1));
    used_up.map(|header| header.0).filter(|name| {
        let name = name.to_ascii_lowercase();
        name.contains(REST) && ALLOWANCES.iter().any(|allowance| name.contains(allowance))
    })
}

/// Whether nothing is left, by one item of a list that a proxy may have merged. The rest of an
/// allowance may be negative, and may have parameters, as in `0;w=21600`.
pub(super) fn is_nothing(rest: &[u8]) -> bool {
    rest.split(|byte| *byte == b',').any(|item| {
        let amount = item.split(|byte| *byte == b';').next().unwrap_or_default();
        str::from_utf8(amount)
            .is_ok_and(|amount| amount.trim().parse::<f64>().is_ok_and(|amount| amount <= 0.0))
    })
}

fn unquoted(value: &[u8]) -> &[u8] {
    let value = value.trim_ascii();
    let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    inner.map_or(value, <[u8]>::trim_ascii)
}

/// A delay, or a time of day.
#[derive(Clone, Copy)]
enum Told {
    In(Duration),
    At(SystemTime),
}

impl Told {
    /// The delay from `reference` on, unless nobody can mean it.
    fn delay(self, reference: SystemTime) -> Option<Duration> {
        let delay = match self {
            Self::In(delay) => delay,
            Self::At(time) => time
                .duration_since(reference)
                .or_else(
                    |past| {
                        if past.duration() <= OLDEST { Ok(Duration::ZERO) } else { Err(past) }
                    },
                )
                .ok()?,
        };
        (delay <= LONGEST).then_some(delay)
    }
}

/// Some providers name seconds from now, some a duration with its units, some a time of day.
fn told(value: &[u8]) -> Option<Told> {
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
    // `88ms`, `6m0s`, `2m52.8s`, `1h2m3s`; `PT90S`
    let duration = || {
        let friendly = || friendly::SpanParser::new().parse_unsigned_duration(value).ok();
        let iso = || temporal::SpanParser::new().parse_unsigned_duration(value).ok();
        friendly().or_else(iso).map(Told::In)
    };
    // `2023-11-14T22:14:20Z`
    let timestamp = || Some(Told::At(text.parse::<Timestamp>().ok()?.into()));
    duration().or_else(timestamp).or_else(|| date(value).map(Told::At))
}

/// `15`, `64.57`: no sign, no unit. Digits beyond the nanoseconds, as a `double` prints them, are cut.
fn decimal(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let whole = number(whole.as_bytes())?;
    number(fraction.as_bytes())?;
    let nanos = format!("{fraction:0<9.9}").parse().ok()?;
    Some(Duration::from_secs(whole).saturating_add(Duration::from_nanos(nanos)))
}

/// A date in one of the three forms of RFC 9110, or of RFC 5322: with a day of one digit, or another
/// zone.
fn date(value: &[u8]) -> Option<SystemTime> {
    let text = str::from_utf8(value).ok()?;
    let zone = text.strip_suffix("UTC").map(|date| format!("{date}GMT"));
    let text = zone.as_deref().unwrap_or(text);
    // Without its day of the week, it may be a part of a list.
    let other = || text.contains(',').then(|| rfc2822::parse(text).ok())?;
    let date = httpdate::parse_http_date(text).ok();
    date.or_else(|| Some(other()?.timestamp().into()))
}

/// Digits and nothing else. A number that does not fit counts as the largest one.
fn number(digits: &[u8]) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    all_digits.then(|| str::from_utf8(digits).ok()?.parse().ok().or(Some(u64::MAX)))?
}

/// `"per-user";r=0;t=30, "per-app";r=5;t=60`: each allowance with nothing left, by its `t`; or the
/// draft's older form `limit=100, remaining=0, reset=30`.
fn rate_limit_field(field: &[u8]) -> Vec<Option<Told>> {
    let items = str::from_utf8(field).map(outside_quotes).unwrap_or_default();
    let is_nothing = |told: Option<Told>| matches!(told, Some(Told::In(rest)) if rest.is_zero());
    let used_up = items.iter().filter(|item| is_nothing(parameter(item, "r")));
    let find = |name| items.iter().find_map(|item| parameter(item, name));
    let older = is_nothing(find("remaining")).then(|| find("reset"));
    used_up.map(|item| parameter(item, "t")).chain(older).collect()
}

fn parameter(item: &str, name: &str) -> Option<Told> {
    let mut pairs = item.split(';').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|pair| pair.0.trim() == name)?;
    told(value.trim().as_bytes())
}

/// The items of a list. A name in quotes may hold anything, and is left out.
fn outside_quotes(list: &str) -> Vec<String> {
    let (mut quoted, mut escaped) = (false, false);
    let mut bare = String::with_capacity(list.len());
    for c in list.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            c => bare.push(c),
        }
    }
    bare.split(',').map(str::to_owned).collect()
}

/// A duration as protobuf prints it in JSON: `30s`, `1.5s`.
pub(super) fn proto_duration(text: &str) -> Option<Duration> {
    decimal(text.strip_suffix('s')?).filter(|delay| *delay <= LONGEST)
}

/// A delay in seconds in JSON: `35`, `64.57`, `"35"`, `"35s"`.
pub(super) fn json_seconds(value: &serde_json::Value) -> Option<Duration> {
    let seconds = || Duration::try_from_secs_f64(value.as_f64()?).ok();
    let told = |text: &str| decimal(text.strip_suffix('s').unwrap_or(text));
    value.as_str().map_or_else(seconds, told).filter(|delay| *delay <= LONGEST)
}

#[cfg(test)]
mod tests;
