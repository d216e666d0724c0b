//! Lambda's side: an SQS event becomes records, a report becomes a batch response. Only this module
//! knows Lambda.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use lambda_runtime::{Diagnostic, LambdaEvent};
use tokio::runtime::{Builder, Handle};
use tokio::time::Instant;
use tower::layer::util::Identity;
use tower::{Layer, Service};

use crate::clock::from_epoch_millis;
use crate::config::{self, Error, InvalidConfig};
use crate::delivery::MAX_COPIES_IN_ROW;
use crate::disposition::Strategy;
use crate::handler::{BulkHandler, Handler, bulk};
use crate::message::Body;
use crate::processor::BatchProcessor;
use crate::queue::{Queue, SqsQueue};
use crate::report::Report;
use crate::settings::{Mode, NO_COPIES, NO_TABLE, RecursiveLoop, Settings};

mod event;
mod fields;
mod lenient;
mod logging;
mod origin;
mod response;
mod spare;

use event::WithTexts;
use response::{ended_by_error, ended_by_panic};
use spare::Spare;

pub use event::SqsEvent;
pub use logging::{init_logging, init_logging_to, log_panics_by_place, may_be_logged};
pub use response::{BatchItemFailure, InvocationError, SqsBatchResponse};

/// Runs a Lambda function that hands each SQS message to `handler`. Its `main` needs nothing else.
///
/// Settings come from the environment, as [`Settings::from_env`] reads them. Handlers run on the
/// tokio runtime from which this is called, or on a new one with two threads if that has fewer. A
/// separate thread talks to Lambda and SQS, so no handler can delay the response, not even one that
/// blocks.
///
/// Log lines go to the standard output by Lambda's logging controls. If no `tracing` subscriber is
/// installed yet, this function installs one, as [`init_logging`] does. A subscriber of your own
/// needs the filter [`may_be_logged`] and the hook [`log_panics_by_place`].
///
/// ```no_run
/// # use requeue::{Failure, Message};
/// async fn charge(message: Message) -> Result<(), Failure> { Ok(()) }
///
/// #[tokio::main]
/// async fn main() -> Result<(), requeue::Error> {
///     requeue::run(charge).await
/// }
/// ```
///
/// Lambda ends an execution environment without a signal, unless an extension is registered in it.
/// With an extension, the process gets SIGTERM, and a moment to flush and close. For that,
/// `lambda_runtime` has `spawn_graceful_shutdown_handler`, by its feature `graceful-shutdown`. Call
/// it before this function, as the example `opentelemetry` does. The signal comes between
/// invocations, so no message is being handled.
///
/// # Errors
///
/// If the settings are invalid, with every problem in one message, or if the Runtime API cannot be
/// reached.
pub async fn run<H, T>(handler: H) -> Result<(), Error>
where
    H: Handler<T>,
    T: Body,
{
    let settings = Settings::from_env().inspect_err(|error| log_start_error(error))?;
    if config::is_in_lambda() {
        init_logging(tracing::Level::INFO);
        warn_of_target_settings();
    }
    run_with(handler, settings).await
}

/// As [`run`], for a handler of several messages in one call.
///
/// ```no_run
/// # use requeue::{Bulk, Failure, Message};
/// async fn index(messages: Vec<Message>) -> Bulk<Failure> {
///     // …
///     Bulk::Done
/// }
///
/// #[tokio::main]
/// async fn main() -> Result<(), requeue::Error> {
///     requeue::run_bulk(index).await
/// }
/// ```
pub async fn run_bulk<B, T>(handler: B) -> Result<(), Error>
where
    B: BulkHandler<T>,
    T: Body,
{
    run(bulk(handler)).await
}

/// As [`init_logging`], but only in Lambda. Public for `requeue-lambda` alone.
#[doc(hidden)]
pub fn init_logging_in_lambda() {
    if config::is_in_lambda() {
        init_logging(tracing::Level::INFO);
    }
}

/// Logs an error for which the function ends before it takes an event. The text that a program
/// prints at its end is plain, so Lambda takes it for INFO and drops it at WARN. Public for
/// `requeue-lambda` alone.
#[doc(hidden)]
pub fn log_start_error(error: &dyn fmt::Display) {
    init_logging_in_lambda();
    tracing::error!(%error, "the function cannot start");
}

/// As [`run`], with settings that have been read already.
pub async fn run_with<H, T>(handler: H, settings: Settings) -> Result<(), Error>
where
    H: Handler<T>,
    T: Body,
{
    run_layered(handler, settings, Identity::new()).await
}

