//! Reads the delay that a response names: `Retry-After`, `RateLimit` and its older relatives, and
//! durations in JSON.
//!
//! A malformed value is ignored, never an error; a huge one is cut to [`MAX_NAMED`]; a time that is
//! past is zero.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::fmt::friendly::SpanParser;

use super::response::Response;

/// The longest delay that is read: 136 years, so that it can be added to any time of day. The
/// policy's own limit is far lower.
const MAX_NAMED: Duration = Duration::from_secs(u32::MAX as u64);
/// From this number on, a number is no delay but a time of day, in seconds since the epoch.
const EPOCH_SECONDS: u64 = 1_000_000_000;
/// From this number on, the time of day is in milliseconds.
const EPOCH_MILLIS: u64 = EPOCH_SECONDS * 1_000;

/// Headers of AWS, Azure and `OpenAI` that mean `Retry-After` in milliseconds.
const MILLIS: [&str; 3] = ["x-amz-retry-after", "retry-after-ms", "x-ms-retry-after-ms"];

/// The headers of several allowances: the rest of each, and the time when it is renewed.
const ALLOWANCES: [(&str, &str); 6] = [
    // `OpenAI` and compatible services: `6m0s`; Azure: seconds
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    // Anthropic: RFC 3339
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
];

/// Headers with the number of requests that are still allowed.
const REMAINING: [&str; 3] =
    ["x-ratelimit-remaining", "ratelimit-remaining", "x-rate-limit-remaining"];

/// Headers that say when one allowance is renewed.
const RESETS: [&str; 3] = ["ratelimit-reset", "x-ratelimit-reset", "x-rate-limit-reset"];

/// `Retry-After`, the first that is valid; else one of its relatives in milliseconds.
pub(super) fn retry_after(response: &Response<'_>, now: SystemTime) -> Option<Duration> {
    let reference = reference(response, now);
    let millis = |value| Some(Duration::from_millis(number(value)?).min(MAX_NAMED));
    response
        .values("retry-after")
        .find_map(|value| parse(value, reference))
        .or_else(|| MILLIS.iter().flat_map(|name| response.values(name)).find_map(millis))
}

/// When a used-up allowance is renewed. An allowance that is not used up says nothing about this
/// failure.
pub(super) fn reset(response: &Response<'_>, now: SystemTime) -> Option<Duration> {
    let reference = reference(response, now);
    let field = || response.values("ratelimit").filter_map(rate_limit_field).max();
    let allowances = || {
        let used_up =
            ALLOWANCES.iter().filter(|(remaining, _)| response.values(remaining).any(is_nothing));
        used_up
            .flat_map(|(_, reset)| response.values(reset))
            .filter_map(|value| moment(value, reference))
            .max()
    };
    let older = || {
        RESETS
            .iter()
            .flat_map(|name| response.values(name))
            .find_map(|value| moment(value, reference))
    };
    field()
        .or_else(allowances)
        .or_else(|| if is_used_up(response) == Some(false) { None } else { older() })
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

/// The time from which dates are counted: by the server's own clock if known, so that ours may be
/// wrong.
fn reference(response: &Response<'_>, now: SystemTime) -> SystemTime {
    response.values("date").find_map(date).unwrap_or(now)
}

/// Whole seconds, or a date in one of the three forms of RFC 9110.
fn parse(value: &[u8], reference: SystemTime) -> Option<Duration> {
    match number(value) {
        Some(seconds) => Some(Duration::from_secs(seconds).min(MAX_NAMED)),
        None => Some(until(date(value)?, reference)),
    }
}

fn date(value: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(str::from_utf8(value).ok()?).ok()
}

fn until(date: SystemTime, reference: SystemTime) -> Duration {
    date.duration_since(reference).unwrap_or_default().min(MAX_NAMED)
}

/// Some providers name seconds from now, some a duration with its units, some a time of day.
fn moment(value: &[u8], reference: SystemTime) -> Option<Duration> {
    let since_epoch = match number(value) {
        None => return duration(value).or_else(|| Some(until(timestamp(value)?, reference))),
        Some(seconds @ ..EPOCH_SECONDS) => return Some(Duration::from_secs(seconds)),
        Some(seconds @ EPOCH_SECONDS..EPOCH_MILLIS) => Duration::from_secs(seconds),
        Some(millis @ EPOCH_MILLIS..) => Duration::from_millis(millis),
    };
    let date = SystemTime::UNIX_EPOCH.checked_add(since_epoch)?;
    Some(until(date, reference))
}

/// `88ms`, `6m0s`, `2m52.8s`, `1h2m3s`
fn duration(value: &[u8]) -> Option<Duration> {
    Some(SpanParser::new().parse_unsigned_duration(value).ok()?.min(MAX_NAMED))
}

/// `2023-11-14T22:14:20Z`
fn timestamp(value: &[u8]) -> Option<SystemTime> {
    Some(str::from_utf8(value).ok()?.parse::<Timestamp>().ok()?.into())
}

/// Digits and nothing else: no sign, no point, no unit. A number that does not fit counts as the
/// largest one.
fn number(digits: &[u8]) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    all_digits.then(|| str::from_utf8(digits).ok()?.parse().ok().or(Some(u64::MAX)))?
}

