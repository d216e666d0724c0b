//! Redrives messages by copies: sends each copy, waits until SQS confirms it by its id, and deletes
//! the original. An unconfirmed message stays.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use requeue::queue::{Attribute, MAX_BATCH_BYTES, Outgoing, QueueArn};
use requeue::{Clock, DeadLetter};
use tokio::time::Instant;

use super::Arguments;
use super::result::RedriveResult;
use super::route::RedriveRoute;
use crate::Error;
use crate::dlq::letter::Letter;
use crate::dlq::outcome::{Outcome, delete};
use crate::dlq::scan::{HeldMessages, ScanEnd, Visited};
use crate::dlq::sender::{BEHIND, ConfirmedSender, MAY_EXIST, Sendable, Sent, batches};
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::table::thousands;

/// SQS's times have whole seconds.
pub(super) const CLOCK_GRAIN: Duration = Duration::from_secs(1);
/// The greatest difference between the clocks of SQS's hosts.
pub(super) const CLOCK_SKEW: Duration = Duration::from_millis(500);
const AT_ONCE: usize = 4;
pub(crate) const COPIES_IN_HAND: &str = "messages in flight stay hidden {until}, and those of the \
                                         last requests may be in both queues";
const NOT_DELETED: &str = "copied, but SQS did not confirm the delete: if the message is still \
                           here, another redrive of this page only deletes it";
/// The largest message of a queue, by the default of older queues and that of now.
const USUAL_MAXIMA: [usize; 2] = [262_144, MAX_BATCH_BYTES];
/// The code of this command for a message that may soon be visible again.
const LAPSED: &str = "visibility timeout over";

pub(super) async fn copy_all(
    route: &RedriveRoute<'_>,
    stop: &Stop,
    progress: &CommandProgress,
    result: &mut RedriveResult,
) -> Result<(), Error> {
    stop.leaves(COPIES_IN_HAND);
    let (Arguments { filter, rate, .. }, dead_letters) = (route.arguments, route.dead_letters);
    // SQS's time, to the second.
    let now = dead_letters.refreshed().await?.queue.date;
    let began = now.unwrap_or_else(|| Clock::system().now());
    let scan = dead_letters.scan(stop, progress);
    let mut scan = scan.one_by_one(*rate, filter.is_set());
    scan.gone = result.moved;
    let to_copy = result.planned.map(|all| all.saturating_sub(result.moved)).or(filter.limit);
    let counts_copies = to_copy.is_some() || !filter.is_set();
    if to_copy.is_some() {
        progress.count("messages", to_copy);
    }
    progress.step(format!("copying from {}", dead_letters.name()));
    // Messages since `until` are new: a copy that failed at once would otherwise circulate.
    let first = Instant::now() + CLOCK_GRAIN + CLOCK_SKEW;
    let mut copier = Copier {
        route,
        stop,
        until: began + CLOCK_GRAIN,
        time_in_hand: scan.time_in_hand(),
        sender: ConfirmedSender::new(&dead_letters.sqs, stop, "redrive", *rate, first),
        progress,
        counts_copies,
        looked_at: 0,
        result,
    };
    let looked = scan.run(async |letters, held| copier.copy(letters, held).await).await;
    result.unseen = looked.unseen.clone();
    let looked = looked.into_result()?;
    looked.tell(&dead_letters.queue, progress);
    if looked.end == ScanEnd::Enough {
        result.not_chosen += looked.not_seen;
        result.is_cut_by_limit = looked.not_seen > 0;
    }
    result.is_complete = looked.is_complete() && looked.is_released();
    Ok(())
}

struct Copier<'a> {
    route: &'a RedriveRoute<'a>,
    stop: &'a Stop,
    /// Messages that were sent here later stay.
    until: SystemTime,
    time_in_hand: Duration,
    sender: ConfirmedSender<'a>,
    progress: &'a CommandProgress,
    /// Whether the progress counts the copies, and not the messages looked at.
    counts_copies: bool,
    looked_at: usize,
    result: &'a mut RedriveResult,
}

struct CopyDraft<'a> {
    letter: &'a Letter,
    attributes: &'a BTreeMap<String, Attribute>,
    body: Cow<'a, str>,
}

impl Sendable for CopyDraft<'_> {
    fn outgoing(&self, to: &QueueArn) -> Outgoing<'_> {
        let id = Some(self.letter.id.as_str()).filter(|_| to.is_fifo());
        let mut outgoing = Outgoing::new(&self.body, self.attributes);
        outgoing.group_id = self.letter.record.group_id.as_deref().or(id);
        // SQS stores a message once if it is sent twice within five minutes.
        outgoing.deduplication_id = id;
        outgoing
    }
}

