//! The policy document: JSON text becomes a [`RetryPolicy`] and its [`Rules`], or a list of all its
//! problems. This module knows neither files nor variables.
//!
//! Every key may be left out. The table of keys is `keys.rs`, their bounds are in `shapes.rs`, and
//! `infra/policy.schema.json` has both for editors; `docs/reference/policy.md` explains them, and which
//! value overrides which.

use std::str::FromStr;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::classify::Rules;
use crate::failure::FailureClass;
use crate::policy::{ClassPolicy, Jitter, Preset, RetryPolicy};
use crate::settings::{QueueSettings, Settings};

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

use classes::{Entry, Served};
pub(super) use json::{InProblems, Json, Problems};
pub use keys::QueueConfig;
use keys::{DOCUMENT, Document, ENTRY};
use object::KeyTable;
use shapes::{Given, Shape as _};
pub(super) use shapes::{HANDLERS, MAX_SECONDS};

impl FromStr for RetryPolicy {
    type Err = InvalidPolicy;

    /// Reads a policy document, as `REQUEUE_POLICY` holds it: JSON, in which every key is optional.
    /// `infra/policy.schema.json` lists all keys.
    ///
    /// A document with `rules` or `queues` is refused, since they would be lost:
    /// [`Settings::set_policy`](crate::Settings::set_policy) reads them too.
    fn from_str(document: &str) -> Result<Self, InvalidPolicy> {
        let Document { policy, rules, queues, .. } = read(document, &DOCUMENT)?;
        let has_rules = rules.is_some_and(|rules| !rules.is_empty());
        let lost = [("rules", has_rules), ("queues", !queues.is_empty())].into_iter();
        let lost = lost.filter(|(_, is_lost)| *is_lost).map(|(key, _)| {
            format!("{key} would be lost: read the document with Settings::set_policy")
        });
        let problems: Vec<String> = lost.collect();
        if problems.is_empty() { Ok(policy) } else { Err(InvalidPolicy { problems }) }
    }
}

impl RetryPolicy {
    /// The document that gives this policy. It holds no rules: those name words of responses. A
    /// document has the shares of its own limit only, and none of a handler's.
    #[doc(hidden)]
    pub fn to_document(&self) -> Map<String, Value> {
        written(&whole(self), &DOCUMENT)
    }
}

impl QueueSettings {
    /// The entry of a document that gives these settings, without rules.
    #[doc(hidden)]
    pub fn to_document(&self) -> Map<String, Value> {
        let Self { policy, timeout, concurrency, dead_letter, .. } = self;
        let concurrency = concurrency.and_then(|count| u32::try_from(count).ok());
        let (timeout, dead_letter) = (*timeout, dead_letter.clone());
        written(&Document { timeout, concurrency, dead_letter, ..whole(policy) }, &ENTRY)
    }
}

fn whole(policy: &RetryPolicy) -> Document {
    let classes = [&policy.rate_limit, &policy.quota, &policy.temporary];
    let entries = RETRIED.into_iter().map(Some).zip(classes.map(Entry::from)).collect();
    Document { entries, ..Document::of(Preset::STANDARD, policy.clone()) }
}

fn written(document: &Document, table: &KeyTable<Document>) -> Map<String, Value> {
    match table.write(document) {
        Some(Value::Object(values)) => values,
        _ => Map::new(),
    }
}

/// Writes the document that gives this policy, with all of its keys. It has no `rules`.
impl Serialize for RetryPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_document().serialize(serializer)
    }
}

impl Settings {
    /// Sets [`policy`](Self::policy), [`rules`](Self::rules) and [`queues`](Self::queues) from a
    /// policy document, as `REQUEUE_POLICY` does. Rules and queues that were set before are lost.
    /// If it has a problem, the settings stay unchanged.
    pub fn set_policy(&mut self, document: &str) -> Result<(), InvalidPolicy> {
        self.read_policy(document, InProblems::Shown)
    }

    /// As [`set_policy`](Self::set_policy). A problem of a hidden document has no value of it.
    pub(super) fn read_policy(
        &mut self,
        document: &str,
        shown: InProblems,
    ) -> Result<(), InvalidPolicy> {
        let Document { policy, rules, queues, .. } = read_with(document, &DOCUMENT, shown)?;
        (self.policy, self.rules) = (policy, rules.unwrap_or_default());
        self.queues = queues.into_iter().map(|(name, entry)| (name, entry.into())).collect();
        Ok(())
    }
}

impl FromStr for QueueSettings {
    type Err = InvalidPolicy;

    fn from_str(entry: &str) -> Result<Self, InvalidPolicy> {
        Ok(read(entry, &ENTRY)?.into())
    }
}

