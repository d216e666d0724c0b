//! `requeue dlq redrive`: redrives messages, by SQS's move task or by copies.

use std::ops::ControlFlow;
use std::process::ExitCode;

mod arguments;
mod route;
mod copy;
mod moving;
mod plan;
mod result;
#[cfg(test)]
mod tests;

pub(crate) use arguments::{Arguments, CopyOptions, HELP};
pub(crate) use copy::COPIES_IN_HAND;
use copy::copy_all;
use moving::MoveEnd;
use plan::Plan;
pub(crate) use plan::{ChosenPlan, plan};
use result::{RedriveResult, id_options};
use route::RedriveRoute;

use super::outcome::JobEnd;
use super::queue::{DeadLetters, Purpose, agreed, progress, require_terminal};
use crate::progress::CommandProgress;
use crate::stop::{HOLDS_MESSAGES, Stop};
use crate::table::{messages, moment};
use crate::{Error, output};

pub(crate) async fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    // Until the command asks the user, or has a progress of its own.
    let (stop, asking) = (Stop::end_at_once()?, progress());
    let dead_letters = arguments.place.find(Purpose::Redrive).await?;
    if arguments.follow {
        drop(asking);
        return follow(arguments, &dead_letters, &stop).await;
    }
    let route = RedriveRoute::find(arguments, &dead_letters).await?;
    if arguments.dry_run {
        return plan::run(arguments, &dead_letters, &route, &stop, &asking).await;
    }
    if route.by_move_task {
        refuse_a_second_task(&dead_letters).await?;
    }
    dead_letters.warn();
    let mut redrive = RedriveResult::default();
    if arguments.yes {
        drop(asking);
    } else {
        require_terminal(&route.words(arguments, &dead_letters))?;
        match ask(arguments, &dead_letters, &route, &stop, asking).await? {
            ControlFlow::Continue(count) => redrive.planned = Some(count),
            ControlFlow::Break(ended) => return Ok(ended),
        }
    }
    carry_out(arguments, &dead_letters, &route, &stop, redrive).await
}

/// Shows the plan and asks: the number of messages to redrive, or the exit status if nothing is to be
/// done.
async fn ask(
    arguments: &Arguments,
    dead_letters: &DeadLetters,
    route: &RedriveRoute,
    stop: &Stop,
    progress: CommandProgress,
) -> Result<ControlFlow<ExitCode, u64>, Error> {
    let plan = Plan::make(arguments, dead_letters, route, stop, &progress).await?;
    drop(progress);
    if plan.is_interrupted {
        return Ok(ControlFlow::Break(stop.status(false)));
    }
    output::note(plan.text(route).trim_end());
    if plan.is_empty() {
        output::remark("nothing was done");
        return Ok(ControlFlow::Break(ExitCode::SUCCESS));
    }
    let question = format!("{}: {}", dead_letters.name(), plan.question(route, arguments));
    if agreed(&question, stop).await? {
        return Ok(ControlFlow::Continue(plan.to_redrive()));
    }
    output::remark("nothing was done");
    Ok(ControlFlow::Break(stop.status(false)))
}

async fn refuse_a_second_task(dead_letters: &DeadLetters) -> Result<(), Error> {
    let Some(task) = moving::running(&dead_letters.sqs, &dead_letters.queue.arn).await? else {
        return Ok(());
    };
    let since = task.started.and_then(moment).unwrap_or_default();
    Err(format!(
        "a move task of {} has been running since {since} and has moved {} so far; follow it to \
         its end with --follow",
        dead_letters.name(),
        task.moved
    )
    .into())
}

/// What a plan would have counted.
const MOVED_UNSEEN: &str = "SQS moved the messages as they are: one that failed less than three \
                            minutes ago may come back without a call; --copy redrives such messages";

async fn carry_out(
    arguments: &Arguments,
    dead_letters: &DeadLetters,
    route: &RedriveRoute,
    stop: &Stop,
    mut redrive: RedriveResult,
) -> Result<ExitCode, Error> {
    stop.defer_end();
    let progress = CommandProgress::shown(format!("redriving {}", dead_letters.name()));
    let (mut failure, mut is_cut, mut has_to_copy) = (None, false, !route.by_move_task);
    if route.by_move_task {
        let DeadLetters { sqs, queue, .. } = dead_letters;
        let handle = moving::start(sqs, &queue.arn, route.moves_to(), arguments.rate).await?;
        stop.leaves(moving::GOES_ON);
        let moved = moving::follow(sqs, &queue.arn, &handle, stop, &progress).await?;
        stop.leaves(HOLDS_MESSAGES);
        redrive.moved = moved.messages;
        match moved.end {
            MoveEnd::Completed => {
                let compared = moved_all(dead_letters, stop, &mut redrive).await;
                failure = compared.err();
            }
            MoveEnd::Cancelled | MoveEnd::SourceUnknown if stop.is_told() => {}
            MoveEnd::Cancelled => {
                output::remark("another command cancelled the move task");
                is_cut = true;
            }
            MoveEnd::SourceUnknown => {
                output::remark(
                    "SQS stopped at a message that was sent here, since it does not know its source; \
                     copying the rest",
                );
                has_to_copy = true;
            }
            MoveEnd::Failed(why) => failure = Some(moving::failed(&why)),
        }
    }
    if has_to_copy {
        let copied = copy_all(arguments, dead_letters, route, stop, &progress, &mut redrive).await;
        failure = copied.err();
    }
    redrive.is_complete &= !stop.is_told();
    redrive.cut_off(remaining(dead_letters, is_cut || stop.is_told()).await);
    drop(progress);
    let told = redrive.tell(arguments, dead_letters, route.by_move_task.then_some(route));
    let finds_all = !redrive.is_complete
        || arguments.filter.finds_all_if_set(dead_letters.name(), redrive.has_chosen_any());
    if let Some(error) = failure {
        return Err(error);
    }
    told?;
    Ok(stop.status(redrive.is_done() && finds_all))
}

