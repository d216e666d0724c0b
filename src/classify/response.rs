//! An HTTP response as plain data, from any client. This module knows no class.

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
/// assert_eq!(failure.reason(), "status 503");
///
/// let response = Response { status: 422, headers: &[], body: br#"{"code": "outdated-fare", "message": "Dear Ann"}"# };
/// assert_eq!(Failure::from_response(&response, SystemTime::UNIX_EPOCH).reason(), "status 422: outdated-fare");
/// ```
#[derive(Clone, Copy)]
pub struct Response<'a> {
    /// The status.
    pub status: u16,
    /// Names, in any case, and values; a name may occur several times.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The body, or its beginning. The built-in tables read it only if it is complete JSON.
    pub body: &'a [u8],
}

impl<'a> Response<'a> {
    /// The values of a header, without surrounding white space.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.headers
            .iter()
            .filter(move |header| header.0.eq_ignore_ascii_case(name))
            .map(|header| header.1.trim_ascii())
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(super) fn says(&self, name: &str, value: &[u8]) -> bool {
        self.values(name).any(|found| found.eq_ignore_ascii_case(value))
    }
}

impl std::fmt::Debug for Response<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Response").field("status", &self.status).finish_non_exhaustive()
    }
}
