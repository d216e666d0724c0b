//! The invariants. Nothing is lost, no message is deleted before its copy is confirmed, and every
//! bound is kept. The response names messages of the batch, once each. The handler sees the sent
//! body, and no log line has a secret.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use requeue::embedded::{MessageState, MessageView};
use requeue::queue::{CallError, Confirmation, Outgoing, QueueArn};
use requeue::{InvocationError, Message, Mode, SqsBatchResponse};
use tokio::time::Instant;

use crate::book::{Book, HANDLE, InCall, Invocation, Member, Track};
use crate::bulk;
use crate::copies;
use crate::letters;
use crate::plan::{DeadLetters, secs};
use crate::producer::{CANARY, Copies, Maker, number};
use crate::system::World;
use crate::wire::Members;

/// Clocks that are further apart than this make everything look like a redrive.
const MAX_SKEW: u64 = 120;
/// The resolution of a timer.
const TICK: Duration = Duration::from_millis(1);
/// The shortest deferral of a message that waits in its place.
const LEAST_DEFERRAL_IN_PLACE: Duration = Duration::from_secs(60);

impl Book {
    /// The handler is called: by which message, and for the how many-th time.
    pub fn called(
        &mut self,
        world: &World,
        environment: usize,
        message: &Message,
        in_call: InCall,
    ) -> Option<(usize, usize)> {
        let found = self.find(
            environment,
            message,
            |member| !member.is_called,
            |invocation, id| {
                invocation.running += usize::from(in_call.is_first());
                let member = invocation.members.get_mut(id).expect("it is there");
                member.in_call = in_call;
                (member.is_called, member.told) = (true, message.retry_count().into());
            },
        );
        let Some((n, id)) = found else {
            self.history.violate(
                number(message.body()),
                "called, though not in a batch, or once more in the same",
            );
            return None;
        };
        let others = in_call.messages - 1;
        let with = if others > 0 { format!(", with {others} others") } else { String::new() };
        self.history.note(Some(n), format!("called by {id}, attempt {}{with}", message.attempt()));
        if let Err(what) = self.check_call(world, message, n, id) {
            self.history.violate(Some(n), what);
        }
        let member = self.invocations[&id].members[message.id().unwrap_or_default()].clone();
        if let Err(what) = bulk::check_company(&world.plan, message, &member) {
            self.history.violate(Some(n), what);
        }
        if let Err(what) = self.check_attempt(world, message, environment, &member) {
            self.history.violate(Some(n), what);
        }
        if let Err(what) = self.check_bounds(world, environment, message, &member) {
            self.history.violate(Some(n), what);
        }
        if let Err(what) = self.check_probe(world, environment, message, &member) {
            self.history.violate(Some(n), what);
        }
        if let Err(what) = self.check_undeleted(message, id) {
            self.history.violate(Some(n), what);
        }
        if let Err(what) = self.check_once(world, environment, message) {
            self.history.violate(Some(n), what);
        }
        let of = (n, message.id().unwrap_or_default());
        if let Err(what) = self.check_rates(world, environment, of, in_call) {
            self.history.violate(Some(n), what);
        }
        let track = &mut self.tracks[n];
        track.calls += 1;
        *track.calls_of.entry(message.id().unwrap_or_default().to_owned()).or_default() += 1;
        track.calls_when_dead += usize::from(world.plan.works_on_dead(environment));
        Some((n, track.calls))
    }

    /// No call is beyond the limits of policy and producer, whatever the body says.
    fn check_bounds(
        &self,
        world: &World,
        environment: usize,
        message: &Message,
        member: &Member,
    ) -> Result<(), String> {
        let (plan, track) = (&world.plan, &self.tracks[member.n]);
        let is_afresh =
            track.redrives > 0 || plan.works_on_dead(environment) || plan.skew() > MAX_SKEW;
        if is_afresh || track.is_troubled {
            return Ok(());
        }
        let is_dated = plan.trouble.unreadable == 0;
        let latest = member.asked.ttl(plan).filter(|_| is_dated).map(|ttl| track.sent + ttl + TICK);
        ensure(
            latest.is_none_or(|latest| world.time_of(environment) <= latest),
            "a bound moved by a body: called after it has expired",
        )?;
        let is_counted = !plan.store_uses_receives()
            && world.table.as_ref().is_none_or(|table| table.wiped() == 0);
        if !copies::waits_in_place(plan) || !is_counted {
            return Ok(());
        }
        let calls = track.calls_of.get(message.id().unwrap_or_default()).copied().unwrap_or(0);
        ensure(
            calls <= usize::try_from(message.retry_count()).expect("small"),
            "an earlier call that is no attempt",
        )?;
        let most = usize::try_from(member.asked.retries(plan)).expect("small");
        ensure(!plan.is_fifo || calls <= most, "a call beyond a producer's limit")
    }

