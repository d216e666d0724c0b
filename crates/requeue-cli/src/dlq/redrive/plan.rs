//! The plan of a redrive: for `--dry-run`, for the question before a redrive, and for the page.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::process::ExitCode;

use requeue::{Clock, DeadLetter, printable};
use serde::Serialize;

use super::Arguments;
use super::route::{LeftBehind, RedriveRoute};
use crate::dlq::letter::{Filter, Letter, claimed_source};
use crate::dlq::list::DeadLetterGroups;
use crate::dlq::outcome::counted;
use crate::dlq::queue::DeadLetters;
use crate::dlq::scan::{ScanEnd, Unseen};
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::table::messages;
use crate::{Error, output};

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Plan {
    dry_run: bool,
    to_move: u64,
    to_copy: BTreeMap<String, u64>,
    #[serde(flatten)]
    left: LeftBehind,
    /// Messages without a destination, by the reason for it.
    not_possible: BTreeMap<String, u64>,
    /// The same messages, by the source queue that they claim.
    not_possible_by_claim: BTreeMap<String, u64>,
    /// Messages that were redriven so often that they get no new retries.
    without_new_retries: u64,
    /// Of the messages to move: Requeue cannot recognise the redrive by its time.
    moved_too_soon: u64,
    not_chosen: u64,
    #[serde(rename = "complete")]
    is_complete: bool,
    not_reached: Unseen,
    /// Of those not reached: the redrive goes on to them.
    #[serde(skip)]
    further: u64,
    groups: DeadLetterGroups,
    #[serde(skip)]
    if_killed: Option<String>,
    #[serde(skip)]
    left_hidden: usize,
    #[serde(skip)]
    pub(super) is_interrupted: bool,
}

#[derive(Serialize)]
pub(crate) struct ChosenPlan {
    pub(crate) count: u64,
    pub(crate) lines: Vec<String>,
}

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
    let lines = plan.text(&route).lines().map(str::to_owned).collect();
    Ok(ChosenPlan { count: plan.to_copy.values().sum(), lines })
}

impl Plan {
    pub(super) fn tell(&self, route: &RedriveRoute<'_>) -> Result<ExitCode, Error> {
        let RedriveRoute { arguments, dead_letters, .. } = route;
        if arguments.json {
            output::json(&dead_letters.json(self)?)?;
        } else {
            output::words(&self.text(route))?;
            self.groups.tell(&dead_letters.queue.arn);
        }
        let is_good = self.finds_all(route) && self.left_hidden == 0;
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Whether the options chose a message, and found each id, as far as all messages were seen.
    pub(super) fn finds_all(
        &self,
        RedriveRoute { arguments, dead_letters, .. }: &RedriveRoute<'_>,
    ) -> bool {
        let has_chosen_any = self.groups.count() > 0 || self.left.count() > 0;
        !self.is_complete || arguments.filter.finds_all_if_set(dead_letters.name(), has_chosen_any)
    }

    pub(super) async fn make(
        route: &RedriveRoute<'_>,
        stop: &Stop,
        progress: &CommandProgress,
    ) -> Result<Self, Error> {
        let RedriveRoute { arguments, dead_letters, .. } = route;
        stop.defer_end();
        let limit = arguments.filter.limit.unwrap_or(u64::MAX);
        let mut plan = Self { dry_run: true, ..Self::default() };
        let scan = dead_letters.scan(stop, progress);
        let visit = |letter: &Letter, dead: &DeadLetter<'_>| {
            let is_chosen = plan.groups.count() < limit && arguments.filter.chooses(letter, dead);
            if is_chosen && plan.add(route, letter, dead) {
                plan.groups.add(letter, dead);
            }
            Ok(ControlFlow::Continue(()))
        };
        let looked = scan.each(&Filter::default(), visit).await?;
        plan.not_chosen = u64::try_from(looked.looked_at)
            .unwrap_or(u64::MAX)
            .saturating_sub(plan.groups.count() + plan.left.count());
        plan.is_complete = looked.is_complete();
        plan.left_hidden = looked.left_hidden;
        plan.is_interrupted = looked.end == ScanEnd::Interrupted;
        plan.further = if plan.groups.count() < limit { looked.unseen.further() } else { 0 };
        plan.not_reached = looked.unseen;
        let copies = !plan.to_copy.is_empty();
        plan.if_killed = copies.then(|| dead_letters.if_killed(arguments.hiding_rate()));
        Ok(plan)
    }

