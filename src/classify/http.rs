//! Classifies an HTTP response that is no success, by its status, its headers and a provider's
//! reason in its body.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::response::Response;
use super::rules::Facts;
use super::status::{class_of, told};
use super::{aws, code, doubt, retry_after};
use crate::failure::{Evidence, Failure, FailureClass};

/// The reasons that providers write into an error body, in any of its fields. The first row that
/// matches wins.
const REASONS: [(FailureClass, &[&str]); 3] = [
    (
        FailureClass::Quota,
        &[
            // Google
            "quotaExceeded",
            "dailyLimitExceeded",
            "QuotaFailure",
            // RFC 9457 problem type
            "quota-exceeded",
            // OpenAI
            "insufficient_quota",
            // Salesforce, the requests of a day
            "REQUEST_LIMIT_EXCEEDED",
        ],
    ),
    (
        FailureClass::Temporary,
        &[
            // RFC 9457 problem type
            "temporary-reduced-capacity",
            // Stripe: the object is busy for a moment
            "lock_timeout",
            // Azure
            "AnotherOperationInProgress",
            "RetryableError",
            // Salesforce
            "UNABLE_TO_LOCK_ROW",
        ],
    ),
    (
        FailureClass::RateLimit,
        &[
            // Google
            "rateLimitExceeded",
            "userRateLimitExceeded",
            "RATE_LIMIT_EXCEEDED",
            "sharingRateLimitExceeded",
            "RESOURCE_EXHAUSTED",
            // GitHub, by the section of its documentation that it points to
            "about-secondary-rate-limits",
            "secondary-rate-limits",
            "abuse-rate-limits",
            // RFC 9457 problem type
            "abnormal-usage-detected",
            // OpenAI, Stripe and others
            "rate_limit",
            "rate_limit_error",
            "rate_limit_exceeded",
            // Slack
            "ratelimited",
        ],
    ),
];

/// Reasons that ask for a pause where the response itself names none. Source: GitHub Docs, "Rate
/// limits for the REST API".
const PAUSES: [(&str, Duration); 3] = [
    ("about-secondary-rate-limits", Duration::from_mins(1)),
    ("secondary-rate-limits", Duration::from_mins(1)),
    ("abuse-rate-limits", Duration::from_mins(1)),
];

/// Reasons that make a 409 temporary. With another status these words may mean something else.
const UNDER_WAY: [&str; 2] = [
    // Stripe and others: an earlier attempt is still running
    "idempotency_key_in_use",
    // Google: a transaction lost a race
    "ABORTED",
];

/// Some bodies are a list of errors. The errors after so many tell nothing new.
const MAX_LISTED: usize = 10;

