//! The code of `docs/start/testing.md`.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use requeue::embedded::Fault;
use requeue::testing::World;
use requeue::{Failure, FailureClass, Message};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
struct Order {
    id: u32,
    cents: u64,
}

async fn charge(message: Message<Order>) -> Result<(), Failure> {
    match (message.body().cents, message.attribute("tenant")) {
        (0, _) => Err(Failure::non_retryable("an order without an amount")),
        (_, None) => Err(Failure::non_retryable("an order of no tenant")),
        _ => Ok(()),
    }
}

#[tokio::test]
async fn an_order_without_an_amount_is_never_retried() {
    let order = Order { id: 1, cents: 0 };
    let message = Message::builder(order).attribute("tenant", "acme").attempt(3).build();
    let failure = charge(message).await.unwrap_err();
    assert_eq!(failure.class(), FailureClass::NonRetryable);
}

#[tokio::test(start_paused = true)]
async fn two_rate_limits_are_two_retries() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let mut world =
        World::new(async |message: Message<Order>| match CALLS.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Err(Failure::rate_limit("429").retry_after(Duration::from_secs(300))),
            _ => charge(message).await,
        });
    let id = world.send(Order { id: 1, cents: 500 }).attribute("tenant", "acme").await;
    world.run_until_empty().await;
    assert_eq!(world.attempts(&id), 3);
    world.assert_done(&id);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_dead_lettered_after_one_attempt() {
    let mut world = World::new(charge);
    let id = world.send(Order { id: 1, cents: 0 }).await;
    world.run_until_empty().await;
    assert_eq!(world.attempts(&id), 1);
    world.assert_dead(&id, "without an amount");
}

#[tokio::test(start_paused = true)]
async fn an_order_waits_for_the_one_before_it() {
    static DONE: AtomicU32 = AtomicU32::new(0);
    let mut world = World::fifo(async |message: Message<Order>| {
        if message.body().id == 1 && message.receive_count() == 1 {
            return Err(Failure::temporary("the bank is closed"));
        }
        assert_eq!(DONE.fetch_add(1, Ordering::Relaxed) + 1, message.body().id);
        Ok(())
    });
    for id in [1, 2, 3] {
        world.send(Order { id, cents: 5 }).group("acme").await;
    }
    world.run_until_empty().await;
    assert_eq!(DONE.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn no_order_is_lost_while_sqs_refuses_copies() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let mut world =
        World::new(async |_: Message<Order>| match CALLS.fetch_add(1, Ordering::Relaxed) {
            0 => Err(Failure::temporary("the bank is closed")),
            _ => Ok(()),
        });
    world.sqs().set_faults(|call| match call.operation.as_str() {
        "SendMessageBatch" => Fault::refuse(503, "ServiceUnavailable"),
        _ => Fault::None,
    });
    let id = world.send(Order { id: 1, cents: 5 }).await;
    world.invoke().await;
    assert_eq!(world.outcomes(&id)[0].settlement.as_str(), "unconfirmed");
    world.sqs().clear_faults();
    world.run_until_empty().await;
    world.assert_done(&id);
}

#[tokio::test(start_paused = true)]
async fn an_order_whose_copy_is_there_twice_is_charged_once() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    static SENDS: AtomicU32 = AtomicU32::new(0);
    static CHARGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut world = World::new(async |message: Message<Order>| {
        if CALLS.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err(Failure::temporary("the bank is closed"));
        }
        CHARGED.lock().unwrap().insert(message.idempotency_key().to_owned());
        Ok(())
    });
    world.sqs().set_faults(|call| match call.operation.as_str() {
        "SendMessageBatch" if SENDS.fetch_add(1, Ordering::Relaxed) == 0 => Fault::LoseResponse,
        _ => Fault::None,
    });
    let id = world.send(Order { id: 1, cents: 5 }).await;
    world.run_until_empty().await;
    assert_eq!(world.attempts(&id), 3, "a failure, and a call for each of the two copies");
    assert_eq!(CHARGED.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_order_that_waited_for_a_day_is_too_old() {
    let mut world = World::with(charge, "orders", |settings| {
        settings.set_policy(r#"{"messageTtlSeconds": 3600}"#).unwrap();
    });
    let id = world.send(Order { id: 1, cents: 500 }).await;
    world.pass(Duration::from_secs(24 * 3_600)).await;
    world.run_until_empty().await;
    assert_eq!(world.attempts(&id), 0);
    assert_eq!(world.outcomes(&id)[0].disposition.reason(), Some("expired"));
}

#[test]
fn the_guide_shows_this_code() {
    let page = include_str!("../../docs/start/testing.md");
    let blocks: Vec<&str> =
        page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 8);
    for block in blocks {
        assert!(include_str!("guide.rs").contains(block), "not in guide.rs:\n{block}");
    }
}
