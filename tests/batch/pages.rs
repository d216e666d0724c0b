//! The numbers in tables of `docs/concepts/`.

use std::time::Duration;

use requeue::policy::RetryPolicy;
use requeue::{Failure, Mode, RecursiveLoop, Sampler, Settings, Strategy, Wrap};

use crate::world::{Act, MAX_RECEIVE_COUNT, Script, World, secs, state};

const LIFE: &str = include_str!("../../docs/concepts/how-it-works.md");
const POLICY: &str = include_str!("../../docs/concepts/retry-policy.md");
const IDEMPOTENCY: &str = include_str!("../../docs/concepts/idempotency.md");

#[track_caller]
fn assert_row(page: &str, begin: &str, end: &str) {
    let is_it = |line: &&str| line.starts_with(begin) && line.ends_with(end);
    assert!(page.lines().any(|line| is_it(&line)), "the page lacks: {begin} … {end}");
}

#[tokio::test(start_paused = true)]
async fn the_page_has_the_attempts_that_each_setting_allows() {
    type Change = fn(&mut Settings);
    let table: [(&str, &str, Change); 5] = [
        ("| in copies, `REQUEUE_RECURSIVE_LOOP=Allow`", "{}", |settings| {
            settings.recursive_loop = RecursiveLoop::Allow;
        }),
        ("| in copies, `REQUEUE_RECURSIVE_LOOP=Terminate`", "{}", |settings| {
            settings.recursive_loop = RecursiveLoop::Terminate;
        }),
        ("| in flight: a FIFO queue", "{}", |settings| {
            settings.strategy = Strategy::Visibility;
        }),
        ("| in flight, because the body", "text", |settings| {
            settings.wrap = Wrap::Never;
        }),
        ("| `REQUEUE_MODE=report`", "{}", |settings| settings.mode = Mode::Report),
    ];
    for (row, body, change) in &table[3..] {
        assert_row(POLICY, row, " | `maxReceiveCount`; `maxRetries` has no effect | 5 |");
        let mut world = World::new();
        world.settings.policy.max_retries = 2;
        change(&mut world.settings);
        world.send(body).await;
        let script = Script::always(Failure::temporary("no"));
        world.run(&world.processor(script.clone())).await;
        assert_eq!(script.calls().len(), MAX_RECEIVE_COUNT as usize, "{row}");
    }
    assert!(POLICY.contains(&format!("with a `maxReceiveCount` of {MAX_RECEIVE_COUNT}:")));
    for (row, body, change) in table {
        let mut world = World::new();
        change(&mut world.settings);
        world.send(body).await;
        let script = Script::always(Failure::temporary("no"));
        world.run(&world.processor(script.clone())).await;
        assert_eq!(world.dead().len(), 1, "{row}");
        assert_row(POLICY, row, &format!(" | {} |", script.calls().len()));
    }
}

#[tokio::test(start_paused = true)]
async fn the_page_has_the_life_of_a_message_with_hops() {
    let grouped = |seconds: u64| match seconds {
        0..1_000 => format!("{seconds} s"),
        _ => format!("{},{:03} s", seconds / 1_000, seconds % 1_000),
    };
    let mut world = World::new();
    world.settings.sampler = Sampler::always(0.0);
    world.send("{}").await;
    let script = Script::new(|seen| match seen.attempt {
        1 => Act::Fail(Failure::rate_limit("429").retry_after(secs(2_400))),
        _ => Act::Done,
    });
    let processor = world.processor(script.clone());
    let start = tokio::time::Instant::now();
    let mut copies = 0;
    while world.sleep_until_due().await {
        let time = grouped(start.elapsed().as_secs());
        world.invoke(&processor).await.unwrap();
        let holds = world.messages().first().map(|copy| {
            let (fields, delay) = (state(copy), world.wait(copy).as_secs());
            let hops = fields["retryState"]["hops"].as_u64().map(|hops| format!(", `hops` {hops}"));
            copies += 1;
            format!(
                "copy {copies}: `retryCount` {}{}, delay {delay} s",
                fields["retryCount"],
                hops.unwrap_or_default()
            )
        });
        let holds = holds.unwrap_or_else(|| "none".to_owned());
        let is_it = |line: &str| line.starts_with(&format!("| {time} |")) && line.contains(&holds);
        assert!(LIFE.lines().any(is_it), "the page lacks: {time}: {holds}");
    }
    assert_eq!((copies, script.calls().len()), (3, 2));
}

