//! The policy document: JSON text becomes a [`RetryPolicy`] and its [`Rules`], or a list of all its
//! problems. This module knows neither files nor variables.
//!
//! ```json
//! {
//!   "preset": "standard",
//!   "maxRetries": 50,
//!   "backoff": "exponential",
//!   "baseDelayMultiplier": 3.0,
//!   "maxDelaySeconds": 60,
//!   "jitter": { "proportional": 0.1 },
//!   "totalTimeoutSeconds": 43200,
//!   "errorConfigs": {
//!     "RATE_LIMIT": { "baseDelay": 60, "maxDelay": 300, "jitter": "full" },
//!     "QUOTA": { "backoff": [300, 900, 3600], "maxRetries": 20, "totalTimeoutSeconds": 172800 },
//!     "DEFAULT": { "baseDelay": 2, "multiplier": 2 }
//!   },
//!   "maxPauseSeconds": 60,
//!   "circuitBreaker": { "threshold": 5, "resetTimeoutSeconds": 30 },
//!   "rateLimit": { "limit": 50, "periodSeconds": 1, "burst": 1 },
//!   "idempotency": { "key": "/orderId", "keepSeconds": 1209600, "whenUnavailable": "call" },
//!   "rules": [ { "match": { "status": [404, "5xx"], "words": "not found yet" }, "class": "TEMPORARY", "delaySeconds": 30 } ],
//!   "sqsCalls": { "maxAttempts": 5, "baseDelay": 0.1, "multiplier": 2, "maxDelay": 5, "jitter": { "proportional": 0.1 } },
//!   "receiveCalls": { "maxAttempts": 3, "baseDelay": 0.5, "multiplier": 2, "maxDelay": 10, "jitter": { "proportional": 0.2 } },
//!   "queueConfig": { "visibilityTimeout": 360, "messageRetentionPeriod": 1209600, "maxReceiveCount": 5 }
//! }
//! ```
//!
//! Every key may be left out. The table of keys is `keys.rs`, their bounds are `bounds.rs`, and
//! `infra/policy.schema.json` has both for editors.
//!
//! - A value of a class overrides the global one, and the global one overrides the preset's. A
//!   preset replaces the whole table of classes. `DEFAULT` is the entry of each class that has none
//!   of its own; it adds nothing to a class's own entry.
//! - `backoff` is `"exponential"`, `"linear"`, `"fibonacci"`, `"constant"`, or a list of seconds,
//!   whose last value repeats. A list names its own longest delay, so only a `maxDelay` of the same
//!   class bounds the list.
//! - `jitter` is `"full"`, `"equal"`, `"decorrelated"`, `"none"`, or `{"proportional": share}`. At
//!   the top level, `"jitterPercentage": share` means the same as that object.
//! - `sqsCalls` sets how calls to SQS are tried again. No other key and no preset changes it. It is
//!   an object, here with its defaults, or `"off"`, which means one attempt. `receiveCalls` is
//!   such an object for the receives of a worker. It cannot be `"off"`: a worker never gives up.
//! - `maxPauseSeconds` and `circuitBreaker`, here with their defaults, bound the pauses and
//!   circuits of downstream services; `"off"` switches either off. No preset changes them.
//! - `rateLimit` bounds the calls to a downstream service. It has no default and is part of no
//!   preset. Only `limit` is required.
//! - `idempotency` drops messages about an event that is done. It has no default and is part of no preset,
//!   and each of its keys may be left out. It needs a table: see [`Once`](crate::policy::Idempotency).
//! - `queueConfig` is checked and reported, and changes nothing: see [`QueueConfig`].
//! - `rules` give failures their class; [`Rules`] describes their conditions.
//! - Numbers of seconds may have fractions. A contradiction within a class is refused, for example
//!   a `multiplier` beside a `backoff` that is not exponential. A class's `maxRetries` above the
//!   policy's has no effect and is not refused: `requeue check` reports it.

use std::fmt;
use std::str::FromStr;

use crate::classify::Rules;
use crate::policy::{Preset, RetryPolicy};
use crate::settings::Settings;

// Each module imports only modules that stand below it.
#[cfg(test)]
mod schema;
mod resolve;
mod keys;
mod classes;
mod rules;
mod protection;
mod idempotency;
mod calls;
mod queue;
mod section;
mod key;
mod delays;
mod bounds;
mod shapes;
mod json;
#[cfg(test)]
mod tests;

use classes::{CLASSES, Class, class};
pub(super) use json::{InProblems, Json};
use key::names;
pub use queue::QueueConfig;
use resolve::{Entry, Globals, resolve};
use section::Section;

impl FromStr for RetryPolicy {
    type Err = InvalidPolicy;

