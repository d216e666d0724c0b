//! `requeue-lambda` and a target behind TLS: what they agree on, and whom it does not trust.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use hyper::{StatusCode, Version};

use crate::certificate::Certificate;
use crate::http;
use crate::stage::{CANARY, Stage, TIMEOUT, json};

/// A target on loopback with a certificate of its own making. Stops when it is dropped.
struct Target {
    server: http::Server,
    /// The file with its certificate, for whoever is to trust it.
    root: PathBuf,
    /// What each request was spoken in.
    spoken: Arc<Mutex<Vec<Version>>>,
}

impl Target {
    /// Its certificate is for `name`, and it offers `protocols`.
    async fn start(name: &str, protocols: &[&[u8]]) -> Self {
        let certificate = Certificate::new(name, protocols);
        let spoken = Arc::<Mutex<Vec<Version>>>::default();
        let log = Arc::clone(&spoken);
        let server = http::Server::over(Some(certificate.acceptor), move |request| {
            log.lock().unwrap().push(request.version());
            async { http::status(StatusCode::OK) }
        });
        let server = server.await;
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.pem", server.authority()));
        std::fs::write(&root, certificate.pem).expect("it is written");
        Self { server, root, spoken }
    }

    fn url(&self) -> String {
        format!("{}/?{CANARY}", self.server.url())
    }

    /// The settings of a function that calls this target and trusts `trusted`.
    fn settings<'a>(url: &'a str, trusted: &'a Self) -> [(&'a str, &'a str); 3] {
        let root = trusted.root.to_str().expect("a path in UTF-8");
        [("REQUEUE_TARGET_URL", url), ("SSL_CERT_FILE", root), ("AWS_LAMBDA_LOG_LEVEL", "TRACE")]
    }

    fn spoken(&self) -> Vec<Version> {
        self.spoken.lock().unwrap().clone()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.root);
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
