//! The rate limits: that of all messages, and those of the values of keys. No window of time has more
//! calls or units than each of them allows: one for each interval, and the burst.

use std::time::Duration;

use requeue::classify::Response;
use requeue::policy::{MessageKey, RateLimit};
use requeue::queue::AttributeValue;
use requeue::{Message, Mode};
use tokio::time::Instant;

use crate::book::{Book, InCall};
use crate::copies;
use crate::idempotency::SKEW;
use crate::plan::{Plan, Told, UNITS, secs};
use crate::system::World;

/// The resolution of a timer.
const TICK: Duration = Duration::from_millis(1);
/// So long an environment calls at its own rate, from a request to the table that met a fault.
const ALONE: Duration = Duration::from_secs(2);
/// The limit knows so soon what a call says about it.
const SETTLED: Duration = Duration::from_secs(2);

/// A limit of the policy. A message meets those of its keys first, in their order.
#[derive(Clone, Debug)]
pub struct Limited {
    /// 0 for that of all messages. Those of keys count from 1.
    pub number: usize,
    pub key: Option<MessageKey>,
    pub limit: RateLimit,
    has_units: bool,
    /// The limits after it, and how long a call may wait for them.
    after: u32,
    later: Duration,
}

/// The limit of a scope, or of a value of a key in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub scope: usize,
    /// As [`Limited::number`].
    pub number: usize,
    pub value: String,
}

/// A limit, and the environment that keeps it, unless all keep it together.
pub type Kept = (Option<usize>, Place);

/// A call that a rate limit bounds.
pub struct Rated {
    at: Instant,
    /// How often the table had been wiped by then.
    wipes: u64,
    units: u32,
    environment: usize,
    /// The id of its message, and the units that it used when it ended.
    id: String,
    used: Option<(u32, Instant)>,
}

impl Rated {
    /// The units that the limit knows of at a reservation so long ago: those that the call used, from
    /// a moment after it on, unless the table may not have been told.
    fn units(&self, world: &World, reserved: Duration) -> u32 {
        let is_told = |ended: Instant| {
            let faults = |since| world.table.as_ref().map_or(0, |table| table.faults_since(since));
            ended.elapsed() >= SETTLED + reserved
                && faults(ended - ALONE) == faults(ended + SETTLED)
        };
        self.used.filter(|(_, ended)| is_told(*ended)).map_or(self.units, |(used, _)| used)
    }
}

/// A response that says that nothing is left of an allowance, as its execution environment knows it.
pub struct Capped {
    pub environment: usize,
    noted: Instant,
    since: Instant,
    until: Instant,
    /// The calls of this environment meanwhile.
    calls: u32,
}

/// A change by an operator that the table confirmed, until the next one.
#[derive(Clone, Copy)]
pub struct Changed {
    pub since: Instant,
    /// How often the table had been wiped by then.
    pub wipes: u64,
    /// So many calls in a period; `None` for a pause.
    pub calls: Option<u32>,
}

impl Changed {
    /// Whether no environment may be unaware of it.
    fn is_known(&self, world: &World) -> bool {
        let table = world.table.as_ref();
        table
            .is_some_and(|table| table.wiped() == self.wipes && table.faults_since(self.since) == 0)
    }
}

impl Plan {
    /// The limits in the order in which a message meets them.
    pub fn limits(&self) -> Vec<Limited> {
        let of = |number, key, limit, has_units| {
            let (after, later) = (0, Duration::ZERO);
            Limited { number, key, limit, has_units, after, later }
        };
        let keys = self.policy.key_limits.iter().zip(1..);
        let keys =
            keys.map(|(own, at)| of(at, Some(own.key.clone()), own.limit, own.units.is_some()));
        let total = self.policy.limit.map(|limit| of(0, None, limit, self.policy.units.is_some()));
        let mut all: Vec<_> = keys.chain(total).collect();
        let mut later = Duration::ZERO;
        for (limited, after) in all.iter_mut().rev().zip(0..) {
            (limited.after, limited.later) = (after, later);
            later += limited.limit.max_reservation;
        }
        all
    }

