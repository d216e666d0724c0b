//! Messages: the received form of a sent message, and refused messages.

use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{
    MessageAttributeValue, MessageSystemAttributeName, MessageSystemAttributeNameForSends,
    MessageSystemAttributeValue,
};

use crate::bench::{Bench, Check, Observed, Queue, bodies, check, code, entry, outcome, system};

pub(crate) fn checks() -> Vec<Check> {
    vec![
        check(
            "a body comes back byte for byte, with its digest",
            "same body, same id, 09b7e90047bccb8e67197a0a37e4bf9f",
            round_trip,
        ),
        check(
            "attributes of every type come back, with the digest that other SDKs verify",
            "b Binary [0, 255], c String.label x, n Number 12.50, s String ü; afab6dc006be3744708c49a0119eab55 afab6dc006be3744708c49a0119eab55",
            attributes,
        ),
        check(
            "the first receive has the system attributes of the documents",
            "ApproximateFirstReceiveTimestamp,ApproximateReceiveCount,SenderId,SentTimestamp",
            |b| async move {
                let queue = b.queue(&[]).await?;
                queue.send("x").await?;
                let message = queue.next().await?;
                let attributes = message.attributes.unwrap_or_default();
                let mut names: Vec<&str> =
                    attributes.keys().map(MessageSystemAttributeName::as_str).collect();
                names.sort_unstable();
                Ok(names.join(","))
            },
        ),
        check(
            "a receive shows each message once, ten at most",
            "10, 2, 0, all different",
            ten_at_most,
        ),
        check("nothing that was not asked for is answered", "0 system, 0 own", not_asked),
        check("own attributes can be asked for by prefix and by name", "a.1,a.2,b", by_prefix),
        check(
            "own attributes can be asked for all at once, in three ways",
            "a,b a,b a,b",
            |b| async move {
                let queue = b.queue(&[("VisibilityTimeout", "0")]).await?;
                let attributes =
                    ["a", "b"].map(|name| (name.to_owned(), text("String", "x"))).into();
                queue.send_with("x", |m| m.set_message_attributes(Some(attributes))).await?;
                let mut seen = Vec::new();
                for filter in ["All", "*", ".*"] {
                    let wanted = Some(vec![filter.to_owned()]);
                    let found =
                        queue.receive_with(|r| r.set_message_attribute_names(wanted)).await?;
                    let message = found.into_iter().next().ok_or("silence")?;
                    let attributes = message.message_attributes.unwrap_or_default();
                    let mut names: Vec<String> = attributes.into_keys().collect();
                    names.sort();
                    seen.push(names.join(","));
                }
                Ok(seen.join(" "))
            },
        ),
        check("a trace header travels as a system attribute", "Root=1-5-a", trace_attribute),
        check(
            "a trace header of one entry of a batch belongs to that entry",
            "Root=1-5-b none",
            trace_entry,
        ),
        check(
            "the trace header of the request becomes that of each of its messages",
            "Root=1-5-c;Lineage=1:a:0 Root=1-5-c;Lineage=1:a:0 Root=1-5-c;Lineage=1:a:0",
            trace_request,
        ),
        check(
            "no system attribute but the trace header can be sent",
            "InvalidParameterValue",
            |b| async move {
                let queue = b.queue(&[]).await?;
                let value =
                    MessageSystemAttributeValue::builder().data_type("String").string_value("x");
                let value = value.build().expect("a type");
                Ok(outcome(
                    queue
                        .send_with("x", |m| m.message_system_attributes("SenderId".into(), value))
                        .await,
                ))
            },
        ),
        check(
            "a group on a standard queue is kept and orders nothing",
            "tenant-1 tenant-1",
            |b| async move {
                let queue = b.queue(&[]).await?;
                for body in ["x", "y"] {
                    queue.send_with(body, |m| m.message_group_id("tenant-1")).await?;
                }
                let mut groups = Vec::new();
                for message in [queue.next().await?, queue.next().await?] {
                    groups.push(system(&message, MessageSystemAttributeName::MessageGroupId));
                }
                Ok(groups.join(" "))
            },
        ),
        check(
            "a group has 1 to 128 letters, digits and signs",
            "128: ok, 129: InvalidParameterValue, space: InvalidParameterValue",
            |b| async move {
                let queue = b.queue(&[]).await?;
                let with = async |group: String| {
                    outcome(queue.send_with("x", |m| m.message_group_id(group)).await)
                };
                Ok(format!(
                    "128: {}, 129: {}, space: {}",
                    with("x".repeat(128)).await,
                    with("x".repeat(129)).await,
                    with("a b".to_owned()).await
                ))
            },
        ),
        check(
            "a standard queue refuses a deduplication id",
            "InvalidParameterValue",
            |b| async move {
                let queue = b.queue(&[]).await?;
                Ok(outcome(queue.send_with("x", |m| m.message_deduplication_id("d")).await))
            },
        ),
    ]
}

