//! The state of the screen "Dead letters", and its work: it looks at the queue, redrives and discards.
//! It knows no request of a browser.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use requeue::Clock;
use serde_json::Value;

use super::outdated;
use super::result::JobEnd;
use crate::dlq::discard::Deleted;
use crate::dlq::letter::{Filter, Letter};
use crate::dlq::redrive::{self, ChosenPlan, CopyOptions, RedriveEnd};
use crate::dlq::scan::{Scan, hidden_for};
use crate::dlq::scan_result::ScanEnd;
use crate::dlq::{DeadLetters, QueueArguments, discard, export, messages};
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::table::span;
use crate::ui::MAX_MESSAGES;
use crate::ui::job::JobPlace;
use crate::ui::server::FailedRequest;
use crate::ui::snapshot::Snapshot;
use crate::{Error, environment};

/// The bodies and attributes that the page keeps in memory. A look ends there.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// The first step of a job.
const ASKING: &str = "asking SQS for the queue";
/// The setting that names the tenant of a message.
const SCOPE: &str = "REQUEUE_SCOPE";

/// A dead-letter queue for the page.
pub(crate) struct DeadLetterScreen {
    pub(crate) dead_letters: DeadLetters,
    pub(crate) max_messages: u32,
    /// The message attribute or the JSON pointer that names the tenant.
    pub(crate) scope: Option<String>,
}

impl DeadLetterScreen {
    /// With the default bound and the scope of the settings, for the page beside another command.
    pub(crate) fn of(dead_letters: DeadLetters) -> Self {
        let scope = environment::value(SCOPE);
        Self { dead_letters, max_messages: MAX_MESSAGES, scope }
    }
}

/// The state of the screen, which all browsers share.
pub(super) struct Screen {
    pub(super) queue: DeadLetterScreen,
    pub(super) may_redrive: bool,
    pub(super) job: JobPlace,
    state: Mutex<ScreenState>,
}

#[derive(Default)]
pub(super) struct ScreenState {
    looks: u64,
    pub(super) snapshot: Option<Arc<Snapshot>>,
    pub(super) selection: Option<Selection>,
}

/// Messages that the user has chosen.
pub(super) struct Selection {
    pub(super) number: u64,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) messages: Vec<usize>,
    /// The options of the plan that the user saw.
    pub(super) planned: Option<CopyOptions>,
}

