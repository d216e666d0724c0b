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

#[test]
#[rustfmt::skip]
fn a_limit_of_the_payer_is_none_of_the_service_and_a_lock_passes() {
    assert_told(&[
        ("Stripe, Decline codes", 402, &[], r#"{"error": {"code": "card_decline_rate_limit_exceeded", "decline_code": "generic_decline", "message": "Your card has been declined too many times. You can try to charge this card again after 24 hours.", "type": "card_error"}}"#, NonRetryable, None),
        ("Razorpay, Error codes: payments", 400, &[], r#"{"error": {"code": "BAD_REQUEST_ERROR", "description": "Payment failed because the daily limit of the customer is exceeded", "source": "customer", "step": "payment_authorization", "reason": "transaction_daily_limit_exceeded"}}"#, NonRetryable, None),
        ("Stripe, Error codes", 400, &[], r#"{"error": {"code": "balance_insufficient", "message": "You have insufficient available funds in your Stripe account.", "type": "invalid_request_error"}}"#, Quota, None),
        ("Razorpay, Error codes: payments", 400, &[], r#"{"error": {"code": "BAD_REQUEST_ERROR", "description": "Request failed because another payment operation is in progress.", "source": "NA", "step": "NA", "reason": "NA"}}"#, Temporary, None),
        ("Paddle, Errors: subscriptions", 409, &[], r#"{"error": {"type": "request_error", "code": "subscription_locked_processing", "detail": "unable to update subscription 30m0s before processing"}}"#, Temporary, None),
        ("Paddle, Errors: subscriptions", 409, &[], r#"{"error": {"type": "request_error", "code": "subscription_locked_renewal", "detail": "x"}}"#, Temporary, None),
        ("TrueLayer, Error types", 409, &[], r#"{"type": "https://docs.truelayer.com/docs/error-types#idempotency-key-concurrency-conflict", "title": "Idempotency-Key Concurrency Conflict", "status": 409}"#, Temporary, None),
        ("TrueLayer, Error types", 409, &[], r#"{"type": "https://docs.truelayer.com/docs/error-types#concurrency-conflict", "title": "Concurrency Conflict", "status": 409}"#, Temporary, None),
        ("Sinch, Errors registry", 409, &[], r#"{"type": "https://developers.sinch.com/docs/errors/registry/idempotency-conflict", "title": "Idempotency Conflict", "detail": "A request with Idempotency-Key x is still being processed. Retry later with the same key."}"#, Temporary, None),
        ("commercetools, HTTP API: errors", 400, &[], r#"{"statusCode": 400, "message": "The previous conflicting operation is still pending and needs to finish before the request can succeed.", "errors": [{"code": "PendingOperation", "message": "x"}]}"#, Temporary, None),
        ("Recurly, API errors", 422, &[], r#"{"error": {"type": "simultaneous_request", "message": "A change for subscription x is already in progress."}}"#, Temporary, None),
        ("App Store Server API, Error codes", 404, &[], r#"{"errorCode": 4040002, "errorMessage": "Account not found. Please try again."}"#, Temporary, None),
        ("App Store Server API, Error codes", 404, &[], r#"{"errorCode": 4040006, "errorMessage": "Original transaction id not found. Please try again."}"#, Temporary, None),
        ("Any, the limit of an exchange rate", 422, &[], r#"{"code": "EXCHANGE_RATE_LIMIT_BREACHED"}"#, NonRetryable, None),
        ("Stripe, Decline codes: in XML", 402, &[], "<error><code>DAILY_LIMIT_EXCEEDED</code></error>", NonRetryable, None),
        ("Stripe, Errors", 400, &[("Retry-After", "60")], r#"{"error":{"code":"velocity_rate_limit","type":"card_error","message":"Try again in 60 s"}}"#, NonRetryable, None),
        ("Razorpay, Error codes: payments", 400, &[], r#"{"error":{"source":"issuer_bank","step":"payment_authorization","reason":"card_daily_limit_exceeded"}}"#, NonRetryable, None),
        ("Any, the balance of a payer", 402, &[], r#"{"error":"Insufficient balance: the customer has too little credits"}"#, NonRetryable, None),
        ("AWS, Common errors", 402, &[("x-amzn-errortype", "ServiceQuotaExceededException")], "{}", Quota, None),
    ]);
}

#[test]
#[rustfmt::skip]
fn an_earlier_attempt_with_the_same_key_that_still_runs_passes() {
    const RESEND: &str = "Resend, API, Errors";
    const ADYEN: &str = "Adyen, API idempotency: transient errors";
    assert_told(&[
        (RESEND, 409, &[], r#"{"statusCode":409,"name":"concurrent_idempotent_requests","message":"m"}"#, Temporary, None),
        (RESEND, 409, &[], r#"{"code":409,"name":"concurrent_idempotent_requests"}"#, Temporary, None),
        (RESEND, 409, &[], r#"{"statusCode":409,"name":"invalid_idempotent_request","message":"Same idempotency key used with a different request payload."}"#, NonRetryable, None),
        ("Any, the name of a wrong part", 422, &[], r#"{"errors":[{"name":"lock_in_progress"}]}"#, NonRetryable, None),
        ("Any, a name next to a code", 409, &[], r#"{"code":"exists","name":"queue_locked"}"#, NonRetryable, None),
        (ADYEN, 422, &[], r#"{"status":422,"errorCode":"704","message":"request already processed or in progress","errorType":"validation"}"#, Temporary, None),
        ("Stripe, woocommerce-gateway-stripe #503", 400, &[], r#"{"error":{"message":"There is currently another in-progress request using this Idempotent Key","type":"invalid_request_error"}}"#, Temporary, None),
        ("Razorpay, Idempotent requests", 409, &[], r#"{"error":{"code":"BAD_REQUEST_ERROR","description":"Another request with the same idempotency key is still in progress."}}"#, Temporary, None),
        ("Razorpay, Idempotent requests", 409, &[], r#"{"error":{"code":"BAD_REQUEST_ERROR","description":"Different request with the same idempotency key has already been processed."}}"#, NonRetryable, None),
        ("PayPal REST APIs, Idempotency", 422, &[], r#"{"name":"UNPROCESSABLE_ENTITY","details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}]}"#, Temporary, None),
        ("Shopify, GraphQL: user errors", 409, &[], r#"{"errors":[{"code":"IDEMPOTENCY_CONCURRENT_REQUEST"}]}"#, Temporary, None),
        ("Shopify, GraphQL: user errors", 409, &[], r#"{"errors":[{"code":"IDEMPOTENCY_KEY_PARAMETER_MISMATCH"}]}"#, NonRetryable, None),
        ("Mollie, Idempotency", 409, &[], r#"{"status":409,"title":"Conflict","detail":"A request with this idempotency key is currently being processed."}"#, Temporary, None),
        ("Lithic, Idempotent requests", 422, &[], r#"{"message":"The Idempotency-Key is currently in use by another request"}"#, Temporary, None),
        ("Square API, Handling errors", 400, &[], r#"{"errors":[{"code":"IDEMPOTENCY_KEY_REUSED","detail":"The idempotency key can only be retried with the same request data."}]}"#, NonRetryable, None),
    ]);
}
