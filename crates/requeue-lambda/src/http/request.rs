//! A request, and the forms of its URI in HTTP.

use ::http::header::{HeaderMap, HeaderValue};
use ::http::uri::{PathAndQuery, Uri};
use ::http::{Method, Request};
use bytes::Bytes;
use http_body_util::Full;

use super::TargetUrl;

/// The destination of requests, in the forms of HTTP.
pub(super) struct Address {
    /// With scheme and host, for HTTP/2 and proxies.
    pub(super) absolute: Uri,
    /// Path and query.
    pub(super) origin: Uri,
    pub(super) host: HeaderValue,
}

impl Address {
    pub(super) fn of(url: &TargetUrl) -> Self {
        let absolute = url.uri().clone();
        let path =
            absolute.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let authority = absolute.authority().expect("a target URL has a host").as_str();
        let default_port = if url.is_https() { ":443" } else { ":80" };
        let host = authority.strip_suffix(default_port).unwrap_or(authority);
        Self {
            origin: path.into(),
            host: HeaderValue::from_str(host).expect("a host is ASCII"),
            absolute,
        }
    }

    /// Scheme and host alone, for connectors.
    pub(super) fn root(&self) -> Uri {
        let mut parts = self.absolute.clone().into_parts();
        parts.path_and_query = Some(PathAndQuery::from_static("/"));
        Uri::from_parts(parts).expect("only the path was replaced")
    }
}

/// A request; the connection fills in its target.
pub(super) struct Unaddressed {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Unaddressed {
    pub(super) fn to(self, uri: Uri) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body));
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) =
            (self.method, uri, self.headers);
        request
    }
}
