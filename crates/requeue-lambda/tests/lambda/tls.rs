//! `requeue-lambda` and a target behind TLS: what they agree on, and whom it does not trust.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ::http::HeaderMap;
use http_body_util::Full;
use hyper::{Response, StatusCode, Version};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use requeue_testkit::certificate::Certificate;
use requeue_testkit::http;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::server::WebPkiClientVerifier;

use crate::stage::{CANARY, Stage, TIMEOUT, failed, json};

/// A target on loopback with a certificate of its own making. Stops when it is dropped.
pub struct Target {
    pub server: http::Server,
    /// The file with its certificate, for clients. Its directory has no other file.
    pub root: PathBuf,
    requests: Arc<Mutex<Vec<(Version, HeaderMap)>>>,
}

impl Target {
    /// Its certificate is for `name`, and it offers `protocols`.
    pub async fn start(name: &str, protocols: &[&[u8]]) -> Self {
        Self::with(Certificate::new(name, protocols)).await
    }

    /// It asks for a certificate that `authority` issued.
    async fn asking_for(authority: &Authority, protocol: &[u8]) -> Self {
        let verifier = WebPkiClientVerifier::builder_with_provider(
            authority.roots.clone(),
            default_provider().into(),
        );
        let verifier = verifier.build().expect("there is a root");
        Self::with(Certificate::verifying(verifier, "127.0.0.1", &[protocol])).await
    }

    async fn with(certificate: Certificate) -> Self {
        let requests = Arc::<Mutex<Vec<(Version, HeaderMap)>>>::default();
        let log = Arc::clone(&requests);
        let server = http::Server::over(Some(certificate.acceptor), move |request| {
            log.lock().unwrap().push((request.version(), request.headers().clone()));
            async { http::status(StatusCode::OK) }
        });
        let server = server.await;
        let directory =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("tls-{}", server.port()));
        std::fs::create_dir_all(&directory).expect("it is made");
        let root = directory.join("root.pem");
        std::fs::write(&root, certificate.pem).expect("it is written");
        Self { server, root, requests }
    }

    fn url(&self) -> String {
        format!("{}/?{CANARY}", self.server.url())
    }

    /// The settings of a function that calls this target and trusts `trusted`.
    fn settings<'a>(url: &'a str, trusted: &'a Self) -> [(&'a str, &'a str); 3] {
        let root = trusted.root.to_str().expect("a path in UTF-8");
        [("REQUEUE_TARGET_URL", url), ("SSL_CERT_FILE", root), ("AWS_LAMBDA_LOG_LEVEL", "TRACE")]
    }

    /// The HTTP version of each request.
    pub fn spoken(&self) -> Vec<Version> {
        self.requests.lock().unwrap().iter().map(|(version, _)| *version).collect()
    }

    /// The headers of each request.
    pub fn headers(&self) -> Vec<HeaderMap> {
        self.requests.lock().unwrap().iter().map(|(_, headers)| headers.clone()).collect()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.root.parent().map(std::fs::remove_dir_all);
    }
}

/// Issues certificates to clients.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    roots: Arc<RootCertStore>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let mut roots = RootCertStore::empty();
        roots.add(params.self_signed(&key).expect("a certificate").der().clone()).expect("a root");
        Self { issuer: Issuer::new(params, key), roots: roots.into() }
    }

    /// A client's certificate and its key, in PEM.
    fn client(&self) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "canary-client");
        let issued = params.signed_by(&key, &self.issuer).expect("a certificate");
        (issued.pem(), key.serialize_pem())
    }
}

#[tokio::test]
async fn invocations_share_a_connection_of_the_best_protocol_that_the_target_offers() {
    for (protocols, expected) in [
        (&[&b"h2"[..], b"http/1.1"][..], Version::HTTP_2),
        (&[b"http/1.1"], Version::HTTP_11),
        (&[], Version::HTTP_11),
    ] {
        let stage = Stage::new().await;
        let target = Target::start("127.0.0.1", protocols).await;
        let mut function = stage.requeue_lambda(&Target::settings(&target.url(), &target)).await;
        for _ in 0..3 {
            stage.send("{}").await;
            stage.invoke(&mut function, TIMEOUT).await;
        }
        assert!(stage.messages().is_empty());
        assert_eq!((target.spoken(), target.server.accepted()), (vec![expected; 3], 1));
    }
}