/// As [`run_with`], with a layer of your own around the [`BatchProcessor`]. It sees each invocation
/// with its context, and the response; a `tower::ServiceBuilder` is a layer too.
///
/// The layer runs on the thread that talks to Lambda, so it must not block.
///
/// ```no_run
/// use requeue::{Failure, Message, Settings};
/// use tower::ServiceBuilder;
///
/// async fn charge(message: Message) -> Result<(), Failure> { Ok(()) }
///
/// #[tokio::main]
/// async fn main() -> Result<(), requeue::Error> {
///     let layers = ServiceBuilder::new().map_response(|response: requeue::SqsBatchResponse| {
///         println!("{} messages stay in the queue", response.batch_item_failures.len());
///         response
///     });
///     requeue::run_layered(charge, Settings::from_env()?, layers).await
/// }
/// ```
pub async fn run_layered<H, T, L>(handler: H, settings: Settings, layer: L) -> Result<(), Error>
where
    H: Handler<T>,
    T: Body,
    L: Layer<BatchProcessor<H, SqsQueue, T>> + Send + 'static,
    L::Service:
        Service<LambdaEvent<SqsEvent>, Response = SqsBatchResponse> + Clone + Send + 'static,
    <L::Service as Service<LambdaEvent<SqsEvent>>>::Future: Send + 'static,
    <L::Service as Service<LambdaEvent<SqsEvent>>>::Error: Into<Diagnostic> + fmt::Debug,
{
    if !config::is_in_lambda() {
        return Err(Error::from(std::io::Error::other(NOT_IN_LAMBDA)));
    }
    init_logging(tracing::Level::INFO);
    if settings.lacks_table() {
        return Err(InvalidConfig::of(NO_TABLE).into());
    }
    if settings.lacks_copies() {
        return Err(InvalidConfig::of(NO_COPIES).into());
    }
    warn_of_loop_detection(&settings);
    warn_of_missing_reasons(&settings);
    let spare = Spare::if_needed()?;
    let handlers = spare.as_ref().map_or_else(Handle::current, Spare::handle);
    let needs_event = handler.needs_event();
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("requeue".to_owned()).spawn(move || {
        let served =
            Builder::new_current_thread().enable_all().build().map_err(Error::from).and_then(
                |runtime| {
                    let serving = async move {
                        let queue = SqsQueue::from_env();
                        let settings = Settings { handlers: Some(handlers), ..settings };
                        let processor = BatchProcessor::new(handler, queue, settings);
                        let service = layer.layer(processor);
                        let served = if needs_event {
                            lambda_runtime::run_concurrent(WithTexts(service)).await
                        } else {
                            lambda_runtime::run_concurrent(service).await
                        };
                        served.map_err(ended_by_error)
                    };
                    let served = runtime.block_on(AssertUnwindSafe(serving).catch_unwind());
                    served.unwrap_or_else(|payload| Err(ended_by_panic(&*payload)))
                },
            );
        // The receiver is gone only if the caller is being torn down.
        let _ = ended.send(served);
    })?;
    end.await.unwrap_or_else(|_| Err(ended_by_panic(&"the thread ended")))
}

/// Functions often share their variables, so these settings are no reason to refuse the start. Only
/// names are logged: a value may be a secret.
fn warn_of_target_settings() {
    let variables = config::target_variables();
    if !variables.is_empty() {
        tracing::warn!(
            variables = variables.join(", "),
            "these settings have no effect: they are for delivery to a target, and this function has a handler of its own. Remove them, \
             and set scopes by Handler::scope"
        );
    }
}

const NOT_IN_LAMBDA: &str = "AWS_LAMBDA_RUNTIME_API is not set: Lambda starts this program; to try it, \
                             run `requeue serve --function PATH` or `cargo lambda watch`. Delivery to a URL as by `requeue-lambda` can also be tried by \
                             `requeue invoke EVENT.json`";

/// The least time for the response. It takes a call to the Runtime API, which is on the same
/// machine.
const LEAST_FOR_RESPONSE: Duration = Duration::from_millis(50);

fn warn_of_loop_detection(settings: &Settings) {
    let max_retries =
        settings.policies().map(|policy| policy.max_retries).max().unwrap_or_default();
    let copies = settings.strategy == Strategy::Copy && max_retries > MAX_COPIES_IN_ROW;
    if settings.recursive_loop == RecursiveLoop::Terminate && copies {
        tracing::warn!(
            maxRetries = max_retries,
            "Lambda takes copies for a runaway loop and stops a message after about 16 of them, so after 10 copies it waits by its \
             visibility timeout and gets only maxReceiveCount receives: set the function's property RecursiveLoop and \
             REQUEUE_RECURSIVE_LOOP to Allow, or maxRetries to 10 at most"
        );
    }
}

/// Without a setting the function sends nothing for which its role may lack the permission. Somebody
/// who names the mode has chosen it.
fn warn_of_missing_reasons(settings: &Settings) {
    if settings.dead_letter.is_none() && settings.mode == Mode::Requeue {
        tracing::warn!(
            "dead letters will not say why: REQUEUE_DEAD_LETTER is not set, so SQS moves each message itself, after maxReceiveCount \
             receives. Set it to annotate (on a FIFO queue direct), or to redrive to keep this"
        );
    }
}

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
            USUAL_LONGEST_RUN
        })
    }
}

/// The longest run of a function that an SQS queue invokes, which one on Lambda Managed Instances
/// has. Source: Lambda quotas.
const LONGEST_RUN: Duration = Duration::from_secs(5_400);
/// The longest run of any other function. Source: Lambda quotas.
const USUAL_LONGEST_RUN: Duration = Duration::from_secs(900);
/// The most by which the clocks of the Runtime API and of this process may differ.
const MAX_SKEW: Duration = Duration::from_secs(60);

/// The time left until the deadline of the Runtime API. `None` if an invocation that just began
/// cannot have that deadline: `cargo lambda watch` sends the same ten minutes after 1970 to every
/// invocation, and other emulators send 0.
///
/// An invocation begins before its deadline. Only a process that was stopped in between finds its
/// deadline in the past: by a debugger, or by a laptop that slept. Its invocation is over.
fn time_left(deadline_millis: u64, now: SystemTime) -> Option<Duration> {
    let deadline = from_epoch_millis(deadline_millis);
    match deadline.duration_since(now) {
        Ok(left) => (left <= LONGEST_RUN + MAX_SKEW).then_some(left.min(LONGEST_RUN)),
        Err(past) => (past.duration() <= LONGEST_RUN).then_some(Duration::ZERO),
    }
}

/// The batch response for a report.
pub fn respond(report: &Report) -> Result<SqsBatchResponse, InvocationError> {
    Ok(SqsBatchResponse::of(report.failed_ids()?))
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

#[cfg(test)]
mod tests;
