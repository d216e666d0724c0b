//! The forms of a delay, and the headers that have one.

use proptest::prelude::*;

use super::time::LONGEST;
use super::*;

/// 1994-11-06T08:49:37Z
const THEN: u64 = 784_111_777;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn retry_after(response: &Response<'_>, now: SystemTime) -> Option<Duration> {
    Named::new(response, now).retry_after()
}

fn reset(response: &Response<'_>, now: SystemTime) -> Option<Duration> {
    Named::new(response, now).reset()
}

fn response<'a>(headers: &'a [(&'a str, &'a [u8])]) -> Response<'a> {
    Response { status: 429, headers, body: b"" }
}

#[test]
fn the_page_has_each_header() {
    for header in MILLIS.into_iter().chain(REMAINING).chain(RESETS.split(' ')) {
        assert!(crate::classify::tests::PAGE.contains(&format!("`{header}`")), "{header}");
    }
}

#[test]
fn retry_after_is_a_number_of_seconds_a_duration_or_a_time() {
    for (value, expected) in [
        ("0", Some(0)),
        ("120", Some(120)),
        ("  7 ", Some(7)),
        ("007", Some(7)),
        ("31536000", Some(31_536_000)),
        ("784111837", None),
        ("1.5", Some(1)),
        ("2.0", Some(2)),
        ("30s", Some(30)),
        ("2 minutes", Some(120)),
        ("1994-11-06T08:50:37Z", Some(60)),
        ("1994-11-06T09:50:37.000+01:00", Some(60)),
        ("1994-11-06 08:50:37Z", Some(60)),
        ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
        ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
        ("Sun Nov  6 08:50:37 1994", Some(60)),
        ("Sun, 06 Nov 1994 08:49:36 GMT", Some(0)),
        ("Mon, 06 Nov 1994 08:50:37 GMT", None),
        ("Sun, 31 Nov 1994 08:50:37 GMT", None),
        ("", None),
        ("-5", None),
        ("+5", None),
        ("1.", None),
        (".5", None),
        ("1e9", None),
        // Without a zone, and as JavaScript and WSO2 print it.
        ("1994-11-06T08:50:37", Some(60)),
        ("1994-11-06 08:50:37", Some(60)),
        ("1994-11-06 08:50:37 UTC", Some(60)),
        ("Sun Nov 06 1994 08:50:37 GMT+0000 (Coordinated Universal Time)", Some(60)),
        ("Sun Nov 06 1994 09:50:37 GMT+0100 (Central European Standard Time)", Some(60)),
        ("1994-Nov-06 08:50:37+0000 UTC", Some(60)),
        // As Go, Ruby and Java print it.
        ("1994-11-06 08:50:37 +0000 UTC", Some(60)),
        ("1994-11-06 08:50:37.123456 +0000 UTC m=+0.01", Some(60)),
        ("1994-11-06 16:50:37 +0800 CST", Some(60)),
        ("1994-11-06 16:50:37 +08:00", Some(60)),
        ("1994-11-06 05:50:37 -0300 -03", Some(60)),
        ("1994-11-06T01:50:37 -0700", Some(60)),
        ("Sun Nov 06 08:50:37 UTC 1994", Some(60)),
        ("1994-11-06 16:50:37 CST", None),
        ("NaN", None),
        // A proxy may merge several headers, or quote one.
        ("3, 4", Some(4)),
        ("30, 30", Some(30)),
        ("4,3", Some(4)),
        ("3, soon, -9", Some(3)),
        ("3, 31536001", Some(3)),
        ("soon, later", None),
        ("\"30\"", Some(30)),
        ("\"3\", \"4\"", Some(4)),
        ("\"30", None),
        // Other names of the zone.
        ("Sun, 06 Nov 1994 08:50:37 UTC", Some(60)),
        ("Sun, 06 Nov 1994 08:50:37 +0000", Some(60)),
        ("Sunday, 06-Nov-94 08:50:37 UTC", Some(60)),
        ("Sun, 06 Nov 1994 09:50:37 +0100", Some(60)),
        ("Sun, 06 Nov 1994 03:50:37 EST", Some(60)),
        // As Java prints it.
        ("Sun, 6 Nov 1994 08:50:37 GMT", Some(60)),
        ("Mon, 6 Nov 1994 08:50:37 GMT", None),
        ("Sun, 6 Nov 1994 08:50:37", None),
        ("PT90S", Some(90)),
        ("PT24H1S", Some(86_401)),
        ("P1D", Some(86_400)),
        ("1d2h", Some(93_600)),
        ("P1M", None),
        ("01:34:15", Some(5_655)),
        ("-PT90S", None),
        // As a `double` is printed.
        ("90.0999999046325684", Some(90)),
        ("1.99999999999999999999999999", Some(1)),
        ("1.9999999999999999999999999x", None),
        ("1.", None),
        ("٣", None),
    ] {
        let headers = [("Retry-After", value.as_bytes())];
        let delay = retry_after(&response(&headers), at(THEN));
        assert_eq!(delay.map(|delay| delay.as_secs()), expected, "{value}");
    }
}

