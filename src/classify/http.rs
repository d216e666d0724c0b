//! Classifies an HTTP response that is no success, by its status, its headers and a provider's
//! reason in its body.

use std::time::{Duration, SystemTime};

use super::Response;
use super::body::Details;
use super::retry_after::{self, Named};
use super::rules::Facts;
use super::status::{class_of, class_until_later, told};
use super::{aws, doubt};
use crate::failure::{Evidence, Failure, FailureClass};

/// The reasons that providers write into an error body, in any of its fields, between bars. The
/// comments name the providers in the order of their words. The first row that matches wins.
const REASONS: [(FailureClass, &str); 3] = [
    // Google; a problem type of RFC 9457; HubSpot, the calls of a day; Firebase Authentication, by the
    // day, and a 429 of FCM with this word is short; ElevenLabs; Scaleway; OpenAI; Anthropic;
    // Salesforce, the requests of a day; Apigee; X; Airtable
    (
        FailureClass::Quota,
        "quotaExceeded|dailyLimitExceeded|uploadLimitExceeded|QuotaFailure|quota-exceeded|\
        DAILY policy|QUOTA_EXCEEDED|quota_exceeded|quotas_exceeded|credit_balance_exhausted|\
        organization_spend_limit_exceeded|organization_usage_limit_exceeded|\
        project_spend_limit_exceeded|insufficient_quota|billing_hard_limit_reached|billing_error|\
        enforced_spend_limit_reached|REQUEST_LIMIT_EXCEEDED|policies.ratelimit.QuotaViolation|\
        usage-capped|PUBLIC_API_BILLING_LIMIT_EXCEEDED",
    ),
    // A problem type of RFC 9457; Stripe, whose object is busy for a moment; Azure; Salesforce;
    // BigQuery; Box; Anthropic; PayPal, where an earlier attempt is still running
    (
        FailureClass::Temporary,
        "temporary-reduced-capacity|lock_timeout|AnotherOperationInProgress|RetryableError|\
        UNABLE_TO_LOCK_ROW|backendError|jobBackendError|jobInternalError|tableUnavailable|\
        operation_blocked_temporary|name_temporarily_reserved|overloaded_error|\
        PREVIOUS_REQUEST_IN_PROGRESS",
    ),
    // Google; GitHub, by the section of its documentation that it points to; a problem type of RFC
    // 9457; OpenAI, Stripe and others; Slack; Linear; Square and GitHub's GraphQL; HubSpot; PayPal and
    // Airtable; Notion; Azure and Microsoft Graph; Box, Auth0, Dropbox and others; Shopify, Klaviyo
    // and Django REST framework; NetSuite; Salesforce, the requests at once, and Databricks;
    // monday.com; Apigee; DocuSign; Firebase Authentication; MYOB; Dropbox
    (
        FailureClass::RateLimit,
        "rateLimitExceeded|userRateLimitExceeded|RATE_LIMIT_EXCEEDED|sharingRateLimitExceeded|\
        jobRateLimitExceeded|RESOURCE_EXHAUSTED|about-secondary-rate-limits|\
        secondary-rate-limits|abuse-rate-limits|abnormal-usage-detected|rate_limit|\
        rate_limit_error|rate_limit_exceeded|ratelimited|RATELIMITED|RATE_LIMITED|\
        RATE_LIMIT_ERROR|RATE_LIMIT|RATE_LIMITS|RATE_LIMIT_REACHED|rate_limited|TooManyRequests|\
        tooManyRequests|activityLimitReached|RateLimitExceeded|too_many_requests|\
        TOO_MANY_REQUESTS|THROTTLED|throttled|SSS_REQUEST_LIMIT_EXCEEDED|\
        CONCURRENCY_LIMIT_EXCEEDED|REQUEST_LIMIT_EXCEEDED|ComplexityException|\
        COMPLEXITY_BUDGET_EXHAUSTED|policies.ratelimit.SpikeArrestViolation|\
        HOURLY_APIINVOCATION_LIMIT_EXCEEDED|BURST_APIINVOCATION_LIMIT_EXCEEDED|\
        TOO_MANY_ATTEMPTS_TRY_LATER|RESET_PASSWORD_EXCEED_LIMIT|RateLimitError|\
        too_many_write_operations",
    ),
];

/// Codes of Meta's Graph API that say that calls or messages come too often. Sources: Graph API,
/// Rate Limits and Handling Errors; `WhatsApp` Cloud API, Error Codes.
fn is_graph_limit(code: i64) -> bool {
    matches!(
        code,
        4 | 17 | 32 | 341 | 613 | 80_000..=80_014 | 130_429 | 131_048 | 131_056 | 133_016
    )
}

/// Reasons that ask for a pause of a minute where the response itself names none. Source: GitHub Docs,
/// "Rate limits for the REST API".
const PAUSES: [&str; 3] =
    ["about-secondary-rate-limits", "secondary-rate-limits", "abuse-rate-limits"];