    fn check_call(
        &self,
        world: &World,
        message: &Message,
        n: usize,
        id: usize,
    ) -> Result<(), String> {
        let (track, invocation, plan) = (&self.tracks[n], &self.invocations[&id], &world.plan);
        let product = &track.product;
        let is_same = **message.body() == product.seen;
        ensure(is_same, "the handler does not see the body that was sent")?;
        ensure(
            *message.attributes() == product.attributes,
            "the handler does not see the attributes that were sent",
        )?;
        ensure(
            message.group_id() == product.group.as_deref(),
            "the handler does not see the group",
        )?;
        ensure(product.maker != Maker::Successor, "a later version's message is handled")?;
        ensure(
            invocation.running <= plan.limits.concurrency.max(1),
            "more calls at once than allowed",
        )?;
        ensure(
            !self.is_begun_too_late(invocation.environment),
            "called by a worker that is told to end",
        )?;
        let reserve = plan.limits.reserve.min(plan.function_timeout / 4);
        ensure(
            invocation.started.elapsed() + reserve <= plan.function_timeout,
            "called in the reserve",
        )?;
        if plan.is_fifo && !invocation.is_on_dead {
            self.check_order(world, n)?;
        }
        let early = secs(2 * plan.skew() + 1);
        let is_due = track.due.is_none_or(|due| Instant::now() + early >= due);
        let is_afresh = track.redrives > 0 || invocation.is_on_dead;
        ensure(is_due || track.is_troubled || is_afresh, "called before its time")?;
        let message_id = message.id().unwrap_or_default();
        let member = &invocation.members[message_id];
        ensure(!member.past.is_dead_lettered, "called after it was dead-lettered")?;
        let was_dead_lettered = self.was_dead_lettered(invocation, message_id, member.receives);
        ensure(!was_dead_lettered, "called again by the environment that dead-lettered it")?;
        ensure(
            message.original_id() == Some(&member.past.original),
            "the original id has changed",
        )?;
        letters::check_call(world, invocation, product, member, message)
    }

    /// Those before it in its group are done, or will not be handled any more.
    fn check_order(&self, world: &World, n: usize) -> Result<(), String> {
        let group = &self.tracks[n].product.group;
        let is_passed = |track: &crate::book::Track| {
            if !matches!(track.product.maker, Maker::Producer { .. }) {
                return true;
            }
            let asked = &track.product.asked;
            let is_spent = track.most_receives > u64::from(asked.retries(&world.plan));
            let may_be_refused = asked.ttl(&world.plan).is_some() || asked.unreadable.is_some();
            track.is_done || track.was_dead || is_spent || may_be_refused
        };
        let before = self.tracks.iter().take(n).enumerate();
        let waiting =
            before.filter(|(_, track)| track.product.group == *group && !is_passed(track));
        let dead: BTreeSet<usize> =
            world.dead().iter().filter_map(|message| number(&message.body)).collect();
        let ahead: Vec<usize> =
            waiting.map(|(other, _)| other).filter(|other| !dead.contains(other)).collect();
        if ahead.is_empty() { Ok(()) } else { Err(format!("called before {ahead:?} of its group")) }
    }

