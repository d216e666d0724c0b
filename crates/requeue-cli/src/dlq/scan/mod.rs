//! Scans a queue: receives and hides each message once, and shows them again at the end.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::future::join_all;
use requeue::DeadLetter;
use requeue::queue::{Description, MAX_BATCH_ENTRIES, MAX_VISIBILITY, ReceiveRequest};
use tokio::time::Instant;

mod held;
mod unseen;

pub(crate) use held::HeldMessages;
pub(crate) use unseen::{Cause, Comparison, ScanEnd, ScanResult, Seen, Unseen};

use self::held::CutGroups;
use self::unseen::pause;
use super::letter::{Filter, Letter};
use super::sqs::Sqs;
use crate::Error;
use crate::progress::CommandProgress;
use crate::stop::Stop;

const AT_ONCE: usize = 4;
/// The wait of one receive. A receive that waits asks all of SQS's servers. A short one ends soon
/// after Ctrl-C without being cut off, since the messages of a cut-off receive would stay hidden.
const WAIT: Duration = Duration::from_secs(1);
/// A receive that takes this much longer may have been tried twice.
const LATE: Duration = Duration::from_secs(4);
const VISIBILITY: Duration = Duration::from_secs(120);
const LEAST_RATE: usize = 100;
/// The scan ends this long before the first message becomes visible by itself.
const RESERVE: Duration = Duration::from_secs(30);

pub(crate) type Visited = Result<ControlFlow<()>, Error>;

