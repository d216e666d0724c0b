//! Another party changes Requeue's fields between two attempts: the retries still end.

use std::time::Duration;

use requeue::{Failure, Sampler};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::{Script, World, secs};

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
