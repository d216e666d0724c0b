//! Every file of `events/` through the ready Lambda.

use std::collections::BTreeSet;

use requeue_testkit::repository;
use serde_json::Value;

use crate::stage::{Stage, TIMEOUT, failed};

#[tokio::test]
async fn every_event_file_is_answered_with_ids_of_its_own() {
    let stage = Stage::new().await;
    stage.sqs.create_queue("orders.fifo", []).unwrap();
    let mut function = stage.requeue_lambda(&[("REQUEUE_TIMEOUT_SECONDS", "1")]).await;
    let directory = repository("events");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let event: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let ids: BTreeSet<&str> = event["Records"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|record| record["messageId"].as_str())
            .collect();
        let ended = function.invoke(&event, TIMEOUT).await;
        for id in failed(&ended) {
            assert!(ids.contains(id.as_str()), "{}: {id}", path.display());
        }
        count += 1;
    }
    assert!(count >= 15, "{count} event files");
}
