//! What the standards of HTTP say, section by section.

use super::*;

#[test]
fn a_status_means_what_its_section_says() {
    let location = &[("Location", "https://example.com/new"), ("Retry-After", "120")];
    assert_told(&[
        ("RFC 9110 15.4.2, Moved Permanently", 301, location, "", NonRetryable, None),
        ("RFC 9110 15.4.4, See Other", 303, location, "", NonRetryable, None),
        ("RFC 9110 15.4.8, Temporary Redirect", 307, location, "", NonRetryable, None),
        ("RFC 9110 15.4.9, Permanent Redirect", 308, location, "", NonRetryable, None),
        ("RFC 9110 15.5.1, Bad Request", 400, &[], "", NonRetryable, None),
        (
            "RFC 9110 15.5.2, Unauthorized",
            401,
            &[("WWW-Authenticate", "Bearer")],
            "",
            NonRetryable,
            None,
        ),
        ("RFC 9110 15.5.4, Forbidden", 403, &[], "", NonRetryable, None),
        ("RFC 9110 15.5.5, Not Found", 404, &[], "<h1>Not Found</h1>", NonRetryable, None),
        (
            "RFC 9110 15.5.6, Method Not Allowed",
            405,
            &[("Allow", "GET, HEAD")],
            "",
            NonRetryable,
            None,
        ),
        ("RFC 9110 15.5.8, Proxy Authentication Required", 407, &[], "", NonRetryable, None),
        ("RFC 9110 15.5.9, Request Timeout", 408, &[("Connection", "close")], "", Temporary, None),
        ("RFC 9110 15.5.10, Conflict", 409, &[], "", NonRetryable, None),
        ("RFC 9110 15.5.11, Gone", 410, &[], "", NonRetryable, None),
        (
            "RFC 9110 15.5.13, Precondition Failed",
            412,
            &[("ETag", "\"7\"")],
            "",
            NonRetryable,
            None,
        ),
        (
            "RFC 9110 15.5.14, Content Too Large",
            413,
            &[("Connection", "close")],
            "",
            NonRetryable,
            None,
        ),
        (
            "RFC 9110 15.5.14, of a temporary condition",
            413,
            &[("Retry-After", "30")],
            "",
            Temporary,
            Some(30_000),
        ),
        (
            "RFC 9110 15.5.16, Unsupported Media Type",
            415,
            &[("Accept", "text/csv")],
            "",
            NonRetryable,
            None,
        ),
        ("RFC 9110 15.5.21, Unprocessable Content", 422, &[], "", NonRetryable, None),
        (
            "RFC 9110 15.5.22, Upgrade Required",
            426,
            &[("Upgrade", "HTTP/3.0")],
            "",
            NonRetryable,
            None,
        ),
        ("RFC 9110 15.6.1, Internal Server Error", 500, &[], "", Temporary, None),
        ("RFC 9110 15.6.2, Not Implemented", 501, &[], "", NonRetryable, None),
        ("RFC 9110 15.6.3, Bad Gateway", 502, &[("Via", "1.1 proxy")], "", Temporary, None),
        ("RFC 9110 15.6.4, Service Unavailable", 503, &[], "", Temporary, None),
        ("RFC 9110 15.6.5, Gateway Timeout", 504, &[], "", Temporary, None),
        ("RFC 9110 15.6.6, HTTP Version Not Supported", 505, &[], "", NonRetryable, None),
        ("RFC 4918 11.3, Locked", 423, &[], "", Temporary, None),
        ("RFC 4918 11.4, Failed Dependency", 424, &[], "", Temporary, None),
        ("RFC 4918 11.5, Insufficient Storage", 507, &[], "", Quota, None),
        ("RFC 6585 3, Precondition Required", 428, &[], "", NonRetryable, None),
        ("RFC 6585 4, Too Many Requests", 429, &[], "<h1>Too Many Requests</h1>", RateLimit, None),
        (
            "RFC 6585 4, its example",
            429,
            &[("Retry-After", "3600")],
            "<h1>Too Many</h1>",
            RateLimit,
            Some(3_600_000),
        ),
        ("RFC 6585 5, Request Header Fields Too Large", 431, &[], "", NonRetryable, None),
        ("RFC 6585 6, Network Authentication Required", 511, &[], "", Temporary, None),
        ("RFC 7725 3, Unavailable For Legal Reasons", 451, &[], "", NonRetryable, None),
        ("RFC 8470 5.2, Too Early", 425, &[], "", Temporary, None),
    ]);
}

