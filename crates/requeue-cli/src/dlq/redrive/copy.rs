//! Redrives messages by copies: sends each copy, waits until SQS confirms it by its id, and deletes
//! the original. An unconfirmed message stays.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use requeue::queue::{
    CallErrorKind, EntryError, MAX_BATCH_BYTES, MAX_BATCH_ENTRIES, Outgoing, QueueArn,
};
use requeue::{Clock, DeadLetter};
use tokio::time::Instant;

use super::route::{LeftBehind, RedriveRoute};
use crate::Error;
use crate::dlq::held::HeldMessages;
use crate::dlq::letter::{Filter, Letter};
use crate::dlq::outcome::{Outcome, Outcomes};
use crate::dlq::pace::{CopyPace, MAX_UNCONFIRMED};
use crate::dlq::sqs::Sqs;
use crate::failed_call::may_be_carried_out;
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::table::thousands;

/// The results so far.
#[derive(Default)]
pub(crate) struct Tally {
    /// Their number, by the name of the queue.
    pub(crate) copied: BTreeMap<String, u64>,
    pub(crate) not_chosen: u64,
    /// The approximate number of messages that the limit left unseen.
    pub(crate) beyond_limit: u64,
    /// Messages of other queues than their destination, by their sources.
    pub(crate) left: LeftBehind,
    /// Messages sent after the start: perhaps the same ones again.
    pub(crate) newcomers: u64,
    /// Copied messages that are still here: a further redrive would copy them again.
    pub(crate) not_deleted: Vec<String>,
    /// The ids of the first deliveries of messages whose copy may exist.
    pub(crate) in_doubt: Vec<String>,
    /// Messages without a known source that were to be copied to the chosen queue.
    pub(crate) without_source: u64,
    /// Messages that were not copied, by the code of SQS or of this command.
    pub(crate) failed: BTreeMap<String, u64>,
    /// The outcome of each message that was chosen by its id. Empty if the options choose messages,
    /// because their number has no bound.
    pub(crate) outcomes: Outcomes,
    /// An error that makes it pointless to continue.
    pub(crate) fatal: Option<Error>,
}

impl Tally {
    pub(crate) fn copied(&self) -> u64 {
        self.copied.values().sum()
    }

    /// The copies that SQS has stored or may have stored.
    fn stored(&self) -> u64 {
        self.copied() + u64::try_from(self.in_doubt.len()).unwrap_or(u64::MAX)
    }

    /// The chosen messages that were copied or failed.
    pub(crate) fn taken(&self) -> u64 {
        self.copied() + self.failed.values().sum::<u64>()
    }

    /// The messages that stay because they were not chosen, or because the limit left them unseen.
    pub(crate) fn left_unchosen(&self) -> u64 {
        self.not_chosen.saturating_add(self.beyond_limit)
    }
}

pub(crate) struct Copier<'a> {
    pub(crate) sqs: &'a Sqs,
    pub(crate) from: &'a QueueArn,
    pub(crate) route: &'a RedriveRoute,
    pub(crate) filter: &'a Filter,
    pub(crate) fresh_budget: bool,
    pub(crate) stop: &'a Stop,
    /// Messages that were sent here later stay. Otherwise a copy that fails at once would circulate
    /// forever.
    pub(crate) until: SystemTime,
    pub(crate) time_in_hand: Duration,
    pub(crate) pace: CopyPace,
    /// Groups with a message that stayed: later messages must not overtake it.
    pub(crate) blocked: BTreeSet<String>,
    pub(crate) progress: &'a CommandProgress,
    /// Whether the progress counts the copies. Otherwise the scan counts the messages seen, because
    /// the number of chosen ones is not known.
    pub(crate) counts_copies: bool,
    /// The sends in a row of which SQS confirmed nothing.
    pub(crate) unconfirmed: usize,
    pub(crate) tally: Tally,
}

/// A copy that is ready to be sent.
struct CopyDraft<'a> {
    letter: &'a Letter,
    body: Cow<'a, str>,
}

impl CopyDraft<'_> {
    /// `None` if the attributes of the message cannot be read.
    fn outgoing(&self, to: &QueueArn) -> Option<Outgoing<'_>> {
        let id = Some(self.letter.id.as_str()).filter(|_| to.is_fifo());
        let mut outgoing = Outgoing::new(&self.body, self.letter.record.attributes.as_ref()?);
        outgoing.group_id = self.letter.record.group_id.as_deref().or(id);
        // SQS stores a message once if it is sent twice within five minutes.
        outgoing.deduplication_id = id;
        Some(outgoing)
    }
}

