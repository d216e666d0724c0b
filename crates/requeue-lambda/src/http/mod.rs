//! Delivery over HTTP: the handler sends each message to one fixed URL, and the response decides
//! whether the message was delivered.
//!
//! The handler trusts the target with messages and with nothing else. It follows no redirect,
//! decompresses nothing, and bounds the size and the time of a response. It knows nothing of queues
//! and decides no retry; the library classifies responses.

use std::io;
use std::time::{Duration, SystemTime};

use ::http::response::Parts;
use ::http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use requeue::classify::{Response, names_status};
use requeue::queue::AttributeValue;
use requeue::{Evidence, Failure, Handler, Message, Scope};
use tokio::time::{Instant, timeout_at};

use crate::before_last_poll;

mod certificate;
mod connection;
mod connector;
mod delivery;
mod frames;
mod header;
mod pool;
mod proxy;
mod request_headers;
mod rules;
pub(crate) mod scope;
mod settings;
mod signature;
mod status_line;
mod transport;
mod url;
mod watched;

pub use certificate::{ClientCertificate, InvalidClientCertificate};
use connection::{Connection, Received, Repeat, TimedOut};
use connector::Connectors;
pub use connector::{Connector, TlsConnector};
pub(crate) use connector::{tcp, tls};
pub use delivery::Delivery;
pub use header::HeaderError;
use pool::Pool;
pub use proxy::Proxy;
pub use rules::{TargetRules, TargetUrlError};
pub use settings::HttpSettings;
pub use signature::{InvalidSigningSecret, SigningSecret};
use url::Address;
pub use url::TargetUrl;

const CONTENT_TYPE_ATTRIBUTE: &str = "Body.ContentType";
/// It replaces a timeout that means "none", so that the sum with any instant is in range.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// The part of a response's body that is read: enough for all error descriptions of providers.
const MAX_BODY_BYTES: usize = 16 * 1024;
/// The interim responses to a request. Real ones have a few links to preload.
const MAX_INTERIM_BYTES: usize = 16 * 1024;
/// The header of a response with the units of a rate limit that the call used.
const UNITS: &str = "requeue-units";
/// The longest wait for the body of a response whose status is known.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// Delivers messages to one URL over connections that it keeps for the next message.
///
/// Any 2xx except a [challenge](Response::challenge) of a firewall is a success as soon as its
/// status arrives. Requeue waits for its body only if a [rule](requeue::classify::Rules) names the
/// status. Any other response becomes a [`Failure`], as [`Failure::from_response`] describes.
/// Requeue reads the part of its body that arrives within 2 s after the head. Without a response
/// (no connection, unknown host name, untrusted certificate, timeout), the failure is temporary. If
/// the target may have got the request, it is [in doubt](Failure::is_in_doubt).
///
/// # Sent twice
///
/// Requeue sends a request a second time, immediately and on a new connection, in two cases:
///
/// - The connection had delivered a response before, and was closed before the first byte of this
///   response. This happens when the target closes a connection while Lambda has frozen the
///   environment. The target may have worked on the request, so Requeue resends only requests with
///   an `Idempotency-Key`. A message without an id has no such key. Over HTTP/2, Requeue resends
///   nothing while any response on the connection has begun and not ended: that response might be
///   an interim response to this request.
/// - A signal of the target or of HTTP shows that the target did not process the request:
///   `REFUSED_STREAM`, `GOAWAY`, `HTTP_1_1_REQUIRED` (all later connections are then HTTP/1.1).
///
/// With a rate limit, each request needs a reservation. So Requeue sends none twice, and
/// [postpones](Failure::postpone) the message, unless the first request was never written.
///
/// An event of the level `INFO` reports the second request. If that request fails too, its failure
/// counts, because the first failure is no evidence about the target.
///
/// A clone shares the connections.
///
/// For a target with OAuth 2, let your handler add the token. Get it with a crate such as `oauth2`,
/// and keep it until shortly before it expires.
///
/// ```no_run
/// use requeue_lambda::{Delivery, HttpTarget};
/// use requeue::{Failure, Message, ResultExt};
///
/// # async fn token() -> Result<String, std::io::Error> { Ok("token".to_owned()) }
/// async fn deliver(target: &HttpTarget, message: Message) -> Result<(), Failure> {
///     // No token, no call: the message is retried.
///     let token = token().await.temporary()?;
///     let id = message.original_id().unwrap_or_default();
///     let mut delivery = Delivery::new(id, message.body().clone());
///     delivery.retry_count = message.retry_count();
///     delivery.receive_count = message.receive_count();
///     let delivery = delivery.header("Authorization", &format!("Bearer {token}")).non_retryable()?;
///     target.deliver(delivery).await
/// }
/// ```
#[derive(Clone)]
pub struct HttpTarget<C = TlsConnector> {
    url: TargetUrl,
    pool: Pool<C>,
}

