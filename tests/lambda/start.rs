//! The start of a function: bad settings end it with a message that names them all; a foreign event fails with the remedy.

use serde_json::json;

use crate::runtime_api::Ended;
use crate::stage::{Stage, TIMEOUT};

#[tokio::test]
async fn bad_settings_fail_at_start_with_every_problem_named() {
    let stage = Stage::new().await;
    let settings = [("REQUEUE_CONCURRENCY", "0"), ("REQUEUE_TIMEOUT_SECONDS", "soon"), ("REQUEUE_WARP", "never")];
    let (code, output) = stage.requeue_lambda(&settings).await.ended().await;
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("Error: 3 settings are invalid:\n"), "{output}");
    for named in ["REQUEUE_CONCURRENCY", "REQUEUE_TIMEOUT_SECONDS", "did you mean REQUEUE_WRAP?"] {
        assert!(output.contains(named), "{named} is missing in: {output}");
    }
}

#[tokio::test]
async fn a_missing_or_bad_target_fails_at_start() {
    let stage = Stage::new().await;
    for (url, named) in
        [("", "REQUEUE_TARGET_URL is missing"), ("http://example.com/", "REQUEUE_TARGET_URL is invalid")]
    {
        let (code, output) = stage.requeue_lambda(&[("REQUEUE_TARGET_URL", url)]).await.ended().await;
        assert_eq!(code, Some(1), "{output}");
        assert!(output.contains(named), "{output}");
    }
}

#[tokio::test]
async fn an_event_that_is_none_of_sqs_fails_with_the_remedy() {
    let stage = Stage::new().await;
    let mut function = stage.requeue_lambda(&[]).await;
    let Ended::Error(error) = function.invoke(&json!({"key1": "value1"}), TIMEOUT).await else { panic!("an error") };
    assert_eq!(error["errorType"], "Requeue.NoRecords");
    assert!(error["errorMessage"].as_str().unwrap().contains("event source mapping"), "{error}");
    let answered = function.invoke(&json!({"Records": []}), TIMEOUT).await;
    assert_eq!(answered, Ended::Response(json!({"batchItemFailures": []})));
}