/// The result of one chunk.
#[derive(Default)]
struct ChunkResult {
    done: Vec<String>,
    not_deleted: Vec<String>,
    /// The position in the chunk, and the code.
    failed: Vec<(usize, String)>,
    fatal: Option<Error>,
    /// The error of a send of which nothing is confirmed.
    unconfirmed: Option<Error>,
}

/// Chunks that are sent at the same time.
const AT_ONCE: usize = 4;
/// The note of a message that may be in both queues.
const NOT_DELETED: &str = "copied, but SQS did not confirm the delete: if the message is still \
                           here, another redrive of this page only deletes it";
/// The end of a code for a message whose copy SQS did not confirm.
pub(super) const MAY_EXIST: &str = "; the copy may exist";
/// The code of this command for a message that may soon be visible again.
const LAPSED: &str = "visibility timeout over";

impl<'a> Copier<'a> {
    /// Copies the chosen ones of these messages.
    pub(crate) async fn copy(
        &mut self,
        letters: Vec<Letter>,
        held: &mut HeldMessages,
    ) -> ControlFlow<()> {
        let mut by_destination: BTreeMap<&QueueArn, Vec<CopyDraft<'_>>> = BTreeMap::new();
        for (to, draft) in self.drafts(&letters) {
            by_destination.entry(to).or_default().push(draft);
        }
        if by_destination.is_empty() {
            self.tell_others();
        } else {
            self.tell();
            self.pace.wait(self.stop).await;
            if self.stop.is_told() {
                return ControlFlow::Continue(());
            }
        }
        let (began, before) = (Instant::now(), self.tally.stored());
        for (to, drafts) in by_destination {
            if self.copy_to(to, drafts, held).await.is_break() {
                return ControlFlow::Break(());
            }
        }
        let stored = self.tally.stored() - before;
        if stored > 0 {
            self.pace.sent(began, stored);
            self.pace.wait(self.stop).await;
        }
        let has_all = self.tally.taken() >= self.filter.limit.unwrap_or(u64::MAX);
        if has_all { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    async fn copy_to(
        &mut self,
        to: &QueueArn,
        drafts: Vec<CopyDraft<'_>>,
        held: &mut HeldMessages,
    ) -> ControlFlow<()> {
        let mut chunks = chunks(drafts, to.is_fifo());
        let at_once = if to.is_fifo() { 1 } else { AT_ONCE };
        while !chunks.is_empty() {
            let some = chunks.drain(..chunks.len().min(at_once));
            let some: Vec<Vec<CopyDraft<'_>>> =
                some.map(|chunk| self.unblocked(to, chunk)).collect();
            let carried = join_all(some.iter().map(|chunk| self.carry(to, chunk))).await;
            let ends = some
                .iter()
                .zip(carried)
                .map(|(chunk, carried)| self.settle(to, chunk, carried, held));
            // Each chunk has taken effect, even if others failed.
            if ends.fold(false, |ended, end| ended | end.is_break()) {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// The messages to copy, with their destinations.
    fn drafts<'l>(&mut self, letters: &'l [Letter]) -> Vec<(&'l QueueArn, CopyDraft<'l>)>
    where
        'a: 'l,
    {
        let route = self.route;
        let mut room =
            self.filter.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.tally.taken()));
        let mut drafts = Vec::new();
        for letter in letters {
            let dead = letter.read();
            if letter.record.sent.is_some_and(|sent| sent > self.until) {
                self.tally.newcomers += 1;
                continue;
            }
            if room == 0 || !self.filter.chooses(letter, &dead) {
                self.tally.not_chosen += 1;
                continue;
            }
            let to = match route.of(letter, &dead) {
                Ok(_) if letter.record.attributes.is_none() => {
                    Err("unreadable attributes".to_owned())
                }
                Ok(_) if self.fresh_budget && dead.is_of_later_version() => {
                    Err("written by a later version".to_owned())
                }
                Ok(to) => Ok(to),
                Err(reason_to_stay) => {
                    self.note(&letter.id, || Outcome::left(reason_to_stay.words()));
                    match self.tally.left.add(reason_to_stay) {
                        Some(why) => Err(why),
                        // A message of another queue is no failure: it does not count for --limit,
                        // and in its FIFO group the chosen queue's messages may pass it.
                        None => continue,
                    }
                }
            };
            room -= 1;
            let to = match to {
                Ok(to) => to,
                Err(why) => {
                    self.fail(letter, &why);
                    continue;
                }
            };
            self.tally.without_source += u64::from(route.decides_for(letter, &dead));
            let body = self.body(letter, &dead);
            drafts.push((to, CopyDraft { letter, body }));
        }
        drafts
    }

    /// The body of the copy. Requeue recognises a redrive by the time since its last send, so a copy
    /// that comes too soon for that starts afresh by its body.
    fn body<'l>(&self, letter: &'l Letter, dead: &DeadLetter<'_>) -> Cow<'l, str> {
        let now = Clock::system().now();
        let is_too_soon = dead.was_sent_lately(now) && dead.redrives() < DeadLetter::MAX_REDRIVES;
        let afresh = (self.fresh_budget || is_too_soon).then(|| dead.afresh(now)).flatten();
        afresh.map_or(Cow::Borrowed(letter.body.as_str()), Cow::Owned)
    }

    fn note(&mut self, id: &str, outcome: impl FnOnce() -> Outcome) {
        if self.filter.is_by_id() {
            self.tally.outcomes.insert(id.to_owned(), outcome());
        }
    }

    fn fail(&mut self, letter: &Letter, code: &str) {
        *self.tally.failed.entry(code.to_owned()).or_default() += 1;
        if code.ends_with(MAY_EXIST) {
            // A copy has another id of its own.
            let dead = letter.read();
            let id = dead.original_message_id().unwrap_or(&letter.id);
            self.tally.in_doubt.push(id.to_owned());
        }
        self.note(&letter.id, || {
            if code.ends_with(MAY_EXIST) { Outcome::in_doubt(code) } else { Outcome::left(code) }
        });
        self.blocked.extend(letter.record.group_id.clone());
    }

    /// The messages without those of a FIFO group that has to wait.
    fn unblocked<'l>(
        &mut self,
        to: &QueueArn,
        mut chunk: Vec<CopyDraft<'l>>,
    ) -> Vec<CopyDraft<'l>> {
        if to.is_fifo() {
            chunk.retain(|draft| {
                let is_blocked = draft
                    .letter
                    .record
                    .group_id
                    .as_ref()
                    .is_some_and(|group| self.blocked.contains(group));
                if is_blocked {
                    self.fail(draft.letter, "behind one that failed");
                }
                !is_blocked
            });
        }
        chunk
    }

