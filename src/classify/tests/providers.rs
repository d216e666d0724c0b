//! Responses as the public documents of providers show them, and as issue threads quote them. The
//! time is 2023-11-14T22:13:20Z.

use std::collections::BTreeSet;

use super::*;

/// Provider, where it is described, status, headers, body; class, reason, delay in milliseconds.
type Shown<'a> =
    (&'a str, &'a str, u16, &'a [(&'a str, &'a str)], &'a str, FailureClass, &'a str, Option<u64>);

const LEFT: (&str, &str) = ("X-RateLimit-Remaining", "0");

#[rustfmt::skip]
const SHOWN: &[Shown<'_>] = &[
    // A limit of a day, or longer.
    ("Xero", "OAuth 2.0 API limits", 429, &[("X-Rate-Limit-Problem", "day"), ("Retry-After", "65000")], "", Quota, "status 429", Some(65_000_000)),
    ("Xero", "OAuth 2.0 API limits", 429, &[("X-Rate-Limit-Problem", "minute"), ("Retry-After", "43200")], "", RateLimit, "status 429", Some(43_200_000)),
    ("X", "Rate limits: usage caps", 429, &[], r#"{"account_id":1,"product_name":"standard-basic","title":"UsageCapExceeded","period":"Monthly","scope":"Product","detail":"Usage cap exceeded: Monthly product cap","type":"https://api.twitter.com/2/problems/usage-capped"}"#, Quota, "status 429: usage-capped", None),
    ("X", "Rate limits: 24 hours", 429, &[("x-app-limit-24hour-remaining", "0"), ("x-app-limit-24hour-reset", "1700080000")], r#"{"title":"Too Many Requests","detail":"Too Many Requests","type":"about:blank","status":429}"#, Quota, "status 429", Some(80_000_000)),
    ("LinkedIn", "API rate limiting", 429, &[], r#"{"serviceErrorCode":101,"message":"Resource level throttle APPLICATION DAY limit for calls to this resource is reached.","status":429}"#, Quota, "status 429", None),
    ("Bedrock", "aws-sdk issues: Too many tokens per day", 429, &[("x-amzn-errortype", "ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/")], r#"{"message":"Too many tokens per day, please wait before trying again."}"#, Quota, "status 429: throttled: ThrottlingException", None),
    ("Bedrock", "aws-sdk issues: Too many requests", 429, &[("x-amzn-errortype", "ThrottlingException")], r#"{"message":"Too many requests, please wait before trying again."}"#, RateLimit, "status 429: throttled: ThrottlingException", None),
    ("Gemini", "gemini-cli issues: free tier", 429, &[], r#"{"error":{"code":429,"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"generativelanguage.googleapis.com/generate_content_free_tier_requests","quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier","quotaValue":"250"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"37s"}]}}"#, Quota, "status 429: QuotaFailure", Some(37_000)),
    ("Gemini", "gemini-cli issues: free tier", 429, &[], r#"{"error":{"code":429,"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"37s"}]}}"#, RateLimit, "status 429: RESOURCE_EXHAUSTED", Some(37_000)),
    ("OpenAI", "Rate limits: requests per day, with a rolling window", 429, &[("Retry-After", "432")], r#"{"error":{"message":"Rate limit reached on requests per day (RPD): Limit 200","type":"requests","code":"rate_limit_exceeded"}}"#, RateLimit, "status 429: rate_limit_exceeded", Some(432_000)),
    ("Airtable", "Web API, Errors", 429, &[], r#"{"errors":[{"error":"PUBLIC_API_BILLING_LIMIT_EXCEEDED","message":"The API billing plan limit has been exceeded"}]}"#, Quota, "status 429: PUBLIC_API_BILLING_LIMIT_EXCEEDED", None),
    ("SendGrid", "sendgrid-nodejs #1032", 401, &[], r#"{"errors":[{"message":"Maximum credits exceeded","field":null,"help":null}]}"#, Quota, "status 401: Maximum credits exceeded", None),
    ("SendGrid", "Errors", 401, &[], r#"{"errors":[{"message":"authorization required","field":null}]}"#, NonRetryable, "status 401", None),
    // A refusal that passes.
    ("Notion", "Errors: 409", 409, &[], r#"{"object":"error","status":409,"code":"conflict_error","message":"Conflict occurred while saving. Please try again."}"#, Temporary, "status 409: conflict_error", None),
    ("Zendesk", "Errors: Database collision", 409, &[], r#"{"error":"DatabaseConflict","description":"Database collision"}"#, Temporary, "status 409: DatabaseConflict", None),
    ("Adyen", "API idempotency: transient errors", 422, &[("transient-error", "true")], r#"{"status":422,"errorCode":"704","message":"request already processed or in progress","errorType":"validation"}"#, Temporary, "status 422: 704, retry wanted", None),
    ("Adyen", "API idempotency: transient errors", 500, &[("transient-error", "false")], "", Temporary, "status 500", None),
    ("Bedrock", "aws-sdk issues: per minute, with another word", 429, &[("x-amzn-errortype", "ThrottlingException")], r#"{"message":"Too many tokens per minute for the daily report"}"#, RateLimit, "status 429: throttled: ThrottlingException", None),
    ("Adyen", "API idempotency", 422, &[], r#"{"status":422,"errorCode":"130","message":"m","errorType":"validation"}"#, NonRetryable, "status 422: 130", None),
    ("OpenAI", "openai-python: x-should-retry", 400, &[("x-should-retry", "true")], "", Temporary, "status 400: retry wanted", None),
    ("OpenAI", "openai-python: x-should-retry", 500, &[("x-should-retry", "false")], "", NonRetryable, "status 500: retry not wanted", None),
    ("Twilio", "Error 21611", 400, &[], r#"{"code":21611,"message":"This 'From' number has exceeded the maximum number of queued messages","more_info":"https://www.twilio.com/docs/errors/21611","status":400}"#, RateLimit, "status 400: 21611", None),
    ("Google", "Cloud APIs: CANCELLED", 499, &[], r#"{"error":{"code":499,"message":"The operation was cancelled.","status":"CANCELLED"}}"#, Temporary, "status 499: CANCELLED", None),
    ("Azure", "Cosmos DB, HTTP status codes", 449, &[], r#"{"code":"RetryWith"}"#, Temporary, "status 449: RetryWith", None),
    ("RFC 9110", "15.5.20", 421, &[], "", Temporary, "status 421", None),
    // A delay under another name.
    ("Bucket4j", "bucket4j-spring-boot-starter #86", 429, &[("X-Rate-Limit-Retry-After-Seconds", "17")], "", RateLimit, "status 429", Some(17_000)),
    ("Mattermost", "rate limits in the body", 429, &[], r#"{"retry_after_ms":1500}"#, RateLimit, "status 429", Some(1_500)),
    ("Rows", "seconds in the body", 429, &[], r#"{"error":{"retryAfterSeconds":9}}"#, RateLimit, "status 429", Some(9_000)),
    ("Rows", "seconds in the body, as a duration", 429, &[], r#"{"retry_after":"300s"}"#, RateLimit, "status 429", Some(300_000)),
    // A code in the body of a 400 or 403 says that a limit is used up.
    ("BigQuery", "Error messages", 400, &[], r#"{"error":{"code":400,"errors":[{"domain":"global","reason":"jobRateLimitExceeded","message":"Exceeded rate limits"}]}}"#, RateLimit, "status 400: jobRateLimitExceeded", None),
    ("BigQuery", "Error messages", 400, &[], r#"{"error":{"code":400,"errors":[{"domain":"global","reason":"jobBackendError","message":"Retry the job"}]}}"#, Temporary, "status 400: jobBackendError", None),
    ("BigQuery", "Error messages", 400, &[], r#"{"error":{"code":400,"errors":[{"reason":"tableUnavailable"}]}}"#, Temporary, "status 400: tableUnavailable", None),
    ("BigQuery", "Error messages", 400, &[("Retry-After", "5")], r#"{"error":{"code":400,"errors":[{"reason":"invalidQuery"}]}}"#, NonRetryable, "status 400: invalidQuery", None),
    ("YouTube", "Data API, Errors: videos.insert", 400, &[], r#"{"error":{"code":400,"errors":[{"domain":"youtube.video","reason":"uploadLimitExceeded"}]}}"#, Quota, "status 400: uploadLimitExceeded", None),
    ("Linear", "Rate limiting", 400, &[("X-RateLimit-Requests-Remaining", "0"), ("X-RateLimit-Requests-Reset", "1700000060000")], r#"{"errors":[{"message":"Rate limit exceeded","extensions":{"code":"RATELIMITED"}}]}"#, RateLimit, "status 400: RATELIMITED", Some(60_000)),
    ("Linear", "Rate limiting", 400, &[("X-RateLimit-Requests-Remaining", "0"), ("X-RateLimit-Requests-Reset", "1700000060000")], r#"{"errors":[{"message":"Argument Validation Error","extensions":{"code":"INVALID_INPUT"}}]}"#, NonRetryable, "status 400: INVALID_INPUT", None),
    ("Meta", "facebook-nodejs-business-sdk #97", 400, &[], r#"{"error":{"message":"(#4) Application request limit reached","type":"OAuthException","is_transient":true,"code":4,"fbtrace_id":"FlQgl+5U8pF"}}"#, RateLimit, "status 400: 4, rate limit", None),
    ("Meta", "Graph API, Rate limits", 400, &[], r#"{"error":{"message":"(#80004) There have been too many calls","type":"OAuthException","code":80004,"fbtrace_id":"A"}}"#, RateLimit, "status 400: 80004, rate limit", None),
    ("Meta", "Graph API, Handling errors", 500, &[], r#"{"error":{"message":"Service temporarily unavailable","type":"OAuthException","is_transient":true,"code":2,"fbtrace_id":"A"}}"#, Temporary, "status 500: 2, transient", None),
    ("Meta", "Graph API, Handling errors", 400, &[], r#"{"error":{"message":"Invalid parameter","type":"OAuthException","code":100,"error_subcode":33,"fbtrace_id":"A"}}"#, NonRetryable, "status 400: 100", None),
    ("Meta", "Graph API, Handling errors", 400, &[], r#"{"error":{"message":"Application limit reached","type":"OAuthException","code":341,"fbtrace_id":"A"}}"#, RateLimit, "status 400: 341, rate limit", None),
    ("Meta", "Graph API, Rate limits", 400, &[], r#"{"error":{"message":"m","type":"OAuthException","code":"4","fbtrace_id":"A"}}"#, RateLimit, "status 400: 4, rate limit", None),
    ("Meta", "Graph API, Rate limits: no error of Meta", 400, &[], r#"{"error":{"message":"m","code":"4"}}"#, NonRetryable, "status 400: 4", None),
    ("WhatsApp", "Cloud API, Error codes: throttling", 400, &[], r#"{"error":{"message":"(#130429) Rate limit hit","type":"OAuthException","code":130429,"error_data":{"messaging_product":"whatsapp","details":"Cloud API message throughput has been reached."},"fbtrace_id":"Az8or2yhqkZfEZ-_4Qn_Bam"}}"#, RateLimit, "status 400: 130429, rate limit", None),
    ("WhatsApp", "Cloud API, Error codes: throttling", 400, &[], r#"{"error":{"message":"(#131048) Spam rate limit hit","type":"OAuthException","code":131048,"fbtrace_id":"A"}}"#, RateLimit, "status 400: 131048, rate limit", None),
    ("WhatsApp", "Cloud API, Error codes: throttling", 400, &[], r#"{"error":{"message":"(#131056) Pair rate limit hit","type":"OAuthException","code":131056,"fbtrace_id":"A"}}"#, RateLimit, "status 400: 131056, rate limit", None),
    ("WhatsApp", "Cloud API, Error codes: throttling", 400, &[], r#"{"error":{"message":"(#133016) Account register deregister rate limit exceeded","type":"OAuthException","code":133016,"fbtrace_id":"A"}}"#, RateLimit, "status 400: 133016, rate limit", None),
    ("WhatsApp", "Cloud API, Error codes", 400, &[], r#"{"error":{"message":"(#131051) Unsupported message type","type":"OAuthException","code":131051,"fbtrace_id":"A"}}"#, NonRetryable, "status 400: 131051", None),
    ("DocuSign", "eSignature REST API, Resource limits", 400, &[LEFT, ("X-RateLimit-Reset", "1700001800")], r#"{"errorCode":"HOURLY_APIINVOCATION_LIMIT_EXCEEDED","message":"The maximum number of hourly API invocations has been exceeded."}"#, RateLimit, "status 400: HOURLY_APIINVOCATION_LIMIT_EXCEEDED", Some(1_800_000)),
    ("DocuSign", "eSignature REST API, Resource limits", 400, &[("X-RateLimit-Remaining", "800"), ("X-RateLimit-Reset", "1700001800")], r#"{"errorCode":"BURST_APIINVOCATION_LIMIT_EXCEEDED","message":"m"}"#, RateLimit, "status 400: BURST_APIINVOCATION_LIMIT_EXCEEDED", None),
    ("DocuSign", "eSignature REST API, Error codes", 400, &[LEFT, ("X-RateLimit-Reset", "1700001800")], r#"{"errorCode":"ENVELOPE_IS_INCOMPLETE","message":"m"}"#, NonRetryable, "status 400: ENVELOPE_IS_INCOMPLETE", None),
    ("Firebase", "Authentication REST API, Sign in with email: common error codes", 400, &[], r#"{"error":{"code":400,"message":"TOO_MANY_ATTEMPTS_TRY_LATER : Access to this account has been temporarily disabled","errors":[{"message":"TOO_MANY_ATTEMPTS_TRY_LATER : Access","domain":"global","reason":"invalid"}]}}"#, RateLimit, "status 400: TOO_MANY_ATTEMPTS_TRY_LATER", None),
    ("Firebase", "firebase-js-sdk, the map of server errors", 400, &[], r#"{"error":{"code":400,"message":"RESET_PASSWORD_EXCEED_LIMIT"}}"#, RateLimit, "status 400: RESET_PASSWORD_EXCEED_LIMIT", None),
    ("Firebase", "firebase-js-sdk, the map of server errors", 400, &[], r#"{"error":{"code":400,"message":"QUOTA_EXCEEDED : Exceeded quota for verifying passwords."}}"#, Quota, "status 400: QUOTA_EXCEEDED", None),
    ("Firebase", "Authentication REST API, Sign in with email: common error codes", 400, &[], r#"{"error":{"code":400,"message":"EMAIL_NOT_FOUND","errors":[{"message":"EMAIL_NOT_FOUND","domain":"global","reason":"invalid"}]}}"#, NonRetryable, "status 400: invalid", None),
    ("ElevenLabs", "home-assistant core #160414", 401, &[], r#"{"detail":{"status":"quota_exceeded","message":"This request exceeds your quota of 10000."}}"#, Quota, "status 401: quota_exceeded", None),
    ("Scaleway", "scaleway-sdk-js, QuotasExceededError", 403, &[], r#"{"type":"quotas_exceeded","message":"Quotas exceeded for requested resources","details":[{"resource":"Instance","quota":2,"current":2}]}"#, Quota, "status 403: quotas_exceeded", None),
    ("MYOB", "AccountRight API, Access limits", 403, &[], r#"{"Errors":[{"Name":"RateLimitError","Message":"API key access limit exceeded","Severity":"Error","ErrorCode":0}]}"#, RateLimit, "status 403: RateLimitError", None),
    ("DeepL", "API, Error handling", 456, &[], r#"{"message":"Quota Exceeded"}"#, Quota, "status 456", None),
    ("Toggl", "API quota", 402, &[("X-Toggl-Quota-Remaining", "0"), ("X-Toggl-Quota-Resets-In", "1800")], "You have hit your hourly limit", Quota, "status 402: quota used up", Some(1_800_000)),
    ("Toggl", "API quota: another 402", 402, &[("X-Toggl-Quota-Remaining", "12"), ("X-Toggl-Quota-Resets-In", "1800")], "Upgrade your plan", NonRetryable, "status 402", None),
    ("PayPal", "Orders v2, Errors", 422, &[], r#"{"name":"UNPROCESSABLE_ENTITY","details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}],"message":"m"}"#, Temporary, "status 422: PREVIOUS_REQUEST_IN_PROGRESS", None),
    ("PayPal", "Orders v2, Errors", 422, &[], r#"{"name":"UNPROCESSABLE_ENTITY","details":[{"issue":"ORDER_NOT_APPROVED"}],"message":"m"}"#, NonRetryable, "status 422", None),
    ("Hetzner", "Cloud API, Errors", 423, &[], r#"{"error":{"code":"locked","message":"Server is locked"}}"#, Temporary, "status 423: locked", None),
    ("NetSuite", "Errors for concurrency violations: RESTlets", 400, &[], r#"{"error":{"code":"SSS_REQUEST_LIMIT_EXCEEDED","message":"Request Limit Exceeded"}}"#, RateLimit, "status 400: SSS_REQUEST_LIMIT_EXCEEDED", None),
    ("Salesforce", "REST API, Status codes and error responses", 403, &[], r#"[{"message":"TotalRequests Limit exceeded.","errorCode":"REQUEST_LIMIT_EXCEEDED"}]"#, Quota, "status 403: REQUEST_LIMIT_EXCEEDED", None),
    ("OpenAI", "Error codes", 400, &[], r#"{"error":{"message":"Billing hard limit has been reached","type":"invalid_request_error","code":"billing_hard_limit_reached"}}"#, Quota, "status 400: billing_hard_limit_reached", None),
    ("Plaid", "Errors: Rate limit exceeded", 429, &[], r#"{"error_type":"RATE_LIMIT_EXCEEDED","error_code":"ACCOUNTS_LIMIT","error_message":"rate limit exceeded","display_message":null}"#, RateLimit, "status 429: RATE_LIMIT_EXCEEDED", None),
    ("Plaid", "Errors: Invalid request", 400, &[], r#"{"error_type":"INVALID_REQUEST","error_code":"MISSING_FIELDS","display_message":null}"#, NonRetryable, "status 400: MISSING_FIELDS", None),
    ("QuickBooks", "quickbooks-online-v3-sdk #6", 429, &[], r#"{"fault":{"error":[{"message":"message=ThrottleExceeded; errorCode=003001; statusCode=429","detail":"The request limit was reached.","code":"3001"}],"type":"SERVICE"}}"#, RateLimit, "status 429: 3001", None),
    ("Box", "Common errors", 409, &[], r#"{"type":"error","status":409,"code":"operation_blocked_temporary"}"#, Temporary, "status 409: operation_blocked_temporary", None),
    ("Box", "Common errors", 409, &[], r#"{"type":"error","status":409,"code":"item_name_in_use"}"#, NonRetryable, "status 409: item_name_in_use", None),
    ("Apigee", "HTTP 429 as default status code for quota policy violation", 500, &[], r#"{"fault":{"faultstring":"Rate limit quota violation. Quota limit exceeded. Identifier : _default","detail":{"errorcode":"policies.ratelimit.QuotaViolation"}}}"#, Quota, "status 500: policies.ratelimit.QuotaViolation", None),
    ("Keap", "Community: Intermittently receiving spike arrest violation", 429, &[], r#"{"fault":{"faultstring":"Spike arrest violation.","detail":{"errorcode":"policies.ratelimit.SpikeArrestViolation"}}}"#, RateLimit, "status 429: policies.ratelimit.SpikeArrestViolation", None),
    // A status that cannot speak of the message, with a delay.
    ("HubSpot", "Handling errors: 477 Migration in Progress", 477, &[("Retry-After", "3600")], r#"{"status":"error","message":"m","category":"MIGRATION_IN_PROGRESS"}"#, Temporary, "status 477: MIGRATION_IN_PROGRESS, asks for a later retry", Some(3_600_000)),
    ("HubSpot", "Handling errors: 423 Locked", 423, &[("Retry-After", "2")], r#"{"status":"error","message":"locked","category":"LOCKED"}"#, Temporary, "status 423: LOCKED", Some(2_000)),
    ("HubSpot", "Handling errors", 400, &[], r#"{"status":"error","message":"m","errors":[{"message":"m","in":"name"}],"category":"VALIDATION_ERROR"}"#, NonRetryable, "status 400: VALIDATION_ERROR", None),
    ("HubSpot", "Usage guidelines: limits", 429, &[], r#"{"status":"error","message":"m","errorType":"RATE_LIMIT","policyName":"DAILY","category":"RATE_LIMITS"}"#, Quota, "status 429: DAILY policy", None),
    ("Binance", "General API information: HTTP return codes", 418, &[("Retry-After", "120")], r#"{"code":-1003,"msg":"Way too many requests; IP banned until 1700000120000."}"#, RateLimit, "status 418: rate limit", Some(120_000)),
    ("Binance", "General API information: HTTP return codes", 418, &[], r#"{"code":-1003,"msg":"banned"}"#, NonRetryable, "status 418", None),
    ("Binance", "General API information: HTTP return codes", 429, &[("Retry-After", "7")], r#"{"code":-1003,"msg":"Too many requests"}"#, RateLimit, "status 429", Some(7_000)),
    ("Azure Cosmos DB", "HTTP status codes: 449", 449, &[("x-ms-retry-after-ms", "10")], r#"{"code":"RetryWith","message":"Conflicting request"}"#, Temporary, "status 449: RetryWith", Some(10)),
    ("Twitter", "API v1, Response codes: 420 Enhance your calm", 420, &[("Retry-After", "60")], r#"{"error":"EnhanceYourCalm"}"#, RateLimit, "status 420: EnhanceYourCalm", Some(60_000)),
    ("Shopify", "REST Admin API, Rate limits", 429, &[("Retry-After", "2.0"), ("X-Shopify-Shop-Api-Call-Limit", "40/40")], r#"{"errors":"Exceeded 2 calls per second for api client."}"#, RateLimit, "status 429", Some(2_000)),
    ("Shopify", "Response status codes: 423 Locked", 423, &[], r#"{"errors":"This shop is unavailable"}"#, NonRetryable, "status 423: This shop is unavailable", None),
    ("GitLab", "User and IP rate limits", 429, &[("RateLimit-Remaining", "0"), ("RateLimit-ResetTime", "Tue, 14 Nov 2023 22:14:20 GMT"), ("RateLimit-Reset", "1700000060")], "Retry later", RateLimit, "status 429", Some(60_000)),
    ("Standard Webhooks", "Responding to webhooks", 410, &[("Retry-After", "5")], "", NonRetryable, "status 410", None),
    // Any used-up allowance is the reason of a 403.
    ("Linear", "Rate limiting", 403, &[("X-RateLimit-Requests-Remaining", "0"), ("X-RateLimit-Requests-Reset", "1700000060000")], "", RateLimit, "status 403: rate limit", Some(60_000)),
    ("Linear", "Rate limiting", 403, &[("X-RateLimit-Requests-Remaining", "9"), ("X-RateLimit-Requests-Reset", "1700000060000")], "", NonRetryable, "status 403", None),
    ("Kong", "Rate Limiting plugin: headers", 403, &[("X-RateLimit-Remaining-Minute", "0"), ("RateLimit-Reset", "25")], r#"{"message":"m"}"#, RateLimit, "status 403: rate limit", Some(25_000)),
    ("IETF", "draft-ietf-httpapi-ratelimit-headers", 403, &[("RateLimit", r#""d";r=0;t=30"#)], "", RateLimit, "status 403: rate limit", Some(30_000)),
    ("IETF", "draft-ietf-httpapi-ratelimit-headers", 403, &[("RateLimit", r#""d";r=0"#)], "", RateLimit, "status 403: rate limit", None),
    ("IETF", "draft-ietf-httpapi-ratelimit-headers", 403, &[("RateLimit", r#""d";r=4;t=30"#)], "", NonRetryable, "status 403", None),
    ("Envoy", "Two rate limits, merged by a proxy", 403, &[("X-RateLimit-Remaining", "0, 5"), ("X-RateLimit-Reset", "30, 30")], "", RateLimit, "status 403: rate limit", Some(30_000)),
    // Resets and delays in the forms that providers use.
    ("BigCommerce", "API rate limits", 429, &[("X-Rate-Limit-Requests-Left", "0"), ("X-Rate-Limit-Time-Reset-Ms", "15500")], r#"{"title":"You have exceeded the maximum number of requests"}"#, RateLimit, "status 429", Some(15_500)),
    ("Salesforce Marketing Cloud", "Rate limiting errors", 429, &[], r#"{"message":"Rate limit exceeded","errorcode":50100,"retryAfter":5}"#, RateLimit, "status 429: 50100", Some(5_000)),
    ("Salesforce Marketing Cloud", "Rate limiting errors, as a text", 429, &[], r#"{"errorcode":50100,"retryAfter":"5"}"#, RateLimit, "status 429: 50100", Some(5_000)),
    ("Discord", "Rate limits, as a text", 429, &[], r#"{"retry_after":"64.5"}"#, RateLimit, "status 429", Some(64_500)),
    ("Discord", "Rate limits, as another text", 429, &[], r#"{"retry_after":"soon"}"#, RateLimit, "status 429", None),
    ("PUBG", "api-documentation-content #61", 429, &[LEFT, ("X-RateLimit-Reset", "1700000060000000000")], "", RateLimit, "status 429", Some(60_000)),
    ("PUBG", "api-documentation-content #61", 429, &[LEFT, ("X-RateLimit-Reset", "1700000060000000")], "", RateLimit, "status 429", Some(60_000)),
    ("Rocket.Chat", "docs-old, pull request 1358", 429, &[LEFT, ("X-RateLimit-Reset", "1700000060000")], r#"{"success":false,"error":"error-too-many-requests"}"#, RateLimit, "status 429: error-too-many-requests", Some(60_000)),
    ("TradeGecko", "smaug #41", 429, &[("X-Rate-Limit-Remaining", "0"), ("X-Rate-Limit-Reset", "1700000300")], "", RateLimit, "status 429", Some(300_000)),
    ("Zalando", "restful-api-guidelines #379", 429, &[LEFT, ("X-RateLimit-Reset", "2513")], "", RateLimit, "status 429", Some(2_513_000)),
    ("Discord", "discord-api-docs #5621", 429, &[("X-RateLimit-Reset-After", "0.565"), ("X-RateLimit-Reset", "1700000000.565")], r#"{"message":"You are being rate limited.","retry_after":0.565,"global":false}"#, RateLimit, "status 429", Some(565)),
    ("Telegram", "Bot API, ResponseParameters", 429, &[], r#"{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 35","parameters":{"retry_after":35}}"#, RateLimit, "status 429", Some(35_000)),
    ("Dropbox", "Error handling guide", 429, &[], r#"{"error_summary":"too_many_requests/..","error":{"reason":{".tag":"too_many_requests"},"retry_after":15}}"#, RateLimit, "status 429: too_many_requests", Some(15_000)),
    ("Dropbox", "HTTP documentation: Errors by status code", 409, &[], r#"{"error_summary":"path/not_found/...","error":{".tag":"path","path":{".tag":"not_found"}}}"#, NonRetryable, "status 409: path/not_found", None),
    ("Dropbox", "rclone #1539", 409, &[], r#"{"error_summary":"too_many_write_operations/..","error":{".tag":"too_many_write_operations"}}"#, RateLimit, "status 409: too_many_write_operations", None),
    ("Dropbox", "HTTP documentation: WriteError", 409, &[], r#"{"error_summary":"path/too_many_write_operations/.","error":{".tag":"path","path":{".tag":"too_many_write_operations"}}}"#, RateLimit, "status 409: too_many_write_operations", None),
    ("GitHub", "Rate limits for the REST API", 403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700003000")], r#"{"message":"API rate limit exceeded for user ID 1."}"#, RateLimit, "status 403: rate limit", Some(3_000_000)),
    ("Jira", "Rate limiting", 429, &[("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "2023-11-14T22:14Z"), ("RateLimit-Reason", "jira-quota-tenant-based")], "", RateLimit, "status 429", Some(40_000)),
    ("Vimeo", "Guidelines: Rate limiting", 429, &[LEFT, ("X-RateLimit-Reset", "2023-11-14T22:14:20+00:00")], r#"{"error":"Too many API requests.","error_code":9000}"#, RateLimit, "status 429: 9000", Some(60_000)),
    ("Cerebras", "Rate limits", 429, &[("x-ratelimit-remaining-tokens-minute", "0"), ("x-ratelimit-reset-tokens-minute", "33.38")], r#"{"code":"too_many_requests_error","type":"too_many_requests_error"}"#, RateLimit, "status 429: too_many_requests_error", Some(33_380)),
    ("X", "Rate limits: posts of a day", 429, &[("x-rate-limit-remaining", "199"), ("x-rate-limit-reset", "1700000900"), ("x-user-limit-24hour-remaining", "0"), ("x-user-limit-24hour-reset", "1700003600")], r#"{"title":"Too Many Requests","detail":"Too Many Requests","type":"about:blank","status":429}"#, RateLimit, "status 429", Some(3_600_000)),
    ("Anthropic", "Rate limits: Response headers", 429, &[("anthropic-ratelimit-input-tokens-remaining", "0"), ("anthropic-ratelimit-input-tokens-reset", "2023-11-14T22:14:20Z")], r#"{"type":"error","error":{"type":"rate_limit_error","message":"m"}}"#, RateLimit, "status 429: rate_limit_error", Some(60_000)),
    ("Google Gemini", "Troubleshooting", 429, &[], r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"36.5s"}]}}"#, RateLimit, "status 429: RESOURCE_EXHAUSTED", Some(36_500)),
    ("OpenAI", "Rate limits: headers", 429, &[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6m0s")], r#"{"error":{"type":"tokens","code":"rate_limit_exceeded"}}"#, RateLimit, "status 429: rate_limit_exceeded", Some(360_000)),
    ("Microsoft Graph", "Throttling guidance", 429, &[("Retry-After", "10")], r#"{"error":{"code":"TooManyRequests","innerError":{"code":"429"},"message":"Please retry after"}}"#, RateLimit, "status 429: TooManyRequests", Some(10_000)),
    ("Klaviyo", "Rate limits, status codes and errors", 429, &[("Retry-After", "15"), ("RateLimit-Reset", "15")], r#"{"errors":[{"id":"2d1a","status":429,"code":"throttled","title":"Request was throttled."}]}"#, RateLimit, "status 429: throttled", Some(15_000)),
    ("monday.com", "Rate limits", 429, &[("Retry-After", "43")], r#"{"errors":[{"message":"Complexity budget exhausted","extensions":{"code":"COMPLEXITY_BUDGET_EXHAUSTED","retry_in_seconds":43}}]}"#, RateLimit, "status 429: COMPLEXITY_BUDGET_EXHAUSTED", Some(43_000)),
    ("Databricks", "API rate limits", 429, &[("Retry-After", "1")], r#"{"error_code":"REQUEST_LIMIT_EXCEEDED","message":"Your request was rejected"}"#, RateLimit, "status 429: REQUEST_LIMIT_EXCEEDED", Some(1_000)),
    ("Xero", "OAuth 2.0 API limits", 429, &[("Retry-After", "42"), ("X-Rate-Limit-Problem", "minute")], "", RateLimit, "status 429", Some(42_000)),
    ("Okta", "Rate limits: HTTP headers", 429, &[("X-Rate-Limit-Remaining", "0"), ("X-Rate-Limit-Reset", "1700000060")], r#"{"errorCode":"E0000047","errorSummary":"API call exceeded rate limit"}"#, RateLimit, "status 429", Some(60_000)),
    ("Auth0", "Rate limit policy", 429, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000060")], r#"{"statusCode":429,"error":"Too Many Requests","errorCode":"too_many_requests"}"#, RateLimit, "status 429: too_many_requests", Some(60_000)),
    ("Slack", "Rate limits", 429, &[("Retry-After", "30")], r#"{"ok":false,"error":"ratelimited"}"#, RateLimit, "status 429: ratelimited", Some(30_000)),
    ("Notion", "Request limits", 429, &[("Retry-After", "1")], r#"{"object":"error","status":429,"code":"rate_limited"}"#, RateLimit, "status 429: rate_limited", Some(1_000)),
    ("Airtable", "Rate limits", 429, &[], r#"{"errors":[{"error":"RATE_LIMIT_REACHED","message":"m"}]}"#, RateLimit, "status 429: RATE_LIMIT_REACHED", None),
    ("Heroku", "Platform API, Rate limits", 429, &[], r#"{"id":"rate_limit","message":"Your account reached the API limit."}"#, RateLimit, "status 429: rate_limit", None),
    ("ClickUp", "Rate limits", 429, &[LEFT, ("X-RateLimit-Reset", "1700000030")], r#"{"err":"Rate limit reached","ECODE":"APP_002"}"#, RateLimit, "status 429: APP_002", Some(30_000)),
    // A challenge of a firewall in front of the service.
    ("AWS WAF", "CAPTCHA and Challenge actions", 202, &[("x-amzn-waf-action", "challenge")], "", Temporary, "status 202: x-amzn-waf-action", None),
    ("AWS WAF", "CAPTCHA and Challenge actions", 405, &[("x-amzn-waf-action", "captcha")], "", Temporary, "status 405: x-amzn-waf-action", None),
    ("Cloudflare", "Detect a Challenge Page response", 403, &[("cf-mitigated", "challenge")], "<!DOCTYPE html><title>Just a moment...</title>", Temporary, "status 403: cf-mitigated", None),
    ("Vercel", "Firewall: challenge", 429, &[("X-Vercel-Mitigated", "challenge")], "", Temporary, "status 429: x-vercel-mitigated", None),
    ("Vercel", "Firewall: deny", 403, &[("X-Vercel-Mitigated", "deny")], "", NonRetryable, "status 403", None),
    // Milliseconds where others have seconds.
    ("MuleSoft", "Rate Limiting: headers", 429, &[LEFT, ("X-RateLimit-Reset", "42661")], "API calls exceeded", RateLimit, "status 429", Some(42_661)),
    ("MuleSoft", "Rate Limiting: headers", 429, &[LEFT, ("X-RateLimit-Reset", "3000000")], "API calls exceeded", RateLimit, "status 429", Some(3_000_000)),
    ("Fastify", "fastify-rate-limit #301", 429, &[LEFT, ("x-ratelimit-reset", "58"), ("retry-after", "60000")], r#"{"statusCode":429,"error":"Too Many Requests","message":"Rate limit exceeded, retry in 1 minute"}"#, RateLimit, "status 429", Some(58_000)),
    ("Any", "a block after a limit", 429, &[LEFT, ("x-ratelimit-reset", "58"), ("retry-after", "3600")], "", RateLimit, "status 429", Some(3_600_000)),
    ("Any", "a limit of a day in seconds", 429, &[LEFT, ("X-RateLimit-Reset", "42661")], r#"{"message":"500 requests per day"}"#, Quota, "status 429", Some(42_661)),
    ("Envoy", "Rate limit: headers", 429, &[("X-RateLimit-Limit", "10, 10;w=86400"), LEFT, ("X-RateLimit-Reset", "43300")], "", Quota, "status 429", Some(43_300_000)),
    // Codes by their parts, in any spelling.
    ("DynamoDB", "TransactWriteItems: CancellationReasons", 400, &[], r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","CancellationReasons":[{"Code":"None"},{"Code":"TransactionConflict"}]}"#, Temporary, "status 400: TransactionConflict", None),
    ("DynamoDB", "TransactWriteItems: CancellationReasons", 400, &[], r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","CancellationReasons":[{"Code":"ConditionalCheckFailed"},{"Code":"None"}]}"#, NonRetryable, "status 400: ConditionalCheckFailed", None),
    ("DynamoDB", "TransactWriteItems: CancellationReasons", 400, &[], r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","CancellationReasons":[{"Code":"ThrottlingError"}]}"#, RateLimit, "status 400: ThrottlingError", None),
    ("DynamoDB", "TransactWriteItems: an older SDK", 400, &[], r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException"}"#, Temporary, "status 400: transient: TransactionCanceledException", None),
    ("DynamoDB", "Error handling", 400, &[], r#"{"__type":"com.amazonaws.dynamodb.v20120810#ResourceInUseException"}"#, Temporary, "status 400: transient: ResourceInUseException", None),
    ("DynamoDB", "Error handling", 400, &[], r#"{"__type":"com.amazonaws.dynamodb.v20120810#ReplicatedWriteConflictException"}"#, Temporary, "status 400: busy: ReplicatedWriteConflictException", None),
    ("AWS", "API Gateway and Step Functions: errors", 400, &[], r#"{"__type":"RequestLimitExceededException"}"#, RateLimit, "status 400: throttled: RequestLimitExceeded", None),
    ("AWS", "Transcribe: ThrottledClientException", 400, &[], r#"{"__type":"ThrottledClientException"}"#, RateLimit, "status 400: rate limit: ThrottledClientException", None),
    ("Kinesis", "PutRecords: errors", 400, &[], r#"{"__type":"KMSThrottlingException"}"#, RateLimit, "status 400: rate limit: KMSThrottlingException", None),
    ("Glue", "StartJobRun: errors", 400, &[("x-amzn-errortype", "ConcurrentRunsExceededException")], "", RateLimit, "status 400: rate limit: ConcurrentRunsExceededException", None),
    ("SQS", "ReceiveMessage: errors", 403, &[], r#"{"__type":"com.amazonaws.sqs#OverLimit"}"#, RateLimit, "status 403: throttled: OverLimit", None),
    ("SQS", "PurgeQueue: errors", 403, &[], r#"{"__type":"com.amazonaws.sqs#PurgeQueueInProgress"}"#, Temporary, "status 403: busy: PurgeQueueInProgress", None),
    ("SQS", "SendMessageBatch: errors", 400, &[], r#"{"__type":"com.amazonaws.sqs#TooManyEntriesInBatchRequest"}"#, NonRetryable, "status 400: TooManyEntriesInBatchRequest", None),
    ("Bedrock", "InvokeModel: errors", 424, &[("x-amzn-errortype", "ModelErrorException")], "{}", Temporary, "status 424: transient: ModelErrorException", None),
    ("Connect", "Protocol: Error codes", 409, &[], r#"{"code":"aborted","message":"m"}"#, Temporary, "status 409: aborted", None),
    ("Twirp", "Specification: Error codes", 403, &[], r#"{"code":"resource_exhausted","msg":"m"}"#, RateLimit, "status 403: resource_exhausted", None),
    ("Google", "Drive, Resolve errors", 403, &[], r#"{"error":{"errors":[{"domain":"usageLimits","reason":"userRateLimitExceededUnreg"}]}}"#, RateLimit, "status 403: userRateLimitExceededUnreg", None),
    ("Google", "Drive, Resolve errors", 403, &[], r#"{"error":{"errors":[{"domain":"usageLimits","reason":"dailyLimitExceededUnreg"}]}}"#, Quota, "status 403: dailyLimitExceededUnreg", None),
    ("Google", "Global domain: errors", 403, &[], r#"{"error":{"errors":[{"domain":"usageLimits","reason":"concurrentLimitExceeded"}]}}"#, RateLimit, "status 403: concurrentLimitExceeded", None),
    ("Google", "Drive, Resolve errors", 403, &[], r#"{"error":{"errors":[{"reason":"downloadQuotaExceeded"}]}}"#, Quota, "status 403: downloadQuotaExceeded", None),
    ("Google", "Compute Engine, Troubleshooting", 400, &[], r#"{"error":{"errors":[{"reason":"resourceNotReady"}]}}"#, Temporary, "status 400: resourceNotReady", None),
    ("Google", "Compute Engine, Troubleshooting", 400, &[], r#"{"error":{"errors":[{"reason":"resourceInUseByAnotherResource"}]}}"#, NonRetryable, "status 400: resourceInUseByAnotherResource", None),
    ("OAuth", "RFC 6749 4.1.2.1", 400, &[], r#"{"error":"temporarily_unavailable"}"#, Temporary, "status 400: temporarily_unavailable", None),
    ("OAuth", "RFC 8628 3.5", 400, &[], r#"{"error":"slow_down"}"#, RateLimit, "status 400: slow_down", None),
    ("OAuth", "RFC 6749 5.2", 400, &[], r#"{"error":"invalid_grant"}"#, NonRetryable, "status 400: invalid_grant", None),
    ("Azure", "Resource Manager: StorageAccountOperationInProgress", 409, &[], r#"{"error":{"code":"StorageAccountOperationInProgress"}}"#, Temporary, "status 409: StorageAccountOperationInProgress", None),
    ("Azure", "Resource Manager: DeploymentActive", 409, &[], r#"{"error":{"code":"DeploymentActive"}}"#, Temporary, "status 409: DeploymentActive", None),
    ("Azure", "Storage, Blob service error codes", 409, &[("x-ms-error-code", "ContainerBeingDeleted")], "", Temporary, "status 409: busy: ContainerBeingDeleted", None),
    ("Azure", "Storage, Blob service error codes", 409, &[("x-ms-error-code", "BlobAlreadyExists")], "", NonRetryable, "status 409: BlobAlreadyExists", None),
    ("Microsoft Graph", "Excel: error handling", 423, &[], r#"{"error":{"code":"notAllowed","innerError":{"code":"resourceLocked"}}}"#, Temporary, "status 423: notAllowed", None),
    ("Plaid", "Errors: Institution", 400, &[], r#"{"error_type":"INSTITUTION_ERROR","error_code":"INSTITUTION_DOWN"}"#, Temporary, "status 400: INSTITUTION_DOWN", None),
    ("Plaid", "Errors: Institution", 400, &[], r#"{"error_type":"INSTITUTION_ERROR","error_code":"INSTITUTION_NOT_RESPONDING"}"#, Temporary, "status 400: INSTITUTION_NOT_RESPONDING", None),
    ("Plaid", "Errors: API", 400, &[], r#"{"error_type":"API_ERROR","error_code":"PLANNED_MAINTENANCE"}"#, Temporary, "status 400: PLANNED_MAINTENANCE", None),
    ("Plaid", "Errors: Item", 400, &[], r#"{"error_type":"ITEM_ERROR","error_code":"PRODUCT_NOT_READY"}"#, Temporary, "status 400: PRODUCT_NOT_READY", None),
    ("Plaid", "Errors: Item", 400, &[], r#"{"error_type":"ITEM_ERROR","error_code":"ITEM_LOCKED"}"#, NonRetryable, "status 400: ITEM_LOCKED", None),
    ("Instagram", "Content publishing: error codes", 400, &[], r#"{"error":{"message":"Media ID is not available","type":"OAuthException","code":9007,"error_subcode":2207027,"is_transient":false,"fbtrace_id":"A"}}"#, Temporary, "status 400: 9007, transient", None),
    ("TikTok", "Content Posting API: errors", 403, &[], r#"{"error":{"code":"spam_risk_too_many_posts","log_id":"x"}}"#, Quota, "status 403: spam_risk_too_many_posts", None),
    ("TikTok", "Content Posting API: errors", 403, &[], r#"{"error":{"code":"spam_risk_user_banned_from_posting"}}"#, NonRetryable, "status 403: spam_risk_user_banned_from_posting", None),
    ("NetSuite", "SuiteTalk: error codes", 400, &[], r#"{"error":{"code":"RCRD_HAS_BEEN_CHANGED"}}"#, Temporary, "status 400: RCRD_HAS_BEEN_CHANGED", None),
    ("StackExchange", "API, Throttles", 400, &[], r#"{"error_id":502,"error_message":"too many requests from this IP, more requests available in 82216 seconds","error_name":"throttle_violation"}"#, Quota, "status 400: throttle_violation", Some(82_216_000)),
    ("Databricks", "SQL: concurrent writes", 409, &[], r#"{"error_code":"DELTA_CONCURRENT_APPEND"}"#, Temporary, "status 409: DELTA_CONCURRENT_APPEND", None),
    ("Elasticsearch", "Fix watermark errors", 403, &[], r#"{"error":{"root_cause":[{"type":"cluster_block_exception","reason":"index [x] blocked by: [FORBIDDEN/12/index read-only / allow delete (api)];"}],"type":"cluster_block_exception"},"status":403}"#, Temporary, "status 403: cluster_block_exception", None),
    ("Elasticsearch", "Optimistic concurrency control", 409, &[], r#"{"error":{"type":"version_conflict_engine_exception"},"status":409}"#, NonRetryable, "status 409: version_conflict_engine_exception", None),
    ("S3", "Conditional writes", 409, &[], "<Error><Code>ConditionalRequestConflict</Code></Error>", Temporary, "status 409: ConditionalRequestConflict", None),
    ("Any", "a code with the letters of a part", 400, &[], r#"{"code":"CORPORATE_LIMIT_EXCEEDED"}"#, NonRetryable, "status 400: CORPORATE_LIMIT_EXCEEDED", None),
    ("Any", "a value at fault", 400, &[], r#"{"code":"invalid_rate_limit"}"#, NonRetryable, "status 400: invalid_rate_limit", None),
    ("Any", "a thing that is not there", 404, &[], r#"{"code":"RateLimitPolicyNotFound"}"#, NonRetryable, "status 404: RateLimitPolicyNotFound", None),
    ("Any", "the state of an object", 409, &[], r#"{"status":"in_progress","error":{"code":"already_paid"}}"#, NonRetryable, "status 409: already_paid", None),
    ("Any", "a limit by its status", 429, &[], r#"{"code":"concurrent_sessions"}"#, RateLimit, "status 429: concurrent_sessions", None),
    ("Stripe", "Declines", 402, &[], r#"{"error":{"code":"card_declined","decline_code":"do_not_try_again"}}"#, NonRetryable, "status 402: card_declined", None),
    ("Any", "a name in the request", 422, &[], r#"{"errors":[{"code":"taken","name":"slow_down","id":"throttled"}]}"#, NonRetryable, "status 422: taken", None),
    // Names of fields in any case, and other places.
    ("Alibaba Cloud", "ECS, Common errors", 400, &[], r#"{"RequestId":"x","Code":"Throttling.User","Message":"Request was denied due to user flow control."}"#, RateLimit, "status 400: Throttling.User", None),
    ("ASP.NET", "names as in C#", 400, &[], r#"{"Message":"slow","ErrorCode":"RATE_LIMIT_EXCEEDED"}"#, RateLimit, "status 400: RATE_LIMIT_EXCEEDED", None),
    ("UPS", "API, Errors", 403, &[], r#"{"response":{"errors":[{"code":"RATE_LIMIT_EXCEEDED","message":"x"}]}}"#, RateLimit, "status 403: RATE_LIMIT_EXCEEDED", None),
    ("OData", "version 3, errors", 400, &[], r#"{"odata.error":{"code":"TooManyRequests","message":{"lang":"en-US","value":"x"}}}"#, RateLimit, "status 400: TooManyRequests", None),
    ("Foursquare", "API v2, Responses and errors", 403, &[], r#"{"meta":{"code":403,"errorType":"quota_exceeded","errorDetail":"Quota exceeded"},"response":{}}"#, Quota, "status 403: quota_exceeded", None),
    ("Foursquare", "API v2, Responses and errors", 403, &[], r#"{"meta":{"code":403,"errorType":"not_authorized"},"response":{}}"#, NonRetryable, "status 403: not_authorized", None),
    // XML.
    ("SES", "Query API: errors", 400, &[], "<ErrorResponse xmlns=\"http://ses.amazonaws.com/doc/2010-12-01/\"><Error><Type>Sender</Type><Code>Throttling</Code></Error></ErrorResponse>", RateLimit, "status 400: Throttling", None),
    ("S3", "Error responses", 409, &[], "<?xml version=\"1.0\"?>\n<Error><Code>OperationAborted</Code></Error>", Temporary, "status 409: OperationAborted", None),
    ("S3", "Error responses", 400, &[], "<Error><Code>RequestTimeout</Code></Error>", Temporary, "status 400: transient: RequestTimeout", None),
    ("S3", "Error responses", 403, &[], "<Error><Code>AccessDenied</Code></Error>", NonRetryable, "status 403: access denied: AccessDenied", None),
    ("QuickBooks", "node-quickbooks #83", 403, &[], "<?xml version=\"1.0\"?><IntuitResponse><Fault type=\"SERVICE\"><Error code=\"3001\"><Message>message=ThrottleExceeded; errorCode=003001; statusCode=403</Message></Error></Fault></IntuitResponse>", RateLimit, "status 403: 3001", None),
    ("QuickBooks", "node-quickbooks #83", 403, &[], r#"{"Fault":{"Error":[{"Message":"message=ThrottleExceeded; errorCode=003001; statusCode=403","code":"3001"}]}}"#, RateLimit, "status 403: 3001", None),
    ("Salesforce", "SOAP API, Core data types: StatusCode", 500, &[], "<soapenv:Envelope><soapenv:Body><soapenv:Fault><faultcode>sf:REQUEST_LIMIT_EXCEEDED</faultcode></soapenv:Fault></soapenv:Body></soapenv:Envelope>", Quota, "status 500: REQUEST_LIMIT_EXCEEDED", None),
    ("SOAP", "1.1, Fault", 500, &[], "<s:Envelope><s:Body><s:Fault><faultcode>s:Client</faultcode></s:Fault></s:Body></s:Envelope>", NonRetryable, "status 500: Client", None),
    ("SOAP", "1.1, Fault", 500, &[], "<SOAP-ENV:Fault><faultcode>SOAP-ENV.Client</faultcode><faultstring>Server did not recognize the action</faultstring></SOAP-ENV:Fault>", NonRetryable, "status 500: Client", None),
    ("SOAP", "1.1, Fault", 500, &[], "<s:Fault><faultcode>s:Server</faultcode><faultstring>x</faultstring></s:Fault>", Temporary, "status 500: Server", None),
    ("SOAP", "1.1, Fault", 500, &[], "<s:Fault><faultcode>s:Client.Throttling</faultcode><faultstring>x</faultstring></s:Fault>", RateLimit, "status 500: Client.Throttling", None),
    ("SOAP", "1.1, Fault", 500, &[], "<s:Fault><faultcode>s:Client.Other</faultcode><faultstring>x</faultstring></s:Fault>", Temporary, "status 500: Other", None),
    ("SOAP", "1.1, Fault", 503, &[], "<s:Fault><faultcode>s:Client</faultcode><faultstring>x</faultstring></s:Fault>", Temporary, "status 503: Client", None),
    ("SOAP", "1.1, Fault", 500, &[("Retry-After", "9")], "<s:Fault><faultcode>s:Client</faultcode><faultstring>x</faultstring></s:Fault>", Temporary, "status 500: Client", Some(9_000)),
    ("SOAP", "1.2, Fault", 500, &[], "<e:Fault><e:Code><e:Value>e:Sender</e:Value></e:Code><e:Reason><e:Text>no order</e:Text></e:Reason></e:Fault>", NonRetryable, "status 500: Sender", None),
    ("SOAP", "1.2, Fault", 500, &[], "<e:Fault><e:Code><e:Value>e:Receiver</e:Value></e:Code></e:Fault>", Temporary, "status 500: Receiver", None),
    ("WCF", "FaultException: its default code", 500, &[], "<s:Fault><faultcode>s:Client</faultcode><faultstring>The database is busy.</faultstring></s:Fault>", Temporary, "status 500: Client", None),
    ("WCF", "FaultException: its default code", 500, &[], "<s:Fault><faultcode>s:Client</faultcode><faultstring>The operation has timed out</faultstring></s:Fault>", Temporary, "status 500: Client", None),
    ("WCF", "InternalServiceFault", 500, &[], "<s:Fault><faultcode>a:InternalServiceFault</faultcode><faultstring>x</faultstring></s:Fault>", Temporary, "status 500: InternalServiceFault", None),
    ("Any", "a code of JSON", 500, &[], r#"{"code":"Client"}"#, Temporary, "status 500: Client", None),
    ("Any", "a page of HTML", 403, &[], "<!DOCTYPE html><p>Send <code>Throttling</code> to us", NonRetryable, "status 403", None),
    ("Any", "text in XML", 403, &[], "<Error><Message>Throttling</Message><CountryCode>SlowDown</CountryCode></Error>", NonRetryable, "status 403", None),
    // A 420, and the gateways' 403.
    ("Mailgun", "mailgun.js #413", 420, &[], r#"{"message":"Domain x.io is not allowed to send: recipient limit exceeded, try again after Tue, 14 Nov 2023 22:43:20 UTC"}"#, RateLimit, "status 420", Some(1_800_000)),
    ("SparkPost", "API, Errors: sending limit", 420, &[], r#"{"errors":[{"message":"Exceed Sending Limit (daily)","code":"2101"}]}"#, Quota, "status 420: 2101", None),
    ("Tyk", "Request quotas", 403, &[], r#"{"error":"Quota exceeded"}"#, Quota, "status 403: Quota exceeded", None),
    ("Tyk", "Keys: errors", 403, &[], r#"{"error":"Access to this API has been disallowed"}"#, NonRetryable, "status 403", None),
    ("Any", "the same words with another status", 400, &[], r#"{"error":"Quota exceeded"}"#, NonRetryable, "status 400", None),
    ("Mashery", "Error codes", 403, &[("X-Mashery-Error-Code", "ERR_403_DEVELOPER_OVER_QPS")], "<h1>Developer Over Qps</h1>", RateLimit, "status 403: rate limit: ERR_403_DEVELOPER_OVER_QPS", None),
    ("Mashery", "Error codes", 403, &[("X-Mashery-Error-Code", "ERR_403_DEVELOPER_OVER_RATE")], "", Quota, "status 403: quota exceeded: ERR_403_DEVELOPER_OVER_RATE", None),
    ("Mashery", "Error codes", 403, &[("X-Mashery-Error-Code", "ERR_403_NOT_AUTHORIZED")], "", NonRetryable, "status 403: ERR_403_NOT_AUTHORIZED", None),
    // A delay in the body.
    ("Google Ads", "API, Rate limits", 429, &[], r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.ads.googleads.v21.errors.GoogleAdsFailure","errors":[{"errorCode":{"quotaError":"RESOURCE_EXHAUSTED"},"details":{"quotaErrorDetails":{"rateScope":"DEVELOPER","retryDelay":"40591s"}}}]}]}}"#, RateLimit, "status 429: RESOURCE_EXHAUSTED", Some(40_591_000)),
    ("Gmail", "Resolve errors", 429, &[], r#"{"error":{"code":429,"message":"User-rate limit exceeded.  Retry after 2023-11-14T23:13:20.000Z","errors":[{"reason":"rateLimitExceeded"}]}}"#, RateLimit, "status 429: rateLimitExceeded", Some(3_600_000)),
    ("Groq", "Rate limits", 429, &[], r#"{"error":{"message":"Rate limit reached on tokens per day (TPD): Limit 100000. Please try again in 7m37.056s.","type":"tokens","code":"rate_limit_exceeded"}}"#, RateLimit, "status 429: rate_limit_exceeded", Some(457_056)),
    ("monday.com", "Rate limits", 429, &[], r#"{"errors":[{"message":"m","extensions":{"code":"COMPLEXITY_BUDGET_EXHAUSTED","retry_in_seconds":18}}]}"#, RateLimit, "status 429: COMPLEXITY_BUDGET_EXHAUSTED", Some(18_000)),
    ("Infura", "Rate limits", 429, &[], r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"m","data":{"rate":{"allowed_rps":1,"backoff_seconds":30}}}}"#, RateLimit, "status 429", Some(30_000)),
    ("Any", "a time in the body", 429, &[], r#"{"retryAfter":"2023-11-14T22:14:20Z"}"#, RateLimit, "status 429", Some(60_000)),
    ("Any", "the request in the body", 429, &[], r#"{"request":{"retry_after":9000,"note":"try again in 9 hours"}}"#, RateLimit, "status 429", None),
    ("Any", "a message of no limit", 503, &[], r#"{"message":"Try again in 9 hours"}"#, Temporary, "status 503", None),
    // A delay under other names.
    ("NestJS", "throttler: named throttlers", 429, &[("Retry-After-short", "7")], r#"{"statusCode":429,"message":"ThrottlerException: Too Many Requests"}"#, RateLimit, "status 429", Some(7_000)),
    ("Jira", "Rate limiting: beta headers", 429, &[("Beta-Retry-After", "31")], "", RateLimit, "status 429", Some(31_000)),
    ("Walmart", "Marketplace API, Rate limiting", 429, &[("x-current-token-count", "0"), ("X-Next-Replenishment-Time", "1700000042000")], "", RateLimit, "status 429", Some(42_000)),
    ("Contentful", "API rate limits", 429, &[("X-Contentful-RateLimit-Reset", "7")], r#"{"sys":{"type":"Error","id":"RateLimitExceeded"}}"#, RateLimit, "status 429", Some(7_000)),
    ("Anthropic", "claude-code issues: unified limits", 429, &[("anthropic-ratelimit-unified-status", "rejected"), ("anthropic-ratelimit-unified-reset", "1700000077")], r#"{"type":"error","error":{"type":"rate_limit_error"}}"#, RateLimit, "status 429: rate_limit_error", Some(77_000)),
    ("Any", "a duration of days", 429, &[("Retry-After", "P1D")], "", Quota, "status 429", Some(86_400_000)),
    // A limit of a day or longer, by words and names.
    ("Cohere", "Rate limits: trial keys", 429, &[], r#"{"message":"You are using a Trial key, which is limited to 1000 API calls / month."}"#, Quota, "status 429", None),
    ("Cohere", "Rate limits: trial keys", 429, &[], r#"{"message":"You are using a Trial key, which is limited to 40 API calls / minute."}"#, RateLimit, "status 429", None),
    ("Any", "words of a day", 429, &[], r#"{"message":"limit of 500 requests/day reached"}"#, Quota, "status 429", None),
    ("Any", "words of a day", 429, &[], r#"{"message":"the limit of 1000 requests per 24 hours"}"#, Quota, "status 429", None),
    ("Any", "words of a day", 429, &[], r#"{"message":"You have reached your request limit for today"}"#, Quota, "status 429", None),
    ("Any", "words of a week", 429, &[], r#"{"message":"Weekly limit reached"}"#, Quota, "status 429", None),
    ("Pinecone", "Limits: read units", 429, &[], r#"{"error":{"code":"RESOURCE_EXHAUSTED","message":"You've reached your read unit limit for the current month (1000000)."},"status":429}"#, Quota, "status 429: RESOURCE_EXHAUSTED", None),
    ("Amadeus", "Common errors: 38195", 429, &[], r#"{"errors":[{"code":38195,"title":"Quota limit exceeded","detail":"You have exceeded your monthly quota","status":429}]}"#, Quota, "status 429: 38195", None),
    ("Resend", "API, Errors", 429, &[], r#"{"statusCode":429,"name":"daily_quota_exceeded","message":"You have reached your daily email sending quota."}"#, Quota, "status 429: daily_quota_exceeded", None),
    ("WSO2", "API Manager, Throttling", 429, &[], r#"{"code":"900804","message":"Message throttled out","nextAccessTime":"2023-Nov-15 22:13:20+0000 UTC"}"#, Quota, "status 429: 900804", Some(86_400_000)),
    ("Cloudflare", "Workers, Errors: 1027", 429, &[], "error code: 1027", Quota, "status 429: 1027", None),
    ("Cloudflare", "Errors: 1015", 429, &[("Retry-After", "15")], "error code: 1015", RateLimit, "status 429: 1015", Some(15_000)),
    ("HubSpot", "Usage guidelines: headers", 429, &[("X-HubSpot-RateLimit-Daily-Remaining", "0")], r#"{"status":"error","message":"You have reached your limit."}"#, Quota, "status 429", None),
    ("HubSpot", "Usage guidelines: headers", 429, &[("X-HubSpot-RateLimit-Daily-Remaining", "9"), ("X-HubSpot-RateLimit-Remaining", "0")], "", RateLimit, "status 429", None),
    ("Mistral", "Rate limits: headers", 429, &[("x-ratelimitbysize-remaining-month", "0")], "", Quota, "status 429", None),
    ("Etsy", "Open API, Rate limits", 429, &[("x-remaining-today", "0")], "", Quota, "status 429", None),
    ("Selling Partner API", "Usage plans and rate limits", 429, &[], r#"{"errors":[{"code":"QuotaExceeded","message":"You exceeded your quota for the requested resource."}]}"#, RateLimit, "status 429: QuotaExceeded", None),
    // Codes where their providers put them; the class is that of the status.
    ("Anthropic", "Errors", 400, &[], r#"{"type":"error","error":{"type":"invalid_request_error","message":"m"}}"#, NonRetryable, "status 400: invalid_request_error", None),
    ("Anthropic", "Errors", 529, &[], r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Temporary, "status 529: overloaded_error", None),
    ("Elasticsearch", "Tune for indexing speed", 429, &[], r#"{"error":{"root_cause":[{"type":"es_rejected_execution_exception","reason":"rejected execution of coordinating operation"}],"type":"es_rejected_execution_exception"},"status":429}"#, RateLimit, "status 429: es_rejected_execution_exception", None),
    ("Elasticsearch", "Mapping: explicit mapping", 400, &[], r#"{"error":{"root_cause":[{"type":"document_parsing_exception","reason":"failed to parse field [x]"}],"type":"document_parsing_exception","reason":"failed to parse field [x]"},"status":400}"#, NonRetryable, "status 400: document_parsing_exception", None),
    ("Twilio", "Error and warning dictionary", 400, &[], r#"{"code":21211,"message":"Invalid 'To' Phone Number","status":400}"#, NonRetryable, "status 400: 21211", None),
    ("Apollo GraphQL", "Error handling: built-in error codes", 400, &[], r#"{"errors":[{"message":"m","extensions":{"code":"BAD_USER_INPUT"}}]}"#, NonRetryable, "status 400: BAD_USER_INPUT", None),
    ("Google Cloud", "AIP-193, Errors: ErrorInfo", 403, &[], r#"{"error":{"code":403,"status":"PERMISSION_DENIED","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_DISABLED","domain":"googleapis.com"}]}}"#, NonRetryable, "status 403: API_DISABLED", None),
    ("Stripe", "Error codes", 402, &[], r#"{"error":{"code":"card_declined","decline_code":"generic_decline","type":"card_error"}}"#, NonRetryable, "status 402: card_declined", None),
    ("Adyen", "Error codes and troubleshooting", 422, &[], r#"{"status":422,"errorCode":"130","message":"Required field 'reference' is not provided.","errorType":"validation"}"#, NonRetryable, "status 422: 130", None),
    ("PayPal", "Rate limiting guidelines", 429, &[], r#"{"name":"RATE_LIMIT_REACHED","message":"Too many requests."}"#, RateLimit, "status 429: RATE_LIMIT_REACHED", None),
    ("Square", "Handling errors", 429, &[], r#"{"errors":[{"category":"RATE_LIMIT_ERROR","code":"RATE_LIMITED","detail":"m"}]}"#, RateLimit, "status 429: RATE_LIMITED", None),
    ("Cloudflare", "5xx errors", 522, &[], "error code: 522", Temporary, "status 522", None),
    ("DigitalOcean", "API, Rate limit", 429, &[("ratelimit-remaining", "0"), ("ratelimit-reset", "1700000060")], r#"{"id":"too_many_requests","message":"API Rate limit exceeded."}"#, RateLimit, "status 429: too_many_requests", Some(60_000)),
];

#[test]
fn the_responses_of_providers_have_class_reason_and_delay() {
    let mut wrong = Vec::new();
    for (provider, source, status, headers, body, class, reason, millis) in SHOWN {
        let failure = answered(*status, headers, body);
        let found = (failure.class(), failure.detail(), failure.delay());
        if found != (*class, *reason, millis.map(Duration::from_millis)) {
            wrong.push(format!("{provider}, {source}: {status} {headers:?} {body}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let providers: BTreeSet<&str> = SHOWN.iter().map(|row| row.0).collect();
    assert!(SHOWN.len() >= 60 && providers.len() >= 30, "{} of {}", SHOWN.len(), providers.len());
}

#[test]
fn a_challenge_says_that_the_service_is_not_reached() {
    for status in [200, 202, 403, 405, 429] {
        let failure =
            answered(status, &[("x-amzn-waf-action", "CHALLENGE"), ("Retry-After", "5")], "");
        assert!(failure.is_service_down() && !failure.is_service_up() && !failure.is_in_doubt());
        assert_eq!(failure.delay(), Some(Duration::from_secs(5)), "{status}");
    }
    let headers: [(&str, &[u8]); 1] = [("x-amzn-waf-action", b"count")];
    let response = Response { status: 200, headers: &headers, body: b"" };
    assert_eq!(Failure::from_success(&response, SystemTime::UNIX_EPOCH), None);
    let rules: Rules =
        r#"{"rules":[{"match":{"header":{"cf-mitigated":true}},"class":"NON_RETRYABLE"}]}"#
            .parse()
            .expect("a rule");
    let failure = rules.within(|| answered(403, &[("cf-mitigated", "challenge")], ""));
    assert_eq!(failure.class(), NonRetryable);
}

#[test]
fn a_header_that_nobody_can_mean_is_ignored_and_the_reason_says_so() {
    const PAST: &str = "ignored: past, or over a year away";
    let micros = &[("Retry-After", "1700000060000000")];
    let absurd = &[("X-RateLimit-Reset", "170000006000"), LEFT];
    for (status, headers, class, reason, millis) in [
        (503, &micros[..], Temporary, "status 503".to_owned(), Some(60_000)),
        (
            503,
            &[("Retry-After", "2021-01-01T00:00:00Z")],
            Temporary,
            format!("status 503, retry-after {PAST}"),
            None,
        ),
        (
            409,
            &[("Retry-After", "99999999999")],
            NonRetryable,
            format!("status 409, retry-after {PAST}"),
            None,
        ),
        (429, &absurd[..1], RateLimit, format!("status 429, x-ratelimit-reset {PAST}"), None),
        (403, absurd, RateLimit, format!("status 403: rate limit, x-ratelimit-reset {PAST}"), None),
        // Nobody waits for it.
        (404, &[("Retry-After", "99999999999")], NonRetryable, "status 404".to_owned(), None),
        (503, &absurd[..1], Temporary, "status 503".to_owned(), None),
        // Another header names a delay.
        (
            429,
            &[("Retry-After", "99999999999"), ("retry-after-ms", "9")],
            RateLimit,
            "status 429".to_owned(),
            Some(9),
        ),
    ] {
        let failure = answered(status, headers, "");
        assert_eq!(
            (failure.class(), failure.detail(), failure.delay()),
            (class, &*reason, millis.map(Duration::from_millis)),
            "{status} {headers:?}"
        );
    }
}

#[test]
fn a_delay_decides_a_status_that_cannot_speak_of_the_request() {
    for name in ["Retry-After", "retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after"] {
        for status in 400..500 {
            let without = answered(status, &[], "");
            let with = answered(status, &[(name, "30")], "");
            let is_final = matches!(status, 400 | 402 | 404..=406 | 410 | 411 | 414..=417 | 422 | 428 | 431 | 451);
            assert_eq!(with.class() == NonRetryable, is_final, "{status} with {name}");
            let is_retried_anyway =
                matches!(status, 408 | 420 | 421 | 423..=425 | 429 | 449 | 456 | 498 | 499);
            assert_eq!(without.class() != NonRetryable, is_retried_anyway, "{status}");
            assert_eq!(with.delay().is_some(), !is_final, "{status} with {name}");
        }
    }
}

#[test]
fn one_unusual_byte_hides_no_code() {
    let rows: [(&[u8], &[u8], FailureClass); 11] = [
        (b"\xef\xbb\xbf", b"}", RateLimit),
        (b"", b",\"message\":\"M\xfcller\"}", RateLimit),
        (b"", b"}\0\0", RateLimit),
        (b"", b"}\r\n \0\n", RateLimit),
        (b"", br#","message":"cut \ud83d"}"#, RateLimit),
        (b"", br#","message":"\uDE00 \ud83d\ude00 \\ud83d"}"#, RateLimit),
        (b"\xef\xbb\xbf[", b",\"message\":\"\xff \\uD83D\"}]\0", RateLimit),
        (b"", b"", NonRetryable),
        (b"", br#","message":"\ud83"}"#, NonRetryable),
        (b"\xff", b"}", NonRetryable),
        (b"<p>", b"}", NonRetryable),
    ];
    for (before, after, class) in rows {
        let body = [before, br#"{"code":"THROTTLED""#, after].concat();
        let response = Response { status: 400, headers: &[], body: &body };
        let failure = Failure::from_response(&response, SystemTime::UNIX_EPOCH);
        assert_eq!(failure.class(), class, "{}", body.escape_ascii());
    }
}

#[test]
fn a_field_of_the_request_chooses_no_class_but_a_rule_may_name_it() {
    let rules: Rules =
        r#"{"rules":[{"match":{"code":"throttled"},"class":"QUOTA"}]}"#.parse().expect("a rule");
    for (status, body, class, by_rule) in [
        (422, r#"{"errors":[{"name":"throttled","message":"m"}]}"#, NonRetryable, Quota),
        (422, r#"{"details":[{"id":"throttled","issue":"INVALID"}]}"#, NonRetryable, Quota),
        (400, r#"{"error":{"details":{"name":"throttled"}}}"#, NonRetryable, Quota),
        (400, r#"{"errors":[{"error":{"name":"throttled"}}]}"#, NonRetryable, Quota),
        (400, r#"{"errors":[{"message":"RATE_LIMITED"}]}"#, NonRetryable, NonRetryable),
        (422, r#"{"errors":[{"field":"throttled"}]}"#, NonRetryable, NonRetryable),
        (422, r#"{"errors":[{"code":"throttled"}]}"#, RateLimit, Quota),
        (400, r#"{"error":{"name":"throttled"}}"#, RateLimit, Quota),
        (400, r#"{"id":"throttled"}"#, RateLimit, Quota),
    ] {
        assert_eq!(answered(status, &[], body).class(), class, "{body}");
        let found = rules.within(|| answered(status, &[], body));
        assert_eq!(found.class(), by_rule, "{body}");
    }
}

#[test]
fn a_rule_matches_a_code_wherever_a_provider_puts_it() {
    for (status, body, code) in [
        (400, r#"{"errors":[{"extensions":{"code":"X-1"}}]}"#, "X-1"),
        (400, r#"{"type":"error","error":{"type":"X-1"}}"#, "X-1"),
        (400, r#"{"status":"error","category":"X-1"}"#, "X-1"),
        (409, r#"{"error_summary":"X-1/..","error":{".tag":"X-1"}}"#, "X-1"),
        (409, r#"{"error_summary":"path/conflict/file/.."}"#, "path/conflict/file"),
        (400, r#"{"error":{"root_cause":[{"type":"X-1"}],"type":"y"},"status":400}"#, "X-1"),
        (400, r#"{"error":{"errors":[{"reason":"X-1"}]}}"#, "X-1"),
        (400, r#"{"error":{"details":[{"reason":"X-1"}]}}"#, "X-1"),
        (500, r#"{"fault":{"detail":{"errorcode":"X-1"}}}"#, "X-1"),
        (400, r#"{"Fault":{"Error":[{"code":"X-1"}]}}"#, "X-1"),
        (400, r#"{"type":"https://example.com/probs/X-1"}"#, "X-1"),
        (400, r#"{"error_code":"X-1"}"#, "X-1"),
        (422, r#"{"name":"UNPROCESSABLE_ENTITY","details":[{"issue":"X-1"}]}"#, "X-1"),
    ] {
        let rules: Rules =
            format!(r#"{{"rules":[{{"match":{{"code":"{code}"}},"class":"QUOTA"}}]}}"#)
                .parse()
                .expect("a rule");
        let failure = rules.within(|| answered(status, &[], body));
        assert_eq!(failure.class(), Quota, "{body}");
    }
}

#[test]
fn a_success_fails_only_by_a_rule_that_names_its_status() {
    const TEAMS: &str = "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 429 with ContextId";
    const SLACK: &str = r#"{"ok":false,"error":"ratelimited"}"#;
    const GRAPHQL: &str =
        r#"{"data":null,"errors":[{"message":"m","extensions":{"code":"THROTTLED"}}]}"#;
    let of = |condition: &str, status, headers: &[(&str, &[u8])], body: &str| {
        let rules = format!(r#"{{"rules":[{{"match":{condition},"class":"RATE_LIMIT"}}]}}"#);
        let rules: Rules = rules.parse().expect(condition);
        let response = Response { status, headers, body: body.as_bytes() };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        rules.within(|| (names_status(status), Failure::from_success(&response, now)))
    };
    let retry: &[(&str, &[u8])] = &[("Retry-After", b"7")];
    for (condition, status, body, is_read, reason) in [
        (
            r#"{"status":200,"words":"HTTP error 429"}"#,
            200,
            TEAMS,
            true,
            Some("status 200, by rules[0]"),
        ),
        (
            r#"{"status":200,"code":"ratelimited"}"#,
            200,
            SLACK,
            true,
            Some("status 200: ratelimited, by rules[0]"),
        ),
        (
            r#"{"status":"2xx","code":"THROTTLED"}"#,
            200,
            GRAPHQL,
            true,
            Some("status 200: THROTTLED, by rules[0]"),
        ),
        (
            r#"{"status":["2xx",409],"code":"THROTTLED"}"#,
            201,
            GRAPHQL,
            true,
            Some("status 201: THROTTLED, by rules[0]"),
        ),
        (r#"{"status":200,"code":"ratelimited"}"#, 200, r#"{"ok":true}"#, true, None),
        (r#"{"status":200,"code":"ratelimited"}"#, 200, &SLACK[..20], true, None),
        (r#"{"status":200,"code":"ratelimited"}"#, 202, SLACK, false, None),
        // A rule for failures makes none of a success.
        (r#"{"code":"ratelimited"}"#, 200, SLACK, false, None),
        (r#"{"words":"failed"}"#, 200, TEAMS, false, None),
        (r#"{"header":{"retry-after":true}}"#, 200, SLACK, false, None),
    ] {
        let (names, failure) = of(condition, status, retry, body);
        assert_eq!(names, is_read, "{condition} {status}");
        assert_eq!(failure.as_ref().map(Failure::detail), reason, "{condition} {status} {body}");
        if let Some(failure) = failure {
            assert!(failure.is_service_up());
            assert_eq!(failure.delay(), Some(Duration::from_secs(7)));
        }
    }
    let response = Response { status: 200, headers: &[], body: SLACK.as_bytes() };
    assert_eq!(Failure::from_success(&response, SystemTime::UNIX_EPOCH), None);
}