impl From<Document> for QueueSettings {
    fn from(entry: Document) -> Self {
        let Document { policy, rules, timeout, concurrency, dead_letter, .. } = entry;
        let concurrency = concurrency.and_then(|count| usize::try_from(count).ok());
        let mut settings = Self::from(policy);
        (settings.rules, settings.timeout) = (rules, timeout);
        (settings.concurrency, settings.dead_letter) = (concurrency, dead_letter);
        settings
    }
}

impl FromStr for Rules {
    type Err = InvalidPolicy;

    fn from_str(document: &str) -> Result<Self, InvalidPolicy> {
        Ok(read(document, &DOCUMENT)?.rules.unwrap_or_default())
    }
}

impl FromStr for QueueConfig {
    type Err = InvalidPolicy;

    /// Reads the `queueConfig` of a policy document. Without that key, every value is `None`.
    fn from_str(document: &str) -> Result<Self, InvalidPolicy> {
        Ok(read(document, &DOCUMENT)?.queue)
    }
}

impl QueueConfig {
    /// Reads the `queueConfig` of a queue's entry in a policy document.
    pub fn of_queue(document: &str, queue: &str) -> Result<Self, InvalidPolicy> {
        let mut entries = read(document, &DOCUMENT)?.queues.into_iter();
        let own = entries.find(|(name, _)| name == queue);
        Ok(own.map(|(_, entry)| entry.queue).unwrap_or_default())
    }
}

/// All problems of a policy document.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("the policy has {}", listed(.problems, " problem:", " problems:"))]
pub struct InvalidPolicy {
    problems: Vec<String>,
}

impl InvalidPolicy {
    /// One sentence for each problem: the path of the key, its value, and what is allowed. The
    /// list is never empty.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}

requeue_sqs::debug_as_display!(InvalidPolicy);

pub(in crate::config) fn listed(problems: &[String], one: &str, several: &str) -> String {
    let what = if problems.len() == 1 { one } else { several };
    let lines = problems.iter().map(|problem| format!("\n  {problem}"));
    format!("{}{what}{}", problems.len(), lines.collect::<String>())
}

/// Reads a document; the error holds every problem.
fn read(text: &str, table: &KeyTable<Document>) -> Result<Document, InvalidPolicy> {
    read_with(text, table, InProblems::Shown)
}

/// As [`read`]. A problem of a hidden document has no value of it.
fn read_with(
    text: &str,
    table: &KeyTable<Document>,
    shown: InProblems,
) -> Result<Document, InvalidPolicy> {
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let problems = Problems::new(shown);
    let json = Json::parse(text, &problems)
        .map_err(|error| InvalidPolicy { problems: vec![format!("is not JSON: {error}")] })?;
    let mut document = Document::filled(&json, table);
    resolve(&mut document, &problems);
    for (_, entry) in &mut document.queues {
        resolve(entry, &problems);
    }
    match problems.into_found() {
        problems if problems.is_empty() => Ok(document),
        problems => Err(InvalidPolicy { problems }),
    }
}

/// The classes with a policy of their own.
const RETRIED: [FailureClass; 3] =
    [FailureClass::RateLimit, FailureClass::Quota, FailureClass::Temporary];

/// Completes a document that was read: its limits, and the policy of each class. Problems are noted.
fn resolve(document: &mut Document, problems: &Problems) {
    let rows = document.preset.policy();
    if let Some(Given { value, path }) = document.jitter_percentage.take() {
        if let Some(jitter) = &document.globals.jitter {
            let other = &jitter.path;
            problems.note(format!("{path} sets the same as {other}: remove one of them"));
        }
        let share = Given { value: Jitter::Proportional(value), path };
        document.globals.jitter.get_or_insert(share);
    }
    let (limited, limits) = (document.limited.take(), document.limits.take());
    limited.into_iter().chain(limits.into_iter().flatten()).for_each(|limit| {
        limit.apply(&mut document.policy);
    });
    let Document { policy, globals, entries, preset, .. } = document;
    let none = Entry::default();
    let own = |class| entries.iter().find(|(name, _)| *name == class).map(|(_, entry)| entry);
    let default = own(None).unwrap_or(&none);
    let serve = |class, row: &ClassPolicy| {
        let entry = own(class).unwrap_or(default);
        Served { class, entry, globals, preset, row }.resolve(problems)
    };
    policy.rate_limit = serve(Some(FailureClass::RateLimit), &rows.rate_limit);
    policy.quota = serve(Some(FailureClass::Quota), &rows.quota);
    policy.temporary = serve(Some(FailureClass::Temporary), &rows.temporary);
    // If every class has its own entry, `default` serves none. It is checked nevertheless.
    if RETRIED.into_iter().all(|class| own(Some(class)).is_some()) {
        serve(None, &rows.temporary);
    }
}
