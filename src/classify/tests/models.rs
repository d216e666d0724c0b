//! Language models behind an API: limits of requests, of tokens, of money, and of machines.

use super::*;

#[test]
fn openai_tells_a_limit_from_an_empty_account() {
    const CODES: &str = "OpenAI API, Error codes";
    const LIMITS: &str = "OpenAI API, Rate limits: headers";
    const AZURE: &str = "Azure OpenAI, Quotas and limits";
    const RATE: &str = r#"{"error":{"message":"Rate limit reached for requests","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#;
    const TOKENS: &str = r#"{"error":{"message":"Please try again in 6ms.","type":"tokens","code":"rate_limit_exceeded"}}"#;
    const EMPTY: &str = r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#;
    const KEY: &str = r#"{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}"#;
    const LONG: &str = r#"{"error":{"message":"maximum context length is 4096 tokens","code":"context_length_exceeded"}}"#;
    let spent = |code| {
        format!(r#"{{"error":{{"message":"m","type":"rate_limit_error","code":"{code}"}}}}"#)
    };
    let left = |requests, tokens| {
        [
            ("x-ratelimit-remaining-requests", requests),
            ("x-ratelimit-remaining-tokens", tokens),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ]
    };
    let overdrawn =
        &[("x-ratelimit-remaining-tokens", "-27689"), ("x-ratelimit-reset-tokens", "64")];
    assert_told(&[
        (LIMITS, 429, &left("0", "149984"), RATE, RateLimit, Some(1_000)),
        (LIMITS, 429, &left("59", "0"), TOKENS, RateLimit, Some(360_000)),
        (LIMITS, 429, &left("0", "0"), RATE, RateLimit, Some(360_000)),
        (LIMITS, 429, &left("59", "149984"), TOKENS, RateLimit, Some(6)),
        (LIMITS, 429, &left("0", "0"), EMPTY, Quota, Some(360_000)),
        (LIMITS, 503, &left("0", "0"), "", Temporary, None),
        (
            LIMITS,
            429,
            &[("retry-after-ms", "1500"), ("retry-after", "2")],
            RATE,
            RateLimit,
            Some(2_000),
        ),
        (LIMITS, 429, &[("retry-after-ms", "1500")], TOKENS, RateLimit, Some(1_500)),
        (CODES, 429, &[], EMPTY, Quota, None),
        (CODES, 429, &[], &spent("credit_balance_exhausted"), Quota, None),
        (CODES, 429, &[], &spent("organization_spend_limit_exceeded"), Quota, None),
        (CODES, 429, &[], &spent("organization_usage_limit_exceeded"), Quota, None),
        (CODES, 429, &[], &spent("project_spend_limit_exceeded"), Quota, None),
        (CODES, 429, &[], &spent("slow_down"), RateLimit, None),
        (CODES, 401, &[], KEY, NonRetryable, None),
        (CODES, 400, &[], LONG, NonRetryable, None),
        (
            CODES,
            403,
            &[],
            r#"{"error":{"code":"unsupported_country_region_territory"}}"#,
            NonRetryable,
            None,
        ),
        (CODES, 500, &[], r#"{"error":{"type":"server_error"}}"#, Temporary, None),
        (
            CODES,
            503,
            &[],
            r#"{"error":{"message":"The engine is currently overloaded"}}"#,
            Temporary,
            None,
        ),
        (
            AZURE,
            429,
            &[("retry-after", "26")],
            r#"{"error":{"code":"429"}}"#,
            RateLimit,
            Some(26_000),
        ),
        (AZURE, 429, overdrawn, r#"{"error":{"code":"429"}}"#, RateLimit, Some(64_000)),
        (
            AZURE,
            429,
            &[("x-ms-retry-after-ms", "250")],
            r#"{"error":{"code":"429"}}"#,
            RateLimit,
            Some(250),
        ),
    ]);
}

#[test]
fn the_others_have_words_of_their_own_for_overload() {
    const ANTHROPIC: &str = "Claude API Docs, Errors";
    const HEADERS: &str = "Claude API Docs, Rate limits: Response headers";
    const SPENT: &str = r#"{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"enforced_spend_limit_reached"}}}"#;
    const GROQ: &str = "Groq, Rate limits: headers";
    const ROUTER: &str = "OpenRouter, API rate limits";
    let error = |kind: &str| {
        format!(
            r#"{{"type":"error","error":{{"type":"{kind}","message":"Number of requests exceeded"}}}}"#
        )
    };
    let router = &[("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "1700000060000")];
    let claude = |requests, output| {
        [
            ("anthropic-ratelimit-requests-remaining", requests),
            ("anthropic-ratelimit-requests-reset", "2023-11-14T22:13:30Z"),
            ("anthropic-ratelimit-output-tokens-remaining", output),
            ("anthropic-ratelimit-output-tokens-reset", "2023-11-14T22:14:20Z"),
        ]
    };
    let claude_soon = &[claude("0", "0")[0], claude("0", "0")[1], ("retry-after", "3")];
    let groq =
        &[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "2m59.56s")];
    assert_told(&[
        (HEADERS, 429, &claude("0", "16000"), &error("rate_limit_error"), RateLimit, Some(10_000)),
        (HEADERS, 429, &claude("999", "0"), &error("rate_limit_error"), RateLimit, Some(60_000)),
        (HEADERS, 429, &claude("0", "0"), &error("rate_limit_error"), RateLimit, Some(60_000)),
        (HEADERS, 429, &claude("999", "16000"), &error("rate_limit_error"), RateLimit, None),
        (HEADERS, 429, claude_soon, &error("rate_limit_error"), RateLimit, Some(3_000)),
        (GROQ, 429, groq, "", RateLimit, Some(179_560)),
        (ANTHROPIC, 400, &[], &error("invalid_request_error"), NonRetryable, None),
        (ANTHROPIC, 401, &[], &error("authentication_error"), NonRetryable, None),
        (ANTHROPIC, 402, &[], &error("billing_error"), Quota, None),
        (ANTHROPIC, 429, &[], SPENT, Quota, None),
        (ANTHROPIC, 403, &[], &error("permission_error"), NonRetryable, None),
        (ANTHROPIC, 413, &[], &error("request_too_large"), NonRetryable, None),
        (
            ANTHROPIC,
            429,
            &[("retry-after", "17")],
            &error("rate_limit_error"),
            RateLimit,
            Some(17_000),
        ),
        (ANTHROPIC, 500, &[], &error("api_error"), Temporary, None),
        (ANTHROPIC, 504, &[], &error("timeout_error"), Temporary, None),
        (ANTHROPIC, 529, &[], &error("overloaded_error"), Temporary, None),
        (ROUTER, 429, router, r#"{"error":{"code":429}}"#, RateLimit, Some(60_000)),
        (
            ROUTER,
            402,
            &[],
            r#"{"error":{"code":402,"message":"Insufficient credits"}}"#,
            Quota,
            None,
        ),
        (
            ROUTER,
            402,
            &[],
            r#"{"error":{"code":402,"message":"Payment required"}}"#,
            NonRetryable,
            None,
        ),
        (
            "Hugging Face, Inference API: errors",
            503,
            &[],
            r#"{"error":"Model is loading","estimated_time":20.0}"#,
            Temporary,
            None,
        ),
        (
            "Mistral AI API, Rate limits",
            429,
            &[],
            r#"{"message":"Requests rate limit exceeded"}"#,
            RateLimit,
            None,
        ),
    ]);
}

#[test]
#[rustfmt::skip]
fn an_account_without_credit_has_used_up_its_quota() {
    assert_told(&[
        ("Anthropic, help centre: credit balance is too low", 400, &[], r#"{"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}"#, Quota, None),
        ("Anthropic, API: spend limits", 400, &[], r#"{"type": "error", "error": {"type": "invalid_request_error", "message": "You have reached your specified API usage limits. You will regain access on 2023-12-01 at 00:00 UTC."}}"#, Quota, None),
        ("DeepSeek API, Error codes", 402, &[], r#"{"error": {"message": "Insufficient Balance", "type": "unknown_error", "param": null, "code": "invalid_request_error"}}"#, Quota, None),
        ("Replicate, Billing: insufficient credit", 402, &[], r#"{"title": "Insufficient credit", "detail": "You have insufficient credit to run this model. Go to https://replicate.com/account/billing#billing to purchase credit.", "status": 402}"#, Quota, None),
        ("Hugging Face, Inference Providers: pricing", 402, &[], r#"{"error": "You have exceeded your monthly included credits for Inference Providers. Subscribe to PRO to get 20x more monthly included credits."}"#, Quota, None),
        ("Brevo API, Error codes", 402, &[], r#"{"code": "not_enough_credits", "message": "You do not have enough credits"}"#, Quota, None),
        ("Postmark API, Error codes: 405", 422, &[], r#"{"ErrorCode": 405, "Message": "Not allowed to send. Your account has run out of credits."}"#, Quota, None),
        ("Vonage, API errors: low-balance", 402, &[], r#"{"type": "https://developer.nexmo.com/api-errors#low-balance", "title": "Low balance", "detail": "This request could not be performed due to your account balance being low."}"#, Quota, None),
        ("Emailit API, Errors", 402, &[], r#"{"error": "Insufficient credits", "message": "Insufficient credits to send this email. Required: 3, available: 1."}"#, Quota, None),
        ("Fireworks AI, Error codes", 412, &[], r#"{"error": {"object": "error", "type": "invalid_request_error", "code": "PRECONDITION_FAILED", "message": "Account x is suspended, possibly due to reaching the monthly spending limit or failure to pay past invoices."}}"#, Quota, None),
        ("xAI API, Debugging errors", 403, &[], r#"{"code": "The caller does not have permission to execute the specified operation", "error": "Your team x has either used all available credits or reached its monthly spending limit."}"#, Quota, None),
        ("Supabase, Exceeded quota", 402, &[], r#"{"message": "Service for this project is restricted due to the following violations: exceed_egress_quota."}"#, Quota, None),
        ("Stability AI, REST API v2: errors", 402, &[], r#"{"id": "x", "name": "payment_required", "errors": ["You lack sufficient credits to make this request. Please purchase more credits at ..."]}"#, Quota, None),
        ("Deepgram, API errors", 402, &[], r#"{"err_code": "ASR_PAYMENT_REQUIRED", "err_msg": "Project does not have enough credits for an ASR request and does not have an overage agreement.", "request_id": "uuid"}"#, Quota, None),
        ("OpenAI, Error codes", 429, &[], r#"{"error": {"message": "Your account is not active, please check your billing details on our website.", "type": "billing_not_active", "code": "billing_not_active"}}"#, Quota, None),
        ("Groq, Error codes: 498", 498, &[], r#"{"error": {"message": "Flex tier capacity exceeded", "type": "capacity_exceeded", "code": "capacity_exceeded"}}"#, Temporary, None),
        ("Groq, Flex processing", 498, &[], "", Temporary, None),
        ("Groq, Tool use", 400, &[], r#"{"error":{"message":"Failed to call a function. Please adjust your prompt.","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"<function=x>"}}"#, Temporary, None),
        ("Groq, Structured outputs", 400, &[], r#"{"error":{"message":"Failed to generate JSON.","type":"invalid_request_error","code":"json_validate_failed"}}"#, Temporary, None),
        ("Tavily, help centre: 432", 432, &[], r#"{"detail":{"error":"This request exceeds your plan's set usage limit. Please upgrade your plan or contact support@tavily.com"}}"#, Quota, None),
        ("Tavily, help centre: 433", 433, &[], r#"{"detail":{"error":"This request exceeds the pay-as-you-go limit. You can increase your limit on the Tavily dashboard."}}"#, Quota, None),
        ("WhatsApp Flows: a wrong signature", 432, &[], "", NonRetryable, None),
        ("fal #1147", 403, &[], r#"{"detail":"User is locked. Reason: Exhausted balance. Top up your balance at fal.ai/dashboard/billing."}"#, Quota, None),
        ("gptme #1449", 403, &[], r#"{"error":{"message":"Key limit exceeded (monthly limit). Manage it using https://openrouter.ai/settings/keys","code":403}}"#, Quota, None),
        ("Any: the payer", 403, &[], r#"{"message":"The customer's card has an exhausted balance"}"#, NonRetryable, None),
        ("Any: a request", 400, &[], r#"{"message":"Foreign key limit exceeded"}"#, NonRetryable, None),
        ("Groq, Rate limits: tokens of a minute", 413, &[], r#"{"error": {"message": "Request too large for model `x` in organization `y` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 10000, please reduce your message size and try again.", "type": "tokens", "code": "rate_limit_exceeded"}}"#, NonRetryable, None),
        ("Upstash Redis, Troubleshooting: max requests limit", 400, &[], r#"{"error": "ERR max daily request limit exceeded. Limit: 10000, Usage: 10000."}"#, Quota, None),
    ]);
}

#[test]
#[rustfmt::skip]
fn a_limit_of_a_day_and_its_end_are_read_whatever_its_name() {
    const SUSPENDED: &str = r#"{"error":{"message":"Your account org-x is suspended due to insufficient balance, please recharge your account or check your plan and billing details","type":"exceeded_current_quota_error"}}"#;
    const DAY: u64 = 86_400_000;
    assert_told(&[
        ("OpenRouter, Limits", 429, &[], r#"{"error":{"message":"Rate limit exceeded: 200 requests per day"}}"#, Quota, None),
        ("OpenRouter, Limits", 429, &[], r#"{"error":{"message":"Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day","code":429}}"#, Quota, None),
        ("OpenRouter, Limits", 429, &[], r#"{"error":{"message":"Rate limit exceeded: free-models-per-min.","code":429}}"#, RateLimit, None),
        ("Any", 429, &[], r#"{"message":"Daily rate limit exceeded"}"#, Quota, None),
        ("Any", 429, &[], r#"{"message":"Monthly rate limit exceeded"}"#, Quota, None),
        ("Any", 429, &[], r#"{"message":"Rate limit exceeded"}"#, RateLimit, None),
        ("slowapi", 429, &[], r#"{"error":"Rate limit exceeded: 200 per 1 day"}"#, Quota, None),
        ("slowapi", 429, &[], r#"{"error":"Rate limit exceeded: 50 per 1 hour"}"#, RateLimit, None),
        ("Codex: #1666", 429, &[], r#"{"error":{"type":"usage_limit_reached","resets_in_seconds":529498}}"#, Quota, Some(529_498_000)),
        ("Codex", 429, &[], r#"{"error":{"type":"usage_limit_reached","resets_at":1700010800}}"#, RateLimit, Some(10_800_000)),
        ("Any", 429, &[], r#"{"resetAt":"2023-11-14T22:18:20Z"}"#, RateLimit, Some(300_000)),
        ("Any", 429, &[("X-RateLimit-Reset", "30")], r#"{"resetAt":1700000000}"#, RateLimit, Some(30_000)),
        ("Antigravity", 429, &[], r#"{"error":{"details":[{"metadata":{"quotaResetDelay":"27h41m36s"}}]}}"#, Quota, Some(99_696_000)),
        ("Any: no limit", 503, &[], r#"{"resetAt":1700000300}"#, Temporary, None),
        ("Moonshot: continue #11443", 429, &[], SUSPENDED, Quota, None),
        ("Moonshot", 429, &[], r#"{"error":{"message":"m","type":"exceeded_current_quota_error"}}"#, Quota, None),
        ("Z.ai, Error codes", 429, &[], r#"{"error":{"code":"1113","message":"Insufficient balance or no resource package. Please recharge."}}"#, Quota, None),
        ("Any: the payer", 429, &[], r#"{"message":"Insufficient balance: the customer has too little"}"#, RateLimit, None),
        ("Twelve Data", 429, &[], r#"{"message":"You are out of credits: 8 per minute"}"#, RateLimit, None),
        ("Volcengine", 429, &[], r#"{"error":{"message":"You have exceeded the 5-hour usage quota. It will reset at 2023-11-15 09:13:20 +0800 CST. We recommend upgrading"}}"#, RateLimit, Some(3 * DAY / 24)),
        ("Z.ai", 429, &[], r#"{"error":{"message":"Usage limit reached for 5 hour. Your limit will reset at 2023-11-15 09:13:20"}}"#, RateLimit, None),
        ("Microsoft Graph", 507, &[], r#"{"error":{"code":"quotaLimitReached","message":"m"}}"#, Quota, None),
        ("Microsoft Graph", 403, &[], r#"{"error":{"code":"quotaLimitReached","message":"m"}}"#, Quota, None),
        ("Akamai, Rate limiting", 429, &[], r#"{"detail":"Please try after 2023-11-14T22:18:20.5Z"}"#, RateLimit, Some(300_500)),
        ("Akamai, Rate limiting", 429, &[], r#"{"detail":"Quota has been exhausted. You can submit the request after 49 seconds"}"#, RateLimit, Some(49_000)),
    ]);
}
