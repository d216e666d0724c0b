//! Redrive out of a dead-letter queue: the three calls about message move tasks.

use std::time::{Duration, SystemTime};

use super::error::{SqsError, code};
use super::message::{Message, State};
use super::{Engine, limits, name_of};

#[derive(Clone, Debug)]
pub(crate) struct MoveTask {
    pub(crate) handle: String,
    pub(crate) source_arn: String,
    pub(crate) destination_arn: Option<String>,
    /// `None` if the caller named no rate.
    pub(crate) rate: Option<u64>,
    pub(crate) started: SystemTime,
    pub(crate) status: MoveStatus,
    pub(crate) moved: u64,
    pub(crate) to_move: u64,
    pub(crate) failure: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum MoveStatus {
    Running,
    Completed,
    Cancelled,
    Failed,
}

impl MoveTask {
    /// The number of messages that may have been moved by now: the rate at once, and again each
    /// second.
    fn allowance(&self, now: SystemTime) -> u64 {
        let seconds = now.duration_since(self.started).unwrap_or_default().as_secs();
        self.rate.unwrap_or(*limits::MOVES_PER_SECOND.end()) * (seconds + 1)
    }
}

impl Engine {
    /// Starts moving the visible messages of a dead-letter queue, and returns the task's handle.
    pub(crate) fn start_move(
        &mut self,
        source_arn: &str,
        destination_arn: Option<&str>,
        rate: Option<i64>,
        now: SystemTime,
    ) -> Result<String, SqsError> {
        let source = self.existing(source_arn)?;
        if self.dead_letter_sources(&source).is_empty() {
            return Err(SqsError::invalid(
                "Source queue must be configured as a Dead Letter Queue.",
            ));
        }
        if let Some(arn) = destination_arn {
            self.existing(arn)?;
        }
        let rate = rate
            .map(|rate| {
                super::check::bounds(
                    rate,
                    "MaxNumberOfMessagesPerSecond",
                    &limits::MOVES_PER_SECOND,
                )
            })
            .transpose()?;
        self.advance_moves(now);
        let running =
            |task: &MoveTask| task.status == MoveStatus::Running && task.source_arn == source_arn;
        if self.moves.iter().any(running) {
            return Err(SqsError::new(
                code::UNSUPPORTED_OPERATION,
                "There is already a task running. Only one active task is allowed for a source \
                 queue arn at a given time.",
            ));
        }
        let to_move = self.queue(&source, now)?.counts().visible;
        let handle = self.ids.next();
        self.moves.push(MoveTask {
            handle: handle.clone(),
            source_arn: source_arn.to_owned(),
            destination_arn: destination_arn.map(str::to_owned),
            rate,
            started: now,
            status: MoveStatus::Running,
            moved: 0,
            to_move: u64::try_from(to_move).unwrap_or(u64::MAX),
            failure: None,
        });
        self.advance_moves(now);
        Ok(handle)
    }

    /// The tasks of a source, latest first.
    pub(crate) fn move_tasks(
        &mut self,
        source_arn: &str,
        max: Option<i64>,
        now: SystemTime,
    ) -> Result<Vec<&MoveTask>, SqsError> {
        self.existing(source_arn)?;
        let max = super::check::bounds_or(1, max, "MaxResults", &limits::LISTED_MOVE_TASKS)?;
        self.advance_moves(now);
        let of_source = self.moves.iter().rev().filter(|task| task.source_arn == source_arn);
        Ok(of_source.take(usize::try_from(max).unwrap_or(1)).collect())
    }

    /// Ends a task. Messages that it has moved stay moved.
    pub(crate) fn cancel_move(&mut self, handle: &str, now: SystemTime) -> Result<u64, SqsError> {
        self.advance_moves(now);
        let task = self.moves.iter_mut().find(|task| task.handle == handle);
        let Some(task) = task.filter(|task| task.status == MoveStatus::Running) else {
            return Err(SqsError::new(
                code::RESOURCE_NOT_FOUND,
                "Task does not exist or is not running.",
            ));
        };
        task.status = MoveStatus::Cancelled;
        Ok(task.moved)
    }

    pub(super) fn next_move(&self, now: SystemTime) -> Option<SystemTime> {
        let running = |task: &&MoveTask| task.status == MoveStatus::Running;
        self.moves
            .iter()
            .filter(running)
            .map(|task| {
                let seconds = now.duration_since(task.started).unwrap_or_default().as_secs();
                task.started + Duration::from_secs(seconds + 1)
            })
            .min()
    }

    /// Does what the running tasks should have done by now.
    pub(super) fn advance_moves(&mut self, now: SystemTime) {
        if !self.moves.iter().any(|task| task.status == MoveStatus::Running) {
            return;
        }
        let mut tasks = std::mem::take(&mut self.moves);
        for task in &mut tasks {
            // A task whose source is empty ends at once, even if it may still move messages this
            // second.
            while task.status == MoveStatus::Running
                && (task.moved < task.allowance(now) || self.nothing_to_move(task, now))
            {
                self.move_one(task, now);
            }
        }
        self.moves = tasks;
    }

    fn nothing_to_move(&mut self, task: &MoveTask, now: SystemTime) -> bool {
        self.queues.get_mut(name_of(&task.source_arn)).is_none_or(|queue| {
            queue.advance(now);
            queue.peek_visible().is_none()
        })
    }

    fn move_one(&mut self, task: &mut MoveTask, now: SystemTime) {
        let source = name_of(&task.source_arn).to_owned();
        let Some(queue) = self.queues.get_mut(&source) else {
            (task.status, task.failure) = (MoveStatus::Failed, Some("SourceQueueDoesNotExist"));
            return;
        };
        queue.advance(now);
        let Some(message) = queue.peek_visible() else {
            task.status = MoveStatus::Completed;
            return;
        };
        let target = task.destination_arn.as_ref().or(message.dead_letter_source.as_ref());
        let target = target.map(|arn| name_of(arn).to_owned());
        let Some(target) = target.filter(|target| self.queues.contains_key(target)) else {
            (task.status, task.failure) =
                (MoveStatus::Failed, Some("CouldNotDetermineMessageSource"));
            return;
        };
        let message = self.queues.get_mut(&source).and_then(super::QueueState::take_visible);
        let id = self.ids.next();
        if let (Some(message), Some(queue)) = (message, self.queues.get_mut(&target)) {
            let delay = queue.settings.delay;
            queue.accept(as_new(message, id, now), delay, now);
            task.moved += 1;
        }
    }

    fn existing(&self, arn: &str) -> Result<String, SqsError> {
        let name = name_of(arn);
        if self.queues.contains_key(name) && self.arn(name) == arn {
            return Ok(name.to_owned());
        }
        Err(SqsError::new(
            code::RESOURCE_NOT_FOUND,
            "The resource that you specified for the SourceArn parameter doesn't exist.",
        ))
    }
}

/// A moved message counts as new, with the body and the attributes it had. Source: guide,
/// "dead-letter queue redrive".
fn as_new(message: Message, id: String, now: SystemTime) -> Message {
    Message {
        id,
        sent: now,
        retained_from: now,
        first_received: None,
        receive_count: 0,
        dead_letter_source: None,
        state: State::Visible { since: now },
        ..message
    }
}
