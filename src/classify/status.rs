//! The class of an HTTP status by itself, and how a reason names it.

use crate::failure::FailureClass;

/// Statuses that differ from their hundred.
const STATUSES: [(u16, FailureClass); 19] = {
    use FailureClass::{NonRetryable, Quota, RateLimit, Temporary};
    [
        (408, Temporary),
        // Twitter, Mailgun, SparkPost: "enhance your calm"
        (420, RateLimit),
        // By RFC 9110, another connection may serve it.
        (421, Temporary),
        // WebDAV: the lock of another client, and another request that failed
        (423, Temporary),
        (424, Temporary),
        (425, Temporary),
        (429, RateLimit),
        // Azure: "retry with"
        (449, Temporary),
        // DeepL
        (456, Quota),
        // Groq: no capacity
        (498, Temporary),
        // nginx, Google's CANCELLED: the connection was closed before the response
        (499, Temporary),
        (500, Temporary),
        (501, NonRetryable),
        (502, Temporary),
        (503, Temporary),
        (504, Temporary),
        (505, NonRetryable),
        // WebDAV, Microsoft Graph: the storage of a user is full
        (507, Quota),
        // Microsoft Graph: the bandwidth
        (509, RateLimit),
    ]
};

/// Statuses from 400 to 499 about the request itself, or its object. The same request fails again,
/// even if the response names a delay.
const FINAL: [u16; 15] =
    [400, 402, 404, 405, 406, 410, 411, 414, 415, 416, 417, 422, 428, 431, 451];
/// Statuses from 400 to 499 with which services refuse a client that calls too often: GitHub's,
/// Binance's and Shopify's.
const TOO_OFTEN: [u16; 3] = [403, 418, 430];

/// Whether services send this status: by IANA, Twitter, nginx, IIS, `DeepL`, AWS or Cloudflare.
pub(super) fn is_used(status: u16) -> bool {
    matches!(status, 300..=304 | 307 | 308 | 400..=431 | 440 | 444 | 449..=451 | 456 | 460..=464)
        || matches!(status, 494..=511 | 520..=530 | 561 | 598 | 599)
}

/// The class of a status from 400 to 499 that cannot be about the request, if the response names a
/// delay.
pub(super) fn class_until_later(status: u16) -> Option<FailureClass> {
    match status {
        _ if FINAL.contains(&status) => None,
        _ if TOO_OFTEN.contains(&status) => Some(FailureClass::RateLimit),
        400..=499 => Some(FailureClass::Temporary),
        _ => None,
    }
}

/// Names of errors that mean a status, without lines and in lower case. Those of gRPC mean one of
/// the same class. Sources: `google.rpc.Code`; Connect protocol, Error codes; Apollo Server,
/// Built-in error codes; Shopify GraphQL Admin API, Status and error codes; Slack Web API, Errors;
/// JSON-RPC 2.0, Error object; EIP-1474, Error codes.
const NAMES: [(u16, &str); 14] = [
    (
        400,
        "badrequest invalidargument failedprecondition outofrange baduserinput graphqlparsefailed \
        graphqlvalidationfailed persistedquerynotfound persistedquerynotsupported \
        operationresolutionfailure maxcostexceeded invalidarguments 32700 32600 32601 32602",
    ),
    (401, "unauthenticated unauthorized invalidauth notauthed tokenrevoked tokenexpired"),
    (403, "forbidden permissiondenied accessdenied accountinactive missingscope shopinactive"),
    (404, "notfound channelnotfound usernotfound"),
    (405, "methodnotallowed"),
    (409, "conflict alreadyexists"),
    (413, "payloadtoolarge contenttoolarge msgtoolong"),
    (422, "unprocessableentity unprocessablecontent dataloss"),
    (429, "resourceexhausted toomanyrequests ratelimited ratelimitexceeded throttled 32005"),
    (500, "internal internalerror internalservererror unknown cancelled aborted fatalerror 32603"),
    (501, "unimplemented notimplemented"),
    (502, "badgateway"),
    (503, "unavailable serviceunavailable"),
    (504, "deadlineexceeded gatewaytimeout requesttimeout"),
];

/// The letters and digits of a name, in lower case.
pub fn fold(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// The status that the name of an error means, in any notation: `BAD_USER_INPUT`,
/// `ServiceUnavailable`.
pub(super) fn of_name(name: &str) -> Option<u16> {
    let letters = fold(name);
    NAMES.iter().find(|row| row.1.split(' ').any(|name| name == letters)).map(|row| row.0)
}

/// A reason: the status, Requeue's words on it, and the error's own code.
pub(super) fn told(status: u16, words: Option<&str>, own_code: Option<&str>) -> String {
    match (words, own_code) {
        (None, None) => format!("status {status}"),
        (Some(one), None) | (None, Some(one)) => format!("status {status}: {one}"),
        (Some(words), Some(code)) => format!("status {status}: {code}, {words}"),
    }
}

pub(super) fn class_of(status: u16) -> FailureClass {
    let of_hundred = match status {
        300..=499 => FailureClass::NonRetryable,
        _ => FailureClass::Temporary,
    };
    STATUSES.iter().find(|row| row.0 == status).map_or(of_hundred, |row| row.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;
    use crate::classify::GrpcStatus;

    #[test]
    fn the_name_of_a_grpc_status_stands_for_one_of_the_same_class() {
        for code in 1..=16 {
            let failure = Failure::from_grpc(GrpcStatus::new(code));
            let name = failure.detail().strip_prefix("gRPC ").expect("a name");
            let status = of_name(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(class_of(status), failure.class(), "{name}");
            assert_eq!(of_name(&name.to_lowercase()), Some(status), "{name} of Connect");
        }
        assert_eq!(["OK", "", "-", "2xx"].map(of_name), [None; 4]);
    }

    #[test]
    fn the_page_has_each_status_that_is_final_in_any_case() {
        let row =
            super::super::tests::PAGE.lines().find(|row| row.contains("even with `Retry-After`"));
        let row = row.expect("the page has a row for them");
        for status in FINAL {
            assert!(row.contains(&status.to_string()), "{status}");
        }
    }
}
