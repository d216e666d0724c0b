//! Reads the delay that a response names: `Retry-After`, `RateLimit` and its older relatives, and
//! durations in JSON.
//!
//! A malformed value is ignored, never an error. So is an impossible time; its header is remembered
//! for the reason of the failure. A time that has just passed is zero.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::Response;
use time::{Told, date, decimal, number, told, unquoted};

mod allowance;
pub(super) mod time;

pub(crate) use allowance::{Allowance, allowances};

/// `Retry-After`, and the headers of AWS, `OpenAI` and Azure that mean the same. A header whose name has
/// that of the first comes after them: `Beta-Retry-After`, `Retry-After-short`.
const DELAYS: [&str; 4] =
    ["retry-after", "x-amz-retry-after", "retry-after-ms", "x-ms-retry-after-ms"];

/// Headers with a number of milliseconds. The last one is `BigCommerce`'s.
const MILLIS: [&str; 4] =
    ["x-amz-retry-after", "retry-after-ms", "x-ms-retry-after-ms", "x-rate-limit-time-reset-ms"];

/// Headers with the rest of the allowance of [`RESETS`].
const REMAINING: [&str; 3] =
    ["x-ratelimit-remaining", "ratelimit-remaining", "x-rate-limit-remaining"];

/// Headers with the time at which an allowance is renewed. The first is Discord's delay, which
/// needs no clock; the last ones are Anthropic's and Walmart's.
const RESETS: &str = "\
    x-ratelimit-reset-after ratelimit-reset x-ratelimit-reset x-rate-limit-reset \
    x-rate-limit-time-reset-ms anthropic-ratelimit-unified-reset x-next-replenishment-time \
    x-next-replenish-time";
/// Some name it in milliseconds (`MuleSoft`, older versions of Fastify's plugin), most in seconds. A
/// longer number is read as milliseconds: an attempt too early costs one call, and after it the class's
/// own delays count; a wait of hours costs the message's age.
const PLAIN_RESET: &str = "x-ratelimit-reset";
const HOUR: Duration = Duration::from_hours(1);
/// The end of the name of such a header of any other service: `X-Contentful-RateLimit-Reset`.
const RESET: &str = "ratelimit-reset";
/// The name of any other source of a time, for the reason of a failure.
const ALLOWANCE: &str = "the reset of an allowance";
const BODY: &str = "the delay in the body";

/// The words in the name of a header with the rest of an allowance, one of the first and the last,
/// as in `x-ratelimit-remaining-tokens`, `anthropic-ratelimit-requests-remaining` and
/// `x-toggl-quota-remaining`; and the words that its reset has instead.
const ALLOWANCES: [&str; 2] = ["limit", "quota"];
const REST: &str = "remaining";
const RENEWED: [&str; 2] = ["reset", "resets-in"];
/// A word in the name of a header with the rest of an allowance that lasts for a day, or longer.
const OF_DAY: [&str; 8] = ["day", "daily", "today", "24hour", "week", "weekly", "month", "monthly"];

/// The words before a time in the message of a limit, and its most words. After those that end so, it is
/// a time of day.
const BEFORE_TIME: &str = "\
    try after|retry-after|retry in|again after|again in|again at|reset after|reset in|resets in|resets at|\
    available after|available in|replenished in|request after|reset at|reset on|resets on|\
    limited until|banned until|wait until";
const OF_DAYTIME: [&str; 3] = [" at", " on", " until"];
/// Words with which services name a time of their own zone, unless the message names it.
const OF_ANY_ZONE: [&str; 2] = ["reset at", "reset on"];
const MAX_WORDS: usize = 7;
/// Words after a number of seconds. Any other word may be a unit that is not read: `5 Minuten`.
const AFTER_SECONDS: &str = "and|or|then|to|before|for|if|as|with|while|because|since";

pub(super) struct Named<'r> {
    response: &'r Response<'r>,
    /// The time from which dates are counted.
    reference: SystemTime,
    ignored: Cell<Option<&'static str>>,
    /// Whether a number of [`PLAIN_RESET`] was read as milliseconds.
    pub(super) is_guessed: Cell<bool>,
}

