//! Opens connections: by TCP and TLS, directly, through an HTTP proxy (`CONNECT`), or otherwise.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::Uri;
use ::http::uri::Scheme;
use hyper::rt::{Read, Write};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::dns::GaiResolver;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use tokio::net::TcpStream;
use tower::Service;

use super::rules::Guarded;
use super::{HttpSettings, TargetUrl};

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

/// The proxy for `https` targets, and its exceptions. For a target over `http` no proxy is used.
///
/// The proxy tunnels the connection (`CONNECT`) and learns only the target's host and port. It also
/// resolves the name, so only the [rules](super::TargetRules) for the text of the URL apply.
///
/// ```
/// use requeue_lambda::{HttpSettings, Proxy};
///
/// let mut settings = HttpSettings::default();
/// let exceptions = "localhost,.internal.example.com,10.0.0.0/8";
/// settings.proxy = Proxy::new("http://user:s3cret@proxy.example.com:3128", exceptions);
/// assert!(!format!("{settings:?}").contains("s3cret"));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxy {
    url: String,
    exceptions: String,
}

impl Proxy {
    /// Takes texts in the form of `HTTPS_PROXY` and `NO_PROXY`. An empty URL means no proxy. The
    /// URL is checked when a target is made, since it does not matter for an exception.
    ///
    /// The URL is that of an HTTP proxy over `http://` or `https://`. Its user and password are
    /// sent as `Proxy-Authorization`. The exceptions are separated by commas: domains with their
    /// subdomains, IP addresses and networks, or `*` for every target.
    #[must_use]
    pub fn new(https_proxy: impl Into<String>, no_proxy: impl Into<String>) -> Self {
        Self { url: https_proxy.into(), exceptions: no_proxy.into() }
    }

    pub(crate) fn to(&self, target: &TargetUrl) -> Result<Option<Intercept>, InvalidProxy> {
        if self.url.trim().is_empty() || !target.is_https() || self.excepts(target) {
            return Ok(None);
        }
        let proxy = Matcher::builder().https(self.url.trim()).build().intercept(&target.uri);
        let speaks_http = |proxy: &Intercept| {
            [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&proxy.uri().scheme())
        };
        proxy.filter(speaks_http).map(Some).ok_or(InvalidProxy)
    }

    fn excepts(&self, target: &TargetUrl) -> bool {
        // The matcher would take this for a name, and match no IP address.
        let everything = self.exceptions.split(',').any(|exception| exception.trim() == "*");
        let other = || Matcher::builder().https("http://proxy").no(&self.exceptions).build();
        everything || other().intercept(&target.uri).is_none()
    }
}

requeue::debug_by_name!(Proxy; |it| is_set: !it.url.is_empty());

/// The URL is not that of an HTTP proxy. It is not shown, since it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "HTTPS_PROXY is not the URL of an HTTP proxy: set it to http://host:port or \
     http://user:password@host:port, with special characters of user and password percent-encoded, \
     or name the target's host in NO_PROXY"
)]
pub(crate) struct InvalidProxy;

impl From<InvalidProxy> for io::Error {
    fn from(error: InvalidProxy) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// Opens the connection for TLS, or for plain HTTP.
#[derive(Clone)]
pub struct Route(Kind);

#[derive(Clone)]
enum Kind {
    Direct(HttpConnector<Guarded<GaiResolver>>),
    Tunnel(Tunnel<HttpsConnector<HttpConnector>>),
}

impl Route {
    pub(super) fn direct(url: &TargetUrl) -> Self {
        let resolver = Guarded::new(GaiResolver::new(), url.rules.clone(), url.port());
        Self(Kind::Direct(tcp(HttpConnector::new_with_resolver(resolver))))
    }

