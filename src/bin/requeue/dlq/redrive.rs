//! `requeue dlq redrive`: which way messages go back, and what has become of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::process::ExitCode;

use requeue::queue::QueueArn;
use serde::Serialize;
use tokio::time::Instant;

use super::copy::{Copied, Copier};
use super::letter::{Filter, moment};
use super::list::{GroupShape, Groups};
use super::moving::{self, MoveEnd};
use super::scan::End;
use super::stop::Stop;
use super::{DeadLetters, Place, confirm, messages, note};
use crate::Error;

pub(crate) const HELP: &str = "What a redrive policy moved here, SQS moves back itself (StartMessageMoveTask), each message to the queue it came \
    from; Ctrl-C cancels that. What was sent here (REQUEUE_DEAD_LETTER=direct) SQS cannot move: it is copied, as is whatever is chosen by \
    --class, --reason, --id or --limit. Copying sends ten messages at most, sees each one confirmed by its name, and only then deletes it \
    here. What is not confirmed stays, and becomes visible again. Nothing is lost, wherever this is interrupted; killed between a \
    confirmation and the deletion, a message is in both queues, its body with the same originalMessageId, which is the handler's \
    idempotency key.\n\n\
    A message that was brought back starts afresh in Requeue, with all its retries and all its time, up to its tenth redrive, and if it was \
    sent more than two minutes after its last try. With --fresh-budget it does so in any case: the copy is the message as first delivered, \
    with its originalMessageId.\n\n\
    Permissions: sqs:ListDeadLetterSourceQueues, sqs:GetQueueAttributes, sqs:ReceiveMessage, sqs:DeleteMessage, \
    sqs:ChangeMessageVisibility here, sqs:SendMessage there, with --to also sqs:GetQueueAttributes there; sqs:StartMessageMoveTask, sqs:ListMessageMoveTasks and \
    sqs:CancelMessageMoveTask unless --copy is given.\n\n\
    Ends with status 0, with 1 if something was not brought back that should have been, and with 130 after Ctrl-C.";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    filter: Filter,
    /// Where to. [default: where SQS moved each from; for copies the one queue whose redrive policy names this one]
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// So many messages in a second at most.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=500))]
    rate: Option<u16>,
    /// Copies also what SQS could move.
    #[arg(long)]
    copy: bool,
    /// Gives every message all its retries and all its time again, also after the tenth redrive. Copies.
    #[arg(long)]
    fresh_budget: bool,
    /// Shows what would be done, and changes nothing.
    #[arg(long, conflicts_with = "follow")]
    dry_run: bool,
    /// Follows the move task that is running already, and cancels it on Ctrl-C.
    #[arg(long)]
    follow: bool,
    /// Does not ask.
    #[arg(long)]
    yes: bool,
    /// The result as JSON.
    #[arg(long)]
    json: bool,
}

/// Where copies go, or why nobody knows.
type Destination = Result<QueueArn, String>;

struct Plan<'a> {
    arguments: &'a Arguments,
    dead_letters: &'a DeadLetters,
    destination: Destination,
    /// Whether SQS is asked to move what it can.
    by_move_task: bool,
}

/// What has become of the messages.
#[derive(Default)]
struct Redrive {
    moved: u64,
    copied: Copied,
    is_complete: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Redriven<'a> {
    queue: String,
    moved: u64,
    copied: u64,
    copied_not_deleted: &'a [String],
    failed: &'a BTreeMap<String, u64>,
    not_chosen: u64,
    complete: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Planned<'a> {
    queue: String,
    dry_run: bool,
    to_move: u64,
    to_copy: u64,
    not_chosen: u64,
    destination: Option<String>,
    complete: bool,
    groups: Vec<GroupShape<'a>>,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let dead_letters = arguments.place.find().await?;
    if arguments.follow {
        return follow(arguments, &dead_letters).await;
    }
    let plan = Plan::new(arguments, &dead_letters).await?;
    if arguments.dry_run {
        return plan.dry_run().await;
    }
    if !plan.by_move_task {
        plan.copies_to()?;
    } else if let Some(task) = moving::running(&dead_letters.sqs, &dead_letters.queue.arn).await? {
        return Err(format!(
            "SQS is moving messages out of {} since {}, {} so far: --follow watches that to its end",
            dead_letters.name(),
            task.started.and_then(moment).unwrap_or_default(),
            task.moved
        )
        .into());
    }
    if !arguments.yes && !confirm::agreed(&plan.words())? {
        note("nothing was done");
        return Ok(ExitCode::FAILURE);
    }
    plan.carry_out().await
}

