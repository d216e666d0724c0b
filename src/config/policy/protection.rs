//! The settings that protect the downstream service: each may be switched off by one word.

#[cfg(test)]
use serde_json::{Value, json};

use std::time::Duration;

use super::bounds::{FAILURES, HOLD};
use super::json::Json;
#[cfg(test)]
use super::key::object;
use super::key::{Key, Listed, names, table};
use super::section::Section;
use super::shapes::{Count, OFF, Seconds, Shape, refuse};
use crate::policy::CircuitBreaker;

/// The word [`OFF`], or a number of seconds.
pub(super) struct Pauses;

/// The word [`OFF`], or an object.
pub(super) struct Breakers;

/// The keys of the circuit breaker.
mod breaker {
    use super::{Count, FAILURES, HOLD, Key, Listed, Seconds, table};

    table! {
        THRESHOLD, "threshold", Count = FAILURES,
            "The circuit opens after this many failures in a row, of as many messages of the same scope. If some calls get a response, more failures are needed: at the default of 5, up to 49. Default: 5.";
        RESET_TIMEOUT, "resetTimeoutSeconds", Seconds = HOLD,
            "The longest time between two rounds of probes. Default: 30.";
    }
}

impl Shape for Pauses {
    type Value = Option<Duration>;

    fn read(
        &self,
        json: Json<'_>,
        path: &str,
        problems: &mut Vec<String>,
    ) -> Option<Option<Duration>> {
        if json.text().as_deref() == Some(OFF) {
            return Some(None);
        }
        if json.number().is_none() {
            return refuse(json, path, &format!("{OFF}, or {}", HOLD.0.words()), problems);
        }
        HOLD.read(json, path, problems).map(Some)
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        json!({ "anyOf": [{ "enum": [OFF] }, HOLD.schema()] })
    }
}

impl Shape for Breakers {
    type Value = Option<CircuitBreaker>;

    fn read(
        &self,
        json: Json<'_>,
        path: &str,
        problems: &mut Vec<String>,
    ) -> Option<Option<CircuitBreaker>> {
        if json.text().as_deref() == Some(OFF) {
            return Some(None);
        }
        if json.members().is_none() {
            return refuse(json, path, &format!("{OFF}, or an object"), problems);
        }
        let mut section = Section::open(json, path, &names(breaker::ALL), problems)?;
        let default = CircuitBreaker::default();
        Some(Some(CircuitBreaker {
            threshold: section.read(&breaker::THRESHOLD, problems).unwrap_or(default.threshold),
            reset_timeout: section
                .read(&breaker::RESET_TIMEOUT, problems)
                .unwrap_or(default.reset_timeout),
        }))
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        json!({ "anyOf": [{ "enum": [OFF] }, object(breaker::ALL)] })
    }
}
