//! `requeue dlq redrive`: redrives messages, by SQS's move task or by copies.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::Instant;

mod arguments;
mod chosen;
mod route;
mod copy;
mod dry_run;
mod moving;
mod result;
#[cfg(test)]
mod tests;

pub(crate) use arguments::{Arguments, CopyOptions, HELP};
pub(crate) use chosen::{ChosenPlan, RedriveEnd, plan, redrive};
use copy::{Copier, Tally};
use dry_run::Plan;
use moving::MoveEnd;
use result::RedriveResult;
use route::RedriveRoute;

use super::letter::moment;
use super::pace::CopyPace;
use super::scan_result::ScanEnd;
use super::unseen::Unseen;
use super::{DeadLetters, Purpose, confirm, messages, note, progress};
use crate::progress::CommandProgress;
use crate::stop::{HOLDS_MESSAGES, Stop};
use crate::{Error, output};

/// SQS's times have whole seconds.
const CLOCK_GRAIN: Duration = Duration::from_secs(1);
/// The greatest difference between the clocks of SQS's hosts.
const CLOCK_SKEW: Duration = Duration::from_millis(500);

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
        drop(asking);
        return dry_run::run(arguments, &dead_letters, &route, &stop).await;
    }
    if route.by_move_task {
        refuse_a_second_task(&dead_letters).await?;
    }
    drop(asking);
    dead_letters.warn();
    let mut redrive = RedriveResult::default();
    if !arguments.yes {
        confirm::require_terminal(&route.words(arguments, &dead_letters))?;
        match ask(arguments, &dead_letters, &route, &stop).await? {
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
) -> Result<ControlFlow<ExitCode, u64>, Error> {
    let progress = progress();
    let plan = Plan::make(arguments, dead_letters, route, stop, &progress).await?;
    drop(progress);
    if plan.is_interrupted() {
        return Ok(ControlFlow::Break(stop.exit_code(ExitCode::FAILURE)));
    }
    output::note(plan.text(route).trim_end());
    if plan.is_empty() {
        note("nothing was done");
        return Ok(ControlFlow::Break(ExitCode::SUCCESS));
    }
    let question = format!("{}: {}", dead_letters.name(), plan.question(route, arguments));
    if confirm::agreed(&question, stop).await? {
        return Ok(ControlFlow::Continue(plan.to_redrive()));
    }
    note("nothing was done");
    Ok(ControlFlow::Break(stop.exit_code(ExitCode::FAILURE)))
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
    let (mut failure, mut is_cut) = (None, false);
    let mut has_to_copy = !route.by_move_task;
    if route.by_move_task {
        let DeadLetters { sqs, queue, .. } = dead_letters;
        let handle = moving::start(sqs, &queue.arn, route.moves_to(), arguments.rate).await?;
        stop.leaves(moving::GOES_ON);
        let moved = moving::follow(sqs, &queue.arn, &handle, stop, &progress).await?;
        stop.leaves(HOLDS_MESSAGES);
        redrive.moved = moved.messages;
        match moved.end {
            MoveEnd::Completed => {
                match moving::left(sqs, queue, moved.messages, stop).await {
                    Ok(unseen) => {
                        redrive.is_complete = unseen.is_empty();
                        redrive.unseen = unseen;
                        // Without a plan, nobody has seen the messages.
                        if redrive.planned.is_none() && redrive.moved > 0 {
                            note(MOVED_UNSEEN);
                        }
                    }
                    Err(error) => failure = Some(error),
                }
                redrive.unseen.tell(dead_letters.name());
            }
            MoveEnd::Cancelled | MoveEnd::SourceUnknown if stop.is_told() => {}
            MoveEnd::Cancelled => {
                note("another command cancelled the move task");
                is_cut = true;
            }
            MoveEnd::SourceUnknown => {
                note(
                    "SQS stopped at a message that was sent here, since it does not know its source; \
                     copying the rest",
                );
                has_to_copy = true;
            }
            MoveEnd::Failed(why) => failure = Some(format!("SQS's move task failed: {why}").into()),
        }
    }
    if has_to_copy {
        match copy_all(arguments, dead_letters, route, stop, &progress, &mut redrive).await {
            Ok(()) => failure = redrive.copies.fatal.take(),
            Err(error) => failure = Some(error),
        }
    }
    redrive.is_complete &= !stop.is_told();
    redrive.remaining = remaining(dead_letters, is_cut || stop.is_told()).await;
    drop(progress);
    let told = redrive.tell(arguments, dead_letters, route.by_move_task.then_some(route));
    let finds_all = !redrive.is_complete
        || arguments.filter.finds_all_if_set(dead_letters.name(), redrive.has_chosen_any());
    if let Some(error) = failure {
        return Err(error);
    }
    told?;
    let copies = &redrive.copies;
    let is_done =
        copies.failed.is_empty() && copies.not_deleted.is_empty() && copies.left.count() == 0;
    let is_done = is_done && redrive.is_complete && finds_all;
    Ok(stop.exit_code(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

/// The messages in the queue, if a signal or another command cut the redrive off.
async fn remaining(dead_letters: &DeadLetters, is_cut: bool) -> Option<u64> {
    if !is_cut {
        return None;
    }
    let now = dead_letters.sqs.describe(&dead_letters.queue.arn).await;
    now.ok().map(|now| now.count())
}

/// What a second signal leaves during copies.
pub(crate) const COPIES_IN_HAND: &str = "messages in hand stay hidden {until}, and those of the \
                                         last requests may be in both queues";

async fn copy_all(
    arguments: &Arguments,
    dead_letters: &DeadLetters,
    route: &RedriveRoute,
    stop: &Stop,
    progress: &CommandProgress,
    redrive: &mut RedriveResult,
) -> Result<(), Error> {
    stop.leaves(COPIES_IN_HAND);
    let Arguments { place, filter, rate, .. } = arguments;
    let began = dead_letters.sqs.now(&dead_letters.queue.arn).await?;
    let scan = dead_letters.scan(place, stop, progress);
    let mut scan = scan.one_by_one(*rate, filter.is_set()).after(redrive.moved);
    let to_copy = redrive.planned.map(|all| all.saturating_sub(redrive.moved)).or(filter.limit);
    let counts_copies = to_copy.is_some() || !filter.is_set();
    if counts_copies {
        scan = scan.without_count();
    }
    if to_copy.is_some() {
        progress.count("messages", to_copy);
    }
    progress.step(format!("copying from {}", dead_letters.name()));
    let mut copier = Copier {
        sqs: &dead_letters.sqs,
        from: &dead_letters.queue.arn,
        route,
        filter,
        fresh_budget: arguments.fresh_budget,
        stop,
        until: began + CLOCK_GRAIN,
        time_in_hand: scan.time_in_hand(),
        // Messages since `until` are new: a copy that failed at once would otherwise count as old,
        // and circulate.
        pace: CopyPace::new(*rate, Instant::now() + CLOCK_GRAIN + CLOCK_SKEW),
        blocked: BTreeSet::new(),
        progress,
        counts_copies,
        unconfirmed: 0,
        tally: Tally::default(),
    };
    let walked = scan.walk(async |letters, held| Ok(copier.copy(letters, held).await)).await;
    redrive.copies = copier.tally;
    scan.ended_by(redrive.copies.fatal.as_ref());
    let is_released = scan.release().await;
    redrive.unseen = scan.broken_off();
    let looked = walked?;
    if redrive.copies.fatal.is_none() {
        if looked.end == ScanEnd::Enough {
            redrive.copies.beyond_limit = scan.unseen_count();
        }
        redrive.is_complete = scan.tell(&looked) && is_released;
        redrive.unseen = looked.unseen;
    }
    Ok(())
}

async fn follow(
    arguments: &Arguments,
    dead_letters: &DeadLetters,
    stop: &Stop,
) -> Result<ExitCode, Error> {
    let DeadLetters { sqs, queue, .. } = dead_letters;
    let Some(task) = moving::running(sqs, &queue.arn).await? else {
        return Err(format!(
            "no move task of {} is running; start one with `requeue dlq redrive` without --follow",
            queue.arn.name()
        )
        .into());
    };
    stop.defer_end();
    stop.leaves(moving::GOES_ON);
    let progress = CommandProgress::shown(format!("moving from {}", queue.arn.name()));
    let handle = task.handle.unwrap_or_default();
    let moved = moving::follow(sqs, &queue.arn, &handle, stop, &progress).await?;
    let mut unseen = Unseen::default();
    if moved.end == MoveEnd::Completed {
        unseen = moving::left(sqs, queue, moved.messages.saturating_sub(task.moved), stop).await?;
        unseen.tell(dead_letters.name());
    }
    let is_complete = moved.end == MoveEnd::Completed && unseen.is_empty() && !stop.is_told();
    let is_cut = moved.end == MoveEnd::Cancelled || stop.is_told();
    let remaining = remaining(dead_letters, is_cut).await;
    drop(progress);
    if arguments.json {
        let redrive = RedriveResult {
            moved: moved.messages,
            is_complete,
            unseen,
            remaining,
            ..RedriveResult::default()
        };
        redrive.tell(arguments, dead_letters, None)?;
    } else {
        let remain = remaining.map(|count| format!(", about {} remain here", messages(count)));
        let cancelled =
            if moved.end == MoveEnd::Cancelled { ", then the move task was cancelled" } else { "" };
        let text =
            format!("{} moved{cancelled}{}", messages(moved.messages), remain.unwrap_or_default());
        output::result(&(text + "\n"), None::<&()>)?;
    }
    match moved.end {
        MoveEnd::Completed if is_complete => Ok(ExitCode::SUCCESS),
        MoveEnd::Completed | MoveEnd::Cancelled => Ok(stop.exit_code(ExitCode::FAILURE)),
        MoveEnd::SourceUnknown => {
            Err("SQS does not know the source of the other messages; run redrive without --follow \
                 to copy them"
                .into())
        }
        MoveEnd::Failed(why) => Err(format!("SQS's move task failed: {why}").into()),
    }
}
