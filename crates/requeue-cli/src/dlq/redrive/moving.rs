//! Redriving by SQS itself: starts a message move task and follows it to its end.

use std::time::{Duration, SystemTime};

use requeue::printable;
use requeue::queue::{Description, QueueArn};
use tokio::time::sleep;

use crate::Error;
use crate::dlq::queue::DeadLetters;
use crate::dlq::sqs::MoveTask;
use crate::failed_call::may_be_carried_out;
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::table::{messages, moment};

const LOOK: Duration = Duration::from_secs(1);

pub(crate) const GOES_ON: &str =
    "SQS goes on with the move task; follow it, or cancel it, with --follow";

pub(crate) enum MoveEnd {
    Completed,
    Cancelled,
    /// Some messages were sent here, so SQS does not know their source.
    SourceUnknown,
    Failed(String),
}

pub(crate) async fn running(
    DeadLetters { sqs, queue, .. }: &DeadLetters,
) -> Result<Option<MoveTask>, Error> {
    Ok(sqs.latest_move(&queue.arn).await?.filter(is_running))
}

fn is_running(task: &MoveTask) -> bool {
    matches!(task.status(), Some("RUNNING" | "CANCELLING"))
}

pub(crate) fn moved(task: &MoveTask) -> u64 {
    u64::try_from(task.approximate_number_of_messages_moved()).unwrap_or_default()
}

/// Starts a task and returns its handle. A request without a response may have started one, so it
/// is not sent again: a second task would find and report nothing. Instead, SQS lists its tasks.
/// The latest one may be another person's.
pub(crate) async fn start(
    DeadLetters { sqs, queue: Description { arn: queue, .. }, .. }: &DeadLetters,
    to: Option<&QueueArn>,
    rate: Option<u16>,
) -> Result<String, Error> {
    let before = sqs.latest_move(queue).await?.map(|task| task.started_timestamp());
    let error = match sqs.start_move(queue, to, rate).await {
        Ok(handle) => return Ok(handle),
        Err(error) => error,
    };
    let may_have_started = may_be_carried_out(&error);
    let error = sqs.refusal("StartMessageMoveTask", queue, &error);
    let is_ours = |task: &MoveTask| {
        may_have_started
            && Some(task.started_timestamp()) > before
            && task.destination_arn() == to.map(ToString::to_string).as_deref()
            && task.max_number_of_messages_per_second() == rate.map(i32::from)
    };
    match sqs.latest_move(queue).await {
        Ok(Some(task)) if is_ours(&task) => Ok(task.task_handle.unwrap_or_default()),
        Ok(Some(task)) if is_running(&task) => Err(runs_already(queue, &task)),
        Err(_) if may_have_started => {
            Err(format!("{error}; a move task may have started: follow it with --follow").into())
        }
        _ => Err(error),
    }
}

/// The error of a second task, since SQS allows only one.
pub(crate) fn runs_already(queue: &QueueArn, task: &MoveTask) -> Error {
    let started = u64::try_from(task.started_timestamp()).unwrap_or_default();
    let since = moment(SystemTime::UNIX_EPOCH + Duration::from_millis(started));
    format!(
        "a move task of {} has been running since {} and has moved {} so far; follow it to its end \
         with --follow",
        queue.name(),
        since.unwrap_or_default(),
        moved(task)
    )
    .into()
}

/// Follows the latest task of the queue to its end; a signal cancels it.
pub(crate) async fn follow(
    DeadLetters { sqs, queue: Description { arn: queue, .. }, .. }: &DeadLetters,
    handle: &str,
    stop: &Stop,
    progress: &CommandProgress,
) -> Result<(u64, MoveEnd), Error> {
    progress.step(format!("moving from {}", queue.name()));
    let mut is_cancelled = false;
    let mut so_far = None;
    loop {
        let task = sqs.latest_move(queue).await;
        let task = task.map_err(|error| goes_on(&error, so_far))?;
        let Some(task) = task else {
            return Err(format!(
                "SQS no longer lists the move task of {}; see the queue's message counts",
                queue.name()
            )
            .into());
        };
        if !is_running(&task) {
            return Ok((moved(&task), end(&task)));
        }
        let to_move = task.approximate_number_of_messages_to_move();
        let to_move = to_move.and_then(|count| u64::try_from(count).ok());
        progress.count_from("messages", to_move, moved(&task));
        progress.done(moved(&task));
        so_far = Some(moved(&task));
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
                    Ok(messages) => return Ok((messages, MoveEnd::Cancelled)),
                    Err(error) => error,
                };
                match sqs.latest_move(queue).await {
                    Ok(Some(task)) if is_running(&task) => {
                        return Err(goes_on(&error, Some(moved(&task))).into());
                    }
                    Err(_) => return Err(goes_on(&error, so_far).into()),
                    // The task has ended in the meantime.
                    Ok(_) => {}
                }
            }
        }
    }
}

/// The command to continue, with the number of moved messages, if SQS returned it.
fn goes_on(error: &Error, moved: Option<u64>) -> String {
    let moved = moved.map(|count| format!("; {} moved so far", messages(count)));
    format!("{error}; {GOES_ON}{}", moved.unwrap_or_default())
}

fn end(task: &MoveTask) -> MoveEnd {
    match (task.status().unwrap_or_default(), task.failure_reason().unwrap_or_default()) {
        ("COMPLETED", _) => MoveEnd::Completed,
        ("CANCELLED", _) => MoveEnd::Cancelled,
        (_, why) if why.contains("CouldNotDetermineMessageSource") => MoveEnd::SourceUnknown,
        (status, why) => {
            MoveEnd::Failed(printable::line(if why.is_empty() { status } else { why }).into_owned())
        }
    }
}
