//! An operator who changes, pauses and resumes the rate limits while they run: those of all messages,
//! and those of single values of keys.

use std::sync::Arc;
use std::time::Duration;

use requeue::table::Table;
use requeue::{LimitControl, Mode, Scope, SharedTable};
use requeue_testkit::dice::Dice;
use tokio::time::{Instant, sleep};

use crate::copies;
use crate::limits::{Changed, Place};
use crate::plan::{Plan, Told};
use crate::producer::any_value;
use crate::system::World;

/// The limits of both scopes, of a key that of one value. In its place a message uses a receive each
/// time that it asks.
fn limits(world: &World, dice: &Dice) -> Vec<(Place, u32, LimitControl)> {
    let plan = &world.plan;
    // A change of the pace would hide a cap by headers.
    let is_changed = plan.told != Told::Headers
        && plan.mode == Mode::Requeue
        && !copies::may_wait_in_place(plan);
    let Some(table) = world.table.clone().filter(|_| is_changed) else { return Vec::new() };
    let shared = SharedTable::by(table as Arc<dyn Table>);
    let mut limits = Vec::new();
    for (number, scope) in scopes(plan).into_iter().enumerate() {
        for limited in plan.limits() {
            let key = limited.key.as_ref();
            let value = key.map(|key| any_value(key, dice)).unwrap_or_default();
            let control = match key {
                None => LimitControl::new(&shared, &plan.policy, None, scope),
                Some(key) => LimitControl::of_key(&shared, &plan.policy, None, scope, key, &value),
            };
            let control = control.expect("the policy has it").with_clock(world.clock.clone());
            let place = Place { scope: number, number: limited.number, value };
            limits.push((place, limited.limit.limit, control));
        }
    }
    limits
}

fn scopes(plan: &Plan) -> Vec<Scope> {
    if plan.has_one_scope() { vec![Scope::default()] } else { vec![Scope::of("0"), Scope::of("1")] }
}

/// Changes the limits until trouble ends, and then goes back to those of the policy.
pub async fn control(world: Arc<World>) {
    let dice = Dice::of(world.seed, 7);
    let limits = if dice.happens(400) { limits(&world, &dice) } else { Vec::new() };
    if !limits.is_empty() {
        for _ in 0..dice.roll(1, 12) {
            sleep(world.plan.calm.mul_f64(f64::from(dice.roll(1_u32, 100)) / 800.0)).await;
            let (place, of_policy, limit) = dice.pick(&limits);
            let length = dice.pick(&[None, Some(Duration::from_secs(dice.roll(1, 60)))]);
            let until = length.map(|length| world.clock.now() + length);
            let wipes = world.table.as_ref().map_or(0, |table| table.wiped());
            let action = dice.roll(0, 4);
            // Without a number, a pause.
            let calls = match action {
                0 => Some(dice.roll(1, of_policy + 1)),
                1 => Some(of_policy),
                _ => None,
            };
            world.book().changes(&place, calls);
            let changed = match (action, calls) {
                (0, Some(calls)) => limit.set(calls, until).await,
                (1, _) => limit.reset().await,
                (2, _) => limit.resume().await,
                _ => limit.pause(until).await,
            };
            let lasts = action == 1 || action != 2 && until.is_none();
            if changed.is_ok() && lasts {
                let changed = Changed { since: Instant::now(), wipes, calls };
                world.book().changed.insert(place, changed);
            }
        }
        world.book().changed.clear();
        for (_, _, limit) in &limits {
            while limit.resume().await.is_err() || limit.reset().await.is_err() {
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
    world.end_actor();
}