/// The header, its value, and the delay in milliseconds. `None`: it is ignored and remembered.
#[test]
fn a_time_that_nobody_can_mean_is_no_time() {
    let day = 86_400_000;
    for (header, value, millis) in [
        // 2023-11-14T22:14:20Z in each unit
        ("x-ratelimit-reset", "1700000060", Some(60_000)),
        ("x-ratelimit-reset", "1700000060.5", Some(60_500)),
        ("x-ratelimit-reset", "1700000060500", Some(60_500)),
        ("x-ratelimit-reset", "1700000060500000", Some(60_500)),
        ("x-ratelimit-reset", "1700000060500000000", Some(60_500)),
        ("retry-after", "1700000060", Some(60_000)),
        ("retry-after", "1700000060500000", Some(60_500)),
        // Numbers of no unit.
        ("x-ratelimit-reset", "17000000600", None),
        ("x-ratelimit-reset", "170000006000", None),
        ("x-ratelimit-reset", "17000000600000", None),
        ("x-ratelimit-reset", "17000000600000000", None),
        ("x-ratelimit-reset", "99999999999999999999", None),
        ("retry-after", "99999999999999999999", None),
        // A year from now, and after it.
        ("retry-after", "31536000", Some(365 * day)),
        ("retry-after", "31536001", None),
        ("retry-after-ms", "31536000000", Some(365 * day)),
        ("retry-after-ms", "31536000001", None),
        ("x-ratelimit-reset", "1731536000", Some(365 * day)),
        ("x-ratelimit-reset", "1731536001", None),
        ("x-ratelimit-reset", "9999-12-30T00:00:00Z", None),
        ("x-ratelimit-reset", "9999999h", None),
        ("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT", None),
        ("ratelimit", r#""p";r=0;t=31536001"#, None),
        ("ratelimit", r#""p";r=0;t=1700000060"#, Some(60_000)),
        ("ratelimit", "limit=9, remaining=0, reset=1700000060000", Some(60_000)),
        // A day ago, and before it.
        ("x-ratelimit-reset", "1699913600", Some(0)),
        ("x-ratelimit-reset", "1699913599", None),
        ("retry-after", "Mon, 13 Nov 2023 22:13:20 GMT", Some(0)),
        ("retry-after", "Mon, 13 Nov 2023 22:13:19 GMT", None),
        ("retry-after", "1970-01-01T00:00:00Z", None),
        // A date where others have a number.
        ("ratelimit-reset", "Tue, 14 Nov 2023 22:14:20 GMT", Some(60_000)),
        ("x-rate-limit-reset", "Tue Nov 14 22:14:20 2023", Some(60_000)),
        // BigCommerce's.
        ("x-rate-limit-time-reset-ms", "15500", Some(15_500)),
        ("x-rate-limit-time-reset-ms", "31536000001", None),
        // Discord's.
        ("x-ratelimit-reset-after", "64.57", Some(64_570)),
    ] {
        let headers = [(header, value.as_bytes())];
        let response = response(&headers);
        let named = Named::new(&response, at(1_700_000_000));
        let delay = named.retry_after().or_else(|| named.reset());
        assert_eq!(delay, millis.map(Duration::from_millis), "{header}: {value}");
        let ignored = millis.is_none().then_some(header);
        assert_eq!(named.ignored(), ignored, "{header}: {value}");
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
    assert_eq!(retry_after(&response(&headers), at(THEN - 3_600)), Some(Duration::from_mins(61)));
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
        (&[("X-RateLimit-Remaining", "0, 5"), ("X-RateLimit-Reset", "30, 30")], Some(30)),
        (&[("X-RateLimit-Remaining", "7, 5"), ("X-RateLimit-Reset", "30, 30")], None),
        (&[("X-Toggl-Quota-Remaining", "0"), ("X-Toggl-Quota-Resets-In", "900")], Some(900)),
        (&[("X-Toggl-Quota-Remaining", "3"), ("X-Toggl-Quota-Resets-In", "900")], None),
        (&[("RateLimit", r#""a";r=0;t=-3"#)], None),
        (&[("RateLimit", "\"a\\\";r=0;t=5")], None),
        // Only in quotes does it mean that the next character stands for itself.
        (&[("RateLimit", r"a\;r=0;t=30")], Some(30)),
        (&[("RateLimit-Reset", "15")], Some(15)),
        (&[("X-RateLimit-Reset", "15"), ("X-RateLimit-Remaining", "0")], Some(15)),
        (&[("X-RateLimit-Reset", "15"), ("X-RateLimit-Remaining", "1")], None),
        (&[("X-RateLimit-Reset", epoch)], Some(30)),
        (&[("x-rate-limit-reset", millis)], Some(30)),
        (&[("X-RateLimit-Reset", "1699999999")], Some(0)),
        (&[("X-RateLimit-Reset", "15 s")], Some(15)),
        (&[("X-RateLimit-Reset", "2023-11-14T22:14Z")], Some(40)),
        (&[("X-RateLimit-Reset", "2023-11-14T23:13:50+01:00")], Some(30)),
        (&[("X-RateLimit-Reset", "2023-11-14T22:13:50")], Some(30)),
        // MuleSoft means milliseconds, but nobody up to an hour.
        (&[("X-RateLimit-Reset", "3600")], Some(3_600)),
        (&[("X-RateLimit-Reset", "42000"), ("X-RateLimit-Remaining", "0")], Some(42)),
        (&[("X-RateLimit-Reset", "3000000")], Some(3_000)),
        (&[("X-RateLimit-Reset", "86400"), ("X-RateLimit-Limit", "9, 9;w=86400")], Some(86_400)),
        (&[("X-RateLimit-Reset", "86400"), ("Retry-After", "86400")], Some(86_400)),
        (&[("RateLimit-Reset", "42661")], Some(42_661)),
        (&[("X-RateLimit-Reset", "12h")], Some(43_200)),
        // Any other name.
        (&[("X-Contentful-RateLimit-Reset", "7")], Some(7)),
        (&[("X-Acme-RateLimit-Reset", "7"), ("X-Acme-RateLimit-Remaining", "0")], Some(7)),
        (&[("X-Acme-RateLimit-Reset", "7"), ("X-Acme-RateLimit-Remaining", "3")], None),
        (&[("anthropic-ratelimit-unified-reset", "1700000077")], Some(77)),
        (&[("X-Next-Replenishment-Time", "1700000042000")], Some(42)),
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
        (["0", "0"], ["9999999999h", "1s"], Some(1_000)),
    ] {
        let headers: Vec<(&str, &[u8])> = LEFT
            .iter()
            .zip(left)
            .chain(RESET.iter().zip(reset))
            .map(|(name, value)| (*name, value.as_bytes()))
            .collect();
        let response = response(&headers);
        let delay = Named::new(&response, at(1_700_000_000)).reset();
        assert_eq!(delay, expected.map(Duration::from_millis), "{headers:?}");
    }
}

#[test]
fn a_header_with_the_name_of_retry_after_means_the_same() {
    for (headers, expected) in [
        (&[("Retry-After-short", "7")][..], Some(7_000)),
        (&[("Retry-After-short", "7"), ("Retry-After-long", "60")], Some(60_000)),
        (&[("Beta-Retry-After", "31")], Some(31_000)),
        (&[("X-Rate-Limit-Retry-After-Seconds", "5")], Some(5_000)),
        (&[("X-Acme-Retry-After-Ms", "1500")], Some(1_500)),
        (&[("Retry-After", "3"), ("Retry-After-long", "60")], Some(3_000)),
        (&[("Retry", "3")], None),
    ] {
        let bytes: Vec<(&str, &[u8])> =
            headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        let delay = retry_after(&response(&bytes), at(THEN));
        assert_eq!(delay, expected.map(Duration::from_millis), "{headers:?}");
    }
}

#[test]
fn a_message_names_a_time_after_the_words_for_it() {
    for (text, expected) in [
        // Groq, StackExchange, monday.com, Fastify, Google Ads, Telegram, Mailgun, Gmail, Azure
        ("Rate limit reached. Please try again in 7m37.056s. Need more?", Some(457_056)),
        ("too many requests, more requests available in 82216 seconds", Some(82_216_000)),
        ("budget remaining 1 out of 9 reset in 18 seconds", Some(18_000)),
        ("Rate limit exceeded, retry in 1 minute", Some(60_000)),
        ("Too many requests. Retry in 62343 seconds.", Some(62_343_000)),
        ("Too Many Requests: retry after 35", Some(35_000)),
        ("limit exceeded, retry after: 59m50s", Some(3_590_000)),
        ("limit exceeded, try again after Sun, 06 Nov 1994 08:50:37 UTC", Some(60_000)),
        ("User-rate limit exceeded.  Retry after 1994-11-06T08:50:37.000Z", Some(60_000)),
        ("Out of call volume quota. Quota will be replenished in 01:34:15.", Some(5_655_000)),
        ("Wait, then try again in a few minutes; or retry after 9s", Some(9_000)),
        // Go's forms of a time; without a zone, a service may mean its own.
        ("Limit resets at 1994-11-06 16:50:37 +0800 CST.", Some(60_000)),
        ("Limit resets at 1994-11-06 16:50:37.5 +08:00, then", Some(60_500)),
        ("Limit resets at 1994-11-06 01:50:37 -0700", Some(60_000)),
        ("It will reset at 1994-11-06 08:50:37 +0000 UTC", Some(60_000)),
        ("It will reset at 1994-11-06 08:50:37", None),
        ("Limit resets at 1994-11-06 08:50:37", Some(60_000)),
        ("Limit resets at 1994-11-06 08:50:37 CST", None),
        ("Limit resets at 1994-11-06 08:50:37 (UTC+8)", None),
        ("Limit resets at 1994-11-06 08:50:37 Asia/Shanghai", None),
        ("Limit resets at 1994-11-06 08:50:37 +8", None),
        ("Limit resets at 09:30:00", None),
        ("IP banned until 1994-11-06T08:50:37Z. Please wait", Some(60_000)),
        ("try again in a few minutes", None),
        ("try again later", None),
        ("retry internally 5", None),
        ("Retry after 1990-01-01T00:00:00Z", None),
        ("\u{212a} retry in 5s", Some(5_000)),
        // A unit that something touches: express-rate-limit, Feign, Azure for .NET, mailgun-java,
        // HTML, Django REST framework, JSON within JSON
        ("Too many requests from this IP, please try again in 15 minutes!", Some(900_000)),
        (r#"[{"message":"Rate limit. Try again in 5 minutes."}]"#, Some(300_000)),
        ("Rate limit. Try again in 5 minutes.\nStatus: 429 (Too Many Requests)", Some(300_000)),
        ("429: retry after 30000 ms\nRequestId: 1", Some(30_000)),
        (r#"retry in 60000 ms"}]"#, Some(60_000)),
        ("retry after 64125 ms; bucket 1", Some(64_125)),
        ("try again after Sun, 06 Nov 1994 08:50:37 UTC\"}\n]", Some(60_000)),
        ("<p>Try again in 15 minutes</p>", Some(900_000)),
        ("retry after 20</Message>", Some(20_000)),
        ("Try again in 5\n      minutes", Some(300_000)),
        ("Try again in 5\u{a0}minutes", Some(300_000)),
        (r"Try again in 5\u00a0minutes", None),
        ("Try again in 5&nbsp;minutes", None),
        ("Try again in <b>5</b> minutes", None),
        (r#"{\"message\":\"Try again in 5 minutes\"}"#, Some(300_000)),
        (r"retry after 30000 ms\nRequestId: 1", Some(30_000)),
        (r"retry after 20\n    at foo (x.js:1)", Some(20_000)),
        ("Expected available in 15 seconds.\tBye", Some(15_000)),
        ("Try again in 5 minute(s).", Some(300_000)),
        ("Try again in 5 Minutes [429]", Some(300_000)),
        ("Try again in 1 hour and 5 minutes", Some(3_900_000)),
        ("Try again in 1 minute, 30 seconds", Some(90_000)),
        ("retry in 500 Milliseconds|x", Some(500)),
        // A number whose unit is unknown.
        ("retry after 30000 foo", None),
        ("retry in 5 Minuten", None),
        ("retry in 5 minutos.", None),
        ("retry in 5 分钟", None),
        ("retry in 5分钟", None),
        ("retry in 30000 millis.", Some(30_000)),
        // Without a unit.
        ("retry after 20 and then", Some(20_000)),
        ("retry in 1 minute and try again", Some(60_000)),
        ("retry after 20, please", Some(20_000)),
        ("retry after 20 (attempt 3)", Some(20_000)),
        ("retry after 20 RequestId: 1", Some(20_000)),
        ("retry after 20\nRequest failed", Some(20_000)),
        ("retry after 20\r\nRequest failed", Some(20_000)),
        ("Limit resets at 784111837 UTC", None),
    ] {
        let empty = response(&[]);
        let delay = Named::new(&empty, at(THEN)).in_message(text);
        assert_eq!(delay, expected.map(Duration::from_millis), "{text}");
    }
}

#[test]
fn durations_of_protobuf_are_read_to_the_nanosecond() {
    let in_json = |text: &str| {
        let empty = response(&[]);
        Named::new(&empty, at(THEN)).in_json(&Value::from(text))
    };
    for (text, expected) in [
        ("30s", Some(Duration::from_secs(30))),
        ("1.5s", Some(Duration::from_millis(1_500))),
        ("0.000000001s", Some(Duration::from_nanos(1))),
        ("31536000s", Some(LONGEST)),
        ("31536001s", None),
        ("99999999999999999999s", None),
        ("30", Some(Duration::from_secs(30))),
        ("s", None),
        ("-1s", None),
        ("1.s", None),
        ("1.0000000001s", Some(Duration::from_secs(1))),
        ("1.5.5s", None),
    ] {
        assert_eq!(in_json(text), expected, "{text}");
    }
}

proptest! {
    #[test]
    fn no_bytes_in_any_header_cause_a_panic(
        value in proptest::collection::vec(any::<u8>(), 0..64),
        date in proptest::collection::vec(any::<u8>(), 0..64),
        now in 0_u64..=253_402_300_799,
    ) {
        const LEFT: &str = "x-ratelimit-remaining-requests";
        for name in ["Retry-After", "x-amz-retry-after", "RateLimit", "X-RateLimit-Reset", LEFT, "x-ratelimit-reset-requests"] {
            let headers: [(&str, &[u8]); 3] = [(name, &value), ("Date", &date), (LEFT, b"0")];
            let named = retry_after(&response(&headers), at(now)).or(reset(&response(&headers), at(now)));
            prop_assert!(named.is_none_or(|delay| delay <= LONGEST));
        }
        let text = String::from_utf8_lossy(&value);
        let empty = response(&[]);
        let _ = Named::new(&empty, at(now)).in_message(&format!("retry in {text}"));
    }

    #[test]
    fn what_looks_like_a_date_causes_no_panic(value in "(Sun|Sunday)[, ]{1,2}(06[- ]Nov[- ]|Nov  6 |99 Feb )[0-9]{2,4}[ :0-9]{1,12}( GMT)?") {
        let headers: [(&str, &[u8]); 1] = [("Retry-After", value.as_bytes())];
        let _ = retry_after(&response(&headers), SystemTime::UNIX_EPOCH);
    }

    #[test]
    fn every_number_of_seconds_within_a_year_is_taken_as_it_is(seconds in 0_u64..=31_536_000) {
        let value = seconds.to_string();
        let headers: [(&str, &[u8]); 1] = [("Retry-After", value.as_bytes())];
        prop_assert_eq!(retry_after(&response(&headers), at(THEN)), Some(Duration::from_secs(seconds)));
    }
}
