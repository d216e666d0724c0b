//! A queue that reports which messages are received, sent, deleted and hidden.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use requeue::Clock;
use requeue::queue::{
    CallError, Confirmation, Description, EntryError, Outgoing, Queue, QueueArn, ReceiveRequest,
    Record, Source,
};

use super::event::{Event, Ids, Kind};
use super::sqs::{DELETE, RECEIVE, may_be_carried_out};
use super::{Observer, of_body};

/// The messages in flight that are remembered: many times those of a worker.
const MAX_IN_FLIGHT: usize = 20_000;

const SEND: &str = "sqs:SendMessage";
const CHANGE_VISIBILITY: &str = "sqs:ChangeMessageVisibility";
const DESCRIBE: &str = "sqs:GetQueueAttributes";

pub(crate) struct ObservedQueue<Q> {
    queue: Q,
    source: String,
    observer: Observer,
    in_flight: Mutex<InFlight>,
    /// The visibility timeout of the last receive, in seconds.
    visibility: AtomicU64,
}

/// The ids of the messages in flight by their receipt handles.
#[derive(Default)]
struct InFlight {
    ids: HashMap<String, Ids>,
    /// The handles in the order of their receives.
    handles: VecDeque<String>,
}

impl<Q> ObservedQueue<Q> {
    pub(crate) fn new(queue: Q, source: &QueueArn, observer: Observer) -> Self {
        let source = source.name().to_owned();
        Self { queue, source, observer, in_flight: Mutex::default(), visibility: AtomicU64::new(0) }
    }

    fn received(&self, record: &Record) {
        let (Some(id), Some(handle)) = (&record.message_id, &record.receipt_handle) else { return };
        let (ids, retries, _) = of_body(id, record.body.as_deref().unwrap_or_default());
        self.in_flight.lock().add(handle, ids.clone());
        self.observer.tell(|| Event {
            attempt: Some(retries.unwrap_or_default().saturating_add(1)),
            ..Event::now(Kind::Received, ids)
        });
    }

    /// Waits for a response and notes its code, which an unsettled message has too.
    async fn response(
        &self,
        queue: &QueueArn,
        action: &'static str,
        request: impl Future<Output = Result<Vec<Confirmation>, CallError>>,
    ) -> Result<Vec<Confirmation>, CallError> {
        let sqs = self.observer.sqs();
        let running = sqs.requests.begin(action, Duration::ZERO);
        let response = running.ended(request.await);
        let code = match &response {
            Ok(confirmed) => {
                confirmed.iter().find_map(|one| one.as_ref().err()).map(|error| &error.code)
            }
            Err(error) => Some(&error.code),
        };
        match code {
            None => sqs.carried_out(action),
            Some(code) if sqs.refused(action, queue.name(), code) && self.observer.0.has_log => {
                tracing::warn!(action, queue = %queue, code, "a request to SQS failed");
            }
            Some(_) => {}
        }
        response
    }

    /// A confirmed send: a copy for this queue, or a dead letter for another one.
    fn sent(&self, entry: &Outgoing<'_>, is_dead: bool) {
        let delay = Duration::from_secs(entry.delay.as_secs().into());
        if !is_dead {
            self.observer.due_in(delay);
        }
        self.observer.tell(|| {
            let (ids, _, why) = of_body("", entry.body);
            let kind = if is_dead { Kind::Dead } else { Kind::Copied };
            Event::now(kind, ids).delay(delay).reason(why.as_deref())
        });
    }
}

impl InFlight {
    fn add(&mut self, handle: &str, ids: Ids) {
        if self.handles.len() >= MAX_IN_FLIGHT
            && let Some(oldest) = self.handles.pop_front()
        {
            self.ids.remove(&oldest);
        }
        self.ids.insert(handle.to_owned(), ids);
        self.handles.push_back(handle.to_owned());
    }
}

impl<Q: Queue> Queue for ObservedQueue<Q> {
    async fn send(
        &self,
        queue: &QueueArn,
        entries: &[Outgoing<'_>],
    ) -> Result<Vec<Confirmation>, CallError> {
        let confirmed = self.response(queue, SEND, self.queue.send(queue, entries)).await;
        self.observer.sqs().may_have_stored(match &confirmed {
            Ok(each) => each.iter().filter(|one| **one == Err(EntryError::unconfirmed())).count(),
            Err(error) if may_be_carried_out(&error.code) => entries.len(),
            Err(_) => 0,
        });
        let confirmed = confirmed?;
        let is_dead = queue.name() != self.source;
        for (entry, confirmation) in entries.iter().zip(&confirmed) {
            if confirmation.is_ok() {
                self.sent(entry, is_dead);
            }
        }
        Ok(confirmed)
    }

    async fn delete(
        &self,
        queue: &QueueArn,
        receipt_handles: &[&str],
    ) -> Result<Vec<Confirmation>, CallError> {
        let request = self.queue.delete(queue, receipt_handles);
        let confirmed = self.response(queue, DELETE, request).await?;
        for (handle, confirmation) in receipt_handles.iter().zip(&confirmed) {
            if confirmation.is_ok()
                && let Some(ids) = self.in_flight.lock().ids.remove(*handle)
            {
                self.observer.tell(|| Event::now(Kind::Deleted, ids));
            }
        }
        Ok(confirmed)
    }

    async fn change_visibility(
        &self,
        queue: &QueueArn,
        entries: &[(&str, Duration)],
    ) -> Result<Vec<Confirmation>, CallError> {
        let request = self.queue.change_visibility(queue, entries);
        let confirmed = self.response(queue, CHANGE_VISIBILITY, request).await?;
        // A message in flight is hidden for the visibility timeout again and again.
        let visibility = self.visibility.load(Ordering::Relaxed);
        for ((handle, delay), confirmation) in entries.iter().zip(&confirmed) {
            if confirmation.is_ok() && ![0, visibility].contains(&delay.as_secs()) {
                self.observer.due_in(*delay);
            }
            if confirmation.is_ok()
                && let Some(ids) = self.in_flight.lock().ids.get(*handle).cloned()
            {
                self.observer.tell(|| Event::now(Kind::Hidden, ids).delay(*delay));
            }
        }
        Ok(confirmed)
    }

    fn has_lapsed(&self, receipt_handle: &str) -> bool {
        self.queue.has_lapsed(receipt_handle)
    }

    fn clock(&self) -> Clock {
        self.queue.clock()
    }
}

impl<Q: Source> Source for ObservedQueue<Q> {
    async fn describe(&self, queue: &QueueArn) -> Result<Description, CallError> {
        let request = self.observer.sqs().requests.begin(DESCRIBE, Duration::ZERO);
        let described = request.ended(self.queue.describe(queue).await)?;
        if queue.name() == self.source {
            let mut state = self.observer.sqs().state();
            state.endpoint.clone_from(&described.endpoint);
            state.max_receives = described.max_receive_count;
        }
        Ok(described)
    }

    async fn receive(
        &self,
        queue: &QueueArn,
        ask: ReceiveRequest,
    ) -> Result<Vec<Record>, CallError> {
        self.visibility.store(ask.visibility.as_secs(), Ordering::Relaxed);
        let request = self.observer.sqs().requests.begin(RECEIVE, ask.wait);
        let records = request.ended(self.queue.receive(queue, ask).await)?;
        if self.observer.is_read() {
            for record in &records {
                self.received(record);
            }
        }
        Ok(records)
    }
}
