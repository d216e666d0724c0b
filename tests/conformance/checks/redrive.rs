//! Dead-letter queues: into them by the redrive policy, out of them by a move task.

use aws_sdk_sqs::types::{MessageAttributeValue, MessageSystemAttributeName, QueueAttributeName};

use crate::bench::{
    Bench, Check, Observed, Queue, bodies, check, code, long, outcome, pause, receive_count,
    redrive_policy, system,
};

pub(crate) fn checks() -> Vec<Check> {
    vec![
        check(
            "a message is moved when it would be received once too often",
            "x x nothing, x",
            |b| async move {
                let (queue, dead) = b.queue_with_dead_letters(2).await?;
                queue.send("x").await?;
                let mut seen = Vec::new();
                for _ in 0..3 {
                    seen.push(bodies(&queue.receive().await?));
                }
                Ok(format!("{}, {}", seen.join(" "), bodies(&dead.receive().await?)))
            },
        ),
        check("a message is moved by a receive, not by time", "nothing, then x", |b| async move {
            let (queue, dead) = b.queue_with_dead_letters(1).await?;
            queue.send("x").await?;
            queue.next().await?;
            pause(1_000).await;
            let before = bodies(&dead.receive().await?);
            queue.receive().await?;
            Ok(format!("{before}, then {}", bodies(&dead.receive().await?)))
        }),
        check(
            "a moved message keeps what it is",
            "same id, same sent, a=x, trace Root=1-5-a, group g",
            keeps,
        ),
        check("a moved message goes on counting its receives", "3", |b| async move {
            let (queue, dead) = b.queue_with_dead_letters(2).await?;
            into_dead_letters(&queue, 2).await?;
            Ok(receive_count(&dead.next().await?))
        }),
        check("a moved message names the queue that it comes from", "the source", |b| async move {
            let (queue, dead) = b.queue_with_dead_letters(1).await?;
            into_dead_letters(&queue, 1).await?;
            let arn =
                system(&dead.next().await?, MessageSystemAttributeName::DeadLetterQueueSourceArn);
            Ok(if arn == queue.arn().await? { "the source".to_owned() } else { arn })
        }),
        check("maxReceiveCount may be a number or a text", "ok ok, refused", |b| async move {
            let arn = b.queue(&[]).await?.arn().await?;
            let create = async |count: &str| {
                let policy =
                    format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{count}}}"#);
                outcome(b.queue(&[("RedrivePolicy", &policy)]).await)
            };
            let refused = if create("0").await == "ok" { "accepted" } else { "refused" };
            Ok(format!("{} {}, {refused}", create("3").await, create("\"3\"").await))
        }),
        check(
            "a dead-letter queue exists and is of the same type",
            "missing refused, fifo refused",
            |b| async move {
                let (queue, fifo) = (b.queue(&[]).await?, b.fifo(&[]).await?);
                let missing = queue.arn().await?.replace(&queue.name, &Bench::name());
                let verdict = async |arn: &str| {
                    let outcome =
                        outcome(b.queue(&[("RedrivePolicy", &redrive_policy(arn, 3))]).await);
                    if outcome == "ok" { "accepted" } else { "refused" }
                };
                Ok(format!(
                    "missing {}, fifo {}",
                    verdict(&missing).await,
                    verdict(&fifo.arn().await?).await
                ))
            },
        ),
        check("an empty redrive policy takes it away", "x x x", |b| async move {
            let (queue, _) = b.queue_with_dead_letters(1).await?;
            queue.set(QueueAttributeName::RedrivePolicy, "").await?;
            queue.send("x").await?;
            let mut seen = Vec::new();
            for _ in 0..3 {
                seen.push(bodies(&queue.receive().await?));
            }
            Ok(seen.join(" "))
        }),
        check("a dead-letter queue knows its sources", "1 source, the right one", |b| async move {
            let (queue, dead) = b.queue_with_dead_letters(1).await?;
            let list = b.client.list_dead_letter_source_queues().queue_url(&dead.url);
            let urls = list.send().await.map_err(code)?.queue_urls;
            let right = if urls.contains(&queue.url) { "the right one" } else { "a wrong one" };
            Ok(format!("{} source, {right}", urls.len()))
        }),
        check("a redrive allow policy can deny", "refused", |b| async move {
            let dead =
                b.queue(&[("RedriveAllowPolicy", r#"{"redrivePermission":"denyAll"}"#)]).await?;
            let policy = redrive_policy(&dead.arn().await?, 3);
            let outcome = outcome(b.queue(&[("RedrivePolicy", &policy)]).await);
            Ok(if outcome == "ok" { "accepted" } else { "refused" }.to_owned())
        }),
        check(
            "a move task brings messages back to where they came from, as new ones",
            "COMPLETED 1, x, another id, count 1, no source",
            moved_back,
        ),
        check("a move task can name another destination", "nothing, x", moved_elsewhere),
        check(
            "a move task needs a dead-letter queue",
            "plain InvalidParameterValue, missing ResourceNotFoundException",
            |b| async move {
                let queue = b.queue(&[]).await?;
                let arn = queue.arn().await?;
                let missing = arn.replace(&queue.name, &Bench::name());
                let start = async |arn: &str| {
                    let start = b.client.start_message_move_task().source_arn(arn).send().await;
                    outcome(start.map_err(code))
                };
                Ok(format!("plain {}, missing {}", start(&arn).await, start(&missing).await))
            },
        ),
        check(
            "what was sent to a dead-letter queue has nowhere to go back to",
            "FAILED CouldNotDetermineMessageSource",
            |b| async move {
                let (_, dead) = b.queue_with_dead_letters(1).await?;
                dead.send("x").await?;
                let arn = dead.arn().await?;
                b.client.start_message_move_task().source_arn(&arn).send().await.map_err(code)?;
                task(&b, &arn).await
            },
        ),
        long(
            "a move task keeps its rate, and can be cancelled",
            "1 2, cancelled at 3, CANCELLED 3, 2 left",
            slowly,
        ),
        long(
            "a standard dead-letter queue counts retention from the first send",
            "nothing",
            |b| async move {
                let dead = b.queue(&[("MessageRetentionPeriod", "120")]).await?;
                let policy = redrive_policy(&dead.arn().await?, 1);
                let queue =
                    b.queue(&[("VisibilityTimeout", "0"), ("RedrivePolicy", &policy)]).await?;
                queue.send("x").await?;
                pause(100_000).await;
                into_dead_letters(&queue, 1).await.ok();
                pause(30_000).await;
                Ok(bodies(&dead.receive().await?))
            },
        ),
    ]
}

/// Receives until the policy moves the message.
async fn into_dead_letters(queue: &Queue, max_receives: u32) -> Result<(), String> {
    if queue.attribute(QueueAttributeName::ApproximateNumberOfMessages).await? == "0" {
        queue.send("x").await?;
    }
    for _ in 0..=max_receives {
        queue.receive().await?;
    }
    Ok(())
}

async fn keeps(bench: Bench) -> Observed {
    let (queue, dead) = bench.queue_with_dead_letters(1).await?;
    let own = MessageAttributeValue::builder()
        .data_type("String")
        .string_value("x")
        .build()
        .expect("a type");
    let trace = aws_sdk_sqs::types::MessageSystemAttributeValue::builder();
    let trace = trace.data_type("String").string_value("Root=1-5-a").build().expect("a type");
    queue
        .send_with("x", |m| {
            let m = m.message_attributes("a", own).message_group_id("g");
            m.message_system_attributes("AWSTraceHeader".into(), trace)
        })
        .await?;
    let before = queue.next().await?;
    pause(20).await;
    queue.receive().await?;
    let after = dead.next().await?;
    let same = |same: bool| if same { "same" } else { "other" };
    let sent = |message| system(message, MessageSystemAttributeName::SentTimestamp);
    let own = after
        .message_attributes()
        .and_then(|own| own.get("a"))
        .and_then(MessageAttributeValue::string_value);
    Ok(format!(
        "{} id, {} sent, a={}, trace {}, group {}",
        same(before.message_id == after.message_id),
        same(sent(&before) == sent(&after)),
        own.unwrap_or("none"),
        system(&after, MessageSystemAttributeName::AwsTraceHeader),
        system(&after, MessageSystemAttributeName::MessageGroupId),
    ))
}

/// The status of the latest task once it has ended.
async fn task(bench: &Bench, arn: &str) -> Observed {
    for _ in 0..50 {
        let list =
            bench.client.list_message_move_tasks().source_arn(arn).send().await.map_err(code)?;
        let task = list.results.unwrap_or_default().into_iter().next().ok_or("no task")?;
        let status = task.status().unwrap_or_default();
        if status != "RUNNING" {
            let moved = task.approximate_number_of_messages_moved;
            return Ok(format!(
                "{status} {}",
                task.failure_reason.clone().unwrap_or_else(|| moved.to_string())
            ));
        }
        pause(100).await;
    }
    Err("a task without end".to_owned())
}

async fn moved_back(bench: Bench) -> Observed {
    let (queue, dead) = bench.queue_with_dead_letters(1).await?;
    queue.send("x").await?;
    let before = queue.next().await?;
    queue.receive().await?;
    let arn = dead.arn().await?;
    bench.client.start_message_move_task().source_arn(&arn).send().await.map_err(code)?;
    let status = task(&bench, &arn).await?;
    let after = queue.next().await?;
    let id = if before.message_id == after.message_id { "the same id" } else { "another id" };
    let source = system(&after, MessageSystemAttributeName::DeadLetterQueueSourceArn);
    let source = if source == "none" { "no source" } else { "a source" };
    let count = receive_count(&after);
    Ok(format!("{status}, {}, {id}, count {count}, {source}", bodies(&[after])))
}

async fn moved_elsewhere(bench: Bench) -> Observed {
    let (queue, dead) = bench.queue_with_dead_letters(1).await?;
    let other = bench.queue(&[]).await?;
    into_dead_letters(&queue, 1).await?;
    let start = bench.client.start_message_move_task().source_arn(dead.arn().await?);
    start.destination_arn(other.arn().await?).send().await.map_err(code)?;
    let found = other.next().await?;
    Ok(format!("{}, {}", bodies(&queue.receive().await?), bodies(&[found])))
}

async fn slowly(bench: Bench) -> Observed {
    let (queue, dead) = bench.queue_with_dead_letters(1).await?;
    for _ in 0..5 {
        queue.send("x").await?;
    }
    into_dead_letters(&queue, 1).await?;
    let other = bench.queue(&[]).await?;
    let arn = dead.arn().await?;
    let start = bench
        .client
        .start_message_move_task()
        .source_arn(&arn)
        .max_number_of_messages_per_second(1);
    let start = start.destination_arn(other.arn().await?).send().await.map_err(code)?;
    let visible = || other.attribute(QueueAttributeName::ApproximateNumberOfMessages);
    let first = visible().await?;
    pause(1_000).await;
    let second = visible().await?;
    pause(1_000).await;
    let cancel =
        bench.client.cancel_message_move_task().task_handle(start.task_handle.unwrap_or_default());
    let moved = cancel.send().await.map_err(code)?.approximate_number_of_messages_moved;
    pause(5_000).await;
    let left = dead.attribute(QueueAttributeName::ApproximateNumberOfMessages).await?;
    let status = task(&bench, &arn).await?;
    Ok(format!("{first} {second}, cancelled at {moved}, {status}, {left} left"))
}