impl HttpTarget {
    /// Connects over TCP and TLS with the root certificates of this machine, and with HTTP/2 if the
    /// target offers it.
    ///
    /// The environment variables `SSL_CERT_FILE` and `SSL_CERT_DIR` name other root certificates,
    /// which replace those of this machine. The AWS SDK reads them too.
    ///
    /// # Errors
    ///
    /// For an `https` target: if there are no root certificates, or if the proxy's URL is not that
    /// of an HTTP proxy.
    pub fn new(url: TargetUrl, settings: HttpSettings) -> io::Result<Self> {
        let connectors = connector::for_url(&url, &settings)?;
        Ok(Self::with_connectors(url, settings, connectors))
    }
}

impl<C: Connector> HttpTarget<C> {
    /// Uses connections of another connector, for example in memory.
    pub fn with_connector(url: TargetUrl, settings: HttpSettings, connector: C) -> Self {
        Self::with_connectors(url, settings, Connectors { best: connector, http1: None })
    }

    fn with_connectors(url: TargetUrl, settings: HttpSettings, connectors: Connectors<C>) -> Self {
        let pool = Pool::new(Address::of(&url), connectors, settings);
        Self { url, pool }
    }

    /// The URL.
    pub fn url(&self) -> &TargetUrl {
        &self.url
    }

    /// Delivers one message. Dropping the future abandons the request, and closes its connection
    /// or, over HTTP/2, its stream.
    pub async fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Failure> {
        self.deliver_showing(delivery, |_| ()).await
    }

    async fn deliver_showing(
        &self,
        delivery: Delivery<'_>,
        show: impl Fn(&Parts),
    ) -> Result<(), Failure> {
        let mut is_in_doubt = false;
        let delivered = self.send(&delivery, &mut is_in_doubt, show).await;
        delivered.map_err(|failure| if is_in_doubt { failure.in_doubt() } else { failure })
    }

