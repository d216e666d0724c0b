//! The state of the screen "Dead letters", and its work. It knows no request of a browser.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use requeue::Clock;
use serde::Serialize;
use serde_json::{Value, json};

use super::outdated;
use crate::dlq::letter::Filter;
use crate::dlq::outcome::{JobEnd, Outcome, Outcomes};
use crate::dlq::redrive::{self, ChosenPlan, CopyOptions};
use crate::dlq::scan::{ScanEnd, Unseen};
use crate::dlq::{DeadLetters, discard, export};
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::table::{messages, moment};
use crate::ui::job::JobPlace;
use crate::ui::server::FailedRequest;
use crate::ui::snapshot::{Look, Snapshot};
use crate::{Error, bail, environment};

/// The memory of the messages that the page keeps. A look ends there.
const MAX_BYTES: usize = 256 * 1024 * 1024;
/// The memory of a message in addition to its body, attributes and receipt handle.
const PER_MESSAGE: usize = 1_024;

const ASKING: &str = "asking SQS for the queue";
const SCOPE: &str = "REQUEUE_SCOPE";

pub(crate) struct DeadLetterScreen {
    pub(crate) dead_letters: DeadLetters,
    /// The message attribute or the JSON pointer that names the tenant.
    pub(crate) scope: Option<String>,
}

impl DeadLetterScreen {
    /// With the scope of the settings, for the page beside another command.
    pub(crate) fn of(dead_letters: DeadLetters) -> Self {
        Self { dead_letters, scope: environment::value(SCOPE) }
    }
}

pub(super) struct Screen {
    pub(super) queue: DeadLetterScreen,
    pub(super) may_redrive: bool,
    pub(super) job: JobPlace,
    pub(super) state: Mutex<ScreenState>,
}

