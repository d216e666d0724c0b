//! The interface for other processes: the same exchange over HTTP/1.1. It is on loopback only,
//! since it does not authenticate callers. Requests whose header `Host` names another machine are
//! refused.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http::{Request as HttpRequest, Response, header};
use http_body_util::Full;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::EmbeddedSqs;
use crate::exchange::{CONTENT_TYPE, ExchangeResult, Request, WireResponse};
use crate::loopback::{self, Bounds};

const BOUNDS: Bounds = Bounds {
    // A full batch in which every byte is written as an escape of six, and room for the rest.
    body: 8 * requeue_sqs::MAX_BATCH_BYTES,
    // A few such bodies at once, or a batch of ordinary size from hundreds of connections.
    bodies: 256 * requeue_sqs::MAX_BATCH_BYTES,
    // As many as the receivers that a worker may have, and some more.
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
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The port.
    #[must_use]
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

async fn respond(
    sqs: EmbeddedSqs,
    request: HttpRequest<Bytes>,
) -> io::Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    // Clients find the queue under the host name by which they found the server.
    let endpoint = format!("http://{}", header("host").unwrap_or("127.0.0.1"));
    let reply = sqs
        .exchange(Request {
            target: header("x-amz-target").unwrap_or_default(),
            trace: header("x-amzn-trace-id"),
            body: &body,
            endpoint: &endpoint,
        })
        .await;
    match reply {
        ExchangeResult::Response(answer) => response(answer),
        ExchangeResult::Broken => Err(io::Error::other("the connection was broken by a fault")),
    }
}

fn response(answer: WireResponse) -> io::Result<Response<Full<Bytes>>> {
    let response = Response::builder()
        .status(answer.status)
        .header(header::CONTENT_TYPE, CONTENT_TYPE)
        .header(header::DATE, answer.date);
    let response = match answer.query_error {
        Some(error) => response.header("x-amzn-query-error", error),
        None => response,
    };
    response.body(Full::from(answer.body)).map_err(io::Error::other)
}
