//! The life of a worker as seen from outside: its receives, the times when it must not receive, and
//! its end.

use std::collections::BTreeSet;
use std::time::Duration;

use requeue::embedded::MessageState;
use requeue::{FailureClass, Message, Mode};
use tokio::time::Instant;

use crate::book::{Book, Ended};
use crate::plan::{Plan, secs};
use crate::producer::{Maker, number};
use crate::system::World;
use crate::undeleted::Undeleted;

/// A worker that has nothing to do asks for messages more often than this, also where it leaves
/// alone what it calls.
const LONGEST_SILENCE: Duration = secs(600);
/// How long a circuit is open at first.
const FIRST_OPEN: Duration = secs(1);
/// The calls by which a circuit knows how many are answered, and the least of them that it reckons
/// with.
const WINDOW: u64 = 128;
const LEAST_ANSWERED: u64 = 13;
/// So many answers in a row, and earlier failures do not count any more.
const RECOVERED: usize = 16;

/// Two timers, each of which is a millisecond late at most.
const TICK: Duration = Duration::from_millis(2);

pub struct Life {
    /// Receives under way.
    receiving: usize,
    /// When something was last received, asked for or settled.
    pub last_seen: Instant,
    /// From when to when nothing is to be received.
    still: (Instant, Instant),
    /// The calls before its first hold: which message it was, and whether it failed. `None` when
    /// more happened than is known of.
    calls: Option<Vec<(usize, bool)>>,
    /// Since when it is told to end.
    ending: Option<Instant>,
    pub undeleted: Undeleted,
}

impl Life {
    pub fn new() -> Self {
        let now = Instant::now();
        Self {
            receiving: 0,
            last_seen: now,
            still: (now, now),
            calls: Some(Vec::new()),
            ending: None,
            undeleted: Undeleted::default(),
        }
    }

    /// A call has ended: the callee may have asked for a pause, or have failed so often that its
    /// circuit opens.
    fn heard(&mut self, plan: &Plan, n: usize, ended: Ended, is_known: bool) {
        let now = Instant::now();
        // A message that may not be deferred is called despite a pause, and may end it.
        if !matches!(ended, Ended::Failed(FailureClass::Temporary, _) | Ended::Cut) {
            self.still = (now, now);
        }
        let mut stand_still = |time: Duration| {
            if now + time > self.still.1 {
                self.still = (now, now + time);
            }
        };
        let has_failed = match (ended, plan.policy.max_pause) {
            (
                Ended::Failed(FailureClass::RateLimit | FailureClass::Quota, Some(pause)),
                Some(longest),
            ) => {
                self.calls = None;
                return stand_still(pause.min(longest));
            }
            (Ended::Failed(FailureClass::Temporary, _), _) => true,
            (Ended::Done | Ended::Final | Ended::Postponed(_) | Ended::Failed(..), _) => false,
            (Ended::Cut, _) => return self.calls = None,
        };
        let (Some(calls), Some(breaker)) = (&mut self.calls, &plan.policy.circuit_breaker) else {
            return;
        };
        if !is_known || calls.len() >= 100 {
            return self.calls = None;
        }
        calls.push((n, has_failed));
        let row: Vec<usize> =
            calls.iter().rev().take_while(|(_, failed)| *failed).map(|(n, _)| *n).collect();
        let before = &calls[..calls.len() - row.len()];
        let recovered =
            before.windows(RECOVERED).rposition(|calls| calls.iter().all(|(_, failed)| !failed));
        let before = &before[recovered.unwrap_or(0)..];
        let failed_before = before.iter().filter(|(_, failed)| *failed).count() as u64;
        let least =
            u64::from(breaker.threshold) * WINDOW / (WINDOW - failed_before).max(LEAST_ANSWERED);
        let messages = row.iter().collect::<BTreeSet<_>>().len() as u64;
        if row.len() as u64 >= least && messages >= u64::from(breaker.threshold) {
            self.calls = None;
            stand_still(FIRST_OPEN.min(breaker.reset_timeout));
        }
    }
}

impl Book {
    /// A worker asks for messages.
    pub fn asks(&mut self, world: &World, environment: usize) {
        let now = Instant::now();
        let life = self.lives.get_mut(&environment).expect("it was born");
        (life.last_seen, life.receiving) = (now, life.receiving + 1);
        let (since, until) = life.still;
        if life.ending.is_some_and(|told| now > told) {
            self.history.violate(
                None,
                format!("environment {environment} receives, though it is told to end"),
            );
        } else if since < now && now < until {
            self.history.violate(
                None,
                format!("environment {environment} receives what it could only defer"),
            );
        }
        // Who receives works on nothing.
        if self.lives[&environment].receiving == world.plan.receivers() {
            self.close_all(world, environment);
        }
    }

