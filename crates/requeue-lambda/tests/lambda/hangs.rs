//! The real thing, with real sockets that accept no connection or never answer: the answer is out
//! before the deadline.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use requeue::embedded::Fault;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};

use crate::runtime_api::Ended;
use crate::stage::{Stage, failed};

/// No client can connect to it: its backlog is full, and it accepts no connection.
struct Deaf {
    address: SocketAddr,
    _backlog: Vec<TcpStream>,
    _listener: tokio::net::TcpListener,
}

impl Deaf {
    async fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut backlog = Vec::new();
        while let Ok(Ok(stream)) =
            timeout(Duration::from_millis(300), TcpStream::connect(address)).await
        {
            backlog.push(stream);
        }
        Self { address, _backlog: backlog, _listener: listener }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// The shortest invocation.
const SHORTEST: Duration = Duration::from_millis(1_500);

/// The hanging step.
#[derive(Clone, Copy, Debug)]
enum Step {
    ConnectToTarget,
    Target,
    ConnectToSqs,
    Send,
    Delete,
    Visibility,
}

const STEPS: [Step; 6] = [
    Step::ConnectToTarget,
    Step::Target,
    Step::ConnectToSqs,
    Step::Send,
    Step::Delete,
    Step::Visibility,
];

/// Whether the answer of one invocation of so long, of which this hangs, was out in time. Fails if
/// a message is lost.
async fn is_answered_in_time(step: Step, function_timeout: Duration) -> bool {
    let context = format!("{step:?}, {function_timeout:?}");
    let stage = Stage::new().await;
    let deaf = Deaf::new().await;
    let url = deaf.url();
    let mut settings = match step {
        Step::ConnectToTarget => vec![("REQUEUE_TARGET_URL", url.as_str())],
        Step::ConnectToSqs => vec![("AWS_ENDPOINT_URL_SQS", url.as_str())],
        Step::Visibility => vec![("REQUEUE_STRATEGY", "visibility")],
        Step::Target | Step::Send | Step::Delete => Vec::new(),
    };
    settings.push(("REQUEUE_CONCURRENCY", "3"));
    let operation = match step {
        Step::Send => "SendMessageBatch",
        Step::Delete => "DeleteMessageBatch",
        Step::Visibility => "ChangeMessageVisibilityBatch",
        Step::ConnectToTarget | Step::Target | Step::ConnectToSqs => "",
    };
    let mut function = stage.requeue_lambda(&settings).await;
    let mut ids = Vec::new();
    for n in 0..4 {
        let answer = if matches!(step, Step::Target) { "hang" } else { "unavailable" };
        ids.push(stage.send(&format!(r#"{{"answer":"{answer}","n":{n}}}"#)).await);
    }
    let batch = stage.receive().await;
    stage.sqs.set_faults(
        move |call| if call.operation == operation { Fault::Hang } else { Fault::None },
    );
    let begun = Instant::now();
    let ended = function.invoke(&batch.event(&stage.queue), function_timeout).await;
    let in_time = begun.elapsed() < function_timeout;
    if !matches!(ended, Ended::Response(_)) {
        return false;
    }
    let kept = failed(&ended).len();
    stage.acknowledge(&batch, &ended);
    match step {
        Step::ConnectToSqs | Step::Send | Step::Visibility => {
            assert_eq!(kept, 4, "{context}: SQS keeps them");
        }
        // In the shortest invocation, a busy machine may have no time left for the copies.
        Step::ConnectToTarget | Step::Target | Step::Delete => {
            assert!(kept == 0 || function_timeout == SHORTEST, "{context}: {kept} copies not sent");
        }
    }
    let there = stage.ids();
    for id in &ids {
        let is_there = there.iter().any(|(now, first)| now == id || first.as_ref() == Some(id));
        assert!(is_there, "{context}: {id} is lost");
    }
    in_time
}

/// A busy machine can keep all processes waiting past the deadline a few times, but not each time.
async fn invoke(step: Step, function_timeout: Duration) {
    for _ in 0..5 {
        if is_answered_in_time(step, function_timeout).await {
            return;
        }
    }
    panic!("{step:?}, {function_timeout:?}: no answer before the deadline");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn whatever_hangs_the_answer_is_out_before_the_deadline() {
    for seconds in 0..4 {
        let function_timeout = SHORTEST + Duration::from_secs(seconds);
        join_all(STEPS.map(|step| invoke(step, function_timeout))).await;
    }
}