impl Failure {
    /// Classifies an HTTP response that is no success. `now` is the time of day; dates in headers
    /// are counted from it if the response has no `Date` of its own.
    ///
    /// | evidence, the first that applies | class |
    /// |---|---|
    /// | 429 with `Retry-After` and `Requeue-Scope: message` | a [postponement](Failure::postpone) |
    /// | a [rule](super::Rules) of the user's own | its class |
    /// | a provider's reason in a JSON body (`rateLimitExceeded`, `quotaExceeded`, problem type `quota-exceeded`, …) or `x-amzn-errortype` | its class |
    /// | `Stripe-Should-Retry: false`, except on 429; `true` | non-retryable; as the status says, but at least temporary |
    /// | 403 with `x-ratelimit-remaining: 0` or `Retry-After` | rate-limit |
    /// | 409 or 413 with `Retry-After` | temporary |
    /// | 429 | rate-limit |
    /// | 408, 425, 500, 502, 503, 504, any other 5xx | temporary |
    /// | 3xx, 501, 505, any other 4xx | non-retryable |
    /// | anything else | temporary |
    ///
    /// A 409 is non-retryable unless the response has a `Retry-After` or a code such as
    /// `idempotency_key_in_use`. It may mean that an earlier attempt is still running; then waiting
    /// helps. It may also mean that the object exists already, or that the `Idempotency-Key` was
    /// seen with another body; then waiting does not help. If a server sends a bare 409 while an
    /// earlier attempt runs, write a rule for it.
    ///
    /// The reason is the status, and the error's own code if the JSON body has one. The code is the
    /// field `code`, `reason`, `errorCode` or `errorType` of the body, of its field `error`, or of
    /// the errors that it lists. It may also be the end of an RFC 9457 `type`, or the code of an
    /// AWS service.
    ///
    /// The code has at most 64 of the characters `A-Z a-z 0-9 _ . : / -`. Requeue leaves out error
    /// messages, and a text that looks like an address, an id, a number of more than six digits or
    /// a token.
    ///
    /// The delay comes from the first of these that names one: a rule, `Retry-After`, `retryDelay`
    /// of a Google error, `RateLimit` and its relatives. GitHub's secondary limit without a delay
    /// waits 60 s. If several allowances are used up, the longest delay counts.
    ///
    /// A delay of zero, or a date in the past, leaves the delay to the policy's curve. A
    /// postponement then waits a second.
    #[must_use]
    pub fn from_response(response: &Response<'_>, now: SystemTime) -> Self {
        let told = retry_after::retry_after(response, now);
        if let (429, true, Some(delay)) =
            (response.status, response.says("requeue-scope", b"message"), told)
        {
            return Self::postpone(delay);
        }
        let details = Details::of(response);
        let codes = details.words.iter().chain(&details.aws_code).map(String::as_str);
        let ruled = Facts::response(response, codes, details.own_code.as_deref()).by_rules();
        let failure = ruled
            .unwrap_or_else(|| built_in(response, &details, told.is_some()))
            .by_status(response.status)
            .doubted(doubt::of_status(response.status) || details.are_in_doubt());
        let told = told.or(details.retry_delay);
        match failure.class() {
            FailureClass::Temporary | FailureClass::NonRetryable => failure.told(told),
            FailureClass::RateLimit | FailureClass::Quota => failure.told(
                told.or_else(|| retry_after::reset(response, now)).or_else(|| details.pause()),
            ),
        }
    }
}

fn built_in(response: &Response<'_>, details: &Details, names_delay: bool) -> Failure {
    let status = response.status;
    let typed =
        |class, reason: std::fmt::Arguments<'_>| Failure::new(class, Evidence::Typed, reason);
    if let Some((class, reason)) = details.reason() {
        return typed(class, format_args!("status {status}: {reason}"));
    }
    if let Some(code) = details.aws_code.as_deref().and_then(aws::by_code) {
        return typed(code.class(), format_args!("status {status}: {}", code.reason()));
    }
    if status == 409
        && let Some(reason) = UNDER_WAY.iter().find(|reason| details.says(reason))
    {
        return typed(FailureClass::Temporary, format_args!("status 409: {reason}"));
    }
    let class = class_of(status);
    let told = |class, words| {
        typed(class, format_args!("{}", told(status, words, details.own_code.as_deref())))
    };
    // Stripe's header speaks of an immediate retry. That is of no use against a rate limit, but
    // waiting in a queue is.
    if status != 429 && response.says("stripe-should-retry", b"false") {
        return told(FailureClass::NonRetryable, Some("retry not wanted"));
    }
    if class == FailureClass::NonRetryable && response.says("stripe-should-retry", b"true") {
        return told(FailureClass::Temporary, Some("retry wanted"));
    }
    // By RFC 9110, a 413 with `Retry-After` is temporary. A 409 with `Retry-After` comes from a
    // server that still works on an earlier attempt.
    if matches!(status, 409 | 413) && names_delay {
        return told(FailureClass::Temporary, Some("asks for a later retry"));
    }
    // GitHub's two limits.
    if status == 403 && (names_delay || retry_after::is_used_up(response) == Some(true)) {
        return told(FailureClass::RateLimit, Some("rate limit"));
    }
    told(class, None)
}

