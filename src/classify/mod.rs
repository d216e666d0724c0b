//! Finds the class of an error, by tables that a reader can check.
//!
//! A class that the handler chose itself ([`Failure::rate_limit`] and the like) comes before all of
//! them. [`Failure::classified`] has the order of the others.
//!
//! No reason repeats foreign text, since an error may quote a body or a secret: only a short code passes
//! that looks like the name of an error (`code.rs`).

use std::error::Error;
use std::iter::successors;
use std::time::Duration;

use aws_smithy_types::error::metadata::ProvideErrorMetadata;

use crate::failure::{Evidence, Failure, FailureClass};
use rules::Facts;

/// Rows of a table, each with its words. rustfmt leaves a row in few lines.
macro_rules! rows {
    ($($row:expr => $words:expr;)*) => { [$(($row, $words)),*] };
}

// Each imports only those after it.
mod exceptions;
mod grpc;
mod http;
mod body;
mod rules;
mod doubt;
mod text;
mod exception;
mod retry_after;
mod aws;
mod io;
mod smtp;
mod code;
mod status;

pub use code::presentable;
pub use exception::Exception;
pub use grpc::GrpcStatus;
pub(crate) use retry_after::{Allowance, allowances};
pub(crate) use rules::{CLASSES, Effect, Match, Phrase};
pub use rules::{Rules, class_named, names_status};
#[doc(hidden)]
pub use status::fold;

/// The kinds of errors that are known by their type, in no particular order: no error is of two
/// kinds.
const BY_TYPE: [fn(&(dyn Error + 'static)) -> Option<Failure>; 5] =
    [io::io_error, io::elapsed, aws::error_metadata, aws::connector_error, exceptions::exception];

impl Failure {
    /// Classifies any error. The first of these that recognises it decides:
    ///
    /// 1. the [`Rules`] in force;
    /// 2. its type, at every level of its `source()` chain, outermost first;
    /// 3. the words of its messages.
    ///
    /// Otherwise the error is temporary. [`Failure::evidence`] names the one that decided.
    ///
    /// Pass a boxed error, also an `anyhow::Error`, as `&*error`. Other functions know more of
    /// their errors: [`Failure::from_response`] of a server's response, [`Failure::aws`] of an
    /// error of the AWS SDK, and [`Failure::from_grpc`] of a gRPC status.
    pub fn classified(error: &(dyn Error + 'static)) -> Self {
        let failure = Facts::error(error, None).by_rules().or_else(|| recognised(error));
        let unrecognised =
            || Self::new(FailureClass::Temporary, Evidence::Unrecognised, "unrecognised error");
        failure.unwrap_or_else(unrecognised).doubted(doubt::of_error(error))
    }

    /// Classifies an error of the AWS SDK for Rust, of any service, by its code. Throttling is a
    /// rate limit, and access trouble is non-retryable. An error without a code (a timeout, no
    /// connection) is classified as by [`Failure::classified`].
    pub fn aws(error: &(impl ProvideErrorMetadata + Error + 'static)) -> Self {
        let ruled = Facts::error(error, error.code()).by_rules();
        let is_in_doubt = error.code().map_or_else(|| doubt::of_error(error), doubt::of_code);
        ruled
            .or_else(|| error.message().and_then(aws::clock))
            .or_else(|| error.code().and_then(aws::by_code))
            .unwrap_or_else(|| Self::classified(error))
            .doubted(is_in_doubt)
    }

    /// Adds the delay that the service named, unless the failure has one already or is
    /// non-retryable.
    fn told(self, delay: Option<Duration>) -> Self {
        match delay {
            // A delay of zero is no wait, and would use up every retry within seconds.
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

/// As [`Failure::classified`], but `None` for an error that nothing recognises.
pub(crate) fn recognised(error: &(dyn Error + 'static)) -> Option<Failure> {
    typed(error).or_else(|| text::classify(chain(error)))
}

/// Classifies by type alone, as [`Failure::classified`] does after the rules.
pub fn typed(error: &(dyn Error + 'static)) -> Option<Failure> {
    chain(error).find_map(|level| BY_TYPE.iter().find_map(|known| known(level)))
}

/// The most errors that are read, even in a chain with a cycle.
const MAX_DEPTH: usize = 32;

/// An error and all that caused it, outermost first.
pub fn chain<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let cause = |error: &&'a (dyn Error + 'static)| -> Option<&'a (dyn Error + 'static)> {
        let error: &'a (dyn Error + 'static) = *error;
        // The source of an `io::Error` is the source of the error inside it, and so would skip that
        // error.
        match error.downcast_ref().and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    };
    successors(Some(error), cause).take(MAX_DEPTH)
}

/// An HTTP response as plain data, from any client. Write it as a literal: it has these three
/// fields and gets no others.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use requeue::{Failure, FailureClass};
/// use requeue::classify::Response;
///
/// let response = Response { status: 503, headers: &[("Retry-After", b"120")], body: b"" };
/// let failure = Failure::from_response(&response, SystemTime::UNIX_EPOCH);
/// assert_eq!(failure.class(), FailureClass::Temporary);
/// assert_eq!(failure.delay(), Some(Duration::from_secs(120)));
/// assert_eq!(failure.detail(), "status 503");
/// ```
#[derive(Clone, Copy)]
pub struct Response<'a> {
    /// The status.
    pub status: u16,
    /// Names, in any case, and values; a name may occur several times.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The body, or its beginning. The built-in tables read complete JSON, and the code in XML.
    pub body: &'a [u8],
}

impl<'a> Response<'a> {
    /// The values of a header, without surrounding white space.
    fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.headers
            .iter()
            .filter(move |header| header.0.eq_ignore_ascii_case(name))
            .map(|header| header.1.trim_ascii())
    }

    /// The header by which a firewall (AWS WAF, Cloudflare, Vercel) reports that it asked for a
    /// proof, such as a captcha. The service never got the request, whatever the status.
    pub fn challenge(&self) -> Option<&'static str> {
        const CHALLENGES: [(&str, &[u8]); 4] = [
            ("x-amzn-waf-action", b"challenge"),
            ("x-amzn-waf-action", b"captcha"),
            ("cf-mitigated", b"challenge"),
            ("x-vercel-mitigated", b"challenge"),
        ];
        CHALLENGES.iter().find(|(name, value)| self.says(name, value)).map(|row| row.0)
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    fn says(&self, name: &str, value: &[u8]) -> bool {
        self.values(name).any(|found| found.eq_ignore_ascii_case(value))
    }
}

requeue_sqs::debug_by_name!(Response<'a>; |it| status: it.status);

#[cfg(test)]
mod tests;
