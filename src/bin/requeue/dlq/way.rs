//! Where messages go back to, and whether SQS can be asked to move them there.

use std::fmt;

use requeue::queue::QueueArn;

use super::letter::Letter;
use super::redrive::Arguments;
use super::{DeadLetters, messages};
use crate::Error;

/// The way back.
pub(crate) struct Way {
    /// Where everything goes, if somebody said so.
    to: Option<QueueArn>,
    /// Where what was sent here goes, or why nobody knows. SQS knows only where it moved a message from itself.
    strays: Result<QueueArn, String>,
    /// Whether SQS is asked to move what it can.
    pub(crate) by_move_task: bool,
}

impl Way {
    pub(crate) async fn find(arguments: &Arguments, dead_letters: &DeadLetters) -> Result<Self, Error> {
        let DeadLetters { sqs, queue, source } = dead_letters;
        let to = match &arguments.to {
            Some(url) => Some(sqs.describe(&arguments.place.arn("--to", url)?).await?.arn),
            None => None,
        };
        if to.as_ref() == Some(&queue.arn) {
            return Err("--to names the dead-letter queue itself".into());
        }
        let known = to.clone().or_else(|| source.clone());
        let has_to_copy = arguments.has_to_copy();
        let sources = if has_to_copy && known.is_some() { Vec::new() } else { sqs.sources(&queue.arn).await? };
        let name = queue.arn.name();
        let strays = match (known, &sources[..]) {
            (Some(known), _) => Ok(known),
            (None, [only]) => Ok(only.clone()),
            (None, []) => {
                return Err(
                    format!("no queue names {name} in its redrive policy: name the destination with --to").into()
                );
            }
            (None, several) => {
                let all: Vec<&str> = several.iter().map(QueueArn::name).collect();
                Err(format!("sent here, and {name} belongs to {}: --to says where to", all.join(" and ")))
            }
        };
        // SQS moves out of those queues only that are some queue's dead-letter queue.
        Ok(Self { to, strays, by_move_task: !has_to_copy && !sources.is_empty() })
    }

    /// Where SQS is told to move to; nowhere means where each message came from.
    pub(crate) fn moves_to(&self) -> Option<&QueueArn> {
        self.to.as_ref()
    }

    /// Where a copy of this message goes, or why nobody knows.
    pub(crate) fn of<'a>(&'a self, letter: &'a Letter) -> Result<&'a QueueArn, &'a str> {
        let own = self.to.as_ref().or(letter.record.dead_letter_source.as_ref());
        own.map_or_else(|| self.strays.as_ref().map_err(String::as_str), Ok)
    }

    /// Whether SQS itself can move this message.
    pub(crate) fn moves(&self, letter: &Letter) -> bool {
        self.by_move_task && (self.to.is_some() || letter.record.was_dead_lettered)
    }

    /// What is going to happen.
    pub(crate) fn words(&self, arguments: &Arguments, dead_letters: &DeadLetters) -> String {
        let has = format!("{} has about {}", dead_letters.name(), messages(dead_letters.queue.visible));
        if self.by_move_task {
            return format!("{has}: SQS is to move them to {self}");
        }
        let words = arguments.filter.words();
        let which = if words.is_empty() { "they".to_owned() } else { format!("those{words}") };
        let fresh = if arguments.fresh_budget { ", each with a fresh budget" } else { "" };
        format!("{has}: {which} are to be copied to {self} and then deleted{fresh}")
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to.as_ref().map_or("where they came from", QueueArn::name))
    }
}
