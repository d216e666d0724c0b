//! The smallest Lambda on an SQS queue in Rust: it reads the event and responds that every message
//! completed.

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use lambda_runtime::{Error, LambdaEvent, service_fn};

async fn handle(event: LambdaEvent<SqsEvent>) -> Result<SqsBatchResponse, Error> {
    std::hint::black_box(event.payload.records.len());
    Ok(SqsBatchResponse::default())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    lambda_runtime::run(service_fn(handle)).await
}