impl<'a> Plan<'a> {
    async fn new(arguments: &'a Arguments, dead_letters: &'a DeadLetters) -> Result<Self, Error> {
        let DeadLetters { sqs, queue, source } = dead_letters;
        let has_to_copy = arguments.copy || arguments.fresh_budget || arguments.filter.is_set();
        let named = match &arguments.to {
            Some(url) => Some(sqs.describe(&arguments.place.arn("--to", url)?).await?.arn),
            None => None,
        };
        if named.as_ref() == Some(&queue.arn) {
            return Err("--to names the dead-letter queue itself".into());
        }
        let known = named.clone().or_else(|| source.clone());
        // SQS moves out of those queues only that are some queue's dead-letter queue.
        let sources = if has_to_copy && known.is_some() { Vec::new() } else { sqs.sources(&queue.arn).await? };
        let by_move_task = !has_to_copy && !sources.is_empty();
        let name = queue.arn.name();
        let destination = match (known, &sources[..]) {
            (Some(known), _) => Ok(known),
            (None, [only]) => Ok(only.clone()),
            (None, []) => Err(format!("no queue names {name} in its redrive policy: name the destination with --to")),
            (None, several) => {
                let names: Vec<&str> = several.iter().map(QueueArn::name).collect();
                Err(format!("{name} belongs to {}: name the destination of copies with --to", names.join(", ")))
            }
        };
        Ok(Self { arguments, dead_letters, destination, by_move_task })
    }

    fn copies_to(&self) -> Result<&QueueArn, Error> {
        self.destination.as_ref().map_err(|why| why.clone().into())
    }

    /// Where a move task is told to move to; nowhere means where each message came from.
    fn moves_to(&self) -> Option<&QueueArn> {
        self.destination.as_ref().ok().filter(|_| self.arguments.to.is_some())
    }

    fn words(&self) -> String {
        let DeadLetters { queue, .. } = self.dead_letters;
        let (name, about) = (queue.arn.name(), messages(queue.visible));
        match (&self.destination, self.by_move_task) {
            (_, true) => {
                let to = self.moves_to().map_or("where they came from", QueueArn::name);
                format!("SQS is to move about {about} of {name} to {to}")
            }
            (Ok(to), false) => {
                let words = self.arguments.filter.words();
                let fresh = if self.arguments.fresh_budget { ", each with a fresh budget" } else { "" };
                let all = if words.is_empty() {
                    format!("about {about} of {name}")
                } else {
                    format!("of about {about} of {name} those{words}")
                };
                format!("{all} are to be copied to {} and deleted here{fresh}", to.name())
            }
            (Err(why), false) => why.clone(),
        }
    }

