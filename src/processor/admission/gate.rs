//! The rate limits of a message's call, and the values by which they distinguish messages: tenants
//! that share a limit, and keys with limits of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::SystemTime;

use tokio::time::Instant;

use super::super::inner::{QueuePolicy, Slots};
use super::super::turn::Attempts;
use crate::delivery::Delivery;
use crate::limit::{KnownLimit, StartTag, Tenant};
use crate::lock::lock;
use crate::pointer;
use crate::policy::{KeyLimit, MessageKey, RateLimit, RetryPolicy};
use crate::scope::Scope;

/// A rate limit of a message's call.
#[derive(Clone, Copy)]
pub(super) struct Gate {
    /// 0 for the limit of all messages of the scope. The limits of keys count from 1.
    pub(super) number: usize,
    pub(super) scope: Scope,
    pub(super) limit: RateLimit,
    /// The units of the call by the message, and the units that the call is likely to use.
    estimated: u32,
    pub(super) units: u32,
    /// Calls of the burst that are reserved for messages with reservations of other limits.
    pub(super) kept: u32,
}

impl Gate {
    /// All limits of a message: those of its keys, and that of all messages.
    pub(super) fn all(
        policy: &RetryPolicy,
        total: Option<&RateLimit>,
        scope: Scope,
        delivery: &Delivery,
    ) -> Vec<Self> {
        let limits = &policy.key_limits;
        let of_key = |(number, limit): (usize, &KeyLimit)| {
            let later = limits[number + 1..].iter().map(|limit| &limit.limit).chain(total);
            let kept = limit.limit.together(later);
            let burst = limit.limit.burst.saturating_sub(kept).max(1);
            let limited = RateLimit { burst, ..limit.limit };
            let scope = key_scope(scope, &limit.key, delivery);
            Self::new(number + 1, scope, limited, kept, limit.units.as_ref(), delivery)
        };
        let total =
            total.map(|limit| Self::new(0, scope, *limit, 0, policy.units.as_ref(), delivery));
        limits.iter().enumerate().map(of_key).chain(total).collect()
    }

    fn new(
        number: usize,
        scope: Scope,
        limit: RateLimit,
        kept: u32,
        place: Option<&MessageKey>,
        delivery: &Delivery,
    ) -> Self {
        let units = units(place, limit.limit, delivery);
        let limit = RateLimit { has_units: place.is_some(), ..limit };
        Self { number, scope, limit, estimated: units, units, kept }
    }

    /// A start tag of its waiting list, in the form in which a message carries it.
    pub(super) fn carried(&self, tag: StartTag) -> StartTag {
        tag.of_limit(self.number)
    }

    pub(super) fn is_total(&self) -> bool {
        self.number == 0
    }

    /// The same limit, with the units that the call is likely to use.
    pub(super) fn likely(self, slots: &Slots, now: SystemTime) -> Self {
        let Self { scope, limit, estimated, .. } = self;
        if !limit.has_units {
            return self;
        }
        let units = match slots {
            Slots::Own(limiter) => {
                limiter.with(scope, (now, Instant::now()), |state| state.likely(estimated, &limit))
            }
            Slots::Shared(shared) => shared.likely(scope, &limit, estimated),
        };
        Self { units, ..self }
    }

    /// Reports to the limit the units of its call, and the rest of the allowance by its response.
    pub(super) async fn learn(&self, attempts: &Attempts, delivery: &Delivery) {
        let Self { scope, limit, .. } = *self;
        if limit.has_units {
            self.correct(attempts, delivery).await;
        }
        let allowances = delivery.allowances();
        if !limit.headers || allowances.is_empty() {
            return;
        }
        match &attempts.inner.policy(delivery).slots {
            Slots::Own(limiter) => {
                let now = (attempts.now(), Instant::now());
                limiter.with(scope, now, |state| {
                    let capped = state.capped(&KnownLimit::own(&limit), allowances, now.0);
                    *state = capped.unwrap_or(*state);
                });
            }
            Slots::Shared(shared) => shared.capped(scope, &limit, allowances).await,
        }
    }

    /// Counts the units that a call used instead of those that were estimated.
    async fn correct(&self, attempts: &Attempts, delivery: &Delivery) {
        let Self { scope, limit, estimated, units, .. } = *self;
        let Some(used) = delivery.used().map(|used| used.min(limit.limit)) else { return };
        let QueuePolicy { slots, pacer, .. } = attempts.inner.policy(delivery);
        if used != units {
            pacer.gate(scope).correct(&limit, units, used);
        }
        match slots {
            Slots::Own(limiter) => {
                let now = (attempts.now(), Instant::now());
                limiter.with(scope, now, |state| {
                    state.note_used(estimated, used);
                    *state = state.corrected(&limit, i64::from(used) - i64::from(units));
                });
            }
            Slots::Shared(shared) => shared.correct(scope, &limit, (estimated, units), used).await,
        }
    }
}

/// The tenant of a message. All messages without a value are one tenant.
pub(super) fn tenant(
    key: &MessageKey,
    weights: &BTreeMap<String, u8>,
    delivery: &Delivery,
) -> Tenant {
    let name = name(key, delivery).unwrap_or_default();
    let weight = weights.get(&name).copied().unwrap_or(1);
    Tenant::of(&name, weight)
}

