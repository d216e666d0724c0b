//! One queue: its messages, and the order and the times in which they can be received. The cost of
//! every step is a logarithm of the queue's length.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use super::check;
use super::error::SqsError;
use super::index::{Index, Memory};
use super::limits;
use super::message::{Arrivals, Draft, Key, Message, Receipt, Received, Sent, State};
use super::settings::Settings;

/// The state of one queue, at the time of the last [`advance`](Self::advance).
#[derive(Clone, Debug)]
pub(crate) struct QueueState {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) created: SystemTime,
    pub(crate) modified: SystemTime,
    now: SystemTime,
    /// Distinguishes this queue from an earlier one of the same name.
    instance: u64,
    pub(crate) messages: BTreeMap<Key, Message>,
    next_key: Key,
    next_receipt: u64,
    pub(crate) index: Index,
    memory: Memory,
    /// Receipt handles that this queue did not make: see [`put_in_flight`](Self::put_in_flight).
    foreign_handles: HashMap<String, Receipt>,
    purged: Option<SystemTime>,
    pub(crate) arrivals: Arrivals,
}

const EXPIRED: &str = "The receipt handle has expired.";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Take {
    pub(crate) limit: usize,
    pub(crate) visibility: Duration,
    pub(crate) max_receive_count: Option<u64>,
}

impl QueueState {
    pub(crate) fn new(name: &str, settings: Settings, instance: u64, now: SystemTime) -> Self {
        let index = Index::of(settings.is_fifo());
        Self {
            name: name.to_owned(),
            settings,
            tags: BTreeMap::new(),
            created: now,
            modified: now,
            now,
            instance,
            messages: BTreeMap::new(),
            next_key: 0,
            next_receipt: 0,
            index,
            memory: Memory::default(),
            foreign_handles: HashMap::new(),
            purged: None,
            arrivals: Arrivals::default(),
        }
    }

    /// Lets time pass: retention ends, delays end, visibility timeouts end.
    pub(crate) fn advance(&mut self, now: SystemTime) {
        self.now = now;
        let retention = self.settings.time("MessageRetentionPeriod");
        while let Some(key) = self.index.older_than(now, retention) {
            self.remove(key);
        }
        while let Some((until, key)) = self.index.due(now) {
            self.place(key, State::Visible { since: until });
        }
    }

    pub(crate) fn send(&mut self, draft: Draft, id: String) -> Result<Sent, SqsError> {
        let now = self.now;
        check::draft(&draft, &self.settings)?;
        let default = self.settings.time("DelaySeconds");
        if !self.settings.is_fifo() {
            // An explicit zero overrides the queue's delay.
            let own = draft.delay_secs.and_then(|secs| u64::try_from(secs).ok());
            let delay = own.map_or(default, Duration::from_secs);
            return Ok(self.accept(Message::new(draft, id, now), delay));
        }
        let deduplication =
            draft.deduplication.clone().unwrap_or_else(|| super::digest::sha256(&draft.body));
        let is_per_group = self.settings.is("DeduplicationScope", "messageGroup");
        let scope = draft.group.clone().filter(|_| is_per_group);
        let scoped = (scope, deduplication.clone());
        if let Some(earlier) = self.memory.recall(&scoped, now) {
            return Ok(earlier);
        }
        let mut message = Message::new(draft, id, now);
        message.deduplication = Some(deduplication);
        let sent = self.accept(message, default);
        self.memory.remember(scoped, sent.clone(), now);
        Ok(sent)
    }

    pub(crate) fn accept(&mut self, mut message: Message, delay: Duration) -> Sent {
        let key = self.next_key;
        self.next_key += 1;
        message.state = match delay {
            Duration::ZERO => State::Visible { since: self.now },
            delay => State::Delayed { until: self.now + delay },
        };
        message.sequence = self.settings.is_fifo().then_some(key);
        let sent = Sent { id: message.id.clone(), sequence: message.sequence };
        self.arrivals.tell(&self.name, &message);
        self.index.insert(key, &message);
        self.messages.insert(key, message);
        sent
    }

    /// The messages of the second list have left the queue: the redrive policy moves them.
    pub(crate) fn receive(&mut self, take: Take) -> (Vec<Received>, Vec<Message>) {
        let room = limits::IN_FLIGHT.saturating_sub(self.index.counts().in_flight);
        let limit = take.limit.min(room);
        let (mut received, mut moved) = (Vec::new(), Vec::new());
        while received.len() < limit {
            let next = self.index.next(limit - received.len());
            if next.is_empty() {
                break;
            }
            for key in next {
                let count = self.messages.get(&key).map_or(0, |message| message.receive_count);
                if take.max_receive_count.is_some_and(|max| u64::from(count) >= max) {
                    moved.extend(self.remove(key));
                } else {
                    received.extend(self.hand_out(key, take.visibility));
                }
            }
        }
        (received, moved)
    }

    fn hand_out(&mut self, key: Key, visibility: Duration) -> Option<Received> {
        let now = self.now;
        let receipt = self.new_receipt(key);
        let message = self.messages.get_mut(&key)?;
        message.receive_count += 1;
        message.first_received.get_or_insert(now);
        message.receipt = receipt.number;
        self.place(key, State::InFlight { until: now + visibility, received: now });
        Some(Received {
            message: self.messages.get(&key)?.clone(),
            receipt_handle: receipt.to_handle(),
        })
    }

