//! Delivery over HTTP: each message is sent to one fixed URL, and the answer says what became of
//! it.
//!
//! It trusts the target with its messages and with nothing else: no redirect is followed, nothing
//! is decompressed, and neither the size of an answer nor its slowness costs more than a bound. It
//! knows nothing of queues and decides no retry; what an answer means, `classify/` knows.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use ::http::header::HeaderMap;
use ::http::{HeaderName, HeaderValue, Method, response};
use hyper::body::{Body, Incoming};
use requeue::classify::Response;
use requeue::queue::AttributeValue;
use requeue::{Clock, Evidence, Failure, Handler, Message, Scope, is_last_poll};
use tokio::time::{Instant, timeout_at};

mod certificate;
mod connection;
mod connector;
mod delivery;
mod frames;
mod header;
mod pool;
mod proxy;
mod rules;
mod scope;
mod signature;
mod status_line;
mod transport;
mod url;
mod watched;

pub use certificate::{ClientCertificate, InvalidClientCertificate};
use connection::{Address, Connection, Outgoing, Received, Repeat, TimedOut};
pub use connector::{Connector, TlsConnector};
pub use delivery::Delivery;
pub use header::HeaderError;
use pool::{Connectors, Pool, Times};
pub use proxy::{Proxy, Route};
pub use rules::TargetRules;
pub use scope::{InvalidScopeKey, ScopeKey};
pub use signature::{InvalidSigningSecret, SigningSecret};
pub use url::{TargetUrl, TargetUrlError};

/// The message attribute that names the body's media type.
const CONTENT_TYPE_ATTRIBUTE: &str = "Body.ContentType";
/// Default for the whole delivery, from connecting to the end of the answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Nobody waits longer: with it a time-out that stands for "none" can be added to any instant.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Default for connecting, TLS included. A host that does not answer for so long is down: a name
/// look-up, one lost packet and two round trips around the world fit in.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Default for how long an unused connection is kept. Node closes its own after 5 s, most other
/// servers later; to write into one that the other side has just closed costs a second request.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// So much of an answer's body is read: enough for every error that a provider describes.
const MAX_BODY_BYTES: usize = 16 * 1024;
/// Once the status is known the body is not worth more waiting than this.
const BODY_PATIENCE: Duration = Duration::from_secs(2);

/// How to deliver: by which method, with which headers, for how long, signed or not.
///
/// ```
/// use std::time::Duration;
/// use requeue_lambda::HttpSettings;
///
/// let settings = HttpSettings::default()
///     .timeout(Duration::from_secs(10))
///     .header("Authorization", "Bearer 2sTa1V")?;
/// assert!(!format!("{settings:?}").contains("2sTa1V"));
/// # Ok::<(), requeue_lambda::HeaderError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HttpSettings {
    method: Method,
    headers: HeaderMap,
    attribute_headers: Vec<(String, HeaderName)>,
    scope: Option<ScopeKey>,
    signing_secrets: Vec<SigningSecret>,
    client_certificate: Option<ClientCertificate>,
    proxy: Proxy,
    content_type: Option<HeaderValue>,
    timeout: Duration,
    connect_timeout: Duration,
    read_timeout: Option<Duration>,
    idle_timeout: Duration,
    http1_only: bool,
    clock: Clock,
}

impl Default for HttpSettings {
    /// POST, no headers but ours, not signed, 5 s to connect, 30 s in all, unused connections kept
    /// for 4 s.
    fn default() -> Self {
        Self {
            method: Method::POST,
            headers: HeaderMap::new(),
            attribute_headers: Vec::new(),
            scope: None,
            signing_secrets: Vec::new(),
            client_certificate: None,
            proxy: Proxy::default(),
            content_type: None,
            timeout: TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            read_timeout: None,
            idle_timeout: IDLE_TIMEOUT,
            http1_only: false,
            clock: Clock::system(),
        }
    }
}

impl HttpSettings {
    /// Another method than POST.
    ///
    /// ```
    /// # use requeue_lambda::HttpSettings;
    /// let settings = HttpSettings::default().method(http::Method::PUT);
    /// ```
    #[must_use]
    pub fn method(self, method: Method) -> Self {
        Self { method, ..self }
    }

