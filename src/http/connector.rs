//! How a connection is opened: by TCP and TLS, or whatever a test puts in their place.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use ::http::Uri;
use hyper::rt::{Read, Write};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore};
use tower::Service;

use super::TargetUrl;
use super::connection::BoxError;
use super::pool::Connectors;

/// TCP, with TLS on top for `https`.
pub type TlsConnector = HttpsConnector<HttpConnector>;

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

/// The connectors for `url`. The root certificates are loaded here and not at the first message, and only where they are needed.
pub(super) fn for_url(url: &TargetUrl, http1_only: bool) -> io::Result<Connectors<TlsConnector>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = if url.is_https() { trusting_this_machine(provider)? } else { trusting_nobody(provider)? };
    let http1 = over_tls(tls.clone(), url, false);
    let best = if http1_only { http1.clone() } else { over_tls(tls, url, true) };
    Ok(Connectors { best, http1: Some(http1) })
}

fn over_tls(tls: ClientConfig, url: &TargetUrl, with_http2: bool) -> TlsConnector {
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls);
    let builder = if url.is_https() { builder.https_only() } else { builder.https_or_http() }.enable_http1();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    if with_http2 { builder.enable_http2().wrap_connector(tcp) } else { builder.wrap_connector(tcp) }
}

fn trusting_this_machine(provider: Arc<CryptoProvider>) -> io::Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(builder.map_err(io::Error::other)?.with_native_roots()?.with_no_client_auth())
}

fn trusting_nobody(provider: Arc<CryptoProvider>) -> io::Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(builder.map_err(io::Error::other)?.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// Over TCP, and over TLS that trusts nobody.
#[cfg(all(test, feature = "embedded"))]
pub(super) fn without_roots() -> TlsConnector {
    let url = TargetUrl::parse("http://localhost/").expect("it is loopback");
    for_url(&url, false).expect("http needs no certificates").best
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
