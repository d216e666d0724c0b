//! The addresses that a target may have only with permission. These are link-local ones, where
//! clouds serve credentials, and Lambda's own Runtime API, which would take a message for a
//! response of the function. Knows no URL and resolves no name.

use std::error::Error;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tower::Service;

/// The rules for a [`TargetUrl`](super::TargetUrl). By default it is `https`, or `http` to a
/// loopback host, and its address is not link-local.
///
/// An address in a URL is checked when the URL is parsed. A name is checked whenever it is
/// resolved, so DNS cannot lead to a refused address.
///
/// ```
/// use requeue_lambda::{TargetRules, TargetUrl, TargetUrlError};
///
/// let imds = "http://169.254.169.254/latest/meta-data/";
/// let rules = TargetRules::default().allow_http();
/// assert_eq!(TargetUrl::parse_with(imds, rules.clone()), Err(TargetUrlError::LinkLocal));
/// assert!(TargetUrl::parse_with(imds, rules.allow_link_local()).is_ok());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetRules {
    pub(super) allows_http: bool,
    allows_link_local: bool,
    runtime_api: Option<(String, u16)>,
}

impl TargetRules {
    /// Allows `http` to any host. Then anyone on the network path can read and change the messages.
    #[must_use]
    pub fn allow_http(self) -> Self {
        Self { allows_http: true, ..self }
    }

    /// Allows link-local addresses (`169.254.0.0/16`, `fe80::/10`), the addresses of AWS's services
    /// on an instance (`fd00:ec2::/32`), and the [Runtime API](Self::runtime_api).
    #[must_use]
    pub fn allow_link_local(self) -> Self {
        Self { allows_link_local: true, ..self }
    }

    /// Refuses this address, in the form `host:port` of Lambda's `AWS_LAMBDA_RUNTIME_API`. A text
    /// of another form refuses nothing. Default: none; [`Config`](crate::Config) reads it from the
    /// environment.
    #[must_use]
    pub fn runtime_api(self, authority: &str) -> Self {
        // Emulators of Lambda append a path to it.
        let authority = authority.split('/').next().unwrap_or_default();
        let parts = authority.rsplit_once(':');
        let parts = parts.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
        Self { runtime_api: parts, ..self }
    }

    pub(super) fn check_host(&self, host: &str, port: u16) -> Result<(), TargetUrlError> {
        match literal(host) {
            Some(address) => self.check(address, port),
            None if is_unusual_address(host) => Err(TargetUrlError::Address),
            None => {
                let is_api = self.runtime_api.as_ref().is_some_and(|(api, its_port)| {
                    *its_port == port && api.eq_ignore_ascii_case(host)
                });
                let is_refused = is_api && !self.allows_link_local;
                if is_refused { Err(TargetUrlError::RuntimeApi) } else { Ok(()) }
            }
        }
    }

    fn check(&self, address: IpAddr, port: u16) -> Result<(), TargetUrlError> {
        if self.allows_link_local {
            return Ok(());
        }
        let address = canonical(address);
        if is_link_local(address) {
            return Err(TargetUrlError::LinkLocal);
        }
        let same = |other| other == address || is_this_machine(other) && is_this_machine(address);
        let is_api = self.runtime_api.as_ref().is_some_and(|(api, its_port)| {
            *its_port == port && literal(api).map(canonical).is_some_and(same)
        });
        if is_api { Err(TargetUrlError::RuntimeApi) } else { Ok(()) }
    }
}

pub(super) fn literal(host: &str) -> Option<IpAddr> {
    if host.eq_ignore_ascii_case("localhost") {
        return Some(Ipv4Addr::LOCALHOST.into());
    }
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

/// Forms that resolvers read as an address and people do not, such as `2852039166` or `0xa9fea9fe`.
/// The last label of a name is no number. Source: WHATWG URL standard, "ends in a number checker".
fn is_unusual_address(host: &str) -> bool {
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let is_number = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
    is_number
        || hex.is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
        || host.starts_with('[')
}

/// The IPv4 address within an IPv6 address that leads to it. Sources: RFC 4291 2.5.5 (compatible,
/// mapped), RFC 2765 (translated), RFC 6052 and 8215 (NAT64), RFC 3056 (6to4).
fn canonical(address: IpAddr) -> IpAddr {
    let IpAddr::V6(address) = address else { return address };
    let (high, low) = match address.segments() {
        [0, 0, 0, 0, 0, 0, high, low] if high > 0 => (high, low),
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        | [0x2002, high, low, ..] => (high, low),
        _ => return address.into(),
    };
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)).into()
}

/// Source of `fd00:ec2::/32`: EC2 user guide, "Access instance metadata"; EKS user guide, "EKS Pod
/// Identity".
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => {
            address.is_unicast_link_local() || address.segments()[..2] == [0xfd00, 0x0ec2]
        }
    }
}

/// The unspecified address also leads to this machine.
fn is_this_machine(address: IpAddr) -> bool {
    address.is_loopback() || address.is_unspecified()
}

