//! Reads requests: whole bodies within bounds, for names of this machine, from no foreign page.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::{Activity, Bounds, ResponseOf};

/// How long the body of a request may take; a slower one gets 408.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The status and the reason for which a request is refused.
pub type Refusal = (StatusCode, &'static str);

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

const OTHER_MACHINE: Refusal = (
    StatusCode::MISDIRECTED_REQUEST,
    "the header Host names another machine or port: ask 127.0.0.1 or localhost",
);
const OTHER_ORIGIN: Refusal = (
    StatusCode::FORBIDDEN,
    "a web page of another origin makes the request: send it from a program or the own page",
);
const TOO_LARGE: Refusal = (StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
const TOO_SLOW: Refusal = (StatusCode::REQUEST_TIMEOUT, "the body takes too long");
const UNREADABLE: Refusal = (StatusCode::BAD_REQUEST, "the body cannot be read");
const NO_ROOM: Refusal =
    (StatusCode::SERVICE_UNAVAILABLE, "too many large bodies at once: try again");

/// A request whose body has not been read.
pub struct UnreadRequest {
    /// Everything but the body.
    pub head: Parts,
    pub(super) body: Incoming,
    pub(super) reader: BodyReader,
    pub(super) activity: Activity,
    pub(super) response: ResponseOf,
}

impl UnreadRequest {
    /// The request with its whole body and, as an extension, its [`Trailers`], or why it is
    /// refused. The permit reserves the body's memory.
    pub async fn read(mut self) -> Result<(Request<Bytes>, Option<OwnedSemaphorePermit>), Refusal> {
        let (body, trailers, room) = self.reader.read(self.body).await?;
        self.response.get_or_init(|| self.activity.begin());
        self.head.extensions.insert(Trailers(trailers));
        Ok((Request::from_parts(self.head, body), room))
    }
}

/// The fields after a chunked body.
#[derive(Clone, Debug)]
pub struct Trailers(pub HeaderMap);

/// A body, its trailers, and its memory.
type ReadBody = (Bytes, HeaderMap, Option<OwnedSemaphorePermit>);

#[derive(Clone)]
pub(super) struct BodyReader {
    pub(super) bounds: Bounds,
    pub(super) room: Arc<Semaphore>,
}

impl BodyReader {
    async fn read(&self, body: Incoming) -> Result<ReadBody, Refusal> {
        if body.size_hint().lower() > u64::try_from(self.bounds.body).unwrap_or(u64::MAX) {
            return Err(TOO_LARGE);
        }
        timeout(BODY_TIMEOUT, self.collect(body)).await.unwrap_or(Err(TOO_SLOW))
    }

    /// Reserves memory for the bytes that arrived, so that a slow request does not block others.
    async fn collect(&self, mut body: Incoming) -> Result<ReadBody, Refusal> {
        let (mut bytes, mut held) = (BytesMut::new(), None::<OwnedSemaphorePermit>);
        let mut trailers = HeaderMap::new();
        while let Some(frame) = body.frame().await {
            let data = frame.map_err(|_| UNREADABLE)?.into_data().unwrap_or_else(|frame| {
                trailers = frame.into_trailers().unwrap_or_default();
                Bytes::new()
            });
            if data.len() > self.bounds.body - bytes.len() {
                return Err(TOO_LARGE);
            }
            let length = u32::try_from(data.len()).map_err(|_| TOO_LARGE)?;
            let permit =
                Arc::clone(&self.room).try_acquire_many_owned(length).map_err(|_| NO_ROOM)?;
            match &mut held {
                Some(held) => held.merge(permit),
                None => held = Some(permit),
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.freeze(), trailers, held))
    }
}

/// Refuses a request without reading the rest of it.
pub(super) fn refusal((status, why): Refusal) -> io::Result<Response<Full<Bytes>>> {
    let response = Response::builder().status(status).header(header::CONNECTION, "close");
    response.body(Full::from(format!("{why}\n"))).map_err(io::Error::other)
}

/// The names by which a request may call a server.
#[derive(Clone, Copy, Debug)]
pub enum Names {
    /// Any name of this machine. The port does not matter, since it may be forwarded.
    OfThisMachine,
    /// `127.0.0.1`, `localhost` or `[::1]`, with this port. The header `Host` may not be absent.
    WithPort(u16),
}

/// Whether a request names this machine as its host. A web page can point its own name to a
/// loopback address. To the browser, the server's responses are then the page's own, and the page
/// can read them. But the browser still sends that name.
pub fn check_host(headers: &HeaderMap, names: Names) -> Result<(), Refusal> {
    let is_of_this_machine = |host: &str| {
        host.parse::<Authority>()
            .is_ok_and(|authority| !host.contains('@') && is_loopback(authority.host()))
    };
    let has_port = |host: &str, port: u16| {
        let parts = host.rsplit_once(':');
        parts.is_some_and(|(name, its)| OWN_NAMES.contains(&name) && its == port.to_string())
    };
    let mut hosts =
        headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let is_own = match names {
        Names::OfThisMachine => hosts.all(is_of_this_machine),
        Names::WithPort(port) => {
            hosts.next().is_some_and(|host| has_port(host, port)) && hosts.next().is_none()
        }
    };
    if is_own { Ok(()) } else { Err(OTHER_MACHINE) }
}

const OWN_NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// Whether no web page of another origin makes the request. A page needs no permission to make one,
/// only to read the response. But a browser names the page's origin with each request that may
/// change something. With the others, as for an image, it names the relation of page and server.
pub fn check_origin(headers: &HeaderMap) -> Result<(), Refusal> {
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let is_own = |origin: &[u8]| {
        origin
            .strip_prefix(b"http://")
            .is_some_and(|of_page| host.is_some_and(|host| of_page.eq_ignore_ascii_case(host)))
    };
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    if origins.all(|origin| is_own(origin.as_bytes()))
        && sites.all(|site| site == "same-origin" || site == "none")
    {
        Ok(())
    } else {
        Err(OTHER_ORIGIN)
    }
}

/// Whether a host of a URL names this machine. Names are not resolved, but for those that each machine
/// keeps for itself (RFC 6761). An IPv6 address has its brackets.
pub fn is_loopback(name: &str) -> bool {
    let v6 = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let name = name.to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback())
        || v6.is_some_and(|name| name.parse().is_ok_and(|address: Ipv6Addr| address.is_loopback()))
}