#[test]
fn the_page_has_the_time_for_which_keys_are_kept() {
    let RetryPolicy { rate_limit, quota, temporary, .. } = RetryPolicy::default();
    let ages = [rate_limit, quota, temporary].map(|class| class.total_timeout);
    let days = |time: Duration| time.as_secs() / 86_400;
    let age = ages.into_iter().map(days).max().unwrap();
    let template = include_str!("../../template.yaml");
    let default = template.split("  MessageRetentionPeriod:\n").nth(1).unwrap();
    let default = default.split("Default: ").nth(1).unwrap().lines().next().unwrap();
    let queue = days(secs(default.parse().unwrap()));
    let (live, dead) = (age + queue, 14);
    assert!(template.contains(&format!("MessageRetentionPeriod: {}", dead * 86_400)));
    let mut sum = 0;
    for (row, more) in [
        ("| is retried:", age),
        ("| waits in a backlog", queue),
        ("| is a dead letter:", dead),
        ("| is redriven,", live),
    ] {
        sum += more;
        assert_row(IDEMPOTENCY, row, &format!(" | {more} days | {sum} days |"));
    }
    assert!(IDEMPOTENCY.contains("(2,764,800 s)"));
    assert_eq!(sum * 86_400, 2_764_800);
}

/// The times of the calls of a message that meets `failures`, by the policy of the section.
async fn calls(document: &str, failures: impl Fn(u32) -> Act + Send + Sync + 'static) -> Vec<u64> {
    let mut world = World::new();
    world.settings.set_policy(document).unwrap();
    world.settings.sampler = Sampler::always(0.5);
    world.settings.recursive_loop = RecursiveLoop::Allow;
    world.send("{}").await;
    let script = Script::new(move |seen| failures(seen.attempt));
    let start = tokio::time::Instant::now();
    world.run(&world.processor(script.clone())).await;
    script.calls().iter().map(|seen| (seen.at - start).as_secs()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_page_has_a_policy_for_jitter_of_your_own() {
    let (_, section) = POLICY.split_once("## Your own jitter").unwrap();
    let (_, document) = section.split_once("```json\n").unwrap();
    let (document, _) = document.split_once("```").unwrap();
    let named = [40, 7, 300, 20];
    let calls = calls(document, move |attempt| match named.get(attempt as usize - 1) {
        Some(delay) => Act::Fail(Failure::temporary("no").retry_after(secs(*delay))),
        None => Act::Done,
    });
    let calls = calls.await;
    assert_eq!(calls.len(), named.len() + 1);
    for (pair, named) in calls.windows(2).zip(named) {
        let wait = pair[1] - pair[0];
        assert!((named..=named + named / 10 + 1).contains(&wait), "{wait} for {named}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_page_has_a_policy_for_a_quota_until_tomorrow() {
    let (_, section) = POLICY.split_once("## A quota until tomorrow").unwrap();
    let (_, document) = section.split_once("```json\n").unwrap();
    let (document, _) = document.split_once("```").unwrap();
    let day = calls(document, |attempt| match attempt {
        1 => Act::Fail(Failure::quota("no").retry_after(secs(86_400))),
        _ => Act::Done,
    });
    let day = day.await;
    assert!(matches!(day[..], [0, 86_400..=86_460]), "{day:?}");
    let quota = |_| Act::Fail(Failure::quota("no"));
    let hours = calls(document, quota).await;
    assert_eq!(hours, (0..=50).map(|hour| hour * 3_600).collect::<Vec<_>>());

    // Six hours: a list without jitter against a rule's delay.
    let six = document.replace("180000", "21600");
    assert_eq!(calls(&six, quota).await.len(), 7);
    let named = |_| Act::Fail(Failure::quota("no").retry_after(secs(3_600)));
    assert_eq!(calls(&six, named).await.len(), 6);
    let tomorrow = |_| Act::Fail(Failure::quota("no").retry_after(secs(86_400)));
    assert_eq!(calls(r#"{"totalTimeoutSeconds": 7200}"#, tomorrow).await.len(), 1);
}
