//! The settings that protect the downstream service. Pauses and circuit breaker may be switched off
//! by one word.

#[cfg(test)]
use serde_json::{Value, json};

use std::time::Duration;

use super::bounds::{CALLS, FAILURES, HOLD, PERIOD, SLOT_WAIT};
use super::json::Json;
#[cfg(test)]
use super::key::object;
use super::key::{Key, Listed, names, table};
use super::section::Section;
use super::shapes::{Count, Flag, OFF, Seconds, Shape, refuse};
use crate::policy::{CircuitBreaker, RateLimit};

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

/// The rate limit, an object.
pub(super) struct Rates;

/// The keys of the rate limit.
mod rate {
    use super::{CALLS, Count, Flag, Key, Listed, PERIOD, SLOT_WAIT, Seconds, table};

    table! {
        LIMIT, "limit", Count = CALLS,
            "Calls in each period. Required.";
        PERIOD_SECONDS, "periodSeconds", Seconds = PERIOD,
            "The period. Default: 1.";
        BURST, "burst", Count = CALLS,
            "Calls that may come at once after a time without calls. Default: 1.";
        MAX_SLOT_WAIT, "maxReservationSeconds", Seconds = SLOT_WAIT,
            "How long a message may wait inside the function for its call. A longer wait is a deferral. Default: 2.";
        ADAPTIVE, "adaptive", Flag = Flag,
            "Whether the limit adapts to a service that takes less: refused calls lower it, to a tenth at least, and time without any raises it again. Default: false.";
    }
}

impl Shape for Rates {
    type Value = RateLimit;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<RateLimit> {
        if json.members().is_none() {
            return refuse(json, path, "an object", problems);
        }
        let mut section = Section::open(json, path, &names(rate::ALL), problems)?;
        section.require(&[rate::LIMIT.name], problems);
        let limit = section.read(&rate::LIMIT, problems);
        let period = section.read(&rate::PERIOD_SECONDS, problems);
        let burst = section.read(&rate::BURST, problems);
        let max_reservation = section.read(&rate::MAX_SLOT_WAIT, problems);
        let adaptive = section.read(&rate::ADAPTIVE, problems);
        let mut read = RateLimit::new(limit?, period.unwrap_or(Duration::from_secs(1)));
        read.burst = burst.unwrap_or(read.burst);
        read.max_reservation = max_reservation.unwrap_or(read.max_reservation);
        read.adaptive = adaptive.unwrap_or(read.adaptive);
        Some(read)
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        let mut schema = object(rate::ALL);
        schema["required"] = json!([rate::LIMIT.name]);
        schema
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