pub(super) fn text(data_type: &str, value: &str) -> MessageAttributeValue {
    MessageAttributeValue::builder()
        .data_type(data_type)
        .string_value(value)
        .build()
        .expect("a type")
}

pub(super) async fn with_trace(queue: &Queue, body: &str, header: &str) -> Result<(), String> {
    let name = MessageSystemAttributeNameForSends::AwsTraceHeader;
    queue.send_with(body, |m| m.message_system_attributes(name, trace(header))).await.map(drop)
}

fn trace(header: &str) -> MessageSystemAttributeValue {
    MessageSystemAttributeValue::builder()
        .data_type("String")
        .string_value(header)
        .build()
        .expect("a type")
}

async fn round_trip(bench: Bench) -> Observed {
    let queue = bench.queue(&[]).await?;
    let body = "{\"a\" : 1.0, \"b\":\"é\\u0000\", \"a\":2}\r\n";
    let sent = queue.send(body).await?;
    let message = queue.next().await?;
    let same = |same: bool| if same { "same" } else { "other" };
    let digests_agree = sent.md5_of_message_body == message.md5_of_body;
    let digest = message.md5_of_body.clone().filter(|_| digests_agree).unwrap_or_default();
    let ids = same(sent.message_id == message.message_id);
    Ok(format!("{} body, {ids} id, {digest}", same(message.body() == Some(body))))
}

async fn attributes(bench: Bench) -> Observed {
    let queue = bench.queue(&[]).await?;
    let binary =
        MessageAttributeValue::builder().data_type("Binary").binary_value(Blob::new([0_u8, 255]));
    let sent = queue
        .send_with("x", |m| {
            m.message_attributes("s", text("String", "ü"))
                .message_attributes("n", text("Number", "12.50"))
                .message_attributes("c", text("String.label", "x"))
                .message_attributes("b", binary.build().expect("a type"))
        })
        .await?;
    let message = queue.next().await?;
    let shown = |(name, value): (&String, &MessageAttributeValue)| {
        let binary = value.binary_value().map(|blob| format!("{:?}", blob.as_ref()));
        let shown = value.string_value().map(str::to_owned).or(binary).unwrap_or_default();
        format!("{name} {} {shown}", value.data_type())
    };
    let mut seen: Vec<String> =
        message.message_attributes().into_iter().flatten().map(shown).collect();
    seen.sort();
    let digest = |digest: Option<String>| digest.unwrap_or_default();
    let digests =
        (digest(sent.md5_of_message_attributes), digest(message.md5_of_message_attributes));
    Ok(format!("{}; {} {}", seen.join(", "), digests.0, digests.1))
}

