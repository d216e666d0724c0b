//! `requeue-lambda` and a target behind TLS: what they agree on, and whom it does not trust.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::stage::{CANARY, Stage, TIMEOUT, json};

/// A target on loopback with a certificate of its own making. Stops when it is dropped.
struct Target {
    port: u16,
    /// The file with its certificate, for whoever is to trust it.
    root: PathBuf,
    /// For each connection that came through, what was spoken on it.
    spoken: Arc<Mutex<Vec<Vec<Version>>>>,
    accepting: JoinHandle<()>,
}

impl Target {
    /// Its certificate is for `name`, and it offers `protocols`.
    async fn start(name: &str, protocols: &[&[u8]]) -> Self {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config =
            config.expect("versions").with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key);
        let mut config = config.expect("the key is the certificate's");
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();

        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free loopback port");
        let port = listener.local_addr().expect("a bound address").port();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let spoken = Arc::new(Mutex::new(Vec::new()));
        let accepting = tokio::spawn(accept(listener, acceptor, Arc::clone(&spoken)));
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{port}.pem"));
        std::fs::write(&root, made.cert.pem()).expect("it is written");
        Self { port, root, spoken, accepting }
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}/?{CANARY}", self.port)
    }

    /// The settings of a function that calls this target and trusts `trusted`.
    fn settings<'a>(url: &'a str, trusted: &'a Self) -> [(&'a str, &'a str); 3] {
        let root = trusted.root.to_str().expect("a path in UTF-8");
        [("REQUEUE_TARGET_URL", url), ("SSL_CERT_FILE", root), ("AWS_LAMBDA_LOG_LEVEL", "TRACE")]
    }

    fn spoken(&self) -> Vec<Vec<Version>> {
        self.spoken.lock().unwrap().clone()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.accepting.abort();
        let _ = std::fs::remove_file(&self.root);
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, spoken: Arc<Mutex<Vec<Vec<Version>>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        // A client that does not trust us ends the handshake.
        let Ok(stream) = acceptor.accept(stream).await else { continue };
        let connection = {
            let mut connections = spoken.lock().unwrap();
            connections.push(Vec::new());
            connections.len() - 1
        };
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let spoken = Arc::clone(&spoken);
        let service = service_fn(move |request: Request<Incoming>| {
            spoken.lock().unwrap()[connection].push(request.version());
            async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) }
        });
        tokio::spawn(async move {
            let stream = TokioIo::new(stream);
            if is_http2 {
                let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await;
            } else {
                let _ = http1::Builder::new().serve_connection(stream, service).await;
            }
        });
    }
}

#[tokio::test]
async fn invocations_share_a_connection_of_the_best_protocol_that_the_target_offers() {
    for (protocols, expected) in
        [(&[&b"h2"[..], b"http/1.1"][..], Version::HTTP_2), (&[b"http/1.1"], Version::HTTP_11), (&[], Version::HTTP_11)]
    {
        let stage = Stage::new().await;
        let target = Target::start("127.0.0.1", protocols).await;
        let mut function = stage.requeue_lambda(&Target::settings(&target.url(), &target)).await;
        for _ in 0..3 {
            stage.send("{}").await;
            stage.invoke(&mut function, TIMEOUT).await;
        }
        assert!(stage.messages().is_empty());
        assert_eq!(target.spoken(), [[expected; 3]]);
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

        assert!(target.spoken().iter().all(Vec::is_empty), "nothing is sent to it");
        let copies = stage.messages();
        assert_eq!(copies.len(), 1);
        assert_eq!(json(&copies[0].body).unwrap()["retryState"]["class"], "temporary");
        let log = function.stop().await;
        assert!(log.contains("certificate not accepted") && !log.contains(CANARY), "{log}");
    }
}