/// The facts of an error body of a known shape.
#[derive(Default)]
struct Details {
    /// Words that may be reasons.
    words: Vec<String>,
    aws_code: Option<String>,
    /// The server's name for the error, if it may be logged.
    own_code: Option<String>,
    retry_delay: Option<Duration>,
}

impl Details {
    fn of(response: &Response<'_>) -> Self {
        let mut details = Self::default();
        if response.status < 400 {
            return details;
        }
        details.aws_code = response
            .values("x-amzn-errortype")
            .find_map(|value| String::from_utf8(value.to_vec()).ok());
        if let Ok(body) = serde_json::from_slice::<Value>(response.body) {
            let errors = body
                .as_array()
                .map_or(std::slice::from_ref(&body), |list| &list[..list.len().min(MAX_LISTED)]);
            for error in errors {
                details.read(error);
                details.read(&error["error"]);
            }
            if details.aws_code.is_none() {
                details.aws_code = body["__type"].as_str().map(str::to_owned);
            }
            let objects = errors.iter().flat_map(|error| [error, &error["error"]]);
            details.own_code =
                code::of_errors(response.status, &objects, objects.clone().flat_map(listed));
        }
        let of_aws = || details.aws_code.as_deref().and_then(code::of_aws);
        details.own_code = details.own_code.take().or_else(of_aws);
        details
    }

    /// Reads one object: the body itself, or its field `error`.
    fn read(&mut self, object: &Value) {
        let members =
            ["reason", "code", "status", "errorCode", "errorType"].map(|name| &object[name]);
        for word in [object].into_iter().chain(members) {
            self.words.extend(
                word.as_str()
                    .map(str::to_owned)
                    .or_else(|| word.as_i64().map(|code| code.to_string())),
            );
        }
        // A problem type is a URI, which ends in the word.
        let last_segment = |uri: &Value| {
            uri.as_str().and_then(|uri| uri.rsplit(['#', '/', '.', ':']).next().map(str::to_owned))
        };
        self.words.extend(last_segment(&object["type"]));
        self.words.extend(last_segment(&object["documentation_url"]));
        for entry in listed(object) {
            self.words.extend(
                [&entry["reason"], &entry["code"]]
                    .into_iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned),
            );
            self.words.extend(last_segment(&entry["@type"]));
            let named = entry["retryDelay"].as_str().and_then(retry_after::proto_duration);
            self.retry_delay = self.retry_delay.or(named);
        }
    }

    fn says(&self, reason: &str) -> bool {
        self.words.iter().any(|word| word == reason)
    }

    /// Whether a code says that the service may still work on the request.
    fn are_in_doubt(&self) -> bool {
        self.own_code.iter().chain(&self.aws_code).any(|code| doubt::of_code(code))
    }

    fn pause(&self) -> Option<Duration> {
        PAUSES.iter().find(|(reason, _)| self.says(reason)).map(|(_, pause)| *pause)
    }

    /// The first row of the table that has one of the words, and that word as the table spells it.
    fn reason(&self) -> Option<(FailureClass, &'static str)> {
        REASONS.iter().find_map(|(class, reasons)| {
            let reason = reasons.iter().find(|reason| self.says(reason))?;
            // Per-minute limits come with both details. A service that names a delay has not used
            // up a day's quota.
            if *reason == "QuotaFailure" && self.retry_delay.is_some() {
                return None;
            }
            Some((*class, *reason))
        })
    }
}

/// The errors that an object lists.
fn listed(object: &Value) -> impl Iterator<Item = &Value> {
    [&object["errors"], &object["details"]].into_iter().filter_map(Value::as_array).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_on_page;
    use super::*;

    #[test]
    fn the_page_has_each_reason() {
        for (class, reasons) in REASONS {
            for reason in reasons {
                assert_on_page(reason, class);
            }
        }
        for reason in UNDER_WAY {
            assert_on_page(reason, FailureClass::Temporary);
        }
    }
}
