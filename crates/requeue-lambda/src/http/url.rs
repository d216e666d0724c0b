//! The URL of the target, checked once.

use std::fmt;

use ::http::HeaderValue;
use ::http::uri::{Authority, PathAndQuery, Scheme, Uri};

use super::rules::{TargetRules, TargetUrlError, literal};

/// The URL of a target: `https`, or `http` to this machine, and not a link-local address.
///
/// It is printed without path and query, because many services put their secret there.
///
/// ```
/// use requeue_lambda::{TargetUrl, TargetUrlError};
///
/// let url = TargetUrl::parse("https://example.com/hooks/T0KEN?key=s3cret")?;
/// assert_eq!(url.to_string(), "https://example.com/…");
/// assert!(TargetUrl::parse("http://localhost:3000/").is_ok());
/// assert_eq!(TargetUrl::parse("http://example.com/"), Err(TargetUrlError::Insecure));
/// # Ok::<(), TargetUrlError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct TargetUrl {
    pub(super) uri: Uri,
    pub(super) rules: TargetRules,
}

impl TargetUrl {
    /// Accepts `https`, and `http` if the host is `localhost` or a loopback address. Refuses a
    /// link-local address, and a host that is a number.
    pub fn parse(text: &str) -> Result<Self, TargetUrlError> {
        Self::parse_with(text, TargetRules::default())
    }

    /// Accepts URLs that `rules` allow. The same rules apply when a host name is resolved later.
    pub fn parse_with(text: &str, rules: TargetRules) -> Result<Self, TargetUrlError> {
        // `Uri` would drop the fragment silently.
        if text.contains('#') {
            return Err(TargetUrlError::Fragment);
        }
        let uri: Uri = text.parse().map_err(|_| TargetUrlError::Malformed)?;
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(TargetUrlError::Relative);
        };
        if *scheme != Scheme::HTTPS && *scheme != Scheme::HTTP {
            return Err(TargetUrlError::Scheme);
        }
        if authority.as_str().contains('@') {
            return Err(TargetUrlError::Credentials);
        }
        if authority.host().is_empty() {
            return Err(TargetUrlError::Relative);
        }
        if !has_host_and_port(authority) {
            return Err(TargetUrlError::Port);
        }
        let url = Self { uri, rules };
        url.rules.check_host(url.host(), url.port())?;
        if url.is_https() || url.rules.allows_http || is_loopback(url.host()) {
            Ok(url)
        } else {
            Err(TargetUrlError::Insecure)
        }
    }

    /// With its path, for the person at a terminal who chose it, and without its query.
    pub fn with_path(&self) -> String {
        let (scheme, authority) = self.origin();
        let query = self.uri.query().map_or("", |_| "?…");
        format!("{scheme}://{authority}{}{query}", self.uri.path())
    }

    fn origin(&self) -> (&str, &str) {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        (self.uri.scheme_str().unwrap_or_default(), authority)
    }

    /// The host, without the port.
    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }

    /// The port, or the default port of the scheme.
    pub fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(if self.is_https() { 443 } else { 80 })
    }

    /// Whether messages travel encrypted.
    pub fn is_https(&self) -> bool {
        self.uri.scheme() == Some(&Scheme::HTTPS)
    }
}

pub(super) struct Address {
    /// With scheme and host, for HTTP/2 and proxies.
    pub(super) absolute: Uri,
    pub(super) origin: Uri,
    pub(super) host: HeaderValue,
}

impl Address {
    pub(super) fn of(url: &TargetUrl) -> Self {
        let absolute = url.uri.clone();
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

    pub(super) fn root(&self) -> Uri {
        let mut parts = self.absolute.clone().into_parts();
        parts.path_and_query = Some(PathAndQuery::from_static("/"));
        Uri::from_parts(parts).expect("only the path was replaced")
    }
}

/// Whether there is a host, and after it nothing or a valid port. `Uri` accepts more.
pub(super) fn has_host_and_port(authority: &Authority) -> bool {
    let (host, all) = (authority.host(), authority.as_str());
    !host.is_empty() && (all == host || authority.port_u16().is_some_and(|port| port > 0))
}

/// Names are not resolved, so only hosts that evidently stay on this machine count.
fn is_loopback(host: &str) -> bool {
    literal(host).is_some_and(|address| address.is_loopback())
}

impl fmt::Display for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, authority) = self.origin();
        let rest = match self.uri.path_and_query().map_or("/", |rest| rest.as_str()) {
            "/" => "/",
            _ => "/…",
        };
        write!(f, "{scheme}://{authority}{rest}")
    }
}