    /// Reads a policy document, as `REQUEUE_POLICY` holds it: JSON, in which every key is optional.
    /// `infra/policy.schema.json` lists all keys.
    ///
    /// # Errors
    ///
    /// All problems of the document. A document with `rules` is refused, since they would be lost:
    /// [`Settings::set_policy`](crate::Settings::set_policy) reads policy and rules.
    ///
    /// ```
    /// use requeue::policy::RetryPolicy;
    ///
    /// let policy: RetryPolicy = r#"{"preset": "critical", "maxRetries": 7}"#.parse()?;
    /// let mut same = RetryPolicy::critical();
    /// same.max_retries = 7;
    /// assert_eq!(policy, same);
    ///
    /// let refused = r#"{"maxRetrys": 7}"#.parse::<RetryPolicy>().unwrap_err();
    /// assert_eq!(refused.problems(), ["maxRetrys is unknown; did you mean maxRetries?"]);
    /// # Ok::<(), requeue::InvalidPolicy>(())
    /// ```
    fn from_str(document: &str) -> Result<Self, InvalidPolicy> {
        const LOST: &str = "rules would be lost: read the document with Settings::set_policy";
        let problems = match read(document) {
            Ok((policy, rules)) if rules.is_empty() => return Ok(policy),
            Ok(_) => vec![LOST.to_owned()],
            Err(problems) => problems,
        };
        Err(InvalidPolicy { problems })
    }
}

impl Settings {
    /// Sets [`policy`](Self::policy) and [`rules`](Self::rules) from a policy document, as
    /// `REQUEUE_POLICY` does. Rules that were set before are lost.
    ///
    /// # Errors
    ///
    /// All problems of the document. The settings then stay unchanged.
    ///
    /// ```
    /// use requeue::Settings;
    ///
    /// let mut settings = Settings::default();
    /// settings.set_policy(
    ///     r#"{"maxRetries": 7, "rules": [{"match": {"status": 404}, "class": "TEMPORARY"}]}"#,
    /// )?;
    /// assert_eq!((settings.policy.max_retries, settings.rules.len()), (7, 1));
    /// # Ok::<(), requeue::InvalidPolicy>(())
    /// ```
    pub fn set_policy(&mut self, document: &str) -> Result<(), InvalidPolicy> {
        let (policy, rules) = read(document).map_err(|problems| InvalidPolicy { problems })?;
        self.policy = policy;
        self.rules = rules;
        Ok(())
    }
}

impl FromStr for Rules {
    type Err = InvalidPolicy;

    /// Reads the rules of a policy document.
    ///
    /// # Errors
    ///
    /// All problems of the document.
    fn from_str(document: &str) -> Result<Self, InvalidPolicy> {
        read(document).map(|(_, rules)| rules).map_err(|problems| InvalidPolicy { problems })
    }
}

impl FromStr for QueueConfig {
    type Err = InvalidPolicy;

    /// Reads the `queueConfig` of a policy document. Without that key, every value is `None`.
    ///
    /// # Errors
    ///
    /// All problems of the document.
    fn from_str(document: &str) -> Result<Self, InvalidPolicy> {
        self::document(document, InProblems::Shown)
            .map(|(_, _, queue)| queue)
            .map_err(|problems| InvalidPolicy { problems })
    }
}

/// All problems of a policy document.
///
/// ```
/// let refused = r#"{"jitter": "ful"}"#.parse::<requeue::policy::RetryPolicy>().unwrap_err();
/// assert!(refused.to_string().starts_with("the policy has 1 problem:\n  jitter is `\"ful\"`: must be "));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPolicy {
    problems: Vec<String>,
}

