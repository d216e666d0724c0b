//! The result of a redrive, as text and as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use super::arguments::Arguments;
use super::copy::{MAY_EXIST, Tally};
use super::dry_run::without_source;
use super::route::{LeftBehind, RedriveRoute};
use crate::dlq::unseen::Unseen;
use crate::dlq::{DeadLetters, messages, note};
use crate::table::thousands;
use crate::{Error, output};

/// The counts of messages, by result.
#[derive(Default)]
pub(super) struct RedriveResult {
    /// The messages to move or copy, by the plan; `None` without a plan.
    pub(super) planned: Option<u64>,
    pub(super) moved: u64,
    pub(super) copies: Tally,
    /// Set only after SQS's counts were compared with the messages seen.
    pub(super) is_complete: bool,
    pub(super) unseen: Unseen,
    /// By SQS's approximate counts, after a signal ended the redrive.
    pub(super) remaining: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RedriveJson<'a> {
    queue: String,
    moved: u64,
    copied: &'a BTreeMap<String, u64>,
    copied_not_deleted: &'a [String],
    in_doubt: &'a [String],
    #[serde(flatten)]
    left: &'a LeftBehind,
    failed: &'a BTreeMap<String, u64>,
    not_chosen: u64,
    arrived_meanwhile: u64,
    complete: bool,
    not_reached: &'a Unseen,
    remaining: Option<u64>,
    remaining_chosen: Option<u64>,
}

impl RedriveResult {
    pub(super) fn has_chosen_any(&self) -> bool {
        self.moved > 0 || self.copies.taken() > 0 || self.copies.left.count() > 0
    }

    /// The messages of the plan that are neither copied nor failed.
    fn remaining_chosen(&self) -> Option<u64> {
        Some(self.planned?.saturating_sub(self.moved + self.copies.taken()))
    }

    /// `moved` is the route of SQS's move task, if there was one. The messages are already moved,
    /// so if the standard output cannot be written, the standard error has the result.
    pub(super) fn tell(
        &self,
        arguments: &Arguments,
        dead_letters: &DeadLetters,
        moved: Option<&RedriveRoute>,
    ) -> Result<(), Error> {
        let Self { copies, .. } = self;
        let text = self.text(dead_letters.name(), moved, arguments.filter.limit);
        let json = arguments.json.then(|| RedriveJson {
            queue: dead_letters.queue.arn.to_string(),
            moved: self.moved,
            copied: &copies.copied,
            copied_not_deleted: &copies.not_deleted,
            in_doubt: &copies.in_doubt,
            left: &copies.left,
            failed: &copies.failed,
            not_chosen: copies.left_unchosen(),
            arrived_meanwhile: copies.newcomers,
            complete: self.is_complete,
            not_reached: &self.unseen,
            remaining: self.remaining,
            remaining_chosen: self.remaining.and(self.remaining_chosen()),
        });
        if json.is_some() && !copies.not_deleted.is_empty() {
            note(&self.not_deleted(dead_letters.name(), "--id ID"));
        }
        output::result(&text, json.as_ref())
    }

    /// What to do with messages that are in both queues, which these options choose.
    fn not_deleted(&self, queue: &str, ids: &str) -> String {
        format!(
            "{} copied, but SQS did not confirm the deletes; before another redrive, which copies \
             twice what is still here, delete it as soon as it is visible, with `requeue dlq discard \
             FILE --queue {queue} {ids}`",
            messages(self.copies.not_deleted.len())
        )
    }

    pub(super) fn text(
        &self,
        queue: &str,
        moved: Option<&RedriveRoute>,
        limit: Option<u64>,
    ) -> String {
        let Self { copies, .. } = self;
        let mut text = String::new();
        let mut line = |line: String| text.extend([line.as_str(), "\n"]);
        match moved {
            Some(route) if self.moved > 0 => {
                line(format!("{} moved to {route}", messages(self.moved)));
            }
            Some(_) if copies.copied.is_empty() => line("no message moved".to_owned()),
            None if copies.copied.is_empty() => line("no message copied".to_owned()),
            _ => {}
        }
        for (to, count) in &copies.copied {
            line(format!("{} copied to {to}", messages(*count)));
        }
        without_source(copies.without_source).into_iter().for_each(&mut line);
        match copies.left_unchosen() {
            0 => {}
            left => {
                let about = if copies.beyond_limit > 0 { "about " } else { "" };
                let so_far = if self.remaining.is_some() { "so far " } else { "" };
                line(format!("{about}{} {so_far}left here, not chosen", messages(left)));
            }
        }
        if copies.newcomers > 0 {
            line(format!("{} left here, arrived meanwhile", messages(copies.newcomers)));
        }
        if !self.unseen.is_empty() {
            line(format!("about {} not reached, and still here", messages(self.unseen.count())));
        }
        for (code, count) in &copies.failed {
            let (count, unconfirmed) = (messages(*count), code.strip_suffix(MAY_EXIST));
            line(match unconfirmed {
                Some(code) => {
                    format!("{count} still here, without a confirmed copy, which may exist: {code}")
                }
                None => format!("{count} not copied, and still here: {code}"),
            });
        }
        if !copies.in_doubt.is_empty() {
            let count = messages(copies.in_doubt.len());
            line(format!(
                "the copies that may exist are of {count}; another redrive copies these again, so \
                 first look in the log of what handles them for the original ids: {}",
                copies.in_doubt.join(", ")
            ));
        }
        if !copies.not_deleted.is_empty() {
            // A later command cannot name them.
            line(self.not_deleted(queue, &id_options(&copies.not_deleted)));
        }
        if let Some(remaining) = self.remaining.filter(|remaining| *remaining > 0) {
            let remaining = messages(remaining);
            let chosen = self.remaining_chosen().filter(|_| moved.is_none());
            let chosen = chosen.map(|chosen| format!(", {} of them chosen", thousands(chosen)));
            let chosen = chosen.unwrap_or_default();
            line(format!("about {remaining} remain here after the interruption{chosen}"));
            let limit = limit.map(|limit| limit.saturating_sub(copies.taken()));
            line(match limit {
                Some(0) => "all messages that --limit allows were redriven".to_owned(),
                Some(left) => format!("to go on, give the same command with --limit {left}"),
                None => "to go on, give the same command again".to_owned(),
            });
        }
        text + &copies.left.lines("left here")
    }
}

/// The options that choose the messages with these ids: `--id A --id B`.
pub(super) fn id_options(ids: &[String]) -> String {
    ids.iter().map(|id| format!("--id {id}")).collect::<Vec<_>>().join(" ")
}
