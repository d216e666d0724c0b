//! Whether the service may still work on a request that failed: the request was sent, and its end
//! is unknown. A retry would then do the same work in parallel.
//!
//! If an error is ambiguous, the request is in doubt: a needless wait does less harm.

use std::error::Error;

use aws_smithy_types::error::ErrorMetadata;

use super::chain;
use super::exception::Exception;
use super::text::Words;
use super::{code, io, status};

/// Statuses of a gateway that lost the service or stopped waiting for it, and of a server that
/// dropped a request on which another part of it may work. 520 to 524 are Cloudflare's.
const STATUSES: [u16; 9] = [408, 499, 502, 504, 520, 522, 524, 598, 599];
/// `CANCELLED`, `DEADLINE_EXCEEDED` and `UNAVAILABLE`, which a client also reports for a connection
/// that it lost.
const GRPC: [i32; 3] = [1, 4, 14];
/// Parts of codes: `RequestTimeout`, `Sandbox.Timedout`, `TransactionInProgressException`,
/// `idempotency_key_in_use`.
const CODES: [&str; 5] = ["timeout", "timedout", "inprogress", "keyinuse", "idempotencyconflict"];
/// Words of a connection that had been open, in addition to [`Words::say_lost`].
const LOST: &str = "\
    deadlineexceeded|deadline expired|connection lost|closed connection|\
    closed the connection unexpectedly|unexpected eof|stream error|connection error";
/// Without a connection, no request was sent.
const NOT_CONNECTED: &str = "\
    client error connect|connect error|error trying to connect|error connecting|\
    failed to connect|could not connect|unable to connect|connect timeout|connect timed out|\
    connecttimeout|connection refused|dns error|failed to lookup address information|\
    pool timed out";

pub(super) fn of_status(status: u16) -> bool {
    STATUSES.contains(&status)
}

pub(super) fn of_grpc(code: i32) -> bool {
    GRPC.contains(&code)
}

pub(super) fn of_code(code: &str) -> bool {
    let letters = status::fold(code::bare(code));
    CODES.iter().any(|part| letters.contains(part))
}

pub(super) fn of_error(error: &(dyn Error + 'static)) -> bool {
    let words = Words::of_errors(chain(error));
    let by_type = |level: &(dyn Error + 'static)| {
        io::is_in_doubt(level)
            || level.downcast_ref().map(Exception::name).is_some_and(of_code)
            || level.downcast_ref().and_then(ErrorMetadata::code).is_some_and(of_code)
    };
    !words.hold_any(NOT_CONNECTED)
        && (chain(error).any(by_type)
            || words.hold_any(LOST)
            || words.say_lost()
            || words.status_number().is_some_and(of_status))
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};
    use std::time::{Duration, SystemTime};

    use aws_smithy_runtime_api::client::result::{ConnectorError, SdkError};
    use futures_util::FutureExt;

    use super::*;
    use crate::classify::{GrpcStatus, Response, Rules};
    use crate::{Failure, ResultExt};

    type Sdk = SdkError<ErrorMetadata, ()>;

    fn code(code: &str) -> ErrorMetadata {
        ErrorMetadata::builder().code(code).build()
    }

    #[test]
    fn a_status_of_a_service_that_no_longer_waits_is_in_doubt_and_its_own_refusal_is_not() {
        for (status, body, is_in_doubt) in [
            (504, "", true),
            (502, "", true),
            (408, "", true),
            (499, "", true),
            (524, "", true),
            (409, r#"{"error":{"code":"idempotency_key_in_use"}}"#, true),
            (400, r#"{"__type":"TransactionInProgressException"}"#, true),
            (422, r#"{"details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}]}"#, true),
            (409, "", false),
            (503, "", false),
            (500, "", false),
            (429, "", false),
            (400, r#"{"code":"timeliness"}"#, false),
        ] {
            let response = Response { status, headers: &[], body: body.as_bytes() };
            let failure = || Failure::from_response(&response, SystemTime::UNIX_EPOCH);
            assert_eq!(failure().is_in_doubt(), is_in_doubt, "{status} {body}");
            let rule =
                format!(r#"{{"rules": [{{"match": {{"status": {status}}}, "class": "quota"}}]}}"#);
            let rules: Rules = rule.parse().expect("a rule");
            let by_rule = rules.scope(async { failure() }).now_or_never().expect("it is ready");
            assert_eq!(by_rule.is_in_doubt(), is_in_doubt, "{status} {body} by a rule");
        }
    }

    #[test]
    fn an_error_is_in_doubt_if_the_request_may_have_been_handed_over() {
        let io = |kind: ErrorKind| Box::new(io::Error::from(kind)) as Box<dyn Error + Send + Sync>;
        let timeout = |text: &str| Sdk::dispatch_failure(ConnectorError::timeout(text.into()));
        for (error, is_in_doubt) in [
            (io(ErrorKind::TimedOut), true),
            (io(ErrorKind::WouldBlock), true),
            (io(ErrorKind::ConnectionReset), true),
            (io(ErrorKind::UnexpectedEof), true),
            (io(ErrorKind::ConnectionRefused), false),
            (io(ErrorKind::NotFound), false),
            (timeout("HTTP read timeout occurred after 1s").into(), true),
            (timeout("HTTP connect timeout occurred after 3.1s").into(), false),
            (Sdk::timeout_error("operation timed out").into(), true),
            (Sdk::service_error(code("RequestTimeout"), ()).into(), true),
            (Sdk::service_error(code("Throttling"), ()).into(), false),
            ("connection closed before message completed".into(), true),
            ("HTTP status server error (504 Gateway Timeout) for url (http://x)".into(), true),
            ("HTTP status server error (502 Bad Gateway) for url (http://x)".into(), true),
            ("HTTP status server error (503 Service Unavailable)".into(), false),
            ("client error (Connect): operation timed out".into(), false),
            ("the order is timeless".into(), false),
        ] {
            let text = format!("{error:?}");
            let failure = Err::<(), _>(error).classified().expect_err("an error was given");
            assert_eq!(failure.is_in_doubt(), is_in_doubt, "{text}");
        }
        for (name, is_in_doubt) in [
            ("DEADLINE_EXCEEDED", true),
            ("UNAVAILABLE", true),
            ("CANCELLED", true),
            ("RESOURCE_EXHAUSTED", false),
            ("INTERNAL", false),
        ] {
            let status = GrpcStatus::named(name).expect("a code");
            assert_eq!(Failure::from_grpc(status).is_in_doubt(), is_in_doubt, "{name}");
        }
        for (name, is_in_doubt) in [("RequestTimeout", true), ("SlowDown", false)] {
            assert_eq!(Failure::aws(&code(name)).is_in_doubt(), is_in_doubt, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_timer_is_in_doubt() {
        let never = std::future::pending::<()>();
        let elapsed = tokio::time::timeout(Duration::from_secs(1), never).await;
        assert!(elapsed.classified().expect_err("it never ends").is_in_doubt());
    }
}