    /// It is answered, or not: then nobody knows what has become invisible for nothing.
    pub fn asked(&mut self, world: &World, environment: usize, is_answered: bool) {
        let life = self.lives.get_mut(&environment).expect("it was born");
        (life.last_seen, life.receiving) = (Instant::now(), life.receiving - 1);
        if is_answered {
            return;
        }
        for message in world.sqs.messages(world.queues(environment).0).expect("the queue exists") {
            let is_known = self.invocations.values().any(|invocation| {
                let member = invocation.members.get(&message.id);
                member.is_some_and(|member| member.receives >= u64::from(message.receive_count))
            });
            if matches!(message.state, MessageState::InFlightUntil(_)) && !is_known {
                let n = number(&message.body).expect("every message bears its mark");
                self.excuse_one(n, "a receive was not answered");
            }
        }
    }

    /// A call of the handler of a worker has ended.
    pub fn heard(
        &mut self,
        world: &World,
        environment: usize,
        n: usize,
        message: &Message,
        ended: Ended,
        is_known: bool,
    ) {
        let Some(processes) = world.plan.processes() else { return };
        let Some(life) = self.lives.get_mut(&environment) else { return };
        let is_over = message.time_left().is_zero();
        let rest = world.plan.limits.reserve.min(processes.shutdown_timeout / 4);
        let is_cut_off = life
            .ending
            .is_some_and(|told| told.elapsed() >= processes.shutdown_timeout.saturating_sub(rest));
        let is_paused = world.plan.has_one_scope() && world.plan.mode == Mode::Requeue;
        if is_paused && life.ending.is_none() {
            // A forger has the id of another message.
            let is_known =
                is_known && matches!(self.tracks[n].product.maker, Maker::Producer { .. });
            life.heard(&world.plan, n, ended, is_known);
        }
        if ended == Ended::Cut && !is_over && !is_cut_off {
            self.history.violate(Some(n), "cut short though it had time");
        }
    }

    /// Who was told to end begins nothing.
    pub fn is_begun_too_late(&self, environment: usize) -> bool {
        let ending = self.lives.get(&environment).and_then(|life| life.ending);
        ending.is_some_and(|told| Instant::now() > told)
    }

    /// Now and then: whether it still receives.
    pub fn look_after(&mut self, environment: usize) {
        let life = &self.lives[&environment];
        let is_idle = life.receiving == 0
            && self.of_environment(environment).all(|(_, all)| all.running == 0);
        if is_idle && life.last_seen.elapsed() > LONGEST_SILENCE {
            self.history
                .violate(None, format!("environment {environment} receives nothing any more"));
        }
    }

    pub fn told_to_end(&mut self, environment: usize) {
        self.history.note(None, format!("environment {environment} is told to end"));
        self.lives.get_mut(&environment).expect("it was born").ending = Some(Instant::now());
    }

    /// It has ended, as it was told.
    pub fn has_ended(&mut self, world: &World, environment: usize) {
        self.history.note(None, format!("environment {environment} has ended"));
        self.forget_used(environment);
        let life = self.lives.remove(&environment).expect("it was born");
        let took = life.ending.map(|told| told.elapsed());
        let processes = world.plan.processes().expect("it is a worker");
        if took.is_none_or(|took| took > processes.shutdown_timeout + TICK) {
            self.history.violate(
                None,
                format!("environment {environment} ended {took:?} after it was told to"),
            );
        }
        self.close_all(world, environment);
        self.conserve(world);
        self.secrecy(world);
    }

    pub fn was_killed(&mut self, world: &World, environment: usize) {
        self.lives.remove(&environment);
        for id in self.of_environment(environment).map(|(id, _)| id).collect::<Vec<_>>() {
            self.died(id);
            self.close(id);
        }
        self.conserve(world);
        self.secrecy(world);
    }

    /// All that a worker received is settled.
    fn close_all(&mut self, world: &World, environment: usize) {
        for id in self.of_environment(environment).map(|(id, _)| id).collect::<Vec<_>>() {
            if self.remembers_trouble(&self.invocations[&id]) {
                self.excuse(id, "trouble with the queue a while ago");
            }
            self.check_settled(world, id);
            if world.plan.mode == Mode::Requeue {
                self.gave_up(world, id);
            }
            self.close(id);
        }
    }
}
