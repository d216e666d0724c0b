//! Google: the APIs for Workspace and video give reasons, those of Google Cloud a status and
//! details.

use super::*;

#[test]
fn the_reason_in_the_list_of_errors_decides() {
    const CALENDAR: &str = "Google Calendar, Handle API errors";
    const DRIVE: &str = "Google Drive, Resolve errors";
    const GMAIL: &str = "Gmail, Resolve errors";
    const YOUTUBE: &str = "YouTube Data API, Errors";
    const BIGQUERY: &str = "BigQuery, Error messages";
    const ANALYTICS: &str = "Google Analytics Core Reporting API, Error Responses";
    for (source, status, reason, class) in [
        (CALENDAR, 400, "badRequest", NonRetryable),
        (CALENDAR, 401, "authError", NonRetryable),
        (CALENDAR, 403, "forbiddenForNonOrganizer", NonRetryable),
        (CALENDAR, 403, "rateLimitExceeded", RateLimit),
        (CALENDAR, 403, "userRateLimitExceeded", RateLimit),
        (CALENDAR, 403, "quotaExceeded", Quota),
        (CALENDAR, 403, "dailyLimitExceeded", Quota),
        (CALENDAR, 404, "notFound", NonRetryable),
        (CALENDAR, 409, "duplicate", NonRetryable),
        (CALENDAR, 410, "fullSyncRequired", NonRetryable),
        (CALENDAR, 412, "conditionNotMet", NonRetryable),
        (CALENDAR, 429, "rateLimitExceeded", RateLimit),
        (CALENDAR, 500, "backendError", Temporary),
        (DRIVE, 403, "sharingRateLimitExceeded", RateLimit),
        (DRIVE, 403, "appNotAuthorizedToFile", NonRetryable),
        (DRIVE, 403, "domainPolicy", NonRetryable),
        (DRIVE, 429, "rateLimitExceeded", RateLimit),
        (GMAIL, 403, "userRateLimitExceeded", RateLimit),
        (GMAIL, 403, "dailyLimitExceeded", Quota),
        (GMAIL, 429, "userRateLimitExceeded", RateLimit),
        (YOUTUBE, 403, "quotaExceeded", Quota),
        (YOUTUBE, 403, "commentsDisabled", NonRetryable),
        (BIGQUERY, 403, "quotaExceeded", Quota),
        (BIGQUERY, 403, "rateLimitExceeded", RateLimit),
        (BIGQUERY, 403, "accessDenied", NonRetryable),
        (BIGQUERY, 400, "invalidQuery", NonRetryable),
        (BIGQUERY, 503, "backendError", Temporary),
        (ANALYTICS, 403, "userRateLimitExceeded", RateLimit),
        (ANALYTICS, 403, "insufficientPermissions", NonRetryable),
    ] {
        let body = format!(
            r#"{{"error":{{"errors":[{{"domain":"usageLimits","reason":"{reason}","message":"Quota exceeded, rate limit exceeded"}}],
                "code":{status},"message":"403 Forbidden, 429, quotaExceeded"}}}}"#
        );
        assert_told(&[(source, status, &[], &body, class, None)]);
    }
}

/// The error model of Google Cloud, with these details.
fn model(code: u16, status: &str, details: &str) -> String {
    format!(
        r#"{{"error":{{"code":{code},"message":"400 ms later","status":"{status}","details":[{details}]}}}}"#
    )
}

#[test]
fn the_error_model_tells_by_status_and_details() {
    const MODEL: &str = "Google Cloud API design guide, Errors";
    const GEMINI: &str = "Gemini API, Troubleshooting guide";
    const FCM: &str = "Firebase Cloud Messaging, ErrorCode";
    const RETRY: &str = "google/rpc/error_details.proto, RetryInfo";
    const FIRESTORE: &str = "Firestore, Understand error codes";
    const QUOTA: &str = r#"{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"subject":"project:1"}]}"#;
    const RATE: &str = r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"RATE_LIMIT_EXCEEDED","domain":"googleapis.com"}"#;
    const DISABLED: &str =
        r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"SERVICE_DISABLED"}"#;
    const TOO_MANY: &str = r#"{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"QUOTA_EXCEEDED"}"#;
    let retry = |delay: &str| {
        format!(r#"{{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"{delay}"}}"#)
    };
    let both = format!("{QUOTA},{}", retry("36s"));
    let minute = &[("Retry-After", "60")];
    for (source, code, status, headers, details, class, millis) in [
        (MODEL, 400, "INVALID_ARGUMENT", &[][..], "", NonRetryable, None),
        (MODEL, 400, "FAILED_PRECONDITION", &[], "", NonRetryable, None),
        (MODEL, 400, "OUT_OF_RANGE", &[], "", NonRetryable, None),
        (MODEL, 401, "UNAUTHENTICATED", &[], "", NonRetryable, None),
        (MODEL, 403, "PERMISSION_DENIED", &[], DISABLED, NonRetryable, None),
        (MODEL, 403, "PERMISSION_DENIED", &[], RATE, RateLimit, None),
        (MODEL, 404, "NOT_FOUND", &[], "", NonRetryable, None),
        (MODEL, 409, "ALREADY_EXISTS", &[], "", NonRetryable, None),
        (FIRESTORE, 409, "ABORTED", &[], "", Temporary, None),
        (MODEL, 429, "RESOURCE_EXHAUSTED", &[], "", RateLimit, None),
        (MODEL, 429, "RESOURCE_EXHAUSTED", &[], RATE, RateLimit, None),
        (MODEL, 429, "RESOURCE_EXHAUSTED", &[], QUOTA, Quota, None),
        (GEMINI, 429, "RESOURCE_EXHAUSTED", &[], &both, RateLimit, Some(36_000)),
        (GEMINI, 503, "UNAVAILABLE", &[], "", Temporary, None),
        (GEMINI, 504, "DEADLINE_EXCEEDED", &[], "", Temporary, None),
        (MODEL, 500, "INTERNAL", &[], "", Temporary, None),
        (MODEL, 501, "UNIMPLEMENTED", &[], "", NonRetryable, None),
        (RETRY, 503, "UNAVAILABLE", &[], &retry("0.5s"), Temporary, Some(500)),
        (RETRY, 503, "UNAVAILABLE", &[], &retry("half a minute"), Temporary, None),
        (RETRY, 400, "INVALID_ARGUMENT", &[], &retry("5s"), NonRetryable, None),
        (FCM, 429, "RESOURCE_EXHAUSTED", minute, TOO_MANY, RateLimit, Some(60_000)),
        (FCM, 503, "UNAVAILABLE", minute, "", Temporary, Some(60_000)),
        (FCM, 404, "NOT_FOUND", &[], r#"{"errorCode":"UNREGISTERED"}"#, NonRetryable, None),
    ] {
        assert_told(&[(source, code, headers, &model(code, status, details), class, millis)]);
    }
}