    /// Stores a message as though it had just been received under a handle that somebody else made.
    pub(crate) fn put_in_flight(&mut self, message: Message, handle: &str) -> Result<(), SqsError> {
        if let Some(receipt) = self.foreign_handles.get(handle) {
            return match self.messages.get(&receipt.key) {
                Some(other) if other.id == message.id => Ok(()),
                _ => Err(SqsError::new(
                    "ReceiptHandleIsInvalid",
                    format!("The receipt handle \"{handle}\" is that of another message."),
                )),
            };
        }
        let key = self.next_key;
        self.accept(message, Duration::ZERO);
        let receipt = self.new_receipt(key);
        self.foreign_handles.insert(handle.to_owned(), receipt);
        if let Some(message) = self.messages.get_mut(&key) {
            message.receipt = receipt.number;
        }
        let until = self.now + self.settings.time("VisibilityTimeout");
        self.place(key, State::InFlight { until, received: self.now });
        Ok(())
    }

    pub(crate) fn delete(&mut self, handle: &str) -> Result<(), SqsError> {
        let receipt = self.receipt(handle)?;
        let Some(message) = self.messages.get(&receipt.key) else {
            return Ok(());
        };
        let latest = message.receipt == receipt.number;
        let in_flight = matches!(message.state, State::InFlight { .. });
        if self.settings.is_fifo() && !(latest && in_flight) {
            return Err(SqsError::invalid_value(handle, "ReceiptHandle", EXPIRED));
        }
        // Deletes nothing by an older handle. Source: reference, `DeleteMessage`.
        if latest {
            self.remove(receipt.key);
        }
        Ok(())
    }

    pub(crate) fn change_visibility(&mut self, handle: &str, secs: i64) -> Result<(), SqsError> {
        let secs = check::bounds(secs, "VisibilityTimeout", &limits::VISIBILITY_SECS)?;
        let receipt = self.receipt(handle)?;
        let Some(message) = self.messages.get(&receipt.key) else {
            return Err(SqsError::invalid_value(
                handle,
                "ReceiptHandle",
                "Message does not exist or is not available for visibility timeout change.",
            ));
        };
        let received = match message.state {
            State::InFlight { received, .. } if message.receipt == receipt.number => received,
            // Its timeout has ended. AWS was seen to accept that on a standard queue.
            _ if !self.settings.is_fifo() => return Ok(()),
            State::InFlight { .. } | State::Visible { .. } | State::Delayed { .. } => {
                return Err(SqsError::invalid_value(handle, "ReceiptHandle", EXPIRED));
            }
        };
        let until = self.now + Duration::from_secs(secs);
        if until > received + Duration::from_secs(*limits::VISIBILITY_SECS.end()) {
            return Err(SqsError::invalid_value(
                secs,
                "VisibilityTimeout",
                "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]",
            ));
        }
        self.place(receipt.key, State::InFlight { until, received });
        Ok(())
    }

    /// Removes all messages. AWS was seen to forget their deduplication ids too.
    pub(crate) fn purge(&mut self) -> Result<(), SqsError> {
        let now = self.now;
        if self.purged.is_some_and(|last| now < last + limits::BETWEEN_PURGES) {
            return Err(SqsError::new(
                "AWS.SimpleQueueService.PurgeQueueInProgress",
                format!(
                    "Only one PurgeQueue operation on {} is allowed every 60 seconds.",
                    self.name
                ),
            ));
        }
        self.purged = Some(now);
        self.memory = Memory::default();
        let all: Vec<Key> = self.messages.keys().copied().collect();
        for key in all {
            self.remove(key);
        }
        Ok(())
    }

    pub(crate) fn take_visible(&mut self) -> Option<Message> {
        let key = self.index.oldest_visible()?;
        self.remove(key)
    }

    pub(crate) fn peek_visible(&self) -> Option<&Message> {
        self.messages.get(&self.index.oldest_visible()?)
    }

    /// Changes the settings. A FIFO queue's new delay also applies to messages that wait already.
    pub(crate) fn configure(&mut self, settings: Settings) {
        let delay = settings.time("DelaySeconds");
        let is_changed = delay != self.settings.time("DelaySeconds");
        self.settings = settings;
        self.modified = self.now;
        if is_changed && self.settings.is_fifo() {
            for key in self.index.delayed() {
                if let Some(sent) = self.messages.get(&key).map(|message| message.sent) {
                    let until = sent + delay;
                    self.place(key, State::Delayed { until });
                }
            }
        }
    }

    fn new_receipt(&mut self, key: Key) -> Receipt {
        let number = self.next_receipt;
        self.next_receipt += 1;
        Receipt { instance: self.instance, key, number }
    }

    fn receipt(&self, handle: &str) -> Result<Receipt, SqsError> {
        let known = |receipt: &Receipt| {
            receipt.instance == self.instance
                && receipt.key < self.next_key
                && receipt.number < self.next_receipt
        };
        self.foreign_handles
            .get(handle)
            .copied()
            .or_else(|| Receipt::from_handle(handle).filter(known))
            .ok_or_else(|| {
                SqsError::new(
                    "ReceiptHandleIsInvalid",
                    format!("The input receipt handle \"{handle}\" is not a valid receipt handle."),
                )
            })
    }

    fn place(&mut self, key: Key, state: State) {
        // The message keeps its position in the tree: a move costs more than all else here.
        if let Some(message) = self.messages.get_mut(&key) {
            self.index.remove(key, message);
            message.state = state;
            self.index.insert(key, message);
        }
    }

    fn remove(&mut self, key: Key) -> Option<Message> {
        let message = self.messages.remove(&key)?;
        self.index.remove(key, &message);
        Some(message)
    }
}