    /// A header to send with every message. Its value counts as a secret and is never printed.
    /// Headers that Requeue or HTTP itself sets are refused, `User-Agent` excepted.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, HeaderError> {
        let (name, value) = header::parse(name, value)?;
        self.headers.append(name, value);
        Ok(self)
    }

    /// Which messages are paused together when the target asks for a pause or is down. Default:
    /// all.
    ///
    /// ```
    /// # use requeue_lambda::HttpSettings;
    /// let settings = HttpSettings::default().scope("tenant".parse()?);
    /// # Ok::<(), requeue_lambda::InvalidScopeKey>(())
    /// ```
    #[must_use]
    pub fn scope(self, key: ScopeKey) -> Self {
        Self { scope: Some(key), ..self }
    }

    /// A header that carries a message attribute of the type `String` or `Number`. A message
    /// without the attribute goes with the header that [`header`](Self::header) gave this name, or
    /// without any. One whose attribute does not fit into a header (it is binary, or holds a
    /// control character) is non-retryable.
    ///
    /// ```
    /// # use requeue_lambda::HttpSettings;
    /// let settings = HttpSettings::default().attribute_header("tenant", "X-Tenant")?;
    /// # Ok::<(), requeue_lambda::HeaderError>(())
    /// ```
    pub fn attribute_header(mut self, attribute: &str, header: &str) -> Result<Self, HeaderError> {
        self.attribute_headers.push((attribute.to_owned(), header::parse_name(header)?));
        Ok(self)
    }

    /// Signs each request as [Standard Webhooks](https://www.standardwebhooks.com) has it, with
    /// `webhook-timestamp` and `webhook-signature`. While a secret is replaced, give the old one
    /// and the new one: the target accepts a request if it knows either. A message without an id,
    /// or with a dot in it, is non-retryable then.
    ///
    /// ```
    /// use requeue_lambda::{HttpSettings, SigningSecret};
    ///
    /// let secret: SigningSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?;
    /// let settings = HttpSettings::default().sign_with(secret);
    /// assert!(!format!("{settings:?}").contains("MfKQ"));
    /// # Ok::<(), requeue_lambda::InvalidSigningSecret>(())
    /// ```
    #[must_use]
    pub fn sign_with(mut self, secret: SigningSecret) -> Self {
        self.signing_secrets.push(secret);
        self
    }

    /// The certificate that a target over `https` is shown if it asks for one (mutual TLS).
    /// Default: none.
    #[must_use]
    pub fn client_certificate(self, certificate: ClientCertificate) -> Self {
        Self { client_certificate: Some(certificate), ..self }
    }

    /// The proxy through which a target over `https` is reached. Default: none;
    /// [`Config`](crate::Config) reads it from the environment.
    #[must_use]
    pub fn proxy(self, proxy: Proxy) -> Self {
        Self { proxy, ..self }
    }

    /// The `Content-Type` of messages that bring none. Default: `application/json` if the body
    /// begins like a JSON object or array, else `text/plain; charset=utf-8`.
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

    /// The longest wait for the head of the response, once there is a connection. Default: what is
    /// left of the [`timeout`](Self::timeout).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use requeue_lambda::HttpSettings;
    /// let settings = HttpSettings::default().read_timeout(Duration::from_secs(10));
    /// ```
    #[must_use]
    pub fn read_timeout(self, read_timeout: Duration) -> Self {
        Self { read_timeout: Some(read_timeout), ..self }
    }

    /// How long an unused connection is kept, by this machine's monotonic clock and by the
    /// [`clock`](Self::clock), whichever says it first: while Lambda freezes the environment, one
    /// of them may stand still. Should be below the time after which the target, or a proxy before
    /// it, closes its end. Default 4 s.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use requeue_lambda::HttpSettings;
    /// let settings = HttpSettings::default().idle_timeout(Duration::from_secs(50));
    /// ```
    #[must_use]
    pub fn idle_timeout(self, idle_timeout: Duration) -> Self {
        Self { idle_timeout, ..self }
    }

    /// HTTP/1.1 alone, also if the target offers HTTP/2. Default: the best that it offers. Only
    /// [`HttpTarget::new`] asks for it: a connector of another making decides for itself.
    ///
    /// ```
    /// # use requeue_lambda::HttpSettings;
    /// let settings = HttpSettings::default().http1_only();
    /// ```
    #[must_use]
    pub fn http1_only(self) -> Self {
        Self { http1_only: true, ..self }
    }

    /// The clock with which dates in an answer are compared that has no `Date` of its own, and by
    /// which requests are signed. Default: this machine's.
    #[must_use]
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }
}

