//! Batches: errors of the whole call, and errors of one entry.

use crate::bench::{Bench, Check, Observed, Queue, check, entry, entry_with, handle, outcome};

pub(crate) fn checks() -> Vec<Check> {
    vec![
        check(
            "an empty batch is refused",
            "AWS.SimpleQueueService.EmptyBatchRequest",
            |b| async move { Ok(outcome(b.queue(&[]).await?.send_batch(vec![]).await)) },
        ),
        check(
            "a batch has at most ten entries",
            "10: ok, 11: AWS.SimpleQueueService.TooManyEntriesInBatchRequest, deletes: AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
            |b| async move {
                let queue = b.queue(&[]).await?;
                let entries =
                    |count: usize| (0..count).map(|id| entry(&id.to_string(), "x")).collect();
                Ok(format!(
                    "10: {}, 11: {}, deletes: {}",
                    outcome(queue.send_batch(entries(10)).await),
                    outcome(queue.send_batch(entries(11)).await),
                    outcome(queue.delete_batch(&["x"; 11]).await),
                ))
            },
        ),
        check(
            "ids are distinct",
            "AWS.SimpleQueueService.BatchEntryIdsNotDistinct, nothing sent",
            |b| async move {
                let queue = b.queue(&[]).await?;
                let refused =
                    outcome(queue.send_batch(vec![entry("a", "x"), entry("a", "y")]).await);
                Ok(format!("{refused}, {}", sent(&queue).await?))
            },
        ),
        check(
            "an id has 1 to 80 letters, digits, hyphens and underscores",
            "80: ok, 81: AWS.SimpleQueueService.InvalidBatchEntryId, dot: AWS.SimpleQueueService.InvalidBatchEntryId, empty: AWS.SimpleQueueService.InvalidBatchEntryId",
            |b| async move {
                let queue = b.queue(&[]).await?;
                let long = "x".repeat(81);
                let mut seen = Vec::new();
                for (what, id) in
                    [("80", &long[..80]), ("81", &long[..]), ("dot", "a.b"), ("empty", "")]
                {
                    seen.push(format!(
                        "{what}: {}",
                        outcome(queue.send_batch(vec![entry(id, "x")]).await)
                    ));
                }
                Ok(seen.join(", "))
            },
        ),
        check(
            "all messages of a batch together have at most 1 MiB",
            "1048576: ok, 1048577: AWS.SimpleQueueService.BatchRequestTooLong",
            |b| async move {
                let queue = b.queue(&[]).await?;
                let half = "x".repeat(524_288);
                let batch = async |rest: &str| {
                    let entries = vec![
                        entry("0", &half),
                        entry("1", &half[..half.len() - 1]),
                        entry("2", rest),
                    ];
                    outcome(queue.send_batch(entries).await)
                };
                Ok(format!("1048576: {}, 1048577: {}", batch("x").await, batch("xx").await))
            },
        ),
        check(
            "a bad character fails its own entry only",
            "ok 0,2; failed 1 InvalidMessageContents (sender), 2 sent",
            |b| async move {
                let queue = b.queue(&[]).await?;
                let parts = queue
                    .send_batch(vec![entry("0", "x"), entry("1", "\u{1}"), entry("2", "y")])
                    .await?;
                Ok(format!("{parts}, {}", sent(&queue).await?))
            },
        ),
        check(
            "a delay of 901 fails its own entry only",
            "ok 0; failed 1 InvalidParameterValue (sender), 1 sent",
            |b| async move {
                let queue = b.queue(&[]).await?;
                let late = entry_with("1", "x", |entry| entry.delay_seconds(901));
                let parts = queue.send_batch(vec![entry("0", "x"), late]).await?;
                Ok(format!("{parts}, {}", sent(&queue).await?))
            },
        ),
        check(
            "a message over the queue's own limit fails its own entry only",
            "ok 0; failed 1 InvalidParameterValue (sender)",
            |b| async move {
                let queue = b.queue(&[("MaximumMessageSize", "1024")]).await?;
                queue.send_batch(vec![entry("0", "x"), entry("1", &"x".repeat(1_025))]).await
            },
        ),
        check(
            "each entry has its own delay",
            "1 visible, 1 delayed, 0 in flight",
            |b| async move {
                let queue = b.queue(&[]).await?;
                let late = entry_with("1", "x", |entry| entry.delay_seconds(60));
                queue.send_batch(vec![entry("0", "x"), late]).await?;
                queue.counts().await
            },
        ),
        check(
            "a bad handle fails its own deletion only",
            "ok 0; failed 1 ReceiptHandleIsInvalid (sender)",
            |b| async move {
                let queue = b.queue(&[]).await?;
                queue.send("x").await?;
                queue.delete_batch(&[handle(&queue.next().await?), "nonsense"]).await
            },
        ),
        check(
            "a bad entry fails its own change of visibility only",
            "ok 0; failed 1 ReceiptHandleIsInvalid (sender), 2 InvalidParameterValue (sender)",
            |b| async move {
                let queue = b.queue(&[]).await?;
                queue.send("x").await?;
                queue.send("y").await?;
                let (first, second) = (queue.next().await?, queue.next().await?);
                queue
                    .change_visibility_batch(&[
                        (handle(&first), 5),
                        ("nonsense", 5),
                        (handle(&second), 43_201),
                    ])
                    .await
            },
        ),
        check(
            "a batch to a queue that does not exist is refused",
            "AWS.SimpleQueueService.NonExistentQueue",
            |b| async move {
                let queue = b.queue(&[]).await?;
                let nowhere =
                    Queue { url: queue.url.replace(&queue.name, &Bench::name()), ..queue };
                Ok(outcome(nowhere.send_batch(vec![entry("0", "x")]).await))
            },
        ),
        check("a batch answers the ids and digests of its messages", "true true", digests),
    ]
}

async fn sent(queue: &Queue) -> Observed {
    let count = queue
        .attribute(aws_sdk_sqs::types::QueueAttributeName::ApproximateNumberOfMessages)
        .await?;
    Ok(if count == "0" { "nothing sent".to_owned() } else { format!("{count} sent") })
}

async fn digests(bench: Bench) -> Observed {
    let queue = bench.queue(&[]).await?;
    let batch = bench.client.send_message_batch().queue_url(&queue.url).entries(entry("0", "x"));
    let answer = batch.send().await.map_err(crate::bench::code)?;
    let sent = answer.successful.into_iter().next().ok_or("nothing")?;
    let message = queue.next().await?;
    Ok(format!(
        "{} {}",
        message.message_id() == Some(sent.message_id()),
        message.md5_of_body() == Some(sent.md5_of_message_body())
    ))
}