impl InvalidPolicy {
    /// One sentence for each problem: the path of the key, its value, and what is allowed. The
    /// list is never empty.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}

impl fmt::Display for InvalidPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.problems.len();
        write!(f, "the policy has {count} problem{}:", if count == 1 { "" } else { "s" })?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for InvalidPolicy {}

/// Reads a document; the error holds every problem, each with the path of its key, its value, and
/// what is allowed.
pub(super) fn read(text: &str) -> Result<(RetryPolicy, Rules), Vec<String>> {
    read_with(text, InProblems::Shown)
}

/// As [`read`]. A problem of a hidden document has no value of it.
pub(super) fn read_with(
    text: &str,
    in_problems: InProblems,
) -> Result<(RetryPolicy, Rules), Vec<String>> {
    document(text, in_problems).map(|(policy, rules, _)| (policy, rules))
}

fn document(document: &str, in_problems: InProblems) -> Result<Document, Vec<String>> {
    // Some editors begin a file with a byte order mark.
    let document = document.strip_prefix('\u{feff}').unwrap_or(document);
    let json = Json::parse(document, in_problems)
        .map_err(|error| vec![format!("is not JSON: {error}")])?;
    let mut problems = Vec::new();
    match policy(json, &mut problems) {
        Some(read) if problems.is_empty() => Ok(read),
        _ => Err(problems),
    }
}

type Document = (RetryPolicy, Rules, QueueConfig);

fn policy(json: Json<'_>, problems: &mut Vec<String>) -> Option<Document> {
    let mut section = Section::open(json, "", &names(keys::ALL), problems)?;
    let preset = section.read(&keys::PRESET, problems).unwrap_or(Preset::STANDARD);
    let built_in = preset.policy();
    let max_retries = section.read(&keys::MAX_RETRIES, problems);
    let max_retry_after = section.read(&keys::MAX_RETRY_AFTER, problems);
    let message_ttl = section.read(&keys::MESSAGE_TTL, problems);
    let max_deferrals = section.read(&keys::MAX_DEFERRALS, problems);
    let max_deferral = section.read(&keys::MAX_DEFERRAL, problems);
    let max_postponements = section.read(&keys::MAX_POSTPONEMENTS, problems);
    let max_pause = section.read(&keys::MAX_PAUSE, problems);
    let circuit_breaker = section.read(&keys::CIRCUIT_BREAKER, problems);
    let limit = section.read(&keys::RATE_LIMIT, problems);
    let idempotency = section.read(&keys::IDEMPOTENCY, problems);
    let globals = Globals::read(&mut section, preset, problems);
    let entries = entries(&section, problems);
    let rules = section.read(&keys::RULES, problems).unwrap_or_default();
    let sqs_calls = section.read(&keys::SQS_CALLS, problems);
    let receive_calls = section.read(&keys::RECEIVE_CALLS, problems);
    let queue = section.read(&keys::QUEUE_CONFIG, problems).unwrap_or_default();

    let none = Entry::default();
    let own = |class| entries.iter().find(|(name, _)| *name == class).map(|(_, entry)| entry);
    let default = own(Class::Default).unwrap_or(&none);
    let mut serve =
        |class, row| resolve(class, own(class).unwrap_or(default), &globals, row, problems);
    let policy = RetryPolicy {
        max_retries: max_retries.unwrap_or(built_in.max_retries),
        max_retry_after: max_retry_after.unwrap_or(built_in.max_retry_after),
        message_ttl,
        max_deferrals: max_deferrals.unwrap_or(built_in.max_deferrals),
        max_deferral: max_deferral.unwrap_or(built_in.max_deferral),
        max_postponements: max_postponements.unwrap_or(built_in.max_postponements),
        max_pause: max_pause.unwrap_or(built_in.max_pause),
        circuit_breaker: circuit_breaker.unwrap_or(built_in.circuit_breaker),
        limit,
        idempotency,
        rate_limit: serve(Class::RateLimit, &built_in.rate_limit),
        quota: serve(Class::Quota, &built_in.quota),
        temporary: serve(Class::Temporary, &built_in.temporary),
        sqs_calls: sqs_calls.unwrap_or(built_in.sqs_calls),
        receive_calls: receive_calls.unwrap_or(built_in.receive_calls),
    };
    // If every class has its own entry, `DEFAULT` serves none. It is checked nevertheless.
    if [Class::RateLimit, Class::Quota, Class::Temporary]
        .into_iter()
        .all(|class| own(class).is_some())
    {
        serve(Class::Default, &built_in.temporary);
    }
    Some((policy, rules, queue))
}

/// The entries of `errorConfigs`. An unreadable entry counts as unsound, and has no values.
fn entries(section: &Section<'_>, problems: &mut Vec<String>) -> Vec<(Class, Entry)> {
    let Some(json) = section.json(keys::CLASSES.name) else {
        return Vec::new();
    };
    let known = CLASSES.map(|(name, _)| name);
    let Some(section) = Section::open(json, keys::CLASSES.name, &known, problems) else {
        return Vec::new();
    };
    let mut entries: Vec<(Class, Entry)> = Vec::new();
    for (name, class) in CLASSES {
        let Some(json) = section.json(name) else {
            continue;
        };
        let path = section.path_to(name);
        if let Some((_, earlier)) = entries.iter().find(|(other, _)| *other == class) {
            problems.push(format!(
                "{path} is a second entry for the class of {}: remove one of them",
                earlier.path
            ));
        }
        let entry = match Section::open(json, &path, &names(class::ALL), problems) {
            Some(mut section) => Entry::read(&mut section, path, problems),
            None => Entry::unsound(path),
        };
        entries.push((class, entry));
    }
    entries
}