    /// Messages are about to be sent.
    pub fn sending(
        &mut self,
        world: &World,
        id: usize,
        queue: &QueueArn,
        entries: &[Outgoing<'_>],
        now: SystemTime,
    ) {
        for entry in entries {
            let Some(n) = number(entry.body) else {
                self.history.violate(None, "something is sent that nobody produced");
                continue;
            };
            let checked =
                copies::check(world, &self.invocations[&id], &self.tracks[n], n, queue, entry, now);
            self.history.note(
                Some(n),
                format!("copy sent by {id} to {}, delay {}", queue.name(), entry.delay),
            );
            if let Err(what) = checked
                && !self.in_hand_twice.contains(&n)
            {
                self.history.violate(Some(n), what);
            }
        }
    }

    /// A send that began at `began` was answered.
    pub fn confirmed(
        &mut self,
        world: &World,
        id: usize,
        began: Instant,
        entries: &[Outgoing<'_>],
        answer: &Result<Vec<Confirmation>, CallError>,
    ) {
        for (at, entry) in entries.iter().enumerate() {
            let (Some(n), Some(members)) = (number(entry.body), Members::read(entry.body)) else {
                continue;
            };
            let confirmation = match answer {
                Ok(confirmations) => confirmations[at].as_ref().map_err(|error| error.code.clone()),
                Err(error) => Err(error.code.clone()),
            };
            self.history.note(Some(n), format!("copy answered: {confirmation:?}"));
            if confirmation.is_ok() {
                let not_before = members
                    .time("notBefore")
                    .map(|time| SystemTime::UNIX_EPOCH + Duration::from_millis(time));
                let rest = not_before
                    .and_then(|time| time.duration_since(world.clock.now()).ok())
                    .unwrap_or_default();
                let due =
                    (began + secs(u64::from(entry.delay.as_secs()))).max(Instant::now() + rest);
                self.tracks[n].due = Some(due).filter(|_| !members.is_dead_lettered());
                let invocation = self.invocations.get_mut(&id).expect("it is under way");
                let is_unserved =
                    invocation.of(n).any(|member| copies::is_unserved(&members, member));
                self.tracks[n].unserved += usize::from(is_unserved);
                *invocation.confirmed.entry(n).or_default() += 1;
                self.may_be_copied(id, n);
                self.remains_to_delete(id, n, false);
                self.renew(id, n);
            }
        }
    }

    /// Messages are about to be deleted: what was not done was confirmed before.
    pub fn deleting(&mut self, world: &World, id: usize, handles: &[&str]) {
        for handle in handles {
            let invocation = self.invocations.get_mut(&id).expect("it is under way");
            let Some(message) = invocation.handles.get(*handle) else {
                self.history.violate(None, "a foreign receipt handle");
                return;
            };
            let (n, message) = (invocation.members[message].n, message.clone());
            invocation.settled.insert(message.clone());
            if self.is_deleted_again(id, &message) {
                self.history.note(Some(n), format!("deleted again by {id}: {message}"));
                continue;
            }
            self.remains_to_delete(id, n, false);
            let invocation = self.invocations.get_mut(&id).expect("it is under way");
            invocation.deleted.insert(message.clone());
            // Which copy a worker sent for which of two receives of the same message is not known.
            let is_it = |other: &usize, all: &Invocation| {
                *other == id || self.is_of_same_worker(world, all, id)
            };
            let all = self
                .invocations
                .iter()
                .filter(|(other, all)| is_it(other, all))
                .map(|(_, all)| all);
            let (deleted, settled) = all.fold((0, 0), |(deleted, settled), all| {
                let of_it = all.deleted.iter().filter(|other| all.members[*other].n == n).count();
                (
                    deleted + of_it,
                    settled + all.done(n) + all.confirmed.get(&n).copied().unwrap_or(0),
                )
            });
            let all = self.invocations.iter().filter(|(other, all)| is_it(other, all));
            let dropped = |(_, all)| (self.uncalled(world, all, n), self.remembered(all, n));
            let (dropped, remembered) =
                all.map(dropped).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            self.history.note(Some(n), format!("deleted by {id}: {message}"));
            self.tracks[n].is_done |= (settled + 1..=settled + dropped).contains(&deleted);
            if deleted > settled + dropped + remembered {
                self.history.violate(Some(n), "deleted before a copy was confirmed");
            }
        }
    }

    /// Messages are about to be hidden.
    pub fn hiding(&mut self, world: &World, id: usize, entries: &[(&str, Duration)]) {
        let invocation = self.invocations.get_mut(&id).expect("it is under way");
        for (handle, time) in entries {
            let Some(message) = invocation.handles.get(*handle) else {
                self.history.violate(None, "a foreign receipt handle");
                return;
            };
            let member = &invocation.members[message];
            let n = member.n;
            // Otherwise a worker keeps it in hand, unless that is as long as the shortest deferral.
            if *time != secs(world.plan.visibility()) || *time == LEAST_DEFERRAL_IN_PLACE {
                let is_deferred = !member.is_called && !time.is_zero();
                self.tracks[n].deferrals_in_place += u32::from(is_deferred);
                invocation.settled.insert(message.clone());
            }
            self.history.note(Some(n), format!("hidden by {id} for {} s", time.as_secs_f64()));
            if *time + invocation.started.elapsed() > secs(43_200) {
                self.history.violate(Some(n), "hidden for longer than SQS allows");
            }
        }
    }

    /// The function has answered.
    pub fn answered(
        &mut self,
        world: &World,
        id: usize,
        answer: Result<SqsBatchResponse, InvocationError>,
    ) {
        let response = match answer {
            Ok(response) => response,
            Err(error) => {
                return self.history.violate(None, format!("invocation {id} failed: {error}"));
            }
        };
        if self.remembers_trouble(&self.invocations[&id]) {
            self.excuse(id, "trouble with the queue a while ago");
        }
        let invocation = &self.invocations[&id];
        let mut listed = BTreeSet::new();
        for item in &response.batch_item_failures {
            let member = invocation.members.get(&item.item_identifier);
            let Some(n) = member.map(|member| member.n) else {
                return self
                    .history
                    .violate(None, format!("{} is not in batch {id}", item.item_identifier));
            };
            if !listed.insert(item.item_identifier.as_str()) {
                return self
                    .history
                    .violate(Some(n), format!("{} is listed twice", item.item_identifier));
            }
            self.history.note(Some(n), format!("kept by {id}: {}", item.item_identifier));
        }
        let acknowledged = |member: &(&String, &Member)| !listed.contains(member.0.as_str());
        let numbers: BTreeSet<usize> = invocation.members.values().map(|member| member.n).collect();
        let mut dropped = Vec::new();
        for n in numbers {
            let of_this = invocation.members.iter().filter(|(_, member)| member.n == n);
            let acknowledged = of_this.filter(acknowledged).count();
            let (done, copied) =
                (invocation.done(n), invocation.confirmed.get(&n).copied().unwrap_or(0));
            let remembered = self.remembered(invocation, n);
            let most = done + copied + remembered + self.uncalled(world, invocation, n);
            if acknowledged > done + copied + remembered {
                dropped.push(n);
            }
            if !(done + copied..=most).contains(&acknowledged) {
                let what =
                    format!("{acknowledged} acknowledged, {done} done, {copied} copied by {id}");
                self.history.violate(Some(n), what);
            }
        }
        for n in dropped {
            self.tracks[n].is_done = true;
        }
        if world.plan.skew() > MAX_SKEW {
            self.excuse(id, "clocks are too far apart");
        }
        self.excuse_unstarted(world, id);
        if world.plan.mode == Mode::Requeue {
            self.gave_up(world, id);
        }
    }

    /// What had no time left to be called in its place, or too often elsewhere, has used up a
    /// receive in vain.
    fn excuse_unstarted(&mut self, world: &World, id: usize) {
        let plan = &world.plan;
        let invocation = &self.invocations[&id];
        let reserve = plan.limits.reserve.min(plan.function_timeout / 4);
        if invocation.started.elapsed() + reserve < plan.function_timeout {
            return;
        }
        for member in invocation.members.values().filter(|member| !member.is_called) {
            self.tracks[member.n].is_troubled = true;
            self.history.note(Some(member.n), "is troubled: no time left");
        }
    }

    pub fn died(&mut self, id: usize) {
        self.history.note(None, format!("invocation {id} died"));
        self.forget_used(self.invocations[&id].environment);
        self.excuse(id, "its invocation died");
    }

    /// Notes which messages are in the dead-letter queue.
    pub fn find_dead(&mut self, world: &World) {
        for n in
            world.dead().iter().chain(&world.buried()).filter_map(|message| number(&message.body))
        {
            if !self.tracks[n].was_dead {
                self.tracks[n].was_dead = true;
                self.history.note(Some(n), "is in the dead-letter queue");
            }
        }
    }

    /// Each message is done or in one of the queues, and what is there is as it was sent.
    pub fn conserve(&mut self, world: &World) {
        self.find_dead(world);
        let all: Vec<MessageView> = world.all().collect();
        let mut found = vec![false; self.tracks.len()];
        for message in &all {
            let Some(n) = number(&message.body) else {
                self.history.violate(None, "a message without a mark");
                continue;
            };
            found[n] = true;
            let product = &self.tracks[n].product;
            if *message.attributes != product.attributes || message.group_id != product.group {
                self.history.violate(Some(n), "attributes or group have changed");
            }
            if let MessageState::DelayedUntil(due) = message.state
                && due.duration_since(world.clock.now()).unwrap_or_default() > secs(900)
            {
                self.history.violate(Some(n), "a longer delay than SQS has");
            }
        }
        for n in
            (0..found.len()).filter(|n| !found[*n] && !self.tracks[*n].is_done).collect::<Vec<_>>()
        {
            self.history.violate(Some(n), "is neither done nor in a queue");
        }
    }

    /// Nothing of what was logged quotes a message, or lets somebody else delete it.
    pub fn secrecy(&mut self, world: &World) {
        let lines = world.log.take();
        let leaks = |line: &&str| [CANARY, HANDLE].iter().any(|secret| line.contains(secret));
        if let Some(line) = lines.lines().find(leaks) {
            self.history.violate(None, format!("logged: {line}"));
        }
    }

    /// The queue is empty, and nothing goes wrong any more.
    pub fn finish(&mut self, world: &World) {
        self.conserve(world);
        self.secrecy(world);
        let plan = &world.plan;
        let may_loop = plan.recursive_loop == requeue::RecursiveLoop::Allow;
        let buried: BTreeSet<usize> =
            world.buried().iter().filter_map(|message| number(&message.body)).collect();
        let starved = self.starved(world);
        for n in 0..self.tracks.len() {
            let track = &self.tracks[n];
            let asked = &track.product.asked;
            let may_expire = plan.policy.message_ttl.is_some()
                || plan.skew() > MAX_SKEW
                || asked.may_never_be_called(plan)
                || self.waited_behind_another(world, n)
                || self.was_deferred_in_place(world, n);
            let was_ours = !matches!(track.product.maker, Maker::Producer { .. });
            if track.calls == 0 && !track.is_troubled && !may_expire && !was_ours {
                self.history.violate(Some(n), "a dead letter that was never handled");
                continue;
            }
            let is_ignored = buried.contains(&n) && track.calls_when_dead == 0;
            let may_be_ignored = may_expire || starved.contains(&n);
            if is_ignored && !track.is_troubled && !may_be_ignored && !was_ours {
                self.history.violate(Some(n), "a dead letter that was not handled afresh");
                continue;
            }
            let receives = plan.max_receive_count.max(plan.dead_receives.unwrap_or(0));
            let receives = usize::try_from(receives).expect("small");
            let retries = usize::try_from(asked.retries(plan)).expect("small");
            let copies = retries + 1 + track.postponed + track.unserved + track.unclear;
            // Where nobody notes in the message that it was dead-lettered, another environment may
            // handle it again on each receive, or defer it by a copy with receives of its own.
            let is_noted =
                plan.dead_letters != DeadLetters::Redrive && !copies::may_wait_in_place(plan);
            let queues = if plan.dead_receives.is_some() { 2 } else { 1 };
            let most = queues * (1 + track.redrives) * copies;
            let most = if is_noted { most } else { most * receives + track.calls_renewed };
            if track.calls > most && !track.is_troubled {
                let calls = track.calls;
                self.history
                    .violate(Some(n), format!("handled {calls} times, which is more than {most}"));
            }
        }
        if !may_loop && self.longest_row >= 16 {
            self.history.violate(None, format!("{} invocations in a row", self.longest_row));
        }
    }

    /// Whether receives were used up by one before it in its FIFO group that waited for its own
    /// time: once that one is gone, nobody knows of them.
    fn waited_behind_another(&self, world: &World, n: usize) -> bool {
        world.plan.is_fifo
            && self.before_in_group(n).any(|track| track.product.asked.not_before.is_some())
    }

    /// Whether a deferral of a message in its place, or of one before it in its FIFO group, used up
    /// one of its receives. A message that may not be deferred is released, and uses up one, too.
    fn was_deferred_in_place(&self, world: &World, n: usize) -> bool {
        let may_be_released = world.plan.policy.max_deferrals == 0;
        self.tracks[n].deferrals_in_place > 0
            || world.plan.is_fifo
                && (may_be_released
                    || self.before_in_group(n).any(|track| track.deferrals_in_place > 0))
    }

    /// The messages of its group that were sent before it.
    fn before_in_group(&self, n: usize) -> impl Iterator<Item = &Track> {
        let group = &self.tracks[n].product.group;
        self.tracks[..n].iter().filter(move |track| track.product.group == *group)
    }

    /// What no copy can be made of uses up receives instead of retries.
    pub fn cannot_be_copied(copies: Copies, world: &World) -> bool {
        match copies {
            Copies::AsTheyAre => false,
            Copies::Wrapped => world.plan.wrap == requeue::Wrap::Never,
            Copies::TooLong => true,
        }
    }
}

fn ensure(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}
