//! The error of a function that threw, or of Lambda about it.

use std::iter::repeat_n;

use requeue::classify::{Exception, presentable};
use requeue::{Bulk, Evidence, Failure, FailureClass};
use serde_json::Value;

use super::{object, unknown, whole};

/// The longest error that is read. .NET's runtime writes no longer one.
const MAX_ERROR: usize = 256 * 1024;
const MAX_CAUSES: usize = 8;

/// Errors of Lambda and of its runtimes before a record is handled: the function's code, its setup
/// or an extension is broken. All records failed, and no message is the cause. Sources: the runtime
/// interface clients for Python, Node, Java and Ruby; the runtime interface emulator.
const NOT_STARTED: &str = "Runtime.ImportModuleError Runtime.HandlerNotFound Runtime.UserCodeSyntaxError \
     Runtime.MalformedHandlerName Runtime.MalformedStreamingHandler Runtime.BuiltInModuleConflict \
     Runtime.BadFunctionCode Runtime.NoSuchHandler Runtime.InvalidEntrypoint \
     Runtime.InvalidWorkingDir Runtime.InvalidTaskConfig Runtime.BeforeSnapshotError \
     Runtime.BeforeCheckpointError Runtime.AfterRestoreError Runtime.LambdaContextUnmarshalError \
     Runtime.UnmarshalError Runtime.InitError Runtime.CallbackHandlerDeprecated \
     Runtime.NativeClientLoading Extension.InitError Extension.LaunchError \
     Sandbox.InitError";
/// Beginnings of errors that Lambda itself reports.
const OF_LAMBDA: [&str; 4] = ["Runtime.", "Extension.", "Sandbox.", "Function."];
/// An error of the function's code, in the message.
const UNCAUGHT: [&str; 3] =
    ["Runtime.UnhandledPromiseRejection", "Runtime.UserException", "Runtime.UncaughtException"];
/// Types and messages of Powertools for Python, TypeScript and .NET if every record failed. A producer
/// may choose the message alone, in an error that repeats a text of the record.
const ALL_FAILED: [(&str, &str); 3] = [
    ("BatchProcessingError", "All records failed processing"),
    ("FullBatchFailureError", "All records failed processing"),
    ("BatchProcessingException", "Entire batch of '"),
];

/// Before the words of Powertools for Python about the records after the first failure: its FIFO
/// processor does not handle them, and lists them without a traceback.
const STOPPED: &str =
    "aws_lambda_powertools.utilities.batch.exceptions.SQSFifoCircuitBreakerError: ";

pub(super) fn read(payload: &[u8], ids: &[&str]) -> Bulk<Failure> {
    let small = Some(payload).filter(|payload| payload.len() <= MAX_ERROR);
    let error = small.map(object).unwrap_or_default();
    let text = |name: &str| error[name].as_str().unwrap_or_default();
    let (error_type, message) = (text("errorType"), text("errorMessage"));
    // Ruby has `Init<LoadError>`.
    let is_init = error_type.starts_with("Init<");
    if is_init || NOT_STARTED.split(' ').any(|name| name == error_type) {
        let name = presentable(error_type).unwrap_or("Init");
        let detail = format_args!("the function did not start: {name}");
        let failure = Failure::new(FailureClass::Temporary, Evidence::Typed, detail).service_down();
        return Bulk::Each(vec![Err(failure); ids.len()]);
    }
    if let Some(failure) = of_lambda(error_type, message) {
        return whole(failure, ids);
    }
    let says = |(name, words): &(&str, &str)| error_type == *name && message.starts_with(words);
    if ALL_FAILED.iter().any(says) {
        return all_failed(&error, message, ids);
    }
    whole(Failure::from_exception(&exception(&error, MAX_CAUSES)), ids)
}

