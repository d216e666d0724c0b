//! How the document says that delays grow and are spread, those of classes and those of calls to
//! SQS.

use std::time::Duration;

use serde_json::{Value, json};

use super::json::Json;
use super::object::{KeyTable, keys};
use super::shapes::{
    ATTEMPTS, DELAY, FACTOR, MAX_LISTED, Maybe, OFF, OneOf, PAUSE, SHARE, Shape, read_all,
};
use crate::policy::{Backoff, CallPolicy, Jitter, Preset};

const ZERO: Duration = Duration::ZERO;

/// The kinds of growth, before their first delay is known.
pub(super) const GROWTHS: OneOf<Backoff> = OneOf(&[
    ("exponential", Backoff::Exponential { base: ZERO, multiplier: 1.0 }),
    ("linear", Backoff::Linear { base: ZERO }),
    ("fibonacci", Backoff::Fibonacci { base: ZERO }),
    ("constant", Backoff::Constant { base: ZERO }),
]);

pub(super) const JITTERS: OneOf<Jitter> = OneOf(&[
    ("full", Jitter::Full),
    ("equal", Jitter::Equal),
    ("decorrelated", Jitter::Decorrelated),
    ("none", Jitter::None),
]);

pub(super) struct Presets;

/// One of the words of [`GROWTHS`], or a list of delays.
pub(super) struct Backoffs;

/// One of the words of [`JITTERS`], or a share.
pub(super) struct Jitters;

impl Shape for Presets {
    type Value = Preset;

    fn read(&self, json: &Json<'_>) -> Option<Preset> {
        let text = json.text();
        let found = Preset::ALL.into_iter().find(|preset| text.as_deref() == Some(preset.name));
        found.or_else(|| json.refuse(&Preset::ALL.map(|preset| preset.name).join(", ")))
    }
}

impl Shape for Backoffs {
    type Value = Backoff;

    fn read(&self, json: &Json<'_>) -> Option<Backoff> {
        if let Some(growth) = GROWTHS.find(json) {
            return Some(growth);
        }
        let Some(items) = json.items().filter(|items| (1..=MAX_LISTED).contains(&items.len()))
        else {
            let allowed = format!("{}, or a list of 1 to {MAX_LISTED} delays", GROWTHS.list());
            return json.refuse(&allowed);
        };
        let mut delays = read_all(&items, |item| DELAY.read(item))?.into_iter();
        Some(Backoff::List { first: delays.next()?, then: delays.collect() })
    }

    fn write(&self, backoff: &Backoff) -> Option<Value> {
        let Backoff::List { first, then } = backoff else { return Some(backoff.as_str().into()) };
        [first].into_iter().chain(then).map(|delay| DELAY.write(delay)).collect()
    }
}

impl Jitters {
    pub(super) const SHARE: &str = "proportional";
}

impl Shape for Jitters {
    type Value = Jitter;

    fn read(&self, json: &Json<'_>) -> Option<Jitter> {
        if let Some(jitter) = JITTERS.find(json) {
            return Some(jitter);
        }
        match json.members().as_deref() {
            Some([(name, share)]) if name == Self::SHARE => {
                SHARE.read(share).map(Jitter::Proportional)
            }
            _ => json.refuse(&format!(
                "{}, or {{\"{}\": a share from 0 to 1}}",
                JITTERS.list(),
                Self::SHARE
            )),
        }
    }

    fn write(&self, jitter: &Jitter) -> Option<Value> {
        match jitter {
            Jitter::Proportional(share) => Some(json!({ Self::SHARE: share })),
            word => JITTERS.write(word),
        }
    }
}

pub(super) enum Calls {
    /// Those that settle messages: the word [`OFF`], or an object.
    Settling,
    /// Receives of a worker: an object, since they cannot be switched off.
    Receiving,
}

/// The values of the document, of which each may be left out.
#[derive(Clone, Default)]
pub(super) struct CallValues {
    max_attempts: Option<u32>,
    base: Option<Duration>,
    max_delay: Option<Duration>,
    multiplier: Option<f64>,
    jitter: Option<Jitter>,
}

pub(super) const CALL: KeyTable<CallValues> = KeyTable {
    required: &[],
    default: CallValues::default,
    keys: keys! { CallValues:
        "maxAttempts", Maybe(ATTEMPTS) => max_attempts;
        "baseDelay", Maybe(PAUSE) => base;
        "maxDelay", Maybe(PAUSE) => max_delay;
        "multiplier", Maybe(FACTOR) => multiplier;
        "jitter", Maybe(Jitters) => jitter;
    },
};

impl Shape for Calls {
    type Value = CallPolicy;

    fn read(&self, json: &Json<'_>) -> Option<CallPolicy> {
        let is_off = json.text().as_deref() == Some(OFF);
        match self {
            Self::Settling if is_off => return Some(CallPolicy::off()),
            Self::Settling if json.members().is_none() => {
                return json.refuse(&format!("{OFF}, or an object"));
            }
            Self::Receiving if is_off => {
                return json.refuse("an object (a worker tries again as long as it runs)");
            }
            Self::Settling | Self::Receiving => {}
        }
        let default = match self {
            Self::Settling => CallPolicy::default(),
            Self::Receiving => CallPolicy::receiving(),
        };
        // A refused value contradicts no other.
        let values = CALL.read(json)?;
        let longest = values.max_delay.unwrap_or(default.max_delay);
        // The default is cut to a shorter cap.
        let first = values.base.unwrap_or(default.backoff.base().min(longest));
        if first > longest {
            let base_path = json.path_to("baseDelay");
            let place = match values.max_delay {
                Some(_) => json.path_to("maxDelay"),
                None => "the default of maxDelay".to_owned(),
            };
            let (first, longest) = (first.as_secs_f64(), longest.as_secs_f64());
            json.problems
                .note(format!("{base_path} is {first}: must be at most {longest}, by {place}"));
            return None;
        }
        let multiplier = values.multiplier.unwrap_or(CallPolicy::MULTIPLIER);
        Some(CallPolicy {
            max_attempts: values.max_attempts.unwrap_or(default.max_attempts),
            backoff: Backoff::Exponential { base: first, multiplier },
            max_delay: longest,
            jitter: values.jitter.unwrap_or(default.jitter),
        })
    }

    fn write(&self, calls: &CallPolicy) -> Option<Value> {
        if matches!(self, Self::Settling) && calls.max_attempts <= 1 {
            return Some(OFF.into());
        }
        let multiplier = match calls.backoff {
            Backoff::Exponential { multiplier, .. } => Some(multiplier),
            _ => None,
        };
        CALL.write(&CallValues {
            max_attempts: Some(calls.max_attempts),
            base: Some(calls.backoff.base()),
            max_delay: Some(calls.max_delay),
            multiplier,
            jitter: Some(calls.jitter),
        })
    }
}
