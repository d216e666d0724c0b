//! The messages in the hands of a worker: the receive of each, and that the worker settles them
//! before it goes on or ends.

use std::time::{SystemTime, UNIX_EPOCH};

use requeue::Record;
use requeue::embedded::MessageState;
use requeue::queue::{Outgoing, QueueArn};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::book::{Book, Ended, Invocation, Member};
use crate::copies;
use crate::letters;
use crate::plan::secs;
use crate::producer::{Maker, number};
use crate::system::World;

impl Book {
    /// What was asked for has come.
    pub fn got(&mut self, world: &World, environment: usize, records: &[Record]) {
        let id = self.begin(world, environment, &event(records));
        let numbers: Vec<(String, usize)> = self.invocations[&id]
            .members
            .iter()
            .map(|(message, member)| (message.clone(), member.n))
            .collect();
        for (message, n) in
            numbers.into_iter().filter(|(_, n)| !self.tracks[*n].is_troubled).collect::<Vec<_>>()
        {
            let is_at_work = |member: &Member| member.is_called && member.ended.is_none();
            if self.invocations.values().filter_map(|all| all.members.get(&message)).any(is_at_work)
            {
                self.history.violate(Some(n), "received while it is worked on");
            }
        }
        for n in self.invocations[&id].members.values().map(|member| member.n).collect::<Vec<_>>() {
            let in_hand = self
                .of_environment(environment)
                .map(|(_, invocation)| invocation.of(n).count())
                .sum::<usize>();
            if in_hand > 1 {
                self.in_hand_twice.insert(n);
            }
        }
        let due = world.clock.now() + 2 * secs(world.plan.visibility()) / 3;
        let is_late = |state| matches!(state, MessageState::InFlightUntil(until) if until < due);
        let queue = world.sqs.messages(world.queues(environment).0).expect("the queue exists");
        if queue.iter().any(|message| {
            self.invocations[&id].members.contains_key(&message.id) && is_late(message.state)
        }) {
            self.excuse(id, "the answer came late");
        }
        self.conserve(world);
        self.secrecy(world);
    }

    /// Which receive a handle of a worker is from.
    pub fn by_handle(&mut self, environment: usize, handle: &str) -> Option<usize> {
        let is_it = |invocation: &Invocation| invocation.handles.contains_key(handle);
        let found = self
            .of_environment(environment)
            .find(|(_, invocation)| is_it(invocation))
            .map(|(id, _)| id);
        if found.is_none() {
            self.history.violate(None, "a foreign receipt handle");
        }
        self.is_seen(environment);
        found
    }

    /// Who sends these copies, of messages that a worker may have in hand twice.
    pub fn sender(
        &mut self,
        world: &World,
        environment: usize,
        queue: &QueueArn,
        entries: &[Outgoing<'_>],
        now: SystemTime,
    ) -> Option<usize> {
        let fits = |invocation: &Invocation, entry: &Outgoing<'_>| {
            let n = number(entry.body)?;
            invocation.of(n).next()?;
            let is_sent = invocation
                .confirmed
                .get(&n)
                .is_some_and(|copies| *copies >= invocation.of(n).count());
            Some(
                !is_sent
                    && copies::check(world, invocation, &self.tracks[n], n, queue, entry, now)
                        .is_ok(),
            )
        };
        let all = |invocation| {
            entries.iter().map(|entry| fits(invocation, entry)).collect::<Option<Vec<bool>>>()
        };
        let known = self
            .of_environment(environment)
            .filter_map(|(id, invocation)| Some((all(invocation)?, id)));
        // False comes first.
        let found = known.max_by_key(|(fits, _)| fits.iter().all(|fits| *fits)).map(|(_, id)| id);
        if found.is_none() {
            self.history.violate(None, "something is sent that this worker has not received");
        }
        self.is_seen(environment);
        found
    }

    pub fn is_of_same_worker(&self, world: &World, invocation: &Invocation, id: usize) -> bool {
        world.plan.processes().is_some()
            && invocation.environment == self.invocations[&id].environment
    }

    fn is_seen(&mut self, environment: usize) {
        if let Some(life) = self.lives.get_mut(&environment) {
            life.last_seen = Instant::now();
        }
    }

