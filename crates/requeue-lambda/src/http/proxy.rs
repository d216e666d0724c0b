//! The proxy of the settings, and the targets that it is for. It opens no connection.

use std::io;

use ::http::uri::Scheme;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

use super::TargetUrl;
use super::url::has_host_and_port;

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
    /// subdomains and IP addresses, also for one port (`[::1]:443`), networks, or `*` for all.
    pub fn new(https_proxy: impl Into<String>, no_proxy: impl Into<String>) -> Self {
        Self { url: https_proxy.into(), exceptions: no_proxy.into() }
    }

    pub(crate) fn to(&self, target: &TargetUrl) -> io::Result<Option<Intercept>> {
        let url = self.url.trim();
        if url.is_empty() || !target.is_https() || self.excepts(target) {
            return Ok(None);
        }
        let is_valid = |proxy: &Intercept| {
            let (uri, users) = (proxy.uri(), usize::from(proxy.basic_auth().is_some()));
            [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&uri.scheme())
                && uri.authority().is_some_and(has_host_and_port)
                // Others are of a password, whose rest would be another host.
                && url.matches('@').count() == users
                && !url.contains('#')
        };
        let proxy = Matcher::builder().https(url).build().intercept(&target.uri);
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, INVALID);
        proxy.filter(is_valid).map(Some).ok_or_else(invalid)
    }

    fn excepts(&self, target: &TargetUrl) -> bool {
        let hosts = self.exceptions.split(',').filter_map(|one| host_of(one.trim(), target.port()));
        let hosts: Vec<&str> = hosts.collect();
        let other = || Matcher::builder().https("http://proxy").no(hosts.join(",")).build();
        // The matcher would take this for a name, and match no IP address.
        hosts.contains(&"*") || other().intercept(&target.uri).is_none()
    }
}

/// The host or network of an exception as the matcher reads it, unless it is for another port.
fn host_of(exception: &str, port: u16) -> Option<&str> {
    let host = match exception.rsplit_once(':') {
        Some((host, own)) if host.ends_with(']') || !host.contains(':') => {
            (own.parse() == Ok(port)).then_some(host)?
        }
        // An IPv6 address without brackets has no port.
        _ => exception,
    };
    Some(host.strip_prefix("*.").unwrap_or(host).trim_matches(['[', ']']))
}

requeue::debug_by_name!(Proxy; |it| is_set: !it.url.is_empty());

/// The URL is not shown, since it may hold a password.
const INVALID: &str = "HTTPS_PROXY is not the URL of an HTTP proxy: set it to http://host:port or \
     http://user:password@host:port, with a port from 1 to 65535 and special characters of user \
     and password percent-encoded (# as %23), or name the target's host in NO_PROXY";

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "http://proxy.example.com:3128";

    #[test]
    fn a_target_over_https_is_reached_through_the_proxy_unless_it_is_an_exception() {
        let through = |uri: &str| Ok(Some(uri.to_owned()));
        let invalid = || Err(INVALID.to_owned());
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
            (PROXY, "[::1]", "https://[::1]/", Ok(None)),
            (PROXY, "::1", "https://[::1]/", Ok(None)),
            (PROXY, "::1:443", "https://[::1]/", through("http://proxy.example.com:3128/")),
            (PROXY, "[::1]:443", "https://[::1]/", Ok(None)),
            (PROXY, "[::1]:8443", "https://[::1]/", through("http://proxy.example.com:3128/")),
            (PROXY, "127.0.0.1:8443", "https://127.0.0.1:8443/", Ok(None)),
            (
                PROXY,
                "127.0.0.1:8443",
                "https://127.0.0.1/",
                through("http://proxy.example.com:3128/"),
            ),
            (PROXY, "a.com, example.com:8443", "https://api.example.com:8443/", Ok(None)),
            (
                PROXY,
                "example.com:8443",
                "https://example.com/",
                through("http://proxy.example.com:3128/"),
            ),
            (PROXY, ".example.com:443", "https://api.example.com/", Ok(None)),
            (PROXY, "*.example.com", "https://api.example.com/", Ok(None)),
            (PROXY, "*.example.com:443", "https://api.example.com/", Ok(None)),
            (
                PROXY,
                "*.ample.com,example.com:x,*.,:443,",
                "https://example.com/",
                through("http://proxy.example.com:3128/"),
            ),
            ("socks5://proxy:1080", "", "https://example.com/", invalid()),
            ("ftp://proxy", "", "https://example.com/", invalid()),
            ("http://us er:s3cret@proxy", "", "https://example.com/", invalid()),
            ("/proxy", "", "https://example.com/", invalid()),
            ("http://user:s3cret@127.0.0.1:99999", "", "https://example.com/", invalid()),
            ("http://user:s3cret@127.0.0.1:abc", "", "https://example.com/", invalid()),
            ("http://proxy:65535", "", "https://example.com/", through("http://proxy:65535/")),
            ("http://proxy:65536", "", "https://example.com/", invalid()),
            ("proxy:65536", "", "https://example.com/", invalid()),
            ("http://proxy:0", "", "https://example.com/", invalid()),
            ("http://proxy:", "", "https://example.com/", invalid()),
            ("http://[::1]:3128", "", "https://example.com/", through("http://[::1]:3128/")),
            ("http://[::1]:3128x", "", "https://example.com/", invalid()),
            ("http://:3128", "", "https://example.com/", invalid()),
            ("http://user:s3cret@:3128", "", "https://example.com/", invalid()),
            ("http://user:s#cret@proxy:3128", "", "https://example.com/", invalid()),
            ("http://user:3#cret@proxy:3128", "", "https://example.com/", invalid()),
            ("http://user:3/cret@proxy:3128", "", "https://example.com/", invalid()),
            ("http://user:3?cret@proxy:3128", "", "https://example.com/", invalid()),
            ("http://user:s@cret@proxy:3128", "", "https://example.com/", invalid()),
            ("http://proxy:3128#top", "", "https://example.com/", invalid()),
            // It does not matter here.
            ("socks5://proxy:1080", "example.com", "https://example.com/", Ok(None)),
            ("socks5://proxy:1080", "", "http://localhost/", Ok(None)),
        ] {
            let target = TargetUrl::parse(target).expect("it is valid");
            let found = Proxy::new(proxy, exceptions).to(&target);
            let found =
                found.map(|intercept| intercept.map(|intercept| intercept.uri().to_string()));
            let found = found.map_err(|error| error.to_string());
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
    }
}
