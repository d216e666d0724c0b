//! Queues: creating, finding, describing, emptying, removing.

use aws_sdk_sqs::types::QueueAttributeName;

use crate::bench::{Bench, Check, Observed, bodies, check, code, long, outcome, pause};

pub(crate) fn checks() -> Vec<Check> {
    vec![
        check("creating a queue again with the same attributes finds it", "same", again),
        check(
            "creating a queue again with another attribute is refused",
            "QueueAlreadyExists",
            |b| async move {
                let queue = b.queue(&[("VisibilityTimeout", "40")]).await?;
                Ok(outcome(b.queue_named(queue.name, &[("VisibilityTimeout", "41")]).await))
            },
        ),
        check(
            "a queue that does not exist is named so",
            "url AWS.SimpleQueueService.NonExistentQueue, send AWS.SimpleQueueService.NonExistentQueue",
            missing,
        ),
        check(
            "a queue name has at most 80 letters, digits, hyphens and underscores",
            "80: ok, 81: InvalidParameterValue, dot: InvalidParameterValue, empty: InvalidParameterValue",
            names,
        ),
        check(
            "attributes out of bounds are refused",
            "43201: InvalidAttributeValue, 901: InvalidAttributeValue, 59: InvalidAttributeValue, 21: InvalidAttributeValue, 1048577: InvalidAttributeValue, text: InvalidAttributeValue",
            out_of_bounds,
        ),
        check("an unknown attribute is refused", "InvalidAttributeName", |b| async move {
            Ok(outcome(b.queue(&[("Colour", "red")]).await))
        }),
        check(
            "a queue has the documented defaults",
            "delay 0, size 1048576, retention 345600, wait 0, visibility 30",
            defaults,
        ),
        check("attributes can be changed", "45", |b| async move {
            let queue = b.queue(&[]).await?;
            queue.set(QueueAttributeName::VisibilityTimeout, "45").await?;
            queue.attribute(QueueAttributeName::VisibilityTimeout).await
        }),
        check("only the attributes asked for are answered", "1", |b| async move {
            let queue = b.queue(&[]).await?;
            let get = b.client.get_queue_attributes().queue_url(&queue.url);
            let answer =
                get.attribute_names(QueueAttributeName::DelaySeconds).send().await.map_err(code)?;
            Ok(answer.attributes.unwrap_or_default().len().to_string())
        }),
        check(
            "messages are counted by what they are doing",
            "1 visible, 2 delayed, 1 in flight",
            counts,
        ),
        check("queues are listed by prefix", "2 of 2, then 1 and a token", listing),
        check("an empty policy is none", "one, then none", |b| async move {
            let queue = b.queue(&[]).await?;
            let policy = r#"{"Version":"2012-10-17","Statement":[]}"#;
            let mut seen = Vec::new();
            for policy in [policy, ""] {
                queue.set(QueueAttributeName::Policy, policy).await?;
                let has = queue.attributes().await?.contains_key(&QueueAttributeName::Policy);
                seen.push(if has { "one" } else { "none" });
            }
            Ok(seen.join(", then "))
        }),
        check("a purge empties the queue", "0 visible, 0 delayed, 0 in flight", |b| async move {
            let queue = b.queue(&[]).await?;
            queue.send("x").await?;
            queue.send_with("y", |m| m.delay_seconds(60)).await?;
            queue.receive().await?;
            b.client.purge_queue().queue_url(&queue.url).send().await.map_err(code)?;
            queue.counts().await
        }),
        check(
            "a second purge within a minute is refused",
            "AWS.SimpleQueueService.PurgeQueueInProgress",
            |b| async move {
                let queue = b.queue(&[]).await?;
                let purge = || b.client.purge_queue().queue_url(&queue.url).send();
                purge().await.map_err(code)?;
                Ok(outcome(purge().await.map_err(code)))
            },
        ),
        check(
            "a deleted queue is gone, and its name is held for a minute",
            "send AWS.SimpleQueueService.NonExistentQueue, create AWS.SimpleQueueService.QueueDeletedRecently",
            deleted,
        ),
        long(
            "a name is free again after a minute, and old handles mean nothing",
            "ok, nothing, ReceiptHandleIsInvalid",
            reborn,
        ),
        check(
            "a receive asks for 1 to 10 messages and waits 0 to 20 seconds",
            "0: InvalidParameterValue, 11: InvalidParameterValue, wait 21: InvalidParameterValue, visibility 43201: InvalidParameterValue",
            receive_bounds,
        ),
        check("tags can be put, read and taken away", "a=1 b=2, then b=2", tags),
    ]
}

async fn again(bench: Bench) -> Observed {
    let queue = bench.queue(&[("VisibilityTimeout", "40")]).await?;
    let with = bench.queue_named(queue.name.clone(), &[("VisibilityTimeout", "40")]).await?;
    let without = bench.queue_named(queue.name.clone(), &[]).await?;
    let same = queue.url == with.url && queue.url == without.url;
    Ok(if same { "same" } else { "another" }.to_owned())
}

