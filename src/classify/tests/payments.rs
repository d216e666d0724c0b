//! Who moves money, and so has to be asked twice without paying twice.

use super::*;

#[test]
fn stripe_says_by_code_and_header_whether_a_retry_helps() {
    const CODES: &str = "Stripe, Error codes";
    const LIMITS: &str = "Stripe, Rate limits";
    const ERRORS: &str = "Stripe API Reference, Errors";
    const ADVANCED: &str = "Stripe, Advanced error handling";
    const LOCK: &str = r#"{"error":{"code":"lock_timeout","message":"This object cannot be accessed right now","type":"invalid_request_error"}}"#;
    const IN_USE: &str = r#"{"error":{"code":"idempotency_key_in_use","message":"There is currently another in-progress request",
        "type":"invalid_request_error"}}"#;
    const REUSED: &str = r#"{"error":{"message":"Keys for idempotent requests can only be used with the same parameters","type":"idempotency_error"}}"#;
    const RATE: &str = r#"{"error":{"code":"rate_limit","message":"Request rate limit exceeded","type":"invalid_request_error"}}"#;
    const DECLINED: &str = r#"{"error":{"code":"card_declined","decline_code":"try_again_later","type":"card_error"}}"#;
    const API: &str = r#"{"error":{"message":"An unknown error occurred","type":"api_error"}}"#;
    let yes = &[("stripe-should-retry", "true")];
    let no = &[("stripe-should-retry", "false")];
    let limited = &[("Stripe-Rate-Limited-Reason", "global-concurrency")];
    assert_told(&[
        (LIMITS, 429, &[], LOCK, Temporary, None),
        (LIMITS, 429, no, LOCK, Temporary, None),
        (LIMITS, 429, limited, RATE, RateLimit, None),
        (CODES, 400, &[], RATE, RateLimit, None),
        (CODES, 409, &[], IN_USE, Temporary, None),
        (CODES, 409, no, IN_USE, Temporary, None),
        (CODES, 400, &[], IN_USE, NonRetryable, None),
        (ERRORS, 400, &[], REUSED, NonRetryable, None),
        (ERRORS, 402, &[], DECLINED, NonRetryable, None),
        (ADVANCED, 402, yes, DECLINED, Temporary, None),
        (ADVANCED, 409, yes, "", Temporary, None),
        (ADVANCED, 409, no, "", NonRetryable, None),
        (ADVANCED, 500, &[], API, Temporary, None),
        (ADVANCED, 500, no, API, NonRetryable, None),
        (ADVANCED, 503, yes, API, Temporary, None),
        (ADVANCED, 424, &[], r#"{"error":{"type":"api_error"}}"#, NonRetryable, None),
    ]);
}

#[test]
fn the_others_say_it_by_status() {
    const SQUARE: &str = "Square API, Handling errors";
    const PAYPAL: &str = "PayPal REST APIs, API responses";
    const SHOPIFY: &str = "Shopify API, Response status and error codes";
    const GOCARDLESS: &str = "GoCardless API, Errors: invalid state errors";
    const RATE: &str = r#"{"errors":[{"category":"RATE_LIMIT_ERROR","code":"RATE_LIMITED"}]}"#;
    const REUSED: &str =
        r#"{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"IDEMPOTENCY_KEY_REUSED"}]}"#;
    const REACHED: &str = r#"{"name":"RATE_LIMIT_REACHED","message":"Too many requests. Blocked due to rate limiting."}"#;
    const CREATED: &str = r#"{"error":{"type":"invalid_state","code":409,"errors":[{"reason":"idempotent_creation_conflict"}]}}"#;
    assert_told(&[
        (SQUARE, 429, &[], RATE, RateLimit, None),
        (SQUARE, 400, &[], REUSED, NonRetryable, None),
        (PAYPAL, 429, &[], REACHED, RateLimit, None),
        (PAYPAL, 422, &[], r#"{"name":"UNPROCESSABLE_ENTITY"}"#, NonRetryable, None),
        (PAYPAL, 503, &[], r#"{"name":"SERVICE_UNAVAILABLE"}"#, Temporary, None),
        (
            SHOPIFY,
            429,
            &[("Retry-After", "2.0")],
            r#"{"errors":"Exceeded 2 calls per second"}"#,
            RateLimit,
            Some(2_000),
        ),
        (SHOPIFY, 423, &[], r#"{"errors":"This shop is unavailable"}"#, NonRetryable, None),
        (SHOPIFY, 430, &[], "Shopify Security Rejection", NonRetryable, None),
        // A payment that the payer aborted is no transaction that lost a race.
        (SQUARE, 400, &[], r#"{"status":"ABORTED"}"#, NonRetryable, None),
        (GOCARDLESS, 409, &[], CREATED, NonRetryable, None),
        (
            "Adyen API, HTTP status codes",
            500,
            &[],
            r#"{"status":500,"errorCode":"905"}"#,
            Temporary,
            None,
        ),
    ]);
}