/// Resolves names with `inner`, and returns only allowed addresses.
#[derive(Clone)]
pub(super) struct Guarded<R> {
    inner: R,
    rules: TargetRules,
    port: u16,
}

impl<R> Guarded<R> {
    pub(super) fn new(inner: R, rules: TargetRules, port: u16) -> Self {
        Self { inner, rules, port }
    }
}

impl<R> Service<Name> for Guarded<R>
where
    R: Service<
            Name,
            Response: Iterator<Item = SocketAddr>,
            Error: Into<Box<dyn Error + Send + Sync>>,
        >,
    R::Future: Send + 'static,
{
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolving = self.inner.call(name);
        let (rules, port) = (self.rules.clone(), self.port);
        Box::pin(async move {
            let mut refused = None;
            let is_allowed = |address: &SocketAddr| match rules.check(address.ip(), port) {
                Ok(()) => true,
                Err(error) => {
                    let is_api = error == TargetUrlError::RuntimeApi;
                    let what = if is_api { "Lambda's Runtime API" } else { "a link-local address" };
                    refused = Some(RefusedAddress(what));
                    false
                }
            };
            let allowed: Vec<SocketAddr> =
                resolving.await.map_err(Into::into)?.filter(is_allowed).collect();
            match refused {
                Some(error) if allowed.is_empty() => Err(error.into()),
                _ => Ok(allowed.into_iter()),
            }
        })
    }
}

/// A name has only addresses that are refused.
#[derive(Debug, thiserror::Error)]
#[error("host name resolves to {0}")]
pub(super) struct RefusedAddress(&'static str);

/// The reason for which a text is not a [`TargetUrl`](super::TargetUrl). It repeats no part of the text, which may
/// hold a secret.
///
/// ```
/// use requeue_lambda::{TargetUrl, TargetUrlError};
/// assert_eq!(TargetUrl::parse("https://user:pass@example.com/"), Err(TargetUrlError::Credentials));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetUrlError {
    /// The text is not a URL.
    #[error("the target must be a valid URL, as in http://localhost:8080/orders")]
    Malformed,
    /// Scheme or host is missing.
    #[error("the target URL needs a scheme and a host, as in http://localhost:8080/orders")]
    Relative,
    /// Neither `https` nor `http`.
    #[error("the target URL must begin with https://")]
    Scheme,
    /// `http` to another machine.
    #[error(
        "the target URL must begin with https://, unless its host is a loopback address or http is \
         allowed explicitly"
    )]
    Insecure,
    /// A user or password before the host.
    #[error("the target URL must not hold a user or password; send them as a header")]
    Credentials,
    /// A fragment, which HTTP does not send.
    #[error("the target URL must not hold a fragment")]
    Fragment,
    /// The port is not a number between 1 and 65,535.
    #[error("the port of the target URL must be a number between 1 and 65535")]
    Port,
    /// The host ends in a number and is not an IP address in its usual form.
    #[error("the host of the target URL must be a name, or an IP address as it is usually written")]
    Address,
    /// A link-local address, or an address of AWS's services on an instance, in any form.
    #[error(
        "the target URL must not name a link-local address, where credentials are served, unless \
         that is allowed explicitly"
    )]
    LinkLocal,
    /// Lambda's own Runtime API.
    #[error("the target URL must not name Lambda's Runtime API, unless that is allowed explicitly")]
    RuntimeApi,
}

