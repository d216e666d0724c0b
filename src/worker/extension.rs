//! Messages in flight. Their visibility timeout is extended while they are worked on, and no
//! longer. The calls of settling go through this module, so that no extension follows them, and so
//! that settling knows the messages whose extensions failed for too long.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::clock::Clock;
use crate::lock::lock;
use crate::observer::{Event, Observers};
use crate::queue::{
    CallError, Confirmation, Description, EntryError, MAX_VISIBILITY, Outgoing, Queue, QueueArn,
    ReceiveRequest, Record, Source,
};

/// The extensions in one visibility timeout. If one fails, the next one is still in time.
const BEATS: u32 = 3;
/// The timeout of an extension. It is short, since settling of these messages waits for it.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// A message counts as lapsed this much earlier, or a tenth of its visibility timeout.
const LAPSED_BEFORE: Duration = Duration::from_secs(5);
/// Extensions end this much before SQS's limit, since SQS refuses one that exceeds it.
const BEFORE_LIMIT: Duration = Duration::from_secs(60);

pub(super) struct InHand {
    pub(super) id: Option<String>,
    pub(super) handle: String,
}

impl InHand {
    pub(super) fn of(record: &Record) -> Option<Self> {
        Some(Self { id: record.message_id.clone(), handle: record.receipt_handle.clone()? })
    }
}

/// A queue, and its messages in flight.
pub(super) struct Extended<Q> {
    queue: Arc<Q>,
    extensions: Arc<Extensions>,
    observers: Observers,
}

impl<Q> Clone for Extended<Q> {
    fn clone(&self) -> Self {
        let observers = self.observers.clone();
        Self { queue: Arc::clone(&self.queue), extensions: Arc::clone(&self.extensions), observers }
    }
}

impl<Q: Queue> Extended<Q> {
    pub(super) fn new(queue: Q, observers: Observers) -> Self {
        Self { queue: Arc::new(queue), extensions: Arc::default(), observers }
    }

    /// Works on messages that were received, and keeps them hidden meanwhile. Their time begins at
    /// `asked`, before the request for them was sent. The clock of tokio continues while SIGSTOP or
    /// the freezer of a container stops the process.
    pub(super) async fn during<T>(
        &self,
        queue: &QueueArn,
        received: Vec<InHand>,
        visibility: Duration,
        asked: Instant,
        work: impl Future<Output = T>,
    ) -> T {
        let until = hidden_until(asked, visibility);
        let batch = self.extensions.take(received, until, asked);
        tokio::select! {
            biased;
            done = work => done,
            never = self.extend(queue, &batch.handles, visibility, asked) => match never {},
        }
    }

    async fn extend(
        &self,
        queue: &QueueArn,
        handles: &[String],
        visibility: Duration,
        asked: Instant,
    ) -> Infallible {
        let beat = visibility / BEATS;
        let mut next = asked + beat;
        loop {
            sleep_until(next).await;
            let longest = MAX_VISIBILITY.saturating_sub(BEFORE_LIMIT + asked.elapsed());
            let batch = self.extensions.begin(handles);
            // Near SQS's limit, an extension would add nothing.
            if batch.is_empty() || longest < visibility.saturating_sub(beat) {
                self.extensions.end(&batch);
                return pending().await;
            }
            let visibility = visibility.min(longest);
            let until = hidden_until(Instant::now(), visibility);
            let entries: Vec<(&str, Duration)> =
                batch.iter().map(|handle| (handle.as_str(), visibility)).collect();
            let response =
                timeout(CALL_TIMEOUT.min(beat), self.queue.change_visibility(queue, &entries))
                    .await;
            self.extensions.end(&batch);
            let code = match response {
                Ok(Ok(confirmations)) => {
                    lock(&self.extensions.hands).note(batch.iter().zip(&confirmations), until);
                    confirmations.into_iter().find_map(Result::err).map(|error| error.code)
                }
                Ok(Err(error)) => Some(error.code),
                Err(_) => Some("TimedOut".to_owned()),
            };
            if let Some(code) = code {
                let messages = batch.len();
                self.observers.tell(&Event::NotExtended { queue, code: &code, messages });
            }
            next = Instant::now() + beat;
        }
    }

    pub(super) fn begin(&self) {
        lock(&self.extensions.hands).is_ending = false;
    }

    pub(super) fn end(&self) {
        lock(&self.extensions.hands).is_ending = true;
    }

    /// Ends the extensions of these messages, and waits for a call in progress.
    async fn let_go(&self, handles: impl Iterator<Item = &str> + Clone) {
        lock(&self.extensions.hands).let_go(handles.clone());
        self.extensions.until(|hands| !hands.is_extending(handles.clone())).await;
    }
}

/// The messages in flight, by receipt handle.
#[derive(Default)]
struct Extensions {
    hands: Mutex<Hands>,
    /// Notified when an extension or a receive has ended.
    ended: Notify,
}

#[derive(Default)]
struct Hands {
    /// The messages to extend, each with the end of its hidden time.
    held: HashMap<String, Instant>,
    /// The messages of an extension in progress.
    extending: HashSet<String>,
    /// The ids of the messages that are worked on, by receipt handle.
    ids: HashMap<String, String>,
    receiving: usize,
    is_ending: bool,
}

