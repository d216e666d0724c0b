//! The errors of an invocation, as Lambda answers them.
//!
//! Source of the types and the words: Lambda developer guide, "Troubleshoot invocation issues in
//! Lambda", and the responses of Lambda itself.

use std::process::ExitStatus;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use super::show;
use crate::endpoint::header;

const MAX_ERROR: usize = 400;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FunctionError {
    /// For the terminal.
    pub(crate) why: String,
    /// The error in JSON, as the caller of the function gets it.
    pub(crate) payload: Bytes,
    pub(super) has_ended: bool,
}

impl FunctionError {
    /// An error of the process, without one that the function reported.
    fn of_process(why: String, error_type: &str, message: &str) -> Self {
        Self { why, payload: payload(error_type, message), has_ended: true }
    }

    pub(super) fn timed_out(request_id: &str, limit: Duration) -> Self {
        let secs = limit.as_secs_f64();
        Self::of_process(
            format!("timed out after {secs} s and was killed"),
            "Sandbox.Timedout",
            &format!("RequestId: {request_id} Error: Task timed out after {secs:.2} seconds"),
        )
    }

    pub(super) fn exited(request_id: &str, why: String, status: ExitStatus) -> Self {
        let how = match status.code() {
            Some(0) => "Runtime exited without providing a reason".to_owned(),
            Some(code) => format!("Runtime exited with error: exit status {code}"),
            None => format!("Runtime exited with error: {status}"),
        };
        let message = format!("RequestId: {request_id} Error: {how}");
        Self::of_process(why, "Runtime.ExitError", &message)
    }

    /// The program never asked for an invocation.
    pub(super) fn silent(why: String) -> Self {
        let message = format!("Error: {why}");
        Self::of_process(why, "Runtime.InvalidEntrypoint", &message)
    }

    /// The error of a call without a process, with that of the start if there is one.
    pub(super) fn not_started(payload: Option<Bytes>) -> Self {
        let error = Self::silent("the function did not start".to_owned());
        Self { payload: payload.unwrap_or(error.payload), ..error }
    }

    pub(super) fn restarted() -> Self {
        let why = "function restarted without a response".to_owned();
        let message = format!("Error: {why}");
        Self { has_ended: false, ..Self::of_process(why, "Runtime.ExitError", &message) }
    }

    pub(super) fn reported(error: ReportedError) -> Self {
        let why = format!("function error: {}", error.words);
        Self { why, payload: error.payload, has_ended: false }
    }

    pub(super) fn reported_at_start(error: ReportedError) -> Self {
        let remedy = show::remedy(&error.error_type);
        let remedy = remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
        let why = format!("function failed at its start: {}{remedy}", error.words);
        Self { why, payload: error.payload, has_ended: true }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReportedError {
    error_type: String,
    words: String,
    payload: Bytes,
}

impl ReportedError {
    pub(super) fn read(headers: &HeaderMap, body: &Bytes) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct ErrorRequest {
            error_message: Option<String>,
            error_type: Option<String>,
        }
        let error: ErrorRequest = serde_json::from_slice(body).unwrap_or_default();
        let by_header = header(headers, "lambda-runtime-function-error-type").map(str::to_owned);
        let (error_type, message) = (error.error_type.or(by_header), error.error_message);
        let words: Vec<&str> =
            [&error_type, &message].into_iter().flatten().map(|text| &**text).collect();
        let words = if words.is_empty() {
            "no reason given".to_owned()
        } else {
            show::one_line(&words.join(": "), MAX_ERROR)
        };
        let error_type = error_type.unwrap_or_default();
        let is_json = serde_json::from_slice::<Value>(body).is_ok();
        let payload = if is_json {
            body.clone()
        } else {
            payload(&error_type, message.as_deref().unwrap_or_default())
        };
        Self { error_type, words, payload }
    }
}

fn payload(error_type: &str, message: &str) -> Bytes {
    json!({ "errorType": error_type, "errorMessage": message }).to_string().into()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn an_error_is_read_as_far_as_it_says_something() {
        let mut headers = HeaderMap::new();
        let read = |headers: &HeaderMap, body: &str| {
            ReportedError::read(headers, &Bytes::copy_from_slice(body.as_bytes()))
        };
        assert_eq!(read(&headers, "").words, "no reason given");
        assert_eq!(read(&headers, r#"{"errorMessage":"no disk"}"#).words, "no disk");
        headers
            .insert("lambda-runtime-function-error-type", HeaderValue::from_static("Runtime.Exit"));
        let by_header = read(&headers, "{");
        assert_eq!(by_header.words, "Runtime.Exit");
        assert_eq!(by_header.payload, r#"{"errorMessage":"","errorType":"Runtime.Exit"}"#);
        let body = r#"{"errorMessage":"no disk","errorType":"Io","stackTrace":[]}"#;
        let error = read(&headers, body);
        assert_eq!((&*error.words, &error.payload[..]), ("Io: no disk", body.as_bytes()));
        let body = r#"{"errorMessage":" no\ndisk ","errorType":"Io\r\n00:00:00 #1"}"#;
        assert_eq!(read(&headers, body).words, "Io 00:00:00 #1: no disk");
        let body = format!(r#"{{"errorMessage":"{}"}}"#, "x".repeat(1_000));
        headers.clear();
        assert_eq!(read(&headers, &body).words, "x".repeat(MAX_ERROR - 1) + "…");
    }

    #[test]
    fn an_error_at_the_start_names_its_remedy() {
        for (error_type, remedy) in [
            ("Runtime.ImportModuleError", "; start in the directory of the handler's file"),
            ("Runtime.HandlerNotFound", "; name the handler as FILE.FUNCTION"),
            ("ValueError", ""),
        ] {
            let body = json!({ "errorType": error_type, "errorMessage": "no" }).to_string();
            let error = ReportedError::read(&HeaderMap::new(), &body.clone().into());
            let error = FunctionError::reported_at_start(error);
            let why = format!("function failed at its start: {error_type}: no{remedy}");
            assert!(error.why.starts_with(&why), "{}", error.why);
            assert_eq!(error.payload, body);
        }
    }

    #[test]
    fn a_timeout_has_the_words_of_lambda() {
        let error = FunctionError::timed_out("id", Duration::from_secs(3));
        let payload: Value = serde_json::from_slice(&error.payload).expect("JSON");
        assert_eq!(payload["errorType"], "Sandbox.Timedout");
        assert_eq!(
            payload["errorMessage"],
            "RequestId: id Error: Task timed out after 3.00 seconds"
        );
        assert_eq!(error.why, "timed out after 3 s and was killed");
    }
}