impl<'a> Copier<'a> {
    async fn copy(&mut self, letters: Vec<Letter>, held: &mut HeldMessages) -> Visited {
        let mut by_destination: BTreeMap<&QueueArn, Vec<CopyDraft<'_>>> = BTreeMap::new();
        let mut drafted = 0;
        for letter in &letters {
            if let Some((to, draft)) = self.draft(letter, drafted) {
                by_destination.entry(to).or_default().push(draft);
                drafted += 1;
            }
        }
        self.looked_at += letters.len();
        self.tell(drafted > 0);
        if drafted > 0 {
            self.sender.wait().await;
            if self.stop.is_told() {
                return Ok(ControlFlow::Continue(()));
            }
        }
        let before = self.result.stored();
        for (to, drafts) in by_destination {
            self.copy_to(to, drafts, held).await?;
        }
        if self.result.stored() > before {
            self.sender.wait().await;
        }
        Ok(if self.room() == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// The messages that the limit still allows.
    fn room(&self) -> u64 {
        let limit = self.route.arguments.filter.limit.unwrap_or(u64::MAX);
        limit.saturating_sub(self.result.taken())
    }

    async fn copy_to(
        &mut self,
        to: &QueueArn,
        drafts: Vec<CopyDraft<'_>>,
        held: &mut HeldMessages,
    ) -> Result<(), Error> {
        let at_once = if to.is_fifo() { 1 } else { AT_ONCE };
        for some in batches(to, drafts).chunks_mut(at_once) {
            for batch in &mut *some {
                for draft in self.sender.take_blocked(to, batch) {
                    self.fail(draft.letter, BEHIND);
                }
            }
            let carried = join_all(some.iter().map(|batch| self.carry(to, batch))).await;
            // Each batch has taken effect, even if others failed.
            let mut ended = Ok(());
            for (batch, carried) in some.iter().zip(carried) {
                ended = ended.and(self.settle(to, batch, carried, held));
            }
            ended?;
        }
        Ok(())
    }

    /// The copy of a message and its destination, after this many others; `None` if it stays.
    fn draft<'l>(
        &mut self,
        letter: &'l Letter,
        drafted: u64,
    ) -> Option<(&'l QueueArn, CopyDraft<'l>)>
    where
        'a: 'l,
    {
        let (route, dead) = (self.route, letter.read());
        if letter.record.sent.is_some_and(|sent| sent > self.until) {
            self.result.newcomers += 1;
            return None;
        }
        if self.room() <= drafted || !self.route.arguments.filter.chooses(letter, &dead) {
            self.result.not_chosen += 1;
            return None;
        }
        let to = match route.of(letter, &dead) {
            Ok(to) => to,
            Err(reason_to_stay) => {
                self.note(&letter.id, Outcome::left(reason_to_stay.words()));
                // A message of another queue is no failure: it does not count for --limit, and in
                // its FIFO group the chosen queue's messages may pass it.
                if let Some(why) = self.result.left.add(reason_to_stay) {
                    self.fail(letter, &why);
                }
                return None;
            }
        };
        let Some(attributes) = &letter.record.attributes else {
            self.fail(letter, "unreadable attributes");
            return None;
        };
        if route.arguments.fresh_budget && dead.is_of_later_version() {
            self.fail(letter, "written by a later version");
            return None;
        }
        let body = self.body(letter, &dead);
        Some((to, CopyDraft { letter, attributes, body }))
    }

    /// The body of the copy. Requeue recognises a redrive by the time since its last send, so an
    /// earlier copy starts again by its body. The copy of a message without Requeue's fields gets
    /// them if they fit: without them, its new id would be its idempotency key.
    fn body<'l>(&self, letter: &'l Letter, dead: &DeadLetter<'_>) -> Cow<'l, str> {
        let now = Clock::system().now();
        let is_too_soon = dead.was_sent_lately(now) && dead.redrives() < DeadLetter::MAX_REDRIVES;
        let is_first = dead.original_message_id().is_none();
        let size = letter.size();
        let has_room = |copy: &String| {
            let after = size + copy.len().saturating_sub(letter.body.len());
            USUAL_MAXIMA.iter().all(|most| size > *most || after <= *most)
        };
        (self.route.arguments.fresh_budget || is_too_soon || is_first)
            .then(|| dead.afresh(&letter.id, now))
            .flatten()
            .filter(has_room)
            .map_or(Cow::Borrowed(&letter.body), Cow::Owned)
    }

    fn note(&mut self, id: &str, outcome: Outcome) {
        if self.route.arguments.filter.chosen.is_some() {
            self.result.outcomes.by_id.insert(id.to_owned(), outcome);
        }
    }

    fn fail(&mut self, letter: &Letter, code: &str) {
        let may_exist = code.ends_with(MAY_EXIST);
        self.result.failed.add(code);
        if may_exist {
            // A copy has another id of its own.
            let dead = letter.read();
            let id = dead.original_message_id().unwrap_or(&letter.id);
            self.result.in_doubt.push(id.to_owned());
        }
        let outcome = if may_exist { Outcome::in_doubt(code) } else { Outcome::left(code) };
        self.note(&letter.id, outcome);
        self.sender.block(letter.record.group_id.as_deref());
    }

    /// Sends, waits for the confirmation of each entry by its id, and only then deletes.
    async fn carry(&self, to: &QueueArn, batch: &[CopyDraft<'_>]) -> Carried {
        let asked = batch.iter().map(|draft| draft.letter.asked).min();
        if asked.is_none_or(|asked| asked.elapsed() > self.time_in_hand) {
            return (Sent::nothing(LAPSED, batch), Vec::new(), None);
        }
        let sent = self.sender.send(to, batch).await;
        let confirmed = batch.iter().zip(&sent.each).filter(|(_, sent)| sent.is_ok());
        let confirmed: Vec<&Letter> = confirmed.map(|(draft, _)| draft.letter).collect();
        if confirmed.is_empty() {
            return (sent, Vec::new(), None);
        }
        let (deleted, error) = delete(self.route.dead_letters, &confirmed).await;
        (sent, deleted, error)
    }

    /// Counts the results of a batch. An error makes it pointless to continue.
    fn settle(
        &mut self,
        to: &QueueArn,
        batch: &[CopyDraft<'_>],
        (sent, deleted, not_deleted): Carried,
        held: &mut HeldMessages,
    ) -> Result<(), Error> {
        let noted = self.sender.note(to, batch, &sent);
        let mut deleted = deleted.into_iter();
        for (CopyDraft { letter, .. }, sent) in batch.iter().zip(sent.each) {
            if let Err(code) = sent {
                self.fail(letter, &code);
                continue;
            }
            *self.result.copied.entry(to.name().to_owned()).or_default() += 1;
            if deleted.next().is_some_and(|deleted| deleted.is_done) {
                held.forget(&letter.id);
                self.note(&letter.id, Outcome::done());
            } else {
                self.note(&letter.id, Outcome::copied(NOT_DELETED));
                self.result.not_deleted.push(letter.id.clone());
            }
        }
        self.tell(true);
        not_deleted.map_or(Ok(()), Err)?;
        noted.map_err(|error| self.advised(error, to))
    }

    fn advised(&self, error: Error, to: &QueueArn) -> Error {
        let to = to.name();
        if !self.sender.has_stopped() {
            return error;
        }
        if self.result.in_doubt.is_empty() {
            return format!(
                "{error}: the messages are still here; redrive them when SQS accepts them again"
            )
            .into();
        }
        format!(
            "{error}: some copies may be in {to}, so before you redrive these messages again, look \
             for their original ids in the log of what handles {to}, or with `requeue dlq peek \
             --queue {to} --id ID`, which counts as a receive"
        )
        .into()
    }

    /// Logs the counts. `has_chosen`: some of the received messages were chosen.
    fn tell(&self, has_chosen: bool) {
        let (copied, from) = (self.result.copied(), self.route.dead_letters.name());
        self.progress.step(match (self.counts_copies, has_chosen) {
            (true, true) => format!("copying from {from}"),
            (true, false) => {
                format!("looking at {from}, {} not chosen", thousands(self.result.not_chosen))
            }
            (false, _) => format!("looking at {from}"),
        });
        if self.counts_copies {
            self.progress.done(copied);
        } else {
            self.progress.done(self.looked_at);
            self.progress.detail(format!("{} copied", thousands(copied)));
        }
        self.progress.failed(self.result.failed.count());
    }
}

/// A batch that was sent, the deletes of its confirmed messages, and their error.
type Carried = (Sent, Vec<Outcome>, Option<Error>);
