//! Looking through a queue: messages are received and held, so that each is seen once, and made visible again at the end.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::future::join_all;
use requeue::queue::{MAX_BATCH_ENTRIES, MAX_VISIBILITY, QueueArn, ReceiveRequest};
use tokio::time::Instant;

use super::letter::Letter;
use super::progress::Progress;
use super::sqs::{Described, Sqs, refusal};
use super::{messages, note};
use crate::Error;
use crate::stop::Stop;

/// Calls at once.
const AT_ONCE: usize = 4;
/// How long one receive waits. One that waits asks all of SQS's servers; a short one ends soon after Ctrl-C, without being cut off: what
/// it brought would stay hidden.
const WAIT: Duration = Duration::from_secs(1);
/// Receives in a row without a message after which a queue counts as empty, while SQS says that there should be more.
const EMPTY_RECEIVES: usize = 3;
/// The least time for which messages are hidden.
const VISIBILITY: Duration = Duration::from_secs(120);
/// Messages that are looked at in a second at least.
const LEAST_RATE: usize = 100;
/// Looking ends so long before the first message becomes visible by itself.
const RESERVE: Duration = Duration::from_secs(30);

/// Why looking ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// There was nothing more to see.
    Empty,
    /// Whoever looked had seen enough.
    Enough,
    /// `--max-messages`.
    MaxMessages,
    /// The first messages would have become visible.
    TimeUp,
    Interrupted,
}

pub(crate) struct Scan<'a> {
    sqs: &'a Sqs,
    queue: &'a Described,
    stop: &'a Stop,
    max_messages: usize,
    visibility: Duration,
    at_once: usize,
    per_receive: usize,
    first_alone: bool,
    seen: HashSet<String>,
    held: Held,
    progress: Progress,
}

/// The messages that are hidden by us, by their ids.
#[derive(Default)]
pub(crate) struct Held {
    receipt_handles: HashMap<String, String>,
    since: Option<Instant>,
}

impl Held {
    fn hold(&mut self, letter: &Letter) {
        // SQS honours the receipt handle of the latest receive.
        self.receipt_handles.insert(letter.id.clone(), letter.receipt_handle.clone());
        self.since = Some(self.since.map_or(letter.asked, |since| since.min(letter.asked)));
    }

    /// A message that was deleted.
    pub(crate) fn forget(&mut self, id: &str) {
        self.receipt_handles.remove(id);
        if self.receipt_handles.is_empty() {
            self.since = None;
        }
    }
}

impl<'a> Scan<'a> {
    pub(crate) fn new(sqs: &'a Sqs, queue: &'a Described, max_messages: usize, stop: &'a Stop) -> Self {
        let mut scan = Self {
            sqs,
            queue,
            stop,
            max_messages,
            visibility: Duration::ZERO,
            at_once: AT_ONCE,
            per_receive: MAX_BATCH_ENTRIES,
            first_alone: false,
            seen: HashSet::new(),
            held: Held::default(),
            progress: Progress::new(),
        };
        scan.visibility = scan.time_for(LEAST_RATE);
        scan
    }

    /// To change something by each message: the first one comes alone, so that a missing permission shows itself on no more than that
    /// one; with a rate no more are in hand than are due in a second. `keeps_some`: what is not chosen stays held for as long as all takes.
    pub(crate) fn one_by_one(mut self, rate: Option<u16>, keeps_some: bool) -> Self {
        self.first_alone = true;
        if let Some(rate) = rate.map(usize::from) {
            self.per_receive = rate.clamp(1, MAX_BATCH_ENTRIES);
            if keeps_some {
                self.visibility = self.time_for(rate.clamp(1, LEAST_RATE));
            }
        }
        if rate.is_some() || self.queue.arn.is_fifo() {
            self.at_once = 1;
        }
        self
    }

    fn time_for(&self, rate: usize) -> Duration {
        let secs = u64::try_from(self.max_messages / rate).unwrap_or(u64::MAX);
        VISIBILITY.saturating_add(Duration::from_secs(secs)).min(MAX_VISIBILITY)
    }

    /// Hands over every message once. Whatever happens, [`release`](Self::release) has to come after it.
    pub(crate) async fn walk(
        &mut self,
        mut visit: impl AsyncFnMut(Vec<Letter>, &mut Held) -> Result<ControlFlow<()>, Error>,
    ) -> Result<End, Error> {
        let mut empty_receives = 0;
        let end = loop {
            if self.stop.is_told() {
                break End::Interrupted;
            }
            if self.seen.len() >= self.max_messages {
                break End::MaxMessages;
            }
            if self.held.since.is_some_and(|since| since.elapsed() + RESERVE > self.visibility) {
                break End::TimeUp;
            }
            let letters = self.receive().await?;
            if letters.is_empty() {
                empty_receives += 1;
                let seen = u64::try_from(self.seen.len()).unwrap_or(u64::MAX);
                if seen >= self.queue.visible || empty_receives >= EMPTY_RECEIVES {
                    break End::Empty;
                }
                continue;
            }
            empty_receives = 0;
            let new = letters.into_iter().filter(|letter| self.seen.insert(letter.id.clone())).collect();
            if visit(new, &mut self.held).await?.is_break() {
                break End::Enough;
            }
            let (seen, of) = (self.seen.len(), self.queue.visible);
            self.progress.show(|| format!("looked at {seen} of about {of}"));
        };
        self.progress.clear();
        Ok(end)
    }