/// Delivers messages to one URL over connections that it keeps for the next message.
///
/// Any 2xx is a success, as soon as its status is there: nobody waits for the body. Whatever else
/// is answered becomes a [`Failure`] as [`Failure::from_response`] describes, at the latest 2 s
/// after its head, by what there is of the body; no answer at all (no connection, no name, no
/// trust, no time) is a temporary one.
///
/// # Sent twice
///
/// A request is sent once more, on a new connection and at once, if the first connection
///
/// - had brought a response before, and was closed before a byte of this one came, as one does that
///   the target closed while Lambda had frozen the environment. The target may have worked on the
///   request, so this is done only where an `Idempotency-Key` goes along, which is missing in
///   messages without an id. Over HTTP/2 no request is sent once more while any response on the
///   connection has begun and not ended: it might be an interim response to this request;
/// - did not pass it on, by what the target or HTTP itself says: `REFUSED_STREAM`, `GOAWAY`,
///   `HTTP_1_1_REQUIRED` (then all connections are HTTP/1.1 from now on).
///
/// An event of the level `INFO` says so. The second failure counts; it is the first that says
/// something about the target.
///
/// A clone shares the connections.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use requeue_lambda::{Delivery, HttpSettings, HttpTarget, TargetUrl};
///
/// let target = HttpTarget::new(TargetUrl::parse("https://example.com/orders")?, HttpSettings::default())?;
/// if let Err(failure) = target.deliver(Delivery::new("1b5b-…", r#"{"order":7}"#)).await {
///     println!("{}: {}", failure.class(), failure.reason());
/// }
/// # Ok(()) }
/// ```
///
/// A target that wants an OAuth 2 token gets it from a handler that adds it. Getting it is the work
/// of a crate for that, such as `oauth2`; keep it until shortly before it expires.
///
/// ```no_run
/// use requeue_lambda::{Delivery, HttpTarget};
/// use requeue::{Failure, Message, ResultExt};
///
/// # async fn token() -> Result<String, std::io::Error> { Ok("token".to_owned()) }
/// async fn deliver(target: &HttpTarget, message: Message) -> Result<(), Failure> {
///     // No token, no call: the message is retried.
///     let token = token().await.temporary()?;
///     let delivery = Delivery {
///         retry_count: message.retry_count(),
///         receive_count: message.receive_count(),
///         ..Delivery::new(message.original_id().unwrap_or_default(), message.body().clone())
///     };
///     let delivery = delivery.header("Authorization", &format!("Bearer {token}")).non_retryable()?;
///     target.deliver(delivery).await
/// }
/// ```
#[derive(Clone)]
pub struct HttpTarget<C = TlsConnector> {
    url: TargetUrl,
    settings: HttpSettings,
    pool: Pool<C>,
}

impl HttpTarget {
    /// Over TCP and TLS with the root certificates of this machine, HTTP/2 where the target offers
    /// it.
    ///
    /// The environment variables `SSL_CERT_FILE` and `SSL_CERT_DIR` name other root certificates,
    /// which replace those of this machine. The AWS SDK reads them too.
    ///
    /// # Errors
    ///
    /// If the target is `https`, and there are no root certificates or the proxy's URL is not that
    /// of an HTTP proxy.
    pub fn new(url: TargetUrl, settings: HttpSettings) -> io::Result<Self> {
        let connectors = connector::for_url(&url, &settings)?;
        Ok(Self::with_connectors(url, settings, connectors))
    }
}

impl<C: Connector> HttpTarget<C> {
    /// Over connections of another making, in memory for example.
    pub fn with_connector(url: TargetUrl, settings: HttpSettings, connector: C) -> Self {
        Self::with_connectors(url, settings, Connectors { best: connector, http1: None })
    }

    fn with_connectors(url: TargetUrl, settings: HttpSettings, connectors: Connectors<C>) -> Self {
        let times = Times {
            connect: settings.connect_timeout,
            idle: settings.idle_timeout,
            clock: settings.clock.clone(),
        };
        let pool = Pool::new(Address::of(&url), connectors, times);
        Self { url, settings, pool }
    }