    async fn carry_out(&self) -> Result<ExitCode, Error> {
        let stop = Stop::listen()?;
        let mut result = Redrive { is_complete: true, ..Redrive::default() };
        let mut trouble = None;
        let mut has_to_copy = !self.by_move_task;
        if self.by_move_task {
            let moved = self.move_all(&stop).await?;
            result.moved = moved.messages;
            match moved.end {
                MoveEnd::Completed => {}
                MoveEnd::Cancelled => result.is_complete = false,
                MoveEnd::SourceUnknown => has_to_copy = !stop.is_told(),
                MoveEnd::Failed(why) => trouble = Some(format!("SQS's move task failed: {why}").into()),
            }
        }
        if has_to_copy {
            match self.copy_all(&stop, &mut result).await {
                Ok(()) => trouble = result.copied.fatal.take(),
                Err(error) => trouble = Some(error),
            }
        }
        self.tell(&result, &stop)?;
        if let Some(error) = trouble {
            return Err(error);
        }
        let is_done = result.is_complete && result.copied.failed.is_empty() && result.copied.not_deleted.is_empty();
        Ok(stop.exit_code(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
    }

    async fn move_all(&self, stop: &Stop) -> Result<moving::Moved, Error> {
        let DeadLetters { sqs, queue, .. } = self.dead_letters;
        let handle = sqs.start_move(&queue.arn, self.moves_to(), self.arguments.rate).await?;
        moving::follow(sqs, &queue.arn, &handle, stop).await
    }

    async fn copy_all(&self, stop: &Stop, result: &mut Redrive) -> Result<(), Error> {
        let to = self.copies_to()?;
        if self.by_move_task {
            note(&format!(
                "SQS does not know where the others belong, since they were sent here: copying them to {}",
                to.name()
            ));
        }
        let DeadLetters { sqs, queue, .. } = self.dead_letters;
        let Arguments { place, filter, fresh_budget, rate, .. } = self.arguments;
        let mut scan = self.dead_letters.scan(place, stop).one_by_one(*rate, filter.is_set());
        let mut copier = Copier {
            sqs,
            from: &queue.arn,
            to,
            filter,
            fresh_budget: *fresh_budget,
            rate: *rate,
            stop,
            time_in_hand: scan.time_in_hand(),
            began: Instant::now(),
            blocked: BTreeSet::new(),
            copied: Copied::default(),
        };
        let walked = scan.walk(async |letters, held| Ok(copier.copy(letters, held).await)).await;
        result.copied = copier.copied;
        let is_released = scan.release().await;
        let end = walked?;
        result.is_complete &= scan.tell(end) && is_released;
        Ok(())
    }

    fn tell(&self, result: &Redrive, stop: &Stop) -> Result<(), Error> {
        let copied = &result.copied;
        let is_complete = result.is_complete && !stop.is_told();
        if self.arguments.json {
            let redriven = Redriven {
                queue: self.dead_letters.queue.arn.to_string(),
                moved: result.moved,
                copied: copied.copied,
                copied_not_deleted: &copied.not_deleted,
                failed: &copied.failed,
                not_chosen: copied.not_chosen,
                complete: is_complete,
            };
            anstream::println!("{}", serde_json::to_string_pretty(&redriven)?);
            return Ok(());
        }
        if self.by_move_task {
            let to = match self.moves_to() {
                _ if self.arguments.follow => String::new(),
                Some(to) => format!(" to {}", to.name()),
                None => " to where they came from".to_owned(),
            };
            anstream::println!("{} moved{to}", messages(result.moved));
        }
        if let (Ok(to), true) = (&self.destination, !self.by_move_task || copied.copied > 0) {
            let left = if copied.not_chosen > 0 { format!(", {} left here", copied.not_chosen) } else { String::new() };
            anstream::println!("{} copied to {}{left}", messages(copied.copied), to.name());
        }
        for (code, count) in &copied.failed {
            anstream::println!("{} not copied, and still here: {code}", messages(*count));
        }
        for id in &copied.not_deleted {
            anstream::println!("{id} copied, but not deleted here: brought back again, it would be there twice");
        }
        if stop.is_told() && self.by_move_task {
            note("interrupted: what was not brought back is still here");
        }
        Ok(())
    }

    async fn dry_run(&self) -> Result<ExitCode, Error> {
        let Arguments { place, filter, json, .. } = self.arguments;
        self.dead_letters.warn();
        let stop = Stop::listen()?;
        let mut scan = self.dead_letters.scan(place, &stop);
        let limit = filter.limit.unwrap_or(u64::MAX);
        let mut groups = Groups::default();
        let walked = scan
            .walk(async |letters, _| {
                for letter in &letters {
                    let dead = letter.read();
                    if groups.count() < limit && filter.chooses(letter, &dead) {
                        groups.add(letter, &dead);
                    }
                }
                Ok(ControlFlow::Continue(()))
            })
            .await;
        let is_released = scan.release().await;
        let end = walked?;
        let is_complete = scan.tell(end);
        if end == End::Interrupted {
            return Ok(stop.exit_code(ExitCode::FAILURE));
        }
        let to_copy = if self.by_move_task { groups.sent_here() } else { groups.count() };
        let to_move = groups.count() - to_copy;
        let not_chosen = u64::try_from(scan.looked_at()).unwrap_or(u64::MAX).saturating_sub(groups.count());
        if *json {
            let planned = Planned {
                queue: self.dead_letters.queue.arn.to_string(),
                dry_run: true,
                to_move,
                to_copy,
                not_chosen,
                destination: self.destination.as_ref().ok().map(ToString::to_string),
                complete: is_complete,
                groups: groups.shapes(),
            };
            anstream::println!("{}", serde_json::to_string_pretty(&planned)?);
        } else {
            self.tell_plan(&groups, to_move, to_copy, not_chosen);
        }
        Ok(if is_released { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn tell_plan(&self, groups: &Groups, to_move: u64, to_copy: u64, not_chosen: u64) {
        if groups.count() > 0 {
            anstream::println!("{}\n", groups.table());
        }
        if self.by_move_task {
            let to = self.moves_to().map_or("where they came from", QueueArn::name);
            anstream::println!("{} would be moved to {to}", messages(to_move));
        }
        match &self.destination {
            Ok(to) if to_copy > 0 || !self.by_move_task => {
                anstream::println!("{} would be copied to {} and deleted here", messages(to_copy), to.name());
            }
            Err(why) if to_copy > 0 => {
                anstream::println!("{} cannot be brought back yet: {why}", messages(to_copy));
                // By a body's own word, and so only for the person to read.
                if let Some(source) = &groups.source {
                    anstream::println!("one of them says that it came from {source}");
                }
            }
            Ok(_) | Err(_) => {}
        }
        if not_chosen > 0 {
            anstream::println!("{} would be left here", messages(not_chosen));
        }
        groups.tell();
    }
}

async fn follow(arguments: &Arguments, dead_letters: &DeadLetters) -> Result<ExitCode, Error> {
    let DeadLetters { sqs, queue, .. } = dead_letters;
    let Some(task) = moving::running(sqs, &queue.arn).await? else {
        return Err(format!("SQS is moving nothing out of {} just now", queue.arn.name()).into());
    };
    let plan = Plan { arguments, dead_letters, destination: Err(String::new()), by_move_task: true };
    let stop = Stop::listen()?;
    let moved = moving::follow(sqs, &queue.arn, &task.handle.unwrap_or_default(), &stop).await?;
    let is_complete = moved.end == MoveEnd::Completed;
    plan.tell(&Redrive { moved: moved.messages, is_complete, ..Redrive::default() }, &stop)?;
    match moved.end {
        MoveEnd::Completed | MoveEnd::Cancelled => {
            Ok(stop.exit_code(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
        }
        MoveEnd::SourceUnknown => Err("SQS does not know where the others belong: redrive copies them".into()),
        MoveEnd::Failed(why) => Err(format!("SQS's move task failed: {why}").into()),
    }
}
