//! Receipt handles: the actions that the handle of each receive still allows.

use crate::bench::{Bench, Check, Observed, bodies, check, handle, outcome, pause};

pub(crate) fn checks() -> Vec<Check> {
    vec![
        check("deleting twice is harmless", "ok, ok", |b| async move {
            let queue = b.queue(&[]).await?;
            queue.send("x").await?;
            let message = queue.next().await?;
            let first = outcome(queue.delete(handle(&message)).await);
            Ok(format!("{first}, {}", outcome(queue.delete(handle(&message)).await)))
        }),
        check(
            "a handle that is none is refused",
            "delete ReceiptHandleIsInvalid, change ReceiptHandleIsInvalid",
            |b| async move {
                let queue = b.queue(&[]).await?;
                let delete = outcome(queue.delete("nonsense").await);
                Ok(format!(
                    "delete {delete}, change {}",
                    outcome(queue.change_visibility("nonsense", 0).await)
                ))
            },
        ),
        check("a deleted message does not come back", "nothing", |b| async move {
            let queue = b.queue(&[("VisibilityTimeout", "1")]).await?;
            queue.send("x").await?;
            queue.delete(handle(&queue.next().await?)).await?;
            pause(1_500).await;
            Ok(bodies(&queue.receive().await?))
        }),
        check("each receive has a handle of its own", "another", |b| async move {
            let queue = b.queue(&[("VisibilityTimeout", "0")]).await?;
            queue.send("x").await?;
            let (first, second) = (queue.next().await?, queue.next().await?);
            let same = first.receipt_handle == second.receipt_handle;
            Ok(if same { "the same" } else { "another" }.to_owned())
        }),
        check(
            "the latest handle deletes a standard message also after its time-out",
            "ok, nothing",
            |b| async move {
                let queue = b.queue(&[("VisibilityTimeout", "1")]).await?;
                queue.send("x").await?;
                let message = queue.next().await?;
                pause(1_500).await;
                let delete = outcome(queue.delete(handle(&message)).await);
                Ok(format!("{delete}, {}", bodies(&queue.receive().await?)))
            },
        ),
        check("an older handle succeeds and deletes nothing", "ok, x", older),
        check(
            "the visibility of a deleted message cannot be changed",
            "InvalidParameterValue",
            |b| async move {
                let queue = b.queue(&[]).await?;
                queue.send("x").await?;
                let message = queue.next().await?;
                queue.delete(handle(&message)).await?;
                Ok(outcome(queue.change_visibility(handle(&message), 5).await))
            },
        ),
        check("a handle whose time is over changes no visibility", "ok, x", |b| async move {
            let queue = b.queue(&[("VisibilityTimeout", "1")]).await?;
            queue.send("x").await?;
            let message = queue.next().await?;
            pause(1_500).await;
            let change = outcome(queue.change_visibility(handle(&message), 60).await);
            Ok(format!("{change}, {}", bodies(&queue.receive().await?)))
        }),
        check("an older handle changes no visibility", "ok, x", |b| async move {
            let queue = b.queue(&[("VisibilityTimeout", "1")]).await?;
            queue.send("x").await?;
            let old = queue.next().await?;
            pause(1_500).await;
            queue.next().await?;
            let change = outcome(queue.change_visibility(handle(&old), 60).await);
            pause(1_500).await;
            Ok(format!("{change}, {}", bodies(&queue.receive().await?)))
        }),
        check(
            "a visibility timeout is 0 to 43200 seconds",
            "-1: InvalidParameterValue, 43201: InvalidParameterValue, 0: ok",
            |b| async move {
                let queue = b.queue(&[]).await?;
                queue.send("x").await?;
                let message = queue.next().await?;
                let mut seen = Vec::new();
                for secs in [-1, 43_201, 0] {
                    let change = queue.change_visibility(handle(&message), secs).await;
                    seen.push(format!("{secs}: {}", outcome(change)));
                }
                Ok(seen.join(", "))
            },
        ),
        check("a handle of another queue is refused", "ReceiptHandleIsInvalid", |b| async move {
            let (queue, other) = (b.queue(&[]).await?, b.queue(&[]).await?);
            queue.send("x").await?;
            Ok(outcome(other.delete(handle(&queue.next().await?)).await))
        }),
    ]
}

async fn older(bench: Bench) -> Observed {
    let queue = bench.queue(&[("VisibilityTimeout", "0")]).await?;
    queue.send("x").await?;
    let old = queue.next().await?;
    queue.next().await?;
    let delete = outcome(queue.delete(handle(&old)).await);
    Ok(format!("{delete}, {}", bodies(&queue.receive().await?)))
}
