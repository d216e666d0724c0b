//! Opens connections: by TCP and TLS, directly, through an HTTP proxy (`CONNECT`), or otherwise.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::Uri;
use hyper::rt::{Read, Write};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::dns::GaiResolver;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::TokioIo;
use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use tokio::net::TcpStream;
use tower::Service;

use super::rules::Guarded;
use super::{HttpSettings, TargetUrl};

/// The first probe of a silent connection, the time between two, and the most without a response.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
const PROBE_INTERVAL: Duration = Duration::from_secs(15);
const PROBES: u32 = 4;

/// TCP, directly or through a proxy, with TLS for `https`. The library, and so the type of its
/// streams, may change in any version.
pub type TlsConnector = HttpsConnector<Route>;

/// For the best version that the target offers and, if there is a choice, for HTTP/1.1.
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

/// Root certificates are loaded here, not at the first message, and only for `https`.
pub(super) fn for_url(
    url: &TargetUrl,
    settings: &HttpSettings,
) -> io::Result<Connectors<TlsConnector>> {
    let tls = tls()?;
    let mut tls = if url.is_https() {
        tls.with_native_roots().map_err(|error| no_roots(&error))?.with_no_client_auth()
    } else {
        tls.with_root_certificates(RootCertStore::empty()).with_no_client_auth()
    };
    let route = match settings.proxy.to(url)? {
        Some(proxy) => Route::through(&proxy, tls.clone(), settings.connect_timeout),
        None => Route::direct(url, settings.connect_timeout),
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
    if with_http2 {
        builder.enable_http2().wrap_connector(route)
    } else {
        builder.wrap_connector(route)
    }
}

fn no_roots(error: &io::Error) -> io::Error {
    let text = format!(
        "no root certificate for the https target: {error}; if SSL_CERT_FILE or SSL_CERT_DIR is \
         set, it must name certificates in PEM"
    );
    io::Error::new(error.kind(), text)
}

#[derive(Debug, thiserror::Error)]
#[error("connect timed out")]
pub(super) struct ConnectTimedOut;

/// Opens the connection for TLS, or for plain HTTP.
#[derive(Clone)]
pub struct Route(Kind);

#[derive(Clone)]
enum Kind {
    Direct(HttpConnector<Guarded<GaiResolver>>),
    Tunnel(Tunnel<HttpsConnector<HttpConnector>>),
}

impl Route {
    pub(super) fn direct(url: &TargetUrl, timeout: Duration) -> Self {
        let resolver = Guarded::new(GaiResolver::new(), url.rules.clone(), url.port());
        Self(Kind::Direct(tcp(HttpConnector::new_with_resolver(resolver), timeout)))
    }

    pub(super) fn through(proxy: &Intercept, tls: ClientConfig, timeout: Duration) -> Self {
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        let tcp = tcp(HttpConnector::new(), timeout);
        let tunnel = Tunnel::new(proxy.uri().clone(), connector.wrap_connector(tcp));
        Self(Kind::Tunnel(match proxy.basic_auth() {
            Some(credentials) => tunnel.with_auth(credentials.clone()),
            None => tunnel,
        }))
    }
}

/// TLS with the SDK's crypto provider.
pub(crate) fn tls() -> io::Result<ConfigBuilder<ClientConfig, WantsVerifier>> {
    let tls = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    tls.with_safe_default_protocol_versions().map_err(io::Error::other)
}

/// The addresses of a name share the timeout, so one that does not respond leaves time for the next.
/// A response may take minutes, so TCP keeps the connection alive: a NAT gateway drops one that is
/// silent for 350 s.
pub(crate) fn tcp<R>(mut connector: HttpConnector<R>, timeout: Duration) -> HttpConnector<R> {
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(timeout));
    connector.set_keepalive(Some(KEEP_ALIVE));
    connector.set_keepalive_interval(Some(PROBE_INTERVAL));
    connector.set_keepalive_retries(Some(PROBES));
    connector
}

impl Service<Uri> for Route {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match &mut self.0 {
            Kind::Direct(connector) => connector.poll_ready(context).map_err(Into::into),
            Kind::Tunnel(connector) => connector.poll_ready(context).map_err(ProxyFailed::boxed),
        }
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        match &mut self.0 {
            Kind::Direct(connector) => {
                let connecting = connector.call(target);
                Box::pin(async move { Ok(MaybeHttpsStream::Http(connecting.await?)) })
            }
            Kind::Tunnel(connector) => {
                let connecting = connector.call(target);
                Box::pin(async move { connecting.await.map_err(ProxyFailed::boxed) })
            }
        }
    }
}

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// The proxy could not be reached, or refused the tunnel.
#[derive(Debug, thiserror::Error)]
#[error("{}", refusal(&**.0).unwrap_or("proxy not reached"))]
pub(super) struct ProxyFailed(#[source] BoxError);

/// The tunnel's error in words. The library gives it no type of its own.
const REFUSALS: [(&str, &str); 4] = [
    ("tunnel error: proxy authorization required", "proxy asks for user and password"),
    ("tunnel error: unsuccessful", "proxy refused the connection"),
    ("tunnel error: unexpected end of file", "proxy closed the connection"),
    ("tunnel error: proxy response headers too long", "proxy's response is too large"),
];

impl ProxyFailed {
    fn boxed(error: impl Error + Send + Sync + 'static) -> BoxError {
        Box::new(Self(error.into()))
    }

    /// Whether the proxy responded.
    pub(super) fn is_refusal(&self) -> bool {
        refusal(&*self.0).is_some()
    }
}

fn refusal(error: &dyn Error) -> Option<&'static str> {
    let text = error.to_string();
    REFUSALS.iter().find(|row| row.0 == text).map(|row| row.1)
}
