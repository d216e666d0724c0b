//! `requeue serve`: the demo's endpoint and an embedded SQS on loopback, for curl, the AWS CLI and
//! a function under test.

use std::io;
use std::net::Ipv4Addr;
use std::process::ExitCode;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use requeue::Clock;
use requeue::embedded::EmbeddedSqs;
use requeue::embedded::loopback::{self, Bounds};
use requeue::queue::MAX_BATCH_BYTES;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::endpoint::{Endpoint, header};
use crate::output::outln;
use crate::{Error, output};

/// What the endpoint takes: bodies as large as a message can be.
const BOUNDS: Bounds =
    Bounds { body: MAX_BATCH_BYTES, bodies: 64 * MAX_BATCH_BYTES, connections: 256 };

#[derive(clap::Args)]
#[command(after_help = "A body is answered as its member `answer` says: ok, rate-limit, quota, \
                  unavailable, hang, reset, invalid; with `times` so many times, and with 200 from \
                  then on.")]
pub(crate) struct Arguments {
    /// The endpoint's port on 127.0.0.1; 0 lets the system choose one.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// The port of SQS on 127.0.0.1; 0 lets the system choose one.
    #[arg(long, default_value_t = 9324)]
    sqs_port: u16,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: &Arguments) -> Result<ExitCode, Error> {
    let sqs = EmbeddedSqs::new(Clock::system());
    let dead_letters = sqs.create_queue("orders-dlq", [("MessageRetentionPeriod", "1209600")])?;
    let redrive = format!(r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":5}}"#);
    let queue =
        sqs.create_queue("orders", [("VisibilityTimeout", "30"), ("RedrivePolicy", &redrive)])?;
    let server = sqs.serve(arguments.sqs_port).await;
    let server = server.map_err(|error| taken(arguments.sqs_port, "--sqs-port", &error))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, arguments.port)).await;
    let listener = listener.map_err(|error| taken(arguments.port, "--port", &error))?;

    outln!("endpoint      http://{}/orders", listener.local_addr()?)?;
    outln!("SQS           AWS_ENDPOINT_URL_SQS={}", server.url())?;
    outln!("queue         {}", queue.url_at(&server.url()))?;
    outln!("dead letters  {}", dead_letters.url_at(&server.url()))?;

    let endpoint = Endpoint::default();
    // Nobody stops it but a signal, which ends the process.
    let (_running, stopped) = watch::channel(false);
    loopback::serve(listener, stopped, BOUNDS, move |request| respond(endpoint.clone(), request))
        .await;
    Ok(ExitCode::SUCCESS)
}

fn taken(port: u16, option: &str, error: &io::Error) -> String {
    format!("port {port} of 127.0.0.1 cannot be opened: {error}; choose another with {option}")
}

/// One line for each response.
async fn respond(endpoint: Endpoint, request: Request<Bytes>) -> io::Result<Response<Full<Bytes>>> {
    let of = |name| header(request.headers(), name).unwrap_or("-").to_owned();
    let (id, retries) = (of("idempotency-key"), of("x-requeue-retry-count"));
    let response = endpoint.respond(request.map(Full::<Bytes>::from)).await;
    let status = response
        .as_ref()
        .map_or_else(|_| "reset".to_owned(), |response| response.status().as_u16().to_string());
    // Whoever is called goes on, whether anybody reads that or not.
    let _ = output::line(format_args!("{status:>5}  message {id}, retry {retries}"));
    response
}