    /// The URL.
    #[must_use]
    pub fn url(&self) -> &TargetUrl {
        &self.url
    }

    /// Delivers one message. Dropping the future abandons the request, and closes its connection
    /// or, over HTTP/2, its stream.
    pub async fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Failure> {
        let deadline = Instant::now() + self.settings.timeout.min(LONGEST_TIMEOUT);
        let mut is_repeated = false;
        loop {
            // Anew, since a signature says when it was made.
            let headers = header::assemble(&self.settings, &delivery)?;
            let has_key = headers.contains_key(header::IDEMPOTENCY_KEY);
            let request = Outgoing {
                method: self.settings.method.clone(),
                headers,
                body: delivery.body.clone(),
            };
            let connecting =
                async { if is_repeated { self.pool.open().await } else { self.pool.get().await } };
            let connected =
                timeout_at(deadline, connecting).await.unwrap_or_else(|_| Err(TimedOut.into()));
            let mut connection = connected.map_err(|error| transport::not_connected(&*error))?;
            let until = self.settings.read_timeout.map_or(deadline, |limit| {
                deadline.min(Instant::now() + limit.min(LONGEST_TIMEOUT))
            });
            let lost = match connection.send(request, self.pool.address(), until).await {
                Ok(received) => return self.judge(connection, received, deadline).await,
                Err(lost) => lost,
            };
            self.pool.forget(&connection);
            let is_possible = match lost.repeat {
                Repeat::Never => false,
                Repeat::WithKey => has_key,
                Repeat::Always => true,
                Repeat::OverHttp1 => self.pool.use_http1(),
            };
            if is_repeated || !is_possible {
                // Of a connection that broke nothing is known but that.
                let is_silent = lost.repeat == Repeat::WithKey;
                let evidence = if is_silent { Evidence::Connection } else { Evidence::Typed };
                return Err(transport::not_answered(&*lost.error, evidence));
            }
            is_repeated = true;
            let reason = transport::reason(&*lost.error).unwrap_or_default();
            tracing::info!(
                reason,
                "the connection broke before the response: sending the request on a new one"
            );
        }
    }

    /// What a response means. The status decides: whatever becomes of the body of a 2xx, the work
    /// is done, and to send the message again would do it twice.
    async fn judge(
        &self,
        connection: Connection,
        received: Received,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let Received { head, body } = received;
        if head.status.is_success() {
            // Without a body there is nothing left of the connection either.
            if body.is_some() {
                self.pool.give_back(connection, body);
            }
            return Ok(());
        }
        let mut bytes = Vec::new();
        if let Some(body) = body
            && read_beginning(body, &mut bytes, deadline.min(Instant::now() + BODY_PATIENCE)).await
        {
            self.pool.give_back(connection, None);
        }
        Err(self.failure(&head, &bytes))
    }

    fn failure(&self, head: &response::Parts, body: &[u8]) -> Failure {
        let headers: Vec<(&str, &[u8])> =
            head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let response = Response { status: head.status.as_u16(), headers: &headers, body };
        Failure::from_response(&response, self.settings.clock.now())
    }
}

impl<C: Connector> Handler for HttpTarget<C> {
    async fn handle(&self, message: Message) -> Result<(), Failure> {
        let content_type = match message
            .attributes()
            .get(CONTENT_TYPE_ATTRIBUTE)
            .map(|attribute| &attribute.value)
        {
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
        f.debug_struct("HttpTarget")
            .field("url", &self.url)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Reads the beginning of a body, until then or until the handler is about to be cancelled. `true`
/// if that is all of it: a body that was read to its end leaves its connection fit for the next
/// message.
async fn read_beginning(mut body: Incoming, bytes: &mut Vec<u8>, until: Instant) -> bool {
    loop {
        let frame = poll_fn(|context| match Pin::new(&mut body).poll_frame(context) {
            Poll::Ready(frame) => Poll::Ready(Some(frame)),
            Poll::Pending if is_last_poll() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let frame = match timeout_at(until, frame).await {
            Ok(Some(Some(Ok(frame)))) => frame,
            Ok(Some(None)) => return true,
            Ok(Some(Some(Err(_))) | None) | Err(_) => return false,
        };
        let data = frame.into_data().unwrap_or_default();
        let room = MAX_BODY_BYTES - bytes.len();
        bytes.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return false;
        }
    }
}

#[cfg(test)]
mod tests;