async fn ten_at_most(bench: Bench) -> Observed {
    let queue = bench.queue(&[]).await?;
    for batch in [0..10, 10..12] {
        queue.send_batch(batch.map(|id| entry(&id.to_string(), "x")).collect()).await?;
    }
    let (mut counts, mut seen) = (Vec::new(), std::collections::BTreeSet::new());
    for _ in 0..3 {
        let found = queue.receive().await?;
        counts.push(found.len().to_string());
        seen.extend(found.into_iter().filter_map(|message| message.message_id));
    }
    let different = if seen.len() == 12 { "all different" } else { "some twice" };
    Ok(format!("{}, {different}", counts.join(", ")))
}

async fn not_asked(bench: Bench) -> Observed {
    let queue = bench.queue(&[]).await?;
    queue.send_with("x", |m| m.message_attributes("a", text("String", "x"))).await?;
    let answer = bench
        .client
        .receive_message()
        .queue_url(&queue.url)
        .wait_time_seconds(2)
        .send()
        .await
        .map_err(code)?;
    let message = answer.messages.unwrap_or_default().into_iter().next().ok_or("silence")?;
    Ok(format!(
        "{} system, {} own",
        message.attributes.unwrap_or_default().len(),
        message.message_attributes.unwrap_or_default().len()
    ))
}

async fn by_prefix(bench: Bench) -> Observed {
    let queue = bench.queue(&[]).await?;
    let names = ["a.1", "a.2", "b", "c"];
    let attributes = names.map(|name| (name.to_owned(), text("String", "x"))).into();
    queue.send_with("x", |m| m.set_message_attributes(Some(attributes))).await?;
    let wanted = Some(vec!["a.*".to_owned(), "b".to_owned()]);
    let found =
        queue.receive_with(|r| r.wait_time_seconds(2).set_message_attribute_names(wanted)).await?;
    let message = found.into_iter().next().ok_or("silence")?;
    let mut names: Vec<String> =
        message.message_attributes.unwrap_or_default().into_keys().collect();
    names.sort();
    Ok(names.join(","))
}

async fn trace_attribute(bench: Bench) -> Observed {
    let queue = bench.queue(&[]).await?;
    with_trace(&queue, "x", "Root=1-5-a").await?;
    Ok(system(&queue.next().await?, MessageSystemAttributeName::AwsTraceHeader))
}

async fn trace_entry(bench: Bench) -> Observed {
    let queue = bench.queue(&[]).await?;
    let traced = crate::bench::entry_with("0", "a", |entry| {
        entry.message_system_attributes(
            MessageSystemAttributeNameForSends::AwsTraceHeader,
            trace("Root=1-5-b"),
        )
    });
    queue.send_batch(vec![traced, entry("1", "b")]).await?;
    traces(&queue, 2).await
}

async fn trace_request(bench: Bench) -> Observed {
    let queue = bench.queue(&[]).await?;
    let header = "Root=1-5-c;Lineage=1:a:0";
    let send = bench.client.send_message().queue_url(&queue.url).message_body("a").customize();
    let send = send.mutate_request(move |request| {
        request.headers_mut().insert("x-amzn-trace-id", header);
    });
    send.send().await.map_err(code)?;
    let entries = Some(vec![entry("0", "b"), entry("1", "c")]);
    let batch =
        bench.client.send_message_batch().queue_url(&queue.url).set_entries(entries).customize();
    let batch = batch.mutate_request(move |request| {
        request.headers_mut().insert("x-amzn-trace-id", header);
    });
    batch.send().await.map_err(code)?;
    traces(&queue, 3).await
}

/// The trace headers of so many messages, in the order of their bodies.
async fn traces(queue: &Queue, count: usize) -> Observed {
    let mut found = Vec::new();
    for _ in 0..count {
        found.push(queue.next().await?);
    }
    found.sort_by_key(|message| bodies(std::slice::from_ref(message)));
    let header = |message| system(message, MessageSystemAttributeName::AwsTraceHeader);
    Ok(found.iter().map(header).collect::<Vec<_>>().join(" "))
}
