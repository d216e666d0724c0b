//! How messages are delivered over HTTP: plain data with defaults.

use std::time::Duration;

use ::http::header::HeaderMap;
use ::http::{HeaderName, HeaderValue, Method};
use requeue::Clock;

use super::header::{self, HeaderError};
use super::{ClientCertificate, Proxy, ScopeKey, SigningSecret};

/// Default for the whole delivery, from connecting to the end of the response.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// Default for connecting, TLS included. A host that does not respond for so long is down: a name
/// look-up, one lost packet and two round trips around the world fit in.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Default for how long an unused connection is kept. Node closes its own after 5 s, most other
/// servers later; to write into one that the other side has just closed costs a second request.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

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

    /// The longest a delivery may take, from connecting to the end of the response. Default 30 s.
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
    /// [`HttpTarget::new`](super::HttpTarget::new) asks for it: a connector of another making decides for itself.
    ///
    /// ```
    /// # use requeue_lambda::HttpSettings;
    /// let settings = HttpSettings::default().http1_only();
    /// ```
    #[must_use]
    pub fn http1_only(self) -> Self {
        Self { http1_only: true, ..self }
    }

    /// The clock with which dates in a response are compared that has no `Date` of its own, and by
    /// which requests are signed. Default: this machine's.
    #[must_use]
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }
}
