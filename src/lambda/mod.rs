//! Lambda's side: an SQS event becomes records, a report becomes a batch response. The only room
//! that knows Lambda.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use lambda_runtime::{Diagnostic, LambdaEvent};
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::time::Instant;
use tower::layer::util::Identity;
use tower::{Layer, Service};

use crate::clock::from_epoch_millis;
use crate::config::{self, InvalidConfig};
use crate::delivery::MAX_COPIES_IN_ROW;
use crate::disposition::Strategy;
use crate::handler::Handler;
use crate::message::Body;
use crate::processor::BatchProcessor;
use crate::queue::{Queue, SqsQueue};
use crate::report::{Report, Unreportable};
use crate::settings::{RecursiveLoop, Settings};

mod event;
mod fields;
mod lenient;
mod logging;
mod response;

pub use event::SqsEvent;
pub use logging::{init_logging, init_logging_to, log_panics_by_place, may_be_logged};
pub use response::{BatchItemFailure, SqsBatchResponse};

/// Runs a Lambda function that hands each SQS message to `handler`: all of its `main`.
///
/// Settings come from the environment, as [`Settings::from_env`] reads them. Handlers run on the tokio
/// runtime from which this is called, or on one of two threads if that one has fewer. The
/// conversation with Lambda and SQS has a thread to itself, so that no handler, not even one that
/// blocks, can keep the invocation from its response.
///
/// Log lines go to the standard output as Lambda's logging controls say. A subscriber of your own
/// needs the filter [`may_be_logged`] and the hook [`log_panics_by_place`]. If no `tracing` subscriber is installed yet, one is, and a
/// panic hook with it that logs where a panic happened and not its text, which may quote a message.
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
/// Lambda ends an execution environment without a word, unless an extension is registered in it:
/// then the process gets SIGTERM, and a moment to flush and close. `lambda_runtime` has
/// `spawn_graceful_shutdown_handler` for that, by its feature `graceful-shutdown`, to be called
/// before this function; the example `opentelemetry` does so. Lambda does it between invocations,
/// so no message is in work.
///
/// # Errors
///
/// When the settings are invalid, with every problem in one message; when the Runtime API cannot be
/// reached.
pub async fn run<H, T>(handler: H) -> Result<(), Error>
where
    H: Handler<T>,
    T: Body,
{
    let settings = Settings::from_env()?;
    if config::is_in_lambda() {
        init_logging(tracing::Level::INFO);
        warn_of_http_settings();
    }
    run_with(handler, settings).await
}

/// As [`run`], with settings that have been read already.
///
/// # Errors
///
/// When the Runtime API cannot be reached.
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
/// The layer runs on the thread that has the conversation with Lambda, so it must not block.
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
///
/// # Errors
///
/// When the Runtime API cannot be reached.
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
    warn_of_loop_detection(&settings);
    let spare = (workers() < 2).then(Spare::new).transpose()?;
    let handlers = spare.as_ref().map_or_else(Handle::current, Spare::handle);
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("requeue".to_owned()).spawn(move || {
        let served =
            Builder::new_current_thread().enable_all().build().map_err(Error::from).and_then(
                |runtime| {
                    runtime.block_on(async move {
                        let queue = SqsQueue::from_env();
                        let settings = Settings { handlers: Some(handlers), ..settings };
                        let processor = BatchProcessor::new(handler, queue, settings);
                        lambda_runtime::run_concurrent(layer.layer(processor)).await.map_err(Error)
                    })
                },
            );
        // Nobody waits for it only when the caller is being torn down.
        let _ = ended.send(served);
    })?;
    end.await
        .unwrap_or_else(|_| Err(Error::from(std::io::Error::other("the Lambda loop panicked"))))
}

/// Functions often share their variables, so they are no reason to refuse the start. Names only: a
/// value may be a secret.
fn warn_of_http_settings() {
    let variables = config::http_variables();
    if !variables.is_empty() {
        tracing::warn!(
            variables = variables.join(", "),
            "these settings have no effect: they are for HTTP delivery, and this function has its own handler, which says by \
             Handler::scope which messages a pause or an open circuit defers together; remove them"
        );
    }
}

const NOT_IN_LAMBDA: &str = "AWS_LAMBDA_RUNTIME_API is not set: Lambda starts this program; to try it, \
                             run `requeue serve --function PATH` or `cargo lambda watch`. Delivery to a URL as by `requeue-lambda` can also be tried by \
                             `requeue invoke EVENT.json`";

