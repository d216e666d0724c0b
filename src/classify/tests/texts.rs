//! Words of errors: what they say, and what they only seem to say.

use super::*;

/// By its words alone.
fn said(text: &str) -> (FailureClass, Evidence, String) {
    let failure = Failure::classified(&Wrapped(text.to_owned(), None));
    (failure.class(), failure.evidence(), failure.detail().to_owned())
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn words_say_what_happened() {
    for (text, class, reason) in [
        // Numbers that tempt.
        ("order 84010 timed out", Temporary, "timed out"),
        ("429 items processed, then connection reset", Temporary, "connection reset"),
        ("connection reset after 403 bytes", Temporary, "connection reset"),
        ("timeout of 4290ms exceeded", Temporary, "timed out"),
        ("job 429 timed out after 500 s", Temporary, "timed out"),
        ("customer 404: connection refused", Temporary, "connection refused"),
        ("tcp connect error: Connection refused (os error 111)", Temporary, "connection refused"),
        ("invoice 2023-0403 failed: broken pipe", Temporary, "connection closed"),
        ("read 401 of 500 records, then socket hang up", Temporary, "connection closed"),
        ("error 500 ms after the start: timed out", Temporary, "timed out"),
        ("code 400 times out of 500: connection reset by peer", Temporary, "connection reset"),
        ("status 4040 of the pump: timed out", Temporary, "timed out"),
        ("retry in 400ms: service unavailable", Temporary, "temporarily unavailable"),
        ("getaddrinfo ENOTFOUND api404.example.com", Temporary, "name not resolved"),
        ("dial tcp 10.4.0.3:429: connect: connection refused", Temporary, "connection refused"),
        ("port 403 on host 404: timed out", Temporary, "timed out"),
        ("certificate validation failed: expired", Temporary, "certificate not accepted"),
        ("SSL validation failed for endpoint", Temporary, "certificate not accepted"),
        ("Validation failed: upstream timed out", Temporary, "timed out"),
        ("validation failed: too many requests", RateLimit, "too many requests"),
        // lettre: a mail server's reply is no status.
        ("transient error (451): 4.3.0 Temporary lookup failure", Temporary, "SMTP 451"),
        ("permanent error (550): 5.1.1 User unknown", NonRetryable, "SMTP 550"),
        ("error 500 after 4.7.0 was installed: timed out", Temporary, "status 500"),
        // A limit of a minute, whatever its status.
        ("Error 403: Quota exceeded for limit 'Queries per minute'", RateLimit, "rate limit"),
        // What the data lacks.
        ("Validation error: `cents` must be positive", NonRetryable, "validation failed"),
        ("2 validation errors for Order", NonRetryable, "validation failed"),
        ("order A-7: validation failed", NonRetryable, "validation failed"),
        ("the order failed validation", NonRetryable, "validation failed"),
        // Addresses tell where, not what.
        (
            "error sending request for url (https://example.com/status/404): connection closed",
            Temporary,
            "connection closed",
        ),
        ("Get \"https://example.com/error/403\": dial tcp: i/o timeout", Temporary, "timed out"),
        (
            "https://example.com/rate-limit/quota-exceeded: connection refused",
            Temporary,
            "connection refused",
        ),
        ("POST https://example.com/forbidden returned status 503", Temporary, "status 503"),
        // Names that tempt.
        ("host not found (DNS)", Temporary, "name not resolved"),
        (
            "dns error: failed to lookup address information: Name or service not known",
            Temporary,
            "name not resolved",
        ),
        ("dial tcp: lookup api.example.com: no such host", Temporary, "name not resolved"),
        ("deadline exceeded while awaiting headers", Temporary, "timed out"),
        (
            "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
            Temporary,
            "timed out",
        ),
        ("operation timed out", Temporary, "timed out"),
        ("request or response body error: operation timed out", Temporary, "timed out"),
        ("connection closed before message completed", Temporary, "connection closed"),
        ("upstream temporarily unavailable", Temporary, "temporarily unavailable"),
        ("try again later", Temporary, "temporarily unavailable"),
        // Statuses, where words around them say so.
        (
            "HTTP status server error (503 Service Unavailable) for url (https://example.com/404)",
            Temporary,
            "status 503",
        ),
        (
            "HTTP status client error (404 Not Found) for url (https://example.com/503)",
            NonRetryable,
            "status 404",
        ),
        (
            "HTTP status client error (429 Too Many Requests) for url (https://x/)",
            RateLimit,
            "too many requests",
        ),
        ("Request failed with status code 400", NonRetryable, "status 400"),
        ("Request failed with status code 502", Temporary, "status 502"),
        ("HTTP/1.1 429", RateLimit, "status 429"),
        ("HTTP 2 503", Temporary, "status 503"),
        ("upstream answered 504 Gateway Timeout", Temporary, "status 504"),
        ("server said: 410 Gone", NonRetryable, "status 410"),
        ("unexpected response: 409 Conflict", NonRetryable, "status 409"),
        ("error code: 522", Temporary, "status 522"),
        ("status=403, request 429", NonRetryable, "status 403"),
        // Limits come first, since they are told along with the rest.
        ("403 Forbidden: rateLimitExceeded", RateLimit, "too many requests"),
        ("status 400: Rate exceeded", RateLimit, "too many requests"),
        ("ThrottlingException: Rate exceeded", RateLimit, "too many requests"),
        (
            "An error occurred (SlowDown) when calling the PutObject operation",
            RateLimit,
            "throttled: SlowDown",
        ),
        (
            "rpc error: code = ResourceExhausted desc = out of tokens",
            RateLimit,
            "too many requests",
        ),
        ("too many requests, slow down", RateLimit, "too many requests"),
        ("status 429: You exceeded your current quota", Quota, "quota exceeded"),
        ("Quota exceeded for quota metric 'Read requests'", Quota, "quota exceeded"),
        ("insufficient quota: request timed out", Quota, "quota exceeded"),
        // What will not pass.
        ("Unauthorized", NonRetryable, "unauthorized"),
        ("rpc error: code = Unauthenticated", NonRetryable, "unauthorized"),
        ("403: access denied", NonRetryable, "forbidden"),
        ("Bad Request: no such field", NonRetryable, "bad request"),
    ] {
        assert_eq!(said(text), (class, Evidence::Text, reason.to_owned()), "{text}");
    }
}

#[test]
fn numbers_and_words_out_of_their_place_say_nothing() {
    for text in [
        "retry in 400ms",
        "retry in 400 ms",
        "order 429 was not booked",
        "order 404 is missing",
        "429 of 500 items",
        "took 503 s",
        "error 403 ms ago",
        "http 400 bytes",
        "code 4290",
        "status 42",
        "status 600",
        "status 0403",
        "status 1403",
        "response 404.5",
        "code 4,040",
        "the quota is fine, nothing exceeded",
        "limit the rate",
        "timeouts are at their default",
        "unforbidden",
        "badly requested",
        "a throttle was found",
        "SlowDownloads",
        "slowdown",
        "ThrottlingExceptions",
        "https://example.com/status/404",
        "see https://example.com/too-many-requests?status=429",
        "column 400, line 429",
        "version 5.0.3",
        "id 9429-4040-4290",
        "error kind 7",
        "Code: 439. DB::Exception: x",
        "Code: 404. DB::Exception: x",
        "Command failed with error 391",
    ] {
        assert_eq!(said(text).1, Evidence::Unrecognised, "{text}");
        assert_eq!(said(text).0, Temporary, "{text}");
    }
}

/// Errors whose type says what they are, with any text inside.
fn typed_with(text: &str) -> Vec<(Box<dyn Error + Send + Sync>, FailureClass)> {
    use aws_smithy_runtime_api::client::result::ConnectorError;
    use aws_smithy_types::error::ErrorMetadata;

    let aws = |code: &str| ErrorMetadata::builder().code(code).message(text).build();
    vec![
        (io::Error::new(io::ErrorKind::ConnectionReset, text).into(), Temporary),
        (io::Error::new(io::ErrorKind::TimedOut, text).into(), Temporary),
        (io::Error::new(io::ErrorKind::QuotaExceeded, text).into(), Quota),
        (aws("ThrottlingException").into(), RateLimit),
        (aws("ServiceQuotaExceededException").into(), Quota),
        (aws("InternalFailure").into(), Temporary),
        (aws("AccessDeniedException").into(), NonRetryable),
        (ConnectorError::timeout(text.into()).into(), Temporary),
        (ConnectorError::io(text.into()).into(), Temporary),
    ]
}

/// Texts that would say something by themselves, and any others.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,80}",
        prop::sample::select(vec![
            "status 403",
            "status 429",
            "HTTP/1.1 503",
            "quota exceeded",
            "too many requests",
            "timed out",
            "403 Forbidden",
            "ThrottlingException",
            "bad request",
        ])
        .prop_map(str::to_owned),
    ]
}

proptest! {
    #[test]
    fn text_around_and_within_a_type_changes_nothing(outer in texts(), inner in texts()) {
        for (error, class) in typed_with(&inner) {
            let failure = Failure::classified(&Wrapped(outer.clone(), Some(error)));
            prop_assert_eq!((failure.class(), failure.evidence()), (class, Evidence::Typed));
        }
    }

    #[test]
    fn text_in_an_answer_changes_nothing(status in 300_u16..600, text in texts(), header in "[ -~]{0,40}") {
        // This status alone leaves it to the words whose money is lacking.
        prop_assume!(status != 402);
        // GitHub and others refuse so by words alone.
        prop_assume!(!matches!(status, 403 | 422) || text != "too many requests");
        let plain = answered(status, &[], "{}");
        let message = serde_json::json!({ "message": text, "title": text, "detail": text, "error_description": text,
            "error": { "message": text, "details": text } }).to_string();
        for body in [&message, &text] {
            let failure = answered(status, &[("X-Message", &header), ("Server", &text)], body);
            prop_assert_eq!((failure.class(), failure.delay()), (plain.class(), plain.delay()));
        }
    }
}