async fn missing(bench: Bench) -> Observed {
    let queue = bench.queue(&[]).await?;
    let url = bench.client.get_queue_url().queue_name(Bench::name()).send().await;
    let nowhere = queue.url.replace(&queue.name, &Bench::name());
    let send = bench.client.send_message().queue_url(nowhere).message_body("x").send().await;
    Ok(format!("url {}, send {}", outcome(url.map_err(code)), outcome(send.map_err(code))))
}

async fn names(bench: Bench) -> Observed {
    let mut seen = Vec::new();
    let long = format!("{}{}", Bench::name(), "x".repeat(80));
    for (what, name) in [("80", &long[..80]), ("81", &long[..81]), ("dot", "a.b"), ("empty", "")] {
        seen.push(format!("{what}: {}", outcome(bench.queue_named(name.to_owned(), &[]).await)));
    }
    Ok(seen.join(", "))
}

async fn out_of_bounds(bench: Bench) -> Observed {
    let mut seen = Vec::new();
    for (name, value) in [
        ("VisibilityTimeout", "43201"),
        ("DelaySeconds", "901"),
        ("MessageRetentionPeriod", "59"),
        ("ReceiveMessageWaitTimeSeconds", "21"),
        ("MaximumMessageSize", "1048577"),
        ("DelaySeconds", "text"),
    ] {
        seen.push(format!("{value}: {}", outcome(bench.queue(&[(name, value)]).await)));
    }
    Ok(seen.join(", "))
}

async fn defaults(bench: Bench) -> Observed {
    let attributes = bench.queue(&[]).await?.attributes().await?;
    let value = |name| attributes.get(&name).cloned().unwrap_or_default();
    Ok(format!(
        "delay {}, size {}, retention {}, wait {}, visibility {}",
        value(QueueAttributeName::DelaySeconds),
        value(QueueAttributeName::MaximumMessageSize),
        value(QueueAttributeName::MessageRetentionPeriod),
        value(QueueAttributeName::ReceiveMessageWaitTimeSeconds),
        value(QueueAttributeName::VisibilityTimeout),
    ))
}

async fn counts(bench: Bench) -> Observed {
    let queue = bench.queue(&[]).await?;
    queue.send("in flight").await?;
    queue.receive().await?;
    queue.send("visible").await?;
    for body in ["delayed", "delayed too"] {
        queue.send_with(body, |m| m.delay_seconds(60)).await?;
    }
    queue.counts().await
}

async fn listing(bench: Bench) -> Observed {
    let prefix = Bench::name();
    for ending in ["a", "b"] {
        bench.queue_named(format!("{prefix}{ending}"), &[]).await?;
    }
    let list = || bench.client.list_queues().queue_name_prefix(&prefix);
    let all = list().send().await.map_err(code)?.queue_urls.unwrap_or_default().len();
    let page = list().max_results(1).send().await.map_err(code)?;
    let token = if page.next_token.is_some() { "a token" } else { "no token" };
    Ok(format!("{all} of 2, then {} and {token}", page.queue_urls.unwrap_or_default().len()))
}

async fn deleted(bench: Bench) -> Observed {
    let queue = bench.queue(&[]).await?;
    bench.client.delete_queue().queue_url(&queue.url).send().await.map_err(code)?;
    let send = outcome(queue.send("x").await);
    Ok(format!("send {send}, create {}", outcome(bench.queue_named(queue.name, &[]).await)))
}

async fn reborn(bench: Bench) -> Observed {
    let queue = bench.queue(&[]).await?;
    queue.send("x").await?;
    let old = queue.next().await?;
    bench.client.delete_queue().queue_url(&queue.url).send().await.map_err(code)?;
    pause(60_000).await;
    let queue = bench.queue_named(queue.name, &[]).await?;
    let send = outcome(queue.send("y").await);
    let old = outcome(queue.delete(old.receipt_handle().unwrap_or_default()).await);
    queue.receive().await?;
    Ok(format!("{send}, {}, {old}", bodies(&queue.receive().await?)))
}

async fn receive_bounds(bench: Bench) -> Observed {
    let queue = bench.queue(&[]).await?;
    Ok(format!(
        "0: {}, 11: {}, wait 21: {}, visibility 43201: {}",
        outcome(queue.receive_with(|r| r.max_number_of_messages(0)).await),
        outcome(queue.receive_with(|r| r.max_number_of_messages(11)).await),
        outcome(queue.receive_with(|r| r.wait_time_seconds(21)).await),
        outcome(queue.receive_with(|r| r.visibility_timeout(43_201)).await),
    ))
}

async fn tags(bench: Bench) -> Observed {
    let queue = bench.queue(&[]).await?;
    let tag = bench.client.tag_queue().queue_url(&queue.url).tags("a", "1").tags("b", "2");
    tag.send().await.map_err(code)?;
    let read = async || {
        let answer =
            bench.client.list_queue_tags().queue_url(&queue.url).send().await.map_err(code)?;
        let mut tags: Vec<String> =
            answer.tags.unwrap_or_default().iter().map(|(k, v)| format!("{k}={v}")).collect();
        tags.sort();
        Ok::<_, String>(tags.join(" "))
    };
    let before = read().await?;
    bench.client.untag_queue().queue_url(&queue.url).tag_keys("a").send().await.map_err(code)?;
    Ok(format!("{before}, then {}", read().await?))
}