    pub(super) fn through(proxy: &Intercept, tls: ClientConfig) -> Self {
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        let tunnel =
            Tunnel::new(proxy.uri().clone(), connector.wrap_connector(tcp(HttpConnector::new())));
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

pub(crate) fn tcp<R>(mut connector: HttpConnector<R>) -> HttpConnector<R> {
    connector.enforce_http(false);
    connector.set_nodelay(true);
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

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "http://proxy.example.com:3128";

    #[test]
    fn a_target_over_https_is_reached_through_the_proxy_unless_it_is_an_exception() {
        let through = |uri: &str| Ok(Some(uri.to_owned()));
        for (proxy, exceptions, target, expected) in [
            ("", "", "https://example.com/", Ok(None)),
            (" ", "", "https://example.com/", Ok(None)),
            (PROXY, "", "https://example.com/", through("http://proxy.example.com:3128/")),
            (
                " http://proxy:3128/path\n",
                "",
                "https://example.com/",
                through("http://proxy:3128/"),
            ),
            ("proxy:3128", "", "https://example.com/", through("http://proxy:3128/")),
            ("https://proxy:3129", "", "https://example.com/", through("https://proxy:3129/")),
            (
                "http://user:p%40ss@proxy:3128",
                "",
                "https://example.com/",
                through("http://proxy:3128/"),
            ),
            (PROXY, "", "https://127.0.0.1:8443/", through("http://proxy.example.com:3128/")),
            (PROXY, "", "http://localhost:3000/", Ok(None)),
            (PROXY, "example.com", "https://example.com/", Ok(None)),
            (PROXY, "example.com", "https://api.Example.com:8443/", Ok(None)),
            (PROXY, " a.com , .example.com", "https://api.example.com/", Ok(None)),
            (PROXY, "ample.com", "https://example.com/", through("http://proxy.example.com:3128/")),
            (PROXY, "*", "https://example.com/", Ok(None)),
            (PROXY, " * ", "https://192.0.2.7/", Ok(None)),
            (PROXY, "127.0.0.1", "https://127.0.0.1:8443/", Ok(None)),
            (PROXY, "10.0.0.0/8,192.0.2.7", "https://10.1.2.3/", Ok(None)),
            (PROXY, "10.0.0.0/8,192.0.2.7", "https://192.0.2.7/", Ok(None)),
            (
                PROXY,
                "10.0.0.0/8,192.0.2.7",
                "https://192.0.2.8/",
                through("http://proxy.example.com:3128/"),
            ),
            (PROXY, "2001:db8::/32", "https://[2001:db8::1]/", Ok(None)),
            ("socks5://proxy:1080", "", "https://example.com/", Err(InvalidProxy)),
            ("ftp://proxy", "", "https://example.com/", Err(InvalidProxy)),
            ("http://us er:s3cret@proxy", "", "https://example.com/", Err(InvalidProxy)),
            ("/proxy", "", "https://example.com/", Err(InvalidProxy)),
            // It does not matter here.
            ("socks5://proxy:1080", "example.com", "https://example.com/", Ok(None)),
            ("socks5://proxy:1080", "", "http://localhost/", Ok(None)),
        ] {
            let target = TargetUrl::parse(target).expect("it is valid");
            let found = Proxy::new(proxy, exceptions).to(&target);
            let found =
                found.map(|intercept| intercept.map(|intercept| intercept.uri().to_string()));
            assert_eq!(found, expected, "{proxy} except {exceptions}: {target}");
        }
    }

    #[test]
    fn credentials_are_sent_and_not_shown() {
        let target = TargetUrl::parse("https://example.com/").expect("it is valid");
        for (userinfo, expected) in [
            ("user:s3cret@", Some("Basic dXNlcjpzM2NyZXQ=")),
            ("us%20er:s3%40cret%3A@", Some("Basic dXMgZXI6czNAY3JldDo=")),
            ("user@", Some("Basic dXNlcjo=")),
            ("", None),
        ] {
            let proxy = Proxy::new(format!("http://{userinfo}proxy:3128"), "");
            assert!(!format!("{proxy:?}").contains("s3"));
            let found = proxy.to(&target).expect("it is valid").expect("it leads there");
            assert_eq!(
                found.basic_auth().map(|value| value.to_str().expect("ASCII")),
                expected,
                "{userinfo}"
            );
            assert!(found.basic_auth().is_none_or(::http::HeaderValue::is_sensitive));
        }
        assert!(!InvalidProxy.to_string().contains("s3cret"));
    }
}