#[derive(Default)]
pub(super) struct ScreenState {
    looks: u64,
    pub(super) snapshot: Option<Arc<Snapshot>>,
    pub(super) selection: Option<Selection>,
    /// The ids of messages that earlier redrives copied, and perhaps did not delete.
    copied: HashSet<String>,
    /// Those whose copies SQS did not confirm.
    in_doubt: HashSet<String>,
}

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

    /// These messages without those that were copied before, and the ids of those.
    fn apart(&self, snapshot: &Snapshot, messages: &[usize]) -> (Vec<usize>, HashSet<String>) {
        let state = self.state.lock();
        let is_copied = |at: &&usize| state.copied.contains(&snapshot.letters[**at].id);
        let (copied, others): (Vec<usize>, Vec<usize>) = messages.iter().partition(is_copied);
        (others, ids(snapshot, &copied))
    }

    pub(super) fn snapshot(&self, number: u64) -> Result<Arc<Snapshot>, FailedRequest> {
        let snapshot = self.state.lock().snapshot.clone();
        snapshot.filter(|snapshot| snapshot.look.number == number).ok_or_else(outdated)
    }

    pub(super) fn selected(
        &self,
        number: u64,
    ) -> Result<(Arc<Snapshot>, Vec<usize>), FailedRequest> {
        let state = self.state.lock();
        let selection = state.selection.as_ref().filter(|of| of.number == number);
        let Selection { snapshot, messages, .. } = selection.ok_or_else(outdated)?;
        Ok((Arc::clone(snapshot), messages.clone()))
    }

    pub(super) fn note_plan(&self, number: u64, options: CopyOptions) {
        if let Some(of) = self.state.lock().selection.as_mut().filter(|of| of.number == number) {
            of.planned = Some(options);
        }
    }

    pub(super) fn forget(&self) {
        let mut state = self.state.lock();
        (state.snapshot, state.selection) = (None, None);
    }

    /// Writes the messages to a file: it is unknown whether a browser saved its export.
    pub(super) fn keep(&self, snapshot: &Snapshot, messages: &[usize]) -> Result<PathBuf, Error> {
        let name = self.queue.dead_letters.queue.arn.name();
        let since = Clock::system().now().duration_since(SystemTime::UNIX_EPOCH);
        let millis = since.unwrap_or_default().as_millis();
        let path = std::path::absolute(format!("{name}-discarded-{millis}.jsonl"))?;
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
                bail!("{error}; nothing was deleted");
            }
        };
        let mut outcomes = discard::delete(&now, &ids, stop, progress).await;
        let gone = outcomes.gone();
        let kept_gone = discard::keep_gone(kept, &ids, &gone);
        outcomes.error = outcomes.error.or(kept_gone.err());
        let mut lines = discard::lines(&outcomes, kept);
        let left = ids.len() - gone.len();
        if left > 0 {
            lines.push(format!("{} not deleted", messages(left)));
        }
        let end = JobEnd { lines, is_complete: outcomes.done() == ids.len(), outcomes };
        Ok(result_json(&end, snapshot, chosen, stop.is_told()))
    }

    pub(super) async fn look(
        &self,
        progress: &CommandProgress,
        stop: &Stop,
    ) -> Result<Value, Error> {
        progress.step(ASKING);
        let now = self.queue.dead_letters.refreshed().await?;
        // Two lists would need twice the memory.
        self.forget();
        let scan = now.scan(stop, progress);
        progress.count("messages", Some(now.queue.messages));
        let (mut seen, mut bytes, mut beyond) = (Vec::new(), 0, 0);
        let looked = scan.run(async |letters, _| {
            for letter in letters {
                bytes += letter.size() + letter.receipt_handle.len() + PER_MESSAGE;
                if bytes > MAX_BYTES {
                    beyond += 1;
                } else {
                    seen.push(letter);
                }
            }
            Ok(if beyond > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        let looked = looked.await.into_result()?;
        let mut state = self.state.lock();
        state.looks += 1;
        let is_stopped = looked.end == ScanEnd::Interrupted;
        let is_cut = is_stopped || beyond > 0;
        let look = Look {
            number: state.looks,
            taken: moment(Clock::system().now()),
            is_complete: looked.is_complete() && beyond == 0,
            is_stopped,
            is_released: looked.is_released(),
            not_reached: if is_cut {
                Unseen::broken_off(looked.not_seen + beyond)
            } else {
                looked.unseen
            },
        };
        state.snapshot = Some(Arc::new(Snapshot::new(look, seen, self.queue.scope.as_deref())));
        state.selection = None;
        Ok(Value::Null)
    }

    pub(super) async fn plan(
        &self,
        snapshot: &Snapshot,
        chosen: &[usize],
        options: CopyOptions,
    ) -> Result<ChosenPlan, Error> {
        let (others, copied) = self.apart(snapshot, chosen);
        let arguments = arguments(snapshot, &others, options);
        let letters = others.iter().map(|at| &snapshot.letters[*at]);
        let mut plan = redrive::plan(&arguments, &self.queue.dead_letters, letters).await?;
        if !copied.is_empty() {
            plan.count += u64::try_from(copied.len()).unwrap_or_default();
            plan.lines.push(format!(
                "{} would only be deleted here: an earlier redrive of this page copied them",
                messages(copied.len())
            ));
        }
        let in_doubt = &self.state.lock().in_doubt;
        let doubts =
            others.iter().filter(|at| in_doubt.contains(&snapshot.letters[**at].id)).count();
        if doubts > 0 {
            plan.lines.push(format!(
                "of those to copy, {} may have been copied by an earlier redrive without a \
                 confirmation, and would be copied again",
                messages(doubts)
            ));
        }
        plan.lines.push(self.queue.dead_letters.if_killed(options.rate));
        Ok(plan)
    }

    /// Redrives the messages. Those that were copied before are only deleted.
    pub(super) async fn redrive(
        &self,
        snapshot: &Snapshot,
        chosen: &[usize],
        options: CopyOptions,
        progress: &CommandProgress,
        stop: &Stop,
    ) -> Result<Value, Error> {
        let (others, copied) = self.apart(snapshot, chosen);
        progress.step(ASKING);
        let now = self.queue.dead_letters.refreshed().await?;
        let mut end =
            JobEnd { lines: Vec::new(), is_complete: true, outcomes: Outcomes::default() };
        if !others.is_empty() {
            let arguments = arguments(snapshot, &others, options);
            end = redrive::redrive(&arguments, &now, stop, progress).await?;
            let mut state = self.state.lock();
            for (id, outcome) in &end.outcomes.by_id {
                if outcome.is_copy {
                    state.copied.insert(id.clone());
                } else if outcome.is_in_doubt {
                    state.in_doubt.insert(id.clone());
                }
            }
        }
        if !copied.is_empty() && end.outcomes.error.is_none() && !stop.is_told() {
            let deleted = discard::delete(&now, &copied, stop, progress).await;
            let is_gone = |id: &String| deleted.by_id.get(id).is_some_and(|end| end.is_done);
            self.state.lock().copied.retain(|id| !is_gone(id));
            let count = messages(deleted.done());
            end.lines.push(format!("{count} deleted here, copied by an earlier redrive"));
            end.is_complete &= deleted.gone().len() == copied.len() && deleted.error.is_none();
            let outcomes = deleted.by_id.into_iter();
            let outcomes = outcomes.map(|(id, end)| (id, Outcome { is_copy: true, ..end }));
            end.outcomes.by_id.extend(outcomes);
            end.outcomes.error = deleted.error;
        }
        Ok(result_json(&end, snapshot, chosen, stop.is_told()))
    }
}

fn arguments(snapshot: &Snapshot, messages: &[usize], options: CopyOptions) -> redrive::Arguments {
    redrive::Arguments::copying(Filter::of_ids(ids(snapshot, messages)), options)
}

fn ids(snapshot: &Snapshot, messages: &[usize]) -> HashSet<String> {
    messages.iter().map(|at| snapshot.letters[*at].id.clone()).collect()
}

/// Messages that a result lists one by one. The server keeps several results in memory.
const MAX_LISTED: usize = 500;
const MAX_REASONS: usize = 10;
const NOT_RECEIVED: &str = "not received: another reader holds it, SQS's response with it was \
                            lost, or it is no longer in the queue; look again after its \
                            visibility timeout";

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct KindCounts {
    done: usize,
    left: usize,
    /// Of those that are done: the messages that an earlier job copied, and this one only deleted.
    copied_before: usize,
    /// Of those that are left: the messages whose copy SQS did not confirm.
    in_doubt: usize,
}

/// The result for these messages, which the user chose. `is_stopped`: somebody stopped the job.
pub(super) fn result_json(
    end: &JobEnd,
    snapshot: &Snapshot,
    messages: &[usize],
    is_stopped: bool,
) -> Value {
    let outcome_of = |at: usize| end.outcomes.by_id.get(&snapshot.letters[at].id);
    let mut kinds: BTreeMap<(&'static str, Option<&str>), KindCounts> = BTreeMap::new();
    for at in messages {
        let counts = kinds.entry(snapshot.kind(*at)).or_default();
        let outcome = outcome_of(*at);
        let is_done = outcome.is_some_and(|outcome| outcome.is_done);
        *(if is_done { &mut counts.done } else { &mut counts.left }) += 1;
        let was_copied = |outcome: &Outcome| outcome.is_copy && outcome.note.is_none();
        counts.copied_before += usize::from(outcome.is_some_and(was_copied));
        counts.in_doubt += usize::from(outcome.is_some_and(|outcome| outcome.is_in_doubt));
    }
    let (mut listed, unreached): (Vec<&usize>, Vec<&usize>) =
        messages.iter().partition(|at| outcome_of(**at).is_some());
    // The reasons of SQS come first: they differ, and the others are all the same.
    listed.retain(|at| outcome_of(**at).is_some_and(|outcome| outcome.note.is_some()));
    // Those that a stop or an error spared are counted with the others that stayed.
    if !is_stopped && end.outcomes.error.is_none() {
        listed.extend(unreached);
    }
    let why = |at: usize| {
        outcome_of(at).and_then(|outcome| outcome.note.as_deref()).unwrap_or(NOT_RECEIVED)
    };
    let line = |at: &&usize| {
        let (class, code) = snapshot.kind(**at);
        let message_id = &snapshot.letters[**at].id;
        json!({ "messageId": message_id, "class": class, "code": code, "why": why(**at) })
    };
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for at in &listed {
        *reasons.entry(why(**at)).or_default() += 1;
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| Reverse(*count));
    let reason = |(why, count)| json!({ "why": why, "count": count });
    let kind = |((class, code), counts): (&(&str, Option<&str>), &KindCounts)| {
        let mut kind = json!(counts);
        (kind["class"], kind["code"]) = ((*class).into(), (*code).into());
        kind
    };
    json!({
        "lines": end.lines,
        "isComplete": end.is_complete,
        "isStopped": is_stopped,
        "error": end.outcomes.error.as_ref().map(ToString::to_string),
        "done": kinds.values().map(|counts| counts.done).sum::<usize>(),
        "left": kinds.values().map(|counts| counts.left).sum::<usize>(),
        "kinds": kinds.iter().map(kind).collect::<Value>(),
        // Of the messages that are or would be listed.
        "reasons": reasons.into_iter().take(MAX_REASONS).map(reason).collect::<Value>(),
        "listed": listed.iter().take(MAX_LISTED).map(line).collect::<Value>(),
        "notListed": listed.len().saturating_sub(MAX_LISTED),
    })
}

#[cfg(test)]
mod tests {
    use requeue::Record;
    use tokio::time::Instant;

    use super::*;
    use crate::dlq::letter::Letter;
    use crate::dlq::outcome::Outcomes;

    #[test]
    fn what_may_be_in_both_queues_is_told_apart_from_what_stayed() {
        let letter = |id: &str| {
            let (id, body) = (Some(id.to_owned()), Some("{}".to_owned()));
            let mut record = Record::default();
            (record.message_id, record.receipt_handle, record.body) = (id.clone(), id, body);
            Letter::new(record, Instant::now()).expect("it has all")
        };
        let letters = ["done", "lost", "refused", "unreached"].map(letter).into();
        let snapshot = Snapshot::new(Look { number: 1, ..Look::default() }, letters, None);
        let result = |error: Option<&str>| {
            let outcomes = [
                ("done", Outcome::done()),
                ("lost", Outcome::in_doubt("NoConnection; the copy may exist")),
                ("refused", Outcome::left("InternalError")),
            ];
            let by_id = outcomes.map(|(id, outcome)| (id.to_owned(), outcome)).into();
            let outcomes = Outcomes { by_id, error: error.map(Into::into) };
            let end = JobEnd { lines: Vec::new(), is_complete: false, outcomes };
            result_json(&end, &snapshot, &[0, 1, 2, 3], false)
        };
        let kind = json!({ "class": "unknown", "code": null, "done": 1, "left": 3, "copiedBefore": 0, "inDoubt": 1 });
        for (error, listed) in [(None, 3), (Some("SQS is gone"), 2)] {
            let result = result(error);
            assert_eq!(result["kinds"], json!([kind]), "{error:?}");
            let reasons = result["listed"].as_array().map(Vec::len);
            assert_eq!(reasons, Some(listed), "those that an error spared have no reason");
            let counted = result["reasons"].as_array().map(Vec::len);
            assert_eq!(counted, Some(listed), "each has its own reason");
        }
    }
}
