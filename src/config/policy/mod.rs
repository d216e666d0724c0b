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
//!     "rate-limit": { "baseDelay": 60, "maxDelay": 300, "jitter": "full" },
//!     "quota": { "backoff": [300, 900, 3600], "maxRetries": 20, "totalTimeoutSeconds": 172800 },
//!     "default": { "baseDelay": 2, "multiplier": 2 }
//!   },
//!   "maxPauseSeconds": 60,
//!   "circuitBreaker": { "threshold": 5, "resetTimeoutSeconds": 30 },
//!   "rateLimit": { "limit": 50, "periodSeconds": 1, "burst": 1, "fairBy": "/tenant", "weights": { "acme": 3 } },
//!   "idempotency": { "key": "/orderId", "keepSeconds": 1209600, "whenUnavailable": "call" },
//!   "rules": [ { "match": { "status": [404, "5xx"], "words": "not found yet" }, "class": "temporary", "delaySeconds": 30 } ],
//!   "sqsCalls": { "maxAttempts": 5, "baseDelay": 0.1, "multiplier": 2, "maxDelay": 5, "jitter": { "proportional": 0.1 } },
//!   "receiveCalls": { "maxAttempts": 3, "baseDelay": 0.5, "multiplier": 2, "maxDelay": 10, "jitter": { "proportional": 0.2 } },
//!   "queueConfig": { "visibilityTimeout": 360, "messageRetentionPeriod": 1209600, "maxReceiveCount": 5 }
//! }
//! ```
//!
//! Every key may be left out. The table of keys is `keys.rs`, their bounds are in `shapes.rs`, and
//! `infra/policy.schema.json` has both for editors.
//!
//! - A value of a class overrides the global one, and the global one overrides the preset's. A
//!   preset replaces the whole table of classes. `default` is the entry of each class that has none
//!   of its own; it adds nothing to a class's own entry.
//! - `backoff` is `"exponential"`, `"linear"`, `"fibonacci"`, `"constant"`, or a list of seconds,
//!   whose last value repeats. A list names its own longest delay, so only a `maxDelay` of the same
//!   class bounds the list.
//! - `jitter` is `"full"`, `"equal"`, `"decorrelated"`, `"none"`, or `{"proportional": share}`. At
//!   the top level, `"jitterPercentage": share` means the same as that object.
//! - `sqsCalls`, `receiveCalls`, `maxPauseSeconds` and `circuitBreaker` stand here with their
//!   defaults. No preset changes them, and none has a `rateLimit`, `idempotency` or `rules`.
//! - Numbers of seconds may have fractions. A contradiction within a class is refused, for example
//!   a `multiplier` beside a `backoff` that is not exponential. A class's `maxRetries` above the
//!   policy's has no effect and is not refused: `requeue check` reports it.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::classify::Rules;
use crate::policy::{ClassPolicy, Jitter, Preset, RetryPolicy};
use crate::settings::Settings;

// Each module imports only modules that stand below it.
mod keys;
mod classes;
mod limits;
mod rules;
mod delays;
mod object;
mod shapes;
mod json;
#[cfg(test)]
mod tests;

use classes::{Class, Entry, Served};
use delays::Presets;
pub(super) use json::{InProblems, Json, Problems};
pub use keys::QueueConfig;
use keys::{DOCUMENT, Document};
use shapes::{Given, Shape as _};

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
        let Document { policy, rules, .. } = read(document)?;
        if rules.is_empty() {
            Ok(policy)
        } else {
            Err(InvalidPolicy { problems: vec![LOST.to_owned()] })
        }
    }
}

impl RetryPolicy {
    /// The document that gives this policy. It holds no rules: those name words of responses. A
    /// document has the shares of its own limit only, and none of a handler's.
    #[doc(hidden)]
    #[must_use]
    pub fn to_document(&self) -> Map<String, Value> {
        let mut document = Document::of(Preset::STANDARD, self.clone());
        let classes = [&self.rate_limit, &self.quota, &self.temporary];
        document.entries = RETRIED.into_iter().zip(classes.map(Entry::from)).collect();
        match DOCUMENT.write(&document) {
            Some(Value::Object(values)) => values,
            _ => Map::new(),
        }
    }
}