/// The response takes a call to the Runtime API, which is in the same machine.
const LEAST_FOR_RESPONSE: Duration = Duration::from_millis(50);

fn warn_of_loop_detection(settings: &Settings) {
    let policies = std::iter::once(&settings.policy).chain(settings.queue_policies.values());
    let max_retries = policies.map(|policy| policy.max_retries).max().unwrap_or_default();
    let copies = settings.strategy == Strategy::Copy && max_retries > MAX_COPIES_IN_ROW;
    if settings.recursive_loop == RecursiveLoop::Terminate && copies {
        tracing::warn!(
            maxRetries = max_retries,
            "Lambda takes copies for a runaway loop and cuts a message off after about 16 of them, so after 10 it waits by its \
             visibility and gets only the queue's maxReceiveCount: set the function's property RecursiveLoop and \
             REQUEUE_RECURSIVE_LOOP to Allow, or maxRetries to 10 at most"
        );
    }
}

fn workers() -> usize {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => 1,
        _ => Handle::current().metrics().num_workers(),
    }
}

/// A runtime for handlers whose caller's has too few threads. It ends without waiting: a handler
/// may block for ever, and a runtime must not be waited for within another.
struct Spare(Option<Runtime>);

impl Spare {
    fn new() -> std::io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("handler")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    fn handle(&self) -> Handle {
        self.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
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
    /// [`InvocationError::NoRecords`] when the event is none of SQS;
    /// [`InvocationError::Unreportable`] when a record without an id must stay in the queue.
    pub async fn invoke(
        &self,
        event: LambdaEvent<SqsEvent>,
    ) -> Result<SqsBatchResponse, InvocationError> {
        let records = event.payload.records.ok_or(InvocationError::NoRecords)?;
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
            LONGEST_RUN
        })
    }
}

/// No function runs longer. Source: Lambda quotas.
const LONGEST_RUN: Duration = Duration::from_secs(900);
/// The clocks of the Runtime API and of this process may differ by so much.
const MAX_SKEW: Duration = Duration::from_secs(60);

/// The time left until the deadline of the Runtime API; `None` if no invocation that just began can
/// have it. `cargo lambda watch` sends the same ten minutes after 1970 to every invocation, and
/// other emulators send 0.
///
/// An invocation begins before its deadline. Only a process that was stopped in between, by a
/// debugger or a laptop that slept, finds its deadline in the past, and its invocation is over.
fn time_left(deadline_millis: u64, now: SystemTime) -> Option<Duration> {
    let deadline = from_epoch_millis(deadline_millis);
    match deadline.duration_since(now) {
        Ok(left) => (left <= LONGEST_RUN + MAX_SKEW).then_some(left.min(LONGEST_RUN)),
        Err(past) => (past.duration() <= LONGEST_RUN).then_some(Duration::ZERO),
    }
}

/// The batch response that says what the report says.
///
/// # Errors
///
/// [`InvocationError::Unreportable`].
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

/// Why an invocation fails as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvocationError {
    /// The event has no `Records`.
    #[error(
        "the event has no list `Records`: this function is to be invoked by an SQS event source \
         mapping, or with an event of that shape"
    )]
    NoRecords,
    /// A record without a message id must stay in the queue, and no response can say so.
    #[error("{Unreportable}")]
    Unreportable,
}

impl From<Unreportable> for InvocationError {
    fn from(_: Unreportable) -> Self {
        Self::Unreportable
    }
}

impl From<InvocationError> for Diagnostic {
    fn from(error: InvocationError) -> Self {
        let error_type = match error {
            InvocationError::NoRecords => "Requeue.NoRecords",
            InvocationError::Unreportable => "Requeue.Unreportable",
        };
        Self { error_type: error_type.to_owned(), error_message: error.to_string() }
    }
}

/// Why the function cannot run. Prints the same, readable text as `Display` and as `Debug`, because
/// that is what a `main` that returns it shows.
#[derive(thiserror::Error)]
#[error("{0}")]
pub struct Error(lambda_runtime::Error);

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<InvalidConfig> for Error {
    fn from(error: InvalidConfig) -> Self {
        Self(error.into())
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self(error.into())
    }
}

#[cfg(test)]
mod tests;
