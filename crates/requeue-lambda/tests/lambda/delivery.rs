//! `requeue-lambda` and its HTTP target: each class of response, and failures of SQS.

use std::time::{Duration, SystemTime};

use requeue::embedded::{EntryFault, EntryOutcome, Fault, MessageState};
use serde_json::json;

use crate::runtime_api::{Ended, TRACE};
use crate::stage::{CANARY, Stage, TIMEOUT, UNPROTECTED, failed, json};

fn secs_until(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::now()).unwrap_or_default().as_secs_f64().round()
}

#[tokio::test]
async fn each_class_of_answer_ends_where_it_should() {
    let stage = Stage::new().await;
    // At this level the crates below us would log the whole event.
    let mut function =
        stage.requeue_lambda(&[("AWS_LAMBDA_LOG_LEVEL", "TRACE"), UNPROTECTED]).await;
    let mut sent = Vec::new();
    for answer in ["ok", "rate-limit", "unavailable", "quota", "invalid"] {
        sent.push(stage.send(&format!(r#"{{"answer":"{answer}","text":"{CANARY}"}}"#)).await);
    }
    let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;

    assert_eq!(failed(&ended), [sent[4].as_str()], "what is final is left to the redrive policy");
    let mut delays = Vec::new();
    for message in stage.messages() {
        let body = json(&message.body).unwrap();
        let secs = match message.state {
            MessageState::DelayedUntil(until) => secs_until(until),
            MessageState::Visible | MessageState::InFlightUntil(_) => -1.0,
        };
        delays.push((
            body["answer"].as_str().unwrap().to_owned(),
            secs,
            body["originalMessageId"].clone(),
        ));
    }
    delays.sort_by(|one, other| one.0.cmp(&other.0));
    let [invalid, quota, rate_limit, unavailable] = &delays[..] else {
        panic!("four messages: {delays:?}")
    };
    assert_eq!((invalid.0.as_str(), invalid.1), ("invalid", -1.0));
    assert!((58.0..=120.0).contains(&quota.1), "{quota:?}");
    assert!(
        (38.0..=44.0).contains(&rate_limit.1),
        "the named 40 s and up to a tenth: {rate_limit:?}"
    );
    assert!((0.0..=2.0).contains(&unavailable.1), "{unavailable:?}");
    assert_eq!(quota.2, json!(sent[3]));

    let log = function.stop().await;
    assert!(log.contains(&sent[1]), "the log names the message: {log}");
    for secret in [CANARY, "canary-secret-key", "AQEB"] {
        assert!(!log.contains(secret), "{secret} in the log: {log}");
    }
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn what_is_final_reaches_the_dead_letter_queue_by_the_redrive_policy() {
    let stage = Stage::new().await;
    let mut function = stage.requeue_lambda(&[]).await;
    let id = stage.send(r#"{"answer":"invalid"}"#).await;
    for _ in 0..2 {
        let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;
        assert_eq!(failed(&ended), [id.as_str()]);
    }
    assert!(stage.sqs.receive(&stage.queue, 10, Duration::from_secs(5)).await.unwrap().is_empty());
    let dead = stage.dead();
    assert_eq!(
        (dead.len(), dead[0].id.as_str(), dead[0].body.as_str()),
        (1, id.as_str(), r#"{"answer":"invalid"}"#)
    );
}

#[tokio::test]
async fn what_is_final_is_sent_to_the_dead_letter_queue_by_the_mode_direct() {
    for stage in [Stage::new().await, Stage::fifo().await] {
        let url = stage.dead_letter_url();
        let direct = [("REQUEUE_DEAD_LETTER", "direct"), ("REQUEUE_DEAD_LETTER_QUEUE_URL", &url)];
        let mut function = stage.requeue_lambda(&direct).await;
        let id = stage.send(r#"{"answer":"invalid"}"#).await;
        stage.send(r#"{"answer":"ok"}"#).await;
        let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;
        assert_eq!(
            (failed(&ended).len(), stage.target.bodies().len(), stage.messages().len()),
            (0, 2, 0)
        );

        let dead = stage.dead();
        assert_eq!(dead.len(), 1);
        let body = json(&dead[0].body).unwrap();
        assert_eq!((&body["answer"], &body["originalMessageId"]), (&json!("invalid"), &json!(id)));
        assert_eq!(body["retryState"]["source"], stage.queue.to_string());
        assert_eq!(body["retryState"]["deadLetter"]["reason"], "non-retryable");
        let system = |name| dead[0].system_attributes.get(name).map(String::as_str);
        let is_fifo = stage.queue.is_fifo();
        assert_eq!(system("MessageGroupId"), is_fifo.then_some("customer"));
        assert_eq!(system("MessageDeduplicationId"), is_fifo.then_some(id.as_str()));
    }
}

#[tokio::test]
async fn what_is_not_sent_again_waits_in_its_place() {
    for (stage, settings, reported) in [
        (Stage::new().await, &[("REQUEUE_STRATEGY", "visibility"), UNPROTECTED][..], 1),
        (Stage::fifo().await, &[], 2),
    ] {
        let mut function = stage.requeue_lambda(settings).await;
        let bodies = [r#"{ "answer": "rate-limit" }"#, r#"{"answer":"ok"}"#];
        let mut ids = Vec::new();
        for body in bodies {
            ids.push(stage.send(body).await);
        }
        let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;
        let mut expected = ids[..reported].to_vec();
        expected.sort_unstable();
        assert_eq!(failed(&ended), expected, "on a FIFO queue nothing overtakes what failed");
        assert_eq!(stage.target.bodies().len(), 3 - reported);

        let kept = stage.messages();
        let [head, followers @ ..] = &kept[..] else { panic!("the one that failed") };
        assert_eq!((head.id.as_str(), head.body.as_str()), (ids[0].as_str(), bodies[0]));
        let MessageState::InFlightUntil(until) = head.state else { panic!("{head:?}") };
        assert!(
            (38.0..=44.0).contains(&secs_until(until)),
            "the named 40 s and up to a tenth: {head:?}"
        );
        assert!(
            followers.iter().all(|message| message.state == MessageState::Visible),
            "{followers:?}"
        );
        assert_eq!(followers.len(), reported - 1);
        assert_eq!(stage.sqs.call_count("SendMessageBatch"), 0);
    }
}

#[tokio::test]
async fn calls_to_sqs_are_tried_as_often_as_the_policy_says() {
    for (policy, tries) in [
        ("{}", 5),
        (r#"{"sqsCalls":"off"}"#, 1),
        (r#"{"sqsCalls":{"maxAttempts":3,"baseDelay":0.01,"jitter":"none"}}"#, 3),
    ] {
        let stage = Stage::new().await;
        let mut function = stage.requeue_lambda(&[("REQUEUE_POLICY", policy)]).await;
        let id = stage.send(r#"{"answer":"unavailable"}"#).await;
        let busy = Fault::refuse(503, "ServiceUnavailable");
        stage.sqs.set_faults(move |call| {
            if call.operation == "SendMessageBatch" { busy.clone() } else { Fault::None }
        });
        let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;
        assert_eq!(failed(&ended), [id.as_str()]);
        assert_eq!(stage.sqs.call_count("SendMessageBatch"), tries, "{policy}");
    }
}

/// Lambda's loop detection follows the invocation that sends, and so must be left to count.
#[tokio::test]
async fn a_copy_continues_the_trace_of_its_invocation_and_not_that_of_the_original() {
    let stage = Stage::new().await;
    let mut function = stage.requeue_lambda(&[]).await;
    stage.send(r#"{"answer":"unavailable"}"#).await;
    let batch = stage.receive().await;
    let mut event = batch.event(&stage.queue);
    event["Records"][0]["attributes"]["AWSTraceHeader"] =
        TRACE.replace("Lineage=3", "Lineage=2").into();
    let ended = function.invoke(&event, TIMEOUT).await;
    stage.acknowledge(&batch, &ended);
    let copies = stage.messages();
    assert_eq!(copies.len(), 1);
    assert_eq!(copies[0].system_attributes.get("AWSTraceHeader").map(String::as_str), Some(TRACE));
}

#[tokio::test]
async fn the_target_sees_the_same_bytes_on_every_attempt() {
    let stage = Stage::new().await;
    let mut function =
        stage.requeue_lambda(&[("REQUEUE_POLICY", r#"{"preset":"critical"}"#)]).await;
    let bodies = ["{ \"answer\" : \"unavailable\", \"n\": 1.0e2 }\n", "plain text", "[1, 2]"];
    for body in bodies {
        stage.send(body).await;
    }
    for _ in 0..3 {
        let batch = stage.receive().await;
        let ended = function.invoke(&batch.event(&stage.queue), TIMEOUT).await;
        stage.acknowledge(&batch, &ended);
        if stage.messages().is_empty() {
            break;
        }
    }
    let seen = stage.target.bodies();
    assert!(seen.iter().all(|body| bodies.contains(&body.as_str())), "{seen:?}");
    assert_eq!(seen.iter().filter(|body| body.as_str() == bodies[0]).count(), 3);
    assert_eq!(json(&stage.messages()[0].body).unwrap()["retryCount"], 3);
}

/// A fault of SQS, the number of reported messages, and the number of copies in the queue.
#[tokio::test]
async fn trouble_with_sqs_loses_nothing() {
    let refused = |position, sender_fault| {
        let outcome = EntryOutcome::Refused { code: "InternalError".to_owned(), sender_fault };
        EntryFault::new(position, outcome)
    };
    let cases: [(&str, &str, Fault, usize, usize); 5] = [
        ("a refused send", "SendMessageBatch", Fault::refuse(403, "AccessDeniedException"), 3, 0),
        ("one entry refused", "SendMessageBatch", Fault::Entries(vec![refused(1, true)]), 1, 2),
        ("a lost answer", "SendMessageBatch", Fault::LoseResponse, 3, 6),
        (
            "a refused delete",
            "DeleteMessageBatch",
            Fault::refuse(403, "AccessDeniedException"),
            0,
            3,
        ),
        (
            "a failed delete of one",
            "DeleteMessageBatch",
            Fault::Entries(vec![refused(0, false)]),
            0,
            3,
        ),
    ];
    for (what, operation, fault, reported, copies) in cases {
        let stage = Stage::new().await;
        let mut function = stage.requeue_lambda(&[]).await;
        let mut sent = Vec::new();
        for n in 0..3 {
            sent.push(stage.send(&format!(r#"{{"answer":"unavailable","n":{n}}}"#)).await);
        }
        stage.sqs.set_faults(
            move |call| if call.operation == operation { fault.clone() } else { Fault::None },
        );
        let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;

        let listed = failed(&ended);
        assert_eq!(listed.len(), reported, "{what}");
        assert!(listed.iter().all(|id| sent.contains(id)), "{what}");
        let ids = stage.ids();
        assert_eq!(
            ids.iter().filter(|(_, original)| original.is_some()).count(),
            copies,
            "{what}: {ids:?}"
        );
        for id in &sent {
            let there = ids.iter().any(|(now, first)| now == id || first.as_ref() == Some(id));
            assert!(there, "{what}: {id} is lost");
        }
    }
}

#[tokio::test]
async fn the_same_message_twice_is_one_call_and_one_copy() {
    let stage = Stage::new().await;
    let mut function = stage.requeue_lambda(&[]).await;
    let id = stage.send(r#"{"answer":"unavailable"}"#).await;
    let batch = stage.receive().await;
    let mut event = batch.event(&stage.queue);
    let mut again = event["Records"][0].clone();
    again["attributes"]["ApproximateReceiveCount"] = "2".into();
    event["Records"].as_array_mut().unwrap().push(again);
    let ended = function.invoke(&event, TIMEOUT).await;
    stage.acknowledge(&batch, &ended);

    assert_eq!(ended, Ended::Response(json!({"batchItemFailures": []})));
    assert_eq!(stage.target.bodies().len(), 1);
    let ids = stage.ids();
    assert_eq!(ids.len(), 1);
    assert_eq!(ids[0].1.as_deref(), Some(id.as_str()));
}
