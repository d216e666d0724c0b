//! Delivery over HTTP: each message is sent to one fixed URL, and the answer says what became of it.
//!
//! It trusts the target with its messages and with nothing else: no redirect is followed, nothing is decompressed, and neither the size of an
//! answer nor its slowness costs more than a bound. It knows nothing of queues and decides no retry; what an answer means, `classify/` knows.

use std::fmt;
use std::io;
use std::time::{Duration, SystemTime};

use ::http::header::HeaderMap;
use ::http::{HeaderName, HeaderValue, Method, Request, response};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Instant, timeout_at};

use crate::classify::Answer;
use crate::clock::Clock;
use crate::failure::{Evidence, Failure, FailureClass};
use crate::gate::Scope;
use crate::handler::Handler;
use crate::message::Message;
use crate::queue::AttributeValue;

mod connector;
mod header;
mod scope;
mod signature;
mod transport;
mod url;

pub use connector::{Connector, TlsConnector};
pub use header::HeaderError;
pub use scope::{InvalidScopeKey, ScopeKey};
pub use signature::{InvalidSigningSecret, SigningSecret};
pub use url::{TargetUrl, TargetUrlError};

/// The message attribute that names the body's media type.
const CONTENT_TYPE_ATTRIBUTE: &str = "Body.ContentType";
/// Default for the whole delivery, from connecting to the end of the answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Nobody waits longer: with it a time-out that stands for "none" can be added to any instant.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Default for connecting, TLS included. A host that does not answer for so long is down: a name look-up, one lost packet and two round trips
/// around the world fit in.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections unused for so long are closed. Most servers and load balancers keep theirs for a minute or more; to write into one that the
/// other side has just closed costs a retry.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// An HTTP/2 connection with requests under way is asked so often whether it is still alive, so that one that died while the environment was
/// frozen does not hold up every message until its time-out.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// And so long it may take to answer.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Status line and headers of an answer.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// So much of an answer's body is read: enough for every error that a provider describes.
const MAX_BODY_BYTES: usize = 16 * 1024;
/// Once the status is known the body is not worth more waiting than this.
const BODY_PATIENCE: Duration = Duration::from_secs(2);

/// How to deliver: by which method, with which headers, for how long, signed or not.
///
/// ```
/// use std::time::Duration;
/// use requeue::http::HttpSettings;
///
/// let settings = HttpSettings::default()
///     .timeout(Duration::from_secs(10))
///     .header("Authorization", "Bearer 2sTa1V")?;
/// assert!(!format!("{settings:?}").contains("2sTa1V"));
/// # Ok::<(), requeue::http::HeaderError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HttpSettings {
    method: Method,
    headers: HeaderMap,
    attribute_headers: Vec<(String, HeaderName)>,
    scope: Option<ScopeKey>,
    signing_secrets: Vec<SigningSecret>,
    content_type: Option<HeaderValue>,
    timeout: Duration,
    connect_timeout: Duration,
    clock: Clock,
}

impl Default for HttpSettings {
    /// POST, no headers but ours, not signed, 5 s to connect, 30 s in all.
    fn default() -> Self {
        Self {
            method: Method::POST,
            headers: HeaderMap::new(),
            attribute_headers: Vec::new(),
            scope: None,
            signing_secrets: Vec::new(),
            content_type: None,
            timeout: TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            clock: Clock::system(),
        }
    }
}

impl HttpSettings {
    /// Another method than POST.
    ///
    /// ```
    /// # use requeue::http::HttpSettings;
    /// let settings = HttpSettings::default().method(http::Method::PUT);
    /// ```
    #[must_use]
    pub fn method(self, method: Method) -> Self {
        Self { method, ..self }
    }

