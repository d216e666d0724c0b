//! SQS deletes messages after the retention period. No message may wait that long.

use std::path::Path;
use std::time::Duration;

use requeue::Failure;
use requeue::policy::RetryPolicy;

use crate::world::{Script, World, secs};

#[tokio::test(start_paused = true)]
async fn a_delay_that_outlasts_the_retention_loses_the_message_and_one_second_more_keeps_it() {
    // SQS counts from the send, the delay included.
    for (retention, is_kept) in [("60", false), ("900", false), ("901", true)] {
        let world = World::with_queue("orders", &[("MessageRetentionPeriod", retention)]);
        world.send("{}").await;
        let script = Script::failing_first(1, Failure::quota("later").retry_after(secs(900)));
        world.run(&world.processor(script.clone())).await;
        assert_eq!(script.calls().len(), if is_kept { 2 } else { 1 }, "{retention}");
        assert!(world.dead().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn each_hop_begins_the_retention_anew() {
    let world = World::with_queue("orders", &[("MessageRetentionPeriod", "901")]);
    world.send("{}").await;
    let script =
        Script::failing_first(1, Failure::quota("later").retry_after(Duration::from_hours(6)));
    world.run(&world.processor(script.clone())).await;
    assert_eq!(script.calls().len(), 2);
}

/// The retention periods in the template: the shortest that its queue may be given, and that of its
/// dead-letter queue.
fn of_the_template() -> [Duration; 2] {
    let template = Path::new(env!("CARGO_MANIFEST_DIR")).join("template.yaml");
    let template = std::fs::read_to_string(template).expect("the template");
    let seconds = |text: &str| secs(text.trim().parse().expect("a number"));
    let parameter = template.split_once("\n  MessageRetentionPeriod:\n").expect("the parameter").1;
    let choices = parameter
        .split_once("AllowedValues: [")
        .and_then(|(_, rest)| rest.split_once(']'))
        .expect("its choices")
        .0;
    let shortest = choices.split(',').map(seconds).min().expect("a choice");
    let periods =
        template.lines().filter_map(|line| line.trim().strip_prefix("MessageRetentionPeriod: "));
    let fixed: Vec<_> = periods.filter(|value| !value.starts_with("!Ref")).collect();
    let [dead_letters] = fixed[..] else { panic!("{fixed:?}") };
    [shortest, seconds(dead_letters)]
}

#[test]
fn the_templates_queue_keeps_a_message_longer_than_any_preset_tries_and_its_dead_letters_two_weeks()
{
    let [queue, dead_letters] = of_the_template();
    for policy in [RetryPolicy::standard(), RetryPolicy::high_volume(), RetryPolicy::critical()] {
        for class in [&policy.rate_limit, &policy.quota, &policy.temporary] {
            assert!(queue > class.total_timeout + secs(900), "{class:?}");
        }
        assert!(queue > policy.max_retry_after + secs(900));
    }
    assert_eq!(dead_letters, Duration::from_hours(14 * 24));
}
