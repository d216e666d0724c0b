//! The redrive of exactly the messages that a person chose on the local page, and its plan. It
//! prints nothing.

use serde::Serialize;

use super::arguments::Arguments;
use super::dry_run::PlannedRoutes;
use super::result::{RedriveResult, id_options};
use super::route::RedriveRoute;
use crate::Error;
use crate::dlq::letter::Letter;
use crate::dlq::outcome::Outcomes;
use crate::dlq::{DeadLetters, messages};
use crate::progress::CommandProgress;
use crate::stop::Stop;

/// The coming action.
#[derive(Serialize)]
pub(crate) struct ChosenPlan {
    /// The messages that would be copied.
    pub(crate) count: u64,
    pub(crate) lines: Vec<String>,
}

/// The end of a redrive. Without messages it is complete.
pub(crate) struct RedriveEnd {
    /// A line for each result.
    pub(crate) lines: Vec<String>,
    /// Whether all chosen messages were redriven.
    pub(crate) is_complete: bool,
    /// By the ids of the messages that the redrive received.
    pub(crate) outcomes: Outcomes,
    pub(crate) error: Option<Error>,
}

impl Default for RedriveEnd {
    fn default() -> Self {
        Self { lines: Vec::new(), is_complete: true, outcomes: Outcomes::new(), error: None }
    }
}

/// The plan for messages that were received before.
pub(crate) async fn plan(
    arguments: &Arguments,
    dead_letters: &DeadLetters,
    letters: impl IntoIterator<Item = &Letter>,
) -> Result<ChosenPlan, Error> {
    let route = RedriveRoute::find(arguments, dead_letters).await?;
    let mut routes = PlannedRoutes::default();
    for letter in letters {
        routes.add(&route, letter, &letter.read());
    }
    Ok(ChosenPlan { count: routes.copies(), lines: routes.lines() })
}

/// Redrives the chosen messages.
pub(crate) async fn redrive(
    arguments: &Arguments,
    dead_letters: &DeadLetters,
    stop: &Stop,
    progress: &CommandProgress,
) -> Result<RedriveEnd, Error> {
    let route = RedriveRoute::find(arguments, dead_letters).await?;
    let mut result = RedriveResult::default();
    let ended = super::copy_all(arguments, dead_letters, &route, stop, progress, &mut result).await;
    let error = ended.err().or_else(|| result.copies.fatal.take());
    let copies = &result.copies;
    let count = copies.copied();
    let left = arguments.filter.limit.unwrap_or_default().saturating_sub(count);
    let is_complete = error.is_none() && left == 0 && copies.not_deleted.is_empty();
    let not_deleted = std::mem::take(&mut result.copies.not_deleted);
    // The messages that were not chosen are known to the page.
    result.copies.not_chosen = 0;
    result.copies.beyond_limit = 0;
    let mut lines: Vec<String> =
        result.text(dead_letters.name(), None, None).lines().map(str::to_owned).collect();
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
        let copies = &result.copies;
        let are_told = copies.left.count() > 0 || !copies.failed.is_empty();
        let above = if are_told { ", those above included" } else { "" };
        lines.push(format!("{} of the chosen ones not copied{above}", messages(left)));
    }
    Ok(RedriveEnd { lines, is_complete, outcomes: result.copies.outcomes, error })
}
