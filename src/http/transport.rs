//! Why there was no answer. All of it is temporary; only the reason differs.

use std::error::Error;

use hyper_util::client::legacy;

use super::connector::ConnectTimedOut;
use crate::classify;
use crate::failure::{Evidence, Failure, FailureClass};

/// A kind of hyper's errors, and what to call it.
type Kind = (fn(&hyper::Error) -> bool, &'static str);

/// What hyper itself finds wrong with a connection or an answer.
const HYPER: [Kind; 6] = [
    (hyper::Error::is_timeout, "timed out"),
    (hyper::Error::is_parse, "head of the answer too large or not HTTP"),
    (hyper::Error::is_incomplete_message, "connection closed before the answer"),
    (hyper::Error::is_body_write_aborted, "body not sent"),
    (hyper::Error::is_canceled, "connection closed"),
    (hyper::Error::is_closed, "connection closed"),
];

pub(super) fn failure(error: &legacy::Error) -> Failure {
    let reason = classify::chain(error).find_map(known);
    let by_type = || classify::typed(error).map(|failure| failure.reason().to_owned());
    let unknown = if error.is_connect() { "connect failed" } else { "transport failed" };
    let reason = by_type().unwrap_or_else(|| reason.unwrap_or(unknown).to_owned());
    Failure::new(FailureClass::Temporary, Evidence::Typed, reason)
}

fn known(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if error.is::<ConnectTimedOut>() {
        return Some("connect timed out");
    }
    if let Some(tls) = error.downcast_ref::<rustls::Error>() {
        return Some(match tls {
            rustls::Error::InvalidCertificate(_) => "certificate not accepted",
            _ => "TLS failed",
        });
    }
    if let Some(hyper) = error.downcast_ref::<hyper::Error>() {
        return HYPER.iter().find(|row| row.0(hyper)).map(|row| row.1);
    }
    // The connector's error for this has no name of its own.
    (error.to_string() == "dns error").then_some("host name not resolved")
}