impl Hands {
    fn let_go<'a>(&mut self, handles: impl Iterator<Item = &'a str>) {
        for handle in handles {
            self.held.remove(handle);
        }
    }

    /// The messages of these receives are no longer worked on.
    fn end_work<'a>(&mut self, handles: impl Iterator<Item = &'a str>) {
        for handle in handles {
            self.ids.remove(handle);
        }
    }

    /// An extended message is hidden until `until`. A message that SQS refuses to extend has
    /// lapsed, even if the local clock disagrees: that clock stops while the machine sleeps.
    fn note<'a>(
        &mut self,
        responses: impl Iterator<Item = (&'a String, &'a Confirmation)>,
        until: Instant,
    ) {
        for (handle, response) in responses {
            // The work on the message may have ended meanwhile.
            match (response, self.held.get_mut(handle)) {
                (Ok(()), Some(held)) => *held = until,
                (Err(error), Some(held))
                    if error.sender_fault && *error != EntryError::unconfirmed() =>
                {
                    *held = Instant::now();
                }
                (Ok(()) | Err(_), _) => {}
            }
        }
    }

    fn has_lapsed(&self, handle: &str) -> bool {
        self.held.get(handle).is_some_and(|until| *until <= Instant::now())
    }

    fn is_extending<'a>(&self, mut handles: impl Iterator<Item = &'a str>) -> bool {
        handles.any(|handle| self.extending.contains(handle))
    }
}

impl Extensions {
    async fn until(&self, is_so: impl Fn(&Hands) -> bool) {
        loop {
            // Registered before the check, so that no end is missed in between.
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if is_so(&lock(&self.hands)) {
                return;
            }
            ended.await;
        }
    }

    /// Begins the work on messages that are hidden until `until`. If an earlier receive of a
    /// message is still worked on, that one has lapsed, and this one counts as lapsed too: its
    /// handler may run.
    fn take(&self, received: Vec<InHand>, until: Instant, asked: Instant) -> Batch<'_> {
        let mut hands = lock(&self.hands);
        for InHand { id, handle } in &received {
            let is_worked_on =
                id.as_ref().is_some_and(|id| hands.ids.values().any(|other| other == id));
            hands.held.insert(handle.clone(), if is_worked_on { asked } else { until });
        }
        let ids = received.iter().filter_map(|one| Some((one.handle.clone(), one.id.clone()?)));
        hands.ids.extend(ids);
        drop(hands);
        Batch { extensions: self, handles: received.into_iter().map(|one| one.handle).collect() }
    }

    /// The messages that still need an extension now, and have not lapsed.
    fn begin(&self, handles: &[String]) -> Vec<String> {
        let mut hands = lock(&self.hands);
        let is_ours =
            |handle: &&String| hands.held.contains_key(*handle) && !hands.has_lapsed(handle);
        let batch: Vec<String> = handles.iter().filter(is_ours).cloned().collect();
        hands.extending.extend(batch.iter().cloned());
        batch
    }

    fn end(&self, batch: &[String]) {
        let mut hands = lock(&self.hands);
        for handle in batch {
            hands.extending.remove(handle);
        }
        drop(hands);
        self.ended.notify_waiters();
    }
}

/// The time until which a message is certainly hidden, counted from before the request.
fn hidden_until(from: Instant, visibility: Duration) -> Instant {
    from + visibility.saturating_sub(LAPSED_BEFORE.min(visibility / 10))
}

/// Messages in flight, until it is dropped.
struct Batch<'a> {
    extensions: &'a Extensions,
    handles: Vec<String>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let mut hands = lock(&self.extensions.hands);
        hands.let_go(self.handles.iter().map(String::as_str));
        hands.end_work(self.handles.iter().map(String::as_str));
        drop(hands);
        self.extensions.end(&self.handles);
    }
}

impl<Q: Queue> Queue for Extended<Q> {
    async fn send(
        &self,
        queue: &QueueArn,
        entries: &[Outgoing<'_>],
    ) -> Result<Vec<Confirmation>, CallError> {
        self.queue.send(queue, entries).await
    }

    async fn delete(
        &self,
        queue: &QueueArn,
        receipt_handles: &[&str],
    ) -> Result<Vec<Confirmation>, CallError> {
        self.let_go(receipt_handles.iter().copied()).await;
        self.queue.delete(queue, receipt_handles).await
    }

    async fn change_visibility(
        &self,
        queue: &QueueArn,
        entries: &[(&str, Duration)],
    ) -> Result<Vec<Confirmation>, CallError> {
        self.let_go(entries.iter().map(|(handle, _)| *handle)).await;
        // They may be received again before the response.
        lock(&self.extensions.hands).end_work(entries.iter().map(|(handle, _)| *handle));
        self.queue.change_visibility(queue, entries).await
    }

    fn has_lapsed(&self, receipt_handle: &str) -> bool {
        lock(&self.extensions.hands).has_lapsed(receipt_handle)
    }

    /// Extensions go on meanwhile.
    async fn last_receives(&self) {
        self.extensions.until(|hands| !hands.is_ending || hands.receiving == 0).await;
    }

    fn clock(&self) -> Clock {
        self.queue.clock()
    }
}

impl<Q: Queue + Source> Source for Extended<Q> {
    async fn describe(&self, queue: &QueueArn) -> Result<Description, CallError> {
        self.queue.describe(queue).await
    }

    async fn receive(
        &self,
        queue: &QueueArn,
        ask: ReceiveRequest,
    ) -> Result<Vec<Record>, CallError> {
        let _receiving = Receiving::begin(&self.extensions);
        self.queue.receive(queue, ask).await
    }
}

/// A receive in progress, until it is dropped.
struct Receiving<'a>(&'a Extensions);

impl<'a> Receiving<'a> {
    fn begin(extensions: &'a Extensions) -> Self {
        lock(&extensions.hands).receiving += 1;
        Self(extensions)
    }
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        lock(&self.0.hands).receiving -= 1;
        self.0.ended.notify_waiters();
    }
}
