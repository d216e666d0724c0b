//! Where messages go back to, and whether SQS can be asked to move them there. No destination is
//! taken from a message: what a body says of its source can only keep it here.

use std::collections::BTreeMap;
use std::fmt;

use requeue::queue::QueueArn;
use requeue::{DeadLetter, printable};
use serde::Serialize;

use super::arguments::Arguments;
use crate::Error;
use crate::dlq::letter::{Letter, claimed_source};
use crate::dlq::{DeadLetters, messages};

/// The destinations of a redrive.
pub(crate) struct RedriveRoute {
    /// Where everything goes, if somebody said so.
    to: Option<QueueArn>,
    /// The queue whose messages alone are meant, if somebody chose one.
    chosen: Option<QueueArn>,
    /// Where messages go that were sent here, or why nobody knows. SQS knows only where it moved a
    /// message from itself.
    strays: Result<QueueArn, String>,
    /// Whether SQS is asked to move what it can.
    pub(crate) by_move_task: bool,
    /// What ARNs of queues beside the dead-letter queue begin with.
    prefix: String,
}

/// Why a message stays.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StayReason {
    /// SQS moved it here from this queue, and another one was chosen.
    Of(String),
    /// It claims to come from this queue, and would go to another one.
    Claims(String),
    /// Nobody knows where it belongs, for this reason.
    Unknown(String),
}

/// Messages that stay since they belong to other queues, by the names of those.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeftBehind {
    /// By SQS's word.
    #[serde(rename = "left")]
    of: BTreeMap<String, u64>,
    /// By their own.
    #[serde(rename = "leftByClaim")]
    by_claim: BTreeMap<String, u64>,
}

impl LeftBehind {
    /// Gives back the reason of a message that stays for another one.
    pub(crate) fn add(&mut self, reason_to_stay: StayReason) -> Option<String> {
        let count = match reason_to_stay {
            StayReason::Of(queue) => self.of.entry(queue).or_default(),
            StayReason::Claims(queue) => self.by_claim.entry(queue).or_default(),
            StayReason::Unknown(why) => return Some(why),
        };
        *count += 1;
        None
    }

    pub(crate) fn count(&self) -> u64 {
        self.of.values().chain(self.by_claim.values()).sum()
    }

    /// A line for each queue; `left` says what has become of them.
    pub(crate) fn lines(&self, left: &str) -> String {
        let of =
            self.of.iter().map(|(queue, count)| format!("{} of {queue} {left}", messages(*count)));
        let by_claim = self.by_claim.iter().map(|(queue, count)| {
            format!(
                "{} {left}, by their claim to come from {}",
                messages(*count),
                printable::line(queue)
            )
        });
        of.chain(by_claim).map(|line| line + "; --source with --to brings them back\n").collect()
    }
}

/// Characters of a claim that are shown.
const MAX_CLAIM_CHARS: usize = 256;

impl RedriveRoute {
    pub(crate) async fn find(
        arguments: &Arguments,
        dead_letters: &DeadLetters,
    ) -> Result<Self, Error> {
        let DeadLetters { sqs, queue, source } = dead_letters;
        let to = match &arguments.to {
            Some(url) => Some(sqs.describe(&arguments.place.arn("--to", url)?).await?.arn),
            None => None,
        };
        if to.as_ref() == Some(&queue.arn) {
            return Err("--to names the dead-letter queue itself".into());
        }
        let known = to.clone().or_else(|| source.clone());
        // A move task moves every message, also those of a queue that names this dead-letter queue
        // no longer and so is not listed.
        let has_chosen_source = to.is_none() && source.is_some();
        let has_to_copy = arguments.has_to_copy() || has_chosen_source;
        let sources = if has_to_copy && known.is_some() {
            Vec::new()
        } else {
            sqs.sources(&queue.arn).await?
        };
        let name = queue.arn.name();
        let strays = match (known, &sources[..]) {
            (Some(known), _) => Ok(known),
            (None, [only]) => Ok(only.clone()),
            (None, []) => {
                return Err(format!(
                    "no queue names {name} in its redrive policy: name the destination with --to"
                )
                .into());
            }
            (None, several) => {
                let all: Vec<&str> = several.iter().map(QueueArn::name).collect();
                Err(format!(
                    "sent here, and {name} belongs to {}: choose one with --source-queue-url",
                    all.join(" and ")
                ))
            }
        };
        // SQS moves out of those queues only that are some queue's dead-letter queue.
        let by_move_task = !has_to_copy && !sources.is_empty();
        let prefix = queue.arn.to_string();
        let prefix = prefix.strip_suffix(name).unwrap_or_default().to_owned();
        Ok(Self { to, chosen: source.clone(), strays, by_move_task, prefix })
    }

    /// Where SQS is told to move to; nowhere means where each message came from.
    pub(crate) fn moves_to(&self) -> Option<&QueueArn> {
        self.to.as_ref()
    }

    /// Where a copy of this message goes, or why it stays.
    pub(crate) fn of<'a>(
        &'a self,
        letter: &'a Letter,
        dead: &DeadLetter<'_>,
    ) -> Result<&'a QueueArn, StayReason> {
        if let Some(to) = &self.to {
            return Ok(to);
        }
        if let Some(own) = &letter.record.dead_letter_source {
            let is_meant = self.chosen.as_ref().is_none_or(|chosen| is_same(chosen, own));
            return if is_meant {
                Ok(own)
            } else {
                Err(StayReason::Of(self.shown(&own.to_string())))
            };
        }
        let stray = self.strays.as_ref().map_err(|why| StayReason::Unknown(why.clone()))?;
        let contradicts = |claim: &&str| !claim.parse().is_ok_and(|claim| is_same(&claim, stray));
        match claimed_source(letter, dead).filter(contradicts) {
            Some(claim) => Err(StayReason::Claims(self.shown(claim))),
            None => Ok(stray),
        }
    }

    /// A queue as a person calls it: by its name, if it is in the dead-letter queue's account and
    /// region.
    pub(crate) fn shown(&self, arn: &str) -> String {
        let name = arn.strip_prefix(&self.prefix).unwrap_or(arn);
        name.chars().take(MAX_CLAIM_CHARS).collect()
    }

    /// Whether SQS itself can move this message.
    pub(crate) fn moves(&self, letter: &Letter) -> bool {
        self.by_move_task && (self.to.is_some() || letter.record.was_dead_lettered)
    }

    /// What is going to happen.
    pub(crate) fn words(&self, arguments: &Arguments, dead_letters: &DeadLetters) -> String {
        let has =
            format!("{} has about {}", dead_letters.name(), messages(dead_letters.queue.visible));
        if self.by_move_task {
            return format!("{has}: SQS is to move them to {self}");
        }
        let chosen = self.chosen.as_ref().filter(|_| self.to.is_none());
        let of = chosen.map(|chosen| format!(" of {}", chosen.name())).unwrap_or_default();
        let words = arguments.filter.words();
        let which = if of.is_empty() && words.is_empty() {
            "they".to_owned()
        } else {
            format!("those{of}{words}")
        };
        let fresh = if arguments.fresh_budget { ", each with a fresh budget" } else { "" };
        format!("{has}: {which} are to be copied to {self} and then deleted{fresh}")
    }
}

/// Whether both name one queue. What read its own queue from a URL does not know the partition.
fn is_same(one: &QueueArn, other: &QueueArn) -> bool {
    one.region() == other.region() && one.url_at("") == other.url_at("")
}

impl fmt::Display for RedriveRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to.as_ref().map_or("where they came from", QueueArn::name))
    }
}