    /// Returns `false` if the message stays because it belongs to another queue.
    pub(super) fn add(
        &mut self,
        route: &RedriveRoute<'_>,
        letter: &Letter,
        dead: &DeadLetter<'_>,
    ) -> bool {
        let count = match route.of(letter, dead) {
            _ if route.moves(letter) => &mut self.to_move,
            Ok(to) => self.to_copy.entry(to.name().to_owned()).or_default(),
            Err(reason_to_stay) => {
                let Some(why) = self.left.add(reason_to_stay) else { return false };
                if let Some(claim) = claimed_source(letter, dead) {
                    *self.not_possible_by_claim.entry(route.shown(claim)).or_default() += 1;
                }
                *self.not_possible.entry(why).or_default() += 1;
                return true;
            }
        };
        *count += 1;
        let is_too_soon = dead.was_sent_lately(Clock::system().now());
        self.moved_too_soon += u64::from(route.moves(letter) && is_too_soon);
        let is_spent = !route.arguments.fresh_budget && dead.redrives() >= DeadLetter::MAX_REDRIVES;
        self.without_new_retries += u64::from(is_spent);
        true
    }

    pub(super) fn text(&self, route: &RedriveRoute<'_>) -> String {
        let mut lines = Vec::new();
        let least = if self.further > 0 { "at least " } else { "" };
        if self.groups.count() > 0 {
            lines.push(format!("{}\n", self.groups.text().trim_end()));
        }
        if self.to_move > 0 {
            let is_mixed = !self.to_copy.is_empty();
            let about = if is_mixed { "at most " } else { least };
            lines.push(format!("SQS would move {about}{} to {route}", messages(self.to_move)));
            if is_mixed {
                lines.push(
                    "it stops at the first message that was sent here, and the rest would be copied"
                        .to_owned(),
                );
            }
        } else if self.to_copy.is_empty() {
            lines.push("no message would be copied".to_owned());
        }
        let copied = self.to_copy.iter();
        let copied =
            copied.map(|(to, count)| (*count, format!("would be copied to {to} and deleted here")));
        lines.extend(counted(copied).into_iter().map(|line| format!("{least}{line}")));
        lines.extend(self.left.lines("would stay here"));
        let stay = self.not_possible.iter();
        lines.extend(counted(stay.map(|(why, count)| (*count, format!("would stay here: {why}")))));
        for (source, count) in &self.not_possible_by_claim {
            lines.push(format!("{count} of these claim to come from {}", printable::line(source)));
        }
        let too_soon = "failed less than three minutes ago, and may come back without a call: wait, or \
                        redrive them with --copy";
        let spent = format!(
            "were redriven {} times, and get no new retries without a fresh budget (--fresh-budget)",
            DeadLetter::MAX_REDRIVES
        );
        lines.extend(counted([
            (self.moved_too_soon, too_soon),
            (self.without_new_retries, &spent),
            (self.not_chosen, "would stay here, not chosen"),
        ]));
        let unseen = counted([
            (self.further, "not in this plan, which a redrive reaches as those before them leave"),
            (self.not_reached.count() - self.further, "not reached, and not in this plan"),
        ]);
        lines.extend(unseen.into_iter().map(|line| format!("about {line}")));
        lines.extend(self.if_killed.clone());
        lines.join("\n") + "\n"
    }

    /// `None` if the redrive may reach more.
    pub(super) fn to_redrive(&self) -> Option<u64> {
        let copies = self.to_copy.values().chain(self.not_possible.values());
        (self.further == 0).then(|| self.to_move + copies.sum::<u64>())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.to_move == 0 && self.to_copy.is_empty() && self.is_complete
    }

    pub(super) fn question(&self, queue: &str, route: &RedriveRoute<'_>) -> String {
        let count = messages(self.to_move + self.to_copy.values().sum::<u64>());
        let fresh = if route.arguments.fresh_budget { ", each with a fresh budget" } else { "" };
        let unseen = match self.further {
            0 => String::new(),
            count => format!("; about {} more may follow", messages(count)),
        };
        let classes = self.groups.by_class();
        format!("{queue}: {count} ({classes}) will be redriven to {route}{fresh}{unseen}")
    }
}