impl Screen {
    pub(super) fn new(queue: DeadLetterScreen, may_redrive: bool, job: JobPlace) -> Self {
        Self { queue, may_redrive, job, state: Mutex::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ScreenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn snapshot(&self, number: u64) -> Result<Arc<Snapshot>, FailedRequest> {
        let snapshot = self.state().snapshot.clone();
        snapshot.filter(|snapshot| snapshot.number == number).ok_or_else(outdated)
    }

    pub(super) fn selected(
        &self,
        number: u64,
    ) -> Result<(Arc<Snapshot>, Vec<usize>), FailedRequest> {
        let state = self.state();
        let selection = state.selection.as_ref().filter(|of| of.number == number);
        let Selection { snapshot, messages, .. } = selection.ok_or_else(outdated)?;
        Ok((Arc::clone(snapshot), messages.clone()))
    }

    pub(super) fn note_plan(&self, number: u64, options: CopyOptions) {
        if let Some(of) = self.state().selection.as_mut().filter(|of| of.number == number) {
            of.planned = Some(options);
        }
    }

    /// Forgets the list, because the queue has changed.
    pub(super) fn forget(&self) {
        let mut state = self.state();
        (state.snapshot, state.selection) = (None, None);
    }

    /// Writes the messages to a file of this machine: nobody knows whether a browser saved its
    /// export.
    pub(super) fn keep(&self, snapshot: &Snapshot, messages: &[usize]) -> Result<PathBuf, Error> {
        let name = self.queue.dead_letters.queue.arn.name();
        let since = Clock::system().now().duration_since(SystemTime::UNIX_EPOCH);
        let millis = since.unwrap_or_default().as_millis();
        let path = environment::directory()?.join(format!("{name}-discarded-{millis}.jsonl"));
        export::write_file(&path, messages.iter().map(|at| &snapshot.letters[*at]))?;
        Ok(path)
    }

    pub(super) async fn discard(
        &self,
        snapshot: &Snapshot,
        chosen: &[usize],
        kept: &Path,
        progress: &CommandProgress,
        stop: &Stop,
    ) -> Result<Value, Error> {
        let ids = ids(snapshot, chosen);
        stop.leaves(discard::FILE_HAS_ALL);
        progress.step(ASKING);
        let now = match self.queue.dead_letters.refreshed().await {
            Ok(now) => now,
            Err(error) => {
                discard::keep_gone(kept, &ids, &HashSet::new())?;
                return Err(format!("{error}; nothing was deleted").into());
            }
        };
        let Deleted { count: deleted, gone, outcomes, error } =
            discard::delete(&self.place(), &now, &ids, stop, progress).await;
        let error = error.or(discard::keep_gone(kept, &ids, &gone).err());
        let mut lines = vec![format!("{} deleted", messages(deleted))];
        if !gone.is_empty() {
            lines.push(format!("the messages are in {}", kept.display()));
        }
        let left = u64::try_from(ids.len()).unwrap_or(u64::MAX) - deleted;
        if left > 0 {
            lines.push(format!("{} not deleted", messages(left)));
        }
        let (is_complete, is_stopped) = (left == 0, stop.is_told());
        let end = JobEnd { lines, is_complete, outcomes, error, is_stopped };
        Ok(end.json(snapshot, chosen))
    }

    fn max_messages(&self) -> usize {
        usize::try_from(self.queue.max_messages).unwrap_or(usize::MAX)
    }

    fn place(&self) -> QueueArguments {
        QueueArguments::new(None, None, None, self.queue.max_messages)
    }

    pub(super) async fn look(
        &self,
        progress: &CommandProgress,
        stop: &Stop,
    ) -> Result<Value, Error> {
        progress.step(ASKING);
        let now = self.queue.dead_letters.refreshed().await?;
        progress.count("messages", Some(now.queue.count()));
        let mut scan = Scan::new(&now.sqs, &now.queue, self.max_messages(), stop, progress);
        let (mut seen, mut bytes) = (Vec::new(), 0);
        let walked = scan
            .walk(async |letters, _| {
                bytes += letters.iter().map(Letter::size).sum::<usize>();
                seen.extend(letters);
                Ok(if bytes > MAX_BYTES {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                })
            })
            .await;
        progress.step("making the messages visible again");
        let is_released = scan.release().await;
        let not_reached = scan.unseen_count();
        let looked = walked?;
        let mut state = self.state();
        state.looks += 1;
        let taken = Clock::system().now();
        let mut snapshot = Snapshot::new(state.looks, taken, seen, self.queue.scope.as_deref());
        snapshot.is_complete = looked.is_complete() && bytes <= MAX_BYTES;
        snapshot.is_stopped = looked.end == ScanEnd::Interrupted;
        snapshot.is_released = is_released;
        snapshot.not_reached = if snapshot.is_complete { 0 } else { not_reached };
        state.snapshot = Some(Arc::new(snapshot));
        state.selection = None;
        Ok(Value::Null)
    }

    pub(super) async fn plan(
        &self,
        snapshot: &Snapshot,
        messages: &[usize],
        options: CopyOptions,
    ) -> Result<ChosenPlan, Error> {
        let arguments = self.arguments(snapshot, messages, options);
        let letters = messages.iter().map(|at| &snapshot.letters[*at]);
        let mut plan = redrive::plan(&arguments, &self.queue.dead_letters, letters).await?;
        let hidden = span(hidden_for(self.max_messages(), options.rate));
        plan.lines.push(format!(
            "if the command is killed during the redrive, messages stay hidden for up to {hidden}"
        ));
        Ok(plan)
    }

    pub(super) async fn redrive(
        &self,
        snapshot: &Snapshot,
        messages: &[usize],
        options: CopyOptions,
        progress: &CommandProgress,
        stop: &Stop,
    ) -> Result<Value, Error> {
        let arguments = self.arguments(snapshot, messages, options);
        progress.step(ASKING);
        let now = self.queue.dead_letters.refreshed().await?;
        let end = redrive::redrive(&arguments, &now, stop, progress).await?;
        let RedriveEnd { lines, is_complete, outcomes, error } = end;
        let end = JobEnd { lines, is_complete, outcomes, error, is_stopped: stop.is_told() };
        Ok(end.json(snapshot, messages))
    }

    fn arguments(
        &self,
        snapshot: &Snapshot,
        messages: &[usize],
        options: CopyOptions,
    ) -> redrive::Arguments {
        let filter = Filter::of_ids(ids(snapshot, messages));
        redrive::Arguments::copying(filter, self.place(), options)
    }
}

fn ids(snapshot: &Snapshot, messages: &[usize]) -> HashSet<String> {
    messages.iter().map(|at| snapshot.letters[*at].id.clone()).collect()
}
