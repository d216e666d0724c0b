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
