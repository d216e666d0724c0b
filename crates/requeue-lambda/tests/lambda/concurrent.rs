//! Invocations side by side in one execution environment, as on Lambda Managed Instances.

use std::time::Duration;

use tokio::time::Instant;

use crate::runtime_api::Ended;
use crate::stage::{Stage, TIMEOUT, failed, json};

#[tokio::test]
async fn an_invocation_that_hangs_keeps_no_other_from_its_answer() {
    for (most, waits) in [("4", false), ("1", true)] {
        let stage = Stage::new().await;
        let settings = [("AWS_LAMBDA_MAX_CONCURRENCY", most), ("REQUEUE_TIMEOUT_SECONDS", "2")];
        let mut function = stage.trouble(&settings).await;
        let mut batches = Vec::new();
        for task in ["hang", "ok", "temporary"] {
            stage.send(&format!(r#"{{"do":"{task}"}}"#)).await;
            batches.push(stage.receive().await);
        }
        let begun = Instant::now();
        let ends: Vec<_> = batches
            .iter()
            .map(|batch| function.begin(&batch.event(&stage.queue), TIMEOUT))
            .collect();
        let mut times = Vec::new();
        for (batch, end) in batches.iter().zip(ends).rev() {
            let ended = end.await.unwrap();
            times.push(begun.elapsed());
            assert!(failed(&ended).is_empty());
            stage.acknowledge(batch, &ended);
        }
        assert_eq!(times[0] > Duration::from_secs(2), waits, "with at most {most}: {times:?}");
        let tasks: Vec<_> =
            stage.messages().iter().filter_map(|message| json(&message.body)).collect();
        assert_eq!(tasks.len(), 2, "what hung and what failed are there once more");
        assert!(tasks.iter().all(|copy| copy["retryCount"] == 1), "{tasks:?}");
    }
}

#[tokio::test]
async fn a_pause_holds_for_every_invocation_of_the_environment() {
    let stage = Stage::new().await;
    let mut function = stage.requeue_lambda(&[("AWS_LAMBDA_MAX_CONCURRENCY", "4")]).await;
    stage.send(r#"{"answer":"rate-limit"}"#).await;
    let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;
    assert!(matches!(ended, Ended::Response(_)));
    let mut batches = Vec::new();
    for n in 0..3 {
        stage.send(&format!(r#"{{"answer":"ok","n":{n}}}"#)).await;
        batches.push(stage.receive().await);
    }
    let ends: Vec<_> =
        batches.iter().map(|batch| function.begin(&batch.event(&stage.queue), TIMEOUT)).collect();
    for (batch, end) in batches.iter().zip(ends) {
        let ended = end.await.unwrap();
        assert!(failed(&ended).is_empty());
        stage.acknowledge(batch, &ended);
    }
    assert_eq!(stage.target.bodies().len(), 1, "nothing else was called");
    let copies: Vec<_> =
        stage.messages().iter().filter_map(|message| json(&message.body)).collect();
    assert_eq!(
        copies.iter().filter(|copy| copy["retryState"]["deferrals"] == 1).count(),
        3,
        "{copies:?}"
    );
    let log = function.stop().await;
    assert_eq!(log.matches(r#""reason":"paused""#).count(), 3, "{log}");
}
