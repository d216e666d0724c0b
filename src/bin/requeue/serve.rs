//! `requeue serve`: the demo's endpoint and an embedded SQS on loopback, for curl, the AWS CLI and a function under test.

use std::io;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use requeue::Clock;
use requeue::embedded::EmbeddedSqs;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::Error;
use crate::endpoint::{Endpoint, header};

/// Connections at once; others wait.
const MAX_CONNECTIONS: usize = 256;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
#[command(
    after_help = "A body is answered as its member `answer` says: ok, rate-limit, quota, unavailable, hang, reset, invalid; with `times` so \
                  many times, and with 200 from then on."
)]
pub(crate) struct Arguments {
    /// The endpoint's port on 127.0.0.1; 0 lets the system choose one.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// The port of SQS on 127.0.0.1; 0 lets the system choose one.
    #[arg(long, default_value_t = 9324)]
    sqs_port: u16,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: &Arguments) -> Result<ExitCode, Error> {
    let sqs = EmbeddedSqs::new(Clock::system());
    let dead_letters = sqs.create_queue("orders-dlq", [("MessageRetentionPeriod", "1209600")])?;
    let redrive = format!(r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":5}}"#);
    let queue = sqs.create_queue("orders", [("VisibilityTimeout", "30"), ("RedrivePolicy", &redrive)])?;
    let server = sqs.serve(arguments.sqs_port).await;
    let server = server.map_err(|error| taken(arguments.sqs_port, "--sqs-port", &error))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, arguments.port)).await;
    let listener = listener.map_err(|error| taken(arguments.port, "--port", &error))?;

    anstream::println!("endpoint      http://{}/orders", listener.local_addr()?);
    anstream::println!("SQS           AWS_ENDPOINT_URL_SQS={}", server.url());
    anstream::println!("queue         {}", queue.url_at(&server.url()));
    anstream::println!("dead letters  {}", dead_letters.url_at(&server.url()));

    let endpoint = Endpoint::default();
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let permit = Arc::clone(&connections).acquire_owned().await?;
        let Ok((stream, _)) = listener.accept().await else {
            // The system has no more connections to give.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let endpoint = endpoint.clone();
        tokio::spawn(async move {
            converse(&endpoint, stream).await;
            drop(permit);
        });
    }
}

fn taken(port: u16, option: &str, error: &io::Error) -> String {
    format!("port {port} of 127.0.0.1 cannot be opened: {error}; choose another with {option}")
}

async fn converse(endpoint: &Endpoint, stream: TcpStream) {
    let service = service_fn(|request| answer(endpoint, request));
    // An error is a connection that was reset on purpose, or a client that went away.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// One line for each answer.
async fn answer(endpoint: &Endpoint, request: Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
    let of = |name| header(request.headers(), name).unwrap_or("-").to_owned();
    let (id, retries) = (of("idempotency-key"), of("x-requeue-retry-count"));
    let answer = endpoint.answer(request).await;
    let status = answer.as_ref().map_or_else(|_| "reset".to_owned(), |response| response.status().as_u16().to_string());
    anstream::println!("{status:>5}  message {id}, retry {retries}");
    answer
}
