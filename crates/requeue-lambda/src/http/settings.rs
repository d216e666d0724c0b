//! The delivery settings: plain data with defaults.

use std::time::Duration;

use ::http::header::HeaderMap;
use ::http::{HeaderName, HeaderValue, Method};
use requeue::Clock;
use requeue::policy::MessageKey;

use super::header::{self, HeaderError};
use super::{ClientCertificate, Proxy, SigningSecret};

/// Default for the whole delivery, from connecting to the end of the response.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// Default for connecting, with TLS. A name look-up, one lost packet and two round trips around the
/// world fit into this time, so a host that needs longer is down.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Default lifetime of an unused connection. Node closes its own after 5 s, most other servers
/// later. Writing into a connection that the other side has just closed costs a second request.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// The delivery settings: method, headers, timeouts and signatures. Begin with the defaults and assign.
///
/// ```
/// use std::time::Duration;
/// use requeue_lambda::HttpSettings;
///
/// let mut settings = HttpSettings::default().header("Authorization", "Bearer 2sTa1V")?;
/// settings.timeout = Duration::from_secs(10);
/// assert!(!format!("{settings:?}").contains("2sTa1V"));
/// # Ok::<(), requeue_lambda::HeaderError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HttpSettings {
    /// Default POST.
    pub method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) attribute_headers: Vec<(String, HeaderName)>,
    /// Messages with the same value at this place share a pause, a circuit and a rate limit. Those
    /// without a value share one of their own. Default: all messages share one.
    pub scope: Option<MessageKey>,
    /// Signs each request as [Standard Webhooks](https://www.standardwebhooks.com) specifies, with
    /// `webhook-timestamp` and `webhook-signature`. While one secret replaces another, give both:
    /// the target accepts a request if it knows either. A message without an id, or with a dot in
    /// its id, is then non-retryable. Default: none.
    pub signing_secrets: Vec<SigningSecret>,
    /// The certificate for a target over `https` that asks for one (mutual TLS). Default: none.
    pub client_certificate: Option<ClientCertificate>,
    /// The proxy for a target over `https`. Default: none; [`Config`](crate::Config) reads it from
    /// the environment.
    pub proxy: Proxy,
    pub(crate) content_type: Option<HeaderValue>,
    /// The longest delivery, from connecting to the end of the response. Default 30 s.
    pub timeout: Duration,
    /// The longest time to connect, with TLS. Default 5 s.
    pub connect_timeout: Duration,
    /// The longest wait for the head of the response, once there is a connection. Default: the rest
    /// of the `timeout`.
    pub read_timeout: Option<Duration>,
    /// The lifetime of an unused connection. It ends as soon as this machine's monotonic clock or
    /// the `clock` says so, since one of them may stand still while Lambda freezes the environment.
    /// Set less than the time after which the target, or a proxy before it, closes its end. Default
    /// 4 s.
    pub idle_timeout: Duration,
    /// Uses HTTP/1.1 even if the target offers HTTP/2. Default: the best version that it offers. It
    /// applies to [`HttpTarget::new`](super::HttpTarget::new); another connector decides for
    /// itself.
    pub http1_only: bool,
    /// The clock for signatures, and for dates in a response without a `Date`. Default: this
    /// machine's.
    pub clock: Clock,
}

impl Default for HttpSettings {
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
    /// A header to send with every message. Its value counts as a secret and is never printed.
    /// Headers that Requeue or HTTP itself sets are refused, `User-Agent` excepted.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, HeaderError> {
        let (name, value) = header::parse(name, value)?;
        self.headers.append(name, value);
        Ok(self)
    }

    /// A header with the value of a message attribute of the type `String` or `Number`. A message
    /// without the attribute gets the header of this name from [`header`](Self::header), or none. A
    /// message is non-retryable if the attribute does not fit into a header (it is binary, or has a
    /// control character).
    pub fn attribute_header(mut self, attribute: &str, header: &str) -> Result<Self, HeaderError> {
        self.attribute_headers.push((attribute.to_owned(), header::parse_name(header)?));
        Ok(self)
    }

    /// The `Content-Type` of messages without one. Default: `application/json` if the body begins
    /// like a JSON object or array, else `text/plain; charset=utf-8`.
    pub fn content_type(self, content_type: &str) -> Result<Self, HeaderError> {
        let content_type = Some(header::content_type(content_type)?);
        Ok(Self { content_type, ..self })
    }
}
