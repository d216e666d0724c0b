//! Opens connections: by TCP and TLS, or by a replacement in tests.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::Uri;
use hyper::rt::{Read, Write};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::Connection;
use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, RootCertStore};
use tower::Service;

use super::proxy::{BoxError, Route};
use super::{HttpSettings, TargetUrl};

/// TCP, directly or through a proxy, with TLS for `https`. The library, and so the type of its
/// streams, may change in any version.
#[derive(Clone)]
pub struct TlsConnector(HttpsConnector<Route>);

impl Service<Uri> for TlsConnector {
    type Response = <HttpsConnector<Route> as Service<Uri>>::Response;
    type Error = <HttpsConnector<Route> as Service<Uri>>::Error;
    type Future = <HttpsConnector<Route> as Service<Uri>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        self.0.call(target)
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsConnector")
    }
}

/// The connectors, for the best version that the target offers and, if there is a choice, for
/// HTTP/1.1.
#[derive(Clone)]
pub(super) struct Connectors<C> {
    pub(super) best: C,
    pub(super) http1: Option<C>,
}

/// Opens connections for an [`HttpTarget`](super::HttpTarget): any cloneable [`Service`] from a URI
/// to a stream that hyper can use.
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

/// The connectors for `url`. Root certificates are loaded here, not at the first message, and only
/// for `https`.
pub(super) fn for_url(
    url: &TargetUrl,
    settings: &HttpSettings,
) -> io::Result<Connectors<TlsConnector>> {
    let tls = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let tls = tls.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let mut tls = if url.is_https() {
        tls.with_native_roots().map_err(|error| no_roots(&error))?.with_no_client_auth()
    } else {
        tls.with_root_certificates(RootCertStore::empty()).with_no_client_auth()
    };
    let route = match settings.proxy.to(url)? {
        Some(proxy) => Route::through(&proxy, tls.clone()),
        None => Route::direct(url),
    };
    // After the route has its copy, so that a proxy never gets the client certificate.
    if let Some(certificate) = &settings.client_certificate {
        tls.client_auth_cert_resolver = certificate.resolver();
    }
    let http1 = over_tls(tls.clone(), url, route.clone(), false);
    let best = if settings.http1_only { http1.clone() } else { over_tls(tls, url, route, true) };
    Ok(Connectors { best, http1: Some(http1) })
}

fn over_tls(tls: ClientConfig, url: &TargetUrl, route: Route, with_http2: bool) -> TlsConnector {
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls);
    let builder =
        if url.is_https() { builder.https_only() } else { builder.https_or_http() }.enable_http1();
    TlsConnector(if with_http2 {
        builder.enable_http2().wrap_connector(route)
    } else {
        builder.wrap_connector(route)
    })
}

fn no_roots(error: &io::Error) -> io::Error {
    let text = format!(
        "no root certificate for the https target: {error}; if SSL_CERT_FILE or SSL_CERT_DIR is \
         set, it must name certificates in PEM"
    );
    io::Error::new(error.kind(), text)
}

/// Connects over TCP, and over TLS without any trusted root.
#[cfg(test)]
pub(super) fn without_roots() -> TlsConnector {
    let url = TargetUrl::parse("http://localhost/").expect("it is loopback");
    for_url(&url, &HttpSettings::default()).expect("http needs no certificates").best
}

#[derive(Debug, thiserror::Error)]
#[error("connect timed out")]
pub(super) struct ConnectTimedOut;
