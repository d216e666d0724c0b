//! A limit that an operator changes while it runs: each change counts at once, and nothing is lost or
//! charged for it.

use std::time::Duration;

use futures_util::future::join_all;
use requeue::policy::{KeyLimit, RateLimit};
use requeue::{LimitControl, Scope, Strategy};
use tokio::time::{Instant, sleep};

use crate::idempotency::{Case, Told};
use crate::rate_limit::{Kept, assert_within, world};
use crate::world::{Act, Script, World, millis, secs};

/// Execution environments that get what is there, and an operator.
struct Running {
    world: World,
    script: Script,
    began: Instant,
}

impl Running {
    async fn with(world: World, messages: usize) -> Self {
        for n in 0..messages {
            world.send(&format!(r#"{{"n":{n},"tenant":"tenant {}"}}"#, n % 2)).await;
        }
        Self { world, script: Script::new(|_| Act::Done), began: Instant::now() }
    }

    fn control(&self) -> LimitControl {
        let World { settings, clock, .. } = &self.world;
        let shared = settings.shared_table.as_ref().unwrap();
        let limit = LimitControl::new(shared, &settings.policy, None, Scope::default());
        limit.unwrap().with_clock(clock.clone())
    }

    fn of_tenant(&self, tenant: &str) -> LimitControl {
        let World { settings, clock, .. } = &self.world;
        let shared = settings.shared_table.as_ref().unwrap();
        let key = "/tenant".parse().unwrap();
        let limit =
            LimitControl::of_key(shared, &settings.policy, None, Scope::default(), &key, tenant);
        limit.unwrap().with_clock(clock.clone())
    }

    async fn until(&self, end: Duration) {
        let environments = (0..20).map(|_| async {
            let processor = self.world.processor(self.script.clone());
            while self.began.elapsed() < end {
                self.world.invoke(&processor).await;
                sleep(millis(100)).await;
            }
        });
        join_all(environments).await;
    }

    /// At least so many percent of the calls that the limits allowed over the whole were made.
    fn assert_used(&self, percent: usize, allowed: usize) {
        let calls = self.script.calls().len();
        assert!(calls >= allowed * percent / 100, "{calls} of {allowed}");
    }

    /// The calls in so many seconds after that time.
    fn calls(&self, after: Instant, seconds: std::ops::Range<u64>) -> usize {
        let time = after + secs(seconds.start)..after + secs(seconds.end);
        self.script.calls().iter().filter(|seen| time.contains(&seen.at)).count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_lower_limit_counts_at_once_and_the_whole_one_is_full_soon_after_it() {
    let running = Running::with(world(Kept::Together, 50, 1), 4_500).await;
    running.until(secs(20)).await;
    let lowered = Instant::now();
    running.control().set(10, None).await.unwrap();
    let status = running.control().status().await.unwrap();
    assert_eq!((status.calls_per_period(), status.of_policy.limit), (10, 50));
    assert!(status.waiting > 3_000 && status.clears_in() > secs(300), "{status:?}");
    running.until(secs(80)).await;
    let raised = Instant::now();
    running.control().reset().await.unwrap();
    running.until(secs(115)).await;
    let before = running.calls(running.began, 3..20);
    let lower = running.calls(lowered, 0..58);
    assert!(before >= 16 * 50, "{before}");
    // The slots of two seconds were taken before.
    assert!((560..=680).contains(&lower), "{lower}");
    let full = running.calls(raised, 10..30);
    assert!(full >= 20 * 50 * 98 / 100, "{full}");
    // 20 s, 60 s and 35 s, in which the calls grow for up to 20 s.
    running.assert_used(90, 20 * 50 + 60 * 10 + 35 * 50);
    let slow = lowered + secs(2)..raised;
    let slow: Vec<_> =
        running.script.calls().into_iter().filter(|seen| slow.contains(&seen.at)).collect();
    assert_within(10, 1, &slow);
    assert_within(50, 1, &running.script.calls());
    assert!(running.world.dead().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_set_for_a_time_ends_by_itself() {
    let running = Running::with(world(Kept::Together, 10, 1), 600).await;
    let control = running.control();
    let end = running.world.clock.now() + secs(20);
    control.set(1, Some(end)).await.unwrap();
    assert_eq!(control.status().await.unwrap().set_until, Some(end));
    running.until(secs(60)).await;
    let [lower, whole] = [0..20, 40..60].map(|time| running.calls(running.began, time));
    assert!((18..=21).contains(&lower) && whole >= 195, "{lower} {whole}");
    assert_eq!(control.status().await.unwrap().set_until, None);
    // Those that wait return by the limit of the policy, and newcomers by the higher one.
    control.set(30, None).await.unwrap();
    running.world.send_numbered(200).await;
    running.until(secs(75)).await;
    let higher = running.calls(running.began, 65..75);
    assert!(higher > 150, "{higher}");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_called_in_a_pause_and_all_are_soon_after_it() {
    let running = Running::with(world(Kept::Together, 50, 1), 3_000).await;
    running.until(secs(10)).await;
    let paused = Instant::now();
    running.control().pause(None).await.unwrap();
    running.until(secs(310)).await;
    assert!(running.control().status().await.unwrap().paused_until.is_some());
    let resumed = Instant::now();
    // The slots of two seconds were taken before.
    assert_eq!(running.calls(paused, 2..1_000), 0);
    running.control().resume().await.unwrap();
    running.until(secs(350)).await;
    let full = running.calls(resumed, 10..30);
    assert!(full >= 20 * 50 * 98 / 100, "{full}");
    // 10 s and 40 s.
    running.assert_used(93, (10 + 40) * 50);
    assert_within(50, 1, &running.script.calls());
    assert!(running.world.dead().is_empty());
    let script = &running.script;
    assert!(script.calls().iter().all(|seen| seen.attempt == 1), "no retry is used");
}

#[tokio::test(start_paused = true)]
async fn one_value_of_a_key_is_paused_and_lowered_alone() {
    let mut world = world(Kept::Together, 50, 1);
    let each = RateLimit::new(5, secs(1));
    world.settings.policy.key_limits = vec![KeyLimit::new("/tenant".parse().unwrap(), each)];
    let running = Running::with(world, 1_000).await;
    let of = |tenant: usize, after: Instant, seconds: std::ops::Range<u64>| {
        let time = after + secs(seconds.start)..after + secs(seconds.end);
        let calls = running.script.calls();
        calls.iter().filter(|seen| time.contains(&seen.at) && seen.n() % 2 == tenant).count()
    };
    running.until(secs(10)).await;
    let changed = Instant::now();
    running.of_tenant("tenant 0").pause(None).await.unwrap();
    running.of_tenant("tenant 1").set(2, None).await.unwrap();
    running.until(secs(40)).await;
    let lowered = of(1, changed, 2..28);
    assert_eq!(of(0, changed, 2..28), 0);
    assert!((48..=54).contains(&lowered), "{lowered}");
    let changed = Instant::now();
    running.of_tenant("tenant 0").resume().await.unwrap();
    running.of_tenant("tenant 1").reset().await.unwrap();
    running.until(secs(80)).await;
    let again = [0, 1].map(|tenant| of(tenant, changed, 15..35));
    assert!(again.iter().all(|calls| (96..=101).contains(calls)), "{again:?}");
    let listed = async |control: LimitControl| control.status().await.unwrap().paused_keys;
    assert_eq!(listed(running.control()).await, [], "resumed");
    running.of_tenant("tenant 1").pause(Some(running.world.clock.now() + secs(9))).await.unwrap();
    let keys = listed(running.control()).await;
    assert_eq!((keys.len(), &keys[0].name), (1, &None), "only its hash is in the table");
    assert_eq!(listed(running.of_tenant("tenant 1")).await[0].name.as_deref(), Some("tenant 1"));
    sleep(secs(9)).await;
    assert_eq!(listed(running.control()).await, [], "over by itself");
    // There is room for eight.
    for tenant in 0..10 {
        running.of_tenant(&format!("other {tenant}")).pause(None).await.unwrap();
    }
    assert_eq!(listed(running.control()).await.len(), 8);
    running.of_tenant("other 0").reset().await.unwrap();
    assert_eq!(listed(running.control()).await.len(), 7);
    // A number may be a text too.
    running.of_tenant("7").pause(None).await.unwrap();
    assert!(running.of_tenant("7").status().await.unwrap().paused_until.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_also_while_the_table_is_away_and_for_messages_that_wait_in_place() {
    let mut world = world(Kept::Together, 50, 1);
    let table = std::sync::Arc::new(Told::default());
    let shared = std::sync::Arc::clone(&table) as std::sync::Arc<dyn requeue::table::Table>;
    world.settings.shared_table = Some(requeue::SharedTable::by(shared));
    world.settings.strategy = Strategy::Visibility;
    let running = Running::with(world, 5).await;
    running.control().pause(None).await.unwrap();
    running.until(secs(30)).await;
    table.next(&[Case::Lost; 1_000]);
    running.until(secs(200)).await;
    assert!(running.script.calls().is_empty());
    table.next(&[]);
    running.control().resume().await.unwrap();
    running.until(secs(1_200)).await;
    assert_eq!((running.script.done().len(), running.world.dead().len()), (5, 0));
}
