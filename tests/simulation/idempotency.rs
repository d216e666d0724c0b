//! Events that are handled once: no call begins for one that the table has as done, or that another
//! attempt holds.

use std::time::{Duration, SystemTime};

use requeue::policy::{Idempotency, WhenUnavailable};
use requeue::{Message, Mode};
use requeue_testkit::dice::Dice;
use tokio::time::Instant;

use crate::book::{Book, Invocation};
use crate::plan::secs;
use crate::producer::Maker;
use crate::system::World;

/// A table that did not answer is left alone for a while.
pub const REST: Duration = Duration::from_secs(2);
/// A corrected clock is off that of the table by up to this. Dates have whole seconds, and an answer
/// that takes longer than the rest is none.
pub const SKEW: Duration = Duration::from_millis(1_250);

/// The work of a call that was cut short, panicked or is in doubt goes on for so long.
const BEYOND: Duration = Duration::from_secs(40);

/// The work on an event: how many calls run, and until when the work of others goes on.
#[derive(Default)]
pub struct Work {
    calls: usize,
    until: Option<Instant>,
}

/// An event: its queue, and the id of the first delivery.
pub type Event = (usize, String);

pub fn once(dice: &Dice) -> Idempotency {
    let mut idempotency = Idempotency::default();
    idempotency.keep = secs(dice.pick(&[60, 3_600, 1_209_600]));
    if dice.happens(300) {
        idempotency.when_unavailable = WhenUnavailable::Defer;
    }
    idempotency
}

impl Book {
    /// A call begins.
    pub fn check_once(
        &mut self,
        world: &World,
        environment: usize,
        message: &Message,
    ) -> Result<(), String> {
        let Some(event) = event(world, environment, message) else { return Ok(()) };
        let work = self.at_work.entry(event.clone()).or_default();
        work.calls += 1;
        let is_alone = work.calls == 1 && work.until.is_none_or(|until| Instant::now() >= until);
        let faults = world.plan.table.unwrap_or_default();
        if faults > 0 && world.started.elapsed() <= world.plan.calm + REST {
            return Ok(());
        }
        if world.is_done_until(environment, &event.1) > world.clock.now() + SKEW {
            return Err("called, though the table has it as done".to_owned());
        }
        // A call of which the table was not told may still run after the trouble.
        if faults == 0 && !is_alone {
            return Err("called by two at once".to_owned());
        }
        Ok(())
    }

    /// The deliveries of a message that may have been completed without a call, since its event was
    /// done.
    pub fn uncalled(&self, world: &World, invocation: &Invocation, n: usize) -> usize {
        let track = &self.tracks[n];
        // A forged id is that of another event.
        let may_be_dropped = world.plan.policy.idempotency.is_some()
            && (track.is_done || track.product.maker == Maker::Forger);
        let uncalled = invocation.of(n).filter(|member| !member.is_called);
        if may_be_dropped { uncalled.count() } else { 0 }
    }

    /// It ends. What it began may go on.
    pub fn leaves(&mut self, world: &World, environment: usize, message: &Message, goes_on: bool) {
        let event = event(world, environment, message);
        if let Some(work) = event.and_then(|event| self.at_work.get_mut(&event)) {
            work.calls -= 1;
            if goes_on {
                work.until = Some(Instant::now() + BEYOND);
            }
        }
    }
}

fn event(world: &World, environment: usize, message: &Message) -> Option<Event> {
    let is_kept = world.plan.policy.idempotency.is_some() && world.plan.mode == Mode::Requeue;
    let id = message.original_id().filter(|_| is_kept)?;
    Some((usize::from(world.plan.works_on_dead(environment)), id.to_owned()))
}

impl World {
    fn is_done_until(&self, environment: usize, id: &str) -> SystemTime {
        let queue = self.queues(environment).0.to_string();
        let table = self.table.as_ref().expect("there is one");
        SystemTime::UNIX_EPOCH + Duration::from_millis(table.done_until(&queue, id))
    }
}
