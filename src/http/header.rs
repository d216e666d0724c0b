//! The headers that go out with a message. Nothing reaches the wire that the `http` crate has not checked.

use std::fmt;
use std::time::SystemTime;

use ::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};

use super::{Delivery, HttpSettings};
use crate::clock::epoch_millis;
use crate::failure::{Evidence, Failure, FailureClass};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const RETRY_COUNT: HeaderName = HeaderName::from_static("x-requeue-retry-count");
const RECEIVE_COUNT: HeaderName = HeaderName::from_static("x-requeue-receive-count");
const FIRST_RECEIVE_TIME: HeaderName = HeaderName::from_static("x-requeue-first-receive-time");
const FIRST_SENT_TIME: HeaderName = HeaderName::from_static("x-requeue-first-sent-time");

/// Whom the target may look for in its logs.
const PRODUCT: HeaderValue = HeaderValue::from_static(concat!("requeue/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Headers that say how the message is framed or by which way it came: HTTP sets them.
const OF_HTTP: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Headers that we set.
const OURS: [&str; 4] = ["content-type", "idempotency-key", "webhook-id", "webhook-timestamp"];
/// And all that begin so.
const OUR_PREFIX: &str = "x-requeue-";

/// Why a header cannot be sent. Names the header and never shows its value.
///
/// ```
/// use requeue::http::{HeaderError, HttpSettings, TargetUrl};
///
/// let settings = HttpSettings::new(TargetUrl::parse("https://example.com/")?);
/// let error = settings.header("X-Tenant", "a\r\nX-Admin: yes").unwrap_err();
/// assert_eq!(error, HeaderError::Value("x-tenant".to_owned()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The name is not one.
    Name,
    /// The name is one that Requeue or HTTP itself sets.
    Reserved(String),
    /// The value of the header with this name holds characters that a header must not hold.
    Value(String),
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("invalid header name"),
            Self::Reserved(name) => write!(f, "header {name} cannot be set"),
            Self::Value(name) => write!(f, "invalid value of header {name}"),
        }
    }
}

impl std::error::Error for HeaderError {}

/// A header that may be sent next to ours.
pub(super) fn parse(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), HeaderError> {
    let name: HeaderName = name.parse().map_err(|_| HeaderError::Name)?;
    let text = name.as_str();
    if OF_HTTP.contains(&text) || OURS.contains(&text) || text.starts_with(OUR_PREFIX) {
        return Err(HeaderError::Reserved(text.to_owned()));
    }
    let value = HeaderValue::from_str(value).map_err(|_| HeaderError::Value(text.to_owned()))?;
    Ok((name, value))
}

pub(super) fn content_type(text: &str) -> Result<HeaderValue, HeaderError> {
    HeaderValue::from_str(text)
        .ok()
        .filter(|value| value.to_str().is_ok_and(|text| !text.trim().is_empty()))
        .ok_or_else(|| HeaderError::Value(CONTENT_TYPE.as_str().to_owned()))
}

/// All headers of one message. What stands later replaces what stands earlier: the settings', the message's, ours.
pub(super) fn assemble(settings: &HttpSettings, delivery: Delivery<'_>) -> Result<HeaderMap, Failure> {
    let unfit = |error: HeaderError| Failure::new(FailureClass::NonRetryable, Evidence::Typed, error);
    let id = HeaderValue::from_str(delivery.original_message_id)
        .map_err(|_| unfit(HeaderError::Value(IDEMPOTENCY_KEY.as_str().to_owned())))?;
    // A record without an id has no key: with an empty one the target would take all such messages for the same.
    let id = (!id.is_empty()).then_some(id);
    let content_type = match (delivery.content_type, &settings.content_type) {
        (Some(own), _) => content_type(own).map_err(unfit)?,
        (None, Some(configured)) => configured.clone(),
        (None, None) => guess(&delivery.body),
    };

    let mut headers = settings.headers.clone();
    headers.extend(delivery.headers);
    for name in OF_HTTP {
        headers.remove(name);
    }
    headers.entry(USER_AGENT).or_insert(PRODUCT);
    headers.insert(CONTENT_TYPE, content_type);
    for name in [IDEMPOTENCY_KEY, WEBHOOK_ID] {
        headers.remove(&name);
        headers.extend(id.clone().map(|id| (name, id)));
    }
    headers.insert(RETRY_COUNT, delivery.retry_count.into());
    headers.insert(RECEIVE_COUNT, delivery.receive_count.into());
    for (name, time) in [
        (FIRST_RECEIVE_TIME, delivery.first_received),
        (FIRST_SENT_TIME, delivery.first_sent),
    ] {
        if let Some(time) = time {
            headers.insert(name, unix_seconds(time).into());
        }
    }
    Ok(headers)
}

fn guess(body: &[u8]) -> HeaderValue {
    match body.trim_ascii_start().first() {
        Some(b'{' | b'[') => JSON,
        Some(_) | None => TEXT,
    }
}

fn unix_seconds(time: SystemTime) -> u64 {
    epoch_millis(time) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_frame_or_identify_a_message_cannot_be_set() {
        for (name, value, expected) in [
            ("X-Tenant", "a", Ok(())),
            ("Authorization", "Bearer x", Ok(())),
            ("User-Agent", "x", Ok(())),
            ("webhook-signature", "v1,x", Ok(())),
            ("Host", "x", Err(HeaderError::Reserved("host".into()))),
            (
                "Content-Length",
                "0",
                Err(HeaderError::Reserved("content-length".into())),
            ),
            (
                "Transfer-Encoding",
                "chunked",
                Err(HeaderError::Reserved("transfer-encoding".into())),
            ),
            ("Content-Type", "x/y", Err(HeaderError::Reserved("content-type".into()))),
            (
                "Idempotency-Key",
                "x",
                Err(HeaderError::Reserved("idempotency-key".into())),
            ),
            (
                "X-Requeue-Anything",
                "x",
                Err(HeaderError::Reserved("x-requeue-anything".into())),
            ),
            ("X-Tenant", "a\r\nb", Err(HeaderError::Value("x-tenant".into()))),
            ("X-Tenant", "a\nb", Err(HeaderError::Value("x-tenant".into()))),
            ("X-Tenant", "a\0b", Err(HeaderError::Value("x-tenant".into()))),
            ("X-Ten ant", "a", Err(HeaderError::Name)),
            ("X-Tenant\r\n", "a", Err(HeaderError::Name)),
            ("", "a", Err(HeaderError::Name)),
        ] {
            assert_eq!(parse(name, value).map(|_| ()), expected, "{name}");
        }
    }

    #[test]
    fn a_message_without_an_id_has_no_key() {
        let url = super::super::TargetUrl::parse("http://localhost/").expect("it is loopback");
        let settings = HttpSettings::new(url);
        for (id, expected) in [("", None), ("id-1", Some("id-1"))] {
            let headers = assemble(&settings, Delivery::new(id, "{}")).expect("an id fits into a header");
            for name in [IDEMPOTENCY_KEY, WEBHOOK_ID] {
                let value = headers.get(&name).map(|value| value.to_str().expect("it is text"));
                assert_eq!(value, expected, "{name}");
            }
        }
    }

    #[test]
    fn a_body_that_begins_like_json_is_called_json() {
        for (body, expected) in [
            (r#"{"a":1}"#, JSON),
            (" \r\n\t[1]", JSON),
            ("{broken", JSON),
            ("7", TEXT),
            ("\"text\"", TEXT),
            ("<a/>", TEXT),
            ("", TEXT),
        ] {
            assert_eq!(guess(body.as_bytes()), expected, "{body}");
        }
    }
}
