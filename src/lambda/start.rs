//! The start of a function: its settings, its threads, and the loop of `lambda_runtime` that invokes
//! the processor. It knows no event.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::num::ParseIntError;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use lambda_runtime::{LambdaEvent, service_fn};
use serde_json::value::RawValue;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

use super::logging::init_logging;
use super::{InvocationError, SqsBatchResponse, SqsEvent};
use crate::config::{self, Error, InvalidConfig};
use crate::delivery::MAX_COPIES_IN_ROW;
use crate::disposition::Strategy;
use crate::handler::{BulkHandler, Handler, bulk};
use crate::message::Body;
use crate::processor::BatchProcessor;
use crate::queue::SqsQueue;
use crate::settings::{Mode, NO_COPIES, NO_TABLE, RecursiveLoop, Settings};

/// Runs a Lambda function that passes each SQS message to `handler`. Its `main` needs nothing else.
///
/// Settings come from the environment, as [`Settings::from_env`] reads them. Handlers run on the
/// tokio runtime from which this is called, or on a new one with two threads if that has fewer. A
/// separate thread talks to Lambda and SQS, so no handler can delay the response, not even one that
/// blocks.
///
/// Log lines go to the standard output by Lambda's logging controls. If no `tracing` subscriber is
/// installed yet, this function installs one, as [`init_logging`] does. A subscriber of your own
/// needs the filter [`may_be_logged`](super::may_be_logged) and the hook
/// [`log_panics_by_place`](super::log_panics_by_place).
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
    tracing::error!(event = "cannot-start", %error, "the function cannot start");
}

/// As [`run`], with settings that have been read already.
pub async fn run_with<H, T>(handler: H, settings: Settings) -> Result<(), Error>
where
    H: Handler<T>,
    T: Body,
{
    check(&settings)?;
    let spare = Spare::if_needed()?;
    let handlers = spare.as_ref().map_or_else(Handle::current, Spare::handle);
    let settings = Settings { handlers: Some(handlers), ..settings };
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("requeue".to_owned()).spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::from);
        let served = runtime.and_then(|runtime| runtime.block_on(serve(handler, settings)));
        // The receiver is gone only if the caller is being torn down.
        let _ = ended.send(served);
    })?;
    end.await.unwrap_or_else(|_| Err(ended_by_panic(&"the thread ended")))
}

/// As [`run_with`], for a handler that never blocks. It runs on the thread that talks to Lambda, so an
/// invocation wakes no other thread. Public for `requeue-lambda` alone.
#[doc(hidden)]
pub async fn run_on_this_thread<H, T>(handler: H, settings: Settings) -> Result<(), Error>
where
    H: Handler<T>,
    T: Body,
{
    check(&settings)?;
    serve(handler, Settings { handlers: None, ..settings }).await
}

/// Refuses settings that cannot work, before the first invocation.
fn check(settings: &Settings) -> Result<(), Error> {
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
    warn_of_loop_detection(settings);
    warn_of_missing_reasons(settings);
    Ok(())
}

async fn serve<H: Handler<T>, T: Body>(handler: H, settings: Settings) -> Result<(), Error> {
    let serving = async {
        let needs_event = handler.needs_event();
        let processor = BatchProcessor::new(handler, SqsQueue::from_env(), settings);
        let served = if needs_event {
            let service = service_fn(move |event| with_texts(&processor, event));
            lambda_runtime::run_concurrent(service).await
        } else {
            lambda_runtime::run_concurrent(processor).await
        };
        served.map_err(ended_by_error)
    };
    let served = AssertUnwindSafe(serving).catch_unwind().await;
    served.unwrap_or_else(|payload| Err(ended_by_panic(&*payload)))
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

fn warn_of_loop_detection(settings: &Settings) {
    let max_retries =
        settings.policies().map(|policy| policy.max_retries).max().unwrap_or_default();
    let copies = settings.strategy == Strategy::Copy && max_retries > MAX_COPIES_IN_ROW;
    if settings.recursive_loop == RecursiveLoop::Terminate && copies {
        tracing::warn!(
            maxRetries = max_retries,
            "Lambda takes copies for a runaway loop and stops a message after about 16 of them, so after 10 copies it waits in \
             flight and gets only maxReceiveCount receives: set the function's property RecursiveLoop and \
             REQUEUE_RECURSIVE_LOOP to Allow, or maxRetries to 10 at most"
        );
    }
}

/// Warns if dead letters have no reason. The default sends nothing, since the role may lack the
/// permission. If the setting names the mode, its user has chosen it.
fn warn_of_missing_reasons(settings: &Settings) {
    if settings.dead_letter.is_none() && settings.mode == Mode::Requeue {
        tracing::warn!(
            "dead letters will not say why: REQUEUE_DEAD_LETTER is not set, so SQS moves each message itself, after maxReceiveCount \
             receives. Set it to annotate (on a FIFO queue direct), or to redrive to keep this"
        );
    }
}

/// Keeps the texts of the records, for a handler that passes records on.
fn with_texts<H: Handler<T>, T: Body>(
    processor: &BatchProcessor<H, SqsQueue, T>,
    event: LambdaEvent<Box<RawValue>>,
) -> impl Future<Output = Result<SqsBatchResponse, InvocationError>> + use<H, T> {
    let LambdaEvent { payload, context } = event;
    // The Runtime API's client has checked that it is JSON.
    let event = SqsEvent::with_texts(payload.get()).unwrap_or_default();
    let processor = processor.clone();
    async move { processor.invoke(LambdaEvent::new(event, context)).await }
}

/// A runtime for handlers, if the caller's has too few threads. It ends without waiting: a handler
/// may block for ever, and a runtime must not be waited for within another.
struct Spare(Option<Runtime>);

impl Spare {
    /// `None` if the runtime from which this is called has enough threads.
    fn if_needed() -> std::io::Result<Option<Self>> {
        let workers = match Handle::current().runtime_flavor() {
            RuntimeFlavor::CurrentThread => 1,
            _ => Handle::current().metrics().num_workers(),
        };
        (workers < 2).then(Self::new).transpose()
    }

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

/// The header that an emulator is most likely to leave out.
const DEADLINE: &str = "lambda-runtime-deadline-ms";

/// Why the loop of `lambda_runtime` panicked. It reads the headers of an invocation before Requeue
/// sees anything of it, and ends on one that it cannot read. Only its own words are shown.
fn ended_by_panic(payload: &(dyn Any + Send)) -> Error {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    match text.and_then(|text| text.strip_prefix("missing ")?.strip_suffix(" header")) {
        Some(header) if header.starts_with("lambda-runtime-") => {
            unreadable(&format!("without the header {header}"))
        }
        _ => other("the Lambda loop panicked"),
    }
}

fn ended_by_error(error: lambda_runtime::Error) -> Error {
    if error.is::<ParseIntError>() {
        unreadable(&format!("whose header {DEADLINE} is no whole number"))
    } else if error.is::<serde_json::Error>() {
        unreadable("whose client context or Cognito identity is not the JSON that Lambda sends")
    } else {
        Error::of(error)
    }
}

fn unreadable(what: &str) -> Error {
    other(&format!(
        "the Runtime API sent an invocation {what}: Lambda names it for each invocation; use an \
         emulator that does, such as `requeue serve --function`"
    ))
}

fn other(what: &str) -> Error {
    Error::from(std::io::Error::other(what.to_owned()))
}
