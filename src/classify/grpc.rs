//! A gRPC status as plain data: no gRPC library is needed to name the end of a call.

use std::time::Duration;

use super::doubt;
use super::rules::Facts;
use super::status::fold;
use crate::failure::{Evidence, Failure, FailureClass};

/// Code, name, class.
const CODES: [(i32, &str, FailureClass); 17] = {
    use FailureClass::{NonRetryable, RateLimit, Temporary};
    [
        (0, "OK", Temporary),
        (1, "CANCELLED", Temporary),
        (2, "UNKNOWN", Temporary),
        (3, "INVALID_ARGUMENT", NonRetryable),
        (4, "DEADLINE_EXCEEDED", Temporary),
        (5, "NOT_FOUND", NonRetryable),
        (6, "ALREADY_EXISTS", NonRetryable),
        (7, "PERMISSION_DENIED", NonRetryable),
        (8, "RESOURCE_EXHAUSTED", RateLimit),
        (9, "FAILED_PRECONDITION", NonRetryable),
        (10, "ABORTED", Temporary),
        (11, "OUT_OF_RANGE", NonRetryable),
        (12, "UNIMPLEMENTED", NonRetryable),
        (13, "INTERNAL", Temporary),
        (14, "UNAVAILABLE", Temporary),
        (15, "DATA_LOSS", NonRetryable),
        (16, "UNAUTHENTICATED", NonRetryable),
    ]
};

/// The status with which a gRPC call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrpcStatus {
    /// The number, 0 to 16; `tonic::Code as i32`.
    pub code: i32,
    /// `retry_delay` of the detail `google.rpc.RetryInfo`.
    pub retry_delay: Option<Duration>,
    /// Whether there is a detail `google.rpc.QuotaFailure`.
    pub quota_failure: bool,
}

impl GrpcStatus {
    /// A status without details.
    pub const fn new(code: i32) -> Self {
        Self { code, retry_delay: None, quota_failure: false }
    }

    /// The status of a name such as `RESOURCE_EXHAUSTED`, without details.
    pub fn named(name: &str) -> Option<Self> {
        let (code, ..) = CODES.iter().find(|row| row.1 == name)?;
        Some(Self::new(*code))
    }
}

/// The status that a message names, as the libraries of the languages print it:
/// `14 UNAVAILABLE: no connection`, `StatusCode.UNAVAILABLE`, `code = Unavailable desc = …`,
/// `Status(StatusCode="Unavailable", …)`.
pub(super) fn in_message(message: &str) -> Option<&'static str> {
    let word = |text: &str| {
        let text = text.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        named_as(&text[..end.unwrap_or(text.len())])
    };
    let placed = |before| message.split_once(before).and_then(|(_, rest)| word(rest));
    let first = || {
        let message = message.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        let name = message.split(':').next()?;
        CODES.iter().map(|row| row.1).find(|known| *known == name && *known != "OK")
    };
    placed("StatusCode").or_else(|| placed("rpc error: code = ")).or_else(first)
}

/// The status that an exception is named after: `InvalidArgument`, `ResourceExhaustedException`.
pub(super) fn of_type(name: &str) -> Option<GrpcStatus> {
    let bare = name.strip_suffix("Exception").or_else(|| name.strip_suffix("Error"));
    named_as(bare.unwrap_or(name)).filter(|name| *name != "UNKNOWN").and_then(GrpcStatus::named)
}

/// The name that is this word in any case, with or without the lines.
fn named_as(word: &str) -> Option<&'static str> {
    let is_it = |name: &&str| fold(name) == fold(word) && *name != "OK";
    CODES.iter().map(|row| row.1).find(is_it)
}

impl Failure {
    /// Classifies a gRPC status. `RESOURCE_EXHAUSTED` is a quota if the details have a quota
    /// failure and no delay; otherwise it is a rate limit. A number that is no gRPC code is
    /// temporary.
    pub fn from_grpc(status: GrpcStatus) -> Self {
        let Some((_, name, class)) = CODES.iter().find(|row| row.0 == status.code) else {
            return Self::new(FailureClass::Temporary, Evidence::Unrecognised, "unknown gRPC code");
        };
        // Per-minute limits come with both details. A service that names a delay has not used up a
        // day's quota.
        let class = match class {
            FailureClass::RateLimit if status.quota_failure && status.retry_delay.is_none() => {
                FailureClass::Quota
            }
            FailureClass::RateLimit
            | FailureClass::Quota
            | FailureClass::Temporary
            | FailureClass::NonRetryable => *class,
        };
        let built_in = || Self::new(class, Evidence::Typed, format_args!("gRPC {name}"));
        let failure = Facts::code(name).by_rules().unwrap_or_else(built_in);
        // DEADLINE_EXCEEDED and UNAVAILABLE.
        let failure = if matches!(status.code, 4 | 14) { failure.service_down() } else { failure };
        failure.told(status.retry_delay).doubted(doubt::of_grpc(status.code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_stands_at_its_own_place() {
        for (row, number) in CODES.iter().zip(0..) {
            assert_eq!(row.0, number);
            assert_eq!(GrpcStatus::named(row.1), Some(GrpcStatus::new(number)));
        }
        for unknown in [-1, 17, i32::MAX] {
            let failure = Failure::from_grpc(GrpcStatus::new(unknown));
            assert_eq!(
                (failure.class(), failure.evidence()),
                (FailureClass::Temporary, Evidence::Unrecognised)
            );
        }
    }

    #[test]
    fn the_page_has_each_code() {
        for (_, name, class) in CODES {
            super::super::tests::assert_on_page(name, class);
        }
    }

    #[test]
    fn details_make_a_quota_of_an_exhausted_resource_only() {
        let delay = Some(Duration::from_secs(7));
        for (code, retry_delay, quota_failure, class, named) in [
            (8, None, false, FailureClass::RateLimit, None),
            (8, delay, false, FailureClass::RateLimit, delay),
            (8, None, true, FailureClass::Quota, None),
            (8, delay, true, FailureClass::RateLimit, delay),
            (14, delay, true, FailureClass::Temporary, delay),
            (3, delay, true, FailureClass::NonRetryable, None),
        ] {
            let failure = Failure::from_grpc(GrpcStatus { code, retry_delay, quota_failure });
            assert_eq!((failure.class(), failure.delay()), (class, named), "{code}");
        }
    }
}
