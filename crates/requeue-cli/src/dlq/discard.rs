//! `requeue dlq discard`: exports messages to a file, and then deletes them. Without a complete
//! export it deletes nothing.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use requeue::queue::MAX_BATCH_ENTRIES;
use serde_json::json;

use super::export::{Target, line};
use super::held::HeldMessages;
use super::letter::{Filter, Letter};
use super::list::DeadLetterGroups;
use super::scan_result::ScanEnd;
use super::{DeadLetters, QueueArguments, confirm, messages, note, progress};
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::{Error, output};

#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "options of a command line")]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: QueueArguments,
    /// The file for the export. It must be a regular file, and it appears only when it is complete.
    file: PathBuf,
    #[command(flatten)]
    filter: Filter,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
    /// Show the messages that would be deleted, and change nothing. Writes no file.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation.
    #[arg(long)]
    yes: bool,
    /// Print the result as JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// The messages in the file.
#[derive(Default)]
struct Exported {
    ids: HashSet<String>,
    groups: DeadLetterGroups,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let dead_letters = arguments.place.find().await?;
    if !arguments.yes && !arguments.dry_run {
        let name = dead_letters.name();
        confirm::require_terminal(&format!("messages of {name} would be deleted"))?;
    }
    dead_letters.warn().await;
    let stop = Stop::listen()?;
    let Some(exported) = export(arguments, &dead_letters, &stop).await? else {
        return Ok(stop.exit_code(ExitCode::FAILURE));
    };
    let count = u64::try_from(exported.ids.len()).unwrap_or(u64::MAX);
    let name = dead_letters.name();
    if count == 0 {
        note(&format!("no message{} in {name}", arguments.filter.words()));
    }
    if arguments.dry_run || count == 0 {
        tell(arguments, &dead_letters, &exported, 0)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.yes && !ask(arguments, name, &exported, &stop).await? {
        note("nothing was deleted; the file stays");
        return Ok(stop.exit_code(ExitCode::FAILURE));
    }
    let progress = CommandProgress::shown(format!("deleting from {name}"));
    let (deleted, failure) =
        delete(&arguments.place, &dead_letters, &exported.ids, &stop, &progress).await;
    drop(progress);
    tell(arguments, &dead_letters, &exported, deleted)?;
    match failure {
        Some(error) => Err(error),
        None if deleted == count => Ok(ExitCode::SUCCESS),
        None => Ok(stop.exit_code(ExitCode::FAILURE)),
    }
}

async fn ask(
    arguments: &Arguments,
    queue: &str,
    exported: &Exported,
    stop: &Stop,
) -> Result<bool, Error> {
    output::note(format_args!("{}\n", exported.groups.text()));
    let question = format!(
        "{queue}: {} ({}) are in {} and will be deleted from the queue",
        messages(exported.ids.len()),
        exported.groups.by_class(),
        arguments.file.display()
    );
    confirm::agreed(&question, stop).await
}

/// Writes the chosen messages to the file; `None` after a signal.
async fn export(
    arguments: &Arguments,
    dead_letters: &DeadLetters,
    stop: &Stop,
) -> Result<Option<Exported>, Error> {
    let mut file = if arguments.dry_run {
        None
    } else {
        Some(Target::open_file(&arguments.file, arguments.force)?)
    };
    let mut exported = Exported::default();
    let limit = arguments.filter.limit.and_then(|limit| usize::try_from(limit).ok());
    let mut unreadable = 0;
    let progress = progress();
    let mut scan = dead_letters.scan(&arguments.place, stop, &progress);
    let walked = scan
        .walk(async |letters, _| {
            for letter in &letters {
                let dead = letter.read();
                if !arguments.filter.chooses(letter, &dead) {
                    continue;
                }
                if limit.is_some_and(|limit| exported.ids.len() == limit) {
                    return Ok(ControlFlow::Break(()));
                }
                if let Some(file) = &mut file {
                    file.write(&line(letter, false)?)?;
                }
                unreadable += u64::from(letter.record.attributes.is_none());
                exported.groups.add(letter, &dead);
                exported.ids.insert(letter.id.clone());
            }
            Ok(ControlFlow::Continue(()))
        })
        .await;
    let is_released = scan.release().await;
    let looked = walked?;
    let is_complete = scan.tell(&looked);
    if looked.end == ScanEnd::Interrupted {
        return Ok(None);
    }
    if unreadable > 0 {
        return Err(format!(
            "the attributes of {} cannot be read, so no export of them is complete; nothing was \
             deleted; choose other messages",
            messages(unreadable)
        )
        .into());
    }
    if !(arguments.dry_run || is_complete && is_released) {
        return Err("the export would not be complete, so nothing was written and nothing was \
                    deleted; choose fewer messages with --limit, or run this again"
            .into());
    }
    if let Some(file) = file.filter(|_| !exported.ids.is_empty()) {
        file.finish(arguments.force)?;
    }
    Ok(Some(exported))
}

/// Deletes the exported messages in a scan of its own, because the answer to the question may have
/// come after their visibility timeout. Returns the number of deleted ones, and the error that ended
/// it.
pub(crate) async fn delete(
    place: &QueueArguments,
    dead_letters: &DeadLetters,
    exported: &HashSet<String>,
    stop: &Stop,
    progress: &CommandProgress,
) -> (u64, Option<Error>) {
    let mut scan = dead_letters.scan(place, stop, progress).one_by_one(None, true);
    let (mut deleted, mut failure) = (0, None);
    let walked = scan
        .walk(async |letters, held| {
            let chosen: Vec<&Letter> =
                letters.iter().filter(|letter| exported.contains(&letter.id)).collect();
            for chunk in chosen.chunks(MAX_BATCH_ENTRIES) {
                match delete_chunk(dead_letters, chunk, held).await {
                    Ok(count) => deleted += count,
                    Err(error) => {
                        failure = Some(error);
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            let has_all = usize::try_from(deleted).is_ok_and(|count| count == exported.len());
            Ok(if has_all { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
        .await;
    scan.release().await;
    match walked {
        Ok(looked) => {
            scan.tell(&looked);
            (deleted, failure)
        }
        Err(error) => (deleted, Some(error)),
    }
}

async fn delete_chunk(
    dead_letters: &DeadLetters,
    chunk: &[&Letter],
    held: &mut HeldMessages,
) -> Result<u64, Error> {
    let DeadLetters { sqs, queue, .. } = dead_letters;
    let handles: Vec<&str> = chunk.iter().map(|letter| letter.receipt_handle.as_str()).collect();
    let deletions = sqs
        .delete(&queue.arn, &handles)
        .await
        .map_err(|error| sqs.refusal("DeleteMessageBatch", &queue.arn, &error))?;
    let mut deleted = 0;
    for (letter, deletion) in chunk.iter().zip(deletions) {
        if deletion.is_ok() {
            held.forget(&letter.id);
            deleted += 1;
        }
    }
    Ok(deleted)
}

fn tell(
    arguments: &Arguments,
    dead_letters: &DeadLetters,
    exported: &Exported,
    deleted: u64,
) -> Result<(), Error> {
    let count = u64::try_from(exported.ids.len()).unwrap_or(u64::MAX);
    let file = arguments.file.display().to_string();
    if arguments.json {
        return output::json(&json!({
            "queue": dead_letters.queue.arn.to_string(),
            "dryRun": arguments.dry_run,
            "file": if arguments.dry_run || count == 0 { None } else { Some(file) },
            "exported": if arguments.dry_run { 0 } else { count },
            "chosen": count,
            "deleted": deleted,
            "groups": exported.groups.shapes(),
        }));
    }
    let table = match &exported.groups {
        groups if arguments.dry_run && count > 0 => format!("{}\n\n", groups.text()),
        _ => String::new(),
    };
    let result = match count {
        0 => "no message deleted\n".to_owned(),
        _ if arguments.dry_run => format!("{} would be deleted\n", messages(count)),
        _ => format!("{} deleted; they are in {file}\n", messages(deleted)),
    };
    let left = match count - deleted {
        left if left > 0 && !arguments.dry_run => {
            format!("{} not deleted; another reader may hold them\n", messages(left))
        }
        _ => String::new(),
    };
    let text = [table, result, left].concat();
    output::text(&text).inspect_err(|_| output::note(text.trim_end()))
}
