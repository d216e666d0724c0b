//! Random histories of FIFO queues. Whatever fails, each group keeps its order, nothing is sent
//! again, and nothing reaches the dead-letter queue without a call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use requeue::embedded::{EntryFault, EntryOutcome, Fault};
use requeue::{BatchProcessor, DeadLetterMode, Failure, Sampler};

use crate::world::{Act, Dice, SEND, Script, Seen, VISIBILITY_CHANGE, World, secs};

const BATCHES: u64 = 10_000;

fn act(dice: &Dice) -> Act {
    match dice.roll(0, 11) {
        0 => Act::Fail(Failure::rate_limit("slowly").retry_after(secs(dice.roll(0, 2_000)))),
        1 => Act::Fail(Failure::temporary("no")),
        2 => Act::Fail(Failure::quota("later")),
        3 => Act::Fail(Failure::non_retryable("never")),
        4 => Act::Fail(Failure::postpone(secs(5))),
        5 => Act::Panic,
        6 => Act::Hang,
        _ => Act::Done,
    }
}

fn fault(dice: &Dice) -> Fault {
    let refused =
        || EntryOutcome::Refused { code: "InternalError".to_owned(), sender_fault: false };
    match dice.roll(0, 9) {
        0 => Fault::refuse(500, "InternalFailure"),
        1 => Fault::LoseResponse,
        2 => Fault::Entries(vec![EntryFault::new(0, refused())]),
        _ => Fault::None,
    }
}

/// `group:number`, the number being the place in the group.
fn place(body: &str) -> (String, u32) {
    let (group, number) = body.split_once(':').expect("our own body");
    (group.to_owned(), number.parse().expect("a number"))
}

/// One history; returns how many batches it had.
async fn live(seed: u64) -> usize {
    let dice = Dice::of(seed, 0);
    let max_retries = dice.roll(1, 4);
    let max_receive_count = 2 * max_retries + dice.roll(0, 2);
    let mut world = World::with_queue("orders.fifo", &[]);
    world.set_max_receive_count(max_receive_count).await;
    world.batch_size = dice.roll(1, 10);
    world.settings.policy.max_retries = max_retries;
    // A whole batch in a row may hang.
    world.settings.limits.timeout = secs(5);
    world.settings.sampler = Sampler::seeded(seed);
    if dice.roll(0, 1) == 1 {
        world.protect();
    }
    let is_direct = dice.roll(0, 1) == 1;
    if is_direct {
        world.settings.dead_letter =
            Some(DeadLetterMode::Direct(world.dead_letters.url().parse().expect("a URL")));
    }
    let groups = dice.roll(1, 4);
    let mut sent: BTreeMap<String, u32> = BTreeMap::new();
    for n in 0..dice.roll(1, 14) {
        let group = format!("g{}", dice.roll(1, groups));
        let number = sent.entry(group.clone()).or_default();
        *number += 1;
        let body = format!("{group}:{number}");
        world
            .send_as(&body, |message| {
                message.message_group_id(group).message_deduplication_id(n.to_string())
            })
            .await;
    }
    let faults = dice.clone();
    world.faults_of(VISIBILITY_CHANGE, move |_| fault(&faults));

    // The calls of each group, in their order.
    let calls: Arc<Mutex<BTreeMap<String, Vec<u32>>>> = Arc::default();
    let (noted, acts) = (Arc::clone(&calls), dice.clone());
    let script = Script::new(move |seen: &Seen| {
        let (group, number) = place(&seen.body);
        noted.lock().expect("no panic while it is held").entry(group).or_default().push(number);
        act(&acts)
    });
    let processor = BatchProcessor::new(script, world.sqs.clone(), world.settings.clone());
    let batches = world.run(&processor).await;

    let calls = calls.lock().expect("no panic while it is held");
    for (group, numbers) in calls.iter() {
        assert!(numbers.is_sorted(), "seed {seed}: the calls of {group} are {numbers:?}");
        let mut distinct = numbers.clone();
        distinct.dedup();
        assert_eq!(distinct, (1..=sent[group]).collect::<Vec<_>>(), "seed {seed}: each is called");
        let most =
            numbers.chunk_by(|one, other| one == other).map(<[u32]>::len).max().unwrap_or_default();
        assert!(
            most <= 1 + max_retries as usize,
            "seed {seed}: {most} calls of one message in {group}"
        );
    }
    assert_eq!(calls.len(), sent.len(), "seed {seed}: each group is called");
    let sent: usize = world.entries(SEND).iter().sum();
    assert!(
        sent <= if is_direct { world.dead().len() } else { 0 },
        "seed {seed}: only dead letters are sent"
    );
    batches
}

#[tokio::test(start_paused = true)]
async fn order_is_kept_and_nothing_is_dead_lettered_uncalled() {
    let enough = usize::try_from(crate::share(BATCHES)).unwrap();
    let (mut batches, mut seed) = (0, 0);
    while batches < enough {
        batches += live(seed).await;
        seed += 1;
    }
}