    /// How long a call may wait for others that share it, with its slots.
    fn gathering(&self) -> Duration {
        // Otherwise the call asks for its slots when it is complete.
        let reserves_alone = self.limits().iter().any(|limited| limited.has_units);
        if self.per_call.is_some() && reserves_alone {
            self.function_timeout
        } else {
            Duration::ZERO
        }
    }

    /// How much sooner than by its rate limit a call may come where environments keep it together.
    fn looseness(&self, interval: Duration) -> Duration {
        if self.table.is_none() {
            return Duration::ZERO;
        }
        // A slot that passed so long ago is still used.
        let late = Duration::from_millis(100).max(interval);
        // One clock is early and the other late. Only a table's time that seems too late includes the
        // time of the answer, since this table takes its time before it looks at its clock.
        let skew = if self.skew() > 0 { secs(1) + SKEW } else { Duration::ZERO };
        late + skew
    }
}

impl Limited {
    /// The interval and the burst of so many calls in a period. Calls that wait for other limits after
    /// their slots may come together.
    fn bound(&self, calls: u32) -> (Duration, u64) {
        let at = |calls: u32| {
            let mut limit = self.limit;
            limit.limit = calls;
            limit
        };
        let waiting =
            |limit: RateLimit| self.later.as_nanos().div_ceil(limit.interval().as_nanos());
        let few = |calls: u128| u32::try_from(calls).expect("few");
        let own = self.limit.burst.saturating_sub(few(waiting(self.limit))).max(1);
        let own = if calls < self.limit.limit { own.min(calls) } else { own };
        (at(calls).interval(), u64::from(own + few(waiting(at(calls)))))
    }

    /// How long the calls that have their slots may take until they are made.
    fn slots(&self, plan: &Plan) -> Duration {
        self.limit.max_reservation + self.later + plan.looseness(self.limit.interval())
    }
}

impl Book {
    /// An operator is about to change a limit, perhaps to so many calls.
    pub fn changes(&mut self, place: &Place, calls: Option<u32>) {
        self.changed.remove(place);
        let most = self.most_set.entry(place.clone()).or_default();
        *most = calls.unwrap_or(0).max(*most);
    }

    /// A call begins. With a table, an environment that met a fault calls at its own rate for a
    /// second, at most at that of the limit.
    pub fn check_rates(
        &mut self,
        world: &World,
        environment: usize,
        (n, id): (usize, &str),
        in_call: InCall,
    ) -> Result<(), String> {
        let plan = &world.plan;
        // Without an answer, a message that waits in its place is called on its second receive.
        if plan.mode != Mode::Requeue || plan.store_uses_receives() {
            return Ok(());
        }
        for limited in plan.limits() {
            // A shared call is one call, and has the units of each of its messages.
            if in_call.is_first() || limited.has_units {
                let kept = self.kept(plan, environment, n, &limited);
                self.check_pause(world, &kept.1, &limited)?;
                self.check_cap(world, environment, &kept)?;
                self.check_rate(world, environment, (n, id), kept, &limited)?;
            }
        }
        Ok(())
    }

    /// The values of a message's keys.
    pub fn values(&self, plan: &Plan, n: usize) -> Vec<String> {
        let keys = plan.policy.key_limits.iter();
        keys.map(|limit| self.tracks[n].product.value(&limit.key)).collect()
    }

    /// The limit as it counts for a message.
    fn kept(&self, plan: &Plan, environment: usize, n: usize, limited: &Limited) -> Kept {
        let product = &self.tracks[n].product;
        let value = limited.key.as_ref().map(|key| product.value(key)).unwrap_or_default();
        let place = Place { scope: plan.scope(n), number: limited.number, value };
        (plan.table.is_none().then_some(environment), place)
    }

