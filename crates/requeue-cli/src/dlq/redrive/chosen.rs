//! The redrive of exactly the messages that a person chose on the local page, and its plan. It
//! prints nothing.

use serde::Serialize;

use super::arguments::Arguments;
use super::copy::copy_all;
use super::plan::Plan;
use super::result::{RedriveResult, id_options};
use super::route::RedriveRoute;
use crate::Error;
use crate::dlq::letter::Letter;
use crate::dlq::outcome::JobEnd;
use crate::dlq::queue::DeadLetters;
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::table::messages;

/// The coming action.
#[derive(Serialize)]
pub(crate) struct ChosenPlan {
    /// The messages that would be copied.
    pub(crate) count: u64,
    pub(crate) lines: Vec<String>,
}

/// The plan for messages that were received before.
pub(crate) async fn plan(
    arguments: &Arguments,
    dead_letters: &DeadLetters,
    letters: impl IntoIterator<Item = &Letter>,
) -> Result<ChosenPlan, Error> {
    let route = RedriveRoute::find(arguments, dead_letters).await?;
    let mut plan = Plan::default();
    for letter in letters {
        plan.add(&route, letter, &letter.read());
    }
    Ok(ChosenPlan { count: plan.copies(), lines: plan.lines() })
}

/// Redrives the chosen messages.
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
             of this page only deletes them. Once this command has ended, a redrive copies them \
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
