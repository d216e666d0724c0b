//! `requeue::testing::World` behaves like the deployed templates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use requeue::testing::World;
use requeue::{Failure, Message};
use tokio::time::Instant;

#[test]
fn its_numbers_and_settings_are_those_of_the_template() {
    let template = include_str!("../../examples/own-handler/template.yaml");
    for line in [
        "VisibilityTimeout: 360",
        "maxReceiveCount: 5",
        "Timeout: 60",
        "BatchSize: 10",
        "REQUEUE_RECURSIVE_LOOP: Allow",
        "REQUEUE_DEAD_LETTER: annotate",
    ] {
        assert!(template.lines().any(|of_template| of_template.contains(line)), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_two_hours_uses_up_nobodys_copies() {
    let (calls, end) = (Arc::new(AtomicU32::new(0)), Instant::now() + Duration::from_hours(2));
    let counted = Arc::clone(&calls);
    let mut world = World::new(move |_: Message| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move { if Instant::now() < end { Err(Failure::temporary("down")) } else { Ok(()) } }
    });
    let mut ids = Vec::new();
    for n in 0..50 {
        ids.push(world.send_text(format!("{n}")).await);
    }
    world.run_until_empty().await;
    for id in &ids {
        world.assert_done(id);
    }
    assert!(calls.load(Ordering::Relaxed) < 50 + 50 * 5, "the circuit was open: {calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_function_works_on_several_queues_each_with_its_dead_letters() {
    let handler = |message: Message| async move {
        match (message.queue().expect("a queue").name(), message.attempt().get()) {
            ("refunds.fifo", _) => Err(Failure::non_retryable("no refund")),
            ("invoices", 1) => Err(Failure::temporary("later")),
            _ => Ok(()),
        }
    };
    let mut world = World::new(handler).with_queue("refunds.fifo").with_queue("invoices");
    let order = world.send_text("{}").await;
    let refund = world.send_text("{}").to("refunds.fifo").group("g").await;
    let invoice = world.send_text("{}").to("invoices").delay_secs(900).await;
    assert_eq!(world.invoke().await, 2, "one of each queue whose messages are due");
    world.run_until_empty().await;
    world.assert_done(&order);
    world.assert_done(&invoice);
    assert_eq!(world.attempts(&invoice), 2);
    world.assert_dead(&refund, "no refund");
    let dead = world.sqs().messages(&dlq(&world, "refunds-dlq.fifo")).expect("a queue");
    assert_eq!((dead.len(), world.dead().len()), (1, 1));
}

fn dlq<H, T>(world: &World<H, T>, name: &str) -> requeue::queue::QueueArn
where
    H: requeue::Handler<T>,
    T: requeue::Body,
{
    world.sqs().queues().into_iter().find(|queue| queue.name() == name).expect("a queue")
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_up_to_ten_thousand_messages_and_ten_of_a_fifo_queue() {
    let world = World::new(|_: Message| async { Ok::<(), Failure>(()) }).with_batch_size(10_000);
    let mut world = world.with_queue("refunds.fifo");
    for n in 0..10_001 {
        world.send_text(format!("{n}")).await;
    }
    for n in 0..11 {
        world.send_text(format!("{n}")).to("refunds.fifo").group(&format!("{n}")).await;
    }
    assert_eq!(world.invoke().await, 10_010);
    assert_eq!(world.invoke().await, 2);
    assert_eq!(world.invoke().await, 0);
    assert_eq!(world.calls(), 10_012);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the world has no queue refunds")]
async fn a_message_to_a_queue_that_is_not_in_the_world_is_refused() {
    let world = World::new(|_: Message| async { Ok::<(), Failure>(()) });
    world.send_text("{}").to("refunds").await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_ends_at_six_megabytes() {
    let mut world = World::new(|_: Message| async { Ok::<(), Failure>(()) }).with_batch_size(100);
    for _ in 0..40 {
        world.send_text("x".repeat(512 * 1024)).await;
    }
    assert_eq!(world.invoke().await, 20, "the second receive reaches the limit");
    assert_eq!(world.invoke().await, 20);
}
