//! The settings for calls to SQS: an object with keys of its own, or one word.

#[cfg(test)]
use serde_json::{Value, json};

use super::json::Json;
use super::keys::{Listed, calls, receiving};
use super::names;
use super::section::Section;
use super::shapes::{Shape, refuse};
use crate::policy::{Backoff, CallPolicy};

/// Which calls to SQS.
pub(super) enum Calls {
    /// Those that settle messages: the word [`OFF`], or an object.
    Settling,
    /// Those by which a worker receives: an object. It receives as long as it runs, so there is
    /// nothing to switch off.
    Receiving,
}

/// Switches something off.
pub(super) const OFF: &str = "off";

impl Calls {
    fn keys(&self) -> &'static [&'static dyn Listed] {
        match self {
            Self::Settling => calls::ALL,
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
        let max_attempts = section.read(&calls::MAX_ATTEMPTS, problems);
        let base = section.read(&calls::BASE, problems);
        let cap = section.read(&calls::MAX_DELAY, problems);
        let multiplier = section.read(&calls::MULTIPLIER, problems);
        let jitter = section.read(&calls::JITTER, problems);

        let default = self.default();
        let longest = cap.unwrap_or(default.max_delay);
        // The default gives way to a shorter cap.
        let first = base.unwrap_or(default.backoff.base().min(longest));
        // What was refused has no value, and the default in its place contradicts nothing.
        if section.sound && first > longest {
            let [base_path, cap_path] =
                [calls::BASE.name, calls::MAX_DELAY.name].map(|name| section.path_to(name));
            let (first, longest) = (first.as_secs_f64(), longest.as_secs_f64());
            let place = if cap.is_some() { cap_path } else { "the default of maxDelay".to_owned() };
            problems
                .push(format!("{base_path} is {first}: allowed is at most {longest}, by {place}"));
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
        let object = super::schema::object(self.keys());
        match self {
            Self::Settling => json!({ "anyOf": [{ "enum": [OFF] }, object] }),
            Self::Receiving => object,
        }
    }
}