    async fn receive(&mut self) -> Result<Vec<Letter>, Error> {
        let is_first = self.first_alone && self.seen.is_empty();
        let most = self.max_messages - self.seen.len();
        let (calls, most) = if is_first { (1, 1) } else { (self.at_once.min(most.div_ceil(MAX_BATCH_ENTRIES)), most) };
        let ask = ReceiveRequest { max: most.min(self.per_receive), wait: WAIT, visibility: self.visibility };
        let answers = join_all((0..calls).map(|_| self.sqs.receive(&self.queue.arn, ask))).await;
        let (mut letters, mut trouble) = (Vec::new(), None);
        for answer in answers {
            match answer {
                Ok((records, asked)) => {
                    letters.extend(records.into_iter().filter_map(|record| Letter::new(record, asked)));
                }
                Err(error) => trouble = Some(error),
            }
        }
        for letter in &letters {
            self.held.hold(letter);
        }
        trouble.map_or(Ok(letters), Err)
    }

    pub(crate) fn looked_at(&self) -> usize {
        self.seen.len()
    }

    /// How long a message that was received is ours, with something to spare.
    pub(crate) fn time_in_hand(&self) -> Duration {
        self.visibility.saturating_sub(RESERVE)
    }

    /// Makes everything visible again that is still held. What could not be made so is said; `false` then.
    pub(crate) async fn release(&mut self) -> bool {
        self.progress.clear();
        let held = std::mem::take(&mut self.held);
        let handles: Vec<&str> = held.receipt_handles.values().map(String::as_str).collect();
        let chunks: Vec<&[&str]> = handles.chunks(MAX_BATCH_ENTRIES).collect();
        let (mut hidden, mut why) = (0, None);
        for some in chunks.chunks(AT_ONCE) {
            let answers = join_all(some.iter().map(|chunk| self.sqs.release(&self.queue.arn, chunk))).await;
            for (answer, chunk) in answers.into_iter().zip(some) {
                match answer {
                    Ok(each) => {
                        let refused = each.into_iter().filter_map(Result::err);
                        for error in refused.filter(|error| !is_visible_or_gone(&error.code)) {
                            hidden += 1;
                            why = Some(format!("SQS refuses ChangeMessageVisibility: {}", error.code));
                        }
                    }
                    Err(error) => {
                        hidden += chunk.len();
                        why = Some(refusal("ChangeMessageVisibilityBatch", &self.queue.arn, &error).to_string());
                    }
                }
            }
        }
        if let Some(why) = why {
            let mins = self.visibility.as_secs().div_ceil(60);
            note(&format!(
                "{} stay hidden for at most {mins} minutes, then come back by themselves: {why}",
                messages(hidden)
            ));
        }
        hidden == 0
    }

    /// Says what was not seen; `false` when something certainly was not.
    pub(crate) fn tell(&self, end: End) -> bool {
        let name = self.queue.arn.name();
        let seen = self.looked_at();
        let rest = self.queue.visible.saturating_sub(u64::try_from(seen).unwrap_or(u64::MAX));
        match end {
            End::MaxMessages if rest > 0 => note(&format!(
                "partial: {} looked at, about {rest} more in {name}; --max-messages raises the bound",
                messages(seen)
            )),
            End::TimeUp => {
                note(&format!("partial: {} looked at, about {rest} more; run it again for the rest", messages(seen)));
            }
            End::Interrupted => {
                note(&format!("interrupted: {} looked at, and visible again unless brought back", messages(seen)));
            }
            End::Empty if rest > 0 => note(&format!(
                "SQS speaks of about {rest} more in {name} than could be received; its counts are approximate"
            )),
            End::MaxMessages | End::Empty | End::Enough => {}
        }
        let elsewhere = [(self.queue.in_flight, "with another reader"), (self.queue.delayed, "not yet visible")];
        for (count, what) in elsewhere.into_iter().filter(|(count, _)| *count > 0) {
            note(&format!("about {} of {name} {what} were not looked at", messages(count)));
        }
        match end {
            End::Empty | End::Enough => true,
            End::MaxMessages => rest == 0,
            End::TimeUp | End::Interrupted => false,
        }
    }

    pub(crate) fn queue(&self) -> &QueueArn {
        &self.queue.arn
    }
}

/// Codes of a message that is not hidden any more. Source: SQS API reference, `ChangeMessageVisibility`.
fn is_visible_or_gone(code: &str) -> bool {
    ["MessageNotInflight", "InvalidParameterValue", "ReceiptHandleIsInvalid"].contains(&code)
}
