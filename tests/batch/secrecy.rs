//! Bodies, attributes and receipt handles stay out of log lines and of the queue's envelopes.

use aws_sdk_sqs::types::MessageAttributeValue;
use requeue::Failure;
use requeue::embedded::Fault;
use serde_json::Value;

use crate::world::{Act, Log, SEND, Script, World, records, secs, state};

const CANARY: &str = "CANARY";

async fn send(world: &World, body: &str) {
    let value = MessageAttributeValue::builder().data_type("String");
    let value = value.string_value(CANARY).build().unwrap();
    world.send_as(body, |message| message.message_attributes("tenant", value)).await;
}

/// The log of one invocation with these bodies.
async fn logged(world: &World, script: Script, bodies: &[&str]) -> (String, Value) {
    for body in bodies {
        send(world, body).await;
    }
    let processor = world.processor(script);
    let event = world.receive().await;
    let log = Log::default();
    let listening = log.listen();
    let answer = world.invoke_with(&processor, &event).await;
    drop(listening);
    let mut text = log.text();
    if let Err(error) = answer {
        text = format!("{text}{error} {error:?}");
    }
    for record in records(&event) {
        assert!(!text.contains(record["receiptHandle"].as_str().unwrap()));
    }
    (text, event)
}

#[tokio::test(start_paused = true)]
async fn no_fate_of_a_message_brings_its_content_into_the_log() {
    let body = format!(r#"{{"secret":"{CANARY}"}}"#);
    let acts: [fn() -> Act; 7] = [
        || Act::Done,
        || Act::Fail(Failure::temporary("no")),
        || Act::Fail(Failure::rate_limit("slowly").retry_after(secs(5_000))),
        || Act::Fail(Failure::non_retryable("never")),
        || Act::Fail(Failure::postpone(secs(1))),
        || Act::Panic,
        || Act::Hang,
    ];
    let faults = [
        Fault::None,
        Fault::refuse(403, "AccessDenied"),
        Fault::refuse(400, "InvalidMessageContents"),
        Fault::LoseResponse,
        Fault::Hang,
    ];
    for act in acts {
        for fault in &faults {
            let world = World::new();
            let fault = fault.clone();
            world.faults(move |_| fault.clone());
            let (log, event) = logged(&world, Script::new(move |_| act()), &[&body]).await;
            assert!(!log.contains(CANARY), "{log}");
            let id = records(&event)[0]["messageId"].as_str().unwrap();
            assert!(log.contains("received=1"), "{log}");
            assert!(log.contains(id) || log.contains("completed=1"), "{log}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_did_not_simply_complete_has_one_line_and_the_batch_another() {
    let world = World::new();
    let script = Script::new(|seen| match seen.body.as_str() {
        "0" => Act::Done,
        _ => Act::Fail(Failure::temporary("the ledger is locked").retry_after(secs(30))),
    });
    let (log, event) = logged(&world, script, &["0", "1"]).await;
    let lines: Vec<&str> = log.lines().filter(|line| line.starts_with("requeue")).collect();
    assert_eq!(lines.len(), 2, "{log}");
    let id = records(&event)[1]["messageId"].as_str().unwrap();
    for part in [
        format!(r#"messageId="{id}""#),
        format!(r#"originalMessageId="{id}""#),
        "retryCount=0".to_owned(),
        "hops=0".to_owned(),
        r#"class="temporary""#.to_owned(),
        r#"disposition="requeue""#.to_owned(),
        "delaySeconds=30".to_owned(),
        r#"detail="the ledger is locked""#.to_owned(),
        "elapsedMs=0".to_owned(),
    ] {
        assert!(lines[0].contains(&part), "{part}: {}", lines[0]);
    }
    for part in ["received=2", "completed=1", "requeued=1"] {
        assert!(lines[1].contains(part), "{part}: {}", lines[1]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reason_cannot_forge_a_line() {
    let world = World::new();
    let forged = "x\n{\"_aws\":{}}\r\n\u{1b}[31m\u{0}\u{9b}";
    let (log, _) = logged(&world, Script::always(Failure::temporary(forged)), &["0"]).await;
    assert_eq!(log.lines().filter(|line| line.starts_with("requeue")).count(), 2);
    assert!(log.chars().all(|c| c == '\n' || !c.is_control()), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn an_id_that_a_producer_made_up_is_not_logged() {
    let uuid = "059f36b4-87a3-44ab-83d2-661975830a7d";
    let forged = ["ann@example.com 4111111111111111", &uuid.replace('-', "x"), &uuid[1..]];
    for (id, is_logged) in [(uuid, true)].into_iter().chain(forged.map(|id| (id, false))) {
        let world = World::new();
        let body = serde_json::json!({
            "retryCount": 1, "originalMessageId": id, "retryTimestamp": "2026-11-21T03:12:52.477Z",
            "retryState": { "v": 1, "class": "temporary", "counts": { "temporary": 1 } },
        });
        let (log, _) =
            logged(&world, Script::always(Failure::temporary("no")), &[&body.to_string()]).await;
        assert!(log.contains("retryCount=1"), "{id}: {log}");
        assert_eq!(log.contains(id), is_logged, "{id}: {log}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_that_no_queue_gave_is_cut_too() {
    let world = World::new();
    world.send("{}").await;
    let mut event = world.receive().await;
    event["Records"][0]["messageId"] = serde_json::json!("x".repeat(500_000));
    let processor = world.processor(Script::always(Failure::temporary("no")));
    let log = Log::default();
    let listening = log.listen();
    world.invoke_with(&processor, &event).await.unwrap();
    drop(listening);
    let longest = log.text().lines().map(str::len).max().unwrap();
    assert!(longest < 1_000, "a line of {longest} bytes");
}

#[tokio::test(start_paused = true)]
async fn a_copy_holds_counts_ids_and_times_and_no_words_of_a_failure() {
    let world = World::new();
    send(&world, "{}").await;
    let failure = Failure::temporary("WORDS of the handler").retry_after(secs(2_000));
    let processor = world.processor(Script::always(failure));
    world.invoke(&processor).await.unwrap();
    let copy = world.only_message();
    assert!(!copy.body.contains("WORDS"));
    let body = state(&copy);
    let names: Vec<_> =
        body["retryState"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["class", "counts", "delay", "firstReceived", "firstSent", "notBefore", "v"]);
}

#[tokio::test(start_paused = true)]
async fn records_that_cannot_be_read_stay_unspoken() {
    let world = World::new();
    send(&world, &format!("{CANARY} of a text")).await;
    let mut event = world.receive().await;
    let mut broken = event["Records"][0].clone();
    broken["messageAttributes"]["broken"] =
        serde_json::json!({ "dataType": "Binary", "binaryValue": CANARY });
    let mut nameless = event["Records"][0].clone();
    nameless["messageId"] = Value::Null;
    nameless["eventSourceARN"] = format!("{CANARY} of an ARN").into();
    event["Records"] = serde_json::json!([broken, nameless, CANARY, [CANARY]]);
    world.faults_of(SEND, |_| Fault::refuse(403, "AccessDenied"));
    let processor = world.processor(Script::always(Failure::temporary("no")));
    let log = Log::default();
    let listening = log.listen();
    let error = world.invoke_with(&processor, &event).await.unwrap_err();
    drop(listening);
    let diagnostic = lambda_runtime::Diagnostic::from(error);
    let said = format!("{}{error}{error:?}{diagnostic:?}", log.text());
    assert!(said.contains("received=4") && !said.contains(CANARY), "{said}");
}