impl<'r> Named<'r> {
    /// Dates are counted by the server's own clock if known, so that ours may be wrong.
    pub(super) fn new(response: &'r Response<'r>, now: SystemTime) -> Self {
        let reference = response.values("date").find_map(date).unwrap_or(now);
        Self { response, reference, ignored: Cell::new(None), is_guessed: Cell::new(false) }
    }

    /// `Retry-After`, the first that is valid; else one of its relatives in milliseconds; else the
    /// longest of the others.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let other = |name: &str| {
            let unit = if name.ends_with("-ms") { DELAYS[2] } else { DELAYS[0] };
            name.contains(DELAYS[0]).then_some(unit)
        };
        DELAYS.into_iter().find_map(|name| self.first(name)).or_else(|| self.longest_of(other))
    }

    /// When an allowance is renewed of which nothing is left: `x-ratelimit-remaining-tokens: 0`. Of
    /// several, the last one counts.
    pub(super) fn reset_of_used_up(&self) -> Option<Duration> {
        let fields = self.response.values("ratelimit").flat_map(rate_limit_field);
        let field = fields.filter_map(|renewed| self.meant("ratelimit", renewed?)).max();
        let of_used_up = |name: &str| {
            let is_it = |renewed: &str| {
                let rest = name.replace(renewed, REST);
                rest != name && self.response.values(&rest).any(is_nothing)
            };
            (is_allowance(name) && RENEWED.into_iter().any(is_it)).then(|| known_reset(name))
        };
        field.or_else(|| self.longest_of(of_used_up))
    }

    /// When a used-up allowance is renewed. Another allowance did not cause this failure.
    pub(super) fn reset(&self) -> Option<Duration> {
        let known = || {
            let mut rests = REMAINING.iter().flat_map(|name| self.response.values(name)).peekable();
            let is_left = rests.peek().is_some() && !rests.any(is_nothing);
            RESETS.split(' ').filter(|_| !is_left).find_map(|name| self.first(name))
        };
        let other = |name: &str| {
            let has_rest = self.response.values(&name.replace(RENEWED[0], REST)).next().is_some();
            Some(known_reset(name))
                .filter(|known| *known == ALLOWANCE && name.ends_with(RESET) && !has_rest)
        };
        self.reset_of_used_up().or_else(known).or_else(|| self.longest_of(other))
    }

    /// The longest delay of the headers to which `name_of` gives a name.
    fn longest_of(&self, name_of: impl Fn(&str) -> Option<&'static str>) -> Option<Duration> {
        let headers = self.response.headers.iter();
        let named = headers.filter_map(|header| {
            self.longest(name_of(&header.0.to_ascii_lowercase())?, header.1.trim_ascii())
        });
        named.max()
    }

    /// The delay of a value in a body: seconds, or any time as in a header.
    pub(super) fn in_json(&self, value: &Value) -> Option<Duration> {
        let number = || value.is_number().then(|| value.to_string());
        let text = value.as_str().map(str::to_owned).or_else(number)?;
        self.longest(BODY, text.as_bytes())
    }

    /// As [`in_message`], by the server's own clock.
    pub(super) fn in_message(&self, text: &str) -> Option<Duration> {
        in_message(text, self.reference)
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
            if MILLIS.contains(&name) {
                return Some(Told::In(Duration::from_millis(number(value)?)));
            }
            match told(value)? {
                Told::In(delay) if delay > HOUR && self.may_be_millis(name, value) => {
                    self.is_guessed.set(true);
                    Some(Told::In(delay / 1_000))
                }
                told => Some(told),
            }
        };
        if let Some(told) = read(value) {
            return self.meant(name, told);
        }
        let items = str::from_utf8(value).ok()?.split(',');
        items.filter_map(|item| self.meant(name, read(item.as_bytes())?)).max()
    }

    /// Whether the unit is unknown: in a `Retry-After`, or the window of Envoy's limit.
    fn may_be_millis(&self, name: &'static str, value: &[u8]) -> bool {
        let has_window = |limit: &[u8]| limit.windows(3).any(|part| part == b";w=");
        name == PLAIN_RESET
            && value.iter().all(u8::is_ascii_digit)
            && self.response.values(DELAYS[0]).next().is_none()
            && !self.response.values("x-ratelimit-limit").any(has_window)
    }

    /// A header that was read and has an impossible time.
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

