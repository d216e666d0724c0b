//! Redriving by SQS itself: starts a message move task and follows it to its end.

use std::time::Duration;

use requeue::printable;
use requeue::queue::QueueArn;
use tokio::time::sleep;

use crate::Error;
use crate::dlq::scan::{Comparison, PAUSE, Seen, Unseen};
use crate::dlq::sqs::{Described, MoveTask, Sqs};
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::table::messages;

/// The interval between two looks at a task.
const LOOK: Duration = Duration::from_secs(1);

/// The last words of a command that ends while SQS moves.
pub(crate) const GOES_ON: &str =
    "SQS goes on with the move task; follow it, or cancel it, with --follow";

/// The end of a task.
pub(crate) struct Moved {
    pub(crate) messages: u64,
    pub(crate) end: MoveEnd,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MoveEnd {
    Completed,
    Cancelled,
    /// Some messages were sent here, so SQS does not know their source.
    SourceUnknown,
    Failed(String),
}

/// The running task, if there is one.
pub(crate) async fn running(sqs: &Sqs, queue: &QueueArn) -> Result<Option<MoveTask>, Error> {
    Ok(sqs.latest_move(queue).await?.filter(MoveTask::is_running))
}

/// Starts a task and returns its handle. A request without a response may have started one, so it
/// is not sent again: a second task would find and report nothing. Instead, SQS lists its tasks.
pub(crate) async fn start(
    sqs: &Sqs,
    queue: &QueueArn,
    to: Option<&QueueArn>,
    rate: Option<u16>,
) -> Result<String, Error> {
    let before = sqs.latest_move(queue).await?.and_then(|task| task.started);
    let error = match sqs.start_move(queue, to, rate).await {
        Ok(handle) => return Ok(handle),
        Err(error) => error,
    };
    match sqs.latest_move(queue).await {
        Ok(Some(task)) if task.started > before => Ok(task.handle.unwrap_or_default()),
        Ok(_) => Err(error),
        Err(_) => {
            Err(format!("{error}; a move task may have started: follow it with --follow").into())
        }
    }
}

/// Follows the latest task of the queue to its end; a signal cancels it.
pub(crate) async fn follow(
    sqs: &Sqs,
    queue: &QueueArn,
    handle: &str,
    stop: &Stop,
    progress: &CommandProgress,
) -> Result<Moved, Error> {
    progress.step(format!("moving from {}", queue.name()));
    let mut is_cancelled = false;
    let mut moved = None;
    loop {
        let task = sqs.latest_move(queue).await;
        let task = task.map_err(|error| goes_on(&error, moved))?;
        let Some(task) = task else {
            return Err(format!(
                "SQS no longer lists the move task of {}; see the queue's message counts",
                queue.name()
            )
            .into());
        };
        if !task.is_running() {
            return Ok(Moved { messages: task.moved, end: end(&task) });
        }
        progress.count("messages", task.to_move);
        progress.done(task.moved);
        moved = Some(task.moved);
        if is_cancelled {
            // The cancelled task takes a moment to end.
            sleep(LOOK).await;
            continue;
        }
        tokio::select! {
            () = sleep(LOOK) => {}
            () = stop.told() => {
                is_cancelled = true;
                progress.step("cancelling the move task");
                let error = match sqs.cancel_move(queue, handle).await {
                    Ok(messages) => return Ok(Moved { messages, end: MoveEnd::Cancelled }),
                    Err(error) => error,
                };
                match sqs.latest_move(queue).await {
                    Ok(Some(task)) if task.is_running() => {
                        return Err(goes_on(&error, Some(task.moved)).into());
                    }
                    Err(_) => return Err(goes_on(&error, moved).into()),
                    // The task has ended in the meantime.
                    Ok(_) => {}
                }
            }
        }
    }
}

/// With the number of moved messages, as far as SQS told it.
fn goes_on(error: &Error, moved: Option<u64>) -> String {
    let moved = moved.map(|count| format!("; {} moved so far", messages(count)));
    format!("{error}; {GOES_ON}{}", moved.unwrap_or_default())
}

/// The messages that a completed task left, compared with the earlier description of the queue. A
/// task moves no message that a reader holds. It may have moved messages that arrived since then,
/// so the number of moved ones alone proves nothing.
pub(crate) async fn left(
    sqs: &Sqs,
    before: &Described,
    moved: u64,
    stop: &Stop,
) -> Result<Unseen, Error> {
    let (mut comparison, seen) = (Comparison::default(), Seen { all: moved, ..Seen::default() });
    while !stop.is_told() {
        if let Some(unseen) = comparison.ask(sqs, before, seen).await? {
            return Ok(unseen);
        }
        tokio::select! {
            () = sleep(PAUSE) => {}
            () = stop.told() => {}
        }
    }
    Ok(Unseen::default())
}

/// The error of a task that SQS could not complete.
pub(super) fn failed(why: &str) -> Error {
    format!("SQS's move task failed: {why}").into()
}

fn end(task: &MoveTask) -> MoveEnd {
    match (task.status.as_str(), task.failure.as_deref().unwrap_or_default()) {
        ("COMPLETED", _) => MoveEnd::Completed,
        ("CANCELLED", _) => MoveEnd::Cancelled,
        (_, why) if why.contains("CouldNotDetermineMessageSource") => MoveEnd::SourceUnknown,
        (status, why) => {
            MoveEnd::Failed(printable::line(if why.is_empty() { status } else { why }).into_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use requeue::Clock;
    use requeue::embedded::EmbeddedSqs;

    use super::*;
    use crate::dlq::scan::Cause;

    #[tokio::test(start_paused = true)]
    async fn newcomers_that_were_moved_do_not_stand_for_what_a_reader_holds() {
        let sqs = EmbeddedSqs::new(Clock::starting_at(
            SystemTime::UNIX_EPOCH + Duration::from_hours(500_000),
        ));
        let queue = sqs.create_queue("orders-dlq", [("VisibilityTimeout", "600")]).expect("a name");
        for body in ["held", "moved"] {
            sqs.client()
                .send_message()
                .queue_url(queue.url())
                .message_body(body)
                .send()
                .await
                .expect("sent");
        }
        let asked = Sqs::new(sqs.client());
        let before = asked.describe(&queue).await.expect("it is there");
        sqs.client().purge_queue().queue_url(queue.url()).send().await.expect("purged");
        sqs.client()
            .send_message()
            .queue_url(queue.url())
            .message_body("held")
            .send()
            .await
            .expect("sent");
        assert_eq!(sqs.receive(&queue, 1, Duration::ZERO).await.expect("received").len(), 1);
        let stop = Stop::listen().expect("signals");
        for (moved, left) in [(1, 1), (2, 1), (3, 1)] {
            let unseen = super::left(&asked, &before, moved, &stop).await.expect("counts");
            assert_eq!(unseen.of(Cause::AnotherReader), left, "{moved} moved");
        }
    }
}