impl fmt::Debug for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TargetUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TargetUrlError::{
        Address, Credentials, Fragment, Insecure, LinkLocal, Malformed, Port, Relative, Scheme,
    };

    #[test]
    fn a_url_is_encrypted_or_stays_on_this_machine() {
        for (text, expected) in [
            ("https://example.com", Ok(())),
            ("HTTPS://EXAMPLE.COM:8443/a?b=c", Ok(())),
            ("https://[2001:db8::1]:8443/", Ok(())),
            ("http://localhost:3000/", Ok(())),
            ("http://LocalHost/", Ok(())),
            ("http://127.0.0.1:9000/", Ok(())),
            ("http://127.255.255.254/", Ok(())),
            ("http://[::1]:80/", Ok(())),
            ("http://example.com/", Err(Insecure)),
            ("http://localhost.example.com/", Err(Insecure)),
            ("http://128.0.0.1/", Err(Insecure)),
            ("http://2130706433/", Err(Address)),
            ("https://2130706433/", Err(Address)),
            ("http://127.1/", Err(Address)),
            ("http://0.0.0.0/", Err(Insecure)),
            ("http://169.254.169.254/", Err(LinkLocal)),
            ("https://169.254.169.254/latest/meta-data/", Err(LinkLocal)),
            ("https://[fe80::1]:8443/", Err(LinkLocal)),
            ("http://[::ffff:127.0.0.1]/", Err(Insecure)),
            ("http://[::]/", Err(Insecure)),
            ("ftp://example.com/", Err(Scheme)),
            ("file:///etc/passwd", Err(Malformed)),
            ("https://user:pass@example.com/", Err(Credentials)),
            ("https://user@example.com/", Err(Credentials)),
            ("http://localhost@example.com/", Err(Credentials)),
            ("https://example.com/#top", Err(Fragment)),
            ("https://example.com:0/", Err(Port)),
            ("https://example.com:65536/", Err(Port)),
            ("https://example.com:/", Err(Port)),
            ("example.com", Err(Relative)),
            ("/orders", Err(Relative)),
            ("https://", Err(Malformed)),
            ("https:///orders", Err(Malformed)),
            ("https://:8080/", Err(Relative)),
            ("https://exa mple.com/", Err(Malformed)),
            ("https://example.com/\r\nHost: x", Err(Malformed)),
            ("", Err(Malformed)),
        ] {
            assert_eq!(TargetUrl::parse(text).map(|_| ()), expected, "{text}");
        }
        for (text, expected) in [
            ("http://example.com/", Ok(())),
            ("ftp://example.com/", Err(Scheme)),
            ("http://169.254.169.254/", Err(LinkLocal)),
        ] {
            let parsed = TargetUrl::parse_with(text, TargetRules::default().allow_http());
            assert_eq!(parsed.map(|_| ()), expected, "{text}");
        }
    }

    #[test]
    fn neither_a_url_nor_its_error_prints_a_secret() {
        let url =
            TargetUrl::parse("https://example.com:444/s3cret?s3cret=s3cret").expect("it is valid");
        assert_eq!(
            format!("{url} {url:?}"),
            "https://example.com:444/… TargetUrl(https://example.com:444/…)"
        );
        for (text, shown) in [
            ("http://localhost:80/orders/?key=s3cret", "http://localhost:80/orders/?…"),
            ("https://example.com", "https://example.com/"),
            ("https://example.com/?s3cret", "https://example.com/?…"),
        ] {
            assert_eq!(TargetUrl::parse(text).expect("it is valid").with_path(), shown);
        }
        for text in [
            "https://s3cret:s3cret@example.com/",
            "http://example.com/s3cret?s3cret",
            "s3cret",
            "s3cret://s3cret/",
        ] {
            let error = TargetUrl::parse(text).expect_err("it is invalid");
            assert!(!format!("{error} {error:?}").contains("s3cret"));
        }
    }
}
