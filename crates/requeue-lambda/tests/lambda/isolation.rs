//! What one message's handler does to itself, its neighbours do not feel; and the answer is out
//! before the deadline.

use std::time::Duration;

use tokio::time::Instant;

use crate::runtime_api::Ended;
use crate::stage::{Stage, TIMEOUT, failed, json};

async fn send(stage: &Stage, tasks: &[&str]) -> Vec<String> {
    let mut ids = Vec::new();
    for task in tasks {
        ids.push(stage.send(&format!(r#"{{"do":"{task}"}}"#)).await);
    }
    ids
}

/// The tasks of the copies in the queue, sorted.
fn copies(stage: &Stage) -> Vec<String> {
    let copies = stage.messages().into_iter().filter_map(|message| json(&message.body));
    let mut tasks: Vec<String> = copies
        .filter(|body| body["retryCount"] == 1)
        .map(|body| body["do"].as_str().unwrap().to_owned())
        .collect();
    tasks.sort_unstable();
    tasks
}

#[tokio::test]
async fn a_panic_is_contained_and_its_text_is_not_logged() {
    let stage = Stage::new().await;
    let mut function = stage.trouble(&[]).await;
    let pid = function.pid();
    send(&stage, &["ok", "panic", "ok", "temporary"]).await;
    let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;
    assert!(failed(&ended).is_empty());
    assert_eq!(copies(&stage), ["panic", "temporary"]);
    assert_eq!(stage.messages().len(), 2, "the neighbours are done");

    send(&stage, &["ok"]).await;
    let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;
    assert!(matches!(ended, Ended::Response(_)));
    assert_eq!(function.pid(), pid, "the same process serves on");
    let log = function.stop().await;
    assert!(log.contains("panic") && !log.contains("canary-panic-text"), "{log}");
}

#[tokio::test]
async fn a_hang_past_the_deadline_is_cancelled_and_retried() {
    let stage = Stage::new().await;
    let mut function = stage.trouble(&[]).await;
    send(&stage, &["ok", "hang"]).await;
    let begun = Instant::now();
    let (_, ended) = stage.invoke(&mut function, Duration::from_secs(4)).await;
    assert!(begun.elapsed() < Duration::from_secs(4));
    assert!(failed(&ended).is_empty());
    assert_eq!(copies(&stage), ["hang"]);
}

#[tokio::test]
async fn handlers_that_block_all_threads_cannot_keep_back_the_answer() {
    let stage = Stage::new().await;
    let mut function = stage.trouble(&[]).await;
    let mut blocked = send(&stage, &["block"; 12]).await;
    send(&stage, &["temporary"]).await;
    let begun = Instant::now();
    let (batch, ended) = stage.invoke(&mut function, Duration::from_secs(4)).await;
    assert!(begun.elapsed() < Duration::from_secs(4), "{ended:?}");
    let listed = failed(&ended);
    blocked.retain(|id| listed.contains(id));
    blocked.sort_unstable();
    assert_eq!(blocked, listed, "what blocks is released, and nothing else");
    assert!(
        (1..12).contains(&listed.len()),
        "some began and block, the others never began: {listed:?}"
    );
    assert_eq!(batch.message_ids().len(), 13);
    // Released or deferred: each of the thirteen is there once, and no retry is used.
    assert_eq!(stage.messages().len(), 13);
    assert_eq!(copies(&stage), Vec::<String>::new());
}

#[tokio::test]
async fn a_time_out_of_one_message_leaves_the_others_alone() {
    let stage = Stage::new().await;
    let mut function =
        stage.trouble(&[("REQUEUE_TIMEOUT_SECONDS", "0.3"), ("REQUEUE_CONCURRENCY", "2")]).await;
    send(&stage, &["hang", "ok", "hang", "ok", "rate-limit"]).await;
    let begun = Instant::now();
    let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(failed(&ended).is_empty());
    assert_eq!(copies(&stage), ["hang", "hang", "rate-limit"]);
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn a_message_that_ends_the_process_takes_its_neighbours_along_four_times_at_most() {
    let stage = Stage::new().await;
    stage.set_max_receive_count(5).await;
    let neighbours = send(&stage, &["ok"; 9]).await;
    let pill = send(&stage, &["abort"]).await;
    let mut left = Vec::new();
    while !stage.messages().is_empty() {
        let Some(batch) = stage.poll().await else { continue };
        let mut function = stage.trouble(&[]).await;
        let ended = function.invoke(&batch.event(&stage.queue), TIMEOUT).await;
        stage.acknowledge(&batch, &ended);
        left.push(stage.messages().len());
    }
    assert_eq!(
        left[..2],
        [10, 10],
        "twice all of them are lost, since nobody can tell which it is"
    );
    assert_eq!(left[3], 1, "{left:?}");
    let dead: Vec<String> = stage.dead().into_iter().map(|message| message.id).collect();
    assert_eq!(dead, pill, "{neighbours:?}");
}
