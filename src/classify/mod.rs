//! Evidence → class: the class of an error, in tables that a reader can check.
//!
//! The order of evidence: the handler's own word ([`Failure::rate_limit`] and its sisters);
//! the user's own [`Rules`]; the type, status or code of an error, at every level of its `source()`
//! chain; and last, the words of its message. An error that none of these knows is temporary.
//!
//! Nothing here waits, reads a clock or logs, and no reason repeats foreign text, for an error may
//! quote a body or a secret: of a response nothing but a short code passes, if it looks like the
//! name of a kind of error (`code.rs`).

use std::error::Error;
use std::time::Duration;

use aws_smithy_types::error::metadata::ProvideErrorMetadata;

use crate::failure::{Evidence, Failure, FailureClass};
use rules::Facts;

// Each imports only those after it.
mod grpc;
mod http;
mod rules;
mod text;
mod code;
mod retry_after;
mod aws;
mod io;
mod chain;
mod status;
mod response;

pub use chain::chain;
pub use grpc::GrpcStatus;
pub use response::Response;
pub use rules::Rules;
pub(crate) use rules::{Effect, Match, Phrase};

/// The kinds of errors that are known by their type, in no particular order: no error is of two
/// kinds.
const BY_TYPE: [fn(&(dyn Error + 'static)) -> Option<Failure>; 4] =
    [io::io_error, io::elapsed, aws::error_metadata, aws::connector_error];

impl Failure {
    /// Classifies any error: by the [`Rules`] in force; failing that by type at every level of its
    /// `source()` chain, outermost first; failing that by the words of its messages; failing that
    /// it is temporary. [`Failure::evidence`] tells which it was.
    ///
    /// An error that is boxed is passed as `&*error`, which also does for `anyhow::Error`. An
    /// response of a server is classified better by [`Failure::from_response`], an error of the AWS
    /// SDK by [`Failure::aws`], a gRPC status by [`Failure::from_grpc`].
    ///
    /// ```
    /// use requeue::{Evidence, Failure, FailureClass};
    ///
    /// let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    /// let failure = Failure::classified(&refused);
    /// assert_eq!((failure.class(), failure.evidence()), (FailureClass::Temporary, Evidence::Typed));
    /// assert_eq!(failure.reason(), "connection refused");
    /// ```
    #[must_use]
    pub fn classified(error: &(dyn Error + 'static)) -> Self {
        Facts::error(error, None).by_rules().or_else(|| recognised(error)).unwrap_or_else(|| {
            Self::new(FailureClass::Temporary, Evidence::Unrecognised, "unrecognised error")
        })
    }

    /// Classifies an error of the AWS SDK for Rust, of any service, by its code: throttling is a
    /// rate limit, access trouble is non-retryable. An error without a code (a time-out, no
    /// connection) is classified as by [`Failure::classified`].
    ///
    /// ```
    /// use aws_sdk_sqs::error::ErrorMetadata;
    /// use requeue::{Failure, FailureClass};
    ///
    /// let error = ErrorMetadata::builder().code("ThrottlingException").message("Rate exceeded").build();
    /// assert_eq!(Failure::aws(&error).class(), FailureClass::RateLimit);
    /// assert_eq!(Failure::aws(&error).reason(), "throttled: ThrottlingException");
    /// ```
    #[must_use]
    pub fn aws(error: &(impl ProvideErrorMetadata + Error + 'static)) -> Self {
        let ruled = Facts::error(error, error.code()).by_rules();
        ruled
            .or_else(|| error.code().and_then(aws::by_code))
            .unwrap_or_else(|| Self::classified(error))
    }

    /// With the delay that the service named, unless the failure has one already or waits for
    /// nothing.
    fn told(self, delay: Option<Duration>) -> Self {
        match delay {
            // A time that is here or past is none to wait for, and would use up every retry within
            // seconds.
            Some(delay)
                if !delay.is_zero()
                    && self.delay().is_none()
                    && self.class() != FailureClass::NonRetryable =>
            {
                self.retry_after(delay)
            }
            Some(_) | None => self,
        }
    }
}

/// As [`Failure::classified`], but `None` for what nothing recognises.
pub(crate) fn recognised(error: &(dyn Error + 'static)) -> Option<Failure> {
    typed(error).or_else(|| text::classify(chain(error)))
}

/// By type alone, as [`Failure::classified`] does first.
///
/// ```
/// let error = std::io::Error::from(std::io::ErrorKind::TimedOut);
/// assert!(requeue::classify::typed(&error).is_some());
/// ```
#[must_use]
pub fn typed(error: &(dyn Error + 'static)) -> Option<Failure> {
    chain(error).find_map(|level| BY_TYPE.iter().find_map(|known| known(level)))
}

#[cfg(test)]
mod tests;