/// Reasons that count with one status alone. With another one these words may mean something else.
const BY_STATUS: [(u16, &str, FailureClass); 7] = [
    // Stripe and others: an earlier attempt is still running
    (409, "idempotency_key_in_use", FailureClass::Temporary),
    // Google, Notion, Zendesk: a transaction lost a race
    (409, "ABORTED", FailureClass::Temporary),
    (409, "conflict_error", FailureClass::Temporary),
    (409, "DatabaseConflict", FailureClass::Temporary),
    // Hetzner: an action on the object is still running
    (423, "locked", FailureClass::Temporary),
    // Twilio: the number has too many messages in its queue
    (400, "21611", FailureClass::RateLimit),
    // SendGrid, which has no code for it
    (401, "Maximum credits exceeded", FailureClass::Quota),
];

/// Headers that say whether a retry makes sense: Stripe's, and that of the SDKs of `OpenAI`, Anthropic
/// and others.
const SHOULD_RETRY: [&str; 2] = ["stripe-should-retry", "x-should-retry"];
/// Adyen's header, of which only `true` says something.
const TRANSIENT: &str = "transient-error";

/// A limit that lasts longer is that of a day, whatever the service calls it.
const LONGEST_RATE_LIMIT: Duration = Duration::from_hours(12);

/// Headers that say, with a status that means something else by itself, that a quota is used up.
/// Source: Toggl, API quota.
const QUOTAS: [(u16, &str); 1] = [(402, "x-toggl-quota-remaining")];

impl Failure {
    /// Classifies an HTTP response that is no success. `now` is the time of day; dates in headers
    /// are counted from it if the response has no `Date` of its own.
    ///
    /// The first of these that applies gives the class: 429 with `Retry-After` and
    /// `Requeue-Scope: message`, which is a [postponement](Failure::postpone); a
    /// [rule](super::Rules) of the user's own; a provider's reason in a JSON body; its headers; the
    /// status. `docs/reference/classes.md` lists them all. A bare 409 is non-retryable: if a server sends
    /// it while an earlier attempt runs, write a rule.
    ///
    /// The reason is the status, and the error's own code if the JSON body has one that [may be
    /// shown](super::presentable). Requeue leaves out error messages.
    ///
    /// The delay comes from the first of these that names one: a rule, `Retry-After`, `retryDelay`
    /// of a Google error, `RateLimit` and its relatives. If several allowances are used up, the longest
    /// counts. A delay of zero leaves it to the policy's curve. A time that passed more than a day ago or
    /// is more than a year away counts as absent, and the reason names its header.
    pub fn from_response(response: &Response<'_>, now: SystemTime) -> Self {
        let named = Named::new(response, now);
        let later = named.retry_after();
        if let (429, true, Some(delay)) =
            (response.status, response.says("requeue-scope", b"message"), later)
        {
            return Self::postpone(delay);
        }
        let details = Details::of(response);
        let status = details.status(response.status);
        let failure = by_rules(response, &details).unwrap_or_else(|| {
            let failure = built_in(response, status, &details, later.is_some());
            if failure.class() != FailureClass::RateLimit {
                return failure;
            }
            let is_long = match later.or(details.delay).or_else(|| named.reset()) {
                Some(delay) => delay > LONGEST_RATE_LIMIT,
                None => details.is_of_day(),
            };
            if is_long { failure.of_long_limit() } else { failure }
        });
        timed(failure, status, &details, &named, later)
    }

    /// The failure that a [rule](super::Rules) in force makes of a successful response, for a
    /// service that responds 200 and says in the body that it failed. `None` means that the message
    /// is done. [`names_status`](super::names_status) says whether the response has to be read.
    pub fn from_success(response: &Response<'_>, now: SystemTime) -> Option<Self> {
        let (named, details) = (Named::new(response, now), Details::of(response));
        let failure = by_rules(response, &details)?;
        let later = named.retry_after();
        Some(timed(failure, response.status, &details, &named, later))
    }
}

fn by_rules(response: &Response<'_>, details: &Details) -> Option<Failure> {
    Facts::response(response, details.codes(), details.own_code.as_deref()).by_rules()
}

/// Adds the delay that the response names, and the header that nobody can mean.
fn timed(
    failure: Failure,
    status: u16,
    details: &Details,
    named: &Named<'_>,
    later: Option<Duration>,
) -> Failure {
    let later = later.or(details.delay);
    let delay = match failure.class() {
        FailureClass::Temporary | FailureClass::NonRetryable => later,
        FailureClass::RateLimit | FailureClass::Quota => {
            later.or_else(|| named.reset()).or_else(|| pause(details))
        }
    };
    let failure = failure
        .by_status(status)
        .doubted(doubt::of_status(status) || details.are_in_doubt())
        .saying(details.text.as_deref())
        .told(delay);
    let is_header_of_use =
        failure.class() != FailureClass::NonRetryable || class_until_later(status).is_some();
    match named.ignored() {
        Some(header) if is_header_of_use && failure.delay().is_none() => {
            failure.noting(format_args!("{header} ignored: past, or over a year away"))
        }
        Some(_) | None => failure,
    }
}

