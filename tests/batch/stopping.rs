//! The end of a worker while the table has a request of it under way. Such a request has its effect,
//! so the worker awaits the answer, and takes back all that was for a call.

use std::sync::Arc;

use requeue::embedded::MessageState;
use requeue::policy::Idempotency;
use requeue::queue::SqsQueue;
use requeue::table::Table;
use requeue::{DeadLetterMode, Failure, Progress, SharedTable, Worker, WorkerSettings};
use tokio::time::sleep;

use crate::idempotency::{Case, Told};
use crate::world::{Act, Script, World, millis, secs};

/// The table changes the item at once and answers after 200 ms. The signal comes before that.
async fn stop_meanwhile(world: &World, table: &Told, script: &Script) -> Progress {
    table.next(&[Case::Late(millis(200))]);
    let queue = SqsQueue::new(&world.sqs.client());
    let settings = (world.settings.clone(), WorkerSettings::default());
    let worker =
        Worker::start(script.clone(), queue, &world.queue, settings.0, settings.1).await.unwrap();
    let progress = worker.run(sleep(millis(100))).await;
    assert_eq!((script.calls().len(), progress.received, progress.waiting), (0, 1, 1));
    assert_eq!(world.only_message().state, MessageState::Visible);
    progress
}

fn share(world: &mut World) -> Arc<Told> {
    let table = Arc::new(Told::default());
    let shared = Arc::clone(&table) as Arc<dyn Table>;
    world.settings.shared_table = Some(SharedTable::by(shared));
    table
}

#[tokio::test(start_paused = true)]
async fn an_attempt_counts_only_with_a_call() {
    let mut world = World::with_queue("orders.fifo", &[]);
    world.set_max_receive_count(1_000).await;
    let table = share(&mut world);
    world.settings.dead_letter =
        Some(DeadLetterMode::Direct(world.dead_letters.url().parse().unwrap()));
    world.settings.policy.max_retries = 3;
    world.send_as("a", |message| message.message_group_id("a").message_deduplication_id("a")).await;
    let down = Script::always(Failure::temporary("down"));
    world.invoke(&world.processor(down.clone())).await.unwrap();
    world.sleep_until_due().await;
    Box::pin(stop_meanwhile(&world, &table, &Script::new(|_| Act::Done))).await;
    assert_eq!(table.requests(), 2, "it is counted and taken back");
    world.run(&world.processor(down.clone())).await;
    let attempts: Vec<u32> = down.calls().iter().map(|seen| seen.attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_leased_only_for_a_call() {
    let mut world = World::new();
    let table = share(&mut world);
    world.settings.policy.idempotency = Some(Idempotency::default());
    world.send("{}").await;
    Box::pin(stop_meanwhile(&world, &table, &Script::new(|_| Act::Done))).await;
    assert_eq!(table.requests(), 2, "it is acquired and given back");
    let script = Script::new(|_| Act::Done);
    let invocation = world.invoke(&world.processor(script.clone())).await.unwrap();
    assert!(invocation.failed().is_empty());
    assert_eq!(script.done().len(), 1, "another environment need not wait for the record");
}

#[tokio::test(start_paused = true)]
async fn the_lock_to_probe_is_only_for_a_call() {
    let mut world = World::new();
    world.protect();
    let table = share(&mut world);
    world.send("{}").await;
    let paused = Failure::rate_limit("slowly").retry_after(secs(30));
    let script = Script::failing_first(1, paused);
    world.invoke(&world.processor(script.clone())).await.unwrap();
    world.sleep_until_due().await;
    table.requests();
    Box::pin(stop_meanwhile(&world, &table, &Script::new(|_| Act::Done))).await;
    assert_eq!(table.requests(), 2, "it is taken and given back");
    world.invoke(&world.processor(script.clone())).await.unwrap();
    assert_eq!(script.done().len(), 1, "another environment need not wait for the record");
}
