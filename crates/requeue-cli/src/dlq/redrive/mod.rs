//! `requeue dlq redrive`: redrives messages, by SQS's move task or by copies.

use std::process::ExitCode;

use serde::Deserialize;

mod route;
mod copy;
mod moving;
mod plan;
mod result;
#[cfg(test)]
mod tests;

pub(crate) use copy::COPIES_IN_HAND;
use copy::copy_all;
use moving::MoveEnd;
use plan::Plan;
pub(crate) use plan::{ChosenPlan, plan};
use result::RedriveResult;
use route::RedriveRoute;

use super::letter::Filter;
use super::outcome::JobEnd;
use super::queue::{DeadLetters, Purpose, QueueArguments, agreed, progress, require_terminal};
use super::scan::{Comparison, Seen};
use super::sqs::MoveTask;
use crate::progress::CommandProgress;
use crate::queue_argument::QueueName;
use crate::stop::{HOLDS_MESSAGES, Stop};
use crate::table::messages;
use crate::{Error, output};

pub(crate) const HELP: &str = "\
    SQS itself moves back each message that a redrive policy moved here (StartMessageMoveTask), \
    to the queue it came from. Ctrl-C cancels that. SQS cannot move messages that were sent here \
    (REQUEUE_DEAD_LETTER=direct), so the command copies them. It also copies all messages that \
    the options choose. With --source-queue it copies each message of that queue, since a move \
    task would also move those of other queues.\n\n\
    A message stays here if SQS moved it here from another queue than that of --source-queue, or \
    if it claims to come from another queue than that one or, without --source-queue, than its \
    destination. If several queues have this dead-letter queue, a message without any source stays \
    too. Anybody who may send to the queue can write such a claim, so a claim never chooses \
    a destination. --to without --source-queue sends all chosen messages to one queue.\n\n\
    The command deletes a message only after SQS confirmed its copy. An unconfirmed message stays \
    and becomes visible again. No interruption loses a message. If the command is killed, its \
    messages are visible again after two minutes or more; the plan, or with --yes a note, says when. \
    If it is killed between a confirmation and the deletion, the message is in both queues, with \
    the same idempotency key if its body is a JSON object.\n\n\
    A redriven message starts afresh, with all its retries and all its time, up to its tenth \
    redrive; with --fresh-budget always. If SQS moves it within three minutes of its last attempt, \
    it may not; a copy does. Messages that arrive here during the copying stay here.\n\n\
    At the end the command names the number of messages not reached, the reason and the remedy. With \
    --json they are in notReached, and complete is false. In a FIFO group SQS hands out at most the \
    first ten messages; if ten stay, the command reaches none of the others.\n\n\
    Permissions here: sqs:GetQueueAttributes, sqs:ListDeadLetterSourceQueues, sqs:ReceiveMessage, \
    sqs:DeleteMessage and sqs:ChangeMessageVisibility. Permissions at the destination: \
    sqs:SendMessage, and with --to sqs:GetQueueAttributes. A queue's name needs sqs:GetQueueUrl \
    too. Unless the command only copies, it also needs sqs:StartMessageMoveTask, \
    sqs:ListMessageMoveTasks and sqs:CancelMessageMoveTask here.\n\n\
    Exit status: 0; 1 on an error, if you decline the question, if a chosen message is, or may \
    be, still here, if the options choose no message, or if an --id is not found; 130 after Ctrl-C. --dry-run ends with 0 even if \
    its plan is incomplete.";

#[derive(Default, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "options of a command line")]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: QueueArguments,
    #[command(flatten)]
    filter: Filter,
    /// The destination. [default: the queue that SQS moved each message from; for messages that
    /// were sent here, the one queue whose redrive policy names this one]
    #[arg(long, help_heading = "Redrive", value_name = "QUEUE")]
    to: Option<QueueName>,
    /// Redrive at most this many messages in a second.
    #[arg(long, help_heading = "Redrive", value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=500))]
    rate: Option<u16>,
    /// Copy all messages, also those that SQS could move.
    #[arg(long, help_heading = "Redrive")]
    copy: bool,
    /// Give every message all its retries and all its time again, also after the tenth redrive.
    /// Implies --copy.
    #[arg(long, help_heading = "Redrive")]
    fresh_budget: bool,
    /// Show the plan, and change nothing.
    #[arg(long, conflicts_with = "follow")]
    dry_run: bool,
    /// Follow the move task that is already running, and cancel it on Ctrl-C.
    #[arg(
        long,
        help_heading = "Redrive",
        conflicts_with_all = ["Filter", "to", "rate", "copy", "fresh_budget"]
    )]
    follow: bool,
    /// Do not ask for confirmation.
    #[arg(long)]
    yes: bool,
    /// Print the result as JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CopyOptions {
    pub(crate) rate: Option<u16>,
    pub(crate) fresh_budget: bool,
}

