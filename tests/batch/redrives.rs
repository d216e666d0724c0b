//! Requeue tells a redrive from everything that looks like one: slow handlers, slow sends, hops,
//! and wrong clocks.

use std::time::Duration;

use requeue::embedded::Fault;
use requeue::queue::SqsQueue;
use requeue::{BatchProcessor, Clock, Failure};

use serde_json::{Value, json};

use crate::world::{Act, Invocation, SEND, Script, Seen, World, millis, secs, state};

/// How many seconds our clock is ahead of that of SQS.
const OFF: [i64; 3] = [-100, 0, 100];

/// A function whose clock is off.
struct Function {
    world: World,
    clock: Clock,
    script: Script,
    processor: BatchProcessor<Script, SqsQueue>,
}

impl Function {
    fn new(mut world: World, off: i64, act: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        let script = Script::new(act);
        let (clock, processor) = environment(&mut world, off, &script);
        Self { world, clock, script, processor }
    }

    /// One invocation. Its deadline is one by the clock of the function.
    async fn invoke(&mut self) -> Option<Invocation> {
        let of_sqs = std::mem::replace(&mut self.world.clock, self.clock.clone());
        let invocation = self.world.invoke(&self.processor).await;
        self.world.clock = of_sqs;
        invocation
    }

    /// Sleeps until a message is visible; `false` when there is none.
    async fn wait(&self) -> bool {
        let next = self.world.messages().iter().map(|message| self.world.wait(message)).min();
        tokio::time::sleep(next.unwrap_or_default()).await;
        next.is_some()
    }

    async fn run(&mut self) {
        while self.wait().await {
            self.invoke().await;
            assert!(self.script.calls().len() < 1_000, "a message goes round for ever");
        }
    }

    fn attempts(&self) -> Vec<u32> {
        self.script.calls().iter().map(|seen| seen.attempt).collect()
    }

    /// How often the only dead letter began afresh.
    fn redrives(&self) -> u64 {
        let [dead] = &self.world.dead()[..] else {
            panic!("one message");
        };
        state(dead)["retryState"]["redrives"].as_u64().unwrap_or(0)
    }
}

fn environment(
    world: &mut World,
    off: i64,
    script: &Script,
) -> (Clock, BatchProcessor<Script, SqsQueue>) {
    let now = world.clock.now();
    let by = secs(off.unsigned_abs());
    let clock = Clock::starting_at(if off < 0 { now - by } else { now + by });
    world.settings.clock = Some(clock.clone());
    (clock, world.processor(script.clone()))
}

