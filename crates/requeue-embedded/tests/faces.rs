//! What the conformance suite cannot ask of another implementation: faults, replayed messages, the
//! port, the look inside, speed.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use std::time::{Duration, SystemTime};

use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use aws_sdk_sqs::error::SdkError;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use requeue::embedded::{EmbeddedSqs, EntryFault, EntryOutcome, Fault, MessageState};
use requeue::queue::{Attribute, CallErrorKind, Outgoing, Queue, QueueArn};
use requeue::{Clock, Delay, Record};

fn start() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(500_000)
}

fn with_queue(attributes: &[(&str, &str)]) -> (EmbeddedSqs, QueueArn) {
    let sqs = EmbeddedSqs::seeded(Clock::starting_at(start()), "us-east-1", "000000000000", 7);
    let queue = sqs.create_queue("orders", attributes.iter().copied()).expect("a legal queue");
    (sqs, queue)
}

fn outgoing(body: &str, secs: u64) -> Outgoing<'_> {
    static NO_ATTRIBUTES: BTreeMap<String, Attribute> = BTreeMap::new();
    let mut outgoing = Outgoing::new(body, &NO_ATTRIBUTES);
    outgoing.delay = Delay::at_most(Duration::from_secs(secs));
    outgoing
}

fn without_retries(sqs: &EmbeddedSqs) -> aws_sdk_sqs::Client {
    aws_sdk_sqs::Client::from_conf(
        sqs.client_config().retry_config(RetryConfig::disabled()).build(),
    )
}

async fn send(client: &aws_sdk_sqs::Client, queue: &QueueArn, body: &str) -> Result<(), String> {
    let sent = client.send_message().queue_url(queue.url()).message_body(body).send().await;
    sent.map(drop).map_err(|error| match error {
        SdkError::ServiceError(error) => error.err().meta().code().unwrap_or("no code").to_owned(),
        SdkError::DispatchFailure(failure) if !failure.is_timeout() => "no connection".to_owned(),
        SdkError::TimeoutError(_) => "time-out".to_owned(),
        other => format!("{other:?}"),
    })
}

