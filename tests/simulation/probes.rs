//! Holds that all execution environments share: one message at a time probes, with a lock in the
//! store.
//!
//! A call is a probe if it begins in a pause that its environment must know. Messages that no pause may
//! hold are none. Two may probe at once if the lock of the first has ended, if each has a pause of its
//! own, or if a request to the store met a fault since a moment before the pause began.

use std::time::{Duration, SystemTime};

use requeue::table::Key;
use requeue::{Message, Mode};
use sha2::{Digest, Sha256};

use crate::book::{Book, Member};
use crate::copies;
use crate::idempotency::{REST, SKEW};
use crate::plan::{Plan, secs};
use crate::producer::Maker;
use crate::system::World;
use crate::wire::at;

/// An environment that knows of no pause asks again after a second. A timer has a resolution too.
const FRESH: Duration = Duration::from_millis(1_100);
/// The value of `heldWhy` of an open circuit.
const OPEN: u64 = 2;

/// A probe that runs.
pub struct Probe {
    environment: usize,
    message: String,
    receives: u32,
    lock_end: SystemTime,
    /// When the pause began. A call despite the pause may end it, and begin another one.
    pause: Option<SystemTime>,
}

impl Book {
    /// A call begins.
    pub fn check_probe(
        &mut self,
        world: &World,
        environment: usize,
        message: &Message,
        member: &Member,
    ) -> Result<(), String> {
        // Of a rate limit, the first message of a call asks for all.
        if !member.in_call.is_first() {
            return Ok(());
        }
        let maker = self.tracks[member.n].product.maker;
        let scope = world.plan.scope(member.n);
        let now = world.clock.now();
        if maker == Maker::Forger
            || !may_be_deferred(world, environment, member)
            || !world.is_known_to_be_held(scope, now)
        {
            return Ok(());
        }
        let skew = world.plan.clock_error();
        let lock_end = world.hold(scope, "probeUntil");
        let pause = world.pause_began(scope);
        let running = self.probes.entry(scope).or_default();
        let is_alone =
            running.iter().all(|other| other.lock_end + skew <= now || other.pause != pause);
        running.push(Probe {
            environment,
            message: message.id().unwrap_or_default().to_owned(),
            receives: message.receive_count(),
            lock_end,
            pause,
        });
        self.history.note(Some(member.n), "probes");
        if !is_alone {
            return Err("two of all environments probe at once".to_owned());
        }
        if lock_end + skew <= now {
            return Err("probes without a lock".to_owned());
        }
        Ok(())
    }

    /// It ends.
    pub fn ends_probe(&mut self, environment: usize, message: &Message) {
        let id = message.id().unwrap_or_default();
        for running in self.probes.values_mut() {
            running.retain(|probe| {
                (probe.environment, &*probe.message, probe.receives)
                    != (environment, id, message.receive_count())
            });
        }
    }
}

/// Whether a pause certainly holds the message: it was not deferred too often, and its age budget is
/// not used up.
fn may_be_deferred(world: &World, environment: usize, member: &Member) -> bool {
    let policy = &world.plan.policy;
    let classes = [&policy.rate_limit, &policy.quota, &policy.temporary];
    let budget = classes.map(|class| class.total_timeout).into_iter().min().unwrap_or_default();
    let age_from = at(member.past.age_from.unwrap_or(member.past.first_received));
    let waits_in_vain =
        copies::may_wait_in_place(&world.plan) && member.asked.retries(&world.plan) == 0;
    member.receives == 1
        && member.past.deferrals < u64::from(policy.max_deferrals)
        && world.time_of(environment) + secs(1) < age_from + budget
        && !waits_in_vain
}

impl Plan {
    /// How far the corrected clock of an environment is off that of the table.
    fn clock_error(&self) -> Duration {
        if self.skew() > 0 { SKEW } else { Duration::ZERO }
    }

    /// The longest time from the last answer about a pause to a call.
    fn knowledge(&self) -> Duration {
        let wait = self.policy.limit.map_or(Duration::ZERO, |limit| {
            let half = self.function_timeout / 2;
            if copies::may_wait_in_place(self) { half } else { limit.max_reservation }
        });
        FRESH + wait
    }
}

impl World {
    /// Whether each environment must know that the scope is paused.
    fn is_known_to_be_held(&self, scope: usize, now: SystemTime) -> bool {
        let Some(table) = self.table.as_ref().filter(|_| self.plan.mode == Mode::Requeue) else {
            return false;
        };
        let Ok(length) = self.hold(scope, "holdLength").duration_since(SystemTime::UNIX_EPOCH)
        else {
            return false;
        };
        let until = self.hold(scope, "heldUntil");
        let error = self.plan.clock_error();
        let is_paused = match self.number_of_hold(scope, "heldWhy") {
            0 => false,
            OPEN => true,
            // A pause lapses if nobody probes.
            _ => now + error < until + length,
        };
        let age = now.duration_since(until - length).unwrap_or_default();
        is_paused
            && age > self.plan.knowledge() + error
            && table.calm_for().is_none_or(|calm| calm > age + error + REST)
    }

    fn pause_began(&self, scope: usize) -> Option<SystemTime> {
        let length = self.hold(scope, "holdLength").duration_since(SystemTime::UNIX_EPOCH).ok()?;
        self.hold(scope, "heldUntil").checked_sub(length)
    }

    fn hold(&self, scope: usize, name: &'static str) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.number_of_hold(scope, name))
    }

    fn number_of_hold(&self, scope: usize, name: &'static str) -> u64 {
        let hash = (!self.plan.has_one_scope()).then(|| Sha256::digest(scope.to_string()));
        let scope = hash.as_ref().map_or(&[][..], |hash| hash.as_slice());
        let table = self.table.as_ref().expect("there is one");
        table.number(&Key::of([&b""[..], b"scope", b"", scope]), name)
    }
}
