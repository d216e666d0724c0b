//! A small HTTP server on a free loopback port.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Stops when it is dropped.
pub struct Server {
    address: SocketAddr,
    scheme: &'static str,
    accepted: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Server {
    /// Serves every request with `answer`.
    pub async fn start<A, F>(answer: A) -> Self
    where
        A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        Self::over(None, answer).await
    }

    /// As [`start`](Self::start), over TLS if there is an acceptor, and over HTTP/2 if it and the client agree.
    pub async fn over<A, F>(tls: Option<TlsAcceptor>, answer: A) -> Self
    where
        A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free loopback port");
        let address = listener.local_addr().expect("a bound address");
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                // Otherwise a response waits for the acknowledgement of the bytes that TLS wrote
                // before it.
                let _ = stream.set_nodelay(true);
                let (tls, answer) = (tls.clone(), answer.clone());
                connections.spawn(async move {
                    let service = service_fn(move |request| {
                        let answered = answer(request);
                        async move { Ok::<_, Infallible>(answered.await) }
                    });
                    // If a client disconnects, or does not trust the certificate, the test does not
                    // fail.
                    let Some(tls) = tls else {
                        let _ = http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service)
                            .await;
                        return;
                    };
                    let Ok(stream) = tls.accept(stream).await else { return };
                    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                        let http2 = http2::Builder::new(TokioExecutor::new());
                        let _ = http2.serve_connection(TokioIo::new(stream), service).await;
                    } else {
                        let _ = http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service)
                            .await;
                    }
                });
            }
        });
        Self { address, scheme, accepted, accepting }
    }

    /// The number of accepted connections.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn authority(&self) -> String {
        self.address.to_string()
    }

    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.authority())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A response without a body.
pub fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}
