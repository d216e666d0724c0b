//! The result of a redrive, as text and as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Arguments;
use super::route::LeftBehind;
use crate::dlq::outcome::{Failures, Outcomes};
use crate::dlq::queue::DeadLetters;
use crate::dlq::scan::Unseen;
use crate::table::{messages, thousands};
use crate::{Error, output};

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RedriveResult {
    /// The messages to move or copy, by a plan that has all of them.
    #[serde(skip)]
    pub(super) planned: Option<u64>,
    /// The destination of SQS's move task in words, if there was one.
    #[serde(skip)]
    pub(super) moves_to: Option<String>,
    pub(super) moved: u64,
    pub(super) copied: BTreeMap<String, u64>,
    /// Copied messages that are still here: a further redrive would copy them again.
    #[serde(rename = "copiedNotDeleted")]
    pub(super) not_deleted: Vec<String>,
    /// The ids of the first deliveries of messages whose copy may exist.
    pub(super) in_doubt: Vec<String>,
    /// Messages of other queues than their destination, by their sources.
    #[serde(flatten)]
    pub(super) left: LeftBehind,
    pub(super) failed: Failures,
    /// With the approximate number that the limit left unseen.
    pub(super) not_chosen: u64,
    #[serde(skip)]
    pub(super) is_cut_by_limit: bool,
    /// Messages sent after the start: perhaps the same ones again.
    #[serde(rename = "arrivedMeanwhile")]
    pub(super) newcomers: u64,
    /// Set only after SQS's counts were compared with the messages seen.
    #[serde(rename = "complete")]
    pub(super) is_complete: bool,
    #[serde(rename = "notReached")]
    pub(super) unseen: Unseen,
    /// By SQS's approximate counts, after a signal or another command ended the redrive.
    pub(super) remaining: Option<u64>,
    /// Of these: the messages of the plan that are neither copied nor failed.
    pub(super) remaining_chosen: Option<u64>,
    /// Of each message that was chosen by its id. The number of others has no bound.
    #[serde(skip)]
    pub(super) outcomes: Outcomes,
}

impl RedriveResult {
    pub(super) fn copied(&self) -> u64 {
        self.copied.values().sum()
    }

    /// The copies that SQS has stored or may have stored.
    pub(super) fn stored(&self) -> u64 {
        self.copied() + u64::try_from(self.in_doubt.len()).unwrap_or(u64::MAX)
    }

    /// The chosen messages that were copied or failed.
    pub(super) fn taken(&self) -> u64 {
        self.copied() + self.failed.count()
    }

    pub(super) fn has_chosen_any(&self) -> bool {
        self.moved > 0 || self.taken() > 0 || self.left.count() > 0
    }

    /// Whether each chosen message left this queue.
    pub(super) fn is_done(&self) -> bool {
        let nothing_stays = self.failed.count() == 0 && self.not_deleted.is_empty();
        nothing_stays && self.left.count() == 0 && self.is_complete
    }

    pub(super) fn cut_off(&mut self, remaining: Option<u64>) {
        let taken = self.moved + self.taken();
        self.remaining = remaining;
        self.remaining_chosen = remaining.and(self.planned).map(|all| all.saturating_sub(taken));
    }

    /// If the standard output cannot be written, the standard error has the result.
    pub(super) fn tell(
        &self,
        arguments: &Arguments,
        dead_letters: &DeadLetters,
    ) -> Result<(), Error> {
        let text = self.text(dead_letters.name(), arguments);
        let json = arguments.json.then(|| dead_letters.json(self)).transpose()?;
        if json.is_some() && !self.not_deleted.is_empty() {
            output::remark(&self.not_deleted_line(dead_letters.name(), "--id ID"));
        }
        output::result(&text, json.as_ref())
    }

    /// The remedy for messages that are in both queues, which these options choose.
    fn not_deleted_line(&self, queue: &str, ids: &str) -> String {
        format!(
            "{} copied, but SQS did not confirm the deletes; before another command redrives, which \
             copies twice what is still here, delete it as soon as it is visible, with `requeue dlq \
             discard FILE --queue {queue} {ids}`",
            messages(self.not_deleted.len())
        )
    }

    pub(super) fn text(&self, queue: &str, arguments: &Arguments) -> String {
        let mut text = String::new();
        let mut line = |line: String| text.extend([line.as_str(), "\n"]);
        match &self.moves_to {
            Some(to) if self.moved > 0 => line(format!("{} moved{to}", messages(self.moved))),
            Some(_) if self.copied.is_empty() => line("no message moved".to_owned()),
            None if self.copied.is_empty() => line("no message copied".to_owned()),
            _ => {}
        }
        for (to, count) in &self.copied {
            line(format!("{} copied to {to}", messages(*count)));
        }
        if self.not_chosen > 0 {
            let about = if self.is_cut_by_limit { "about " } else { "" };
            let so_far = if self.remaining.is_some() { "so far " } else { "" };
            let count = messages(self.not_chosen);
            line(format!("{about}{count} {so_far}left here, not chosen"));
        }
        if self.newcomers > 0 {
            line(format!("{} left here, arrived meanwhile", messages(self.newcomers)));
        }
        if !self.unseen.is_empty() {
            line(format!("about {} not reached, and still here", messages(self.unseen.count())));
        }
        let in_doubt = "still here, without a confirmed copy, which may exist";
        self.failed.lines("not copied, and still here", in_doubt).for_each(&mut line);
        if !self.in_doubt.is_empty() {
            let count = messages(self.in_doubt.len());
            line(format!(
                "the copies that may exist are of {count}; another redrive copies these again, so \
                 first look in the log of what handles them for the original ids: {}",
                self.in_doubt.join(", ")
            ));
        }
        if !self.not_deleted.is_empty() {
            // A later command cannot name them.
            let ids: Vec<_> = self.not_deleted.iter().map(|id| format!("--id {id}")).collect();
            line(self.not_deleted_line(queue, &ids.join(" ")));
        }
        if let Some(remaining) = self.remaining.filter(|remaining| *remaining > 0) {
            let remaining = messages(remaining);
            let chosen = self.remaining_chosen.filter(|_| self.moves_to.is_none());
            let chosen = chosen.map(|chosen| format!(", {} of them chosen", thousands(chosen)));
            let chosen = chosen.unwrap_or_default();
            line(format!("about {remaining} remain here after the interruption{chosen}"));
            let limit = arguments.filter.limit.map(|limit| limit.saturating_sub(self.taken()));
            line(match limit {
                Some(0) => "all messages that --limit allows were redriven".to_owned(),
                Some(left) => format!("to go on, give the same command with --limit {left}"),
                None if arguments.follow => "to go on, redrive them without --follow".to_owned(),
                None => "to go on, give the same command again".to_owned(),
            });
        }
        self.left.lines("left here").into_iter().for_each(&mut line);
        text
    }
}
