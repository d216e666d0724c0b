//! The rate limits of the document, and how tenants share one.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::json::Json;
use super::object::{KeyTable, keys};
use super::shapes::{CALLS, Count, Flag, Maybe, OneOf, PERIOD, SLOT_WAIT, Shape};
use crate::pointer;
use crate::policy::{
    FairShares, InvalidMessageKey, KeyLimit, LimitPer, MessageKey, RateLimit, RetryPolicy,
};

/// The most weights: a document has to fit into a parameter or secret.
pub(super) const MAX_WEIGHTS: usize = 1_000;
/// Each one costs a message a request to the table.
pub(super) const MAX_LIMITS: usize = 3;
/// A flow has one byte for its weight.
pub(super) const WEIGHT: Count = Count { min: 1, max: 255 };

#[derive(Clone)]
pub(super) struct Limited {
    /// For each value there, instead of all messages.
    key: Option<MessageKey>,
    limit: RateLimit,
    units: Option<MessageKey>,
    fair_by: Option<MessageKey>,
    weights: Option<BTreeMap<String, u8>>,
}

impl Limited {
    /// Those of a policy: the limit of all messages, and with it those of keys, if there are any.
    pub(super) fn of(policy: &RetryPolicy) -> (Option<Self>, Option<Vec<Self>>) {
        let shares = policy.fair_shares.as_ref();
        let total = policy.limit.map(|limit| Self {
            limit,
            units: policy.units.clone(),
            fair_by: shares.map(|shares| shares.by.clone()),
            weights: shares.map(|shares| shares.weights.clone()).filter(|it| !it.is_empty()),
            ..(LIMITED.default)()
        });
        if policy.key_limits.is_empty() {
            return (total, None);
        }
        let of_key = |KeyLimit { key, limit, units }: &KeyLimit| Self {
            key: Some(key.clone()),
            limit: *limit,
            units: units.clone(),
            ..(LIMITED.default)()
        };
        (None, Some(total.into_iter().chain(policy.key_limits.iter().map(of_key)).collect()))
    }

    pub(super) fn apply(self, policy: &mut RetryPolicy) {
        if let Some(key) = self.key {
            policy.key_limits.push(KeyLimit { key, limit: self.limit, units: self.units });
            return;
        }
        policy.limit = Some(self.limit);
        policy.units = self.units;
        policy.fair_shares = self.fair_by.map(|by| {
            let mut shares = FairShares::by(by);
            shares.weights = self.weights.unwrap_or_default();
            shares
        });
    }
}

pub(super) const LIMITED: KeyTable<Limited> = KeyTable {
    required: &["limit"],
    default: || {
        let limit = RateLimit::new(1, Duration::from_secs(1));
        Limited { key: None, limit, units: None, fair_by: None, weights: None }
    },
    keys: keys! { Limited:
        "key", Maybe(Place) => key;
        "limit", CALLS => limit.limit;
        "periodSeconds", PERIOD => limit.period;
        "burst", CALLS => limit.burst;
        "maxReservationSeconds", SLOT_WAIT => limit.max_reservation;
        "adaptive", Flag => limit.adaptive;
        "headers", Flag => limit.headers;
        "per", PER => limit.per;
        "units", Maybe(Place) => units;
        "fairBy", Maybe(Place) => fair_by;
        "weights", Maybe(Weights) => weights;
    },
};

const PER: OneOf<LimitPer> = OneOf(&[("call", LimitPer::Call), ("message", LimitPer::Message)]);

pub(super) struct Limit;

/// Rate limits: one of all messages, and those of keys.
pub(super) struct LimitList;

pub(super) struct Place;

pub(super) struct Weights;

impl Shape for Limit {
    type Value = Limited;