/// Compares the moved messages with SQS's counts.
async fn moved_all(
    DeadLetters { sqs, queue, .. }: &DeadLetters,
    stop: &Stop,
    redrive: &mut RedriveResult,
) -> Result<(), Error> {
    let unseen = moving::left(sqs, queue, redrive.moved, stop).await?;
    // Without a plan, nobody has seen the messages.
    if redrive.planned.is_none() && redrive.moved > 0 {
        output::remark(MOVED_UNSEEN);
    }
    unseen.tell(queue.arn.name());
    redrive.is_complete = unseen.is_empty();
    redrive.unseen = unseen;
    Ok(())
}

/// The messages in the queue, if a signal or another command cut the redrive off.
async fn remaining(dead_letters: &DeadLetters, is_cut: bool) -> Option<u64> {
    if !is_cut {
        return None;
    }
    let now = dead_letters.sqs.describe(&dead_letters.queue.arn).await;
    now.ok().map(|now| now.count())
}

async fn follow(
    arguments: &Arguments,
    dead_letters: &DeadLetters,
    stop: &Stop,
) -> Result<ExitCode, Error> {
    let DeadLetters { sqs, queue, .. } = dead_letters;
    let name = dead_letters.name();
    let Some(task) = moving::running(sqs, &queue.arn).await? else {
        return Err(format!(
            "no move task of {name} is running; start one with `requeue dlq redrive` without --follow"
        )
        .into());
    };
    stop.defer_end();
    stop.leaves(moving::GOES_ON);
    let progress = CommandProgress::shown(format!("moving from {name}"));
    let handle = task.handle.unwrap_or_default();
    let moved = moving::follow(sqs, &queue.arn, &handle, stop, &progress).await?;
    let mut redrive = RedriveResult { moved: moved.messages, ..RedriveResult::default() };
    if moved.end == MoveEnd::Completed {
        let now = moved.messages.saturating_sub(task.moved);
        redrive.unseen = moving::left(sqs, queue, now, stop).await?;
        redrive.unseen.tell(name);
        redrive.is_complete = redrive.unseen.is_empty() && !stop.is_told();
    }
    let is_cancelled = moved.end == MoveEnd::Cancelled;
    redrive.remaining = remaining(dead_letters, is_cancelled || stop.is_told()).await;
    drop(progress);
    if arguments.json {
        redrive.tell(arguments, dead_letters, None)?;
    } else {
        let remain =
            redrive.remaining.map(|count| format!(", about {} remain here", messages(count)));
        let cancelled = if is_cancelled { ", then the move task was cancelled" } else { "" };
        let moved = messages(redrive.moved);
        let text = format!("{moved} moved{cancelled}{}\n", remain.unwrap_or_default());
        output::result(&text, None::<&()>)?;
    }
    match moved.end {
        MoveEnd::Completed if redrive.is_complete => Ok(ExitCode::SUCCESS),
        MoveEnd::Completed | MoveEnd::Cancelled => Ok(stop.status(false)),
        MoveEnd::SourceUnknown => {
            Err("SQS does not know the source of the other messages; run redrive without --follow \
                 to copy them"
                .into())
        }
        MoveEnd::Failed(why) => Err(moving::failed(&why)),
    }
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
    let ended = copy_all(arguments, dead_letters, &route, stop, progress, &mut result).await;
    result.outcomes.error = ended.err();
    let count = result.copied();
    let left = arguments.filter.limit.unwrap_or_default().saturating_sub(count);
    let not_deleted = std::mem::take(&mut result.not_deleted);
    let is_complete = result.outcomes.error.is_none() && left == 0 && not_deleted.is_empty();
    // The messages that were not chosen are known to the page.
    result.not_chosen = 0;
    let text = result.text(dead_letters.name(), None, None);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if !not_deleted.is_empty() {
        lines.push(format!(
            "{} copied, but SQS did not confirm the deletes; if they are still here, another redrive \
             of this page only deletes them. Idempotency this command has ended, a redrive copies them \
             twice: discard them first, on the page or with `requeue dlq discard FILE --queue {} {}`",
            messages(not_deleted.len()),
            dead_letters.name(),
            id_options(&not_deleted)
        ));
    }
    if left > 0 {
        let are_told = result.left.count() > 0 || !result.failed.is_empty();
        let above = if are_told { ", those above included" } else { "" };
        lines.push(format!("{} of the chosen ones not copied{above}", messages(left)));
    }
    Ok(JobEnd { lines, is_complete, outcomes: result.outcomes })
}
