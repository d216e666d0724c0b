//! The invariants. Nothing is lost, no message is deleted before its copy is confirmed, and every
//! bound is kept. The response names messages of the batch, once each. The handler sees the sent
//! body, and no log line has a secret.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use requeue::classify::Response;
use requeue::embedded::{MessageState, MessageView};
use requeue::policy::{KeyLimit, RateLimit};
use requeue::queue::{AttributeValue, CallError, Confirmation, Outgoing, QueueArn};
use requeue::{InvocationError, Message, Mode, SqsBatchResponse};
use tokio::time::Instant;

use crate::book::{Book, Capped, HANDLE, InCall, Invocation, Member, Rated, Track};
use crate::bulk;
use crate::copies;
use crate::letters;
use crate::plan::{DeadLetters, Told, UNITS, secs};
use crate::producer::{CANARY, Copies, Maker, number};
use crate::system::World;
use crate::wire::Members;

/// Clocks that are further apart than this make everything look like a redrive.
const MAX_SKEW: u64 = 120;
/// The resolution of a timer.
const TICK: Duration = Duration::from_millis(1);
/// The shortest deferral of a message that waits in its place.
const LEAST_DEFERRAL_IN_PLACE: Duration = Duration::from_secs(60);
/// So long an environment calls at its own rate, from a request to the table that met a fault.
const ALONE: Duration = Duration::from_secs(2);
/// The limit knows so soon what a call says about it.
const SETTLED: Duration = Duration::from_secs(2);

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
        let counts = in_call.is_first() || world.plan.policy.units.is_some();
        let of = (n, message.id().unwrap_or_default());
        if counts && let Err(what) = self.check_rates(world, environment, of) {
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

    /// No window of time has more calls than a rate limit: one for each interval, and the burst.
    /// Without a table this holds for each environment. With a table, one that met a fault calls at
    /// its own rate for a second, at most at that of the limit.
    fn check_rates(
        &mut self,
        world: &World,
        environment: usize,
        (n, id): (usize, &str),
    ) -> Result<(), String> {
        let plan = &world.plan;
        // Without an answer, a message that waits in its place is called on its second receive.
        if plan.mode != Mode::Requeue || plan.store_uses_receives() {
            return Ok(());
        }
        if let Some(mut limit) = plan.policy.limit {
            self.check_pause(world, n, limit)?;
            self.check_cap(world, environment, n)?;
            limit.limit = limit.limit.max(self.most_set);
            let units = plan.policy.units.as_ref().map_or(1, |_| self.units(n, limit));
            self.check_rate(world, environment, (n, id), (None, units), limit)?;
        }
        let total = plan.policy.limit.map_or(Duration::ZERO, |limit| limit.max_reservation);
        for KeyLimit { mut limit, .. } in plan.policy.key_limits.clone() {
            // A call may wait for the limit of all after its slot.
            let together = total.as_nanos().div_ceil(limit.interval().as_nanos());
            limit.burst = limit.burst.max(1 + u32::try_from(together).expect("few"));
            let group = self.tracks[n].product.group.clone().unwrap_or_default();
            self.check_rate(world, environment, (n, id), (Some(group), 1), limit)?;
        }
        Ok(())
    }

    /// Only a call that had its slot before a pause by an operator is made in it.
    fn check_pause(&self, world: &World, n: usize, limit: RateLimit) -> Result<(), String> {
        let plan = &world.plan;
        let Some(paused) = self.paused.filter(|_| plan.scope(n) == 0) else { return Ok(()) };
        let keys = plan.policy.key_limits.iter().map(|key| key.limit.max_reservation);
        let shares = if plan.per_call.is_some() { plan.function_timeout } else { Duration::ZERO };
        let slots = limit.max_reservation + keys.sum::<Duration>() + plan.looseness(&limit);
        let within = paused.since.elapsed() <= slots + shares + TICK;
        ensure(within || !paused.is_known(world), "called in a pause by an operator")
    }

    fn check_rate(
        &mut self,
        world: &World,
        environment: usize,
        (n, id): (usize, &str),
        (key, units): (Option<String>, u32),
        limit: RateLimit,
    ) -> Result<(), String> {
        let plan = &world.plan;
        // With its slot, it may wait to share a call, and each of a shared call has units.
        let shares = plan.per_call.is_some() && plan.policy.units.is_some();
        let shares = if shares { plan.function_timeout } else { Duration::ZERO };
        // In its place it waits for the limit of all as long as it can.
        let in_place = key.is_some() && copies::may_wait_in_place(plan);
        let in_place = if in_place { plan.function_timeout / 2 } else { Duration::ZERO };
        let what = if key.is_some() {
            "called beyond the rate limit of a key"
        } else {
            "called beyond the rate limit"
        };
        let kept_by = plan.table.map_or(environment, |_| usize::MAX);
        let calls = self.rated.entry((kept_by, plan.scope(n), key)).or_default();
        let wipes = world.table.as_ref().map_or(0, |table| table.wiped());
        calls.push(Rated { at: Instant::now(), wipes, units, id: id.to_owned(), used: None });
        let (interval, burst) = (limit.interval(), u64::from(limit.burst));
        let mut before = 0;
        for (count, rated) in (1..).zip(calls.iter().rev()) {
            let Rated { at: began, wipes: earlier, units, used, .. } = rated;
            // A call waits for the units of those before it, and for one of its own. Those that a
            // call used are known a moment after it.
            let used = used.filter(|(_, ended)| ended.elapsed() >= SETTLED);
            let units = used.map_or(*units, |(used, _)| used);
            before += if count == 1 { 1 } else { u64::from(units) };
            // A table that was wiped begins with the burst, and knows no slot of the next seconds. The
            // last wipe may have been right before the first one of these calls.
            let meanwhile = wipes - earlier;
            let beyond =
                u32::try_from(before.saturating_sub(burst * (1 + meanwhile))).expect("few");
            let lost = u32::try_from(meanwhile + u64::from(*earlier > 0)).expect("few");
            let lost = limit.max_reservation * lost + in_place + shares;
            // A timer has a resolution of a millisecond.
            let within = began.elapsed() + TICK + plan.looseness(&limit) + lost;
            let faults = world.table.as_ref().map_or(0, |table| table.faults_since(*began - ALONE));
            let alone = faults * (interval + ALONE);
            ensure(within + alone >= interval * beyond, what)?;
        }
        Ok(())
    }

    /// In the time for which nothing is left, an environment that knows it makes two calls at most: one
    /// at its beginning, and one at its end.
    fn check_cap(&mut self, world: &World, environment: usize, n: usize) -> Result<(), String> {
        let kept_by = world.plan.table.map_or(environment, |_| usize::MAX);
        let Some(capped) = self.capped.get_mut(&(kept_by, world.plan.scope(n))) else {
            return Ok(());
        };
        let now = Instant::now();
        if capped.environment == environment && (capped.since..capped.until).contains(&now) {
            capped.calls += 1;
        }
        ensure(capped.calls <= 2, "called although nothing is left")
    }

    /// A call ends, and says so much about the limit.
    pub fn tells(&mut self, world: &World, environment: usize, message: &Message, n: usize) {
        let plan = &world.plan;
        let Some(limit) = plan.policy.limit else { return };
        let kept_by = plan.table.map_or(environment, |_| usize::MAX);
        if let Told::Used(times) = plan.told {
            let used = (times * self.units(n, limit)).min(limit.limit);
            message.used(used);
            let id = message.id().unwrap_or_default();
            let calls = self.rated.get_mut(&(kept_by, plan.scope(n), None));
            let call = calls.and_then(|calls| calls.iter_mut().rev().find(|call| call.id == id));
            if let Some(call) = call {
                call.used = Some((used, Instant::now()));
            }
        }
        if plan.told == Told::Headers && n.is_multiple_of(3) {
            let left = secs(60);
            let headers: &[(&str, &[u8])] =
                &[("X-RateLimit-Remaining", b"0"), ("X-RateLimit-Reset", b"60")];
            let response = Response { status: 200, headers, body: b"" };
            message.note_response(&response, world.time_of(environment));
            let now = Instant::now();
            let slots = limit.max_reservation + plan.looseness(&limit) + SETTLED;
            let capped = Capped { environment, since: now + slots, until: now + left, calls: 0 };
            let is_counted = plan.mode == Mode::Requeue && !copies::may_wait_in_place(plan);
            let last = self.capped.get(&(kept_by, plan.scope(n)));
            if is_counted && last.is_none_or(|last| last.until <= now) {
                self.capped.insert((kept_by, plan.scope(n)), capped);
            }
        }
    }

    /// The units of a message's call.
    fn units(&self, n: usize, limit: RateLimit) -> u32 {
        let units = self.tracks[n].product.attributes.get(UNITS).map(|attribute| &attribute.value);
        let Some(AttributeValue::Text(units)) = units else { return 1 };
        let most = u64::from(limit.limit);
        let units = units.parse().map_or(1, |units: u64| units.clamp(1, most));
        u32::try_from(units).expect("at most the limit")
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
    /// one of its receives.
    fn was_deferred_in_place(&self, world: &World, n: usize) -> bool {
        self.tracks[n].deferrals_in_place > 0
            || (world.plan.is_fifo
                && self.before_in_group(n).any(|track| track.deferrals_in_place > 0))
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
