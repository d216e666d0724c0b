//! The face for other processes: the same exchange over HTTP/1.1, on loopback only, since nothing here asks who is calling.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{Request as HttpRequest, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::EmbeddedSqs;
use super::exchange::{Answer, CONTENT_TYPE, Reply, Request};

/// Most bytes of a request's body: a full batch in which every byte is written as an escape of six, and room for the rest.
const MAX_REQUEST_BYTES: usize = 8 * crate::queue::MAX_BATCH_BYTES;
/// How long open requests may take to end after the server was told to stop.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// How long to wait when the system has no more connections to give, so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
    /// The port is taken.
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
        let running = AbortOnDropHandle::new(tokio::spawn(accept(self.clone(), listener, stopped)));
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

    /// Accepts no more connections, lets open requests end for a second, and breaks those that have not.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.running.await;
    }
}

async fn accept(sqs: EmbeddedSqs, listener: TcpListener, mut stopped: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => break,
            // Ended connections are forgotten as they end.
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(converse(sqs.clone(), stream, stopped.clone()));
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    // What is left is broken when the set is dropped.
    let _ = tokio::time::timeout(STOP_GRACE, ended).await;
}

async fn converse(sqs: EmbeddedSqs, stream: TcpStream, mut stopped: watch::Receiver<bool>) {
    // Answers are small; without this each would wait for the other side's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let sqs = sqs.clone();
        async move { respond(&sqs, request).await }
    });
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .auto_date_header(false)
            .serve_connection(TokioIo::new(stream), service)
    );
    tokio::select! {
        _ = connection.as_mut() => {}
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

async fn respond(sqs: &EmbeddedSqs, request: HttpRequest<Incoming>) -> io::Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let body = match Limited::new(body, MAX_REQUEST_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return plain(413),
    };
    // Clients find the queue under the name by which they found the server.
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
        Reply::Answer(answer) => response(answer),
        Reply::Broken => Err(io::Error::other("the connection was broken by a fault")),
    }
}

fn response(answer: Answer) -> io::Result<Response<Full<Bytes>>> {
    let response = Response::builder()
        .status(answer.status)
        .header(header::CONTENT_TYPE, CONTENT_TYPE)
        .header(header::DATE, httpdate::fmt_http_date(answer.date));
    let response = match answer.query_error {
        Some(error) => response.header("x-amzn-query-error", error),
        None => response,
    };
    response.body(Full::from(answer.body)).map_err(io::Error::other)
}

fn plain(status: u16) -> io::Result<Response<Full<Bytes>>> {
    Response::builder().status(status).body(Full::default()).map_err(io::Error::other)
}
