//! `requeue dlq discard`: exports messages to a file, and then deletes them. Without a complete
//! export it deletes nothing.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use requeue::queue::{CallErrorKind, MAX_BATCH_ENTRIES};
use serde_json::{Value, json};

use super::export::{Target, line};
use super::held::HeldMessages;
use super::letter::{Filter, Letter};
use super::list::DeadLetterGroups;
use super::outcome::{Outcome, Outcomes};
use super::scan_result::ScanEnd;
use super::{DeadLetters, Purpose, QueueArguments, confirm, messages, note, progress};
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::{Error, output};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: QueueArguments,
    /// A new file for the messages. It appears only when it is complete, and in the end it has
    /// exactly the deleted messages.
    file: PathBuf,
    #[command(flatten)]
    filter: Filter,
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

/// What a second signal leaves while the command deletes.
pub(crate) const FILE_HAS_ALL: &str = "the new file has all chosen messages, also those that are still \
                                       in the queue, so an import of it would double them; \
                                       messages in hand stay hidden {until}: to discard them too, \
                                       discard the same messages after that, to another file";

pub(crate) async fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    // Until the export, which has a progress of its own.
    let (stop, asking) = (Stop::end_at_once()?, progress());
    let dead_letters = arguments.place.find(Purpose::Delete).await?;
    if !arguments.yes && !arguments.dry_run {
        let name = dead_letters.name();
        confirm::require_terminal(&format!("messages of {name} would be deleted"))?;
    }
    dead_letters.warn();
    stop.defer_end();
    drop(asking);
    let Some(exported) = export(arguments, &dead_letters, &stop).await? else {
        note("no file was written, and nothing was deleted");
        return Ok(stop.exit_code(ExitCode::FAILURE));
    };
    let count = u64::try_from(exported.ids.len()).unwrap_or(u64::MAX);
    let name = dead_letters.name();
    let finds_all = arguments.filter.finds_all(name, count > 0);
    let status = if finds_all { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if arguments.dry_run || count == 0 {
        tell(arguments, &dead_letters, &exported, &Deleted::default(), false)?;
        return Ok(status);
    }
    if !arguments.yes && !ask(arguments, name, &exported, &stop).await? {
        keep_gone(&arguments.file, &exported.ids, &HashSet::new())?;
        note("nothing was deleted, and no file stays");
        return Ok(stop.exit_code(ExitCode::FAILURE));
    }
    stop.leaves(FILE_HAS_ALL);
    let progress = progress();
    let mut deleted =
        delete(&arguments.place, &dead_letters, &exported.ids, &stop, &progress).await;
    drop(progress);
    let kept = keep_gone(&arguments.file, &exported.ids, &deleted.gone).map_err(|error| {
        let file = arguments.file.display();
        format!("{error}; import no message of {file}: those that were not deleted are in it too")
    });
    // First the result: an error of the file must not hide the deletions.
    tell(arguments, &dead_letters, &exported, &deleted, stop.is_told())?;
    match (deleted.error.take(), kept.err()) {
        (Some(error), Some(kept)) => Err(format!("{error}; {kept}").into()),
        (Some(error), None) if stop.is_told() => {
            note(&error.to_string());
            Ok(stop.exit_code(ExitCode::FAILURE))
        }
        (Some(error), None) => Err(error),
        (None, Some(kept)) => Err(kept.into()),
        (None, None) if deleted.count == count => Ok(status),
        (None, None) => Ok(stop.exit_code(ExitCode::FAILURE)),
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
    let path = &arguments.file;
    if path.is_file() {
        return Err(format!(
            "{} exists already, and may have the only copy of deleted messages; name another file",
            path.display()
        )
        .into());
    }
    let mut file = if arguments.dry_run { None } else { Some(Target::open_file(path, false)?) };
    if let Some(file) = &file {
        file.tell(stop);
    }
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
                if let Some(file) = &mut file {
                    file.write(&line(letter, false)?)?;
                }
                unreadable += u64::from(letter.record.attributes.is_none());
                exported.groups.add(letter, &dead);
                exported.ids.insert(letter.id.clone());
                if limit.is_some_and(|limit| exported.ids.len() == limit) {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })
        .await;
    let is_released = scan.release().await;
    let looked = walked?;
    let is_complete = scan.tell(&looked) || arguments.filter.has_found_ids();
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
    if !arguments.dry_run && is_complete && !is_released {
        return Err("the messages could not be made visible again, which a discard needs before it \
                    deletes them, for the reason in the note above; nothing was written and nothing \
                    was deleted; remove the reason, and run this again when they are visible"
            .into());
    }
    if !(arguments.dry_run || is_complete) {
        let remedy = if exported.ids.is_empty() {
            "run this again when they are visible"
        } else {
            "run this again when all are visible, or choose fewer messages with --limit"
        };
        return Err(format!(
            "the export would not be complete, so nothing was written and nothing was deleted; \
             {remedy}"
        )
        .into());
    }
    if let Some(file) = file.filter(|_| !exported.ids.is_empty()) {
        file.finish(false)?;
    }
    Ok(Some(exported))
}

