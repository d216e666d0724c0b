//! At no level, whatever sets it, does the log show a message, a credential or what is signed with.

use crate::stage::{CANARY, Stage, TIMEOUT, UNPROTECTED};
use crate::target::NEW;

/// Each crate by its name: who asks for one of them gets no more than who asks for all.
const BY_NAME: &str = "trace,aws_config=trace,aws_runtime=trace,aws_sdk_sqs=trace,aws_sigv4=trace,aws_smithy_runtime=trace,\
                       aws_smithy_http_client=trace,h2=trace,hyper=trace,hyper_util=trace,lambda_runtime=trace,\
                       lambda_runtime_api_client=trace,rustls=trace";

#[tokio::test]
async fn no_level_brings_a_message_or_a_credential_into_the_log() {
    for level in [("RUST_LOG", "trace"), ("RUST_LOG", BY_NAME), ("AWS_LAMBDA_LOG_LEVEL", "TRACE")] {
        for format in ["JSON", "Text"] {
            let stage = Stage::new().await;
            let settings = [
                level,
                UNPROTECTED,
                ("AWS_LAMBDA_LOG_FORMAT", format),
                ("AWS_ACCESS_KEY_ID", "AKIACANARYKEYID"),
                ("REQUEUE_SIGNING_SECRET", NEW),
                ("REQUEUE_HEADERS", r#"{"Authorization": "Bearer canary-header"}"#),
                ("REQUEUE_ATTRIBUTE_HEADERS", "tenant=X-Tenant"),
            ];
            let mut function = stage.requeue_lambda(&settings).await;
            for answer in ["ok", "unavailable", "invalid", "hostile-text"] {
                let body = format!(r#"{{"answer":"{answer}","text":"{CANARY}"}}"#);
                stage.send_with(&body, &[("tenant", "canary-attribute")]).await;
            }
            let (batch, _) = stage.invoke(&mut function, TIMEOUT).await;
            let event = batch.event(&stage.queue);
            let log = function.stop().await;
            assert!(log.contains("TRACE") || log.contains("received"), "{level:?}: {log}");
            let handles = event["Records"]
                .as_array()
                .unwrap()
                .iter()
                .map(|record| record["receiptHandle"].as_str());
            let fixed = [CANARY, "AKIACANARYKEYID", "canary-", "whsec_", "v1,"].map(Some);
            for secret in handles.chain(fixed).flatten() {
                let line = log.lines().find(|line| line.contains(secret));
                assert!(line.is_none(), "{level:?}, {format}: {secret} in {line:?}");
            }
        }
    }
}
