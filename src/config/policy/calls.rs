//! The settings for calls to SQS: an object with keys of its own, or one word.

#[cfg(test)]
use serde_json::{Value, json};

use super::bounds::{ATTEMPTS, FACTOR, PAUSE};
use super::delays::Jitters;
use super::json::Json;
#[cfg(test)]
use super::key::object;
use super::key::{Key, Listed, names, table};
use super::section::Section;
use super::shapes::{Count, Number, OFF, Seconds, Shape, refuse};
use crate::policy::{Backoff, CallPolicy};

/// The calls to SQS for which the settings are.
pub(super) enum Calls {
    /// Those that settle messages: the word [`OFF`], or an object.
    Settling,
    /// Receives of a worker: an object. A worker receives as long as it runs, so nothing can be
    /// switched off.
    Receiving,
}

/// The keys of the settings for calls to SQS.
pub(super) mod settling {
    use super::{ATTEMPTS, Count, FACTOR, Jitters, Key, Listed, Number, PAUSE, Seconds, table};

    table! {
        MAX_ATTEMPTS, "maxAttempts", Count = ATTEMPTS,
            "The most attempts, the first one included. Default: 5.";
        BASE, "baseDelay", Seconds = PAUSE,
            "The first pause in seconds, at most the longest. Default: 0.1.";
        MAX_DELAY, "maxDelay", Seconds = PAUSE,
            "The longest pause in seconds. Default: 5.";
        MULTIPLIER, "multiplier", Number = FACTOR,
            "The factor by which the pause grows. Default: 2.";
        JITTER, "jitter", Jitters = Jitters,
            "How Requeue spreads a pause. Default: {\"proportional\": 0.1}.";
    }
}

/// The keys of the settings for receiving, which are those for other calls with other defaults.
mod receiving {
    use super::{ATTEMPTS, Count, FACTOR, Jitters, Key, Listed, Number, PAUSE, Seconds, table};

    table! {
        MAX_ATTEMPTS, "maxAttempts", Count = ATTEMPTS,
            "After this many failures in a row the log has an error, and a worker does not start. If SQS refuses for good, one failure is enough. Default: 3.";
        BASE, "baseDelay", Seconds = PAUSE,
            "The first pause in seconds, at most the longest. Default: 0.5.";
        MAX_DELAY, "maxDelay", Seconds = PAUSE,
            "The longest pause in seconds. Default: 10.";
        MULTIPLIER, "multiplier", Number = FACTOR,
            "The factor by which the pause grows. Default: 2.";
        JITTER, "jitter", Jitters = Jitters,
            "How Requeue spreads a pause. Default: {\"proportional\": 0.2}.";
    }
}

impl Calls {
    fn keys(&self) -> &'static [&'static dyn Listed] {
        match self {
            Self::Settling => settling::ALL,
            Self::Receiving => receiving::ALL,
        }
    }

    fn default(&self) -> CallPolicy {
        match self {
            Self::Settling => CallPolicy::default(),
            Self::Receiving => CallPolicy::receiving(),
        }
    }
}

impl Shape for Calls {
    type Value = CallPolicy;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<CallPolicy> {
        let is_off = json.text().as_deref() == Some(OFF);
        match self {
            Self::Settling if is_off => return Some(CallPolicy::off()),
            Self::Settling if json.members().is_none() => {
                return refuse(json, path, &format!("{OFF}, or an object"), problems);
            }
            Self::Receiving if is_off => {
                return refuse(
                    json,
                    path,
                    "an object (a worker tries again as long as it runs)",
                    problems,
                );
            }
            Self::Settling | Self::Receiving => {}
        }
        let mut section = Section::open(json, path, &names(self.keys()), problems)?;
        let max_attempts = section.read(&settling::MAX_ATTEMPTS, problems);
        let base = section.read(&settling::BASE, problems);
        let cap = section.read(&settling::MAX_DELAY, problems);
        let multiplier = section.read(&settling::MULTIPLIER, problems);
        let jitter = section.read(&settling::JITTER, problems);

        let default = self.default();
        let longest = cap.unwrap_or(default.max_delay);
        // The default is cut to a shorter cap.
        let first = base.unwrap_or(default.backoff.base().min(longest));
        // A key that was refused has no value, and its default contradicts nothing.
        if section.sound && first > longest {
            let [base_path, cap_path] =
                [settling::BASE.name, settling::MAX_DELAY.name].map(|name| section.path_to(name));
            let (first, longest) = (first.as_secs_f64(), longest.as_secs_f64());
            let place = if cap.is_some() { cap_path } else { "the default of maxDelay".to_owned() };
            problems.push(format!("{base_path} is {first}: must be at most {longest}, by {place}"));
        }
        Some(CallPolicy {
            max_attempts: max_attempts.unwrap_or(default.max_attempts),
            backoff: Backoff::Exponential {
                base: first,
                multiplier: multiplier.unwrap_or(CallPolicy::MULTIPLIER),
            },
            max_delay: longest,
            jitter: jitter.unwrap_or(default.jitter),
        })
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        let object = object(self.keys());
        match self {
            Self::Settling => json!({ "anyOf": [{ "enum": [OFF] }, object] }),
            Self::Receiving => object,
        }
    }
}
