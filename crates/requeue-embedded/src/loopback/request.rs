//! Reads requests: whole bodies within bounds, for names of this machine only, and from no page of
//! another origin.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long the body of a request may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) type RefusedRequest = (StatusCode, &'static str);

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

const OTHER_MACHINE: RefusedRequest =
    (StatusCode::FORBIDDEN, "the header Host names another machine: ask 127.0.0.1 or localhost");
const OTHER_ORIGIN: RefusedRequest = (
    StatusCode::FORBIDDEN,
    "a web page of another origin makes the request: send it from a program",
);
const TOO_LARGE: RefusedRequest = (StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
const TOO_SLOW: RefusedRequest = (StatusCode::REQUEST_TIMEOUT, "the body takes too long");
const UNREADABLE: RefusedRequest = (StatusCode::BAD_REQUEST, "the body cannot be read");
const NO_ROOM: RefusedRequest =
    (StatusCode::SERVICE_UNAVAILABLE, "too many large bodies at once: try again");

/// The bound of a request's body, and the room for all bodies.
#[derive(Clone)]
pub(super) struct RequestReader {
    pub(super) max_body: usize,
    /// The room for the bodies of all connections.
    pub(super) room: Arc<Semaphore>,
}

impl RequestReader {
    /// The request with its whole body, or the reason why it is refused. There is room for the body
    /// as long as the permit is held.
    pub(super) async fn read(
        &self,
        request: Request<Incoming>,
    ) -> Result<(Request<Bytes>, Option<OwnedSemaphorePermit>), RefusedRequest> {
        if !is_for_this_machine(request.headers()) {
            return Err(OTHER_MACHINE);
        }
        if !is_of_own_origin(request.headers()) {
            return Err(OTHER_ORIGIN);
        }
        let (head, body) = request.into_parts();
        if body.size_hint().lower() > u64::try_from(self.max_body).unwrap_or(u64::MAX) {
            return Err(TOO_LARGE);
        }
        let (body, permit) =
            timeout(BODY_TIMEOUT, self.collect(body)).await.unwrap_or(Err(TOO_SLOW))?;
        Ok((Request::from_parts(head, body), permit))
    }

    /// Takes room for the bytes that arrived, not for the announced length, so that no slow request
    /// holds up others.
    async fn collect(
        &self,
        mut body: Incoming,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), RefusedRequest> {
        let (mut bytes, mut held) = (BytesMut::new(), None::<OwnedSemaphorePermit>);
        while let Some(frame) = body.frame().await {
            let data = frame.map_err(|_| UNREADABLE)?.into_data().unwrap_or_default();
            if data.len() > self.max_body - bytes.len() {
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
        Ok((bytes.freeze(), held))
    }
}

/// Refuses a request without reading the rest of it.
pub(super) fn refusal(status: StatusCode, why: &'static str) -> io::Result<Response<Full<Bytes>>> {
    let response = Response::builder().status(status).header(header::CONNECTION, "close");
    response.body(Full::from(format!("{why}\n"))).map_err(io::Error::other)
}

/// Whether a request names this machine as its host. A web page can point its own name to a
/// loopback address. To the browser, the server's responses are then the page's own, and the page
/// can read them. But the browser still sends that name. The port does not matter, since it may be
/// forwarded.
pub(super) fn is_for_this_machine(headers: &HeaderMap) -> bool {
    headers.get_all(header::HOST).iter().all(|host| {
        let host = host.to_str().unwrap_or_default();
        host.parse::<Authority>()
            .is_ok_and(|authority| !host.contains('@') && is_loopback(authority.host()))
    })
}

/// Whether no web page of another origin makes the request. A page needs no permission to make one,
/// only to read the response. But a browser names the page's origin with each request that may
/// change something. With the others, as for an image, it says how the page relates to the server.
pub(super) fn is_of_own_origin(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let is_own = |origin: &[u8]| {
        origin
            .strip_prefix(b"http://")
            .is_some_and(|of_page| host.is_some_and(|host| of_page.eq_ignore_ascii_case(host)))
    };
    headers.get_all(header::ORIGIN).iter().all(|origin| is_own(origin.as_bytes()))
        && headers
            .get_all(SEC_FETCH_SITE)
            .iter()
            .all(|site| site == "same-origin" || site == "none")
}

fn is_loopback(name: &str) -> bool {
    let v6 = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let name = name.to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback())
        || v6.is_some_and(|name| name.parse().is_ok_and(|address: Ipv6Addr| address.is_loopback()))
}
