use std::sync::atomic::{AtomicU32, Ordering};

use own_handler::{Order, charge};
use requeue::testing::World;
use requeue::{Failure, Message};

fn order(cents: u64) -> Order {
    Order { id: "o-1".to_owned(), cents }
}

#[tokio::test(start_paused = true)]
async fn an_order_without_an_amount_is_dead_lettered() {
    let mut world = World::new(charge);
    let (good, bad) = (world.send(order(5)).await, world.send(order(0)).await);
    world.run_until_empty().await;
    world.assert_done(&good);
    world.assert_dead(&bad, "without an amount");
}

#[tokio::test(start_paused = true)]
async fn two_rate_limits_are_two_retries() {
    static LEFT: AtomicU32 = AtomicU32::new(2);
    let mut world = World::new(async |message: Message<Order>| {
        match LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Err(Failure::rate_limit("429")),
            Err(_) => charge(message).await,
        }
    });
    let id = world.send(order(5)).await;
    world.run_until_empty().await;
    assert_eq!(world.attempts(&id), 3);
    world.assert_done(&id);
}