/// The time in the message of a limit: `Please try again in 7m37.056s.`
pub(super) fn in_message(text: &str, reference: SystemTime) -> Option<Duration> {
    let lower = text.to_ascii_lowercase();
    let mut times = BEFORE_TIME.split('|').filter_map(|words| {
        let rest = text[lower.find(words)? + words.len()..].strip_prefix(is_separator)?;
        // `5 minutes!"}`, `5 minute(s)</p>`, and escapes of JSON within JSON
        let rest = rest.trim_start().split(is_end).next()?.replace("(s)", "s");
        let rest = rest.replace("\\n", "\n").replace("\\r", "\n");
        let spaces = rest.match_indices(char::is_whitespace).map(|space| space.0);
        let ends = spaces.filter(|end| !rest[..*end].ends_with(char::is_whitespace));
        let parts = ends.chain([rest.len()]).take(MAX_WORDS);
        let parts = parts.map(|end| rest[..end].trim_end_matches(|c: char| !c.is_alphanumeric()));
        let times = parts
            .filter(|part| !part.ends_with(" and"))
            .filter_map(|part| Some((part, told(spaced(part).as_bytes())?)));
        let (part, time) = times.last()?;
        let after = rest[part.len()..].lines().next().unwrap_or_default();
        let is_daytime = OF_DAYTIME.iter().any(|end| words.ends_with(end));
        let is_elsewhere =
            time::without_zone(part).is_some() && (OF_ANY_ZONE.contains(&words) || is_zone(after));
        let is_known = match time {
            Told::In(_) => !is_daytime && !is_of_unit(part, after),
            Told::At(_) => !is_elsewhere,
        };
        is_known.then(|| time.delay(reference))?
    });
    times.next()
}

fn is_separator(c: char) -> bool {
    c == ':' || c.is_whitespace()
}

fn is_end(c: char) -> bool {
    "\"<>;[]{}!?|".contains(c)
}

/// A duration in the form that is read: `1 hour and\n5 minutes`.
fn spaced(part: &str) -> String {
    part.split_whitespace().filter(|word| *word != "and").collect::<Vec<_>>().join(" ")
}

/// Whether a part is a number, and the rest of its line begins with a word that may be its unit.
fn is_of_unit(part: &str, after: &str) -> bool {
    let word = after.starts_with(char::is_whitespace).then(|| after.split_whitespace().next());
    let word = word.flatten().unwrap_or_default().trim_end_matches(['.', ',', ')']);
    decimal(part).is_some()
        && !word.is_empty()
        && word.chars().all(char::is_alphabetic)
        && !AFTER_SECONDS.split('|').any(|known| known.eq_ignore_ascii_case(word))
}

/// Whether a text after a time begins with its zone: ` +08`, ` (UTC+8)`, ` CST`, ` Asia/Shanghai`.
fn is_zone(rest: &str) -> bool {
    let word = rest.trim_start().split([' ', '.', ',']).next().unwrap_or_default();
    let is_name = word.len() > 1 && word.bytes().all(|byte| !byte.is_ascii_lowercase());
    word.starts_with(['+', '-', '(']) || word.contains('/') || is_name
}

pub(super) fn is_used_up(response: &Response<'_>) -> bool {
    let mut fields = response.values("ratelimit").flat_map(rate_limit_field);
    used_up(response).any(|name| is_allowance(&name)) || fields.next().is_some()
}

/// Whether the allowance of a day, or of a longer time, is used up, by the name of its header.
pub(super) fn is_day_used_up(response: &Response<'_>) -> bool {
    used_up(response).any(|name| name.split('-').any(|word| OF_DAY.contains(&word)))
}

/// The headers with the rest of something of which nothing is left, in lower case.
fn used_up(response: &Response<'_>) -> impl Iterator<Item = String> {
    let used_up = response.headers.iter().filter(|header| is_nothing(header.1));
    used_up.map(|header| header.0.to_ascii_lowercase()).filter(|name| name.contains(REST))
}

fn is_allowance(name: &str) -> bool {
    ALLOWANCES.iter().any(|allowance| name.contains(allowance))
}

/// The name of a header with a reset, if it is one of [`RESETS`].
fn known_reset(name: &str) -> &'static str {
    RESETS.split(' ').find(|known| *known == name).unwrap_or(ALLOWANCE)
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

#[cfg(test)]
mod tests;
