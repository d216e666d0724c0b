//! `requeue dlq redrive --dry-run`: what would be done.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::process::ExitCode;

use requeue::queue::QueueArn;
use serde::Serialize;

use super::letter::Letter;
use super::list::{GroupShape, Groups};
use super::redrive::Arguments;
use super::scan::End;
use super::stop::Stop;
use super::way::Way;
use super::{DeadLetters, messages};
use crate::Error;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Planned<'a> {
    queue: String,
    dry_run: bool,
    #[serde(flatten)]
    ways: &'a Ways,
    not_chosen: u64,
    complete: bool,
    groups: Vec<GroupShape<'a>>,
}

/// Where how many would go.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Ways {
    to_move: u64,
    /// By the name of the queue.
    to_copy: BTreeMap<String, u64>,
    /// By the reason for which nobody knows where to.
    not_possible: BTreeMap<String, u64>,
}

impl Ways {
    fn add(&mut self, way: &Way, letter: &Letter) {
        let count = match way.of(letter) {
            _ if way.moves(letter) => &mut self.to_move,
            Ok(to) => self.to_copy.entry(to.name().to_owned()).or_default(),
            Err(why) => self.not_possible.entry(why.to_owned()).or_default(),
        };
        *count += 1;
    }
}

pub(crate) async fn run(arguments: &Arguments, dead_letters: &DeadLetters, way: &Way) -> Result<ExitCode, Error> {
    dead_letters.warn();
    let stop = Stop::listen()?;
    let mut scan = dead_letters.scan(&arguments.place, &stop);
    let limit = arguments.filter.limit.unwrap_or(u64::MAX);
    let (mut groups, mut ways) = (Groups::default(), Ways::default());
    let walked = scan
        .walk(async |letters, _| {
            for letter in &letters {
                let dead = letter.read();
                if groups.count() < limit && arguments.filter.chooses(letter, &dead) {
                    groups.add(letter, &dead);
                    ways.add(way, letter);
                }
            }
            Ok(ControlFlow::Continue(()))
        })
        .await;
    let is_released = scan.release().await;
    let end = walked?;
    let complete = scan.tell(end);
    if end == End::Interrupted {
        return Ok(stop.exit_code(ExitCode::FAILURE));
    }
    let not_chosen = u64::try_from(scan.looked_at()).unwrap_or(u64::MAX).saturating_sub(groups.count());
    if arguments.json {
        let queue = dead_letters.queue.arn.to_string();
        let planned = Planned { queue, dry_run: true, ways: &ways, not_chosen, complete, groups: groups.shapes() };
        anstream::println!("{}", serde_json::to_string_pretty(&planned)?);
    } else {
        tell(way, &ways, &groups, not_chosen);
    }
    Ok(if is_released { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tell(way: &Way, ways: &Ways, groups: &Groups, not_chosen: u64) {
    if groups.count() > 0 {
        anstream::println!("{}\n", groups.table());
    }
    if way.by_move_task {
        let to = way.moves_to().map_or("where they came from", QueueArn::name);
        anstream::println!("{} would be moved by SQS to {to}", messages(ways.to_move));
    } else if ways.to_copy.is_empty() {
        anstream::println!("no message would be copied");
    }
    for (to, count) in &ways.to_copy {
        anstream::println!("{} would be copied to {to} and deleted here", messages(*count));
    }
    for (why, count) in &ways.not_possible {
        anstream::println!("{} would stay here: {why}", messages(*count));
        // By a body's own word, and so only for the person to read.
        if let Some(source) = &groups.source {
            anstream::println!("one of them says that it came from {source}");
        }
    }
    if not_chosen > 0 {
        anstream::println!("{} would stay here, not chosen", messages(not_chosen));
    }
    groups.tell();
}