    /// A header to send with every message. Its value counts as a secret and is never printed. Headers that Requeue or HTTP itself sets are
    /// refused, `User-Agent` excepted.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, HeaderError> {
        let (name, value) = header::parse(name, value)?;
        self.headers.append(name, value);
        Ok(self)
    }

    /// Which messages are paused together when the target asks for a pause or is down. Default: all.
    ///
    /// ```
    /// # use requeue::http::HttpSettings;
    /// let settings = HttpSettings::default().scope("tenant".parse()?);
    /// # Ok::<(), requeue::http::InvalidScopeKey>(())
    /// ```
    #[must_use]
    pub fn scope(self, key: ScopeKey) -> Self {
        Self { scope: Some(key), ..self }
    }

    /// A header that carries a message attribute of the type `String` or `Number`. A message without the attribute goes with the header
    /// that [`header`](Self::header) gave this name, or without any. One whose attribute does not fit into a header (it is binary, or
    /// holds a control character) is non-retryable.
    ///
    /// ```
    /// # use requeue::http::HttpSettings;
    /// let settings = HttpSettings::default().attribute_header("tenant", "X-Tenant")?;
    /// # Ok::<(), requeue::http::HeaderError>(())
    /// ```
    pub fn attribute_header(mut self, attribute: &str, header: &str) -> Result<Self, HeaderError> {
        self.attribute_headers.push((attribute.to_owned(), header::parse_name(header)?));
        Ok(self)
    }

    /// Signs each request as [Standard Webhooks](https://www.standardwebhooks.com) has it, with `webhook-timestamp` and
    /// `webhook-signature`. While a secret is replaced, give the old one and the new one: the target accepts a request if it knows either.
    /// A message without an id, or with a dot in it, is non-retryable then.
    ///
    /// ```
    /// use requeue::http::{HttpSettings, SigningSecret};
    ///
    /// let secret: SigningSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?;
    /// let settings = HttpSettings::default().sign_with(secret);
    /// assert!(!format!("{settings:?}").contains("MfKQ"));
    /// # Ok::<(), requeue::http::InvalidSigningSecret>(())
    /// ```
    #[must_use]
    pub fn sign_with(mut self, secret: SigningSecret) -> Self {
        self.signing_secrets.push(secret);
        self
    }

    /// The `Content-Type` of messages that bring none. Default: `application/json` if the body begins like a JSON object or array, else
    /// `text/plain; charset=utf-8`.
    pub fn content_type(self, content_type: &str) -> Result<Self, HeaderError> {
        let content_type = Some(header::content_type(content_type)?);
        Ok(Self { content_type, ..self })
    }

    /// The longest a delivery may take, from connecting to the end of the answer. Default 30 s.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The longest that connecting may take, TLS included. Default 5 s.
    #[must_use]
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// The clock with which dates in an answer are compared that has no `Date` of its own, and by which requests are signed. Default:
    /// this machine's.
    #[must_use]
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }
}

/// One message, as [`HttpTarget::deliver`] sends it.
///
/// ```
/// use requeue::http::Delivery;
///
/// let delivery = Delivery { retry_count: 2, receive_count: 1, ..Delivery::new("1b5b-…", r#"{"order":7}"#) };
/// # let _ = delivery;
/// ```
#[derive(Clone)]
pub struct Delivery<'a> {
    /// The body, sent as it is.
    pub body: Bytes,
    /// The id of the first delivery: `Idempotency-Key` and `webhook-id`.
    pub original_message_id: &'a str,
    /// The message's own `Content-Type`.
    pub content_type: Option<&'a str>,
    /// More headers, such as the trace and chosen message attributes. They replace those of the settings and are replaced by ours.
    pub headers: HeaderMap,
    /// `X-Requeue-Retry-Count`
    pub retry_count: u32,
    /// `X-Requeue-Receive-Count`
    pub receive_count: u32,
    /// `X-Requeue-First-Receive-Time`, in whole seconds since the epoch.
    pub first_received: Option<SystemTime>,
    /// `X-Requeue-First-Sent-Time`, in whole seconds since the epoch.
    pub first_sent: Option<SystemTime>,
}

impl<'a> Delivery<'a> {
    /// A message that has been through nothing yet.
    #[must_use]
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
        }
    }

    /// Adds one more header, checked.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, HeaderError> {
        let (name, value): (HeaderName, HeaderValue) = header::parse(name, value)?;
        self.headers.append(name, value);
        Ok(self)
    }
}

impl fmt::Debug for Delivery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("original_message_id", &self.original_message_id)
            .field("body_bytes", &self.body.len())
            .field("retry_count", &self.retry_count)
            .field("receive_count", &self.receive_count)
            .finish_non_exhaustive()
    }
}

