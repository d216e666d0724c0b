//! Lambda's side: an SQS event becomes records, a report becomes a batch response. Only this module
//! knows Lambda. An invocation is [`BatchProcessor::invoke`].

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use lambda_runtime::{Diagnostic, LambdaEvent};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tower::Service;

use crate::clock::from_epoch_millis;
use crate::handler::Handler;
use crate::message::Body;
use crate::processor::BatchProcessor;
use crate::queue::{MAX_RUN, Queue};
use crate::report::Report;

mod event;
mod lenient;
mod logging;
mod start;
#[cfg(test)]
mod tests;

pub use event::SqsEvent;
pub use logging::{init_logging, init_logging_to, log_panics_by_place, may_be_logged};
pub use start::{
    init_logging_in_lambda, log_start_error, run, run_bulk, run_on_this_thread, run_with,
};

/// The batch response. Lambda deletes all messages but those that are named here.
///
/// Source: Lambda developer guide, "Implementing partial batch responses".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SqsBatchResponse {
    /// The messages that stay in the queue.
    pub batch_item_failures: Vec<BatchItemFailure>,
}

/// A message that stays in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BatchItemFailure {
    /// Its message id.
    pub item_identifier: String,
}

/// Why an invocation fails as a whole.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvocationError {
    /// The event is not one of SQS.
    #[error(
        "the event {}: this function is to be invoked by an SQS event source mapping, by a pipe from \
         a queue, or with an event of that shape",
        service.map_or("has no list `Records`".to_owned(), |service| format!("is one of {service}, not of SQS"))
    )]
    NoRecords {
        /// The service of the event, if it is known.
        service: Option<&'static str>,
    },
    /// A record without a message id must stay in the queue, and no response can name it.
    #[error(
        "a record without a message id failed and could not be re-sent: SQS delivers the whole batch \
         again"
    )]
    Unreportable,
}

// `lambda_runtime` logs the `Debug` of an error too.
requeue_sqs::debug_as_display!(InvocationError);

impl From<InvocationError> for Diagnostic {
    fn from(error: InvocationError) -> Self {
        let error_type = match error {
            InvocationError::NoRecords { .. } => "Requeue.NoRecords",
            InvocationError::Unreportable => "Requeue.Unreportable",
        };
        Self { error_type: error_type.to_owned(), error_message: error.to_string() }
    }
}

/// The least time for the response, a call on the same machine.
const LEAST_FOR_RESPONSE: Duration = Duration::from_millis(50);

impl<H, Q, T> BatchProcessor<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// Works on one invocation.
    ///
    /// # Errors
    ///
    /// [`InvocationError::NoRecords`] if the event is not one of SQS;
    /// [`InvocationError::Unreportable`] if a record without an id must stay in the queue.
    pub async fn invoke(
        &self,
        event: LambdaEvent<SqsEvent>,
    ) -> Result<SqsBatchResponse, InvocationError> {
        let records = event.payload.into_records()?;
        let deadline = Instant::now() + self.time_left(event.context.deadline);
        let report = self.process(records, deadline).await;
        self.observe(&report, deadline.checked_sub(LEAST_FOR_RESPONSE).unwrap_or(deadline));
        respond(&report)
    }

    fn time_left(&self, deadline_millis: u64) -> Duration {
        time_left(deadline_millis, self.clock().now()).unwrap_or_else(|| {
            self.once(|| {
                tracing::warn!(
                    deadlineMs = deadline_millis,
                    "the Runtime API names no deadline that an invocation can have: each invocation gets 15 minutes"
                );
            });
            MAX_RUN
        })
    }
}

/// The longest run of a function that an SQS queue invokes, which one on Lambda Managed Instances
/// has. Source: Lambda quotas.
const LONGEST_RUN: Duration = Duration::from_secs(5_400);
/// The most by which the clocks of the Runtime API and of this process may differ.
const MAX_SKEW: Duration = Duration::from_secs(60);

/// The time left until the deadline of the Runtime API. `None` if an invocation that just began
/// cannot have it: emulators send 0, or ten minutes after 1970. Only a process that was stopped in
/// between finds its deadline in the past.
fn time_left(deadline_millis: u64, now: SystemTime) -> Option<Duration> {
    let deadline = from_epoch_millis(deadline_millis);
    match deadline.duration_since(now) {
        Ok(left) => (left <= LONGEST_RUN + MAX_SKEW).then_some(left.min(LONGEST_RUN)),
        Err(past) => (past.duration() <= LONGEST_RUN).then_some(Duration::ZERO),
    }
}

/// The batch response for a report.
pub fn respond(report: &Report) -> Result<SqsBatchResponse, InvocationError> {
    let ids = report.failed_ids().ok_or(InvocationError::Unreportable)?.into_iter();
    let failure = |id: &str| BatchItemFailure { item_identifier: id.to_owned() };
    Ok(SqsBatchResponse { batch_item_failures: ids.map(failure).collect() })
}

impl<H, Q, T> Service<LambdaEvent<SqsEvent>> for BatchProcessor<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    type Response = SqsBatchResponse;
    type Error = InvocationError;
    type Future = Pin<Box<dyn Future<Output = Result<SqsBatchResponse, InvocationError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), InvocationError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, event: LambdaEvent<SqsEvent>) -> Self::Future {
        let processor = self.clone();
        Box::pin(async move { processor.invoke(event).await })
    }
}
