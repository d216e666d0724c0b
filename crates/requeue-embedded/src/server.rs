//! The interface for other processes: HTTP/1.1 on loopback only, since it does not authenticate
//! callers. Requests for another machine's name, and those of web pages, are refused.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::EmbeddedSqs;
use crate::loopback::{self, Bounds};

const BOUNDS: Bounds = Bounds {
    // A full batch in which every byte is written as an escape of six, and room for the rest.
    body: 8 * requeue_sqs::MAX_BATCH_BYTES,
    // A few such bodies at once, or a batch of ordinary size from hundreds of connections.
    bodies: 256 * requeue_sqs::MAX_BATCH_BYTES,
    // As many as the calls that a worker may have at a time, and some more.
    connections: 1_024,
};

/// A running server. Dropping it breaks its connections; [`stop`](Self::stop) ends them in order.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    running: AbortOnDropHandle<()>,
}

impl EmbeddedSqs {
    /// Serves these queues to other processes on `127.0.0.1`; port 0 lets the system choose one.
    ///
    /// # Errors
    ///
    /// If the port is taken.
    ///
    /// ```
    /// # use requeue::{Clock, embedded::EmbeddedSqs};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let server = EmbeddedSqs::new(Clock::system()).serve(0).await?;
    /// println!("aws --endpoint-url {} sqs list-queues", server.url());
    /// server.stop().await;
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn serve(&self, port: u16) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = watch::channel(false);
        let sqs = self.clone();
        let serving = loopback::serve(listener, stopped, BOUNDS, move |request| {
            respond(sqs.clone(), request)
        });
        let running = AbortOnDropHandle::new(tokio::spawn(serving));
        Ok(Server { address, stop, running })
    }
}

impl Server {
    /// The endpoint, as in `http://127.0.0.1:9324`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Accepts no more connections, lets open requests end for a second, and breaks those that
    /// remain.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.running.await;
    }
}

async fn respond(sqs: EmbeddedSqs, request: Request<Bytes>) -> io::Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    if is_query(&parts) {
        return query_refusal();
    }
    // Clients find the queue under the host name by which they found the server.
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let endpoint = format!("http://{}", host.unwrap_or("127.0.0.1"));
    Ok(sqs.exchange(&parts.headers, &body, &endpoint).await?.map(Full::from))
}

/// Whether a client of the older protocol asks: its requests are forms.
fn is_query(parts: &Parts) -> bool {
    let is_form = parts
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/x-www-form-urlencoded"));
    let has_action = parts.uri.query().is_some_and(|query| query.contains("Action="));
    !parts.headers.contains_key("x-amz-target") && (is_form || has_action)
}

/// In the XML of that protocol, so that the client prints the sentence.
fn query_refusal() -> io::Result<Response<Full<Bytes>>> {
    const BODY: &str = "<?xml version=\"1.0\"?><ErrorResponse \
        xmlns=\"http://queue.amazonaws.com/doc/2012-11-05/\"><Error><Type>Sender</Type>\
        <Code>UnsupportedProtocol</Code><Message>this SQS speaks only the JSON protocol of AWS, and \
        the client sends the older query protocol; use a newer client, such as AWS CLI 2.16 or \
        boto3 1.35</Message><Detail/></Error>\
        <RequestId>00000000-0000-0000-0000-000000000000</RequestId></ErrorResponse>";
    Response::builder()
        .status(StatusCode::BAD_REQUEST)
        .header(header::CONTENT_TYPE, "text/xml")
        .body(Full::from(BODY))
        .map_err(io::Error::other)
}