/// Delivers messages to one URL over connections that it keeps for the next message.
///
/// Any 2xx is a success. Whatever else is answered becomes a [`Failure`] as [`Failure::from_answer`] describes; no answer at all (no
/// connection, no name, no trust, no time) is a temporary one.
///
/// A clone shares the connections.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use requeue::http::{Delivery, HttpSettings, HttpTarget, TargetUrl};
///
/// let target = HttpTarget::new(TargetUrl::parse("https://example.com/orders")?, HttpSettings::default())?;
/// if let Err(failure) = target.deliver(Delivery::new("1b5b-…", r#"{"order":7}"#)).await {
///     println!("{}: {}", failure.class(), failure.reason());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct HttpTarget<C = TlsConnector> {
    url: TargetUrl,
    settings: HttpSettings,
    client: Client<connector::Bounded<C>, Full<Bytes>>,
}

impl HttpTarget {
    /// Over TCP and TLS with the root certificates of this machine, HTTP/2 where the target offers it.
    ///
    /// # Errors
    ///
    /// If the target is `https` and this machine has no root certificates.
    pub fn new(url: TargetUrl, settings: HttpSettings) -> io::Result<Self> {
        let connector = connector::for_url(&url)?;
        Ok(Self::with_connector(url, settings, connector))
    }
}

impl<C: Connector> HttpTarget<C> {
    /// Over connections of another making, in memory for example.
    pub fn with_connector(url: TargetUrl, settings: HttpSettings, connector: C) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .http1_max_buf_size(MAX_HEAD_BYTES)
            .http2_max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .build(connector::Bounded::new(connector, settings.connect_timeout));
        Self { url, settings, client }
    }

    /// The URL.
    #[must_use]
    pub fn url(&self) -> &TargetUrl {
        &self.url
    }

    /// Delivers one message. Dropping the future abandons the request and closes its connection.
    pub async fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Failure> {
        let mut request = Request::new(Full::new(delivery.body.clone()));
        *request.method_mut() = self.settings.method.clone();
        *request.uri_mut() = self.url.uri().clone();
        *request.headers_mut() = header::assemble(&self.settings, delivery)?;

        let deadline = Instant::now() + self.settings.timeout.min(LONGEST_TIMEOUT);
        let (head, body) = match timeout_at(deadline, self.client.request(request)).await {
            Ok(answer) => answer.map_err(|error| transport::failure(&error))?.into_parts(),
            Err(_) => {
                return Err(Failure::new(FailureClass::Temporary, Evidence::Typed, "no answer in time"));
            }
        };
        let body = beginning(body, deadline.min(Instant::now() + BODY_PATIENCE)).await;
        self.judge(&head, &body)
    }

    fn judge(&self, head: &response::Parts, body: &[u8]) -> Result<(), Failure> {
        // Whatever became of the body: the work is done, and to send the message again would do it twice.
        if head.status.is_success() {
            return Ok(());
        }
        let headers: Vec<(&str, &[u8])> =
            head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let answer = Answer { status: head.status.as_u16(), headers: &headers, body };
        Err(Failure::from_answer(&answer, self.settings.clock.now()))
    }
}

impl<C: Connector> Handler for HttpTarget<C> {
    async fn handle(&self, message: Message) -> Result<(), Failure> {
        let content_type = match message.attributes().get(CONTENT_TYPE_ATTRIBUTE).map(|attribute| &attribute.value) {
            Some(AttributeValue::Text(text)) => Some(text.as_str()),
            Some(AttributeValue::Binary(_)) | None => None,
        };
        let delivery = Delivery {
            content_type,
            retry_count: message.retry_count(),
            receive_count: message.receive_count(),
            first_received: Some(message.first_received()),
            first_sent: Some(message.first_sent()),
            headers: header::of_message(&self.settings, &message)?,
            ..Delivery::new(message.original_id().unwrap_or_default(), message.body().clone())
        };
        self.deliver(delivery).await
    }

    fn scope(&self, message: &Message) -> Scope {
        self.settings.scope.as_ref().map_or_else(Scope::default, |key| key.scope(message))
    }
}

impl<C> fmt::Debug for HttpTarget<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTarget").field("url", &self.url).field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The beginning of an answer's body. A body that was read to its end leaves its connection fit for the next message.
async fn beginning(mut body: Incoming, deadline: Instant) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Until the end, or an error, or the end of our patience.
    while let Ok(Some(Ok(frame))) = timeout_at(deadline, body.frame()).await {
        let data = frame.into_data().unwrap_or_default();
        let room = MAX_BODY_BYTES - bytes.len();
        bytes.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            break;
        }
    }
    bytes
}

// The server side of hyper comes with the embedded queue.
#[cfg(all(test, feature = "embedded"))]
mod tests;