/// Deletes the exported messages in a scan of its own, because the answer to the question may have
/// come after their visibility timeout.
pub(crate) async fn delete(
    place: &QueueArguments,
    dead_letters: &DeadLetters,
    exported: &HashSet<String>,
    stop: &Stop,
    progress: &CommandProgress,
) -> Deleted {
    let scan = dead_letters.scan(place, stop, progress);
    let mut scan = scan.one_by_one(None, true).without_count();
    progress.step(format!("deleting from {}", dead_letters.name()));
    progress.count("messages", u64::try_from(exported.len()).ok());
    progress.done(0_u64);
    let mut deleted = Deleted::default();
    let walked = scan
        .walk(async |letters, held| {
            let chosen: Vec<&Letter> =
                letters.iter().filter(|letter| exported.contains(&letter.id)).collect();
            for chunk in chosen.chunks(MAX_BATCH_ENTRIES) {
                deleted.delete(dead_letters, chunk, held).await;
                progress.done(deleted.count);
                if deleted.error.is_some() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            let has_all = deleted.gone.len() == exported.len();
            Ok(if has_all { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
        .await;
    scan.ended_by(deleted.error.as_ref());
    scan.release().await;
    match walked {
        // The result says what is left.
        Ok(looked) if looked.end == ScanEnd::Interrupted => {}
        Ok(looked) => {
            scan.tell(&looked);
        }
        Err(error) => deleted.error = Some(error),
    }
    deleted
}

/// The messages that are deleted.
#[derive(Default)]
pub(crate) struct Deleted {
    pub(crate) count: u64,
    /// Their ids, and those of a request without a response, which may have deleted them.
    pub(crate) gone: HashSet<String>,
    /// The outcome of each message that the command tried to delete.
    pub(crate) outcomes: Outcomes,
    pub(crate) error: Option<Error>,
}

impl Deleted {
    async fn delete(
        &mut self,
        dead_letters: &DeadLetters,
        chunk: &[&Letter],
        held: &mut HeldMessages,
    ) {
        let DeadLetters { sqs, queue, .. } = dead_letters;
        let handles: Vec<&str> =
            chunk.iter().map(|letter| letter.receipt_handle.as_str()).collect();
        match sqs.delete(&queue.arn, &handles).await {
            Ok(deletions) => {
                for (letter, deletion) in chunk.iter().zip(deletions) {
                    let outcome = match deletion {
                        Ok(()) => {
                            held.forget(&letter.id);
                            self.count += 1;
                            self.gone.insert(letter.id.clone());
                            Outcome::done()
                        }
                        Err(error) => Outcome::left(error.code),
                    };
                    self.outcomes.insert(letter.id.clone(), outcome);
                }
            }
            Err(error) => {
                let outcome =
                    if matches!(error.kind, CallErrorKind::Refused | CallErrorKind::Malformed) {
                        Outcome::left(&error.code)
                    } else {
                        self.gone.extend(chunk.iter().map(|letter| letter.id.clone()));
                        Outcome::in_doubt(format!("{}; it may be deleted", error.code))
                    };
                let left = |letter: &&Letter| (letter.id.clone(), outcome.clone());
                self.outcomes.extend(chunk.iter().map(left));
                self.error = Some(sqs.refusal("DeleteMessageBatch", &queue.arn, &error));
            }
        }
    }
}

/// Leaves only those messages in the file that are gone, since an import would double the others.
pub(crate) fn keep_gone(
    file: &Path,
    exported: &HashSet<String>,
    gone: &HashSet<String>,
) -> Result<(), Error> {
    if gone.len() == exported.len() {
        return Ok(());
    }
    if gone.is_empty() {
        return fs::remove_file(file)
            .map_err(|error| format!("{} cannot be removed: {error}", file.display()).into());
    }
    let unreadable = |error| format!("{} cannot be read: {error}", file.display());
    let mut kept = Target::open_file(file, true)?;
    for text in BufReader::new(File::open(file).map_err(unreadable)?).lines() {
        let text = text.map_err(unreadable)?;
        let line: Value = serde_json::from_str(&text)?;
        if line["messageId"].as_str().is_some_and(|id| gone.contains(id)) {
            kept.write(&format!("{text}\n"))?;
        }
    }
    kept.finish(true)
}

fn tell(
    arguments: &Arguments,
    dead_letters: &DeadLetters,
    exported: &Exported,
    Deleted { count: deleted, gone, error, .. }: &Deleted,
    is_interrupted: bool,
) -> Result<(), Error> {
    let deleted = *deleted;
    let count = u64::try_from(exported.ids.len()).unwrap_or(u64::MAX);
    let left = exported.ids.len() - gone.len();
    let file = arguments.file.display().to_string();
    let json = arguments.json.then(|| {
        json!({
            "queue": dead_letters.queue.arn.to_string(),
            "dryRun": arguments.dry_run,
            "file": (!gone.is_empty()).then_some(&file),
            "exported": gone.len(),
            "chosen": count,
            "deleted": deleted,
            "left": left,
            "groups": exported.groups.shapes(),
        })
    });
    let table = match &exported.groups {
        groups if arguments.dry_run && count > 0 => format!("{}\n\n", groups.text()),
        _ => String::new(),
    };
    let result = match count {
        0 => "no message deleted\n".to_owned(),
        _ if arguments.dry_run => format!("{} would be deleted\n", messages(count)),
        _ if gone.is_empty() => "no message deleted\n".to_owned(),
        _ if deleted == 0 => "no message confirmed as deleted\n".to_owned(),
        _ => format!("{} deleted and kept in {file}\n", messages(deleted)),
    };
    let doubt = match gone.len().saturating_sub(usize::try_from(deleted).unwrap_or(usize::MAX)) {
        0 => String::new(),
        doubt => format!("{} may be deleted, kept in {file} too\n", messages(doubt)),
    };
    let left = match left {
        left if left > 0 && !arguments.dry_run => {
            // If no message can be gone, no file stays.
            let next =
                if gone.is_empty() { "give the same command again" } else { "name a new file" };
            let why = match error {
                _ if is_interrupted => "interrupted",
                Some(_) => "because of the error below",
                None => "refused, held by another reader, or no longer there",
            };
            format!("{} not deleted: {why}; to go on, {next}\n", messages(left))
        }
        _ => String::new(),
    };
    let text = [table, result, doubt, left].concat();
    output::result(&text, json.as_ref())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use requeue::Clock;
    use requeue::aws::SdkConfig;
    use requeue::embedded::EmbeddedSqs;

    use super::super::sqs::Sqs;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_progress_counts_the_messages_that_are_deleted() {
        let sqs = EmbeddedSqs::new(Clock::starting_at(
            SystemTime::UNIX_EPOCH + Duration::from_hours(500_000),
        ));
        let queue = sqs.create_queue("orders-dlq", []).expect("a name");
        let mut ids = Vec::new();
        for number in 0..30 {
            let request = sqs.client().send_message().queue_url(queue.url());
            let sent = request.message_body(number.to_string()).send().await.expect("sent");
            ids.extend(sent.message_id);
        }
        let chosen: HashSet<String> = ids.into_iter().step_by(2).collect();
        let asked = Sqs::new(sqs.client());
        let described = asked.describe(&queue).await.expect("it is there");
        let sdk = SdkConfig::builder().build();
        let (source, doubt) = (None, None);
        let dead_letters = DeadLetters { sdk, sqs: asked, queue: described, source, doubt };
        let place = QueueArguments::new(None, None, None, 100);
        let stop = Stop::listen().expect("signals");
        let progress = CommandProgress::silent("discard");
        let deleted = delete(&place, &dead_letters, &chosen, &stop, &progress).await;
        assert_eq!((deleted.count, sqs.message_count(&queue).expect("it is there")), (15, 15));
        let state = progress.watch().borrow().clone();
        assert_eq!((state.unit, state.done, state.total), ("messages", 15, Some(15)));
    }

    #[test]
    fn a_file_of_an_interrupted_discard_has_only_the_messages_that_are_gone() {
        let directory = std::env::temp_dir().join(format!("discard-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let file = directory.join("gone.jsonl");
        let line = |id: &str| format!("{{\"messageId\":\"{id}\",\"body\":\"{id}\"}}\n");
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<HashSet<_>>();
        let all = ["a", "b", "c"];
        for (gone, left) in [(&all[..], "abc"), (&["a", "c"], "ac"), (&["b"], "b")] {
            std::fs::write(&file, all.map(line).concat()).expect("a file");
            keep_gone(&file, &ids(&all), &ids(gone)).expect("it is written anew");
            let expected: String = left.chars().map(|id| line(&id.to_string())).collect();
            assert_eq!(std::fs::read_to_string(&file).expect("a file"), expected, "{gone:?}");
        }
        keep_gone(&file, &ids(&all), &HashSet::new()).expect("it is removed");
        std::fs::remove_dir(directory).expect("nothing is in it");
    }
}
