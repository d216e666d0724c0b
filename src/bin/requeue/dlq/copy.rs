//! Bringing messages back one by one: send the copy, see it confirmed by name, delete the original. What is not confirmed stays.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::future::join_all;
use requeue::queue::{CallErrorKind, MAX_BATCH_BYTES, MAX_BATCH_ENTRIES, Outgoing, QueueArn};
use requeue::{Clock, Delay};
use tokio::time::{Instant, sleep_until};

use super::letter::{Filter, Letter};
use super::scan::Held;
use super::sqs::{Sqs, refusal};
use super::stop::Stop;
use crate::Error;

/// What has become of the messages so far.
#[derive(Default)]
pub(crate) struct Copied {
    pub(crate) copied: u64,
    pub(crate) not_chosen: u64,
    /// Copied, and still here: they would be copied again.
    pub(crate) not_deleted: Vec<String>,
    /// How many were not copied, by SQS's code or ours.
    pub(crate) failed: BTreeMap<String, u64>,
    /// What makes going on pointless.
    pub(crate) fatal: Option<Error>,
}

pub(crate) struct Copier<'a> {
    pub(crate) sqs: &'a Sqs,
    pub(crate) from: &'a QueueArn,
    pub(crate) to: &'a QueueArn,
    pub(crate) filter: &'a Filter,
    pub(crate) fresh_budget: bool,
    pub(crate) rate: Option<u16>,
    pub(crate) stop: &'a Stop,
    pub(crate) time_in_hand: Duration,
    pub(crate) began: Instant,
    /// Groups of which a message stayed behind: what follows it must not overtake it.
    pub(crate) blocked: BTreeSet<String>,
    pub(crate) copied: Copied,
}

/// A copy that is ready to be sent.
struct Draft<'a> {
    letter: &'a Letter,
    body: Cow<'a, str>,
}

/// How one chunk went.
#[derive(Default)]
struct Carried {
    done: Vec<String>,
    not_deleted: Vec<String>,
    /// The position in the chunk, and the code.
    failed: Vec<(usize, String)>,
    fatal: Option<Error>,
}

/// Ours, for a message that is hidden no longer for long enough.
const LAPSED: &str = "visibility timeout over";

