//! Any step may hang for any time: the response is out before the deadline, and SQS still has every
//! message.

use std::collections::BTreeSet;

use requeue::embedded::Fault;
use requeue::{DeadLetterMode, Failure, Sampler, Strategy};
use serde_json::Value;

use crate::world::{Act, Dice, Script, World, millis, secs};

const RUNS: u64 = 1_000;

fn act(dice: &Dice) -> Act {
    let then = match dice.roll(0, 9) {
        0 => Act::Hang,
        1 => Act::Panic,
        2 => Act::Fail(Failure::rate_limit("slowly").retry_after(secs(dice.roll(0, 2_000)))),
        3 | 4 => Act::Fail(Failure::temporary("no")),
        5 => Act::Fail(Failure::non_retryable("never")),
        6 => Act::Fail(Failure::postpone(secs(5))),
        _ => Act::Done,
    };
    match dice.roll(0, 3) {
        0 => Act::after(millis(dice.roll(0, 40_000)), then),
        _ => then,
    }
}

fn fault(dice: &Dice) -> Fault {
    let then = match dice.roll(0, 9) {
        0 | 1 => Fault::Hang,
        2 => Fault::LoseResponse,
        3 => Fault::LoseRequest,
        4 => Fault::refuse(503, "ServiceUnavailable"),
        5 => Fault::refuse(400, "KmsThrottled"),
        6 => Fault::RespondAfter(millis(dice.roll(0, 30_000))),
        _ => Fault::None,
    };
    match dice.roll(0, 4) {
        0 => Fault::after(millis(dice.roll(0, 15_000)), then),
        _ => then,
    }
}

fn world(dice: &Dice) -> World {
    let is_fifo = dice.roll(0, 3) == 0;
    let mut world = World::with_queue(if is_fifo { "orders.fifo" } else { "orders" }, &[]);
    world.batch_size = 40;
    world.function_timeout = millis(dice.roll(200, 60_000));
    world.settings.sampler = Sampler::seeded(dice.roll(0, u64::MAX));
    world.settings.limits.concurrency = dice.roll(1, 12);
    world.settings.limits.timeout = millis(dice.roll(100, 40_000));
    world.settings.limits.reserve = millis(dice.roll(10, 10_000));
    world.settings.strategy =
        if dice.roll(0, 2) == 0 { Strategy::Visibility } else { Strategy::Copy };
    world.settings.dead_letter = Some(match dice.roll(0, 2) {
        0 => DeadLetterMode::Redrive,
        1 => DeadLetterMode::Annotate,
        _ => DeadLetterMode::Direct(world.dead_letters.url().parse().expect("a URL")),
    });
    if dice.roll(0, 1) == 1 {
        world.protect();
    }
    world
}

async fn live(seed: u64) {
    let dice = Dice::of(seed, 0);
    let world = world(&dice);
    let messages = dice.roll(1, 30);
    for n in 0..messages {
        let group = format!("g{}", dice.roll(1, 3));
        let is_fifo = world.queue.is_fifo();
        let body = format!(r#"{{"n":{n}}}"#);
        let sent = world.send_as(&body, |message| {
            if is_fifo {
                message.message_group_id(group).message_deduplication_id(n.to_string())
            } else {
                message
            }
        });
        sent.await;
    }
    let faults = dice.clone();
    world.faults(move |_| fault(&faults));
    let acts = dice.clone();
    let script = Script::new(move |_| act(&acts));
    let processor = world.processor(script.clone());
    while let Some(invocation) = world.invoke(&processor).await {
        let (elapsed, timeout) = (invocation.elapsed, world.function_timeout);
        assert!(invocation.answer.is_ok(), "seed {seed}");
        assert!(elapsed < timeout, "seed {seed}: {elapsed:?} of {timeout:?}");
        assert_eq!(script.running(), 0, "seed {seed}: every task has ended");
    }
    let there = world.messages().into_iter().chain(world.dead()).map(|message| message.body);
    let number = |body: String| {
        serde_json::from_str::<Value>(&body).expect("JSON")["n"].as_u64().expect("a number")
    };
    let found: BTreeSet<u64> = there.chain(script.done()).map(number).collect();
    assert_eq!(
        found.len(),
        usize::try_from(messages).expect("a small number"),
        "seed {seed}: {found:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_response_is_out_in_time_and_nothing_is_lost() {
    for seed in 0..crate::share(RUNS) {
        live(seed).await;
    }
}