#[test]
fn retry_after_is_read_in_all_its_forms() {
    const PAGE: &str = "RFC 9110 10.2.3, Retry-After";
    const DATES: &str = "RFC 9110 5.6.7, Date/Time Formats";
    let by_its_clock = &[
        ("Date", "Fri, 31 Dec 1999 23:58:59 GMT"),
        ("Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT"),
    ];
    assert_told(&[
        (PAGE, 503, &[("Retry-After", "120")], "", Temporary, Some(120_000)),
        (PAGE, 503, &[("Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT")], "", Temporary, None),
        (PAGE, 503, by_its_clock, "", Temporary, Some(60_000)),
        (PAGE, 503, &[("Retry-After", "-1")], "", Temporary, None),
        (PAGE, 503, &[("Retry-After", "1.5")], "", Temporary, Some(1_500)),
        (PAGE, 503, &[("Retry-After", "2 minutes")], "", Temporary, Some(120_000)),
        (PAGE, 429, &[("Retry-After", "0")], "", RateLimit, None),
        (
            DATES,
            503,
            &[("Retry-After", "Tue, 14 Nov 2023 22:14:20 GMT")],
            "",
            Temporary,
            Some(60_000),
        ),
        (
            DATES,
            503,
            &[("Retry-After", "Tuesday, 14-Nov-23 22:14:20 GMT")],
            "",
            Temporary,
            Some(60_000),
        ),
        (DATES, 503, &[("Retry-After", "Tue Nov 14 22:14:20 2023")], "", Temporary, Some(60_000)),
        (
            "RFC 3339, where many expect it",
            503,
            &[("Retry-After", "2023-11-14T22:14:20Z")],
            "",
            Temporary,
            Some(60_000),
        ),
        (
            "RFC 3339, with more digits than a clock has",
            503,
            &[("Retry-After", "2023-11-14T22:14:20.0000000000Z")],
            "",
            Temporary,
            Some(60_000),
        ),
        (
            "RFC 3339, with an offset that it excludes",
            503,
            &[("Retry-After", "2023-11-14T22:14:20+25:00")],
            "",
            Temporary,
            None,
        ),
    ]);
}

#[test]
fn an_answer_that_is_printed_shows_its_status_and_nothing_else() {
    let answer = Response { status: 429, headers: &[("set-cookie", b"canary")], body: b"canary" };
    assert_eq!(format!("{answer:?}"), "Response { status: 429, .. }");
}

#[test]
fn a_conflict_is_final_unless_the_answer_says_that_it_passes() {
    const DRAFT: &str = "draft-ietf-httpapi-idempotency-key-header 2.7, Error Scenarios";
    const OUTSTANDING: &str = r#"{"type":"https://developer.example.com/idempotency",
        "title":"A request is outstanding for this Idempotency-Key"}"#;
    const REUSED: &str = r#"{"type":"https://developer.example.com/idempotency","title":"Idempotency-Key is already used"}"#;
    assert_told(&[
        // Nothing but its title, which anyone may reword, tells it from an object that exists
        // already.
        (DRAFT, 409, &[], OUTSTANDING, NonRetryable, None),
        (DRAFT, 409, &[("Retry-After", "2")], OUTSTANDING, Temporary, Some(2_000)),
        (DRAFT, 409, &[("Retry-After", "0")], OUTSTANDING, Temporary, None),
        (DRAFT, 409, &[("Retry-After", "soon")], OUTSTANDING, NonRetryable, None),
        (DRAFT, 422, &[("Retry-After", "2")], REUSED, NonRetryable, None),
        (DRAFT, 400, &[], r#"{"title":"Idempotency-Key is missing"}"#, NonRetryable, None),
        (
            "RFC 9110 15.5.10, Conflict",
            409,
            &[("ETag", "\"7\"")],
            r#"{"error":"exists"}"#,
            NonRetryable,
            None,
        ),
    ]);
}

