//! Stands between one worker and SQS, and takes down what SQS gave it and what SQS confirmed to it
//! as deleted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ::http::{HeaderName, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use requeue_testkit::http;
use serde_json::Value;
use tokio::time::Instant;

pub struct Proxy {
    server: http::Server,
    seen: Arc<Mutex<Seen>>,
}

/// By message id.
#[derive(Clone, Default)]
pub struct Seen {
    pub received: BTreeMap<String, Version>,
    pub deleted: BTreeMap<String, Instant>,
    /// Message ids by receipt handle.
    handles: BTreeMap<String, String>,
    /// The access key whose credentials have expired.
    expired: Option<&'static str>,
    /// The requests with it since then.
    pub refused: usize,
}

/// The position of a copy among the copies of its original; the original itself has no retries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub original: String,
    pub retries: u64,
}

impl Proxy {
    pub async fn start(endpoint: &str) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let (endpoint, log) = (endpoint.to_owned(), Arc::clone(&seen));
        let client = Client::builder(TokioExecutor::new()).build_http();
        let server = http::Server::start(move |request| {
            let (client, endpoint, log) = (client.clone(), endpoint.clone(), Arc::clone(&log));
            async move {
                pass(&client, &endpoint, request, &log)
                    .await
                    .unwrap_or(http::status(StatusCode::BAD_GATEWAY))
            }
        });
        Self { server: server.await, seen }
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    /// From now on SQS refuses requests with this access key.
    pub fn expire(&self, key: &'static str) {
        self.seen.lock().unwrap().expired = Some(key);
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

type Requests = Client<HttpConnector, Full<Bytes>>;

/// Forwards a request and its response; `None` if one side has disconnected.
async fn pass(
    client: &Requests,
    endpoint: &str,
    request: Request<Incoming>,
    log: &Mutex<Seen>,
) -> Option<Response<Full<Bytes>>> {
    let (mut parts, body) = request.into_parts();
    let asked = body.collect().await.ok()?.to_bytes();
    if log.lock().unwrap().refuses(parts.headers.get(header::AUTHORIZATION)?.to_str().ok()?) {
        let refusal = r#"{"__type": "com.amazon.coral.service#ExpiredTokenException"}"#;
        let response = Response::builder().status(StatusCode::BAD_REQUEST);
        return response.body(Full::from(refusal)).ok();
    }
    let target = parts
        .headers
        .get("x-amz-target")
        .and_then(|target| target.to_str().ok())
        .unwrap_or_default();
    let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
    parts.uri = format!("{endpoint}{}", parts.uri.path()).parse().unwrap();
    parts.headers.remove(header::HOST);
    let (mut parts, body) = client
        .request(Request::from_parts(parts, Full::from(asked.clone())))
        .await
        .ok()?
        .into_parts();
    let answered = body.collect().await.ok()?.to_bytes();
    if parts.status.is_success() {
        log.lock().unwrap().note(&operation, &json(&asked), &json(&answered));
    }
    for name in
        [header::TRANSFER_ENCODING, header::CONNECTION, HeaderName::from_static("keep-alive")]
    {
        parts.headers.remove(name);
    }
    Some(Response::from_parts(parts, Full::from(answered)))
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_default()
}

impl Seen {
    fn refuses(&mut self, authorization: &str) -> bool {
        let refuses =
            self.expired.is_some_and(|key| authorization.contains(&format!("Credential={key}/")));
        self.refused += usize::from(refuses);
        refuses
    }

    fn note(&mut self, operation: &str, asked: &Value, answered: &Value) {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        match operation {
            "ReceiveMessage" => {
                for message in list(&answered["Messages"]) {
                    let (id, body) = (
                        text(&message["MessageId"]),
                        json(message["Body"].as_str().unwrap().as_bytes()),
                    );
                    let version = Version {
                        original: body["originalMessageId"].as_str().unwrap_or(&id).to_owned(),
                        retries: body["retryCount"].as_u64().unwrap_or_default(),
                    };
                    self.handles.insert(text(&message["ReceiptHandle"]), id.clone());
                    self.received.insert(id, version);
                }
            }
            "DeleteMessageBatch" => {
                for confirmed in list(&answered["Successful"]) {
                    let entries = list(&asked["Entries"]);
                    let entry =
                        entries.iter().find(|entry| entry["Id"] == confirmed["Id"]).unwrap();
                    let id = self.handles[entry["ReceiptHandle"].as_str().unwrap()].clone();
                    self.deleted.entry(id).or_insert_with(Instant::now);
                }
            }
            _ => {}
        }
    }

    /// Messages that it received and whose deletion it did not see.
    pub fn in_hand(&self) -> impl Iterator<Item = &Version> {
        self.received
            .iter()
            .filter(|(id, _)| !self.deleted.contains_key(*id))
            .map(|(_, version)| version)
    }
}
