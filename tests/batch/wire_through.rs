//! The contents of a message, whatever they are, arrive unchanged on every attempt.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{
    MessageAttributeValue, MessageSystemAttributeNameForSends, MessageSystemAttributeValue,
};
use requeue::queue::{Attribute, AttributeValue};
use requeue::{Failure, Message};
use serde_json::{Value, json};

use crate::world::{Act, SEND, Script, World, records, secs, state};

fn failing_thrice() -> Script {
    Script::failing_first(3, Failure::temporary("no"))
}

/// Bodies that a producer may send.
fn bodies() -> Vec<String> {
    let mut bodies: Vec<String> = [
        "{}",
        " { } ",
        "{\n\t\"a\" : 1 ,\r\n\"b\":[ ]\n}\n",
        r#"{"z":1,"a":2,"z":3}"#,
        r#"{"id":12345678901234567890123,"f":1.0,"g":1e0,"h":-0,"i":1E+400,"j":0.1000}"#,
        r#"{"escaped":"\u0041\/\uFFFF\ufffe\ud83e\uddfe","lone":"\ud800","plain":"Zürich, 東京, 🧾"}"#,
        r#"{"":0,"a\"}":"}{","deep":{"retryCount":9,"retryState":{"v":1}}}"#,
        // What bears our names, and is not ours.
        r#"{"retryCount":"5"}"#,
        r#"{"retryCount":-1}"#,
        r#"{"retryCount":1.5,"originalMessageId":7,"retryTimestamp":"yesterday","retryState":"v1"}"#,
        r#"{"retryCount":1,"retryCount":2}"#,
        r#"{"retryState":{"v":1}}"#,
        r#"{"retryState":{"v":99}}"#,
        r#"{"retryState":null,"retryBody":null}"#,
        r#"{"retryBody":"the producer's"}"#,
        r#"{"retryC\u006funt":[1,{"a":" "}]}"#,
        r#"{"originalMessageId":"mine","order":1}"#,
        // No objects.
        "text",
        "5",
        r#""x""#,
        "[1]",
        "null",
        "true",
        " ",
        "\t\n",
        "NaN",
        "1e999",
        "<order id=\"1\">\n  <amount>12</amount>\n</order>",
        "\u{feff}{\"a\":1}",
        r#"{"a":"#,
        r#"{"a":1}}"#,
        r#"{"a":1}{"b":2}"#,
        "{'a':1}",
        r#"She said "no", then: \ and \n"#,
        "a=1&b=2",
        r#"{"Type":"Notification","Message":"{\"retryCount\":1}"}"#,
        r#"["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"b","s3Key":"k"}]"#,
    ]
    .map(str::to_owned)
    .to_vec();
    bodies.push(format!("{}{}", "[".repeat(200), "]".repeat(200)));
    bodies
}