    /// Sends, waits for the confirmation of each entry by its id, and only then deletes.
    async fn carry(&self, to: &QueueArn, chunk: &[CopyDraft<'_>]) -> ChunkResult {
        let mut carried = ChunkResult::default();
        let Some(asked) = chunk.iter().map(|draft| draft.letter.asked).min() else {
            return carried;
        };
        if asked.elapsed() > self.time_in_hand {
            carried.failed = (0..chunk.len()).map(|at| (at, LAPSED.to_owned())).collect();
            return carried;
        }
        let entries: Vec<Outgoing<'_>> =
            chunk.iter().filter_map(|draft| draft.outgoing(to)).collect();
        debug_assert_eq!(entries.len(), chunk.len());
        let confirmations = match self.sqs.send(to, &entries).await {
            Ok(confirmations) => confirmations,
            Err(error) => {
                let code = if may_be_carried_out(&error) {
                    may_exist(&error.code)
                } else {
                    error.code.clone()
                };
                carried.failed = (0..chunk.len()).map(|at| (at, code.clone())).collect();
                let refusal = self.sqs.refusal("SendMessageBatch", to, &error);
                match error.kind {
                    CallErrorKind::Refused => carried.fatal = Some(refusal),
                    _ => carried.unconfirmed = Some(refusal),
                }
                return carried;
            }
        };
        let mut confirmed = Vec::new();
        for (at, (confirmation, draft)) in confirmations.into_iter().zip(chunk).enumerate() {
            match confirmation {
                Ok(()) => confirmed.push(draft.letter),
                Err(error) if error == EntryError::unconfirmed() => {
                    carried.failed.push((at, may_exist(&error.code)));
                }
                Err(error) => carried.failed.push((at, error.code)),
            }
        }
        self.delete(&confirmed, &mut carried).await;
        carried
    }

    async fn delete(&self, confirmed: &[&Letter], carried: &mut ChunkResult) {
        if confirmed.is_empty() {
            return;
        }
        let ids = confirmed.iter().map(|letter| letter.id.clone());
        let handles: Vec<&str> =
            confirmed.iter().map(|letter| letter.receipt_handle.as_str()).collect();
        match self.sqs.delete(self.from, &handles).await {
            Ok(deletions) => {
                for (id, deletion) in ids.zip(deletions) {
                    if deletion.is_ok() {
                        carried.done.push(id);
                    } else {
                        carried.not_deleted.push(id);
                    }
                }
            }
            Err(error) => {
                carried.not_deleted = ids.collect();
                carried.fatal = Some(self.sqs.refusal("DeleteMessageBatch", self.from, &error));
            }
        }
    }

    fn settle(
        &mut self,
        to: &QueueArn,
        chunk: &[CopyDraft<'_>],
        carried: ChunkResult,
        held: &mut HeldMessages,
    ) -> ControlFlow<()> {
        let copied =
            u64::try_from(carried.done.len() + carried.not_deleted.len()).unwrap_or_default();
        if copied > 0 {
            *self.tally.copied.entry(to.name().to_owned()).or_default() += copied;
        }
        for id in &carried.done {
            held.forget(id);
            self.note(id, Outcome::done);
        }
        for id in &carried.not_deleted {
            self.note(id, || Outcome::copied(NOT_DELETED));
        }
        self.tally.not_deleted.extend(carried.not_deleted);
        for (at, code) in carried.failed {
            self.fail(chunk[at].letter, &code);
        }
        self.tell();
        self.unconfirmed = match (copied, &carried.unconfirmed) {
            (0, Some(_)) => self.unconfirmed + 1,
            (0, None) => self.unconfirmed,
            _ => 0,
        };
        // Each further send would put more messages into both queues.
        let unconfirmed = carried.unconfirmed.filter(|_| self.unconfirmed >= MAX_UNCONFIRMED);
        let has_doubts = !self.tally.in_doubt.is_empty();
        let unconfirmed = unconfirmed.map(|error| after_unconfirmed(&error, to, has_doubts));
        self.tally.fatal = self.tally.fatal.take().or(carried.fatal).or(unconfirmed);
        if self.tally.fatal.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Tells that the copier looks past messages, of which none was chosen.
    fn tell_others(&self) {
        if self.counts_copies {
            let others = thousands(self.tally.not_chosen);
            self.progress.step(format!("looking at {}, {others} not chosen", self.from.name()));
        }
    }

    /// Tells the counts.
    fn tell(&self) {
        let (copied, from) = (self.tally.copied(), self.from.name());
        if self.counts_copies {
            self.progress.step(format!("copying from {from}"));
            self.progress.done(copied);
        } else {
            self.progress.step(format!("looking at {from}"));
            self.progress.detail(format!("{} copied", thousands(copied)));
        }
        self.progress.failed(self.tally.failed.values().sum());
    }
}

fn after_unconfirmed(error: &Error, to: &QueueArn, has_doubts: bool) -> Error {
    let to = to.name();
    let next = if has_doubts {
        format!(
            "some copies may be in {to}, so before you redrive these messages again, look for their \
             original ids in the log of what handles {to}, or with `requeue dlq peek --queue {to} --id \
             ID`, which counts as a receive"
        )
    } else {
        "the messages are still here; redrive them when SQS accepts them again".to_owned()
    };
    format!(
        "{error}; the redrive ends after {MAX_UNCONFIRMED} sends in a row without a confirmation: {next}"
    )
    .into()
}

fn may_exist(code: &str) -> String {
    format!("{code}{MAY_EXIST}")
}

/// Chunks of at most ten messages and 1 MiB, in the given order. For a FIFO queue a chunk has one
/// message of a group, because later messages must not overtake one that fails.
fn chunks(drafts: Vec<CopyDraft<'_>>, is_fifo: bool) -> Vec<Vec<CopyDraft<'_>>> {
    let mut chunks: Vec<Vec<CopyDraft<'_>>> = Vec::new();
    let mut bytes = 0;
    for draft in drafts {
        let size = draft.letter.size() - draft.letter.body.len() + draft.body.len();
        let group = draft.letter.record.group_id.as_deref();
        let has_room = chunks.last().is_some_and(|chunk| {
            let precedes = |other: &CopyDraft<'_>| other.letter.record.group_id.as_deref() == group;
            let follows = is_fifo && group.is_some() && chunk.iter().any(precedes);
            chunk.len() < MAX_BATCH_ENTRIES && bytes + size <= MAX_BATCH_BYTES && !follows
        });
        if let Some(chunk) = chunks.last_mut().filter(|_| has_room) {
            bytes += size;
            chunk.push(draft);
        } else {
            bytes = size;
            chunks.push(vec![draft]);
        }
    }
    chunks
}