#[tokio::test]
async fn a_target_that_is_not_who_it_should_be_gets_no_message() {
    let named = Target::start("127.0.0.1", &[b"h2"]).await;
    let misnamed = Target::start("example.com", &[b"h2"]).await;
    for (target, trusted) in [(&misnamed, &misnamed), (&named, &misnamed)] {
        let stage = Stage::new().await;
        let mut function = stage.requeue_lambda(&Target::settings(&target.url(), trusted)).await;
        stage.send(&format!(r#"{{"text":"{CANARY}"}}"#)).await;
        stage.invoke(&mut function, TIMEOUT).await;

        assert!(target.spoken().is_empty(), "nothing is sent to it");
        let copies = stage.messages();
        assert_eq!(copies.len(), 1);
        assert_eq!(json(&copies[0].body).unwrap()["retryState"]["class"], "temporary");
        let log = function.stop().await;
        assert!(log.contains("certificate not accepted") && !log.contains(CANARY), "{log}");
    }
}

#[tokio::test]
async fn the_root_certificates_are_those_of_a_file_or_of_a_directory() {
    let target = Target::start("127.0.0.1", &[b"h2"]).await;
    let url = target.url();
    let directory = target.root.parent().unwrap().to_str().unwrap();
    let stage = Stage::new().await;
    for (setting, path) in
        [("SSL_CERT_FILE", target.root.to_str().unwrap()), ("SSL_CERT_DIR", directory)]
    {
        let mut function =
            stage.requeue_lambda(&[("REQUEUE_TARGET_URL", &url), (setting, path)]).await;
        stage.send("{}").await;
        let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;
        assert!(
            failed(&ended).is_empty() && stage.messages().is_empty(),
            "{setting}: {}",
            function.stop().await
        );
    }
    assert_eq!(target.spoken().len(), 2);
    let settings =
        [("REQUEUE_TARGET_URL", url.as_str()), ("SSL_CERT_FILE", "/nonexistent/roots.pem")];
    let (code, output) = stage.requeue_lambda(&settings).await.ended().await;
    assert_eq!(code, Some(1), "{output}");
    for named in [
        "no root certificate for the https target",
        "/nonexistent/roots.pem",
        "SSL_CERT_FILE or SSL_CERT_DIR",
    ] {
        assert!(output.contains(named), "{named}: {output}");
    }
    assert!(!output.contains(CANARY), "{output}");
}

#[tokio::test]
async fn a_target_that_asks_for_a_client_certificate_is_shown_ours() {
    let authority = Authority::new("ours");
    let (certificate, key) = authority.client();
    let (other, other_key) = Authority::new("theirs").client();
    let in_one_line = certificate.replace('\n', "\\n");
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let target = Target::asking_for(&authority, protocol).await;
        for (shown, is_accepted) in [
            (Some((&certificate, &key)), true),
            (Some((&in_one_line, &key)), true),
            (Some((&other, &other_key)), false),
            (None, false),
        ] {
            let stage = Stage::new().await;
            let url = target.url();
            let mut settings = Target::settings(&url, &target).to_vec();
            if let Some((certificate, key)) = shown {
                settings.extend([
                    ("REQUEUE_CLIENT_CERTIFICATE", certificate.as_str()),
                    ("REQUEUE_CLIENT_KEY", key),
                ]);
            }
            let mut function = stage.requeue_lambda(&settings).await;
            let before = target.spoken().len();
            stage.send("{}").await;
            stage.invoke(&mut function, TIMEOUT).await;
            assert_eq!(target.spoken().len() - before, usize::from(is_accepted));
            let copies = stage.messages();
            let log = function.stop().await;
            if is_accepted {
                assert!(copies.is_empty(), "{log}");
            } else {
                assert_eq!(json(&copies[0].body).unwrap()["retryState"]["class"], "temporary");
                // With TLS 1.3 the refusal comes after the handshake, and the end of the connection
                // may be noticed first.
                let is_closed = log.contains(r#""detail":"connection closed""#);
                assert!(
                    is_closed || log.contains("client certificate missing or not accepted"),
                    "{log}"
                );
            }
            let lines = key.lines().chain(other_key.lines()).filter(|line| !line.starts_with('-'));
            for told in lines.chain(["canary", "BEGIN"]) {
                assert!(!log.contains(told), "{told}: {log}");
            }
        }
    }
}

#[tokio::test]
async fn client_certificate_and_key_may_be_stored_as_secrets() {
    const SECRET: &str = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders-AbCdEf";
    let authority = Authority::new("ours");
    let (certificate, key) = authority.client();
    let target = Target::asking_for(&authority, b"h2").await;
    let stored =
        serde_json::json!({"certificate": certificate, "key": key, "other": "canary"}).to_string();
    let answer = serde_json::json!({"ARN": SECRET, "SecretString": stored}).to_string();
    let service = http::Server::start(move |_| {
        let answer = answer.clone();
        async { Response::new(Full::from(answer)) }
    });
    let (service, url) = (service.await, target.url());
    let endpoint = service.url();
    let settings = |certificate, key| {
        let settings = Target::settings(&url, &target).to_vec();
        let named = [("REQUEUE_CLIENT_CERTIFICATE", certificate), ("REQUEUE_CLIENT_KEY", key)];
        [settings, named.to_vec(), vec![("AWS_ENDPOINT_URL_SECRETS_MANAGER", endpoint.as_str())]]
            .concat()
    };
    let [certificate, key, other] =
        ["certificate", "key", "other"].map(|key| format!("{SECRET}:{key}::"));
    let stage = Stage::new().await;
    let mut function = stage.requeue_lambda(&settings(&certificate, &key)).await;
    stage.send("{}").await;
    stage.invoke(&mut function, TIMEOUT).await;
    assert_eq!((target.spoken().len(), service.accepted()), (1, 1), "{}", function.stop().await);

    let (code, output) = stage.requeue_lambda(&settings(&certificate, &other)).await.ended().await;
    assert_eq!(code, Some(1), "{output}");
    assert!(
        output.contains(
            "Error: 1 setting is invalid:\n  REQUEUE_CLIENT_KEY is invalid: a private key must be"
        ),
        "{output}"
    );
    assert!(!output.contains("canary"), "{output}");
}
