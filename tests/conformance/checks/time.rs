//! Time: delays, visibility timeouts, long polls, retention.

use aws_sdk_sqs::types::{MessageSystemAttributeName, QueueAttributeName};

use crate::bench::{
    Bench, Check, Observed, Watch, bodies, check, handle, long, outcome, pause, receive_count,
    system,
};

pub(crate) fn checks() -> Vec<Check> {
    vec![
        check(
            "a message with a delay comes after its delay",
            "nothing, then in time",
            |b| async move {
                let queue = b.queue(&[]).await?;
                let watch = Watch::start();
                queue.send_with("x", |m| m.delay_seconds(2)).await?;
                let early = bodies(&queue.receive().await?);
                queue.next().await?;
                Ok(format!("{early}, then {}", watch.verdict(2.0)))
            },
        ),
        check(
            "a queue's delay holds for messages that name none",
            "nothing, then in time",
            |b| async move {
                let queue = b.queue(&[("DelaySeconds", "2")]).await?;
                let watch = Watch::start();
                queue.send("x").await?;
                let early = bodies(&queue.receive().await?);
                queue.next().await?;
                Ok(format!("{early}, then {}", watch.verdict(2.0)))
            },
        ),
        check("an explicit delay of zero overrides the queue's", "x", |b| async move {
            let queue = b.queue(&[("DelaySeconds", "60")]).await?;
            queue.send_with("x", |m| m.delay_seconds(0)).await?;
            Ok(bodies(&queue.receive().await?))
        }),
        check(
            "a queue's new delay does not hold for what was sent before",
            "nothing",
            |b| async move {
                let queue = b.queue(&[("DelaySeconds", "60")]).await?;
                queue.send("x").await?;
                queue.set(QueueAttributeName::DelaySeconds, "0").await?;
                Ok(bodies(&queue.receive().await?))
            },
        ),
        check(
            "a received message comes back after the visibility timeout",
            "nothing, then in time, count 2",
            |b| async move {
                let queue = b.queue(&[("VisibilityTimeout", "2")]).await?;
                queue.send("x").await?;
                queue.next().await?;
                let watch = Watch::start();
                let early = bodies(&queue.receive().await?);
                let again = queue.next().await?;
                Ok(format!("{early}, then {}, count {}", watch.verdict(2.0), receive_count(&again)))
            },
        ),
        check("a receive can name a visibility timeout of its own", "in time", |b| async move {
            let queue = b.queue(&[("VisibilityTimeout", "60")]).await?;
            queue.send("x").await?;
            queue.receive_with(|r| r.visibility_timeout(1).wait_time_seconds(2)).await?;
            let watch = Watch::start();
            queue.next().await?;
            Ok(watch.verdict(1.0))
        }),
        check(
            "a visibility timeout of zero shows the message at once, and only once per receive",
            "x, x",
            |b| async move {
                let queue = b.queue(&[]).await?;
                queue.send("x").await?;
                let take = async || {
                    queue.receive_with(|r| r.visibility_timeout(0).max_number_of_messages(10)).await
                };
                let first = bodies(&take().await?);
                Ok(format!("{first}, {}", bodies(&take().await?)))
            },
        ),
        check(
            "changing the visibility to zero shows the message at once",
            "nothing, x",
            |b| async move {
                let queue = b.queue(&[]).await?;
                queue.send("x").await?;
                let message = queue.next().await?;
                let before = bodies(&queue.receive().await?);
                queue.change_visibility(handle(&message), 0).await?;
                Ok(format!("{before}, {}", bodies(&queue.receive().await?)))
            },
        ),
        check(
            "a changed visibility counts from the change",
            "nothing, then in time",
            |b| async move {
                let queue = b.queue(&[("VisibilityTimeout", "1")]).await?;
                queue.send("x").await?;
                let message = queue.next().await?;
                let watch = Watch::start();
                queue.change_visibility(handle(&message), 3).await?;
                pause(1_500).await;
                let early = bodies(&queue.receive().await?);
                queue.next().await?;
                Ok(format!("{early}, then {}", watch.verdict(3.0)))
            },
        ),
        check("twelve hours count from the receive", "InvalidParameterValue", |b| async move {
            let queue = b.queue(&[]).await?;
            queue.send("x").await?;
            let message = queue.next().await?;
            pause(1_500).await;
            Ok(outcome(queue.change_visibility(handle(&message), 43_200).await))
        }),
        check(
            "a message keeps its times and counts its receives",
            "same sent, same first, 1 2 3",
            times,
        ),
        check("a short poll does not wait", "nothing, in time", |b| async move {
            let queue = b.queue(&[]).await?;
            let watch = Watch::start();
            let found = bodies(&queue.receive_with(|r| r.wait_time_seconds(0)).await?);
            Ok(format!("{found}, {}", watch.verdict(0.0)))
        }),
        check("a long poll of an empty queue waits", "nothing, in time", |b| async move {
            let queue = b.queue(&[]).await?;
            let watch = Watch::start();
            let found = bodies(&queue.receive_with(|r| r.wait_time_seconds(2)).await?);
            Ok(format!("{found}, {}", watch.verdict(2.0)))
        }),
        check("a queue can have its own waiting time", "nothing, in time", |b| async move {
            let queue = b.queue(&[("ReceiveMessageWaitTimeSeconds", "2")]).await?;
            let watch = Watch::start();
            let found = bodies(&queue.receive().await?);
            Ok(format!("{found}, {}", watch.verdict(2.0)))
        }),
        check("a long poll ends when a message comes", "x, in time", |b| async move {
            let queue = b.queue(&[]).await?;
            let sender = queue.clone();
            let watch = Watch::start();
            let send = tokio::spawn(async move {
                pause(1_000).await;
                sender.send("x").await.map(drop)
            });
            let found = queue.next().await?;
            send.await.map_err(|_| "a panic")??;
            Ok(format!("{}, {}", bodies(&[found]), watch.verdict(1.0)))
        }),
        check("a long poll ends when a message is released", "x, in time", |b| async move {
            let queue = b.queue(&[]).await?;
            queue.send("x").await?;
            let message = queue.next().await?;
            let holder = queue.clone();
            let watch = Watch::start();
            let release = tokio::spawn(async move {
                pause(1_000).await;
                holder.change_visibility(handle(&message), 0).await
            });
            let found = queue.next().await?;
            release.await.map_err(|_| "a panic")??;
            Ok(format!("{}, {}", bodies(&[found]), watch.verdict(1.0)))
        }),
        long("a message is forgotten after the retention period", "x, nothing", |b| async move {
            let queue =
                b.queue(&[("MessageRetentionPeriod", "60"), ("VisibilityTimeout", "0")]).await?;
            queue.send("x").await?;
            pause(59_900).await;
            let before = bodies(&queue.receive().await?);
            pause(200).await;
            Ok(format!("{before}, {}", bodies(&queue.receive().await?)))
        }),
        long("a delay longer than the retention is never seen", "nothing", |b| async move {
            let queue = b.queue(&[("MessageRetentionPeriod", "60")]).await?;
            queue.send_with("x", |m| m.delay_seconds(900)).await?;
            pause(901_000).await;
            Ok(bodies(&queue.receive().await?))
        }),
        long("shortening the retention drops what is older", "nothing", |b| async move {
            let queue = b.queue(&[]).await?;
            queue.send("x").await?;
            pause(120_000).await;
            queue.set(QueueAttributeName::MessageRetentionPeriod, "60").await?;
            Ok(bodies(&queue.receive().await?))
        }),
        long(
            "the longest delay and the longest visibility are kept to the second",
            "900 43200",
            |b| async move {
                let queue = b.queue(&[("VisibilityTimeout", "43200")]).await?;
                let mut waits = Vec::new();
                queue.send_with("x", |m| m.delay_seconds(900)).await?;
                for most in [880, 43_180] {
                    let begun = tokio::time::Instant::now();
                    pause(most * 1_000).await;
                    while queue.next().await.is_err() {}
                    waits.push(begun.elapsed().as_secs());
                }
                Ok(format!("{} {}", waits[0], waits[1]))
            },
        ),
    ]
}

async fn times(bench: Bench) -> Observed {
    let queue = bench.queue(&[("VisibilityTimeout", "0")]).await?;
    queue.send("x").await?;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let message = queue.next().await?;
        let time = |name| system(&message, name);
        seen.push((
            time(MessageSystemAttributeName::SentTimestamp),
            time(MessageSystemAttributeName::ApproximateFirstReceiveTimestamp),
            receive_count(&message),
        ));
        pause(20).await;
    }
    let same = |same: bool| if same { "same" } else { "other" };
    Ok(format!(
        "{} sent, {} first, {} {} {}",
        same(seen.iter().all(|times| times.0 == seen[0].0 && times.0.len() == 13)),
        same(seen.iter().all(|times| times.1 == seen[0].1 && times.1.len() == 13)),
        seen[0].2,
        seen[1].2,
        seen[2].2
    ))
}
