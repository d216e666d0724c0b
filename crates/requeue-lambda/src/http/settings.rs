//! The delivery settings: plain data with defaults.

use std::time::Duration;

use ::http::header::HeaderMap;
use ::http::{HeaderName, HeaderValue, Method};
use requeue::Clock;

use super::header::{self, HeaderError};
use super::{ClientCertificate, Proxy, ScopeKey, SigningSecret};

/// Default for the whole delivery, from connecting to the end of the response.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// Default for connecting, with TLS. A name look-up, one lost packet and two round trips around the
/// world fit into this time, so a host that needs longer is down.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Default lifetime of an unused connection. Node closes its own after 5 s, most other servers
/// later. Writing into a connection that the other side has just closed costs a second request.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// The delivery settings: method, headers, timeouts and signatures.
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
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) attribute_headers: Vec<(String, HeaderName)>,
    pub(super) scope: Option<ScopeKey>,
    pub(super) signing_secrets: Vec<SigningSecret>,
    pub(super) client_certificate: Option<ClientCertificate>,
    pub(super) proxy: Proxy,
    pub(super) content_type: Option<HeaderValue>,
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) read_timeout: Option<Duration>,
    pub(super) idle_timeout: Duration,
    pub(super) http1_only: bool,
    pub(super) clock: Clock,
}

impl Default for HttpSettings {
    /// POST, only Requeue's own headers, no signature, 5 s to connect, 30 s in all, and 4 s for
    /// unused connections.
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
    /// A method other than POST.
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

    /// The key of the messages that share a pause and a circuit. Default: all messages share one.
    #[must_use]
    pub fn scope(self, key: ScopeKey) -> Self {
        Self { scope: Some(key), ..self }
    }

    /// A header with the value of a message attribute of the type `String` or `Number`. A message
    /// without the attribute gets the header of this name from [`header`](Self::header), or none. A
    /// message is non-retryable if the attribute does not fit into a header (it is binary, or has a
    /// control character).
    pub fn attribute_header(mut self, attribute: &str, header: &str) -> Result<Self, HeaderError> {
        self.attribute_headers.push((attribute.to_owned(), header::parse_name(header)?));
        Ok(self)
    }

    /// Signs each request as [Standard Webhooks](https://www.standardwebhooks.com) specifies, with
    /// `webhook-timestamp` and `webhook-signature`. While one secret replaces another, give both:
    /// the target accepts a request if it knows either. A message without an id, or with a dot in
    /// its id, is then non-retryable.
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

    /// The certificate for a target over `https` that asks for one (mutual TLS). Default: none.
    #[must_use]
    pub fn client_certificate(self, certificate: ClientCertificate) -> Self {
        Self { client_certificate: Some(certificate), ..self }
    }

    /// The proxy for a target over `https`. Default: none; [`Config`](crate::Config) reads it from
    /// the environment.
    #[must_use]
    pub fn proxy(self, proxy: Proxy) -> Self {
        Self { proxy, ..self }
    }

    /// The `Content-Type` of messages without one. Default: `application/json` if the body begins
    /// like a JSON object or array, else `text/plain; charset=utf-8`.
    pub fn content_type(self, content_type: &str) -> Result<Self, HeaderError> {
        let content_type = Some(header::content_type(content_type)?);
        Ok(Self { content_type, ..self })
    }

    /// The longest delivery, from connecting to the end of the response. Default 30 s.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The longest time to connect, with TLS. Default 5 s.
    #[must_use]
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// The longest wait for the head of the response, once there is a connection. Default: the rest
    /// of the [`timeout`](Self::timeout).
    #[must_use]
    pub fn read_timeout(self, read_timeout: Duration) -> Self {
        Self { read_timeout: Some(read_timeout), ..self }
    }

    /// The lifetime of an unused connection, by this machine's monotonic clock or the
    /// [`clock`](Self::clock), whichever ends it first: while Lambda freezes the environment, one
    /// of them may stand still. Set less than the time after which the target, or a proxy before
    /// it, closes its end. Default 4 s.
    #[must_use]
    pub fn idle_timeout(self, idle_timeout: Duration) -> Self {
        Self { idle_timeout, ..self }
    }

    /// Uses HTTP/1.1 even if the target offers HTTP/2. Default: the best version that it offers. It
    /// applies to [`HttpTarget::new`](super::HttpTarget::new); another connector decides for
    /// itself.
    #[must_use]
    pub fn http1_only(self) -> Self {
        Self { http1_only: true, ..self }
    }

    /// The clock for signatures, and for dates in a response without a `Date`. Default: this
    /// machine's.
    #[must_use]
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }
}
