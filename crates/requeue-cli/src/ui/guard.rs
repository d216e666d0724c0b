//! Decides which requests the local page accepts. It refuses other hosts (DNS rebinding), other
//! origins (CSRF), and programs that do not know the token of this start.

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use requeue::embedded::loopback::{Names, Refusal, check_host, check_origin};
use uuid::Uuid;

/// Each POST has this header. A form of another page cannot set it, and a script of another origin
/// needs a CORS permission that the server never gives.
const OWN_HEADER: HeaderName = HeaderName::from_static("x-requeue-ui");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

pub(super) struct Guard {
    port: u16,
    token: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The browser has the cookie.
    Known,
    /// The URL has the token, so the response sets the cookie.
    Opened,
}

const NO_TOKEN: Refusal = (
    StatusCode::FORBIDDEN,
    "the request has no token of this start; open the URL that the command printed",
);
const NOT_OWN: Refusal = (
    StatusCode::FORBIDDEN,
    "the request does not come from the page; open the URL that the command printed",
);
const OTHER_METHOD: Refusal =
    (StatusCode::METHOD_NOT_ALLOWED, "the method is not allowed; use GET or POST");
const NOT_JSON: Refusal =
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body is not application/json; send JSON");

impl Guard {
    /// With a new token of 122 random bits.
    pub(super) fn new(port: u16) -> Self {
        Self { port, token: Uuid::new_v4().simple().to_string() }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/?token={}", self.port, self.token)
    }

    pub(super) fn admit(&self, head: &Parts) -> Result<Admission, Refusal> {
        check_host(&head.headers, Names::WithPort(self.port))?;
        match head.method {
            Method::GET | Method::HEAD => {}
            Method::POST => check_post(&head.headers)?,
            _ => return Err(OTHER_METHOD),
        }
        let token = head.uri.query().and_then(|query| query.strip_prefix("token="));
        let is_open = token.is_some_and(|token| self.is_token(token));
        if head.method == Method::GET && head.uri.path() == "/" && is_open {
            return Ok(Admission::Opened);
        }
        check_origin(&head.headers)?;
        if self.has_cookie(&head.headers) { Ok(Admission::Known) } else { Err(NO_TOKEN) }
    }

    /// Cookies know no ports, so the name has the port.
    fn cookie_name(&self) -> String {
        format!("requeue-ui-{}", self.port)
    }

    pub(super) fn cookie(&self) -> HeaderValue {
        let (name, token) = (self.cookie_name(), &self.token);
        let cookie = format!("{name}={token}; Path=/; SameSite=Strict; HttpOnly");
        HeaderValue::from_str(&cookie).expect("a name and a token are visible ASCII")
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let name = self.cookie_name();
        let cookies =
            headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        cookies.flat_map(|value| value.split(';')).any(|pair| {
            pair.trim()
                .split_once('=')
                .is_some_and(|(its, token)| its == name && self.is_token(token))
        })
    }

    /// The time of the comparison does not depend on the token.
    fn is_token(&self, other: &str) -> bool {
        let differences =
            self.token.bytes().zip(other.bytes()).fold(0, |all, (own, its)| all | (own ^ its));
        self.token.len() == other.len() && differences == 0
    }
}

