//! Messages that the dead-letter queue of a FIFO queue moves on without a call, since a message of
//! their group kept them waiting on every receive there.
//!
//! A message keeps those behind it waiting until its receives used up its retries. An environment
//! that works on the dead-letter queue counts from the receive on which it first saw the message. So
//! after each environment that ended, the next one lets the message start again.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::book::{Book, Invocation};
use crate::producer::number;
use crate::system::World;

#[derive(Default)]
pub struct Waiting {
    /// The receive on which each environment first saw each message, as long as it lives.
    first: BTreeMap<(usize, String), u64>,
    /// How often each message was received behind one that kept it waiting.
    behind: BTreeMap<String, u64>,
}

impl Waiting {
    /// An environment takes the place of one that ended.
    pub fn born(&mut self, environment: usize) {
        self.first.retain(|(other, _), _| *other != environment);
    }
}

impl Book {
    /// Notes which messages of a batch of the dead-letter queue wait behind another.
    pub fn wait_behind(&mut self, world: &World, invocation: &Invocation, event: &Value) {
        if !(world.plan.is_fifo && invocation.is_on_dead) {
            return;
        }
        let mut waiting = BTreeSet::new();
        for record in event["Records"].as_array().expect("an event") {
            let id = record["messageId"].as_str().expect("a text").to_owned();
            let member = &invocation.members[&id];
            let group = &self.tracks[member.n].product.group;
            if waiting.contains(group) {
                *self.waiting.behind.entry(id.clone()).or_default() += 1;
            }
            let seen = (invocation.environment, id);
            let first = *self.waiting.first.entry(seen).or_insert(member.receives);
            if member.receives - first < u64::from(member.asked.retries(&world.plan)) {
                waiting.insert(group.clone());
            }
        }
    }

    /// The messages that another one kept waiting on each of their receives in the dead-letter
    /// queue.
    pub fn starved(&self, world: &World) -> BTreeSet<usize> {
        let receives = world.plan.dead_receives.unwrap_or(u64::MAX);
        let is_starved = |id| self.waiting.behind.get(id).is_some_and(|behind| *behind >= receives);
        let buried = world.buried();
        let starved = buried.iter().filter(|message| is_starved(&message.id));
        starved.filter_map(|message| number(&message.body)).collect()
    }
}
