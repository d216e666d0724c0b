//! The classes of the document, and the keys of the entry of each.

#[cfg(test)]
use serde_json::{Value, json};

use super::bounds::{AGE, COPIES, DELAY, FACTOR};
use super::delays::{Backoffs, Jitters};
use super::json::Json;
use super::key::{Key, Listed, table};
use super::shapes::{Count, Number, Seconds, Shape};

/// The classes of the document. Both names of each are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    RateLimit,
    Quota,
    Temporary,
    /// The entry of the classes without an entry of their own.
    Default,
}

impl Class {
    pub(super) fn name(self) -> &'static str {
        let found = CLASSES.iter().find(|(_, class)| *class == self);
        found.map_or("", |(name, _)| name)
    }
}

pub(super) const CLASSES: [(&str, Class); 7] = [
    ("RATE_LIMIT", Class::RateLimit),
    ("RATE_LIMIT_EXCEEDED", Class::RateLimit),
    ("QUOTA", Class::Quota),
    ("QUOTA_EXCEEDED", Class::Quota),
    ("TEMPORARY", Class::Temporary),
    ("TEMPORARY_ERROR", Class::Temporary),
    ("DEFAULT", Class::Default),
];

/// An object of classes, which the parent reads.
pub(super) struct Entries;

/// The keys of one class.
pub(super) mod class {
    use super::{
        AGE, Backoffs, COPIES, Count, DELAY, FACTOR, Jitters, Key, Listed, Number, Seconds, table,
    };

    table! {
        BASE, "baseDelay", Seconds = DELAY,
            "The first delay in seconds, at most the longest. Not allowed beside a list.";
        MAX_DELAY, "maxDelay", Seconds = DELAY,
            "The longest delay in seconds.";
        MULTIPLIER, "multiplier", Number = FACTOR,
            "The factor by which an exponential delay grows. Not allowed beside another backoff.";
        BACKOFF, "backoff", Backoffs = Backoffs,
            "As in the document.";
        JITTER, "jitter", Jitters = Jitters,
            "As in the document. decorrelated needs the backoff exponential.";
        MAX_RETRIES, "maxRetries", Count = COPIES,
            "The most retries for failures of this class. A value above the document's has no effect.";
        TOTAL_TIMEOUT, "totalTimeoutSeconds", Seconds = AGE,
            "As in the document, for failures of this class. It replaces the document's value, shorter or longer.";
    }
}

impl Shape for Entries {
    type Value = ();

    fn read(&self, _: Json<'_>, _: &str, _: &mut Vec<String>) -> Option<()> {
        Some(())
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        let names = CLASSES
            .iter()
            .map(|(name, _)| ((*name).to_owned(), json!({ "$ref": "#/$defs/class" })));
        json!({ "type": "object", "properties": Value::Object(names.collect()), "additionalProperties": false })
    }
}
