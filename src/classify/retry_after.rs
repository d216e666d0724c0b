//! Reads the delay that a response names: `Retry-After`, `RateLimit` and its older relatives, and
//! durations in JSON.
//!
//! A malformed value is ignored, never an error. So is a time that nobody can mean; its header is
//! remembered for the reason of the failure. A time that has just passed is zero.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::fmt::friendly::SpanParser;

use super::response::Response;

/// The longest delay that anyone means.
pub(super) const LONGEST: Duration = Duration::from_hours(365 * 24);
/// The oldest time that anyone means, before the time of the response: clocks and caches are late.
const OLDEST: Duration = Duration::from_hours(24);

/// Headers of AWS, Azure and `OpenAI` that mean `Retry-After` in milliseconds.
const MILLIS: [&str; 3] = ["x-amz-retry-after", "retry-after-ms", "x-ms-retry-after-ms"];

/// Headers with the number of requests that are still allowed.
const REMAINING: [&str; 3] =
    ["x-ratelimit-remaining", "ratelimit-remaining", "x-rate-limit-remaining"];

/// Headers that say when one allowance is renewed. The first is Discord's delay, which needs no
/// clock.
const RESETS: [&str; 4] =
    ["x-ratelimit-reset-after", "ratelimit-reset", "x-ratelimit-reset", "x-rate-limit-reset"];

/// The delays that a response names in its headers.
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
        let millis = |value| Some(Told::In(Duration::from_millis(number(value)?)));
        let in_millis = |name: &'static str| {
            self.response.values(name).find_map(|value| self.meant(name, millis(value)?))
        };
        let mut values = self.response.values("retry-after");
        values
            .find_map(|value| self.meant("retry-after", told(value)?))
            .or_else(|| MILLIS.into_iter().find_map(in_millis))
    }

    /// When a used-up allowance is renewed. An allowance that is not used up says nothing about this
    /// failure.
    pub(super) fn reset(&self) -> Option<Duration> {
        let field = || {
            let fields = self.response.values("ratelimit").flat_map(rate_limit_field);
            fields.filter_map(|told| self.meant("ratelimit", told)).max()
        };
        // Of several allowances, the last one counts: `x-ratelimit-remaining-tokens: 0`.
        let allowances = || {
            let used_up = self.response.headers.iter().filter(|header| is_nothing(header.1));
            let resets = used_up.filter_map(|header| reset_of(header.0));
            resets
                .flat_map(|name| self.response.values(&name).collect::<Vec<_>>())
                .filter_map(|value| self.meant("the reset of an allowance", told(value)?))
                .max()
        };
        let older = || {
            RESETS.into_iter().find_map(|name| {
                self.response.values(name).find_map(|value| self.meant(name, told(value)?))
            })
        };
        field()
            .or_else(allowances)
            .or_else(|| if is_used_up(self.response) == Some(false) { None } else { older() })
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

/// Whether an allowance is used up, if the response tells how much of it is left.
pub(super) fn is_used_up(response: &Response<'_>) -> Option<bool> {
    let mut remaining = REMAINING.iter().flat_map(|name| response.values(name)).peekable();
    remaining.peek()?;
    Some(remaining.any(is_nothing))
}

/// Whether nothing is left. The rest of an allowance may be negative, and may have parameters, as
/// in `0;w=21600`.
fn is_nothing(remaining: &[u8]) -> bool {
    let amount = remaining.split(|byte| *byte == b';').next().unwrap_or_default();
    str::from_utf8(amount)
        .is_ok_and(|amount| amount.trim().parse::<f64>().is_ok_and(|amount| amount <= 0.0))
}

/// The header with the reset of an allowance, by the header with its rest:
/// `x-ratelimit-remaining-tokens`, `anthropic-ratelimit-requests-remaining`.
fn reset_of(remaining: &str) -> Option<String> {
    let name = remaining.to_ascii_lowercase();
    (name.contains("limit") && name.contains("remaining"))
        .then(|| name.replace("remaining", "reset"))
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
    let duration = || SpanParser::new().parse_unsigned_duration(value).ok().map(Told::In);
    // `2023-11-14T22:14:20Z`
    let timestamp = || Some(Told::At(text.parse::<Timestamp>().ok()?.into()));
    // `88ms`, `6m0s`, `2m52.8s`, `1h2m3s`
    duration().or_else(timestamp).or_else(|| date(value).map(Told::At))
}

/// `15`, `64.57`: no sign, no unit.
fn decimal(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let whole = number(whole.as_bytes())?;
    let nanos = number(fraction.as_bytes()).filter(|_| fraction.len() <= 9)?;
    let scale = 10_u64.checked_pow(u32::try_from(9 - fraction.len()).ok()?)?;
    let fraction = Duration::from_nanos(nanos.checked_mul(scale)?);
    Some(Duration::from_secs(whole).saturating_add(fraction))
}

/// A date in one of the three forms of RFC 9110.
fn date(value: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(str::from_utf8(value).ok()?).ok()
}

/// Digits and nothing else: no sign, no point, no unit. A number that does not fit counts as the
/// largest one.
fn number(digits: &[u8]) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    all_digits.then(|| str::from_utf8(digits).ok()?.parse().ok().or(Some(u64::MAX)))?
}

/// `"per-user";r=0;t=30, "per-app";r=5;t=60`: each `t` of an allowance with nothing left; or the
/// draft's older form `limit=100, remaining=0, reset=30`.
fn rate_limit_field(field: &[u8]) -> Vec<Told> {
    let items = str::from_utf8(field).map(outside_quotes).unwrap_or_default();
    let parameter = |part: &str, name: &str| {
        let mut pairs = part.split(';').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|pair| pair.0.trim() == name)?;
        told(value.trim().as_bytes())
    };
    let is_nothing = |told: Option<Told>| matches!(told, Some(Told::In(rest)) if rest.is_zero());
    let used_up = items.iter().filter(|item| is_nothing(parameter(item, "r")));
    let renewed: Vec<Told> = used_up.filter_map(|item| parameter(item, "t")).collect();
    let find = |name| items.iter().find_map(|item| parameter(item, name));
    if renewed.is_empty() && is_nothing(find("remaining")) {
        return find("reset").into_iter().collect();
    }
    renewed
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

/// A delay in seconds in JSON: `35`, `64.57`.
pub(super) fn json_seconds(value: &serde_json::Value) -> Option<Duration> {
    Duration::try_from_secs_f64(value.as_f64()?).ok().filter(|delay| *delay <= LONGEST)
}

#[cfg(test)]
mod tests;