    /// Delivers one message. It is in doubt if the target may still work on a request that it got.
    async fn send(
        &self,
        delivery: &Delivery<'_>,
        is_in_doubt: &mut bool,
        show: impl Fn(&Parts),
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + self.pool.settings().timeout.min(LONGEST_TIMEOUT);
        let mut is_repeated = false;
        loop {
            // Assembled for each attempt, since a signature contains the time of signing.
            let headers = request_headers::assemble(self.pool.settings(), delivery)?;
            let has_key = headers.contains_key(request_headers::IDEMPOTENCY_KEY);
            let mut request = Request::new(Full::new(delivery.body.clone()));
            *request.method_mut() = self.pool.settings().method.clone();
            *request.headers_mut() = headers;
            let connecting =
                async { if is_repeated { self.pool.open().await } else { self.pool.get().await } };
            let connected =
                timeout_at(deadline, connecting).await.unwrap_or_else(|_| Err(TimedOut.into()));
            let mut connection = connected.map_err(|error| transport::not_connected(&*error))?;
            let until = self.pool.settings().read_timeout.map_or(deadline, |limit| {
                deadline.min(Instant::now() + limit.min(LONGEST_TIMEOUT))
            });
            let lost = match connection.send(request, self.pool.address(), until).await {
                Ok(received) => {
                    show(&received.head);
                    return self.judge(connection, received, deadline).await;
                }
                Err(lost) => lost,
            };
            self.pool.forget(&connection);
            *is_in_doubt |= matches!(lost.repeat, Repeat::Never | Repeat::WithKey);
            let is_possible = match lost.repeat {
                Repeat::Never => false,
                Repeat::WithKey => has_key,
                Repeat::Always | Repeat::Unsent => true,
                Repeat::OverHttp1 => self.pool.use_http1(),
            };
            if is_repeated || !is_possible {
                // A broken connection gives no other details.
                let is_silent = lost.repeat == Repeat::WithKey;
                let evidence = if is_silent { Evidence::Connection } else { Evidence::Typed };
                return Err(transport::no_response(&*lost.error, evidence));
            }
            tracing::info!(
                detail = transport::reason(&*lost.error).unwrap_or_default(),
                "the connection broke before the response: sending the request again"
            );
            if delivery.is_rate_limited && lost.repeat != Repeat::Unsent {
                // A request has a reservation of the limit. The next attempt gets another one.
                return Err(Failure::postpone(Duration::ZERO).by(Evidence::Connection));
            }
            is_repeated = true;
        }
    }

    /// Classifies a response by its status. After a 2xx the work is done even if its body fails,
    /// and sending the message again would repeat the work.
    async fn judge(
        &self,
        connection: Connection,
        received: Received,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let Received { head, body } = received;
        let is_success = head.status.is_success();
        let headers = values(&head.headers);
        let response = Response { status: head.status.as_u16(), headers: &headers, body: b"" };
        if is_success && !names_status(response.status) && response.challenge().is_none() {
            // Without the body, the connection cannot be used again.
            if body.is_some() {
                self.pool.give_back(connection, body);
            }
            return Ok(());
        }
        let mut bytes = Vec::new();
        if let Some(body) = body
            && read_beginning(body, &mut bytes, deadline.min(Instant::now() + BODY_TIMEOUT)).await
        {
            self.pool.give_back(connection, None);
        }
        let response = Response { body: &bytes, ..response };
        let now = self.pool.settings().clock.now();
        if is_success {
            return Failure::from_success(&response, now).map_or(Ok(()), Err);
        }
        Err(Failure::from_response(&response, now))
    }
}

fn show(head: &Parts, message: &Message, now: SystemTime) {
    let units = || head.headers.get(UNITS)?.to_str().ok()?.trim().parse().ok();
    if let Some(units) = units() {
        message.used(units);
    }
    if message.is_rate_limited() {
        let headers = values(&head.headers);
        let status = head.status.as_u16();
        message.note_response(&Response { status, headers: &headers, body: b"" }, now);
    }
}

fn values(headers: &HeaderMap) -> Vec<(&str, &[u8])> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}

impl<C: Connector> Handler for HttpTarget<C> {
    type Error = Failure;

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
            is_rate_limited: message.is_rate_limited(),
            headers: request_headers::of_message(self.pool.settings(), &message)?,
            ..Delivery::new(message.original_id().unwrap_or_default(), message.body().clone())
        };
        let now = || self.pool.settings().clock.now();
        self.deliver_showing(delivery, |head| show(head, &message, now())).await
    }

    fn scope(&self, message: &Message) -> Scope {
        scope::of(self.pool.settings().scope.as_ref(), message)
    }
}

requeue::debug_by_name!(HttpTarget<C>; |it| url: it.url, settings: it.pool.settings());

/// Until the time `until` or the last poll before the handler is cancelled. Returns `true` after a
/// complete body: only then can the connection take the next message.
async fn read_beginning(mut body: Incoming, bytes: &mut Vec<u8>, until: Instant) -> bool {
    loop {
        let frame = match timeout_at(until, before_last_poll(body.frame())).await {
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
