//! Classifies an HTTP response that is no success, by its status, its headers and a provider's
//! reason in its body.

use std::time::{Duration, SystemTime};

use super::Response;
use super::body::Details;
use super::retry_after::{self, Named};
use super::rules::Facts;
use super::status::{class_of, class_until_later, fold, told};
use super::text::{TOO_LARGE, Words};
use super::{aws, code, doubt};
use crate::failure::{Evidence, Failure, FailureClass};

/// The reasons that providers write into an error body, in any of its fields, between bars, in
/// addition to [parts of a code](code::PARTS). The comments name the providers in the order of
/// their words. The first row that matches wins.
const REASONS: [(FailureClass, &str); 3] = rows! {
    // YouTube; Google; a problem type of RFC 9457; HubSpot, the calls of a day; Google and Firebase;
    // OpenAI; Anthropic; Salesforce, the requests of a day; X; TikTok; Stripe, OpenAI: the account is
    // out of money; Salesforce and Box; Salesforce; Dropbox
    FailureClass::Quota =>
        "uploadLimitExceeded|QuotaFailure|quota-exceeded|DAILY policy|QUOTA_EXCEEDED|\
        credit_balance_exhausted|organization_usage_limit_exceeded|billing_error|\
        REQUEST_LIMIT_EXCEEDED|usage-capped|reached_active_user_cap|balance_insufficient|\
        billing_not_active|STORAGE_LIMIT_EXCEEDED|SINGLE_EMAIL_LIMIT_EXCEEDED|insufficient_space";
    // A problem type of RFC 9457; Stripe, whose object is busy for a moment; Azure; BigQuery; Box;
    // Anthropic
    FailureClass::Temporary =>
        "temporary-reduced-capacity|lock_timeout|RetryableError|jobInternalError|\
        operation_blocked_temporary|overloaded_error";
    // Google, first by its own reason; GitHub, by the section of its documentation that it points to; a
    // problem type of RFC 9457; HubSpot; PayPal; many; Microsoft Graph; monday.com; Firebase; Google
    // Maps; NetSuite
    FailureClass::RateLimit =>
        "RATE_LIMIT_EXCEEDED|about-secondary-rate-limits|secondary-rate-limits|abuse-rate-limits|\
        abnormal-usage-detected|RATE_LIMITS|RATE_LIMIT_REACHED|rate_limited|\
        RateLimitError|rate_limit|too_many_requests|throttled|activityLimitReached|\
        ComplexityException|RESET_PASSWORD_EXCEED_LIMIT|RESOURCE_EXHAUSTED|OVER_QUERY_LIMIT|\
        WS_REQUEST_BLOCKED";
};

/// Codes of Meta's Graph API for calls or messages that are too frequent. Sources: Graph API, Rate
/// Limits and Handling Errors; `WhatsApp` Cloud API, Error Codes.
fn is_graph_limit(code: i64) -> bool {
    matches!(
        code,
        4 | 17 | 32 | 341 | 613 | 80_000..=80_014 | 130_429 | 131_048 | 131_056 | 133_016
    )
}

/// Reasons that ask for a pause of a minute if the response itself names none. Source: GitHub Docs,
/// "Rate limits for the REST API".
const PAUSES: [&str; 3] =
    ["about-secondary-rate-limits", "secondary-rate-limits", "abuse-rate-limits"];
/// Words that do.
const PAUSING: &str = "secondary rate limit|abuse detection mechanism|submitted too quickly";

