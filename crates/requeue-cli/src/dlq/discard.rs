//! `requeue dlq discard`: deletes messages after a complete export of them to a file.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use requeue::queue::MAX_BATCH_ENTRIES;
use serde_json::{Value, json};

use super::export::{Exported, Target, export};
use super::letter::{Filter, Letter};
use super::outcome::{self, Outcomes};
use super::queue::{DeadLetters, Purpose, QueueArguments, agreed, progress, require_terminal};
use super::scan::ScanEnd;
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::table::messages;
use crate::{Error, output};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: QueueArguments,
    /// A new file for the messages. It appears only when it is complete, and in the end it has
    /// exactly the deleted messages.
    #[arg(index = 1)]
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

pub(crate) const FILE_HAS_ALL: &str = "the new file has all chosen messages, also those that are still \
                                       in the queue, so an import of it would double them; \
                                       messages in flight stay hidden {until}: to discard them too, \
                                       discard the same messages after that, to another file";

pub(crate) async fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let (stop, looking) = (Stop::end_unchanged()?, progress());
    let dead_letters = arguments.place.find(Purpose::Delete).await?;
    let name = dead_letters.name();
    if !arguments.yes && !arguments.dry_run {
        require_terminal(&format!("messages of {name} would be deleted"))?;
    }
    dead_letters.warn();
    stop.defer_end();
    let Some((exported, refusal)) = keep(arguments, &dead_letters, &stop, &looking).await? else {
        output::remark("no file was written, and nothing was deleted");
        return Ok(stop.status(false));
    };
    drop(looking);
    let count = exported.ids.len();
    let finds_all = arguments.filter.finds_all(name, count > 0);
    let status = if finds_all { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if arguments.dry_run || count == 0 {
        tell(arguments, &dead_letters, &exported, &Outcomes::default(), false)?;
        if let Some(refusal) = refusal {
            output::remark(&format!("a discard would now be refused: {refusal}"));
        } else if count == 0 {
            dead_letters.tell_waiting().await;
        }
        return Ok(status);
    }
    let question = format!(
        "{name}: {} ({}) are in {} and will be deleted from the queue",
        messages(count),
        exported.groups.by_class(),
        arguments.file.display()
    );
    if !arguments.yes {
        output::note(format_args!("{}\n", exported.groups.text()));
    }
    if !arguments.yes && !agreed(&question, &stop).await? {
        keep_gone(&arguments.file, &exported.ids, &HashSet::new())?;
        output::remark("nothing was deleted, and no file stays");
        return Ok(stop.status(false));
    }
    output::remark(&dead_letters.if_killed(None));
    stop.leaves(FILE_HAS_ALL);
    let deleting = progress();
    let mut deleted = delete(&dead_letters, &exported.ids, &stop, &deleting).await;
    drop(deleting);
    let kept = keep_gone(&arguments.file, &exported.ids, &deleted.gone()).map_err(|error| {
        let file = arguments.file.display();
        format!("{error}; import no message of {file}: those that were not deleted are in it too")
    });
    // First the result: an error of the file must not hide the deletions.
    tell(arguments, &dead_letters, &exported, &deleted, stop.is_told())?;
    match (deleted.error.take(), kept.err()) {
        (Some(error), Some(kept)) => Err(format!("{error}; {kept}").into()),
        (Some(error), None) if stop.is_told() => {
            output::remark(&error.to_string());
            Ok(stop.status(false))
        }
        (Some(error), None) => Err(error),
        (None, Some(kept)) => Err(kept.into()),
        (None, None) if deleted.done() == count => Ok(status),
        (None, None) => Ok(stop.status(false)),
    }
}

/// Writes the chosen messages to the file, or returns why a discard would not; `None` after a
/// signal.
async fn keep(
    arguments: &Arguments,
    dead_letters: &DeadLetters,
    stop: &Stop,
    progress: &CommandProgress,
) -> Result<Option<(Exported, Option<String>)>, Error> {
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
    let scan = dead_letters.scan(stop, progress);
    let (exported, looked) = export(scan, &arguments.filter, file.as_mut(), false).await?;
    if looked.end == ScanEnd::Interrupted {
        return Ok(None);
    }
    let is_complete = looked.is_complete() || arguments.filter.has_found_ids();
    let refusal = match () {
        () if exported.unreadable > 0 => Some(format!(
            "the attributes of {} cannot be read, so no export of them is complete; choose other \
             messages",
            messages(exported.unreadable)
        )),
        () if !is_complete => Some(format!(
            "the export would not be complete; run this again when all messages are visible{}",
            if exported.ids.is_empty() { "" } else { ", or choose fewer with --limit" }
        )),
        () if !looked.is_released() => Some(
            "the messages could not be made visible again, which a discard needs before it deletes \
             them, for the reason in the note above; remove the reason, and run this again when \
             they are visible"
                .to_owned(),
        ),
        () => None,
    };
    if let Some(refusal) = refusal.as_ref().filter(|_| !arguments.dry_run) {
        return Err(format!("{refusal}; nothing was written, and nothing was deleted").into());
    }
    if let Some(file) = file.filter(|_| !exported.ids.is_empty()) {
        file.finish()?;
    }
    Ok(Some((exported, refusal)))
}

