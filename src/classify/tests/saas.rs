//! Software that is rented.

use super::*;

#[test]
fn limits_of_a_day_and_of_a_moment_are_told_apart_where_the_answer_does() {
    const SALESFORCE: &str = "Salesforce REST API, Status codes and error responses";
    const HUBSPOT: &str = "HubSpot, API usage guidelines and limits";
    const XERO: &str = "Xero, OAuth 2.0 API limits";
    const DAILY: &str =
        r#"[{"message":"TotalRequests Limit exceeded.","errorCode":"REQUEST_LIMIT_EXCEEDED"}]"#;
    const ROW: &str = r#"[{"message":"unable to obtain exclusive access to this record","errorCode":"UNABLE_TO_LOCK_ROW"}]"#;
    const FIELD: &str =
        r#"[{"message":"No such column 'quota exceeded'","errorCode":"INVALID_FIELD"}]"#;
    const SECONDLY: &str = r#"{"status":"error","message":"You have reached your ten_secondly_rolling limit.",
        "errorType":"RATE_LIMIT","policyName":"TEN_SECONDLY_ROLLING"}"#;
    const DAY: &str = r#"{"status":"error","message":"You have reached your daily limit.","errorType":"RATE_LIMIT","policyName":"DAILY"}"#;
    const OF_REQUEST: &str = r#"{"status":"error","errors":[{"policyName":"DAILY","message":"ConcurrentRequests"}],"category":"VALIDATION_ERROR"}"#;
    const AT_ONCE: &str = r#"[{"message":"ConcurrentRequests (Concurrent API Requests) Limit exceeded.","errorCode":"REQUEST_LIMIT_EXCEEDED"}]"#;
    const AT_ONCE_LONG: &str = r#"[{"message":"ConcurrentPerOrgLongTxn Limit exceeded.","errorCode":"REQUEST_LIMIT_EXCEEDED"}]"#;
    let minute = &[("Retry-After", "42"), ("X-Rate-Limit-Problem", "minute")];
    assert_told(&[
        (SALESFORCE, 403, &[], DAILY, Quota, None),
        (SALESFORCE, 403, &[], AT_ONCE, RateLimit, None),
        (SALESFORCE, 403, &[], AT_ONCE_LONG, RateLimit, None),
        (
            SALESFORCE,
            403,
            &[],
            r#"[{"message":"Concurrent edits","errorCode":"FORBIDDEN"}]"#,
            NonRetryable,
            None,
        ),
        (SALESFORCE, 400, &[], ROW, Temporary, None),
        (SALESFORCE, 400, &[], FIELD, NonRetryable, None),
        (SALESFORCE, 401, &[], r#"[{"errorCode":"INVALID_SESSION_ID"}]"#, NonRetryable, None),
        (SALESFORCE, 503, &[], r#"[{"errorCode":"SERVER_UNAVAILABLE"}]"#, Temporary, None),
        (HUBSPOT, 429, &[], SECONDLY, RateLimit, None),
        (HUBSPOT, 429, &[], DAY, Quota, None),
        (HUBSPOT, 400, &[], OF_REQUEST, NonRetryable, None),
        (XERO, 429, minute, "", RateLimit, Some(42_000)),
    ]);
}

#[test]
fn a_reset_is_a_time_of_day_at_some_and_a_delay_at_others() {
    let okta = &[
        ("X-Rate-Limit-Remaining", "0"),
        ("X-Rate-Limit-Reset", "1700003660"),
        ("Date", "Tue, 14 Nov 2023 23:13:20 GMT"),
    ];
    let x = &[("x-rate-limit-remaining", "0"), ("x-rate-limit-reset", "1700000900")];
    let x_left = &[("x-rate-limit-remaining", "7"), ("x-rate-limit-reset", "1700000900")];
    let auth0 = &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000060")];
    let delta = &[("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "45")];
    let pagerduty = &[("ratelimit-remaining", "0"), ("ratelimit-reset", "12")];
    let jira = &[("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "2023-11-14T22:14Z")];
    let past = &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1699999999")];
    assert_told(&[
        // By the clock of the server, which is an hour ahead of ours.
        ("Okta, Rate limits: HTTP headers", 429, okta, "", RateLimit, Some(60_000)),
        (
            "X API, Rate limits",
            429,
            x,
            r#"{"title":"Too Many Requests","status":429}"#,
            RateLimit,
            Some(900_000),
        ),
        ("X API, Rate limits", 403, x, "", RateLimit, Some(900_000)),
        ("X API, Rate limits", 403, x_left, "", NonRetryable, None),
        (
            "Auth0, Rate limit headers",
            429,
            auth0,
            r#"{"errorCode":"too_many_requests"}"#,
            RateLimit,
            Some(60_000),
        ),
        ("Auth0, Rate limit headers", 429, past, "", RateLimit, None),
        ("Datadog API, Rate limits", 429, delta, "", RateLimit, Some(45_000)),
        ("Reddit, Data API Wiki: rate limit", 429, delta, "", RateLimit, Some(45_000)),
        (
            "PagerDuty, REST API rate limits",
            429,
            pagerduty,
            r#"{"error":{"code":2020}}"#,
            RateLimit,
            Some(12_000),
        ),
        ("Jira Cloud, Rate limiting", 429, jira, "", RateLimit, Some(40_000)),
    ]);
}

#[test]
fn most_name_a_retry_after() {
    const TAG: &str = r#"{"error_summary":"too_many_requests/..","error":{"reason":{".tag":"too_many_requests"},"retry_after":15}}"#;
    let after = |seconds| [("Retry-After", seconds)];
    assert_told(&[
        ("Zendesk, Rate limits", 429, &after("93"), "", RateLimit, Some(93_000)),
        ("Zendesk, API: conflicts", 409, &[], r#"{"error":"RecordConflict"}"#, NonRetryable, None),
        ("Jira Cloud, Rate limiting", 503, &after("5"), "", Temporary, Some(5_000)),
        (
            "Notion API, Request limits",
            429,
            &after("1"),
            r#"{"code":"rate_limited"}"#,
            RateLimit,
            Some(1_000),
        ),
        ("Notion API, Status codes", 409, &[], r#"{"code":"conflict_error"}"#, Temporary, None),
        ("Notion API, Status codes", 504, &[], r#"{"code":"gateway_timeout"}"#, Temporary, None),
        (
            "Airtable Web API, Rate limits",
            429,
            &[],
            r#"{"errors":[{"error":"RATE_LIMIT_REACHED"}]}"#,
            RateLimit,
            None,
        ),
        ("Asana, Rate limits", 429, &after("30"), "", RateLimit, Some(30_000)),
        ("Dropbox, Error handling guide", 429, &after("15"), TAG, RateLimit, Some(15_000)),
        (
            "Box, Rate limits",
            429,
            &after("8"),
            r#"{"code":"rate_limit_exceeded"}"#,
            RateLimit,
            Some(8_000),
        ),
        ("Sentry, Rate limiting in SDKs", 429, &after("60"), "", RateLimit, Some(60_000)),
        (
            "Spotify Web API, Rate limits",
            429,
            &after("3"),
            r#"{"error":{"status":429}}"#,
            RateLimit,
            Some(3_000),
        ),
        ("Heroku Platform API, Rate limits", 429, &[], r#"{"id":"rate_limit"}"#, RateLimit, None),
        (
            "Intercom API, HTTP responses",
            400,
            &after("9"),
            r#"{"type":"error.list"}"#,
            NonRetryable,
            None,
        ),
    ]);
}

#[test]
fn a_success_in_which_a_service_says_an_error_has_the_class_of_that_error() {
    const ALCHEMY: &str = "Alchemy, Throughput: error response";
    const GOOGLE: &str = "Google Cloud APIs, Error model: HTTP mapping";
    const APOLLO: &str = "Apollo Server, Error handling: built-in error codes";
    const YOGA: &str = "GraphQL Yoga, Error masking: HTTP status";
    const AKENEO: &str = "Akeneo GraphQL API, Status and error codes";
    const SHOPIFY: &str = "Shopify, GraphQL Admin API: status and error codes";
    const GITHUB: &str = "GitHub GraphQL API, Rate limits";
    const SLACK: &str = "Slack Web API, chat.postMessage: errors";
    const TELEGRAM: &str = "Telegram Bot API, Making requests";
    const CONNECT: &str = "Connect protocol, Error end-stream";
    const EIP_1474: &str = "EIP-1474, Error codes";
    const GATEWAY: &str = "gRPC-Gateway, Stream error handling";
    let wait = &[("Retry-After", "7")];
    let coded = |code: &str| {
        format!(r#"{{"data":null,"errors":[{{"message":"m","extensions":{{"code":"{code}"}}}}]}}"#)
    };
    let rpc = |code: i32| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"m"}}}}"#)
    };
    let slack = |error: &str| format!(r#"{{"ok":false,"error":"{error}"}}"#);
    let google = |code: u16, status: &str| {
        format!(r#"{{"error":{{"code":{code},"message":"m","status":"{status}"}}}}"#)
    };
    let yoga = r#"{"errors":[{"message":"m","extensions":{"http":{"status":503}}}]}"#;
    let akeneo = r#"{"errors":[{"message":"m","extensions":{"http_code":401}}]}"#;
    let github = r#"{"errors":[{"type":"RATE_LIMITED","message":"m"}]}"#;
    let telegram = r#"{"ok":false,"error_code":429,"parameters":{"retry_after":5}}"#;
    let connect = r#"{"error":{"code":"unavailable","message":"m"}}"#;
    let stream = r#"{"error":{"grpc_code":8,"http_code":429,"http_status":"Too Many Requests"}}"#;
    assert_told(&[
        (ALCHEMY, 200, wait, &rpc(429), RateLimit, Some(7_000)),
        (GOOGLE, 200, &[], &google(429, "RESOURCE_EXHAUSTED"), RateLimit, None),
        (GOOGLE, 200, &[], &google(503, "UNAVAILABLE"), Temporary, None),
        (GOOGLE, 200, &[], &google(404, "NOT_FOUND"), NonRetryable, None),
        (GOOGLE, 200, &[], r#"[{"error":{"status":"PERMISSION_DENIED"}}]"#, NonRetryable, None),
        (APOLLO, 200, &[], &coded("BAD_USER_INPUT"), NonRetryable, None),
        (APOLLO, 200, &[], &coded("UNAUTHENTICATED"), NonRetryable, None),
        (APOLLO, 200, &[], &coded("INTERNAL_SERVER_ERROR"), Temporary, None),
        (YOGA, 200, &[], yoga, Temporary, None),
        (AKENEO, 200, &[], akeneo, NonRetryable, None),
        (SHOPIFY, 200, &[], &coded("THROTTLED"), RateLimit, None),
        (SHOPIFY, 200, &[], &coded("MAX_COST_EXCEEDED"), NonRetryable, None),
        (GITHUB, 200, &[], github, RateLimit, None),
        (SLACK, 200, wait, &slack("ratelimited"), RateLimit, Some(7_000)),
        (SLACK, 200, &[], &slack("channel_not_found"), NonRetryable, None),
        (SLACK, 200, &[], &slack("internal_error"), Temporary, None),
        (TELEGRAM, 200, &[], telegram, RateLimit, Some(5_000)),
        (CONNECT, 200, &[], connect, Temporary, None),
        (EIP_1474, 200, &[], &rpc(-32_005), RateLimit, None),
        (EIP_1474, 200, &[], &rpc(-32_602), NonRetryable, None),
        (GATEWAY, 200, &[], stream, RateLimit, None),
        // Nothing says what failed.
        ("A code of its own", 200, &[], &rpc(7), Temporary, None),
        ("A message only", 200, &[], r#"{"ok":false,"message":"429"}"#, Temporary, None),
        // The status of a failed response is the service's own word.
        ("A gateway's 502", 502, &[], &rpc(404), Temporary, None),
        ("A refused request", 400, &[], &rpc(503), NonRetryable, None),
    ]);
}

#[test]
fn a_success_that_says_that_the_service_is_down_is_evidence_of_an_outage() {
    let of = |body: &[u8]| {
        let response = Response { status: 200, headers: &[], body };
        Failure::from_response(&response, SystemTime::UNIX_EPOCH)
    };
    let down = of(br#"{"error":{"code":503}}"#);
    assert!(down.is_service_down() && down.detail() == "status 200: 503", "{down:?}");
    let up = of(br#"{"error":{"code":429}}"#);
    assert!(up.is_service_up() && !up.is_service_down(), "{up:?}");
    assert!(of(br#"{"error":{"code":504}}"#).is_in_doubt());
}

#[test]
#[rustfmt::skip]
fn a_code_of_a_service_alone_says_that_a_refusal_passes() {
    assert_told(&[
        ("Salesforce, UNABLE_TO_LOCK_ROW in a trigger", 400, &[], r#"[{"message": "OrderTrigger: execution of AfterInsert\n\ncaused by: System.DmlException: Update failed. First exception on row 0 with id 001B000001ABCde; first error: UNABLE_TO_LOCK_ROW, unable to obtain exclusive access to this record or 1 records: 001B000001ABCde: []", "errorCode": "CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY", "fields": []}]"#, Temporary, None),
        ("Salesforce SOAP API, Status codes", 400, &[], r#"[{"message": "x", "errorCode": "SINGLE_EMAIL_LIMIT_EXCEEDED", "fields": []}]"#, Quota, None),
        ("Salesforce SOAP API, Status codes", 403, &[], r#"[{"message": "storage limit exceeded", "errorCode": "STORAGE_LIMIT_EXCEEDED"}]"#, Quota, None),
        ("Salesforce, OAuth errors", 400, &[], r#"{"error": "unknown_error", "error_description": "retry your request"}"#, Temporary, None),
        ("Zoho OAuth, Token limits", 400, &[], r#"{"error_description": "You have made too many requests continuously. Please try again after some time.", "error": "Access Denied", "status": "failure"}"#, RateLimit, None),
        ("Instagram Platform, Error codes", 400, &[], r#"{"error": {"message": "Application request limit reached", "type": "OAuthException", "code": 9, "error_subcode": 2207042, "is_transient": false, "fbtrace_id": "A"}}"#, Quota, None),
        ("WhatsApp Cloud API, Error codes", 400, &[], r#"{"error": {"message": "(#133015) Please wait a few minutes before attempting to register this phone number", "type": "OAuthException", "code": 133015, "fbtrace_id": "A"}}"#, Temporary, None),
        ("WhatsApp Cloud API, Error codes", 400, &[], r#"{"error": {"message": "(#131057) Account in maintenance mode", "type": "OAuthException", "code": 131057, "fbtrace_id": "A"}}"#, Temporary, None),
        ("Graph API, Handling errors", 400, &[], r#"{"error": {"message": "(#2) Service temporarily unavailable", "type": "OAuthException", "code": 2, "fbtrace_id": "A"}}"#, Temporary, None),
        ("apify-mcp-server #820", 402, &[], r#"{"error":{"type":"actor-memory-limit-exceeded","message":"By launching this job you will exceed the memory limit of 8192MB for all your Actor runs and builds (currently used: 8192MB, requested: 1024MB). Please consider an upgrade of your plan."}}"#, Temporary, None),
        ("lark-samples #22", 400, &[], r#"{"code":230020,"msg":"This operation triggers the frequency limit, ext=Update the single messages too frequently","error":{},"log_id":"2025"}"#, RateLimit, None),
        ("feishu2md #137", 400, &[], r#"{"code":99991400,"msg":"request trigger frequency limit"}"#, RateLimit, None),
        ("Any: a request", 400, &[], r#"{"msg":"The frequency limit must be a number"}"#, NonRetryable, None),
        ("canvasapi #466", 403, &[], "403 Forbidden (Rate Limit Exceeded)\n", RateLimit, None),
        ("openstax/domo #142", 403, &[], r#"{"status":403,"statusReason":"Forbidden","message":"API Rate limit reached."}"#, RateLimit, None),
        ("Any: a request", 422, &[], r#"{"message":"name must not contain 'rate limit exceeded'"}"#, NonRetryable, None),
        ("Stripe, a declined card", 403, &[], r#"{"error":{"type":"card_error","message":"Your card was declined: rate limit exceeded"}}"#, NonRetryable, None),
        ("elasticsearch #70349", 400, &[], r#"{"error":{"type":"illegal_argument_exception","reason":"Validation Failed: 1: this action would add [2] total shards, but this cluster currently has [3141]/[3000] maximum shards open;"},"status":400}"#, Quota, None),
        ("FHIR R4, IssueType", 400, &[], r#"{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"throttled","diagnostics":"x"}]}"#, RateLimit, None),
        ("FHIR R4, IssueType", 409, &[], r#"{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"lock-error"}]}"#, Temporary, None),
        ("FHIR R4, IssueType", 409, &[], r#"{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"conflict"}]}"#, NonRetryable, None),
        ("FHIR R4, IssueType", 422, &[], r#"{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"invalid"}]}"#, NonRetryable, None),
        ("Twilio, Error 20162", 409, &[], r#"{"code": 20162, "message": "A conflicting resource update is in progress", "status": 409}"#, Temporary, None),
        ("Canada Post, Rejected by SLM Monitor", 500, &[], r#"<messages xmlns="http://www.canadapost.ca/ws/messages"><message><code>Server</code><description>Rejected by SLM Monitor</description></message></messages>"#, RateLimit, None),
        ("NetSuite, SOAP: WS_REQUEST_BLOCKED", 500, &[], r#"<?xml version="1.0"?><soapenv:Envelope><soapenv:Body><soapenv:Fault><faultcode>soapenv:Server.userException</faultcode><faultstring>Only one request may be made against a session at a time</faultstring><detail><platformFaults:exceededConcurrentRequestLimitFault><platformFaults:code>WS_REQUEST_BLOCKED</platformFaults:code></platformFaults:exceededConcurrentRequestLimitFault></detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>"#, RateLimit, None),
        ("Dropbox, WriteError", 409, &[], r#"{"error_summary": "path/insufficient_space/..", "error": {".tag": "path"}}"#, Quota, None),
        ("Box, Common errors", 403, &[], r#"{"type": "error", "status": 403, "code": "storage_limit_exceeded", "message": "Account storage limit reached"}"#, Quota, None),
        ("Meilisearch, Error codes", 422, &[], r#"{"message": "x", "code": "no_space_left_on_device", "type": "internal", "link": "x"}"#, Temporary, None),
        ("Plaid, Transactions errors", 400, &[], r#"{"error_type": "TRANSACTIONS_ERROR", "error_code": "TRANSACTIONS_SYNC_MUTATION_DURING_PAGINATION"}"#, Temporary, None),
        ("Business Central, OData error codes", 400, &[], r#"{"error": {"code": "Application_DialogException", "message": "The record in table Sales Line is currently locked by another user"}}"#, Temporary, None),
        ("DocuSign, EnvelopeLocks", 400, &[], r#"{"errorCode": "EDIT_LOCK_ENVELOPE_LOCKED", "message": "The envelope is locked"}"#, Temporary, None),
        ("SharePoint REST, SPFileLockException", 423, &[], r#"{"odata.error": {"code": "-2147018894, Microsoft.SharePoint.SPFileLockException", "message": {"lang": "en-US", "value": "The file x is locked for shared use by y"}}}"#, Temporary, None),
        ("Nextcloud WebDAV, FileLocked", 423, &[], r#"<?xml version="1.0" encoding="utf-8"?>
<d:error xmlns:d="DAV:" xmlns:s="http://sabredav.org/ns">
  <s:exception>OCA\DAV\Connector\Sabre\Exception\FileLocked</s:exception>
  <s:message>"x" is locked</s:message>
</d:error>"#, Temporary, None),
    ]);
}