/// Reasons that count with one status alone. With another status they may mean something else.
const BY_STATUS: [(u16, &str, FailureClass); 20] = [
    // Stripe and others: an earlier attempt is still running
    (409, "idempotency_key_in_use", FailureClass::Temporary),
    // Google, Notion, Zendesk: a transaction lost a race
    (409, "ABORTED", FailureClass::Temporary),
    (409, "conflict_error", FailureClass::Temporary),
    (409, "DatabaseConflict", FailureClass::Temporary),
    // OCI: the object is in a state that passes
    (409, "IncorrectState", FailureClass::Temporary),
    // FHIR
    (409, "lock-error", FailureClass::Temporary),
    // Apify, whose other runs must end
    (402, "actor-memory-limit-exceeded", FailureClass::Temporary),
    // App Store Server API: AccountNotFoundRetryable, AppNotFoundRetryable,
    // OriginalTransactionIdNotFoundRetryable
    (404, "4040002", FailureClass::Temporary),
    (404, "4040004", FailureClass::Temporary),
    (404, "4040006", FailureClass::Temporary),
    // Salesforce's login
    (400, "retry your request", FailureClass::Temporary),
    // Hetzner: an action on the object is still running
    (423, "locked", FailureClass::Temporary),
    // Shopify: the shop is closed; Stripe: a dependency failed
    (423, "This shop is unavailable", FailureClass::NonRetryable),
    (424, "api_error", FailureClass::NonRetryable),
    // Twilio: the number has too many messages in its queue
    (400, "21611", FailureClass::RateLimit),
    // Intuit
    (403, "3001", FailureClass::RateLimit),
    // Cloudflare Workers, the requests of a day
    (429, "1027", FailureClass::Quota),
    // SendGrid and Tyk, which have no code for it
    (401, "Maximum credits exceeded", FailureClass::Quota),
    (403, "Quota exceeded", FailureClass::Quota),
    // Instagram, the posts of a day
    (400, "2207042", FailureClass::Quota),
];

/// Headers with the service's advice on a retry: Stripe's, and that of SDKs such as `OpenAI`'s.
const SHOULD_RETRY: [&str; 2] = ["stripe-should-retry", "x-should-retry"];
/// Headers of which only `true` has a meaning: Adyen's, and Railway's while no deployment runs.
const TRANSIENT: [&str; 2] = ["transient-error", "x-railway-fallback"];

/// A limit that lasts longer is that of a day, whatever its name in the service.
pub(super) const LONGEST_RATE_LIMIT: Duration = Duration::from_hours(12);

/// Headers of a used-up quota, with a status that alone has another meaning: Toggl, API quota.
const QUOTAS: [(u16, &str); 1] = [(402, "x-toggl-quota-remaining")];

impl Failure {
    /// Classifies an HTTP response that is no success. `now` is the time of day; dates in headers
    /// are counted from it if the response has no `Date` of its own.
    ///
    /// A 429 with `Retry-After` and `Requeue-Scope: message` is a
    /// [postponement](Failure::postpone). Otherwise the first of these that applies gives the
    /// class: a [rule](super::Rules) of the user's own, a [challenge](Response::challenge) of a
    /// firewall, a provider's reason or code in the body, the headers, the status.
    /// `docs/reference/classes.md` lists them all. A bare 409 is non-retryable: if a server sends
    /// it while an earlier attempt runs, write a rule.
    ///
    /// The reason is the status, and the error's own code if the body has one that [may be
    /// shown](super::presentable). Requeue leaves out error messages.
    ///
    /// The delay comes from the first of these that names one: a rule, `Retry-After`, a field of the
    /// error such as `retryDelay`, `RateLimit` and its relatives, the message of a limit. If several
    /// allowances are used up, the longest counts. A delay of zero leaves it to the policy's curve. A
    /// time that passed more than a day ago or is more than a year away counts as absent, and the
    /// reason names its header.
    pub fn from_response(response: &Response<'_>, now: SystemTime) -> Self {
        let named = Named::new(response, now);
        let later = named.retry_after();
        if let (429, true, Some(delay)) =
            (response.status, response.says("requeue-scope", b"message"), later)
        {
            return Self::postpone(delay);
        }
        let details = Details::of(response, &named);
        let status = details.status(response.status);
        let failure = by_rules(response, &details).unwrap_or_else(|| {
            let failure = built_in(response, status, &details, later.is_some());
            if failure.class() != FailureClass::RateLimit {
                return failure;
            }
            let is_long = match limit_delay(&details, &named, later) {
                Some(delay) if !named.is_guessed.get() => delay > LONGEST_RATE_LIMIT,
                Some(_) | None => details.is_of_day() || retry_after::is_day_used_up(response),
            };
            if is_long { failure.of_long_limit() } else { failure }
        });
        timed(failure, (response, status), &details, &named, later)
    }

    /// The failure of a successful response that a [rule](super::Rules) matches, such as a 200 with
    /// an error in the body, or that is a [challenge](Response::challenge) of a firewall. `None`
    /// means that the message is done. [`names_status`](super::names_status) is whether the
    /// response has to be read.
    pub fn from_success(response: &Response<'_>, now: SystemTime) -> Option<Self> {
        let named = Named::new(response, now);
        let details = Details::of(response, &named);
        let failure = by_rules(response, &details)?;
        let later = named.retry_after();
        Some(timed(failure, (response, response.status), &details, &named, later))
    }
}

