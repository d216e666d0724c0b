//! One execution environment for many invocations, with faults on all sides.

use std::time::Duration;

use requeue::embedded::Fault;
use requeue_testkit::usage;
use tokio::time::Instant;

use crate::stage::{Stage, TIMEOUT};

#[tokio::test(flavor = "multi_thread")]
#[cfg(target_os = "linux")]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn memory_and_file_descriptors_of_an_environment_stay_flat() {
    let stage = Stage::new().await;
    let settings = [("AWS_LAMBDA_LOG_LEVEL", "ERROR"), ("REQUEUE_CONCURRENCY", "20")];
    let mut function = stage.requeue_lambda(&settings).await;
    stage.sqs.set_faults(|call| match call.number % 200 {
        17 => Fault::refuse(503, "ServiceUnavailable"),
        57 => Fault::LoseResponse,
        97 => Fault::LoseRequest,
        137 => Fault::RespondAfter(Duration::from_millis(500)),
        _ => Fault::None,
    });
    let pid = function.pid().expect("it runs");
    let end = Instant::now() + usage::duration();
    let invoking = async {
        let mut invocations = 0;
        while Instant::now() < end {
            for n in 0..20 {
                let answer = ["ok", "unavailable", "ok", "invalid"][n % 4];
                stage.try_send(&format!(r#"{{"answer":"{answer}","n":{n}}}"#)).await;
            }
            if let Some(batch) = stage.poll().await {
                let ended = function.invoke(&batch.event(&stage.queue), TIMEOUT).await;
                stage.acknowledge(&batch, &ended);
                invocations += 1;
            }
        }
        assert!(invocations > 10, "{invocations}");
    };
    tokio::join!(invoking, usage::stays_flat(pid, end));
    assert_eq!(function.pid(), Some(pid), "the same process all the time");
}