pub(crate) struct Scan<'a> {
    sqs: &'a Sqs,
    queue: &'a Description,
    stop: &'a Stop,
    max_messages: usize,
    visibility: Duration,
    at_once: usize,
    per_receive: usize,
    per_visit: usize,
    first_alone: bool,
    /// Messages of the count that left the queue before the scan.
    pub(crate) gone: u64,
    seen: HashSet<String>,
    /// The messages that the caller got. After a signal it gets no more.
    looked_at: usize,
    held: HeldMessages,
    cut: CutGroups,
    /// When SQS last responded late to a receive: an earlier try of it may have hidden messages.
    late: Option<Instant>,
    /// Messages that were made visible again, to receive them with their successors.
    given_back: usize,
    progress: &'a CommandProgress,
    /// Whether the progress counts the messages seen. Otherwise the caller counts.
    counts_seen: bool,
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        sqs: &'a Sqs,
        queue: &'a Description,
        max_messages: usize,
        stop: &'a Stop,
        progress: &'a CommandProgress,
    ) -> Self {
        Self {
            sqs,
            queue,
            stop,
            max_messages,
            visibility: visibility(queue, max_messages, None),
            at_once: AT_ONCE,
            per_receive: MAX_BATCH_ENTRIES,
            per_visit: usize::MAX,
            first_alone: false,
            gone: 0,
            seen: HashSet::new(),
            looked_at: 0,
            held: HeldMessages::default(),
            cut: CutGroups::default(),
            late: None,
            given_back: 0,
            progress,
            counts_seen: true,
        }
    }

    /// For callers that change each message, and count them. The first message is passed on alone,
    /// so that a missing permission affects only that one. With a rate, the scan passes on, and
    /// receives, at most as many as are due in a second, unless a FIFO queue would block later
    /// messages. `keeps_some`: unchosen messages stay hidden until the end of the scan.
    pub(crate) fn one_by_one(mut self, rate: Option<u16>, keeps_some: bool) -> Self {
        (self.first_alone, self.counts_seen) = (true, false);
        let is_fifo = self.queue.arn.is_fifo();
        if let Some(rate) = rate {
            self.per_visit = usize::from(rate).clamp(1, MAX_BATCH_ENTRIES);
            if !is_fifo {
                self.per_receive = self.per_visit;
            }
        }
        if keeps_some {
            self.visibility = visibility(self.queue, self.max_messages, rate);
        }
        if rate.is_some() || is_fifo {
            self.at_once = 1;
        }
        self
    }

    /// Passes on every message once, and then makes all hidden messages visible again.
    pub(crate) async fn run(
        mut self,
        mut visit: impl AsyncFnMut(Vec<Letter>, &mut HeldMessages) -> Visited,
    ) -> ScanResult {
        self.stop.hides_for(self.visibility);
        let (end, unseen, error) = match self.walk(&mut visit).await {
            Ok((end, unseen)) => (end, unseen, None),
            Err(error) => (ScanEnd::Error, Unseen::broken_off(self.not_seen()), Some(error)),
        };
        let left_hidden = self.release(error.as_ref()).await;
        let (looked_at, not_seen) = (self.looked_at, self.not_seen());
        ScanResult { end, unseen, looked_at, not_seen, left_hidden, error }
    }

    /// Passes on each message that the filter chooses, and notes those that were not reached.
    pub(crate) async fn each(
        self,
        filter: &Filter,
        mut visit: impl FnMut(&Letter, &DeadLetter<'_>) -> Visited,
    ) -> Result<ScanResult, Error> {
        let (queue, progress) = (self.queue, self.progress);
        let looked = self.run(async |letters, _| {
            for letter in &letters {
                let dead = letter.read();
                if filter.chooses(letter, &dead) && visit(letter, &dead)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        });
        let looked = looked.await.into_result()?;
        looked.tell(queue, progress);
        Ok(looked)
    }

    async fn walk(
        &mut self,
        visit: &mut impl AsyncFnMut(Vec<Letter>, &mut HeldMessages) -> Visited,
    ) -> Result<(ScanEnd, Unseen), Error> {
        let (mut comparison, mut is_drained) = (Comparison::default(), false);
        loop {
            if self.stop.is_told() {
                return Ok((ScanEnd::Interrupted, Unseen::default()));
            }
            if let Some((cause, comparison)) = self.bound() {
                let (sqs, queue, seen) = (self.sqs, self.queue, self.seen());
                let unseen = comparison.settled(sqs, queue, seen, self.stop).await?;
                return Ok(unseen.map_or((ScanEnd::Interrupted, Unseen::default()), |unseen| {
                    (ScanEnd::Done, unseen.because(cause))
                }));
            }
            let letters = self.receive().await?;
            let is_empty = letters.is_empty();
            is_drained |= is_empty;
            let new = self.new_of(letters);
            if !new.is_empty() {
                comparison.again();
            }
            if self.hand_over(new, visit).await?.is_break() {
                return Ok((ScanEnd::Enough, Unseen::default()));
            }
            let is_overdue = comparison.is_overdue(self.queue, self.seen());
            if self.counts_seen && !is_empty && comparison.goes_on() {
                let arriving = "new messages keep arriving: this ends within a minute, and sooner \
                                with --max-messages";
                self.progress.note(arriving.to_owned());
            }
            if is_drained && !is_overdue && self.give_back_a_cut_group().await {
                continue;
            }
            if is_empty || is_overdue {
                self.progress.step("comparing the messages with SQS's counts");
                if let Some(unseen) = comparison.ask(self.sqs, self.queue, self.seen()).await? {
                    return Ok((ScanEnd::Done, unseen));
                }
                pause(self.stop).await;
            }
        }
    }

    /// The bound that ends the scan, even if there are more messages.
    fn bound(&self) -> Option<(Cause, Comparison)> {
        if self.seen.len() >= self.max_messages {
            return Some((Cause::MaxMessages, Comparison::asking_once()));
        }
        let is_over = |since: Instant| since.elapsed() + RESERVE > self.visibility;
        self.held.since.is_some_and(is_over).then(|| (Cause::TimeUp, Comparison::at_once()))
    }

    /// The new messages, up to the limit. A receive of a FIFO queue may return others than the
    /// released ones. Messages beyond the limit are not shown, and become visible with the rest.
    fn new_of(&mut self, letters: Vec<Letter>) -> Vec<Letter> {
        let is_new = |letter: &Letter| {
            self.seen.len() < self.max_messages && self.seen.insert(letter.id.clone())
        };
        letters.into_iter().filter(is_new).collect()
    }

    async fn hand_over(
        &mut self,
        mut letters: Vec<Letter>,
        visit: &mut impl AsyncFnMut(Vec<Letter>, &mut HeldMessages) -> Visited,
    ) -> Visited {
        while !letters.is_empty() && !self.stop.is_told() {
            let rest = letters.split_off(letters.len().min(self.per_visit));
            self.looked_at += letters.len();
            if visit(std::mem::replace(&mut letters, rest), &mut self.held).await?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if self.counts_seen {
                self.progress.done(self.seen.len());
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn seen(&self) -> Seen {
        let number = |count| u64::try_from(count).unwrap_or(u64::MAX);
        let seen = number(self.seen.len());
        Seen {
            all: seen + self.gone,
            here: seen.saturating_sub(self.held.deleted),
            held: number(self.held.count()),
            has_a_full_group: self.held.has_a_full_group(),
        }
    }

    async fn receive(&mut self) -> Result<Vec<Letter>, Error> {
        let is_first = self.first_alone && self.seen.is_empty();
        let again = std::mem::take(&mut self.given_back);
        // Released messages are received before others.
        let most = self.max_messages - self.seen.len() + again;
        let (calls, most) = match () {
            () if is_first => (1, 1),
            () if again > 0 => (1, most),
            () => (self.at_once, most),
        };
        let asks = (0..most)
            .step_by(self.per_receive)
            .take(calls)
            .map(|before| (most - before).min(self.per_receive));
        let asks: Vec<usize> = asks.collect();
        let began = Instant::now();
        let responses = join_all(asks.iter().map(|max| {
            let mut ask = ReceiveRequest::default();
            (ask.max, ask.wait, ask.visibility) = (*max, WAIT, self.visibility);
            self.sqs.receive(&self.queue.arn, ask)
        }));
        let (mut letters, mut failure) = (Vec::new(), None);
        let responses = responses.await;
        if began.elapsed() > WAIT + LATE {
            self.late = Some(Instant::now());
        }
        for (response, max) in responses.into_iter().zip(&asks) {
            match response {
                Ok((records, asked)) => {
                    let is_full = records.len() >= *max;
                    let received: Vec<Letter> = records
                        .into_iter()
                        .filter_map(|record| Letter::new(record, asked))
                        .collect();
                    // A group without new messages would otherwise be received again forever.
                    if is_full
                        && self.queue.arn.is_fifo()
                        && received.iter().any(|one| !self.seen.contains(&one.id))
                    {
                        self.cut.note(&received);
                    }
                    letters.extend(received);
                }
                Err(error) => failure = Some(error),
            }
        }
        for letter in &letters {
            self.held.hold(letter);
        }
        failure.map_or(Ok(letters), Err)
    }

    /// Releases a cut group, so that SQS delivers its successors; `false` if there is none.
    async fn give_back_a_cut_group(&mut self) -> bool {
        let Some(of_group) = self.cut.next(&self.held) else { return false };
        let handles: Vec<&str> = of_group.iter().map(|(_, handle)| handle.as_str()).collect();
        let Ok(responses) = self.sqs.release(&self.queue.arn, &handles).await else {
            // The final release reports the error.
            self.cut.stop();
            return false;
        };
        for ((id, _), response) in of_group.iter().zip(responses) {
            if response.is_ok() {
                self.held.show(id);
                self.given_back += 1;
            }
        }
        true
    }

    /// The counted messages that were not seen.
    fn not_seen(&self) -> u64 {
        self.queue.messages.saturating_sub(self.seen().all)
    }

    /// The time for which a received message is certainly hidden.
    pub(crate) fn time_in_hand(&self) -> Duration {
        self.visibility.saturating_sub(RESERVE)
    }
}

/// The time for which messages stay hidden if a scan, or a redrive at this rate, is killed. SQS's
/// count may be too low; the scan then ends before that time, and reports it.
pub(super) fn visibility(queue: &Description, max_messages: usize, rate: Option<u16>) -> Duration {
    let rate = rate.map_or(LEAST_RATE, |rate| usize::from(rate).clamp(1, LEAST_RATE));
    let count = usize::try_from(queue.messages).unwrap_or(usize::MAX).min(max_messages);
    let secs = u64::try_from(count / rate).unwrap_or(u64::MAX);
    VISIBILITY.saturating_add(Duration::from_secs(secs)).min(MAX_VISIBILITY)
}