/// A browser sends the origin with each POST, so a POST without one is refused.
fn check_post(headers: &HeaderMap) -> Result<(), Refusal> {
    check_origin(headers)?;
    let is_own = headers.contains_key(header::ORIGIN)
        && headers.get_all(SEC_FETCH_SITE).iter().all(|site| site == "same-origin")
        && headers.get(OWN_HEADER).is_some_and(|value| value == "1");
    if !is_own {
        return Err(NOT_OWN);
    }
    match headers.get(header::CONTENT_TYPE) {
        Some(kind) if kind == "application/json" => Ok(()),
        _ => Err(NOT_JSON),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn guard() -> Guard {
        Guard { port: 9326, token: "secret".to_owned() }
    }

    fn admitted(method: &str, path: &str, headers: &[(&str, &str)]) -> Result<Admission, u16> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        guard().admit(&head).map_err(|(status, _)| status.as_u16())
    }

    const HOST: (&str, &str) = ("host", "127.0.0.1:9326");
    const COOKIE: (&str, &str) = ("cookie", "a=b; requeue-ui-9326=secret");

    #[test]
    fn a_page_of_another_name_gets_nothing() {
        for (host, is_own) in [
            ("127.0.0.1:9326", true),
            ("localhost:9326", true),
            ("[::1]:9326", true),
            ("127.0.0.1", false),
            ("127.0.0.1:9327", false),
            ("127.0.0.1:09326", false),
            ("localhost.:9326", false),
            ("LOCALHOST:9326", false),
            ("evil.example:9326", false),
            ("127.0.0.1.evil.example:9326", false),
            ("evil.example@127.0.0.1:9326", false),
            ("0.0.0.0:9326", false),
            ("", false),
        ] {
            let expected = if is_own { Ok(Admission::Known) } else { Err(421) };
            assert_eq!(admitted("GET", "/", &[("host", host), COOKIE]), expected, "{host}");
            let expected = if is_own { Ok(Admission::Opened) } else { Err(421) };
            assert_eq!(admitted("GET", "/?token=secret", &[("host", host)]), expected, "{host}");
        }
        assert_eq!(admitted("GET", "/", &[COOKIE]), Err(421), "without a host");
        assert_eq!(admitted("GET", "/", &[HOST, HOST, COOKIE]), Err(421), "with two hosts");
    }

    #[test]
    fn without_the_token_of_this_start_nothing_is_served() {
        for (path, headers, expected) in [
            ("/", &[HOST][..], Err(403)),
            ("/?token=secret", &[HOST], Ok(Admission::Opened)),
            ("/?token=secret", &[HOST, ("sec-fetch-site", "cross-site")], Ok(Admission::Opened)),
            ("/?token=secre", &[HOST], Err(403)),
            ("/?token=secrets", &[HOST], Err(403)),
            ("/?token=", &[HOST], Err(403)),
            ("/?token=secret&more", &[HOST], Err(403)),
            ("/api/page?token=secret", &[HOST], Err(403)),
            ("/", &[HOST, ("cookie", "requeue-ui-9326=secreT")], Err(403)),
            ("/", &[HOST, ("cookie", "requeue-ui-9327=secret")], Err(403)),
            ("/", &[HOST, ("cookie", "requeue-ui-9326=")], Err(403)),
            ("/", &[HOST, COOKIE], Ok(Admission::Known)),
        ] {
            assert_eq!(admitted("GET", path, headers), expected, "{path} {headers:?}");
        }
    }

    #[test]
    fn another_origin_gets_nothing_even_with_the_cookie() {
        for (name, value, is_own) in [
            ("sec-fetch-site", "same-origin", true),
            ("sec-fetch-site", "none", true),
            ("sec-fetch-site", "same-site", false),
            ("sec-fetch-site", "cross-site", false),
            ("origin", "http://127.0.0.1:9326", true),
            ("origin", "http://localhost:9326", false),
            ("origin", "http://127.0.0.1:3000", false),
            ("origin", "https://127.0.0.1:9326", false),
            ("origin", "null", false),
        ] {
            let expected = if is_own { Ok(Admission::Known) } else { Err(403) };
            let headers = [HOST, COOKIE, (name, value)];
            assert_eq!(admitted("GET", "/api/page", &headers), expected, "{name}: {value}");
        }
    }

    #[test]
    fn a_post_needs_all_marks_of_the_own_page() {
        let whole = [
            HOST,
            COOKIE,
            ("origin", "http://127.0.0.1:9326"),
            ("sec-fetch-site", "same-origin"),
            ("x-requeue-ui", "1"),
            ("content-type", "application/json"),
        ];
        assert_eq!(admitted("POST", "/api/x", &whole), Ok(Admission::Known));
        assert_eq!(admitted("POST", "/?token=secret", &whole), Ok(Admission::Known));
        for (at, status) in [(0, 421), (1, 403), (2, 403), (4, 403), (5, 415)] {
            let mut headers = whole.to_vec();
            let (name, _) = headers.remove(at);
            assert_eq!(admitted("POST", "/api/x", &headers), Err(status), "without {name}");
        }
        for (at, value, status) in [
            (2, "http://localhost:9326", 403),
            (2, "null", 403),
            (3, "same-site", 403),
            (3, "none", 403),
            (4, "2", 403),
            (5, "text/plain", 415),
        ] {
            let mut headers = whole.to_vec();
            headers[at].1 = value;
            assert_eq!(admitted("POST", "/api/x", &headers), Err(status), "{:?}", headers[at]);
        }
        for method in ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
            assert_eq!(admitted(method, "/api/x", &whole), Err(405), "{method}");
        }
    }

    #[test]
    fn each_start_has_another_token() {
        let [one, other] = [(), ()].map(|()| Guard::new(9326));
        assert_ne!(one.url(), other.url());
        assert_eq!(one.token.len(), 32);
        assert!(one.cookie().to_str().expect("ASCII").ends_with("SameSite=Strict; HttpOnly"));
    }
}
