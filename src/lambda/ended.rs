//! Why the loop of `lambda_runtime` ended. It reads the headers of an invocation before Requeue sees
//! anything of it, and ends on one that it cannot read. Lambda sends them all; an emulator may not.

use std::any::Any;
use std::num::ParseIntError;

use crate::config::Error;

/// The header that an emulator is most likely to leave out.
const DEADLINE: &str = "lambda-runtime-deadline-ms";

/// The loop panicked. Only its own words are shown: those of a layer may be of a message.
pub(super) fn by_panic(payload: &(dyn Any + Send)) -> Error {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    match text.and_then(|text| text.strip_prefix("missing ")?.strip_suffix(" header")) {
        Some(header) if header.starts_with("lambda-runtime-") => {
            unreadable(&format!("without the header {header}"))
        }
        _ => other("the Lambda loop panicked"),
    }
}

/// The loop returned an error.
pub(super) fn by_error(error: lambda_runtime::Error) -> Error {
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