impl Arguments {
    /// Copies the messages that the filter chooses to their source queues.
    pub(crate) fn copying(filter: Filter, CopyOptions { rate, fresh_budget }: CopyOptions) -> Self {
        Self { filter, rate, fresh_budget, copy: true, ..Self::default() }
    }

    /// The rate, if it prolongs the time for which messages are hidden: unchosen ones are, to the end.
    fn hiding_rate(&self) -> Option<u16> {
        self.rate.filter(|_| self.filter.is_set())
    }

    pub(crate) fn has_to_copy(&self) -> bool {
        self.copy || self.fresh_budget || self.filter.is_set()
    }
}

pub(crate) async fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    // Until the command asks the user, or has a progress of its own.
    let (stop, asking) = (Stop::end_unchanged()?, progress());
    let dead_letters = arguments.place.find(Purpose::Redrive).await?;
    let name = dead_letters.name();
    let mut redrive = RedriveResult::default();
    if arguments.follow {
        let task = moving::running(&dead_letters).await?.ok_or_else(|| {
            format!(
                "no move task of {name} is running; start one with `requeue dlq redrive` without \
                 --follow"
            )
        })?;
        drop(asking);
        return carry_out(arguments, &dead_letters, None, Some(task), &stop, redrive).await;
    }
    let route = RedriveRoute::find(arguments, &dead_letters).await?;
    if route.by_move_task
        && !arguments.dry_run
        && let Some(task) = moving::running(&dead_letters).await?
    {
        return Err(moving::runs_already(&dead_letters.queue.arn, &task));
    }
    dead_letters.warn();
    if arguments.dry_run || !arguments.yes {
        if !arguments.dry_run {
            let words = arguments.filter.words();
            let what = format!("messages{words} would be redriven from {name} to {route}");
            require_terminal(&what)?;
        }
        let plan = Plan::make(&route, &stop, &asking).await?;
        drop(asking);
        if plan.is_interrupted {
            return Ok(stop.status(false));
        }
        let is_empty = plan.is_empty();
        if arguments.dry_run {
            let ended = plan.tell(&route);
            if is_empty {
                dead_letters.tell_waiting().await;
            }
            return ended;
        }
        output::note(plan.text(&route).trim_end());
        if is_empty {
            dead_letters.tell_waiting().await;
        }
        if is_empty || !agreed(&plan.question(name, &route), &stop).await? {
            output::remark("nothing was done");
            return Ok(stop.status(is_empty && plan.finds_all(&route)));
        }
        redrive.planned = plan.to_redrive();
    } else {
        drop(asking);
    }
    carry_out(arguments, &dead_letters, Some(&route), None, &stop, redrive).await
}

const MOVED_UNSEEN: &str = "SQS moved the messages as they are: one that failed less than three \
                            minutes ago may come back without a call; --copy redrives such messages";