/// The delay of a limit. A `Retry-After` that is a hundred times as long as the renewal of the used-up
/// allowance is a number of milliseconds.
fn limit_delay(details: &Details, named: &Named<'_>, later: Option<Duration>) -> Option<Duration> {
    let renewed = named.reset_of_used_up().filter(|renewed| !renewed.is_zero());
    let later = later.filter(|later| renewed.is_none_or(|renewed| *later < renewed * 100));
    later
        .or(details.delay)
        .or(details.reset)
        .or_else(|| named.reset())
        .or_else(|| details.messages.iter().find_map(|message| named.in_message(message)))
        .or_else(|| pause(details))
}

/// By a rule, or as a challenge.
fn by_rules(response: &Response<'_>, details: &Details) -> Option<Failure> {
    let facts = Facts::response(response, details.for_rules(), details.own_code.as_deref());
    facts.by_rules().or_else(|| {
        let reason = format!("status {}: {}", response.status, response.challenge()?);
        Some(Failure::new(FailureClass::Temporary, Evidence::Typed, reason))
    })
}

/// Adds the delay that the response names, and the header with an impossible time.
fn timed(
    failure: Failure,
    (response, status): (&Response<'_>, u16),
    details: &Details,
    named: &Named<'_>,
    later: Option<Duration>,
) -> Failure {
    let delay = match failure.class() {
        FailureClass::Temporary | FailureClass::NonRetryable => later.or(details.delay),
        FailureClass::RateLimit | FailureClass::Quota => limit_delay(details, named, later),
    };
    let is_passed_on = response.challenge().is_none();
    let failure = if is_passed_on { failure.by_status(status) } else { failure.service_down() };
    let failure = failure
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

/// By a provider's reason, its words, a code of AWS, or a reason that counts with its status alone.
fn by_body(response: &Response<'_>, status: u16, details: &Details) -> Option<Failure> {
    let shown = response.status;
    let typed = |class, reason: &str| {
        Failure::new(class, Evidence::Typed, format_args!("status {shown}: {reason}"))
    };
    let words = if status < 400 { Words::default() } else { Words::of_body(response.body) };
    let is_declined = words.say_declined(Some(status));
    let reason = reason(details, status, is_declined).filter(|_| !words.hold(TOO_LARGE));
    if let Some((class, reason)) = reason {
        return Some(typed(class, reason));
    }
    // A header of the service is more specific than words that ask for a retry.
    let is_wanted =
        |said: &Failure| said.class() == FailureClass::Temporary && is_transient(response);
    if let Some(said) = words.said(Some(status)).filter(|said| !is_wanted(said)) {
        let reason = told(shown, Some(said.detail()), details.own_code.as_deref());
        let failure = Failure::new(said.class(), Evidence::Typed, reason);
        return Some(failure.doubted(said.is_in_doubt()));
    }
    let clock = || details.messages.iter().find_map(|message| aws::clock(message));
    let by_code = if is_declined { aws::by_table } else { aws::by_code };
    let by_aws = |code| clock().or_else(|| by_code(code));
    if let Some(code) = details.aws_code.as_deref().and_then(by_aws) {
        return Some(typed(code.class(), code.detail()));
    }
    let (class, code) = by_status(status, |reason| details.spelled(reason))?;
    Some(typed(class, code))
}

/// `status` is that of the response, or the one in its body.
fn built_in(response: &Response<'_>, status: u16, details: &Details, names_delay: bool) -> Failure {
    if let Some(failure) = by_body(response, status, details) {
        return failure;
    }
    let shown = response.status;
    let told = |class, words| {
        let reason = told(shown, words, details.own_code.as_deref());
        Failure::new(class, Evidence::Typed, reason)
    };
    let class = class_of(status);
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
    // These headers advise on an immediate retry. Against a rate limit, a wait in a queue helps.
    let says = |answer| SHOULD_RETRY.into_iter().any(|name| response.says(name, answer));
    if status != 429 && says(b"false") {
        return told(FailureClass::NonRetryable, Some("retry not wanted"));
    }
    let is_wanted = || says(b"true") || is_transient(response);
    if class == FailureClass::NonRetryable && is_wanted() {
        return told(FailureClass::Temporary, Some("retry wanted"));
    }
    let is_sender = || status == 500 && !names_delay && details.is_of_sender(response.body);
    if is_sender() && !is_wanted() {
        return told(FailureClass::NonRetryable, None);
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

fn is_transient(response: &Response<'_>) -> bool {
    TRANSIENT.into_iter().any(|name| response.says(name, b"true"))
}

fn pause(details: &Details) -> Option<Duration> {
    let is_said = |text: &String| Words::of_body(text.as_bytes()).hold_any(PAUSING);
    let is_it = PAUSES.iter().any(|reason| details.spelled(reason).is_some())
        || details.messages.iter().any(is_said);
    is_it.then_some(Duration::from_mins(1))
}

/// The first row of [`BY_STATUS`] whose reason `find` finds, and its word.
pub(super) fn by_status<'w>(
    status: u16,
    find: impl Fn(&str) -> Option<&'w str>,
) -> Option<(FailureClass, &'w str)> {
    let mut rows = BY_STATUS.iter().filter(|row| row.0 == status);
    rows.find_map(|row| Some((row.2, find(row.1)?)))
}

/// Classifies a provider's reason that stands alone.
pub(super) fn by_reason(word: &str) -> Option<Failure> {
    let word = fold(word);
    let found = |reasons: &'static str| reasons.split('|').find(|reason| fold(reason) == word);
    let failure = |class, reason| Failure::new(class, Evidence::Typed, reason);
    REASONS.iter().find_map(|(class, reasons)| Some(failure(*class, found(reasons)?)))
}

/// The class of a word that is a reason, or of a code with a part by which a retry helps; and that
/// word. A status that is retried anyway is more specific than a part that means a busy service. A
/// part in the code of a declined card is about the payer's limit, and chooses no class.
fn reason(details: &Details, status: u16, is_declined: bool) -> Option<(FailureClass, &str)> {
    let is_long =
        |class, word: &str| class != FailureClass::Quota || !is_short(word, details, status);
    let by_part = |class: FailureClass| {
        let is_it = |code: &&str| {
            code::by_part(code).is_some_and(|found| found.0 == class) && is_long(class, code)
        };
        let code = details.codes.iter().map(String::as_str).find(is_it)?;
        (!is_declined).then_some((class, code))
    };
    let by_row = |(class, reasons): &(FailureClass, &str)| {
        let whole = reasons.split('|').filter_map(|reason| details.spelled(reason));
        let whole = whole.map(|word| (*class, word)).find(|(class, word)| is_long(*class, word));
        whole.or_else(|| by_part(*class).filter(|_| *class != FailureClass::Temporary))
    };
    let is_final = class_of(status) == FailureClass::NonRetryable;
    let busy = || by_part(FailureClass::Temporary).filter(|_| is_final);
    REASONS.iter().find_map(by_row).or_else(busy)
}

/// Whether a word for a quota means a limit that passes soon. A service that names a delay has not
/// used up a day's quota: per-minute limits of Google come with both details. Databricks' 429 has
/// the word of Salesforce's 403, and FCM and Amazon's Selling Partner API use the word of
/// Firebase's 400 with a 429. Salesforce has one word for the requests of a day and concurrent
/// ones.
fn is_short(reason: &str, details: &Details, status: u16) -> bool {
    match reason {
        "QuotaFailure" => details.delay.is_some() && !details.is_of_day(),
        "REQUEST_LIMIT_EXCEEDED" => status == 429 || details.limits_calls_at_once,
        "QUOTA_EXCEEDED" | "QuotaExceeded" => status == 429,
        _ => false,
    }
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
        for (class, _, parts) in code::PARTS {
            for part in parts.split(' ') {
                assert_on_page(part, class);
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
            let is_part = |row: &(FailureClass, &str, &str)| {
                row.0.as_str() == class && row.2.split(' ').any(|part| part == word)
            };
            let is_condition =
                ["retryDelay", "policyName", "Concurrent", "quotaId", "PerDay"].contains(&word);
            assert!(
                is_reason || code::PARTS.iter().any(is_part) || is_condition,
                "the code has no {word} as {class}"
            );
        }
    }
}
