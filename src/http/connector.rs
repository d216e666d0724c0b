//! Connections: TCP and TLS, or whatever a test puts in their place, within a time-out.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::Uri;
use hyper::rt::{Read, Write};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore};
use tower::Service;

use super::TargetUrl;

/// TCP, with TLS on top for `https`.
pub type TlsConnector = HttpsConnector<HttpConnector>;

type BoxError = Box<dyn Error + Send + Sync>;

/// What opens connections for an [`HttpTarget`](super::HttpTarget): any cloneable [`Service`] from a URI to a stream that hyper can use.
pub trait Connector:
    Service<
        Uri,
        Response: Read + Write + Connection + Unpin + Send + 'static,
        Error: Into<BoxError>,
        Future: Send + 'static,
    > + Clone
    + Send
    + Sync
    + 'static
{
}

impl<C> Connector for C where
    C: Service<
            Uri,
            Response: Read + Write + Connection + Unpin + Send + 'static,
            Error: Into<BoxError>,
            Future: Send + 'static,
        > + Clone
        + Send
        + Sync
        + 'static
{
}

/// The connector for `url`. The root certificates are loaded here and not at the first message, and only where they are needed.
pub(super) fn for_url(url: &TargetUrl) -> io::Result<TlsConnector> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = HttpsConnectorBuilder::new();
    let builder = if url.is_https() {
        builder.with_provider_and_native_roots(provider)?.https_only()
    } else {
        builder.with_tls_config(trusting_nobody(provider)?).https_or_http()
    };
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    Ok(builder.enable_http1().enable_http2().wrap_connector(tcp))
}

fn trusting_nobody(provider: Arc<CryptoProvider>) -> io::Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(builder.map_err(io::Error::other)?.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// Over TCP, and over TLS that trusts nobody.
#[cfg(all(test, feature = "embedded"))]
pub(super) fn without_roots() -> TlsConnector {
    let url = TargetUrl::parse("http://localhost/").expect("it is loopback");
    for_url(&url).expect("http needs no certificates")
}

/// A connector that does not take longer than it may, name look-up and TLS included.
#[derive(Clone)]
pub(super) struct Bounded<C> {
    inner: C,
    limit: Duration,
}

impl<C> Bounded<C> {
    pub(super) fn new(inner: C, limit: Duration) -> Self {
        Self { inner, limit }
    }
}

impl<C: Connector> Service<Uri> for Bounded<C> {
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = tokio::time::timeout(self.limit, self.inner.call(uri));
        Box::pin(async move {
            match connecting.await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => Err(ConnectTimedOut.into()),
            }
        })
    }
}

/// No connection in time.
#[derive(Debug)]
pub(super) struct ConnectTimedOut;

impl fmt::Display for ConnectTimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("connect timed out")
    }
}

impl Error for ConnectTimedOut {}
