//! A function that calls `lambda_runtime` itself: `BatchProcessor::invoke` within a function of yours,
//! which logs each response.
//!
//! ```text
//! cargo lambda build --release --example own_runtime
//! ```

#![allow(clippy::unused_async, reason = "rules of the library")]

use lambda_runtime::{LambdaEvent, service_fn};
use requeue::queue::SqsQueue;
use requeue::{
    BatchProcessor, Failure, Handler, InvocationError, Message, Settings, SqsBatchResponse,
    SqsEvent,
};

async fn charge(message: Message) -> Result<(), Failure> {
    println!("attempt {} of {}", message.attempt(), message.body());
    Ok(())
}

/// Works on a batch, with room for what surrounds it.
async fn invoke<H: Handler>(
    processor: &BatchProcessor<H, SqsQueue>,
    event: LambdaEvent<SqsEvent>,
) -> Result<SqsBatchResponse, InvocationError> {
    let response = processor.invoke(event).await?;
    println!("{} messages stay in the queue", response.batch_item_failures.len());
    Ok(response)
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    requeue::init_logging(tracing::Level::INFO);
    let processor = BatchProcessor::new(charge, SqsQueue::from_env(), Settings::from_env()?);
    lambda_runtime::run(service_fn(|event| invoke(&processor, event))).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lambda_runtime::Context;
    use requeue::Clock;
    use requeue::embedded::{EmbeddedSqs, EventSourceMapping};

    use super::*;

    #[tokio::test]
    async fn a_message_that_arrives_is_done() {
        let sqs = EmbeddedSqs::new(Clock::system());
        let queue = sqs.create_queue("orders", []).expect("a queue");
        let client = sqs.client();
        let message = client.send_message().queue_url(queue.url()).message_body("{}");
        message.send().await.expect("sent");
        let mapping = EventSourceMapping::new(sqs.clone(), queue.clone(), 10);
        let batch = mapping.poll(Duration::ZERO).await.expect("the queue exists");
        let event = batch.expect("a message").event(&queue);
        let event = serde_json::from_value(event).expect("an event of SQS");
        let processor = BatchProcessor::new(charge, SqsQueue::new(&client), Settings::default());
        let response = invoke(&processor, LambdaEvent::new(event, Context::default())).await;
        assert!(response.expect("a response").batch_item_failures.is_empty());
    }
}