    fn read(&self, json: &Json<'_>) -> Option<Limited> {
        let members = json.members().unwrap_or_default();
        let has = |key: &str| members.iter().any(|(name, _)| name == key);
        let before = json.problems.count();
        if has("weights") && !has("fairBy") {
            let [weights, by, key] = ["weights", "fairBy", "key"].map(|name| json.path_to(name));
            json.problems.note(if has("key") {
                format!("{weights} has no effect with {key}: remove {weights}")
            } else {
                format!("{weights} has no effect without {by}: add {by}, or remove {weights}")
            });
        }
        let read = LIMITED.read(json);
        let is_adaptive = read.as_ref().is_some_and(|read| read.limit.adaptive);
        let of_all = [("adaptive", is_adaptive), ("fairBy", has("fairBy"))];
        for (other, _) in of_all.into_iter().filter(|(_, is_used)| has("key") && *is_used) {
            json.problems.note(format!(
                "{} is for the limit of all messages, but this one has {}: remove one of them",
                json.path_to(other),
                json.path_to("key")
            ));
        }
        read.filter(|_| json.problems.count() == before)
    }

    fn write(&self, limit: &Limited) -> Option<Value> {
        LIMITED.write(limit)
    }
}

impl Shape for LimitList {
    type Value = Vec<Limited>;

    fn read(&self, json: &Json<'_>) -> Option<Vec<Limited>> {
        let items = json.items().filter(|items| (1..=MAX_LIMITS).contains(&items.len()));
        let Some(items) = items else {
            return json.refuse(&format!("a list of 1 to {MAX_LIMITS} limits"));
        };
        let mut read: Vec<Limited> = Vec::new();
        let mut is_sound = true;
        for item in &items {
            let Some(limit) = Limit.read(item) else {
                is_sound = false;
                continue;
            };
            if read.iter().any(|other| other.key == limit.key) {
                let path = &item.path;
                json.problems.note(match &limit.key {
                    Some(key) => format!("{path} is a second limit for {key}, but one is enough: keep one of them"),
                    None => format!("{path} is a second limit for all messages, but there may be one: give it a key, or remove it"),
                });
                is_sound = false;
            }
            read.push(limit);
        }
        is_sound.then_some(read)
    }

    fn write(&self, limits: &Vec<Limited>) -> Option<Value> {
        limits.iter().map(|limit| Limit.write(limit)).collect::<Option<_>>().map(Value::Array)
    }
}

impl Shape for Place {
    type Value = MessageKey;

    fn read(&self, json: &Json<'_>) -> Option<MessageKey> {
        json.text()
            .and_then(|text| text.parse().ok())
            .or_else(|| json.refuse(InvalidMessageKey::ALLOWED))
    }

    fn write(&self, key: &MessageKey) -> Option<Value> {
        Some(key.to_string().into())
    }
}

impl Shape for Weights {
    type Value = BTreeMap<String, u8>;

    fn read(&self, json: &Json<'_>) -> Option<Self::Value> {
        let Some(members) = json.members().filter(|members| members.len() <= MAX_WEIGHTS) else {
            return json.refuse(&format!("an object of at most {MAX_WEIGHTS} weights"));
        };
        let problems = json.problems;
        let before = problems.count();
        let mut read = BTreeMap::new();
        let mut numbers = BTreeMap::new();
        for (value, mut weight) in members {
            weight.path = json.path_to(&json.shown(&value));
            let path = &weight.path;
            if value.is_empty() {
                problems.note(format!(
                    "{} has a weight of an empty text, but that names no tenant: remove it",
                    json.path
                ));
            }
            if read.contains_key(&value) {
                problems.note(format!("{path} stands more than once: keep one of them"));
            } else if let Some(number) = pointer::name_of_number(&value)
                && let Some(other) = numbers.insert(number, path.clone())
            {
                problems.note(format!(
                    "{path} is a weight, but {other} is that of the same number: keep one of them"
                ));
            }
            let weight = WEIGHT.read(&weight).and_then(|weight| u8::try_from(weight).ok());
            read.insert(value, weight.unwrap_or_default());
        }
        (problems.count() == before).then_some(read)
    }

    fn write(&self, weights: &Self::Value) -> Option<Value> {
        Some(weights.iter().map(|(value, weight)| (value.clone(), Value::from(*weight))).collect())
    }
}
