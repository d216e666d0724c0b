//! The data of one delivery. Knows no transport.

use std::time::SystemTime;

use ::http::header::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;

use super::header::{self, HeaderError};

/// One message, as [`HttpTarget::deliver`](super::HttpTarget::deliver) sends it.
///
/// ```
/// use requeue_lambda::Delivery;
///
/// let mut delivery = Delivery::new("1b5b-…", r#"{"order":7}"#);
/// delivery.retry_count = 2;
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Delivery<'a> {
    /// The body, sent as it is.
    pub body: Bytes,
    /// The id of the first delivery: `Idempotency-Key` and `webhook-id`.
    pub original_message_id: &'a str,
    /// The message's own `Content-Type`.
    pub content_type: Option<&'a str>,
    /// More headers, such as the trace and chosen message attributes. They replace headers of the
    /// settings, and Requeue's own headers replace them.
    pub headers: HeaderMap,
    /// `X-Requeue-Retry-Count`
    pub retry_count: u32,
    /// `X-Requeue-Receive-Count`
    pub receive_count: u32,
    /// `X-Requeue-First-Receive-Time`, in whole seconds since the epoch.
    pub first_received: Option<SystemTime>,
    /// `X-Requeue-First-Sent-Time`, in whole seconds since the epoch.
    pub first_sent: Option<SystemTime>,
    /// Whether a rate limit counts requests, as
    /// [`Message::is_rate_limited`](requeue::Message::is_rate_limited) says. Then the request is
    /// sent once only.
    pub is_rate_limited: bool,
}

impl<'a> Delivery<'a> {
    /// A message without retries, receives and times.
    pub fn new(original_message_id: &'a str, body: impl Into<Bytes>) -> Self {
        Self {
            body: body.into(),
            original_message_id,
            content_type: None,
            headers: HeaderMap::new(),
            retry_count: 0,
            receive_count: 1,
            first_received: None,
            first_sent: None,
            is_rate_limited: false,
        }
    }

    /// Adds one more header, checked.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, HeaderError> {
        let (name, value): (HeaderName, HeaderValue) = header::parse(name, value)?;
        self.headers.append(name, value);
        Ok(self)
    }
}

requeue::debug_by_name!(Delivery<'a>; |it| original_message_id: it.original_message_id,
    body_bytes: it.body.len(), retry_count: it.retry_count, receive_count: it.receive_count);