#[tokio::test(start_paused = true)]
async fn a_fault_decides_what_the_client_sees_and_what_is_stored() {
    let refuse = || Fault::refuse(403, "AccessDeniedException");
    for (fault, seen, stored) in [
        (Fault::None, Ok(()), 1),
        (refuse(), Err("AccessDeniedException"), 0),
        (Fault::LoseRequest, Err("no connection"), 0),
        (Fault::LoseResponse, Err("no connection"), 1),
        (Fault::RespondAfter(Duration::from_mins(1)), Err("time-out"), 1),
        (Fault::Hang, Err("time-out"), 0),
        (Fault::after(Duration::from_secs(1), Fault::None), Ok(()), 1),
        (Fault::after(Duration::from_secs(1), refuse()), Err("AccessDeniedException"), 0),
        (Fault::after(Duration::from_mins(1), Fault::None), Err("time-out"), 0),
    ] {
        let (sqs, queue) = with_queue(&[]);
        let chosen = fault.clone();
        sqs.set_faults(move |_| chosen.clone());
        let timeouts = TimeoutConfig::builder().operation_timeout(Duration::from_secs(30)).build();
        let config =
            sqs.client_config().retry_config(RetryConfig::disabled()).timeout_config(timeouts);
        let client = aws_sdk_sqs::Client::from_conf(config.build());
        let outcome = send(&client, &queue, "x").await;
        assert_eq!(outcome, seen.map_err(str::to_owned), "{fault:?}");
        assert_eq!(sqs.messages(&queue).expect("it exists").len(), stored, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_sdk_retries_what_the_fault_says_is_temporary() {
    let (sqs, queue) = with_queue(&[]);
    sqs.set_faults(|call| match call.of_operation {
        1 | 2 => Fault::refuse(503, "ServiceUnavailable"),
        _ => Fault::None,
    });
    assert_eq!(send(&sqs.client(), &queue, "x").await, Ok(()));
    assert_eq!(sqs.call_count("SendMessage"), 3);
}

#[tokio::test(start_paused = true)]
async fn entries_of_a_batch_can_have_their_own_fate() {
    let (sqs, queue) = with_queue(&[]);
    let refused = EntryOutcome::Refused { code: "InternalError".to_owned(), sender_fault: false };
    let faults = [(0, refused), (1, EntryOutcome::Ignored), (2, EntryOutcome::Unmentioned)];
    let faults: Vec<EntryFault> =
        faults.map(|(position, outcome)| EntryFault::new(position, outcome)).into();
    sqs.set_faults(move |_| Fault::Entries(faults.clone()));
    let bodies = ["refused", "ignored", "unmentioned", "plain"];
    let entries = bodies.map(|body| outgoing(body, 0));
    let confirmations = sqs.send(&queue, &entries).await.expect("an answer");
    let codes: Vec<_> =
        confirmations.iter().map(|c| c.as_ref().err().map(|e| e.code.as_str())).collect();
    assert_eq!(codes, [Some("InternalError"), Some("Unconfirmed"), Some("Unconfirmed"), None]);
    let stored = || sqs.messages(&queue).expect("it exists").into_iter().map(|m| m.body);
    assert_eq!(stored().collect::<Vec<_>>(), ["unmentioned", "plain"]);

    let entry = |id: &str| {
        aws_sdk_sqs::types::SendMessageBatchRequestEntry::builder().id(id).message_body(id).build()
    };
    let entries = bodies.map(|body| entry(body).expect("id and body"));
    let batch = without_retries(&sqs)
        .send_message_batch()
        .queue_url(queue.url())
        .set_entries(Some(entries.into()));
    let answer = batch.send().await.expect("an answer");
    let sent: Vec<&str> = answer
        .successful()
        .iter()
        .map(aws_sdk_sqs::types::SendMessageBatchResultEntry::id)
        .collect();
    let failed: Vec<(&str, bool)> =
        answer.failed().iter().map(|e| (e.id(), e.sender_fault())).collect();
    assert_eq!((sent, failed), (vec!["plain"], vec![("refused", false)]));
    assert_eq!(stored().count(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_port_tells_refused_from_unavailable_from_ambiguous() {
    for (fault, kind) in [
        (Fault::refuse(400, "AccessDeniedException"), CallErrorKind::Refused),
        (Fault::refuse(400, "RequestThrottled"), CallErrorKind::Unavailable),
        (Fault::refuse(500, "InternalFailure"), CallErrorKind::Unavailable),
        (Fault::LoseResponse, CallErrorKind::Ambiguous),
    ] {
        let (sqs, queue) = with_queue(&[]);
        let chosen = fault.clone();
        sqs.set_faults(move |_| chosen.clone());
        let error = sqs.send(&queue, &[outgoing("x", 0)]).await.expect_err("a fault");
        assert_eq!(error.kind, kind, "{fault:?}");
    }
    let (sqs, _) = with_queue(&[]);
    let nowhere: QueueArn = "arn:aws:sqs:us-east-1:000000000000:nowhere".parse().expect("an ARN");
    let error = sqs.delete(&nowhere, &["x"]).await.expect_err("no such queue");
    assert_eq!(error.code, "NonExistentQueue");
    assert_eq!(error.kind, CallErrorKind::Refused);
}

#[tokio::test(start_paused = true)]
async fn the_port_sends_receives_delays_and_deletes() {
    let (sqs, queue) = with_queue(&[("VisibilityTimeout", "60"), ("DelaySeconds", "5")]);
    let sent = sqs.send(&queue, &[outgoing("now", 0), outgoing("later", 900)]).await;
    assert_eq!(sent, Ok(vec![Ok(()), Ok(())]));
    let first = sqs.receive(&queue, 10, Duration::ZERO).await.expect("it exists");
    assert_eq!(
        first.iter().map(|record| record.body.as_deref()).collect::<Vec<_>>(),
        [Some("now")]
    );
    let handle = first[0].receipt_handle.as_deref().expect("a handle");
    let changes = [(handle, Duration::from_secs(1_000)), ("nonsense", Duration::ZERO)];
    let confirmations = sqs.change_visibility(&queue, &changes).await.expect("an answer");
    assert_eq!(confirmations[0], Ok(()));
    assert_eq!(
        confirmations[1].as_ref().map_err(|e| e.code.as_str()),
        Err("ReceiptHandleIsInvalid")
    );

    let states: Vec<MessageState> =
        sqs.messages(&queue).expect("it exists").iter().map(|m| m.state).collect();
    let later = |secs| start() + Duration::from_secs(secs);
    assert_eq!(
        states,
        [MessageState::InFlightUntil(later(1_000)), MessageState::DelayedUntil(later(900))]
    );

    let begun = Instant::now();
    let mut polls = 0;
    let second = loop {
        polls += 1;
        let found = sqs.receive(&queue, 10, Duration::from_secs(20)).await.expect("it exists");
        if !found.is_empty() {
            break found;
        }
    };
    assert_eq!((polls, begun.elapsed().as_secs()), (45, 900));
    assert_eq!(second[0].body.as_deref(), Some("later"));
    let second = second[0].receipt_handle.as_deref().expect("a handle");
    let deleted = sqs.delete(&queue, &[handle, second]).await;
    assert_eq!(deleted, Ok(vec![Ok(()), Ok(())]));
    assert_eq!(sqs.messages(&queue), Ok(vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_wakes_when_a_message_comes() {
    let (sqs, queue) = with_queue(&[]);
    let (poller, target) = (sqs.clone(), queue.clone());
    let poll =
        tokio::spawn(async move { poller.receive(&target, 1, Duration::from_secs(20)).await });
    tokio::time::sleep(Duration::from_secs(3)).await;
    send(&sqs.client(), &queue, "x").await.expect("sent");
    let begun = Instant::now();
    assert_eq!(poll.await.expect("no panic").expect("it exists").len(), 1);
    assert!(begun.elapsed() < Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn a_replayed_message_obeys_the_handle_of_its_file() {
    let (sqs, queue) = with_queue(&[("VisibilityTimeout", "30"), ("MessageRetentionPeriod", "60")]);
    // Sent years ago, as the events in AWS's documents are: its retention begins when it is put in.
    let sent = Some(SystemTime::UNIX_EPOCH + Duration::from_millis(1_545_082_649_183));
    let replayed = |id: &str| {
        let mut record = Record::default();
        record.message_id = Some(id.to_owned());
        record.receipt_handle = Some(format!("AQEB-{id}"));
        record.receive_count = Some(4);
        (record.sent, record.first_received) = (sent, sent);
        record.trace_header = Some("Root=1-2-3".to_owned());
        record
    };
    for id in ["a", "b"] {
        sqs.put_in_flight(&queue, replayed(id)).expect("it exists");
    }
    assert_eq!(sqs.put_in_flight(&queue, replayed("a")), Ok(()), "the same again");
    let mut of_another = replayed("c");
    of_another.receipt_handle = Some("AQEB-a".to_owned());
    let mut without_id = replayed("d");
    without_id.message_id = None;
    for (record, code) in [(of_another, "ReceiptHandleIsInvalid"), (without_id, "MissingParameter")]
    {
        let refused = sqs.put_in_flight(&queue, record).map_err(|error| error.code);
        assert_eq!(refused, Err(code));
    }

    let seen = sqs.messages(&queue).expect("it exists");
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].state, MessageState::InFlightUntil(start() + Duration::from_secs(30)));
    assert_eq!(seen[0].system_attributes["SentTimestamp"], "1545082649183");
    assert_eq!(seen[0].system_attributes["AWSTraceHeader"], "Root=1-2-3");

    for _ in 0..2 {
        let deleted = sqs.delete(&queue, &["AQEB-a"]).await;
        assert_eq!(deleted, Ok(vec![Ok(())]), "deleting twice is harmless");
    }
    let released = sqs.change_visibility(&queue, &[("AQEB-b", Duration::ZERO)]).await;
    assert_eq!(released, Ok(vec![Ok(())]));
    let again = sqs.receive(&queue, 10, Duration::ZERO).await.expect("it exists");
    assert_eq!(again.len(), 1);
    assert_eq!((again[0].message_id.as_deref(), again[0].receive_count), (Some("b"), Some(5)));
}

#[tokio::test(start_paused = true)]
async fn the_number_in_flight_is_limited() {
    let (sqs, queue) = with_queue(&[("VisibilityTimeout", "43200")]);
    let batch: Vec<Outgoing> = (0..10).map(|_| outgoing("x", 0)).collect();
    for _ in 0..=12_000 {
        sqs.send(&queue, &batch).await.expect("sent");
    }
    for _ in 0..12_000 {
        assert_eq!(sqs.receive(&queue, 10, Duration::ZERO).await.map(|found| found.len()), Ok(10));
    }
    let short = sqs.receive(&queue, 10, Duration::ZERO).await.map(|found| found.len());
    assert_eq!(short.map_err(|error| error.code), Err("OverLimit"));
    let long = sqs.receive(&queue, 10, Duration::from_secs(1)).await.map(|found| found.len());
    assert_eq!(long, Ok(0), "a long poll is not told");
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_ids() {
    let ids = || async {
        let (sqs, queue) = with_queue(&[]);
        sqs.send(&queue, &[outgoing("x", 0), outgoing("y", 0)]).await.expect("sent");
        sqs.messages(&queue).expect("it exists").into_iter().map(|m| m.id).collect::<Vec<_>>()
    };
    let (first, second) = (ids().await, ids().await);
    assert_eq!(first, second);
    assert_ne!(first[0], first[1]);
}

/// In real time: a paused clock runs ahead of real sockets.
#[tokio::test]
async fn other_processes_meet_the_same_queues_and_the_same_faults() {
    let sqs = EmbeddedSqs::new(Clock::system());
    let server = sqs.serve(0).await.expect("a free port");
    let config = sqs.client_config().retry_config(RetryConfig::disabled());
    let http = aws_smithy_http_client::Builder::new().build_http();
    let client =
        aws_sdk_sqs::Client::from_conf(config.http_client(http).endpoint_url(server.url()).build());

    let created = client.create_queue().queue_name("orders").send().await.expect("a legal queue");
    let url = created.queue_url().expect("a queue has a URL");
    assert_eq!(url, format!("{}/000000000000/orders", server.url()));
    let queue = sqs.queues().remove(0);
    assert_eq!(send(&client, &queue, "x").await, Ok(()), "whatever host its URL names");

    for (fault, seen, stored) in [
        (Fault::LoseRequest, "no connection", 1),
        (Fault::LoseResponse, "no connection", 2),
        (Fault::refuse(500, "InternalFailure"), "InternalFailure", 2),
    ] {
        let chosen = fault.clone();
        sqs.set_faults(move |_| chosen.clone());
        assert_eq!(send(&client, &queue, "x").await, Err(seen.to_owned()), "{fault:?}");
        assert_eq!(sqs.messages(&queue).expect("it exists").len(), stored, "{fault:?}");
    }
    sqs.clear_faults();
    server.stop().await;
    assert_eq!(send(&client, &queue, "x").await, Err("no connection".to_owned()));
}

#[tokio::test]
async fn a_client_of_the_query_protocol_is_told_what_to_use() {
    let sqs = EmbeddedSqs::new(Clock::system());
    let server = sqs.serve(0).await.expect("a free port");
    let form = "content-type: application/x-www-form-urlencoded; charset=utf-8\r\n";
    let body = "Action=ListQueues&Version=2012-11-05";
    for (line, headers, body) in [
        ("POST / HTTP/1.1", form, body),
        ("GET /?Action=ListQueues&Version=2012-11-05 HTTP/1.1", "", ""),
    ] {
        let mut stream =
            TcpStream::connect(("127.0.0.1", server.port())).await.expect("it listens");
        let length = body.len();
        let request = format!(
            "{line}\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).await.expect("text");
        assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
        assert!(response.contains("<Code>UnsupportedProtocol</Code>"), "{response}");
        assert!(response.contains("use a newer client, such as AWS CLI 2.16"), "{response}");
    }
    assert_eq!(sqs.call_count(""), 0);
}
