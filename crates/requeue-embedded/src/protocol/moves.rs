//! The operations about message move tasks.

use super::Context;
use super::shapes::{
    CancelMoveTask, ListMoveTasks, MoveTaskShape, MoveTasks, MovedCount, StartMoveTask, TaskHandle,
};
use crate::engine::error::SqsError;
use crate::engine::{Engine, MoveStatus, MoveTask};
use requeue_sqs::epoch_millis;

pub(super) fn start(
    engine: &mut Engine,
    asked: &StartMoveTask,
    context: &Context<'_>,
) -> Result<TaskHandle, SqsError> {
    let rate = asked.max_number_of_messages_per_second;
    let task_handle = engine.start_move(
        &asked.source_arn,
        asked.destination_arn.as_deref(),
        rate,
        context.now,
    )?;
    Ok(TaskHandle { task_handle })
}

pub(super) fn list(
    engine: &mut Engine,
    asked: &ListMoveTasks,
    context: &Context<'_>,
) -> Result<MoveTasks, SqsError> {
    let tasks = engine.move_tasks(&asked.source_arn, asked.max_results, context.now)?;
    Ok(MoveTasks { results: tasks.into_iter().map(shape).collect() })
}

pub(super) fn cancel(
    engine: &mut Engine,
    asked: &CancelMoveTask,
    context: &Context<'_>,
) -> Result<MovedCount, SqsError> {
    let approximate_number_of_messages_moved =
        engine.cancel_move(&asked.task_handle, context.now)?;
    Ok(MovedCount { approximate_number_of_messages_moved })
}

fn shape(task: &MoveTask) -> MoveTaskShape {
    let running = task.status == MoveStatus::Running;
    MoveTaskShape {
        task_handle: running.then(|| task.handle.clone()),
        status: task.status.as_str(),
        source_arn: task.source_arn.clone(),
        destination_arn: task.destination_arn.clone(),
        max_number_of_messages_per_second: task.rate,
        approximate_number_of_messages_moved: task.moved,
        approximate_number_of_messages_to_move: task.to_move,
        failure_reason: task.failure,
        started_timestamp: epoch_millis(task.started),
    }
}
