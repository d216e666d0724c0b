//! Messages through the whole path: records, the target, and the copies in an SQS.

use requeue::embedded::EmbeddedSqs;
use requeue::queue::QueueArn;
use requeue::{BatchProcessor, Clock, Record, Report, Settings, bulk};

use super::*;

fn record(id: &str) -> Record {
    let queue: QueueArn = "arn:aws:sqs:eu-west-1:123456789012:orders".parse().expect("an ARN");
    let mut record = Record::default();
    record.message_id = Some(id.to_owned());
    record.receipt_handle = Some("handle".to_owned());
    record.queue = Some(Arc::new(queue));
    record
}

async fn processed<I: Invoke>(invoker: I, settings: Settings) -> Report {
    let target = bulk(FunctionTarget::new(invoker, FunctionSettings::default()));
    let processor = BatchProcessor::new(target, EmbeddedSqs::new(Clock::system()), settings);
    processor.process(vec![record("m-1")], Instant::now() + Duration::from_secs(60)).await
}

#[tokio::test]
async fn a_refused_call_defers_its_message_without_a_retry() {
    for error in [throttled(None), refused("AccessDeniedException")] {
        let report =
            processed(Scripted::new(move |_, _: &str| Err(error.clone())), Settings::default())
                .await;
        let outcome = &report.outcomes[0];
        assert_eq!(outcome.disposition.as_str(), "defer", "{outcome:?}");
        assert_eq!(outcome.reason(), Some("call-refused"));
        assert!(outcome.retry.is_none(), "{outcome:?}");
    }
}

/// An invoker that never answers.
struct Silent;

impl Invoke for Silent {
    async fn invoke(&self, _: Vec<u8>) -> Result<Invoked, InvokeError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn an_invocation_that_outlasts_its_time_may_still_run_and_the_log_says_so() {
    let mut settings = Settings::default();
    settings.limits.timeout = Duration::from_secs(1);
    let report = processed(Silent, settings).await;
    let outcome = &report.outcomes[0];
    assert_eq!(outcome.class, Some(FailureClass::Temporary));
    let detail = "no response of the function in time; it may still run";
    assert_eq!(outcome.detail.as_deref(), Some(detail));
}
