//! The failure for a missing response. It is always temporary; only the reason differs.

use std::error::Error;

use h2::Reason;
use requeue::{Evidence, Failure, FailureClass, classify};
use rustls::AlertDescription;

use super::connection::TimedOut;
use super::connector::{ConnectTimedOut, ProxyFailed};
use super::rules::RefusedAddress;
use super::watched::Flooded;

type Kind = (fn(&hyper::Error) -> bool, &'static str);

const HYPER: [Kind; 7] = [
    (hyper::Error::is_timeout, "timed out"),
    (hyper::Error::is_parse, "head of the response too large or not HTTP"),
    (hyper::Error::is_incomplete_message, "connection closed before the response"),
    (hyper::Error::is_body_write_aborted, "body not sent"),
    (hyper::Error::is_canceled, "connection closed"),
    (hyper::Error::is_closed, "connection closed"),
    // The task of the connection has ended. No other error of hyper is internal.
    (hyper::Error::is_user, "connection closed"),
];

pub(super) fn not_connected(error: &(dyn Error + 'static)) -> Failure {
    let of_this_process =
        classify::typed(error).filter(|failure| failure.evidence() == Evidence::Connection);
    if let Some(failure) = of_this_process {
        return failure;
    }
    let reason = of_the_route(error)
        .or_else(|| reason(error))
        .unwrap_or_else(|| "connect failed".to_owned());
    Failure::new(FailureClass::Temporary, Evidence::Typed, reason).service_down()
}

pub(super) fn no_response(error: &(dyn Error + 'static), evidence: Evidence) -> Failure {
    // The service responded. A head that Requeue refuses is no evidence about its health.
    let evidence = if is_unreadable(error) { Evidence::Connection } else { evidence };
    Failure::new(
        FailureClass::Temporary,
        evidence,
        reason(error).unwrap_or_else(|| "transport failed".to_owned()),
    )
    .service_down()
}

/// An error before the target. The layer that knows it wraps the errors of others.
fn of_the_route(error: &(dyn Error + 'static)) -> Option<String> {
    classify::chain(error).find_map(|error| {
        if error.is::<RefusedAddress>() {
            return Some(error.to_string());
        }
        let proxy = error.downcast_ref::<ProxyFailed>()?;
        let because = proxy.source().filter(|_| !proxy.is_refusal()).and_then(reason);
        Some(because.map_or_else(|| proxy.to_string(), |because| format!("{proxy}: {because}")))
    })
}

pub(super) fn reason(error: &(dyn Error + 'static)) -> Option<String> {
    let by_type = || classify::typed(error).map(|failure| failure.detail().to_owned());
    by_type().or_else(|| classify::chain(error).find_map(known))
}

fn known(error: &(dyn Error + 'static)) -> Option<String> {
    if error.is::<ConnectTimedOut>() || error.is::<TimedOut>() {
        return Some(error.to_string());
    }
    if let Some(tls) = error.downcast_ref::<rustls::Error>() {
        let reason = match tls {
            rustls::Error::InvalidCertificate(_) => "certificate not accepted",
            rustls::Error::AlertReceived(alert) if ABOUT_US.contains(alert) => NOT_ACCEPTED,
            _ => "TLS failed",
        };
        return Some(reason.to_owned());
    }
    if let Some(hyper) = error.downcast_ref::<hyper::Error>() {
        return HYPER.iter().find(|row| row.0(hyper)).map(|row| row.1.to_owned());
    }
    if let Some(http2) = error.downcast_ref::<h2::Error>() {
        return of_http2(http2);
    }
    // These errors have only a text: the connector's, and those of a stream that come through h2.
    let text = error.to_string();
    let is_about_us =
        || ABOUT_US.iter().any(|alert| text == rustls::Error::AlertReceived(*alert).to_string());
    if text == "dns error" {
        Some("host name not resolved".to_owned())
    } else if text == Flooded.to_string() {
        Some(text)
    } else {
        is_about_us().then(|| NOT_ACCEPTED.to_owned())
    }
}

fn of_http2(error: &h2::Error) -> Option<String> {
    if is_unreadable(error) {
        return Some("head of the response too large or malformed".to_owned());
    }
    if let Some(io) = error.get_io() {
        // Its source is not in the chain.
        return reason(io);
    }
    let what = if error.is_go_away() { "connection" } else { "stream" };
    let who = if error.is_remote() { "ended by the other side" } else { "broken" };
    error.reason().map(|reason| format!("HTTP/2 {what} {who}: {}", reason.description()))
}

/// If a response's head is too large or malformed, h2 itself resets the stream with the same code.
/// If the head does not end, h2 ends the connection.
fn is_unreadable(error: &(dyn Error + 'static)) -> bool {
    classify::chain(error).filter_map(|error| error.downcast_ref::<h2::Error>()).any(|error| {
        let what = (error.is_library(), error.is_reset(), error.reason());
        matches!(
            what,
            (true, true, Some(Reason::PROTOCOL_ERROR))
                | (true, false, Some(Reason::ENHANCE_YOUR_CALM))
        )
    })
}

/// Alerts of a server that refuses a client's certificate or misses one. Source: RFC 8446, 6.2.
const ABOUT_US: [AlertDescription; 8] = [
    AlertDescription::CertificateRequired,
    AlertDescription::BadCertificate,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::CertificateRevoked,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnknownCA,
    AlertDescription::AccessDenied,
];

const NOT_ACCEPTED: &str = "client certificate missing or not accepted";

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_limits_of_this_process_say_nothing_about_the_target() {
        for (number, evidence, reason) in [
            (24, Evidence::Connection, "too many open files"),
            (23, Evidence::Connection, "too many open files on this machine"),
        ] {
            let error = io::Error::other(io::Error::from_raw_os_error(number));
            let failure = not_connected(&error);
            assert_eq!((failure.evidence(), failure.detail()), (evidence, reason));
        }
        for (kind, evidence) in [
            (io::ErrorKind::AddrNotAvailable, Evidence::Connection),
            (io::ErrorKind::ConnectionRefused, Evidence::Typed),
        ] {
            assert_eq!(not_connected(&io::Error::from(kind)).evidence(), evidence, "{kind}");
        }
    }
}
