//! How the document says that delays grow and are spread.

use std::time::Duration;

#[cfg(test)]
use serde_json::{Value, json};

use super::bounds::{DELAY, SHARE};
use super::json::Json;
use super::shapes::{MAX_LISTED, OneOf, Shape, read_all, refuse};
use crate::policy::{Jitter, Preset};

/// How delays grow, as the document says it; a list brings its delays.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Growth {
    Exponential,
    Linear,
    Fibonacci,
    Constant,
    List { first: Duration, then: Vec<Duration> },
}

pub(super) const GROWTHS: OneOf<Growth> = OneOf(&[
    ("exponential", Growth::Exponential),
    ("linear", Growth::Linear),
    ("fibonacci", Growth::Fibonacci),
    ("constant", Growth::Constant),
]);

pub(super) const JITTERS: OneOf<Jitter> = OneOf(&[
    ("full", Jitter::Full),
    ("equal", Jitter::Equal),
    ("decorrelated", Jitter::Decorrelated),
    ("none", Jitter::None),
]);

/// The name of a preset.
pub(super) struct Presets;

/// One of the words of [`GROWTHS`], or a list of delays.
pub(super) struct Backoffs;

/// One of the words of [`JITTERS`], or a share.
pub(super) struct Jitters;

impl Shape for Presets {
    type Value = Preset;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<Preset> {
        let found =
            json.text().and_then(|text| Preset::ALL.into_iter().find(|preset| preset.name == text));
        found.or_else(|| {
            refuse(json, path, &Preset::ALL.map(|preset| preset.name).join(", "), problems)
        })
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        json!({ "enum": Preset::ALL.map(|preset| preset.name) })
    }
}

impl Shape for Backoffs {
    type Value = Growth;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<Growth> {
        if let Some(growth) = GROWTHS.find(json) {
            return Some(growth);
        }
        let Some(items) = json.items().filter(|items| (1..=MAX_LISTED).contains(&items.len()))
        else {
            let allowed = format!("{}, or a list of 1 to {} delays", GROWTHS.list(), MAX_LISTED);
            return refuse(json, path, &allowed, problems);
        };
        let delays = read_all(items, path, problems, |item, path, problems| {
            DELAY.read(item, path, problems)
        });
        let mut delays = delays?.into_iter();
        Some(Growth::List { first: delays.next()?, then: delays.collect() })
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        let list = json!({ "type": "array", "items": DELAY.schema(), "minItems": 1, "maxItems": MAX_LISTED });
        json!({ "anyOf": [GROWTHS.schema(), list] })
    }
}

impl Jitters {
    const SHARE: &str = "proportional";
}

impl Shape for Jitters {
    type Value = Jitter;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<Jitter> {
        if let Some(jitter) = JITTERS.find(json) {
            return Some(jitter);
        }
        match json.members().as_deref() {
            Some([(name, share)]) if name == Self::SHARE => SHARE
                .read(*share, &format!("{path}.{}", Self::SHARE), problems)
                .map(Jitter::Proportional),
            _ => {
                let allowed =
                    format!("{}, or {{\"{}\": a share from 0 to 1}}", JITTERS.list(), Self::SHARE);
                refuse(json, path, &allowed, problems)
            }
        }
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        let share = json!({
            "type": "object",
            "properties": { Self::SHARE: SHARE.schema() },
            "required": [Self::SHARE],
            "additionalProperties": false,
        });
        json!({ "anyOf": [JITTERS.schema(), share] })
    }
}