/// Redrives along a route, or follows a move task that runs already.
async fn carry_out(
    arguments: &Arguments,
    dead_letters: &DeadLetters,
    route: Option<&RedriveRoute<'_>>,
    running: Option<MoveTask>,
    stop: &Stop,
    mut redrive: RedriveResult,
) -> Result<ExitCode, Error> {
    stop.defer_end();
    let progress = CommandProgress::shown(format!("redriving {}", dead_letters.name()));
    let (mut failure, mut is_cut) = (None, false);
    let mut copy_along = route.filter(|route| !route.by_move_task);
    if copy_along.is_none() {
        let (handle, before) = if let Some(task) = running {
            let moved = moving::moved(&task);
            (task.task_handle.unwrap_or_default(), moved)
        } else {
            let to = route.and_then(|route| route.to.as_ref());
            (moving::start(dead_letters, to, arguments.rate).await?, 0)
        };
        redrive.moves_to = Some(route.map(|route| format!(" to {route}")).unwrap_or_default());
        stop.leaves(moving::GOES_ON);
        let (moved, end) = moving::follow(dead_letters, &handle, stop, &progress).await?;
        stop.leaves(HOLDS_MESSAGES);
        redrive.moved = moved;
        match end {
            MoveEnd::Completed => {
                failure = moved_all(dead_letters, before, stop, &mut redrive).await.err();
            }
            MoveEnd::Cancelled | MoveEnd::SourceUnknown if stop.is_told() => {}
            MoveEnd::Cancelled => {
                output::remark("another command cancelled the move task");
                is_cut = true;
            }
            MoveEnd::SourceUnknown if route.is_some() => {
                output::remark(
                    "SQS stopped at a message that was sent here, since it does not know its source; \
                     copying the rest",
                );
                copy_along = route;
            }
            MoveEnd::SourceUnknown => {
                failure = Some(
                    "SQS does not know the source of the other messages; run redrive without \
                     --follow to copy them"
                        .into(),
                );
            }
            MoveEnd::Failed(why) => failure = Some(format!("SQS's move task failed: {why}").into()),
        }
    }
    if let Some(route) = copy_along {
        if redrive.planned.is_none() {
            output::remark(&dead_letters.if_killed(arguments.hiding_rate()));
        }
        let copied = copy_all(route, stop, &progress, &mut redrive).await;
        failure = copied.err();
    }
    redrive.is_complete &= !stop.is_told();
    if is_cut || stop.is_told() {
        let now = dead_letters.refreshed().await;
        redrive.cut_off(now.ok().map(|now| now.queue.messages));
    }
    drop(progress);
    let told = redrive.tell(arguments, dead_letters);
    let finds_all = !redrive.is_complete
        || arguments.filter.finds_all_if_set(dead_letters.name(), redrive.has_chosen_any());
    if let Some(error) = failure {
        return Err(error);
    }
    told?;
    if !redrive.has_chosen_any() && redrive.is_complete {
        dead_letters.tell_waiting().await;
    }
    Ok(stop.status(redrive.is_done() && finds_all))
}

/// Compares the messages that a completed task has moved with SQS's counts. `before` is the number
/// that it had moved when the queue was described. A task moves no message that a reader has in
/// flight. It may have moved messages that arrived later, so the number alone proves nothing.
async fn moved_all(
    DeadLetters { sqs, queue, .. }: &DeadLetters,
    before: u64,
    stop: &Stop,
    redrive: &mut RedriveResult,
) -> Result<(), Error> {
    let seen = Seen { all: redrive.moved.saturating_sub(before), ..Seen::default() };
    let settled = Comparison::default().settled(sqs, queue, seen, stop).await?;
    redrive.unseen = settled.unwrap_or_default();
    // The messages were not read, or not all of them.
    if redrive.planned.is_none() && redrive.moved > 0 {
        output::remark(MOVED_UNSEEN);
    }
    redrive.unseen.tell(queue);
    redrive.is_complete = redrive.unseen.is_empty();
    Ok(())
}

/// Redrives exactly the messages that a person chose on the local page. Prints nothing.
pub(crate) async fn redrive(
    arguments: &Arguments,
    dead_letters: &DeadLetters,
    stop: &Stop,
    progress: &CommandProgress,
) -> Result<JobEnd, Error> {
    let route = RedriveRoute::find(arguments, dead_letters).await?;
    let mut result = RedriveResult::default();
    let ended = copy_all(&route, stop, progress, &mut result).await;
    result.outcomes.error = ended.err();
    let count = result.copied();
    let left = arguments.filter.limit.unwrap_or_default().saturating_sub(count);
    let is_complete = result.outcomes.error.is_none() && left == 0 && result.not_deleted.is_empty();
    // The messages that were not chosen are known to the page.
    result.not_chosen = 0;
    let text = result.text(dead_letters.name(), arguments);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if left > 0 {
        let are_told = result.left.count() > 0 || result.failed.count() > 0;
        let above = if are_told { ", those above included" } else { "" };
        lines.push(format!("{} of the chosen ones not copied{above}", messages(left)));
    }
    Ok(JobEnd { lines, is_complete, outcomes: result.outcomes })
}
