//! Another party writes or changes Requeue's fields: the retries still end, and within their bounds.

use std::time::{Duration, SystemTime};

use aws_sdk_sqs::types::MessageAttributeValue;
use requeue::policy::RateLimit;
use requeue::{DeadLetterMode, Failure, Sampler, Strategy};
use requeue_testkit::dice::Dice;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::share;
use crate::world::{Script, World, epoch_millis, secs};

/// Runs to the end a message that always fails. At hops picked by the sampler `tamper` changes its
/// body on the way to the handler. Returns the time of each call since the first receive.
async fn run(world: &World, hops: &Sampler, tamper: impl Fn(&mut Value)) -> Vec<Duration> {
    let script = Script::always(Failure::temporary("no"));
    let processor = world.processor(script.clone());
    let begun = Instant::now();
    while let Some(next) = world.messages().iter().map(|message| world.wait(message)).min() {
        tokio::time::sleep(next).await;
        let Some(batch) = world.mapping().poll(Duration::ZERO).await.unwrap() else {
            continue;
        };
        let mut event = batch.event(&world.queue);
        if hops.sample() < 0.5 {
            let body = &mut event["Records"][0]["body"];
            let mut members: Value = serde_json::from_str(body.as_str().unwrap()).unwrap();
            tamper(&mut members);
            *body = members.to_string().into();
        }
        world.deliver(&processor, &event).await;
        assert!(script.calls().len() < 1_000, "it goes round for ever");
    }
    script.calls().iter().map(|seen| seen.at - begun).collect()
}