#[test]
fn the_rate_limit_fields_are_those_of_the_draft_and_of_its_older_forms() {
    const DRAFT: &str = "draft-ietf-httpapi-ratelimit-headers, RateLimit";
    const FIRST: &str = "draft-ietf-httpapi-ratelimit-headers-03, RateLimit-Reset";
    const COMBINED: &str = "draft-ietf-httpapi-ratelimit-headers-07, RateLimit";
    let used_up = ("RateLimit", r#""default";r=0;t=30"#);
    let first = |left| {
        [("RateLimit-Limit", "100"), ("RateLimit-Remaining", left), ("RateLimit-Reset", "50")]
    };
    assert_told(&[
        (DRAFT, 429, &[used_up], "", RateLimit, Some(30_000)),
        (
            DRAFT,
            429,
            &[("RateLimit-Policy", r#""default";q=100;w=60"#), used_up],
            "",
            RateLimit,
            Some(30_000),
        ),
        (DRAFT, 429, &[used_up, ("Retry-After", "20")], "", RateLimit, Some(20_000)),
        (DRAFT, 429, &[("RateLimit", r#""default";r=5;t=30"#)], "", RateLimit, None),
        (
            DRAFT,
            429,
            &[("RateLimit", r#""hour";r=0;t=900, "day";r=7;t=80000"#)],
            "",
            RateLimit,
            Some(900_000),
        ),
        (DRAFT, 429, &[("RateLimit", "r=zero;t=30")], "", RateLimit, None),
        (DRAFT, 503, &[used_up], "", Temporary, None),
        (FIRST, 429, &first("0"), "", RateLimit, Some(50_000)),
        (FIRST, 429, &first("7"), "", RateLimit, None),
        (FIRST, 403, &first("0"), "", RateLimit, Some(50_000)),
        (FIRST, 404, &first("0"), "", NonRetryable, None),
        (
            COMBINED,
            429,
            &[("RateLimit", "limit=100, remaining=0, reset=50")],
            "",
            RateLimit,
            Some(50_000),
        ),
        (COMBINED, 429, &[("RateLimit", "limit=100, remaining=9, reset=50")], "", RateLimit, None),
    ]);
}

#[test]
fn a_problem_type_beats_the_status() {
    const DRAFT: &str = "draft-ietf-httpapi-ratelimit-headers, Problem Types";
    const PLAIN: &str = "RFC 9457 4.2.1, about:blank";
    const OWN: &str = "RFC 9457 3, The Members of a Problem Details Object";
    const QUOTA: &str = r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title":"Request cannot be satisfied as assigned quota has been exceeded","violated-policies":["daily"]}"#;
    const CAPACITY: &str =
        r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"}"#;
    const ABNORMAL: &str =
        r#"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected"}"#;
    const CREDIT: &str = r#"{"type":"https://example.com/probs/out-of-credit","title":"Quota exceeded","status":403}"#;
    let soon = &[("Retry-After", "7")];
    assert_told(&[
        (DRAFT, 429, &[], QUOTA, Quota, None),
        (DRAFT, 429, soon, QUOTA, Quota, Some(7_000)),
        (DRAFT, 403, &[], QUOTA, Quota, None),
        (DRAFT, 503, soon, CAPACITY, Temporary, Some(7_000)),
        (DRAFT, 429, &[], CAPACITY, Temporary, None),
        (DRAFT, 429, &[], ABNORMAL, RateLimit, None),
        (DRAFT, 403, &[], ABNORMAL, RateLimit, None),
        (
            PLAIN,
            404,
            &[],
            r#"{"type":"about:blank","title":"Not Found","status":404}"#,
            NonRetryable,
            None,
        ),
        (PLAIN, 429, &[], r#"{"type":"about:blank","title":"Too Many Requests"}"#, RateLimit, None),
        (OWN, 403, &[], CREDIT, NonRetryable, None),
    ]);
}
