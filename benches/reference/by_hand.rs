//! A good retry written by hand: copies with a count and a delay, ten in a request, sixteen requests
//! at once. It deletes the messages whose copies SQS confirms by name, and reports the others as
//! failed. It reads no body and has no other bounds.

use std::collections::HashMap;

use aws_lambda_events::sqs::{BatchItemFailure, SqsBatchResponse, SqsEvent, SqsMessage};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, SendMessageBatchRequestEntry};
use futures_util::StreamExt;
use lambda_runtime::{Error, LambdaEvent, service_fn};

const MAX_REQUESTS_AT_ONCE: usize = 16;

/// Sends the copies of ten messages. Returns the ids of the messages that stay.
async fn retry(client: &Client, url: &str, messages: &[SqsMessage]) -> Vec<String> {
    let id = |message: &SqsMessage| message.message_id.clone().unwrap_or_default();
    let entries = messages.iter().enumerate().map(|(at, message)| {
        let body = message.body.as_deref().unwrap_or_default();
        let body = format!(r#"{},"retryCount":1}}"#, body.trim_end_matches('}'));
        SendMessageBatchRequestEntry::builder()
            .id(at.to_string())
            .message_body(body)
            .delay_seconds(5)
            .build()
            .expect("all that is needed")
    });
    let sent = client
        .send_message_batch()
        .queue_url(url)
        .set_entries(Some(entries.collect()))
        .send()
        .await;
    let confirmed: Vec<usize> = match &sent {
        Ok(sent) => sent.successful().iter().filter_map(|entry| entry.id().parse().ok()).collect(),
        Err(_) => Vec::new(),
    };
    let entries = confirmed.iter().map(|&at| {
        let handle = messages[at].receipt_handle.clone().unwrap_or_default();
        DeleteMessageBatchRequestEntry::builder()
            .id(at.to_string())
            .receipt_handle(handle)
            .build()
            .expect("all that is needed")
    });
    if !confirmed.is_empty() {
        let _ = client
            .delete_message_batch()
            .queue_url(url)
            .set_entries(Some(entries.collect()))
            .send()
            .await;
    }
    (0..messages.len()).filter(|at| !confirmed.contains(at)).map(|at| id(&messages[at])).collect()
}

async fn handle(client: &Client, event: LambdaEvent<SqsEvent>) -> Result<SqsBatchResponse, Error> {
    let mut queues: HashMap<String, Vec<SqsMessage>> = HashMap::new();
    for message in event.payload.records {
        queues
            .entry(message.event_source_arn.clone().unwrap_or_default())
            .or_default()
            .push(message);
    }
    let mut response = SqsBatchResponse::default();
    for (arn, messages) in queues {
        let [.., region, account, name] = arn.split(':').collect::<Vec<_>>()[..] else { continue };
        let url = format!("https://sqs.{region}.amazonaws.com/{account}/{name}");
        let requests = messages.chunks(10).map(|messages| retry(client, &url, messages));
        let kept: Vec<Vec<String>> = futures_util::stream::iter(requests)
            .buffer_unordered(MAX_REQUESTS_AT_ONCE)
            .collect()
            .await;
        response.batch_item_failures.extend(kept.into_iter().flatten().map(|id| {
            let mut failure = BatchItemFailure::default();
            failure.item_identifier = id;
            failure
        }));
    }
    Ok(response)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    use aws_smithy_http_client::{Builder, tls};
    let tls = tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring);
    let http = Builder::new().tls_provider(tls).build_https();
    let config =
        aws_config::defaults(aws_config::BehaviorVersion::latest()).http_client(http).load().await;
    let client = &Client::new(&config);
    lambda_runtime::run(service_fn(|event| handle(client, event))).await
}