#[tokio::test(start_paused = true)]
async fn a_body_is_the_same_byte_for_byte_on_every_attempt() {
    for body in bodies() {
        let world = World::new();
        let id = world.send(&body).await;
        let script = failing_thrice();
        let processor = world.processor(script.clone());
        for retries in 1..=3 {
            let invocation = world.invoke(&processor).await.unwrap();
            assert!(invocation.failed().is_empty(), "{body}");
            let copy = state(&world.only_message());
            assert_eq!(copy["retryCount"], retries, "{body}: a clean integer");
            assert_eq!(copy["originalMessageId"], id.as_str(), "{body}: written once");
            tokio::time::sleep(secs(18)).await;
        }
        world.run(&processor).await;
        let calls = script.calls();
        assert_eq!(calls.len(), 4, "{body}");
        for (seen, attempt) in calls.iter().zip(1..) {
            assert_eq!(seen.body, body);
            assert_eq!(
                (seen.attempt, seen.original_id.as_deref()),
                (attempt, Some(id.as_str())),
                "{body}"
            );
        }
        assert!(world.dead().is_empty(), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn nesting_of_any_depth_is_no_trouble() {
    for depth in [129, 5_000, 100_000] {
        let body = format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
        let world = World::new();
        world.send(&body).await;
        let script = failing_thrice();
        world.run(&world.processor(script.clone())).await;
        let calls = script.calls();
        assert_eq!((calls.len(), calls[3].attempt), (4, 4));
        assert!(calls.iter().all(|seen| seen.body == body), "{depth}");
    }
}

#[tokio::test(start_paused = true)]
async fn outside_our_four_members_an_object_keeps_its_text() {
    let world = World::new();
    let body = "{\"z\" : 1.0,\n \"a\":12345678901234567890123 }\n";
    world.send(body).await;
    world.invoke(&world.processor(failing_thrice())).await.unwrap();
    let copy = world.only_message();
    let (head, tail) = body.split_at(body.rfind('}').unwrap());
    assert!(copy.body.starts_with(head), "{}", copy.body);
    assert!(copy.body.ends_with(tail), "{}", copy.body);
    let added: Value = serde_json::from_str(&copy.body).unwrap();
    let names: Vec<_> = added.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["a", "originalMessageId", "retryCount", "retryState", "retryTimestamp", "z"]
    );
}

#[tokio::test(start_paused = true)]
async fn of_a_producers_count_only_a_plain_integer_within_the_cap_is_believed() {
    for (claimed, expected) in [
        ("0", Some(1)),
        ("3", Some(4)),
        ("49", Some(50)),
        ("50", None),
        ("51", Some(1)),
        ("4294967296", Some(1)),
        ("99999999999999999999", Some(1)),
        ("-1", Some(1)),
        ("\"5\"", Some(1)),
        ("null", Some(1)),
        ("1.5", Some(1)),
        ("5.0", Some(1)),
        ("1e99", Some(1)),
        ("true", Some(1)),
        ("[]", Some(1)),
        ("{}", Some(1)),
    ] {
        let world = World::new();
        let body = format!(r#"{{"retryCount":{claimed}}}"#);
        let id = world.send(&body).await;
        let script = Script::always(Failure::temporary("no"));
        let invocation = world.invoke(&world.processor(script.clone())).await.unwrap();
        assert_eq!(script.seen(), [body.as_str()]);
        if let Some(count) = expected {
            assert_eq!(state(&world.only_message())["retryCount"], count, "{claimed}");
        } else {
            assert_eq!(invocation.failed(), [id.as_str()], "{claimed}");
            assert_eq!((world.only_message().body, world.calls(SEND)), (body, 0), "{claimed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_of_sending_is_that_of_the_try_that_was_confirmed() {
    let world = World::new();
    world.send("{}").await;
    world.faults_of(SEND, |call| match call.of_operation {
        1..=3 => requeue::embedded::Fault::refuse(503, "ServiceUnavailable"),
        _ => requeue::embedded::Fault::None,
    });
    world.invoke(&world.processor(failing_thrice())).await.unwrap();
    let copy = world.only_message();
    let body = state(&copy);
    let written = body["retryTimestamp"].as_str().unwrap();
    assert_eq!((written.len(), written.ends_with('Z')), (24, true), "{written}");
    let written: jiff::Timestamp = written.parse().unwrap();
    let sent = jiff::Timestamp::try_from(copy.sent).unwrap();
    assert_eq!(written.as_millisecond(), sent.as_millisecond());
}

fn text(data_type: &str, value: &str) -> Attribute {
    Attribute { data_type: data_type.to_owned(), value: AttributeValue::Text(value.to_owned()) }
}

fn binary(data_type: &str, value: &[u8]) -> Attribute {
    Attribute { data_type: data_type.to_owned(), value: AttributeValue::Binary(value.to_vec()) }
}

async fn send(
    world: &World,
    attributes: &BTreeMap<String, Attribute>,
    group: Option<&str>,
) -> String {
    world
        .send_as("{}", |mut message| {
            for (name, attribute) in attributes {
                let value = MessageAttributeValue::builder().data_type(&attribute.data_type);
                let value = match &attribute.value {
                    AttributeValue::Text(text) => value.string_value(text),
                    AttributeValue::Binary(bytes) => value.binary_value(Blob::new(bytes.clone())),
                };
                message = message.message_attributes(name, value.build().unwrap());
            }
            message.set_message_group_id(group.map(str::to_owned))
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn attributes_and_group_id_survive_three_retries() {
    let every_byte: Vec<u8> = (0..=255).collect();
    let ten = (0..10).map(|n| (format!("label-{n}"), text("String", &n.to_string())));
    let sets: [BTreeMap<String, Attribute>; 4] = [
        BTreeMap::new(),
        [
            ("tenant", text("String", "acme")),
            ("amount", text("Number", "12345678901234567890.123456789")),
            ("Body.ContentType", text("String.mime", "application/json")),
            ("weight", text("Number.float", "0.50")),
            ("thumbprint", binary("Binary", &every_byte)),
            ("picture", binary("Binary.png", &[0])),
        ]
        .map(|(name, attribute)| (name.to_owned(), attribute))
        .into(),
        ten.collect(),
        BTreeMap::from([("traceparent".to_owned(), text("String", "00-0af7-b7ad-01"))]),
    ];
    for attributes in sets {
        for group in [None, Some("tenant-a")] {
            let world = World::new();
            send(&world, &attributes, group).await;
            let script = failing_thrice();
            let processor = world.processor(script.clone());
            for _ in 0..3 {
                world.invoke(&processor).await.unwrap();
                let copy = world.only_message();
                assert_eq!((&*copy.attributes, copy.group_id.as_deref()), (&attributes, group));
                tokio::time::sleep(secs(18)).await;
            }
            world.run(&processor).await;
            assert_eq!(script.calls().len(), 4);
            for seen in script.calls() {
                assert_eq!((&seen.attributes, seen.group_id.as_deref()), (&attributes, group));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_trace_header_of_the_original_is_not_copied() {
    let world = World::new();
    let trace = MessageSystemAttributeValue::builder().data_type("String");
    let trace = trace.string_value(
        "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1;Lineage=a87bd80c:1|68fd508a:5",
    );
    let trace = trace.build().unwrap();
    world
        .send_as("{}", |message| {
            message.message_system_attributes(
                MessageSystemAttributeNameForSends::AwsTraceHeader,
                trace,
            )
        })
        .await;
    assert!(world.only_message().system_attributes.contains_key("AWSTraceHeader"));
    world.invoke(&world.processor(failing_thrice())).await.unwrap();
    assert!(!world.only_message().system_attributes.contains_key("AWSTraceHeader"));
}

#[tokio::test(start_paused = true)]
async fn every_attempt_has_the_trace_of_the_producer_and_none_of_the_function() {
    const OF_FUNCTION: &str =
        "Root=1-aaaaaaaa-bd862e3fe1be46a994272793;Parent=aaaaaaaaaaaaaaaa;Sampled=0;Lineage=1:x:0";
    const OF_PRODUCER: &str =
        "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";
    let parent = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01";
    let own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (header, attribute, expected) in [
        (None, None, None),
        (Some(OF_PRODUCER), None, Some(parent)),
        (Some(OF_PRODUCER), Some(own), Some(own)),
        (Some(OF_PRODUCER), Some("garbled"), Some(parent)),
        (Some("garbled"), None, None),
    ] {
        let world = World::new();
        world.send(r#"{"n":1}"#).await;
        let seen: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
        let noted = Arc::clone(&seen);
        let processor = world.processor(move |message: Message| {
            let traceparent = message.traceparent().map(Cow::into_owned);
            noted.lock().unwrap().push(traceparent);
            async { Err::<(), _>(Failure::temporary("no")) }
        });
        for attempt in 0..4 {
            world.sleep_until_due().await;
            let mut event = world.receive().await;
            let record = &mut event["Records"][0];
            let header = if attempt == 0 { header } else { Some(OF_FUNCTION) };
            record["attributes"]["AWSTraceHeader"] = header.into();
            if let Some(attribute) = attribute {
                record["messageAttributes"]["traceparent"] =
                    json!({ "dataType": "String", "stringValue": attribute });
            }
            world.deliver(&processor, &event).await;
        }
        let expected = vec![expected.map(str::to_owned); 4];
        assert_eq!(*seen.lock().unwrap(), expected, "{header:?} {attribute:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_forged_trace_in_a_state_is_none() {
    for (trace, expected) in [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nX-Y: z", false),
        ("", false),
    ] {
        let world = World::new();
        let state = json!({ "v": 1, "class": "temporary", "traceparent": trace });
        let body = json!({
            "retryCount": 1, "originalMessageId": "x", "retryState": state,
            "retryTimestamp": jiff::Timestamp::try_from(world.clock.now()).unwrap().to_string(),
        });
        world.send(&body.to_string()).await;
        let processor = world.processor(move |message: Message| {
            assert_eq!(message.traceparent().is_some(), expected);
            async { Ok::<_, Failure>(()) }
        });
        let event = world.receive().await;
        let report = world.report(&processor, &event).await;
        assert_eq!(report.outcomes[0].retry_count, 1, "the rest of the state is believed");
        assert_eq!(report.outcomes[0].detail, None);
    }
}

#[tokio::test(start_paused = true)]
async fn an_attribute_that_cannot_be_read_keeps_the_message_where_it_is() {
    for attribute in [
        r#"{"dataType":"Binary","binaryValue":"%%%"}"#,
        r#"{"dataType":"Binary","stringValue":"x"}"#,
        r#"{"dataType":"Binary.png"}"#,
        r#"{"dataType":"String"}"#,
        r#"{"stringValue":"x"}"#,
        "7",
        "[]",
    ] {
        let world = World::new();
        let ids = world.send_numbered(2).await;
        let mut event = world.receive().await;
        event["Records"][0]["messageAttributes"]["broken"] =
            serde_json::from_str(attribute).unwrap();
        let script = Script::new(|_| Act::Done);
        let invocation = world.deliver(&world.processor(script.clone()), &event).await;
        assert_eq!(invocation.failed(), [ids[0].as_str()], "{attribute}");
        assert_eq!(script.calls().len(), 1, "{attribute}: no handler decides on half a message");
        assert_eq!(world.all_calls(), (0, 0, 0), "{attribute}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_without_a_body_is_left_alone() {
    for body in [Value::Null, Value::from(5), Value::from("")] {
        let world = World::new();
        let id = world.send("{}").await;
        let mut event = world.receive().await;
        event["Records"][0]["body"] = body.clone();
        let script = Script::new(|_| Act::Done);
        let invocation = world.deliver(&world.processor(script.clone()), &event).await;
        assert_eq!(invocation.failed(), [id.as_str()], "{body}");
        assert!(script.calls().is_empty(), "{body}");
        assert_eq!(world.all_calls(), (0, 0, 0), "{body}");
        assert_eq!(records(&event).len(), 1);
    }
}