    pub fn of_environment(&self, environment: usize) -> impl Iterator<Item = (usize, &Invocation)> {
        let all = self.invocations.iter().map(|(id, invocation)| (*id, invocation));
        all.filter(move |(_, invocation)| invocation.environment == environment)
    }

    /// Before a receive of a worker is closed.
    pub fn check_settled(&mut self, world: &World, id: usize) {
        let has_ended = !self.lives.contains_key(&self.invocations[&id].environment);
        let queue = world
            .sqs
            .messages(world.queues(self.invocations[&id].environment).0)
            .expect("the queue exists");
        let members: Vec<(String, Member)> =
            self.invocations[&id].members.clone().into_iter().collect();
        for (message, member) in members {
            let n = member.n;
            let invocation = &self.invocations[&id];
            let view = queue.iter().find(|other| other.id == message);
            let is_ours = view.is_some_and(|view| u64::from(view.receive_count) == member.receives);
            let is_hidden =
                view.is_some_and(|view| matches!(view.state, MessageState::InFlightUntil(_)));
            let is_given_back = !member.is_called || member.ended == Some(Ended::Cut);
            // A message that is too old gets no call. If nothing was asked of SQS about it, it waits
            // for its visibility timeout.
            let is_left_expired = |message: &str, member: &Member| {
                !invocation.settled.contains(message)
                    && letters::has_expired(world, invocation.environment, member)
            };
            let is_refused = |message: &str, member: &Member| {
                member.past.is_dead_lettered
                    || is_left_expired(message, member)
                    || member.asked.unreadable.is_some()
                    || !matches!(self.tracks[member.n].product.maker, Maker::Producer { .. })
                    || copies::is_spent(&world.plan, member)
                    || self.may_have_dead_lettered(invocation, message, member.receives)
            };
            let is_plain = !is_refused(&message, &member)
                && !member.asked.may_never_be_called(&world.plan)
                && member.asked.not_before.is_none();
            // On a FIFO queue those behind one that is kept are kept with it.
            let group = &self.tracks[n].product.group;
            let is_kept = |(message, other): (&String, &Member)| {
                let is_kept = if other.is_called {
                    other.ended != Some(Ended::Done)
                } else {
                    is_refused(message, other)
                };
                is_kept && self.tracks[other.n].product.group == *group
            };
            let is_behind = world.plan.is_fifo && invocation.members.iter().any(is_kept);
            let is_kept_back = is_ours
                && is_hidden
                && is_plain
                && !is_behind
                && !invocation.settled.contains(&message);
            let is_left = is_ours
                && member.ended == Some(Ended::Done)
                && !invocation.deleted.contains(&message);
            if self.tracks[n].is_troubled {
                continue;
            }
            if is_left {
                self.history.violate(Some(n), format!("done, and left in the queue by {id}"));
            }
            // What took too long has failed, and may have been dead-lettered and left to the redrive
            // policy.
            if has_ended && is_given_back && !member.is_timed_out && is_kept_back {
                self.history.violate(Some(n), format!("not given back by {id}"));
            }
            // Somebody else may have it already.
            if has_ended && is_given_back && !invocation.deleted.contains(&message) {
                self.excuse_one(n, "given back by a worker that ends");
            }
        }
    }
}

/// As Lambda would hand it over.
fn event(records: &[Record]) -> Value {
    let millis = |time: SystemTime| {
        time.duration_since(UNIX_EPOCH).expect("after 1970").as_millis().to_string()
    };
    let record = |record: &Record| {
        json!({
            "messageId": record.message_id,
            "receiptHandle": record.receipt_handle,
            "body": record.body,
            "attributes": {
                "ApproximateReceiveCount": record.receive_count.map(|count| count.to_string()),
                "SentTimestamp": record.sent.map(millis),
                "ApproximateFirstReceiveTimestamp": record.first_received.map(millis),
                "DeadLetterQueueSourceArn": record.dead_letter_source.as_ref().map(QueueArn::to_string),
            },
        })
    };
    json!({ "Records": records.iter().map(record).collect::<Vec<_>>() })
}