impl TargetUrlError {
    /// The setting that allows such a target, if there is one.
    pub fn allowed_by(&self) -> Option<&'static str> {
        match self {
            Self::Insecure => Some("REQUEUE_ALLOW_HTTP"),
            Self::LinkLocal | Self::RuntimeApi => Some("REQUEUE_ALLOW_LINK_LOCAL"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TargetUrlError::{Address, LinkLocal, RuntimeApi};

    #[test]
    fn no_form_of_a_link_local_address_is_a_target() {
        for (host, expected) in [
            ("169.253.255.255", Ok(())),
            ("169.254.0.0", Err(LinkLocal)),
            ("169.254.169.254", Err(LinkLocal)),
            ("169.254.255.255", Err(LinkLocal)),
            ("169.255.0.0", Ok(())),
            ("[fe7f:ffff::1]", Ok(())),
            ("[fe80::1]", Err(LinkLocal)),
            ("[FEBF:FFFF::1]", Err(LinkLocal)),
            ("[fec0::1]", Ok(())),
            ("[fd00:ec1::254]", Ok(())),
            ("[fd00:ec2::254]", Err(LinkLocal)),
            ("[::ffff:169.254.169.254]", Err(LinkLocal)),
            ("[::ffff:a9fe:a9fe]", Err(LinkLocal)),
            ("[::ffff:0:a9fe:a9fe]", Err(LinkLocal)),
            ("[::a9fe:a9fe]", Err(LinkLocal)),
            ("[64:ff9b::a9fe:a9fe]", Err(LinkLocal)),
            ("[64:ff9b:1:2::a9fe:a9fe]", Err(LinkLocal)),
            ("[2002:a9fe:a9fe::1]", Err(LinkLocal)),
            ("[2001:a9fe:a9fe::1]", Ok(())),
            ("[::ffff:169.253.169.254]", Ok(())),
            ("[fe80::1%25eth0]", Err(Address)),
            ("2852039166", Err(Address)),
            ("0xA9FEA9FE", Err(Address)),
            ("0xa9.254.169.0xfe", Err(Address)),
            ("169.254.43518", Err(Address)),
            ("0251.0376.0251.0376", Err(Address)),
            ("169.254.169.254.", Err(Address)),
            ("1e100.net", Ok(())),
            ("169.254.169.254.example.com", Ok(())),
            ("0xa9.example.com.", Ok(())),
            ("xn--p1ai", Ok(())),
        ] {
            assert_eq!(TargetRules::default().check_host(host, 443), expected, "{host}");
            let allowed = TargetRules::default().allow_link_local().check_host(host, 443);
            assert_eq!(
                allowed,
                expected.or_else(|error| if error == LinkLocal { Ok(()) } else { Err(error) }),
                "{host}"
            );
        }
    }

    #[test]
    fn the_runtime_api_is_no_target_under_any_of_its_names() {
        for (api, host, port, expected) in [
            ("127.0.0.1:9001", "127.0.0.1", 9001, Err(RuntimeApi)),
            ("127.0.0.1:9001", "127.9.9.9", 9001, Err(RuntimeApi)),
            ("127.0.0.1:9001", "LocalHost", 9001, Err(RuntimeApi)),
            ("127.0.0.1:9001", "[::1]", 9001, Err(RuntimeApi)),
            ("127.0.0.1:9001", "[::ffff:127.0.0.1]", 9001, Err(RuntimeApi)),
            ("127.0.0.1:9001", "0.0.0.0", 9001, Err(RuntimeApi)),
            ("127.0.0.1:9001", "[::]", 9001, Err(RuntimeApi)),
            ("127.0.0.1:9001", "127.0.0.1", 9000, Ok(())),
            ("127.0.0.1:9001", "127.0.0.1", 2773, Ok(())),
            ("127.0.0.1:9001", "10.0.0.1", 9001, Ok(())),
            ("127.0.0.1:9001", "example.com", 9001, Ok(())),
            ("127.0.0.1:9000/orders", "127.0.0.1", 9000, Err(RuntimeApi)),
            ("[::1]:9000/.rt", "127.0.0.1", 9000, Err(RuntimeApi)),
            ("10.0.0.1:9001", "10.0.0.1", 9001, Err(RuntimeApi)),
            ("10.0.0.1:9001", "127.0.0.1", 9001, Ok(())),
            ("runtime.example.com:9001", "Runtime.example.com", 9001, Err(RuntimeApi)),
            ("", "127.0.0.1", 9001, Ok(())),
            ("127.0.0.1", "127.0.0.1", 9001, Ok(())),
        ] {
            let rules = TargetRules::default().runtime_api(api);
            assert_eq!(rules.check_host(host, port), expected, "{api} and {host}:{port}");
            assert_eq!(
                rules.allow_link_local().check_host(host, port),
                Ok(()),
                "{api} and {host}:{port}"
            );
        }
    }

    #[tokio::test]
    async fn a_name_leads_only_to_addresses_that_a_target_may_have() {
        for (addresses, port, expected) in [
            (&["192.0.2.1", "2001:db8::1"][..], 9001, Ok(&["192.0.2.1", "2001:db8::1"][..])),
            (&["fe80::1", "192.0.2.1"], 9001, Ok(&["192.0.2.1"])),
            (
                &["169.254.169.254", "fe80::1"],
                9001,
                Err("host name resolves to a link-local address"),
            ),
            (&["::ffff:169.254.169.254"], 9001, Err("host name resolves to a link-local address")),
            (&["127.0.0.1"], 9001, Err("host name resolves to Lambda's Runtime API")),
            (&["127.0.0.1"], 9002, Ok(&["127.0.0.1"])),
            (&[], 9001, Ok(&[])),
        ] {
            let at = |address: &&str| SocketAddr::new(address.parse().expect("an address"), 0);
            let inner = tower::service_fn(move |_: Name| async move {
                Ok::<_, std::io::Error>(addresses.iter().map(at).collect::<Vec<_>>().into_iter())
            });
            let rules = TargetRules::default().runtime_api("127.0.0.1:9001");
            let mut guarded = Guarded::new(inner, rules, port);
            let resolved = guarded.call("example.com".parse().expect("a name")).await;
            let expected =
                expected.map(|addresses: &[&str]| addresses.iter().map(at).collect::<Vec<_>>());
            let resolved = resolved.map(Vec::from_iter).map_err(|error| error.to_string());
            assert_eq!(resolved, expected.map_err(str::to_owned), "{addresses:?}");
        }
    }
}