impl Copier<'_> {
    /// Copies those that are meant of these messages.
    pub(crate) async fn copy(&mut self, letters: Vec<Letter>, held: &mut Held) -> ControlFlow<()> {
        let received = Instant::now();
        let drafts = self.drafts(&letters);
        let mut chunks = chunks(drafts, self.to.is_fifo());
        if self.to.is_fifo() {
            for chunk in chunks {
                let chunk: Vec<Draft<'_>> = chunk.into_iter().filter(|draft| !self.is_blocked(draft)).collect();
                let carried = self.carry(&chunk, received).await;
                if self.settle(&chunk, carried, held).is_break() {
                    return ControlFlow::Break(());
                }
            }
        } else {
            while !chunks.is_empty() {
                let some: Vec<_> = chunks.drain(..chunks.len().min(4)).collect();
                let carried = join_all(some.iter().map(|chunk| self.carry(chunk, received))).await;
                let ends = some.iter().zip(carried).map(|(chunk, carried)| self.settle(chunk, carried, held));
                // Each of them has happened, whatever the others say.
                if ends.fold(false, |ended, end| ended | end.is_break()) {
                    return ControlFlow::Break(());
                }
            }
        }
        self.pace().await;
        if self.taken() >= self.filter.limit.unwrap_or(u64::MAX) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Messages that count against the limit.
    fn taken(&self) -> u64 {
        self.copied.copied + self.copied.failed.values().sum::<u64>()
    }

    fn drafts<'l>(&mut self, letters: &'l [Letter]) -> Vec<Draft<'l>> {
        let mut room = self.filter.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.taken()));
        let mut drafts = Vec::new();
        for letter in letters {
            let dead = letter.read();
            if room == 0 || !self.filter.chooses(letter, &dead) {
                self.copied.not_chosen += 1;
                continue;
            }
            room -= 1;
            let trouble = if letter.record.attributes.is_none() {
                Some("unreadable attributes")
            } else if self.fresh_budget && dead.is_of_later_version() {
                Some("written by a later version")
            } else {
                None
            };
            if let Some(trouble) = trouble {
                self.fail(letter, trouble);
                continue;
            }
            let afresh = || dead.afresh(Clock::system().now());
            let body = self.fresh_budget.then(afresh).flatten().map_or(Cow::Borrowed(letter.body.as_str()), Cow::Owned);
            drafts.push(Draft { letter, body });
        }
        drafts
    }

    fn fail(&mut self, letter: &Letter, code: &str) {
        *self.copied.failed.entry(code.to_owned()).or_default() += 1;
        self.blocked.extend(letter.record.group_id.clone());
    }

    fn is_blocked(&mut self, draft: &Draft<'_>) -> bool {
        let is_blocked = draft.letter.record.group_id.as_ref().is_some_and(|group| self.blocked.contains(group));
        if is_blocked {
            self.fail(draft.letter, "behind one that failed");
        }
        is_blocked
    }

    /// Sends, finds each entry by its name, and only then deletes.
    async fn carry(&self, chunk: &[Draft<'_>], received: Instant) -> Carried {
        let mut carried = Carried::default();
        if chunk.is_empty() {
            return carried;
        }
        if received.elapsed() > self.time_in_hand {
            carried.failed = (0..chunk.len()).map(|at| (at, LAPSED.to_owned())).collect();
            return carried;
        }
        let entries: Vec<Outgoing<'_>> = chunk.iter().filter_map(|draft| self.outgoing(draft)).collect();
        debug_assert_eq!(entries.len(), chunk.len());
        let confirmations = match self.sqs.send(self.to, &entries).await {
            Ok(confirmations) => confirmations,
            Err(error) => {
                let code = match error.kind {
                    CallErrorKind::Ambiguous => format!("{}, so that the copy may exist", error.code),
                    _ => error.code.clone(),
                };
                carried.failed = (0..chunk.len()).map(|at| (at, code.clone())).collect();
                if error.kind == CallErrorKind::Refused {
                    carried.fatal = Some(refusal("SendMessageBatch", self.to, &error));
                }
                return carried;
            }
        };
        let mut confirmed = Vec::new();
        for (at, (confirmation, draft)) in confirmations.into_iter().zip(chunk).enumerate() {
            match confirmation {
                Ok(()) => confirmed.push(draft.letter),
                Err(error) => carried.failed.push((at, error.code)),
            }
        }
        self.delete(&confirmed, &mut carried).await;
        carried
    }

    async fn delete(&self, confirmed: &[&Letter], carried: &mut Carried) {
        if confirmed.is_empty() {
            return;
        }
        let ids = confirmed.iter().map(|letter| letter.id.clone());
        let handles: Vec<&str> = confirmed.iter().map(|letter| letter.receipt_handle.as_str()).collect();
        match self.sqs.delete(self.from, &handles).await {
            Ok(deletions) => {
                for (id, deletion) in ids.zip(deletions) {
                    if deletion.is_ok() { carried.done.push(id) } else { carried.not_deleted.push(id) }
                }
            }
            Err(error) => {
                carried.not_deleted = ids.collect();
                carried.fatal = Some(refusal("DeleteMessageBatch", self.from, &error));
            }
        }
    }

    fn outgoing<'d>(&self, draft: &'d Draft<'_>) -> Option<Outgoing<'d>> {
        let id = Some(draft.letter.id.as_str()).filter(|_| self.to.is_fifo());
        Some(Outgoing {
            body: &draft.body,
            delay: Delay::default(),
            attributes: draft.letter.record.attributes.as_ref()?,
            group_id: draft.letter.record.group_id.as_deref().or(id),
            // Sent twice within five minutes, it is stored once.
            deduplication_id: id,
        })
    }

    fn settle(&mut self, chunk: &[Draft<'_>], carried: Carried, held: &mut Held) -> ControlFlow<()> {
        self.copied.copied += u64::try_from(carried.done.len() + carried.not_deleted.len()).unwrap_or_default();
        carried.done.iter().for_each(|id| held.forget(id));
        self.copied.not_deleted.extend(carried.not_deleted);
        for (at, code) in carried.failed {
            self.fail(chunk[at].letter, &code);
        }
        self.copied.fatal = self.copied.fatal.take().or(carried.fatal);
        if self.copied.fatal.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Waits until as much time has passed as the messages so far may take.
    async fn pace(&self) {
        let Some(rate) = self.rate else { return };
        let secs = Duration::from_secs(self.copied.copied) / u32::from(rate);
        tokio::select! {
            () = sleep_until(self.began + secs) => {}
            () = self.stop.told() => {}
        }
    }
}

/// In the order given, of at most ten messages and 1 MiB. For a FIFO queue no two of a group: one that fails must not be overtaken.
fn chunks(drafts: Vec<Draft<'_>>, is_fifo: bool) -> Vec<Vec<Draft<'_>>> {
    let mut chunks: Vec<Vec<Draft<'_>>> = Vec::new();
    let mut bytes = 0;
    for draft in drafts {
        let size = draft.letter.size() - draft.letter.body.len() + draft.body.len();
        let group = draft.letter.record.group_id.as_deref();
        let has_room = chunks.last().is_some_and(|chunk| {
            let follows = is_fifo && chunk.iter().any(|other| other.letter.record.group_id.as_deref() == group);
            chunk.len() < MAX_BATCH_ENTRIES && bytes + size <= MAX_BATCH_BYTES && !follows
        });
        match chunks.last_mut().filter(|_| has_room) {
            Some(chunk) => {
                bytes += size;
                chunk.push(draft);
            }
            None => {
                bytes = size;
                chunks.push(vec![draft]);
            }
        }
    }
    chunks
}
