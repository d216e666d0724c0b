//! A queue without a redrive policy: a given-up message would vanish unseen there.

use requeue::{Failure, Strategy, Wrap};

use crate::world::{Log, Script, World};

async fn warnings(world: &World, receives: u32) -> Vec<u32> {
    let processor = world.processor(Script::always(Failure::non_retryable("never")));
    let mut warned = Vec::new();
    for receive in 1..=receives {
        world.sleep_until_due().await;
        let log = Log::default();
        let listening = log.listen();
        if world.invoke(&processor).await.is_none() {
            break;
        }
        drop(listening);
        if log.text().contains("no redrive policy") {
            assert!(log.text().contains(&format!("receiveCount={receive}")), "{}", log.text());
            warned.push(receive);
        }
    }
    warned
}

#[tokio::test(start_paused = true)]
async fn what_no_redrive_policy_moves_is_warned_about() {
    for (strategy, first) in [(Strategy::Copy, 21), (Strategy::Visibility, 27)] {
        let mut world = World::new();
        world.settings.strategy = strategy;
        world.settings.policy.max_retries = 3;
        world.queue = world.sqs.create_queue("lonely", [("VisibilityTimeout", "360")]).unwrap();
        world.send("{}").await;
        assert_eq!(warnings(&world, first + 1).await, [first, first + 1], "{strategy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_a_redrive_policy_nobody_is_warned() {
    let world = World::new();
    world.send("{}").await;
    assert!(warnings(&world, 30).await.is_empty());
    assert_eq!(world.dead().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_tried_again_by_its_receives_is_not_stuck() {
    let mut world = World::new();
    world.settings.wrap = Wrap::Never;
    world.set_max_receive_count(51).await;
    world.send("text").await;
    let log = Log::default();
    let listening = log.listen();
    let script = Script::always(Failure::temporary("no"));
    world.run(&world.processor(script.clone())).await;
    drop(listening);
    assert_eq!(script.calls().len(), 51);
    assert!(!log.text().contains("no redrive policy"));
}
