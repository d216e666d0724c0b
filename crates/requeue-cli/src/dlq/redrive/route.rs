//! The destinations of messages, and whether a move task can reach them. A message never sets its
//! destination: the claim in its body can only keep it here.

use std::collections::BTreeMap;
use std::fmt;

use requeue::queue::QueueArn;
use requeue::{DeadLetter, printable};
use serde::Serialize;

use super::Arguments;
use crate::Error;
use crate::dlq::letter::{Letter, claimed_source};
use crate::dlq::queue::{DeadLetters, named};
use crate::table::messages;

pub(crate) struct RedriveRoute<'r> {
    pub(super) arguments: &'r Arguments,
    pub(super) dead_letters: &'r DeadLetters,
    /// The destination of all messages, if --to names one.
    pub(super) to: Option<QueueArn>,
    /// The destination of messages that were sent here, or the reason for which it is unknown. SQS
    /// knows the source only of messages that it moved itself.
    strays: Result<QueueArn, String>,
    pub(crate) by_move_task: bool,
    /// The beginning of the ARNs of queues in the dead-letter queue's account and region.
    prefix: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StayReason {
    /// SQS moved it here from this queue, but another one was chosen.
    Of(String),
    /// It claims to come from this queue, but would go to another one.
    Claims(String),
    /// Its destination is unknown, for this reason.
    Unknown(String),
}

/// Messages that stay because they belong to other queues, by the names of these queues.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeftBehind {
    /// By SQS.
    #[serde(rename = "left")]
    of: BTreeMap<String, u64>,
    /// By their own claim.
    #[serde(rename = "leftByClaim")]
    by_claim: BTreeMap<String, u64>,
}

impl StayReason {
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Of(queue) => format!("of {queue}; redrive it with --queue, --source and --to"),
            Self::Claims(queue) => {
                format!("claims to come from {queue}; redrive it with --queue, --source and --to")
            }
            Self::Unknown(why) => why.clone(),
        }
    }
}

impl LeftBehind {
    /// Returns the reason of a message that stays for another cause.
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

    /// A line for each queue; `left` is the result of its messages.
    pub(crate) fn lines(&self, left: &str) -> Vec<String> {
        let of =
            self.of.iter().map(|(queue, count)| format!("{} of {queue} {left}", messages(*count)));
        let by_claim = self.by_claim.iter().map(|(queue, count)| {
            format!("{} {left}, claiming to come from {}", messages(*count), printable::line(queue))
        });
        of.chain(by_claim)
            .map(|line| line + "; redrive them with --queue, --source and --to")
            .collect()
    }
}

const MAX_CLAIM_CHARS: usize = 256;

impl<'r> RedriveRoute<'r> {
    pub(crate) async fn find(
        arguments: &'r Arguments,
        dead_letters: &'r DeadLetters,
    ) -> Result<Self, Error> {
        let DeadLetters { sqs, queue, source, .. } = dead_letters;
        let to = match &arguments.to {
            Some(name) => {
                let sdk = crate::sdk::config().await;
                let found = named(name, "--to", &arguments.place.region, &sdk).await?;
                Some(sqs.describe(&found.arn).await?.arn)
            }
            None => None,
        };
        if to.as_ref() == Some(&queue.arn) {
            return Err("--to names the dead-letter queue itself; name another queue".into());
        }
        let known = to.clone().or_else(|| source.clone());
        // A move task moves all messages, also those of a queue that no longer names this one.
        let has_to_copy = arguments.has_to_copy() || source.is_some();
        let sources = if has_to_copy && source.is_none() && to.is_some() {
            Ok(Vec::new())
        } else {
            match sqs.sources(&queue.arn).await {
                Err(error) if source.is_some() => Err(error.to_string()),
                sources => Ok(sources?),
            }
        };
        let name = queue.arn.name();
        let strays = match (known, sources.as_deref()) {
            (Some(known), Ok([] | [_])) => Ok(known),
            (None, Ok([only])) => Ok(only.clone()),
            (_, Err(error)) => Err(format!("sent here without a source: {error}")),
            (None, Ok([])) => {
                return Err(format!(
                    "no queue names {name} in its redrive policy; name the destination: `requeue \
                     dlq redrive --to QUEUE`"
                )
                .into());
            }
            (_, Ok(several)) => {
                let all: Vec<&str> = several.iter().map(QueueArn::name).collect();
                Err(format!(
                    "sent here without a source, and {name} belongs to {}; --source-queue redrives \
                     those that claim its queue, and --queue with --id and --to any",
                    all.join(" and ")
                ))
            }
        };
        // SQS runs move tasks only for queues that are a dead-letter queue.
        let by_move_task = !has_to_copy && sources.is_ok_and(|sources| !sources.is_empty());
        let prefix = queue.arn.to_string();
        let prefix = prefix.strip_suffix(name).unwrap_or_default().to_owned();
        Ok(Self { arguments, dead_letters, to, strays, by_move_task, prefix })
    }

    /// The destination of a copy of this message, or the reason for which it stays.
    pub(crate) fn of<'a>(
        &'a self,
        letter: &'a Letter,
        dead: &DeadLetter<'_>,
    ) -> Result<&'a QueueArn, StayReason> {
        // The only queue whose messages are redriven, if --source-queue names one.
        let chosen = &self.dead_letters.source;
        if let (Some(to), None) = (&self.to, chosen) {
            return Ok(to);
        }
        if let Some(own) = &letter.record.dead_letter_source {
            let is_meant = chosen.as_ref().is_none_or(|chosen| is_same(chosen, own));
            return if is_meant {
                Ok(self.to.as_ref().unwrap_or(own))
            } else {
                Err(StayReason::Of(self.shown(&own.to_string())))
            };
        }
        let claim = claimed_source(letter, dead);
        let stray = match chosen {
            Some(chosen) if claim.is_some() => self.to.as_ref().unwrap_or(chosen),
            _ => self.strays.as_ref().map_err(|why| StayReason::Unknown(why.clone()))?,
        };
        let meant = chosen.as_ref().unwrap_or(stray);
        let contradicts = |claim: &&str| !claim.parse().is_ok_and(|claim| is_same(&claim, meant));
        match claim.filter(contradicts) {
            Some(claim) => Err(StayReason::Claims(self.shown(claim))),
            None => Ok(stray),
        }
    }

    /// By the name alone in the dead-letter queue's account and region.
    pub(crate) fn shown(&self, arn: &str) -> String {
        let name = arn.strip_prefix(&self.prefix).unwrap_or(arn);
        name.chars().take(MAX_CLAIM_CHARS).collect()
    }

    pub(crate) fn moves(&self, letter: &Letter) -> bool {
        self.by_move_task && (self.to.is_some() || letter.record.was_dead_lettered)
    }
}

/// Whether both are the same queue. An ARN that was made from a URL has no reliable partition.
fn is_same(one: &QueueArn, other: &QueueArn) -> bool {
    one.region() == other.region() && one.url_at("") == other.url_at("")
}

impl fmt::Display for RedriveRoute<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to.as_ref().map_or("their source queues", QueueArn::name))
    }
}
