//! FIFO queues: order, groups, deduplication.

use aws_sdk_sqs::types::{MessageSystemAttributeName, QueueAttributeName};

use crate::bench::{
    Bench, Check, Observed, bodies, check, code, entry_with, handle, long, outcome, pause,
    redrive_policy, system,
};

pub(crate) fn checks() -> Vec<Check> {
    vec![
        check(
            "the name of a FIFO queue ends in .fifo, and only that",
            "without InvalidParameterValue, with InvalidParameterValue",
            |b| async move {
                let without = outcome(b.queue_named(Bench::name(), &[("FifoQueue", "true")]).await);
                Ok(format!(
                    "without {without}, with {}",
                    outcome(b.queue_named(format!("{}.fifo", Bench::name()), &[]).await)
                ))
            },
        ),
        check("a FIFO message needs a group", "MissingParameter", |b| async move {
            let queue = b.fifo(&[]).await?;
            Ok(outcome(queue.send_with("x", |m| m.message_deduplication_id("d")).await))
        }),
        check("a FIFO message needs a deduplication id", "InvalidParameterValue", |b| async move {
            let queue = b.fifo(&[]).await?;
            Ok(outcome(queue.send_with("x", |m| m.message_group_id("g")).await))
        }),
        check(
            "a FIFO message has no delay of its own, though zero is accepted",
            "1: InvalidParameterValue, 0: ok",
            |b| async move {
                let queue = b.fifo(&[("ContentBasedDeduplication", "true")]).await?;
                let send = async |secs| {
                    outcome(
                        queue.send_with("x", |m| m.message_group_id("g").delay_seconds(secs)).await,
                    )
                };
                Ok(format!("1: {}, 0: {}", send(1).await, send(0).await))
            },
        ),
        check(
            "in a batch each FIFO message is judged alone",
            "ok 0; failed 1 InvalidParameterValue (sender)",
            |b| async move {
                let queue = b.fifo(&[("ContentBasedDeduplication", "true")]).await?;
                let plain = entry_with("0", "x", |entry| entry.message_group_id("g"));
                let late =
                    entry_with("1", "y", |entry| entry.message_group_id("g").delay_seconds(5));
                queue.send_batch(vec![plain, late]).await
            },
        ),
        check(
            "a batch is refused as a whole if a message lacks an id",
            "group InvalidParameterValue, deduplication InvalidParameterValue, then nothing",
            |b| async move {
                let queue = b.fifo(&[]).await?;
                let whole = |id, body: &str| {
                    entry_with(id, body, |entry| {
                        entry.message_group_id("g").message_deduplication_id(id)
                    })
                };
                let mut seen = Vec::new();
                let groupless = entry_with("1", "y", |entry| entry.message_deduplication_id("y"));
                let idless = entry_with("1", "z", |entry| entry.message_group_id("g"));
                for (what, entry) in [("group", groupless), ("deduplication", idless)] {
                    let sent = queue.send_batch(vec![whole("0", what), entry]).await;
                    seen.push(format!("{what} {}", sent.unwrap_or_else(|code| code)));
                }
                Ok(format!("{}, then {}", seen.join(", "), bodies(&queue.receive().await?)))
            },
        ),
        check("switches are read in any case", "true true", |b| async move {
            let name = format!("{}.fifo", Bench::name());
            let switches = [("FifoQueue", "True"), ("ContentBasedDeduplication", "TRUE")];
            let queue = b.queue_named(name, &switches).await?;
            let fifo = queue.attribute(QueueAttributeName::FifoQueue).await?;
            let content = queue.attribute(QueueAttributeName::ContentBasedDeduplication).await?;
            Ok(format!("{fifo} {content}"))
        }),
        check("a purge forgets deduplication ids", "x", |b| async move {
            let queue = b.fifo(&[("ContentBasedDeduplication", "true")]).await?;
            let send = async || queue.send_with("x", |m| m.message_group_id("g")).await;
            send().await?;
            b.client.purge_queue().queue_url(&queue.url).send().await.map_err(code)?;
            send().await?;
            Ok(bodies(&queue.receive().await?))
        }),
        check("a group comes in order, in one batch", "1,2,3,4,5", |b| async move {
            let queue = b.fifo(&[]).await?;
            for body in ["1", "2", "3", "4", "5"] {
                queue.send_to_group("g", body).await?;
            }
            Ok(bodies(&queue.receive().await?))
        }),
        check(
            "a group waits while one of its messages is in flight",
            "1 nothing, then 2",
            |b| async move {
                let queue = b.fifo(&[]).await?;
                queue.send_to_group("g", "1").await?;
                queue.send_to_group("g", "2").await?;
                let first = queue.receive_with(|r| r.max_number_of_messages(1)).await?;
                let locked = bodies(&queue.receive().await?);
                let message = first.first().ok_or("silence")?;
                queue.delete(handle(message)).await?;
                Ok(format!("{} {locked}, then {}", bodies(&first), bodies(&queue.receive().await?)))
            },
        ),
        check("other groups go on", "b1", |b| async move {
            let queue = b.fifo(&[]).await?;
            for (group, body) in [("a", "a1"), ("a", "a2"), ("b", "b1")] {
                queue.send_to_group(group, body).await?;
            }
            queue.receive_with(|r| r.max_number_of_messages(1)).await?;
            Ok(bodies(&queue.receive().await?))
        }),
        check(
            "a released message comes back before its successors",
            "1 then 1,2",
            |b| async move {
                let queue = b.fifo(&[]).await?;
                queue.send_to_group("g", "1").await?;
                queue.send_to_group("g", "2").await?;
                let first = queue.receive_with(|r| r.max_number_of_messages(1)).await?;
                queue.change_visibility(handle(first.first().ok_or("silence")?), 0).await?;
                Ok(format!("{} then {}", bodies(&first), bodies(&queue.receive().await?)))
            },
        ),
        check(
            "a group comes up to its first message that is in flight",
            "1, then nothing",
            released_head,
        ),
        check(
            "a repeated deduplication id is accepted and not delivered",
            "same id, x",
            |b| async move {
                let queue = b.fifo(&[]).await?;
                let send = async |body| {
                    queue
                        .send_with(body, |m| m.message_group_id("g").message_deduplication_id("d"))
                        .await
                };
                let (first, second) = (send("x").await?, send("y").await?);
                let id =
                    if first.message_id == second.message_id { "same id" } else { "another id" };
                Ok(format!("{id}, {}", bodies(&queue.receive().await?)))
            },
        ),
        check("a deduplication id outlives its message", "nothing", |b| async move {
            let queue = b.fifo(&[("ContentBasedDeduplication", "true")]).await?;
            let send = async || queue.send_with("x", |m| m.message_group_id("g")).await;
            send().await?;
            queue.delete(handle(&queue.next().await?)).await?;
            send().await?;
            Ok(bodies(&queue.receive().await?))
        }),
        check("content-based deduplication looks at the body only", "x", |b| async move {
            let queue = b.fifo(&[("ContentBasedDeduplication", "true")]).await?;
            for group in ["g", "h"] {
                queue.send_with("x", |m| m.message_group_id(group)).await?;
            }
            Ok(bodies(&queue.receive().await?))
        }),
        check("deduplication can be scoped to the group", "x,x", |b| async move {
            let scope =
                [("ContentBasedDeduplication", "true"), ("DeduplicationScope", "messageGroup")];
            let queue = b.fifo(&scope).await?;
            for group in ["g", "h", "g"] {
                queue.send_with("x", |m| m.message_group_id(group)).await?;
            }
            Ok(bodies(&queue.receive().await?))
        }),
        check("a FIFO message says its group and its deduplication id", "g d", |b| async move {
            let queue = b.fifo(&[]).await?;
            queue.send_with("x", |m| m.message_group_id("g").message_deduplication_id("d")).await?;
            let message = queue.next().await?;
            let group = system(&message, MessageSystemAttributeName::MessageGroupId);
            Ok(format!(
                "{group} {}",
                system(&message, MessageSystemAttributeName::MessageDeduplicationId)
            ))
        }),
        check(
            "the numbers of a group have 20 digits and rise",
            "20 digits, the same when received, rising",
            numbers,
        ),
        check(
            "an expired handle does not change the visibility of a FIFO message",
            "InvalidParameterValue, x",
            |b| async move {
                let queue = b.fifo(&[("VisibilityTimeout", "1")]).await?;
                queue.send_to_group("g", "x").await?;
                let message = queue.next().await?;
                pause(1_500).await;
                let change = outcome(queue.change_visibility(handle(&message), 60).await);
                Ok(format!("{change}, {}", bodies(&queue.receive().await?)))
            },
        ),
        check(
            "an expired handle does not delete a FIFO message",
            "InvalidParameterValue, x",
            |b| async move {
                let queue = b.fifo(&[("VisibilityTimeout", "1")]).await?;
                queue.send_to_group("g", "x").await?;
                let message = queue.next().await?;
                pause(1_500).await;
                let delete = outcome(queue.delete(handle(&message)).await);
                Ok(format!("{delete}, {}", bodies(&queue.receive().await?)))
            },
        ),
        check("a FIFO queue's delay holds for all its messages", "nothing, x", |b| async move {
            let queue = b.fifo(&[("DelaySeconds", "1")]).await?;
            queue.send_to_group("g", "x").await?;
            let early = bodies(&queue.receive().await?);
            pause(1_500).await;
            Ok(format!("{early}, {}", bodies(&queue.receive().await?)))
        }),
        check(
            "a FIFO queue's new delay holds also for what was sent before",
            "x",
            |b| async move {
                let queue = b.fifo(&[("DelaySeconds", "60")]).await?;
                queue.send_to_group("g", "x").await?;
                queue.set(QueueAttributeName::DelaySeconds, "0").await?;
                Ok(bodies(&queue.receive().await?))
            },
        ),
        check(
            "a poisonous head goes to the dead-letter queue and its group goes on",
            "1, then 2, dead 1",
            poison,
        ),
        check(
            "a FIFO dead-letter queue begins to count time anew, under the message's id",
            "same id, later, its id",
            reset,
        ),
        long("a deduplication id is remembered for five minutes", "nothing, x", |b| async move {
            let queue = b.fifo(&[("ContentBasedDeduplication", "true")]).await?;
            let send = async || queue.send_with("x", |m| m.message_group_id("g")).await;
            send().await?;
            queue.delete(handle(&queue.next().await?)).await?;
            pause(299_000).await;
            send().await?;
            let early = bodies(&queue.receive().await?);
            pause(1_000).await;
            send().await?;
            Ok(format!("{early}, {}", bodies(&queue.receive().await?)))
        }),
    ]
}