#[tokio::test(start_paused = true)]
async fn a_count_that_is_set_back_leaves_the_age_to_end_the_loop() {
    for hops in [Sampler::always(0.0), Sampler::seeded(1), Sampler::seeded(2)] {
        let mut world = World::new();
        world.settings.policy.max_retries = 5;
        world.settings.policy.temporary.total_timeout = secs(100);
        world.send("{}").await;
        let calls = run(&world, &hops, |body| {
            if body.get("retryState").is_some() {
                body["retryCount"] = 0.into();
                body["retryState"]["counts"] = json!({});
            }
        });
        let calls = calls.await;
        assert!(calls.len() > 6, "the count ended it after {} calls", calls.len());
        assert!(calls.iter().all(|at| *at <= secs(100)), "{calls:?}");
        assert_eq!(world.dead().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_count_that_is_torn_out_or_garbled_is_counted_anew() {
    for garbled in [
        None,
        Some(json!(null)),
        Some(json!("5")),
        Some(json!(-1)),
        Some(json!(1.5)),
        Some(json!([])),
    ] {
        for hops in [Sampler::always(0.0), Sampler::seeded(1)] {
            let mut world = World::new();
            world.settings.policy.max_retries = 5;
            world.send("{}").await;
            let calls = run(&world, &hops, |body| {
                let members = body.as_object_mut().unwrap();
                if !members.contains_key("retryState") {
                    return;
                }
                match &garbled {
                    Some(value) => members.insert("retryCount".to_owned(), value.clone()),
                    None => members.remove("retryCount"),
                };
            });
            let calls = calls.await;
            assert_eq!((calls.len(), world.dead().len()), (6, 1), "{garbled:?}");
        }
    }
}

const DAY: Duration = secs(86_400);
/// The end of the year 9999.
const END_OF_TIME: u64 = 253_402_300_799_999;

/// Some fields of a state, with values that Requeue would not write.
fn forged(dice: &Dice, now: SystemTime) -> Value {
    let millis = |time| u64::try_from(epoch_millis(time)).unwrap();
    let times = [
        0,
        1_000,
        millis(now - 20 * DAY),
        millis(now + secs(30)),
        millis(now + DAY),
        4_102_444_800_000,
        END_OF_TIME,
    ];
    let counts = [0, 1, 99, u32::MAX];
    let mut state = json!({ "v": 1 });
    for name in ["firstSent", "firstReceived", "notBefore", "startTag", "ageFrom"] {
        if dice.happens(400) {
            state[name] = dice.pick(&times).into();
        }
    }
    for name in ["delay", "deferrals", "postponements", "hops", "redrives"] {
        if dice.happens(300) {
            state[name] = dice.pick(&counts).into();
        }
    }
    if dice.happens(300) {
        state["class"] = dice.pick(&["rate-limit", "quota", "temporary"]).into();
        state["counts"] = json!({ "temporary": dice.pick(&counts) });
    }
    let sent = dice.pick(&["1970-01-01T00:00:00Z", "2026-09-21T14:13:20Z", "9999-12-30T00:00:00Z"]);
    json!({
        "retryCount": dice.pick(&counts),
        "originalMessageId": "forged",
        "retryTimestamp": sent,
        "retryState": state,
    })
}

/// In every world of a seed, a message with forged fields is called within the longest wait, and its
/// calls end within its budgets.
async fn forge(seed: u64) {
    const MAX_RETRIES: usize = 3;
    const AGE: Duration = secs(600);
    let dice = Dice::of(seed, 0);
    let queue = dice.pick(&["orders", "orders.fifo"]);
    let mut world = World::with_queue(queue, &[("MessageRetentionPeriod", "1209600")]);
    let is_fifo = world.queue.is_fifo();
    world.set_max_receive_count(1_000).await;
    world.settings.strategy = dice.pick(&[Strategy::Copy, Strategy::Copy, Strategy::Visibility]);
    world.settings.dead_letter =
        Some(DeadLetterMode::Direct(world.dead_letters.url().parse().unwrap()));
    world.settings.policy.max_retries = MAX_RETRIES.try_into().unwrap();
    world.settings.policy.temporary.total_timeout = AGE;
    let ttl = dice.happens(300).then_some(3 * DAY);
    world.settings.policy.message_ttl = ttl;
    world.settings.policy.limit = dice.happens(300).then(|| RateLimit::new(1, secs(1)));
    let due = dice.happens(300).then(|| {
        dice.pick(&[
            "2026-09-21T16:00:00Z",
            "2026-10-02T00:00:00Z",
            "2027-01-01T00:00:00Z",
            "9990-01-01T00:00:00Z",
        ])
    });
    let began = world.clock.now();
    let body = forged(&dice, began).to_string();
    let with =
        |message: aws_sdk_sqs::operation::send_message::builders::SendMessageFluentBuilder| {
            let message = if is_fifo {
                message.message_group_id("a").message_deduplication_id("1")
            } else {
                message
            };
            let Some(due) = due else { return message };
            let value = MessageAttributeValue::builder().data_type("String").string_value(due);
            message.message_attributes("requeue.notBefore", value.build().unwrap())
        };
    world.send_as(&body, with).await;
    let script = Script::always(Failure::temporary("no"));
    let processor = world.processor(script.clone());
    let sent = Instant::now();
    let mut invocations = 0;
    while world.sleep_until_due().await {
        world.invoke(&processor).await;
        invocations += 1;
        // A hop each quarter of an hour, for as long as a queue keeps a message.
        assert!(invocations < 14 * 96 + 60, "seed {seed} hops for ever: {body} {due:?}");
    }
    let calls = script.calls();
    let longest = if due.is_some() { 14 * DAY } else { secs(43_260 + 120 + 60) };
    let Some(first) = calls.first() else {
        let ended = world.dead().len();
        assert_eq!(ended, 1, "seed {seed}: neither called nor a dead letter: {body} {due:?}");
        return;
    };
    assert!(first.at - sent <= longest, "seed {seed}: {:?} late: {body}", first.at - sent);
    assert!(calls.len() <= MAX_RETRIES + 1, "seed {seed}: {} calls: {body}", calls.len());
    for call in &calls {
        let since = call.at - first.at;
        assert!(since <= AGE + secs(61), "seed {seed}: called after {since:?}: {body}");
        let is_alive = ttl.is_none_or(|ttl| call.at - sent <= ttl);
        assert!(is_alive, "seed {seed}: called after it has expired: {body}");
    }
    assert_eq!(world.dead().len(), 1, "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn no_field_of_a_body_moves_a_bound() {
    // A first send in the far future shows in these two, which a quick run would leave out.
    const TELLING: [u64; 2] = [166, 265];
    for seed in (0..share(600)).chain(TELLING) {
        forge(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_send_in_the_year_9999_moves_neither_the_latest_time_of_a_call_nor_the_age() {
    for (due, calls) in [("9990-01-01T00:00:00Z", 0), ("2026-09-22T00:00:00Z", 0)] {
        let mut world = World::new();
        world.settings.policy.message_ttl = Some(secs(3_600));
        let state = json!({ "v": 1, "firstSent": END_OF_TIME });
        let body = json!({
            "retryCount": 0, "originalMessageId": "x", "retryTimestamp": "2026-09-21T14:13:20Z",
            "retryState": state,
        });
        world
            .send_as(&body.to_string(), |message| {
                let value = MessageAttributeValue::builder().data_type("String").string_value(due);
                message.message_attributes("requeue.notBefore", value.build().unwrap())
            })
            .await;
        let script = Script::always(Failure::temporary("no"));
        world.run(&world.processor(script.clone())).await;
        assert_eq!((script.calls().len(), world.dead().len()), (calls, 1), "{due}");
    }
}