/// A timeout, an exit, no memory, or a response that Lambda did not accept.
fn of_lambda(error_type: &str, message: &str) -> Option<Failure> {
    let is_typed = OF_LAMBDA.iter().any(|beginning| error_type.starts_with(beginning));
    if UNCAUGHT.contains(&error_type) || !(is_typed || error_type.is_empty()) {
        return None;
    }
    let failure = |evidence, detail: &str| Failure::new(FailureClass::Temporary, evidence, detail);
    // Lambda's older errors have no type.
    if error_type.starts_with("Sandbox.Time") || message.contains("Task timed out after ") {
        return Some(failure(Evidence::TimeOut, "the function timed out"));
    }
    if error_type == "Runtime.OutOfMemory"
        || message.contains("Runtime exited with error: signal: killed")
    {
        return Some(failure(Evidence::Panic, "the function ran out of memory"));
    }
    let is_exit = ["Process exited before completing request", "Runtime exited "];
    if is_typed || is_exit.iter().any(|words| message.contains(words)) {
        let name = presentable(error_type).unwrap_or("Runtime.ExitError");
        return Some(failure(Evidence::Panic, &format!("the function broke off: {name}")));
    }
    None
}

/// The error with its causes: .NET's `cause`, or the first of its `causes`.
fn exception(error: &Value, depth: usize) -> Exception {
    let text = |name: &str| error[name].as_str().unwrap_or_default();
    let error_type = Some(text("errorType")).filter(|name| !UNCAUGHT.contains(name));
    let exception = Exception::new(error_type.unwrap_or_default(), text("errorMessage"));
    let cause = [&error["cause"], &error["causes"][0]].into_iter().find(|cause| cause.is_object());
    match cause {
        Some(cause) if depth > 0 => exception.caused_by(self::exception(cause, depth - 1)),
        Some(_) | None => exception,
    }
}

fn all_failed(error: &Value, message: &str, ids: &[&str]) -> Bulk<Failure> {
    let unknown = || unknown("all records failed");
    // .NET: `Failed processing record: '…'. See inner exception for details.`
    if let Some(causes) = error["causes"].as_array() {
        let of = |id: &&str| {
            let quoted = format!("'{id}'");
            let is_own = |cause: &&Value| {
                cause["errorMessage"].as_str().is_some_and(|message| message.contains(&quoted))
            };
            let cause = causes.iter().find(is_own);
            cause.map_or_else(unknown, |cause| {
                Failure::from_exception(&exception(cause, MAX_CAUSES))
            })
        };
        return ids.iter().map(|id| Err(of(id))).collect();
    }
    let stopped = message.split_once(STOPPED).map(|(first, _)| first);
    let causes = tracebacks(stopped.unwrap_or(message));
    let mut causes: Vec<Failure> = causes.iter().map(Failure::from_exception).collect();
    if stopped.is_some() && causes.len() == 1 {
        let others = ids.len().saturating_sub(1);
        causes.extend(repeat_n(super::unknown("a previous record failed"), others));
        return causes.into_iter().map(Err).collect();
    }
    let Some(first) = causes.first().filter(|_| causes.len() == ids.len()) else {
        return Bulk::Each(vec![Err(unknown()); ids.len()]);
    };
    // Records that are handled concurrently fail in any order. A cause may then belong to another
    // record, which must not be dead-lettered for it.
    let are_alike = causes.iter().all(|cause| cause.class() == first.class());
    let is_certain = |cause: &Failure| are_alike || cause.class() != FailureClass::NonRetryable;
    causes
        .into_iter()
        .map(|cause| Err(if is_certain(&cause) { cause } else { unknown() }))
        .collect()
}

/// The exceptions that Python's tracebacks in a message end with, each with its cause.
fn tracebacks(message: &str) -> Vec<Exception> {
    const BEGINNING: &str = "Traceback (most recent call last):";
    const CHAINED: [&str; 2] = [
        "The above exception was the direct cause of the following exception:",
        "During handling of the above exception, another exception occurred:",
    ];
    let mut exceptions = Vec::new();
    let mut cause = None;
    for traceback in message.split(BEGINNING).skip(1) {
        // After the indented frames comes `type: message`, and further lines of the message.
        let lines = traceback.split_inclusive('\n');
        let frames = lines.take_while(|line| line.starts_with([' ', '\n', '\r']));
        let told = &traceback[frames.map(str::len).sum::<usize>()..];
        let end = CHAINED.iter().find_map(|words| told.find(words));
        let told = told[..end.unwrap_or(told.len())].trim_end();
        let (error_type, message) = told.split_once(": ").unwrap_or((told, ""));
        let exception = Exception::new(error_type, message);
        let exception = match cause.take() {
            Some(cause) => exception.caused_by(cause),
            None => exception,
        };
        if end.is_some() {
            cause = Some(exception);
        } else {
            exceptions.push(exception);
        }
    }
    exceptions
}