/// The units of a message's call, at most `limit`.
fn units(place: Option<&MessageKey>, limit: u32, delivery: &Delivery) -> u32 {
    let Some(place) = place else { return 1 };
    let number = |text: &str| text.trim().trim_matches('"').parse::<f64>().ok();
    let units = text(place, delivery).and_then(number).filter(|units| !units.is_nan());
    if units.is_none() {
        warn_without(place);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    (units.unwrap_or(1.0).ceil() as u32).clamp(1, limit.max(1))
}

/// Warns once for each key of a rate limit that names nothing in a message, as a misspelt one does.
fn warn_without(place: &MessageKey) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if lock(&SAID).insert(place.to_string()) {
        tracing::warn!(
            %place,
            "a message has no value here: for a rate limit, all messages without one are those of one tenant, and have one unit each (said once)"
        );
    }
}

/// The text at a key in a message: JSON if it is in the body.
fn text<'a>(place: &MessageKey, delivery: &'a Delivery) -> Option<&'a str> {
    match place {
        MessageKey::Body(pointer) => pointer.find(delivery.payload()),
        MessageKey::MessageGroupId => delivery.group_id.as_deref(),
        MessageKey::Attribute(name) => delivery.attributes.get(name)?.as_text(),
    }
}

/// The scope of the messages with the same value of a key. All messages without a value share one.
fn key_scope(scope: Scope, key: &MessageKey, delivery: &Delivery) -> Scope {
    scope.of_key(key, &name(key, delivery).unwrap_or_default())
}

fn name(key: &MessageKey, delivery: &Delivery) -> Option<String> {
    let name = text(key, delivery).and_then(|text| match key {
        MessageKey::Body(_) => pointer::name(text),
        MessageKey::MessageGroupId => pointer::name_of_text(text),
        MessageKey::Attribute(name) => {
            let data_type = &delivery.attributes.get(name)?.data_type;
            let is_number = data_type.split('.').next() == Some("Number");
            let number = if is_number { pointer::name_of_number(text) } else { None };
            number.or_else(|| pointer::name_of_text(text))
        }
    });
    if name.is_none() {
        warn_without(key);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::FairShares;
    use crate::queue::Attribute;
    use crate::queue::AttributeValue;

    fn of(by: &str, delivery: &Delivery) -> Tenant {
        let mut shares = FairShares::by(by.parse().expect("a place"));
        shares.weights = [("acme", 3), ("7", 2)].map(|(it, weight)| (it.to_owned(), weight)).into();
        tenant(&shares.by, &shares.by_name(), delivery)
    }

    fn of_body(body: &str) -> Tenant {
        of("/tenant/id", &Delivery::of_text(body.to_owned()))
    }

    fn of_attribute(data_type: &str, value: AttributeValue) -> Tenant {
        let mut delivery = Delivery::of_text(String::new());
        let attribute = Attribute { data_type: data_type.to_owned(), value };
        delivery.attributes.insert("tenant".to_owned(), attribute);
        of("tenant", &delivery)
    }

    fn of_group(group: Option<&str>) -> Tenant {
        let mut delivery = Delivery::of_text(String::new());
        delivery.group_id = group.map(str::to_owned);
        of("MessageGroupId", &delivery)
    }

    #[test]
    fn equal_values_are_one_tenant_however_they_are_written() {
        let text = |text: &str| AttributeValue::Text(text.to_owned());
        let acme = of_body(r#"{"tenant":{"id":"acme"}}"#);
        // The first bytes of SHA-256 of `text acme`.
        assert_eq!(acme, Tenant { hash: u32::from_le_bytes([215, 92, 238, 45]), weight: 3 });
        assert_eq!(of_body(r#" {"id":1, "tenant" : {"id":"\u0061cme"}}"#), acme);
        assert_eq!([of_attribute("String.id", text("acme")), of_group(Some("acme"))], [acme; 2]);
        let seven = of_body(r#"{"tenant":{"id":7}}"#);
        assert_eq!(seven.weight, 2);
        assert_eq!(of_body(r#"{"tenant":{"id":0.70e1}}"#), seven);
        assert_eq!(of_attribute("Number.int", text("7.0")), seven);
        let text_seven = of_group(Some("7"));
        assert_eq!((text_seven.weight, text_seven.hash == seven.hash), (2, false));
        assert_eq!(of_attribute("String", text("7")), text_seven);
        assert_eq!(of_group(Some("other")).weight, 1);
    }

    #[test]
    fn all_messages_without_a_value_are_one_tenant() {
        let none = of_group(None);
        assert_eq!(none.weight, 1);
        for body in [
            "text",
            "{}",
            r#"{"tenant":"acme"}"#,
            r#"{"tenant":{"id":null}}"#,
            r#"{"tenant":{"id":""}}"#,
            r#"{"tenant":{"id":["acme"]}}"#,
        ] {
            assert_eq!(of_body(body), none, "{body}");
        }
        assert_eq!(of_attribute("Binary", AttributeValue::Binary(b"acme".to_vec())), none);
        assert_eq!(of("tenant", &Delivery::of_text(String::new())), none);
        assert_ne!(of_body(r#"{"tenant":{"id":"acme"}}"#).hash, none.hash);
    }

    #[test]
    fn units_are_a_number_also_as_a_text_rounded_up_and_at_most_the_limit() {
        let place = "/n".parse().expect("a pointer");
        for (n, expected) in [
            ("7", 7),
            (r#""7""#, 7),
            ("7.2", 8),
            ("1e1", 10),
            ("0", 1),
            ("-3", 1),
            ("1e9", 100),
            (r#""many""#, 1),
            ("null", 1),
            ("[7]", 1),
        ] {
            let delivery = Delivery::of_text(format!(r#"{{"n": {n} }}"#));
            assert_eq!(units(Some(&place), 100, &delivery), expected, "{n}");
        }
        assert_eq!(units(Some(&place), 100, &Delivery::of_text("text".to_owned())), 1);
        assert_eq!(units(None, 100, &Delivery::of_text(r#"{"n":7}"#.to_owned())), 1);
    }
}
