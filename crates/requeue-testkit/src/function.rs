//! A function behind Lambda's API, on loopback.

use std::future::Future;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use serde_json::{Value, json};

use crate::http::Server;

/// Its own timeout is 3 s.
pub struct FunctionApi {
    server: Server,
    events: Arc<Mutex<Vec<Value>>>,
}

/// The answer to an invocation: a status, the code of an error or an empty one, and the body.
pub type Answer = (u16, &'static str, Value);

impl FunctionApi {
    /// `respond` gets each event.
    pub async fn start<R, F>(respond: R) -> Self
    where
        R: Fn(Value) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Answer> + Send + 'static,
    {
        let events = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&events);
        let server = Server::start(move |request: Request<Incoming>| {
            let (log, respond) = (Arc::clone(&log), respond.clone());
            async move {
                if request.uri().path().ends_with("/configuration") {
                    return response((200, "", json!({ "Timeout": 3, "State": "Active" })));
                }
                let body = request.into_body().collect().await.expect("a whole request").to_bytes();
                let event: Value = serde_json::from_slice(&body).expect("an event");
                log.lock().expect("no panic").push(event.clone());
                response(respond(event).await)
            }
        })
        .await;
        Self { server, events }
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The events in the order of their invocations.
    pub fn events(&self) -> Vec<Value> {
        self.events.lock().expect("no panic").clone()
    }

    /// The records of all events.
    pub fn records(&self) -> Vec<Value> {
        self.events().iter().flat_map(records).cloned().collect()
    }
}

/// The records of an event.
pub fn records(event: &Value) -> &[Value] {
    event["Records"].as_array().map_or(&[], Vec::as_slice)
}

fn response((status, code, body): Answer) -> Response<Full<Bytes>> {
    let response = Response::builder().status(status).header("content-type", "application/json");
    let response = match code {
        "" => response,
        code => response.header("x-amzn-ErrorType", code),
    };
    // Of a function that threw.
    let response = match body.get("errorMessage") {
        Some(_) => response.header("x-amz-function-error", "Unhandled"),
        None => response,
    };
    response.body(Full::from(body.to_string())).expect("a valid response")
}
