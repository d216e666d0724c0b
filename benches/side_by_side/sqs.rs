//! The part of SQS that settling needs: it confirms every entry after a latency, and counts requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use requeue_testkit::http;
use tokio_rustls::TlsAcceptor;

#[derive(Default)]
struct Shared {
    requests: AtomicU64,
    /// The number of requests that get a 503.
    refusals: AtomicU64,
}

pub struct Sqs {
    shared: Arc<Shared>,
    server: http::Server,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Batch {
    entries: Vec<Entry>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    id: String,
}

impl Sqs {
    pub async fn start(latency: Duration) -> Self {
        Self::over(None, latency).await
    }

    /// Over TLS if there is an acceptor.
    pub async fn over(tls: Option<TlsAcceptor>, latency: Duration) -> Self {
        let shared = Arc::<Shared>::default();
        let of_server = Arc::clone(&shared);
        let server = http::Server::over(tls, move |request| {
            answer(Arc::clone(&of_server), latency, request)
        })
        .await;
        Self { shared, server }
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The number of requests since the last call of this function.
    pub fn requests(&self) -> f64 {
        self.shared.requests.swap(0, Ordering::SeqCst) as f64
    }

    pub fn refuse_next(&self) {
        self.shared.refusals.store(1, Ordering::SeqCst);
    }
}

async fn answer(
    shared: Arc<Shared>,
    latency: Duration,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    shared.requests.fetch_add(1, Ordering::SeqCst);
    let body = request
        .into_body()
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    if shared
        .refusals
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
        .is_ok()
    {
        return http::status(StatusCode::SERVICE_UNAVAILABLE);
    }
    let Ok(batch) = serde_json::from_slice::<Batch>(&body) else {
        return http::status(StatusCode::BAD_REQUEST);
    };
    let confirmed = |entry: Entry| {
        format!(
            r#"{{"Id":"{}","MessageId":"b8d3cd52-0e2c-4c5f-9c0d-6d8f2c1b7a11","MD5OfMessageBody":"00"}}"#,
            entry.id
        )
    };
    let confirmed: Vec<String> = batch.entries.into_iter().map(confirmed).collect();
    let answer = format!(r#"{{"Successful":[{}],"Failed":[]}}"#, confirmed.join(","));
    Response::builder()
        .header("Content-Type", "application/x-amz-json-1.0")
        .body(Full::new(Bytes::from(answer)))
        .expect("valid headers")
}