/// `status` is that of the response, or that which its body says.
fn built_in(response: &Response<'_>, status: u16, details: &Details, names_delay: bool) -> Failure {
    let shown = response.status;
    let typed =
        |class, reason: std::fmt::Arguments<'_>| Failure::new(class, Evidence::Typed, reason);
    if let Some((class, reason)) = reason(details, status) {
        return typed(class, format_args!("status {shown}: {reason}"));
    }
    if let Some(code) = details.aws_code.as_deref().and_then(aws::by_code) {
        return typed(code.class(), format_args!("status {shown}: {}", code.detail()));
    }
    let is_it = |row: &&(u16, &str, FailureClass)| row.0 == status && details.says(row.1);
    if let Some((_, reason, class)) = BY_STATUS.iter().find(is_it) {
        return typed(*class, format_args!("status {shown}: {reason}"));
    }
    let class = class_of(status);
    let told = |class, words| {
        typed(class, format_args!("{}", told(shown, words, details.own_code.as_deref())))
    };
    if details.graph_code.is_some_and(is_graph_limit) {
        return told(FailureClass::RateLimit, Some("rate limit"));
    }
    if details.is_transient {
        return told(FailureClass::Temporary, Some("transient"));
    }
    let is_used_up =
        |row: &(u16, &str)| row.0 == status && response.values(row.1).any(retry_after::is_nothing);
    if QUOTAS.iter().any(is_used_up) {
        return told(FailureClass::Quota, Some("quota used up"));
    }
    // These headers speak of an immediate retry. That is of no use against a rate limit, but waiting
    // in a queue is.
    let says = |answer| SHOULD_RETRY.into_iter().any(|name| response.says(name, answer));
    if status != 429 && says(b"false") {
        return told(FailureClass::NonRetryable, Some("retry not wanted"));
    }
    let is_wanted = || says(b"true") || response.says(TRANSIENT, b"true");
    if class == FailureClass::NonRetryable && is_wanted() {
        return told(FailureClass::Temporary, Some("retry wanted"));
    }
    // By RFC 9110, a 413 with `Retry-After` is temporary. A 409 with `Retry-After` comes from a
    // server that still works on an earlier attempt. GitHub's two limits are a 403.
    match class_until_later(status).filter(|_| class == FailureClass::NonRetryable) {
        Some(FailureClass::RateLimit) if names_delay || retry_after::is_used_up(response) => {
            told(FailureClass::RateLimit, Some("rate limit"))
        }
        Some(FailureClass::Temporary) if names_delay => {
            told(FailureClass::Temporary, Some("asks for a later retry"))
        }
        Some(_) | None => told(class, None),
    }
}

fn pause(details: &Details) -> Option<Duration> {
    PAUSES.iter().any(|reason| details.says(reason)).then_some(Duration::from_mins(1))
}

/// The class of a provider's reason that stands alone, and the reason as the table spells it.
pub(super) fn class_of_reason(word: &str) -> Option<(FailureClass, &'static str)> {
    let found = |reasons: &'static str| reasons.split('|').find(|reason| *reason == word);
    REASONS.iter().find_map(|(class, reasons)| Some((*class, found(reasons)?)))
}

/// The first row of the table that has one of the words, and that word as the table spells it.
fn reason(details: &Details, status: u16) -> Option<(FailureClass, &'static str)> {
    // A service that names a delay has not used up a day's quota: per-minute limits of Google come
    // with both details. A 429 of Databricks has the word of Salesforce's 403, and a 429 of FCM that
    // of Firebase's 400. Salesforce has one word for the requests of a day and those at once.
    let is_short = |reason: &str| match reason {
        "QuotaFailure" => details.delay.is_some() && !details.is_of_day(),
        "REQUEST_LIMIT_EXCEEDED" => status == 429 || details.limits_calls_at_once,
        "QUOTA_EXCEEDED" => status == 429,
        _ => false,
    };
    REASONS.iter().find_map(|(class, reasons)| {
        let is_it = |reason: &&str| {
            details.says(reason) && (*class != FailureClass::Quota || !is_short(reason))
        };
        Some((*class, reasons.split('|').find(is_it)?))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_on_page, words_on_page};
    use super::*;

    #[test]
    fn the_page_has_each_reason() {
        for (class, reasons) in REASONS {
            for reason in reasons.split('|') {
                assert_on_page(reason, class);
            }
        }
        for (_, reason, class) in BY_STATUS {
            assert_on_page(reason, class);
        }
        for (_, header) in QUOTAS {
            assert_on_page(&format!("{header}: 0"), FailureClass::Quota);
        }
    }

    #[test]
    fn the_page_has_no_other_reason() {
        for (word, class) in words_on_page("Reasons in the body") {
            let is_of = |row: &&(FailureClass, &str)| row.0.as_str() == class;
            let reasons = REASONS.iter().find(is_of).map_or("", |row| row.1);
            let is_reason = reasons.split('|').any(|reason| reason == word);
            let is_condition =
                ["retryDelay", "policyName", "Concurrent", "quotaId", "PerDay"].contains(&word);
            assert!(is_reason || is_condition, "the code has no {word} as {class}");
        }
    }
}