#[tokio::test(start_paused = true)]
async fn a_handler_of_fourteen_minutes_is_no_redrive() {
    for off in OFF {
        let mut world = World::with_queue("orders", &[("VisibilityTimeout", "5420")]);
        world.function_timeout = secs(900);
        world.settings.limits.timeout = secs(890);
        world.settings.policy.max_retries = 2;
        world.send("{}").await;
        let mut function = Function::new(world, off, |_| {
            Act::after(secs(840), Act::Fail(Failure::temporary("no")))
        });
        function.run().await;
        assert_eq!(function.attempts(), [1, 2, 3], "{off}");
        assert_eq!(function.redrives(), 0, "{off}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_that_needed_every_try_is_no_redrive() {
    // Four tries in vain and a fifth that is carried out, each as late as can be; then one of them
    // stored without an answer.
    let late = |fault| Fault::after(millis(9_900), fault);
    let refused = late(Fault::refuse(503, "ServiceUnavailable"));
    for off in OFF {
        for (fourth, copies) in [(refused.clone(), 1), (late(Fault::LoseResponse), 2)] {
            let mut world = World::new();
            world.function_timeout = secs(120);
            world.send("{}").await;
            let (first, last) = (refused.clone(), late(Fault::None));
            world.faults_of(SEND, move |call| match call.of_operation {
                1..=3 => first.clone(),
                4 => fourth.clone(),
                _ => last.clone(),
            });
            let mut function = Function::new(world, off, |_| {
                Act::Fail(Failure::temporary("no").retry_after(secs(1)))
            });
            let invocation = function.invoke().await.unwrap();
            assert!(
                invocation.elapsed > secs(50) && invocation.elapsed < secs(60),
                "{:?}",
                invocation.elapsed
            );
            assert_eq!(function.world.messages().len(), copies);
            while function.attempts().len() < 1 + copies {
                function.wait().await;
                function.invoke().await;
            }
            assert_eq!(function.attempts()[1..], vec![2; copies], "{off}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hops_and_retries_under_a_clock_that_is_off_are_no_redrives() {
    for off in OFF {
        let mut world = World::new();
        world.settings.policy.max_retries = 3;
        world.send("{}").await;
        let mut function = Function::new(world, off, |seen| match seen.attempt {
            2 => Act::Fail(Failure::quota("tomorrow").retry_after(Duration::from_hours(6))),
            _ => Act::Fail(Failure::temporary("no")),
        });
        function.run().await;
        assert_eq!(function.attempts(), [1, 2, 3, 4], "{off}");
        assert_eq!(function.redrives(), 0, "{off}");
        let calls = function.script.calls();
        assert_eq!(calls[2].at - calls[1].at, Duration::from_hours(6), "{off}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_environments_whose_clocks_are_200_seconds_apart_count_together() {
    let mut world = World::new();
    world.settings.policy.max_retries = 6;
    world.send("{}").await;
    let mut function = Function::new(world, -100, |seen| match seen.attempt {
        3 => Act::Fail(Failure::quota("later").retry_after(secs(3_000))),
        _ => Act::Fail(Failure::temporary("no")),
    });
    let (mut clock, mut processor) =
        environment(&mut function.world, 100, &function.script.clone());
    while function.wait().await {
        function.invoke().await;
        std::mem::swap(&mut function.clock, &mut clock);
        std::mem::swap(&mut function.processor, &mut processor);
    }
    assert_eq!(function.attempts(), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(function.redrives(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_redrive_by_an_operator_gives_all_retries_back_ten_times() {
    // With the shortest visibility timeout that the template has, and redriven as soon as it is a
    // dead letter.
    for off in OFF {
        let mut world = World::with_queue("orders", &[("VisibilityTimeout", "80")]);
        world.settings.policy.max_retries = 2;
        let id = world.send("{}").await;
        let mut function = Function::new(world, off, |_| Act::Fail(Failure::temporary("no")));
        function.run().await;
        assert_eq!(function.attempts(), [1, 2, 3]);
        for redrive in 1..=11 {
            let client = function.world.sqs.client();
            let task = client
                .start_message_move_task()
                .source_arn(function.world.dead_letters.to_string());
            task.send().await.unwrap();
            assert!(function.world.dead().is_empty());
            let before = function.attempts().len();
            function.run().await;
            let again: &[u32] = if redrive <= 10 { &[1, 2, 3] } else { &[3] };
            assert_eq!(function.attempts()[before..], *again, "{off}, redrive {redrive}");
            assert_eq!(function.redrives(), redrive.min(10));
            assert_eq!(state(&function.world.dead()[0])["originalMessageId"], id.as_str());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_an_hour_behind_that_of_sqs_restarts_ten_times_and_no_more() {
    for (off, expected) in [(3_600, vec![1, 2, 3]), (-3_600, [vec![1; 11], vec![2, 3]].concat())] {
        let mut world = World::new();
        world.settings.policy.max_retries = 2;
        // What was sent in an hour has no age yet.
        world.settings.policy.message_ttl = Some(secs(7_200));
        world.send("{}").await;
        let mut function = Function::new(world, off, |_| Act::Fail(Failure::temporary("no")));
        function.run().await;
        assert_eq!(function.attempts(), expected, "{off}");
        assert_eq!(function.world.dead().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_readable_sent_timestamp_nothing_is_taken_for_a_redrive() {
    for sent in [None, Some(json!("yesterday")), Some(json!(null)), Some(json!("-1"))] {
        let mut world = World::new();
        world.settings.policy.max_retries = 3;
        world.send("{}").await;
        // Each retry takes three hops, all of which are received long after they were sent.
        let script = Script::always(Failure::quota("later").retry_after(secs(2_000)));
        let processor = world.processor(script.clone());
        while world.sleep_until_due().await {
            let Some(batch) = world.mapping().poll(Duration::ZERO).await.unwrap() else { continue };
            let mut event = batch.event(&world.queue);
            let attributes = event["Records"][0]["attributes"].as_object_mut().unwrap();
            attributes.remove("SentTimestamp");
            attributes
                .extend(sent.iter().map(|sent: &Value| ("SentTimestamp".to_owned(), sent.clone())));
            world.deliver(&processor, &event).await;
            assert!(script.calls().len() < 100, "{sent:?}: it goes round for ever");
        }
        let attempts: Vec<u32> = script.calls().iter().map(|seen| seen.attempt).collect();
        assert_eq!(attempts, [1, 2, 3, 4], "{sent:?}");
        assert_eq!(state(&world.dead()[0])["retryState"]["redrives"], Value::Null, "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_readable_time_of_the_first_receive_the_last_attempt_is_not_skipped_for_its_age()
{
    let mut world = World::new();
    world.settings.policy.temporary.total_timeout = secs(100);
    world.send("{}").await;
    let script = Script::always(Failure::temporary("no").retry_after(secs(60)));
    let processor = world.processor(script.clone());
    world.invoke(&processor).await.unwrap();
    tokio::time::sleep(secs(60)).await;
    // The first receive of the copy ends without a call, the second is beyond the age.
    drop(world.mapping().poll(Duration::ZERO).await.unwrap());
    world.sleep_until_due().await;
    let mut event = world.receive().await;
    event["Records"][0]["attributes"]
        .as_object_mut()
        .unwrap()
        .remove("ApproximateFirstReceiveTimestamp");
    world.report(&processor, &event).await;
    assert_eq!(script.calls().len(), 2);
}
