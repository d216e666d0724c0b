//! Redrive out of a dead-letter queue: the three calls about message move tasks.

use std::time::{Duration, SystemTime};

use super::error::SqsError;
use super::message::{Message, State};
use super::{Engine, limits, name_of};

#[derive(Clone, Debug)]
pub(crate) struct MoveTask {
    pub(crate) handle: String,
    pub(crate) source_arn: String,
    pub(crate) destination_arn: Option<String>,
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
    fn seconds(&self, now: SystemTime) -> u64 {
        now.duration_since(self.started).unwrap_or_default().as_secs()
    }

    /// The messages that may have been moved by now: the rate at once, and again each second.
    fn allowance(&self, now: SystemTime) -> u64 {
        self.rate.unwrap_or(*limits::MOVES_PER_SECOND.end()) * (self.seconds(now) + 1)
    }
}

impl Engine {
    pub(crate) fn start_move(
        &mut self,
        source_arn: &str,
        destination_arn: Option<&str>,
        rate: Option<i64>,
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
        self.advance_moves();
        let running =
            |task: &MoveTask| task.status == MoveStatus::Running && task.source_arn == source_arn;
        if self.moves.iter().any(running) {
            return Err(SqsError::new(
                "AWS.SimpleQueueService.UnsupportedOperation",
                "There is already a task running. Only one active task is allowed for a source \
                 queue arn at a given time.",
            ));
        }
        let to_move = self.queue(&source)?.index.counts().visible;
        let handle = self.ids.next();
        self.moves.push(MoveTask {
            handle: handle.clone(),
            source_arn: source_arn.to_owned(),
            destination_arn: destination_arn.map(str::to_owned),
            rate,
            started: self.now,
            status: MoveStatus::Running,
            moved: 0,
            to_move: u64::try_from(to_move).unwrap_or(u64::MAX),
            failure: None,
        });
        self.advance_moves();
        Ok(handle)
    }

    /// The tasks of a source, latest first.
    pub(crate) fn move_tasks(
        &mut self,
        source_arn: &str,
        max: Option<i64>,
    ) -> Result<Vec<&MoveTask>, SqsError> {
        self.existing(source_arn)?;
        let max = super::check::bounds_or(1, max, "MaxResults", &limits::LISTED_MOVE_TASKS)?;
        self.advance_moves();
        let of_source = self.moves.iter().rev().filter(|task| task.source_arn == source_arn);
        Ok(of_source.take(usize::try_from(max).unwrap_or(1)).collect())
    }

    /// Ends a task. Messages that it has moved stay moved.
    pub(crate) fn cancel_move(&mut self, handle: &str) -> Result<u64, SqsError> {
        self.advance_moves();
        let task = self.moves.iter_mut().find(|task| task.handle == handle);
        let Some(task) = task.filter(|task| task.status == MoveStatus::Running) else {
            return Err(SqsError::new(
                "ResourceNotFoundException",
                "Task does not exist or is not running.",
            ));
        };
        task.status = MoveStatus::Cancelled;
        Ok(task.moved)
    }

    pub(super) fn next_move(&self) -> Option<SystemTime> {
        let running = |task: &&MoveTask| task.status == MoveStatus::Running;
        self.moves
            .iter()
            .filter(running)
            .map(|task| task.started + Duration::from_secs(task.seconds(self.now) + 1))
            .min()
    }

    pub(super) fn advance_moves(&mut self) {
        if !self.moves.iter().any(|task| task.status == MoveStatus::Running) {
            return;
        }
        let mut tasks = std::mem::take(&mut self.moves);
        for task in &mut tasks {
            // A task whose source is empty ends at once.
            while task.status == MoveStatus::Running
                && (task.moved < task.allowance(self.now) || self.nothing_to_move(task))
            {
                self.move_one(task);
            }
        }
        self.moves = tasks;
    }

    fn nothing_to_move(&mut self, task: &MoveTask) -> bool {
        self.at(name_of(&task.source_arn)).is_none_or(|queue| queue.peek_visible().is_none())
    }

    fn move_one(&mut self, task: &mut MoveTask) {
        let (now, source) = (self.now, name_of(&task.source_arn).to_owned());
        let Some(queue) = self.at(&source) else {
            (task.status, task.failure) = (MoveStatus::Failed, Some("SourceQueueDoesNotExist"));
            return;
        };
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
        let message = self.at(&source).and_then(super::QueueState::take_visible);
        let id = self.ids.next();
        if let (Some(message), Some(queue)) = (message, self.at(&target)) {
            let delay = queue.settings.time("DelaySeconds");
            queue.accept(as_new(message, id, now), delay);
            task.moved += 1;
        }
    }

    fn existing(&self, arn: &str) -> Result<String, SqsError> {
        let name = name_of(arn);
        if self.queues.contains_key(name) && self.arn(name) == arn {
            return Ok(name.to_owned());
        }
        Err(SqsError::new(
            "ResourceNotFoundException",
            "The resource that you specified for the SourceArn parameter doesn't exist.",
        ))
    }
}

/// A moved message counts as new. Source: guide, "dead-letter queue redrive".
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