/// `"per-user";r=0;t=30, "per-app";r=5;t=60`: the longest `t` of an allowance with nothing left;
/// and the draft's older form `limit=100, remaining=0, reset=30`.
fn rate_limit_field(field: &[u8]) -> Option<Duration> {
    let field = str::from_utf8(field).ok()?;
    let parameter = |part: &str, name: &str| {
        let (_, value) = part
            .split(';')
            .filter_map(|pair| pair.split_once('='))
            .find(|pair| pair.0.trim() == name)?;
        number(value.trim().as_bytes())
    };
    let items = outside_quotes(field);
    let used_up = |item: &&String| parameter(item, "r") == Some(0);
    let renewed = items.iter().filter(used_up).filter_map(|item| parameter(item, "t")).max();
    let older = || {
        let find = |name| items.iter().find_map(|item| parameter(item, name));
        (find("remaining") == Some(0)).then(|| find("reset"))?
    };
    let seconds = renewed.or_else(older)?;
    Some(Duration::from_secs(seconds).min(MAX_NAMED))
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
    let seconds = text.strip_suffix('s')?;
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let whole = number(whole.as_bytes())?;
    let nanos = number(fraction.as_bytes()).filter(|_| fraction.len() <= 9)?;
    let scale = 10_u64.checked_pow(u32::try_from(9 - fraction.len()).ok()?)?;
    let fraction = Duration::from_nanos(nanos.checked_mul(scale)?);
    Some(Duration::from_secs(whole).saturating_add(fraction).min(MAX_NAMED))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 1994-11-06T08:49:37Z
    const THEN: u64 = 784_111_777;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn response<'a>(headers: &'a [(&'a str, &'a [u8])]) -> Response<'a> {
        Response { status: 429, headers, body: b"" }
    }

    #[test]
    fn the_page_has_each_header() {
        let resets = ALLOWANCES.iter().map(|(_, reset)| reset);
        for header in MILLIS.iter().chain(&REMAINING).chain(&RESETS).chain(resets) {
            assert!(super::super::tests::PAGE.contains(&format!("`{header}`")), "{header}");
        }
    }

    #[test]
    fn retry_after_is_whole_seconds_or_one_of_three_dates() {
        for (value, expected) in [
            ("0", Some(0)),
            ("120", Some(120)),
            ("  7 ", Some(7)),
            ("007", Some(7)),
            ("1000000000", Some(1_000_000_000)),
            ("99999999999999999999", Some(u64::from(u32::MAX))),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
            ("Sun Nov  6 08:50:37 1994", Some(60)),
            ("Sun, 06 Nov 1994 08:49:36 GMT", Some(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(u64::from(u32::MAX))),
            ("Mon, 06 Nov 1994 08:50:37 GMT", None),
            ("Sun, 31 Nov 1994 08:50:37 GMT", None),
            ("", None),
            ("-5", None),
            ("+5", None),
            ("1.5", None),
            ("1e9", None),
            ("30s", None),
            ("NaN", None),
            ("3, 4", None),
            ("٣", None),
        ] {
            let headers = [("Retry-After", value.as_bytes())];
            let delay = retry_after(&response(&headers), at(THEN));
            assert_eq!(delay, expected.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn the_first_valid_of_several_counts() {
        let headers: [(&str, &[u8]); 5] = [
            ("Retry-After", b""),
            ("retry-after", b"soon"),
            ("RETRY-AFTER", b"\xff"),
            ("Retry-After", b"9"),
            ("Retry-After", b"3"),
        ];
        assert_eq!(retry_after(&response(&headers), at(THEN)), Some(Duration::from_secs(9)));
        let headers: [(&str, &[u8]); 2] = [("x-amz-retry-after", b"1500"), ("Retry-After", b"-1")];
        assert_eq!(retry_after(&response(&headers), at(THEN)), Some(Duration::from_millis(1_500)));
    }

    #[test]
    fn a_clock_that_is_an_hour_off_changes_nothing_when_the_server_shows_its_own() {
        let headers: [(&str, &[u8]); 2] = [
            ("Date", b"Sun, 06 Nov 1994 08:49:37 GMT"),
            ("Retry-After", b"Sun, 06 Nov 1994 08:50:37 GMT"),
        ];
        for now in [THEN - 3_600, THEN, THEN + 3_600] {
            assert_eq!(retry_after(&response(&headers), at(now)), Some(Duration::from_mins(1)));
        }
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            for (value, expected) in [
                ("Sunday, 06-Nov-94 08:50:37 GMT", 60),
                ("Sun Nov  6 08:50:37 1994", 60),
                ("Sun, 06 Nov 1994 07:50:37 GMT", 0),
                ("60", 60),
            ] {
                let headers = [("DATE", date.as_bytes()), ("RETRY-AFTER", value.as_bytes())];
                for now in [THEN - 3_600, THEN + 3_600] {
                    let delay = retry_after(&response(&headers), at(now));
                    assert_eq!(delay, Some(Duration::from_secs(expected)), "{headers:?}");
                }
            }
        }
        let headers: [(&str, &[u8]); 2] = [("Date", b"yesterday"), headers[1]];
        assert_eq!(
            retry_after(&response(&headers), at(THEN - 3_600)),
            Some(Duration::from_mins(61))
        );
    }

    #[test]
    fn an_allowance_that_is_used_up_names_its_reset() {
        let epoch = "1700000030";
        let millis = "1700000030000";
        for (headers, expected) in [
            (&[("RateLimit", r#""p";r=0;t=30"#)][..], Some(30)),
            (&[("RateLimit", r#""p;r=0;t=9,";r=5;t=30"#)], None),
            (&[("RateLimit", r#""a";r=0;t=30, "b";r=0;t=60, "c";r=9;t=90"#)], Some(60)),
            (&[("RateLimit", r#""a";r=0;t=30"#), ("RateLimit", r#""b";r=0;t=40"#)], Some(40)),
            (&[("RateLimit", "limit=100, remaining=0, reset=50")], Some(50)),
            (&[("RateLimit", "limit=100, remaining=1, reset=50")], None),
            (&[("RateLimit", r#""a";r=0;t=-3"#)], None),
            (&[("RateLimit", "\"a\\\";r=0;t=5")], None),
            // Only in quotes does it mean that the next character stands for itself.
            (&[("RateLimit", r"a\;r=0;t=30")], Some(30)),
            (&[("RateLimit-Reset", "15")], Some(15)),
            (&[("X-RateLimit-Reset", "15"), ("X-RateLimit-Remaining", "0")], Some(15)),
            (&[("X-RateLimit-Reset", "15"), ("X-RateLimit-Remaining", "1")], None),
            (&[("X-RateLimit-Reset", epoch)], Some(30)),
            (&[("x-rate-limit-reset", millis)], Some(30)),
            (&[("X-RateLimit-Reset", "1600000000")], Some(0)),
            (&[("X-RateLimit-Reset", "999999999")], Some(999_999_999)),
            (&[("X-RateLimit-Reset", "99999999999999999999")], Some(u64::from(u32::MAX))),
            (&[("X-RateLimit-Reset", "15.5")], None),
            (&[("X-RateLimit-Reset", "2023-11-14T22:14Z")], Some(40)),
            (&[("X-RateLimit-Reset", "2023-11-14T23:13:50+01:00")], Some(30)),
            (&[("X-RateLimit-Reset", "2023-11-14T22:13:50")], None),
            (&[("X-RateLimit-Reset", "9999-12-30T00:00:00Z")], Some(u64::from(u32::MAX))),
            (&[("X-RateLimit-Reset", "")], None),
            (&[("X-RATELIMIT-RESET", "15"), ("X-RATELIMIT-REMAINING", "0;w=60")], Some(15)),
            (&[("X-RateLimit-Reset", "15"), ("X-RateLimit-Remaining", "0.0")], Some(15)),
            (&[("X-RateLimit-Reset", "15"), ("X-RateLimit-Remaining", "7;w=0")], None),
            (&[("X-RateLimit-Reset", "15"), ("X-RateLimit-Remaining", "NaN")], None),
            (&[("X-RateLimit-Reset", ""), ("X-RateLimit-Reset", "15")], Some(15)),
            (&[], None),
        ] {
            let bytes: Vec<(&str, &[u8])> =
                headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
            let delay = reset(&response(&bytes), at(1_700_000_000));
            assert_eq!(delay, expected.map(Duration::from_secs), "{headers:?}");
        }
    }

    #[test]
    fn of_several_allowances_those_that_are_used_up_name_the_longest_wait() {
        const LEFT: [&str; 2] = ["x-ratelimit-remaining-requests", "X-RateLimit-Remaining-Tokens"];
        const RESET: [&str; 2] = ["x-ratelimit-reset-requests", "X-RateLimit-Reset-Tokens"];
        for (left, reset, expected) in [
            (["0", "9"], ["1s", "6m0s"], Some(1_000)),
            (["9", "0"], ["1s", "6m0s"], Some(360_000)),
            (["0", "0"], ["1s", "6m0s"], Some(360_000)),
            (["0", "0"], ["1h2m3s", "88ms"], Some(3_723_000)),
            (["9", "0"], ["", "88ms"], Some(88)),
            (["0", "9"], ["2m52.8s", "547ms"], Some(172_800)),
            (["9", "-27689"], ["1s", "64"], Some(64_000)),
            (["9", "9"], ["1s", "6m0s"], None),
            (["", "soon"], ["1s", "6m0s"], None),
            (["0", "0"], ["", "soon"], None),
            (["0", "0"], ["-1s", "1s ago"], None),
            (["0", "0"], ["5", "1.5"], Some(5_000)),
            (["0", "9"], ["0s", "6m0s"], Some(0)),
            (["0", "9"], ["9999999999h", "1s"], Some(u64::from(u32::MAX) * 1_000)),
        ] {
            let headers: Vec<(&str, &[u8])> = LEFT
                .iter()
                .zip(left)
                .chain(RESET.iter().zip(reset))
                .map(|(name, value)| (*name, value.as_bytes()))
                .collect();
            let delay = super::reset(&response(&headers), at(1_700_000_000));
            assert_eq!(delay, expected.map(Duration::from_millis), "{headers:?}");
        }
    }

    #[test]
    fn durations_of_protobuf_are_read_to_the_nanosecond() {
        for (text, expected) in [
            ("30s", Some(Duration::from_secs(30))),
            ("1.5s", Some(Duration::from_millis(1_500))),
            ("0.000000001s", Some(Duration::from_nanos(1))),
            ("99999999999999999999s", Some(MAX_NAMED)),
            ("30", None),
            ("s", None),
            ("-1s", None),
            ("1.s", None),
            ("1.0000000001s", None),
            ("1.5.5s", None),
        ] {
            assert_eq!(proto_duration(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_in_any_header_cause_a_panic(
            value in proptest::collection::vec(any::<u8>(), 0..64),
            date in proptest::collection::vec(any::<u8>(), 0..64),
            now in 0_u64..=253_402_300_799,
        ) {
            for name in ["Retry-After", "x-amz-retry-after", "RateLimit", "X-RateLimit-Reset", ALLOWANCES[0].0, ALLOWANCES[0].1] {
                let headers: [(&str, &[u8]); 3] = [(name, &value), ("Date", &date), (ALLOWANCES[0].0, b"0")];
                let named = retry_after(&response(&headers), at(now)).or(reset(&response(&headers), at(now)));
                prop_assert!(named.is_none_or(|delay| delay <= MAX_NAMED));
            }
            let _ = proto_duration(&String::from_utf8_lossy(&value));
        }

        #[test]
        fn what_looks_like_a_date_causes_no_panic(value in "(Sun|Sunday)[, ]{1,2}(06[- ]Nov[- ]|Nov  6 |99 Feb )[0-9]{2,4}[ :0-9]{1,12}( GMT)?") {
            let headers: [(&str, &[u8]); 1] = [("Retry-After", value.as_bytes())];
            let _ = retry_after(&response(&headers), SystemTime::UNIX_EPOCH);
        }

        #[test]
        fn every_number_of_seconds_is_taken_as_it_is(seconds in any::<u32>()) {
            let value = seconds.to_string();
            let headers: [(&str, &[u8]); 1] = [("Retry-After", value.as_bytes())];
            prop_assert_eq!(retry_after(&response(&headers), at(THEN)), Some(Duration::from_secs(u64::from(seconds))));
        }
    }
}
