use own_handler::{Charge, Order, Sandbox};
use requeue::testing::World;

fn order(card: &str) -> Order {
    Order { id: "o-1".to_owned(), cents: 500, card: card.to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_busy_bank_is_asked_again_until_it_accepts() {
    let mut world = World::new(Charge(Sandbox::default()));
    let id = world.send(order("busy")).await;
    world.run_until_empty().await;
    assert_eq!(world.attempts(&id), 2);
    world.assert_done(&id);
}

#[tokio::test(start_paused = true)]
async fn a_declined_card_is_dead_lettered_after_one_attempt() {
    let mut world = World::new(Charge(Sandbox::default()));
    let id = world.send(order("declined")).await;
    world.run_until_empty().await;
    assert_eq!(world.attempts(&id), 1);
    world.assert_dead(&id, "declined");
}
