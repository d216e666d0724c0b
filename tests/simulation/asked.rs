//! The producer's limits for the retries of its message, in attributes.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use requeue::queue::{Attribute, AttributeValue};

use crate::plan::{Plan, secs};
use requeue_testkit::dice::Dice;

/// The longest time for which each receive lets a message wait: 12 hours, less 5 minutes of a
/// batching window, a minute of delivery, and an invocation.
const LONGEST_HIDDEN_SECS: u64 = 41_940;

#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    pub max_retries: Option<u32>,
    pub ttl: Option<Duration>,
    pub not_before: Option<SystemTime>,
    /// Whether a receive may be over before that is due.
    pub is_far: bool,
    /// The name of an attribute whose value says nothing.
    pub unreadable: Option<&'static str>,
}

impl Asked {
    /// What is asked at this time, and the attributes that say so.
    pub fn draw(plan: &Plan, dice: &Dice, now: SystemTime) -> (Self, BTreeMap<String, Attribute>) {
        let (mut asked, mut attributes) = (Self::default(), BTreeMap::new());
        let mut say = |name: &str, value: AttributeValue| {
            let data_type =
                if matches!(value, AttributeValue::Text(_)) { "String" } else { "Binary" };
            attributes
                .insert(name.to_owned(), Attribute { data_type: data_type.to_owned(), value });
        };
        if !dice.happens(400) {
            return (asked, attributes);
        }
        let time = |time: SystemTime| {
            jiff::Timestamp::try_from(time).expect("a year we live to see").to_string()
        };
        if dice.happens(500) {
            // Also more than any policy of a run allows.
            let most = u32::try_from(dice.pick(&[0, 1, dice.roll(0, 6), 100])).expect("small");
            asked.max_retries = Some(most);
            say("requeue.maxRetries", AttributeValue::Text(most.to_string()));
        }
        // Which of the two is tighter matters only where there are two.
        if dice.happens(if plan.policy.message_ttl.is_some() { 700 } else { 200 }) {
            let ttl = dice.pick(&[0, dice.roll(1, 600), dice.roll(60, 7_200), 1_000_000]);
            asked.ttl = Some(secs(ttl));
            say("requeue.ttlSeconds", AttributeValue::Text(ttl.to_string()));
        }
        if dice.happens(400) {
            let wait = secs(dice.pick(&[
                dice.roll(0, 60),
                dice.roll(60, 900),
                dice.roll(900, 7_200),
                50_000,
            ]));
            let due = if dice.happens(150) { now - wait } else { now + wait };
            asked.not_before = Some(due);
            asked.is_far = due > now + secs(LONGEST_HIDDEN_SECS);
            say("requeue.notBefore", AttributeValue::Text(time(due)));
        }
        if dice.happens(150) {
            let text = |text: &str| AttributeValue::Text(text.to_owned());
            let (name, value) = dice.pick(&[
                ("requeue.maxRetries", text("-1")),
                ("requeue.maxRetries", text("4294967296")),
                ("requeue.maxRetries", AttributeValue::Binary(vec![b'1'])),
                ("requeue.ttlSeconds", text("1h")),
                ("requeue.ttlSeconds", text("1.5")),
                ("requeue.notBefore", text("1795334400")),
                // Long after SQS has dropped it.
                ("requeue.notBefore", text(&time(now + secs(30 * 86_400)))),
            ]);
            asked = Self { unreadable: Some(name), ..Self::default() };
            say(name, value);
        }
        (asked, attributes)
    }

    /// Whichever is tighter.
    pub fn retries(&self, plan: &Plan) -> u32 {
        self.max_retries.map_or(plan.policy.max_retries, |most| most.min(plan.policy.max_retries))
    }

    pub fn ttl(&self, plan: &Plan) -> Option<Duration> {
        self.ttl.into_iter().chain(plan.policy.message_ttl).min()
    }

    /// Receives that are used up by waiting in its place from `since` on.
    pub fn waits(&self, since: SystemTime) -> u64 {
        let rest =
            self.not_before.and_then(|due| due.duration_since(since).ok()).unwrap_or_default();
        u64::try_from(rest.as_nanos().div_ceil(secs(LONGEST_HIDDEN_SECS).as_nanos()))
            .expect("small")
    }

    /// Whether it may end in the dead-letter queue though no handler has seen it.
    pub fn may_never_be_called(&self, plan: &Plan) -> bool {
        // Each receive of its wait is one less of those that the redrive policy allows, and where
        // clocks differ one more may be used up.
        let is_told_apart = plan.mode == requeue::Mode::Requeue && plan.skew() == 0;
        let may_wait_too_long = self.is_far || (self.not_before.is_some() && !is_told_apart);
        // Receives behind others of its group count, also where those may be tried again more
        // often.
        let may_be_spent = plan.is_fifo && self.retries(plan) < plan.policy.max_retries;
        self.unreadable.is_some() || self.ttl.is_some() || may_wait_too_long || may_be_spent
    }
}