/// Writes the policy document that gives this policy, with all of its keys. The document has no
/// `rules`, which are no part of a policy.
///
/// ```
/// use requeue::policy::RetryPolicy;
///
/// let mut policy = RetryPolicy::critical();
/// policy.max_retries = 7;
/// let document = serde_json::to_string_pretty(&policy)?;
/// assert_eq!(document.parse(), Ok(policy));
/// # Ok::<(), serde_json::Error>(())
/// ```
impl Serialize for RetryPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_document().serialize(serializer)
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
    ///     r#"{"maxRetries": 7, "rules": [{"match": {"status": 404}, "class": "temporary"}]}"#,
    /// )?;
    /// assert_eq!((settings.policy.max_retries, settings.rules.len()), (7, 1));
    /// # Ok::<(), requeue::InvalidPolicy>(())
    /// ```
    pub fn set_policy(&mut self, document: &str) -> Result<(), InvalidPolicy> {
        let Document { policy, rules, .. } = read(document)?;
        (self.policy, self.rules) = (policy, rules);
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
        Ok(read(document)?.rules)
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
        Ok(read(document)?.queue)
    }
}

/// All problems of a policy document.
///
/// ```
/// let refused = r#"{"jitter": "ful"}"#.parse::<requeue::policy::RetryPolicy>().unwrap_err();
/// assert!(refused.to_string().starts_with("the policy has 1 problem:\n  jitter is `\"ful\"`: must be "));
/// ```
#[derive(Clone, PartialEq, Eq)]
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

requeue_sqs::debug_as_display!(InvalidPolicy);

impl std::error::Error for InvalidPolicy {}

/// Reads a document; the error holds every problem, each with the path of its key, its value, and
/// what is allowed.
fn read(text: &str) -> Result<Document, InvalidPolicy> {
    read_with(text, InProblems::Shown)
}

/// As [`read`]. A problem of a hidden document has no value of it.
pub(super) fn read_with(text: &str, shown: InProblems) -> Result<Document, InvalidPolicy> {
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let problems = Problems::new(shown);
    let json = Json::parse(text, &problems)
        .map_err(|error| InvalidPolicy { problems: vec![format!("is not JSON: {error}")] })?;
    let document = document(&json);
    match problems.into_found() {
        problems if problems.is_empty() => Ok(document),
        problems => Err(InvalidPolicy { problems }),
    }
}

/// The classes with a policy of their own.
const RETRIED: [Class; 3] = [Class::RateLimit, Class::Quota, Class::Temporary];

/// Reads the values of a document over those of its preset. Problems are noted.
fn document(json: &Json<'_>) -> Document {
    let problems = json.problems;
    let preset = json.fields(&DOCUMENT.names()).and_then(|keys| Presets.read(keys.get("preset")?));
    let built_in = preset.unwrap_or(Preset::STANDARD);
    let rows = built_in.policy();
    let mut document = Document::of(built_in, rows.clone());
    document.globals.is_refused = !DOCUMENT.fill(json, &mut document);
    if let Some(Given { value, path }) = document.jitter_percentage.take() {
        if let Some(jitter) = &document.globals.jitter {
            let other = &jitter.path;
            problems.note(format!("{path} sets the same as {other}: remove one of them"));
        }
        let share = Given { value: Jitter::Proportional(value), path };
        document.globals.jitter.get_or_insert(share);
    }
    let (limited, limits) = (document.limited.take(), document.limits.take());
    if limited.is_some() && limits.is_some() {
        problems.note("limits sets the same as rateLimit: remove one of them".to_owned());
    }
    limited.into_iter().chain(limits.into_iter().flatten()).for_each(|limit| {
        limit.apply(&mut document.policy);
    });
    let Document { policy, globals, entries, preset, .. } = &mut document;
    let none = Entry::default();
    let own = |class| entries.iter().find(|(name, _)| *name == class).map(|(_, entry)| entry);
    let default = own(Class::Default).unwrap_or(&none);
    let serve = |class, row: &ClassPolicy| {
        let entry = own(class).unwrap_or(default);
        Served { class, entry, globals, preset, row }.resolve(problems)
    };
    policy.rate_limit = serve(Class::RateLimit, &rows.rate_limit);
    policy.quota = serve(Class::Quota, &rows.quota);
    policy.temporary = serve(Class::Temporary, &rows.temporary);
    // If every class has its own entry, `default` serves none. It is checked nevertheless.
    if RETRIED.into_iter().all(|class| own(class).is_some()) {
        serve(Class::Default, &rows.temporary);
    }
    document
}