async fn released_head(bench: Bench) -> Observed {
    let queue = bench.fifo(&[]).await?;
    queue.send_to_group("g", "1").await?;
    queue.send_to_group("g", "2").await?;
    let both = queue.receive().await?;
    let [first, second] = &both[..] else {
        return Err(format!("received {}", bodies(&both)));
    };
    queue.change_visibility(handle(first), 0).await?;
    let locked = bodies(&queue.receive().await?);
    queue.change_visibility(handle(second), 0).await?;
    Ok(format!("{locked}, then {}", bodies(&queue.receive().await?)))
}

async fn poison(bench: Bench) -> Observed {
    let dead = bench.fifo(&[]).await?;
    let policy = redrive_policy(&dead.arn().await?, 1);
    let queue = bench.fifo(&[("VisibilityTimeout", "0"), ("RedrivePolicy", &policy)]).await?;
    queue.send_to_group("g", "1").await?;
    queue.send_to_group("g", "2").await?;
    let take = async || queue.receive_with(|r| r.max_number_of_messages(1)).await;
    let first = bodies(&take().await?);
    let second = bodies(&take().await?);
    Ok(format!("{first}, then {second}, dead {}", bodies(&dead.receive().await?)))
}

async fn numbers(bench: Bench) -> Observed {
    let queue = bench.fifo(&[]).await?;
    let mut sent = Vec::new();
    // Enough that numbers drawn by lot would hardly rise.
    for body in 0..10 {
        let message = queue.send_to_group("g", &body.to_string()).await?;
        sent.push(message.sequence_number.unwrap_or_default());
    }
    let number = |message| system(message, MessageSystemAttributeName::SequenceNumber);
    let received: Vec<String> = queue.receive().await?.iter().map(number).collect();
    let same = if received == sent { "the same" } else { "others" };
    let rising = if sent.is_sorted() { "rising" } else { "not rising" };
    Ok(format!("{} digits, {same} when received, {rising}", sent[0].len()))
}

async fn reset(bench: Bench) -> Observed {
    let dead = bench.fifo(&[]).await?;
    let policy = redrive_policy(&dead.arn().await?, 1);
    let queue = bench.fifo(&[("VisibilityTimeout", "0"), ("RedrivePolicy", &policy)]).await?;
    queue.send_to_group("g", "x").await?;
    let before = queue.next().await?;
    pause(50).await;
    queue.receive().await?;
    let after = dead.next().await?;
    let sent = |message| system(message, MessageSystemAttributeName::SentTimestamp);
    let deduplication = system(&after, MessageSystemAttributeName::MessageDeduplicationId);
    Ok(format!(
        "{} id, {}, {}",
        if before.message_id == after.message_id { "same" } else { "another" },
        if sent(&before) < sent(&after) { "later" } else { "as before" },
        if after.message_id == Some(deduplication) { "its id" } else { "another id" },
    ))
}