    /// Only a call that had its slot before a pause by an operator is made in it.
    fn check_pause(&self, world: &World, place: &Place, limited: &Limited) -> Result<(), String> {
        let changed = self.changed.get(place).filter(|changed| changed.calls.is_none());
        let Some(paused) = changed.filter(|paused| paused.is_known(world)) else { return Ok(()) };
        let within = limited.slots(&world.plan) + world.plan.gathering() + TICK;
        ensure(paused.since.elapsed() <= within, limited, "called in a pause by an operator")
    }

    fn check_rate(
        &mut self,
        world: &World,
        environment: usize,
        (n, id): (usize, &str),
        kept: Kept,
        limited: &Limited,
    ) -> Result<(), String> {
        let plan = &world.plan;
        let place = &kept.1;
        let highest = self.most_set.get(place).copied().unwrap_or(0).max(limited.limit.limit);
        let highest = limited.bound(highest);
        let changed = self.changed.get(place).filter(|changed| changed.is_known(world));
        // From then on, all calls have their slots by what the operator has set.
        let set = changed.and_then(|set| {
            let (interval, burst) = limited.bound(set.calls?);
            let slots = limited.slots(plan) + plan.gathering() + plan.looseness(interval) + TICK;
            Some((set.since + slots, (interval, burst)))
        });
        // In its place a message waits for each limit as long as it can.
        let in_place = copies::may_wait_in_place(plan) && limited.after > 0;
        let in_place = if in_place { plan.function_timeout } else { Duration::ZERO };
        let late = in_place.saturating_sub(in_place / 2_u32.pow(limited.after)) + plan.gathering();
        let units = if limited.has_units { self.units(n, limited.limit) } else { 1 };
        // A heavy call also waits until its environment has made fewer calls.
        let reserved = if copies::may_wait_in_place(plan) {
            plan.function_timeout / 2
        } else {
            limited.limit.max_reservation + limited.later + limited.limit.interval() * (units - 1)
        };
        let wipes = world.table.as_ref().map_or(0, |table| table.wiped());
        let calls = self.rated.entry(kept).or_default();
        let (at, id) = (Instant::now(), id.to_owned());
        calls.push(Rated { at, wipes, units, environment, id, used: None });
        let (mut before, mut largest, mut of_last_slot) = (0, 0, 0);
        for (rated, count) in calls.iter().rev().zip(1..) {
            let (began, units) = (rated.at, rated.units(world, reserved));
            (before, largest) = (before + u64::from(units), largest.max(units));
            let (interval, burst) = match set {
                Some((since, bound)) if began >= since => bound,
                _ => highest,
            };
            // A call waits for the units of those before it, and for one of its own. Calls that wait
            // after their slots are not in the order of these, nor are those of several clocks: the
            // last slot may be that of an earlier call.
            let is_in_order = limited.after == 0 && plan.gathering().is_zero();
            if !is_in_order || count == 1 || began.elapsed() < plan.looseness(interval) {
                of_last_slot = rated.units.max(of_last_slot);
            }
            let own = of_last_slot - 1;
            // A table that was wiped begins with the burst, and knows no slot of the next seconds, nor
            // the units of the last call. The last wipe may have been right before the first one of
            // these calls.
            let meanwhile = wipes - rated.wipes;
            let forgotten = meanwhile * (burst + u64::from(largest) - 1);
            let beyond = before.saturating_sub(burst + u64::from(own) + forgotten);
            let lost = u32::try_from(meanwhile + u64::from(rated.wipes > 0)).expect("few");
            let lost = (limited.limit.max_reservation + limited.later) * lost;
            // A timer has a resolution of a millisecond.
            let within = began.elapsed() + TICK + plan.looseness(interval) + lost + late;
            let faults = world.table.as_ref().map_or(0, |table| table.faults_since(began - ALONE));
            let alone = faults * (interval * largest + ALONE);
            let least = interval * u32::try_from(beyond).expect("few");
            ensure(within + alone >= least, limited, "called beyond the rate limit")
                .map_err(|what| format!("{what}: {count} calls in {:?}", began.elapsed()))?;
        }
        Ok(())
    }