/// In a scan of its own: the user may have replied after the visibility timeout.
pub(crate) async fn delete(
    dead_letters: &DeadLetters,
    exported: &HashSet<String>,
    stop: &Stop,
    progress: &CommandProgress,
) -> Outcomes {
    let scan = dead_letters.scan(stop, progress).one_by_one(None, true);
    progress.step(format!("deleting from {}", dead_letters.name()));
    progress.count("messages", u64::try_from(exported.len()).ok());
    progress.done(0_u64);
    let (mut deleted, mut count) = (Outcomes::default(), 0);
    let looked = scan.run(async |letters, held| {
        let chosen: Vec<&Letter> =
            letters.iter().filter(|letter| exported.contains(&letter.id)).collect();
        for chunk in chosen.chunks(MAX_BATCH_ENTRIES) {
            let (outcomes, error) = outcome::delete(dead_letters, chunk).await;
            for (letter, outcome) in chunk.iter().zip(outcomes) {
                if outcome.is_done {
                    held.forget(&letter.id);
                    count += 1;
                }
                deleted.by_id.insert(letter.id.clone(), outcome);
            }
            progress.done(count);
            error.map_or(Ok(()), Err)?;
        }
        let has_all = count == exported.len();
        Ok(if has_all { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    match looked.await.into_result() {
        // The result shows the rest.
        Ok(looked) if looked.end == ScanEnd::Interrupted => {}
        Ok(looked) => looked.tell(&dead_letters.queue, progress),
        Err(error) => deleted.error = Some(error),
    }
    deleted
}

/// Removes from the file the messages still in the queue, since an import would duplicate them.
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
    kept.finish()
}

/// The result for the terminal and for the page, without the messages that stay.
pub(crate) fn lines(outcomes: &Outcomes, file: &Path) -> Vec<String> {
    let (deleted, gone, file) = (outcomes.done(), outcomes.gone().len(), file.display());
    let mut lines = vec![match (deleted, gone) {
        (0, 0) => "no message deleted".to_owned(),
        (0, _) => "no message confirmed as deleted".to_owned(),
        _ => format!("{} deleted and kept in {file}", messages(deleted)),
    }];
    if gone > deleted {
        lines.push(format!("{} may be deleted, kept in {file} too", messages(gone - deleted)));
    }
    lines
}

fn tell(
    arguments: &Arguments,
    dead_letters: &DeadLetters,
    exported: &Exported,
    outcomes: &Outcomes,
    is_interrupted: bool,
) -> Result<(), Error> {
    let (gone, count) = (outcomes.gone().len(), exported.ids.len());
    let left = count - gone;
    let json = arguments.json.then(|| {
        json!({
            "queue": dead_letters.queue.arn.to_string(),
            "dryRun": arguments.dry_run,
            "file": (gone > 0).then(|| arguments.file.display().to_string()),
            "exported": gone,
            "chosen": count,
            "deleted": outcomes.done(),
            "left": left,
            "groups": exported.groups,
        })
    });
    if arguments.dry_run && count > 0 {
        let table = exported.groups.text();
        let text = format!("{table}\n\n{} would be deleted\n", messages(count));
        return output::result(&text, json.as_ref());
    }
    let mut lines = lines(outcomes, &arguments.file);
    if left > 0 {
        // If no message can be gone, no file stays.
        let next = if gone == 0 { "give the same command again" } else { "name a new file" };
        let why = match outcomes.error {
            _ if is_interrupted => "interrupted",
            Some(_) => "because of the error below",
            None => "refused, held by another reader, or no longer there",
        };
        lines.push(format!("{} not deleted: {why}; to go on, {next}", messages(left)));
    }
    output::result(&(lines.join("\n") + "\n"), json.as_ref())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use requeue::Clock;
    use requeue::embedded::EmbeddedSqs;

    use super::*;
    use crate::dlq::sqs::Sqs;

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
        let dead_letters = DeadLetters::of(asked, &queue, None).await.expect("it is there");
        let stop = Stop::listen_and(Duration::MAX, || {}).expect("signals");
        let progress = CommandProgress::silent("discard");
        let deleted = delete(&dead_letters, &chosen, &stop, &progress).await;
        assert_eq!((deleted.done(), sqs.message_count(&queue).expect("it is there")), (15, 15));
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
