//! An operator who lowers, pauses and resumes the rate limit while it runs.

use std::sync::Arc;
use std::time::Duration;

use requeue::table::Table;
use requeue::{LimitControl, Mode, Scope, SharedTable};
use requeue_testkit::dice::Dice;
use tokio::time::{Instant, sleep};

use crate::copies;
use crate::plan::{Plan, Told};
use crate::system::World;

/// A pause of the first scope that the table confirmed.
#[derive(Clone, Copy)]
pub struct Paused {
    pub since: Instant,
    /// How often the table had been wiped by then.
    wipes: u64,
}

impl Paused {
    /// Whether no environment may be unaware of it.
    pub fn is_known(&self, world: &World) -> bool {
        let table = world.table.as_ref();
        table
            .is_some_and(|table| table.wiped() == self.wipes && table.faults_since(self.since) == 0)
    }
}

/// The limits of both scopes. In its place a message uses a receive each time that it asks.
fn limits(world: &World) -> Vec<LimitControl> {
    let plan = &world.plan;
    // A change of the pace would hide a cap by headers.
    let is_changed = plan.told != Told::Headers
        && plan.mode == Mode::Requeue
        && !copies::may_wait_in_place(plan);
    let Some(table) = world.table.clone().filter(|_| is_changed) else { return Vec::new() };
    let shared = SharedTable::by(table as Arc<dyn Table>);
    let of = |scope| LimitControl::new(&shared, &plan.policy, None, scope);
    let limits = scopes(plan).into_iter().filter_map(of);
    limits.map(|limit| limit.with_clock(world.clock.clone())).collect()
}

fn scopes(plan: &Plan) -> Vec<Scope> {
    if plan.has_one_scope() { vec![Scope::default()] } else { vec![Scope::of("0"), Scope::of("1")] }
}

/// Changes the limits until trouble ends, and then goes back to that of the policy.
pub async fn control(world: Arc<World>) {
    let dice = Dice::of(world.seed, 7);
    let limits = if dice.happens(400) { limits(&world) } else { Vec::new() };
    if let Some(first) = limits.first() {
        for _ in 0..dice.roll(1, 12) {
            sleep(world.plan.calm.mul_f64(f64::from(dice.roll(1_u32, 100)) / 800.0)).await;
            let limit = dice.pick(&limits.iter().collect::<Vec<_>>());
            let length = dice.pick(&[None, Some(Duration::from_secs(dice.roll(1, 60)))]);
            let until = length.map(|length| world.clock.now() + length);
            let calls = world.plan.policy.limit.map_or(1, |limit| limit.limit);
            let action = dice.roll(0, 4);
            if std::ptr::eq(limit, first) {
                world.book().paused = None;
            }
            let _ = match action {
                0 => {
                    let calls = dice.roll(1, calls + 1);
                    world.book().is_set(calls);
                    limit.set(calls, until).await
                }
                1 => limit.resume().await,
                2 => limit.reset().await,
                _ => {
                    let wipes = world.table.as_ref().map_or(0, |table| table.wiped());
                    let paused = limit.pause(until).await;
                    if paused.is_ok() && until.is_none() && std::ptr::eq(limit, first) {
                        world.book().paused = Some(Paused { since: Instant::now(), wipes });
                    }
                    paused
                }
            };
        }
        world.book().paused = None;
        for limit in &limits {
            while limit.resume().await.is_err() || limit.reset().await.is_err() {
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
    world.end_actor();
}