    /// In the time for which nothing is left, an environment that knows it makes two calls at most: one
    /// at its beginning, and one at its end.
    fn check_cap(&mut self, world: &World, environment: usize, kept: &Kept) -> Result<(), String> {
        let Some(capped) = self.capped.get_mut(kept) else { return Ok(()) };
        // The table may not have been told, or say something else.
        let faults =
            world.table.as_ref().map_or(0, |table| table.faults_since(capped.noted - ALONE));
        let now = Instant::now();
        if capped.environment == environment && (capped.since..capped.until).contains(&now) {
            capped.calls += 1;
        }
        if faults > 0 || capped.calls <= 2 {
            return Ok(());
        }
        Err("called although nothing is left".to_owned())
    }

    /// A call ends, and says so much about its limits.
    pub fn tells(&mut self, world: &World, environment: usize, message: &Message, n: usize) {
        let plan = &world.plan;
        let now = Instant::now();
        if let Told::Used(times) = plan.told {
            message.used(times * self.units_without_bound(n));
        }
        let is_empty = plan.told == Told::Headers && n.is_multiple_of(3);
        let left = secs(60);
        if is_empty {
            let headers: &[(&str, &[u8])] =
                &[("X-RateLimit-Remaining", b"0"), ("X-RateLimit-Reset", b"60")];
            let response = Response { status: 200, headers, body: b"" };
            message.note_response(&response, world.time_of(environment));
        }
        let is_counted = plan.mode == Mode::Requeue && !copies::may_wait_in_place(plan);
        for limited in plan.limits() {
            let kept = self.kept(plan, environment, n, &limited);
            if let Told::Used(times) = plan.told
                && limited.has_units
            {
                let used = (times * self.units_without_bound(n)).min(limited.limit.limit);
                let id = message.id().unwrap_or_default();
                let is_it = |call: &&mut Rated| call.environment == environment && call.id == id;
                let calls = self.rated.get_mut(&kept);
                if let Some(call) = calls.and_then(|calls| calls.iter_mut().rev().find(is_it)) {
                    call.used = Some((used, now));
                }
            }
            let last = self.capped.get(&kept);
            if is_empty
                && is_counted
                && limited.limit.headers
                && last.is_none_or(|last| last.until <= now)
            {
                let since = now + limited.slots(plan) + SETTLED;
                let until = now + left;
                let capped = Capped { environment, noted: now, since, until, calls: 0 };
                self.capped.insert(kept, capped);
            }
        }
    }

    /// An environment ends. The limit may not know what its last calls used.
    pub fn forget_used(&mut self, environment: usize) {
        let calls = self.rated.values_mut().flatten();
        for call in calls.filter(|call| call.environment == environment) {
            call.used = call.used.filter(|(_, ended)| ended.elapsed() >= SETTLED);
        }
    }

    /// The units of a message's call.
    fn units(&self, n: usize, limit: RateLimit) -> u32 {
        self.units_without_bound(n).min(limit.limit)
    }

    fn units_without_bound(&self, n: usize) -> u32 {
        /// More than any limit of a plan.
        const MOST: u64 = 1_000;
        let units = self.tracks[n].product.attributes.get(UNITS).map(|attribute| &attribute.value);
        let Some(AttributeValue::Text(units)) = units else { return 1 };
        let units = units.parse().map_or(1, |units: u64| units.clamp(1, MOST));
        u32::try_from(units).expect("small")
    }
}

fn ensure(holds: bool, limited: &Limited, what: &str) -> Result<(), String> {
    let of = if limited.key.is_some() { " of a key" } else { "" };
    if holds { Ok(()) } else { Err(format!("{what}{of}")) }
}
