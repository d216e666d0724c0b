//! One queue: its messages, and the order and the times in which they can be received. The cost of
//! every step is a logarithm of the queue's length.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use super::check;
use super::error::{SqsError, code};
use super::groups::{Key, Memory};
use super::index::{Counts, Index};
use super::limits;
use super::message::{Arrivals, Draft, Message, Receipt, Received, Sent, State};
use super::settings::Settings;

/// The state of one queue. Callers call [`advance`](Self::advance) before they look.
#[derive(Clone, Debug)]
pub(crate) struct QueueState {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) created: SystemTime,
    pub(crate) modified: SystemTime,
    /// Distinguishes this queue from an earlier one of the same name.
    instance: u64,
    messages: BTreeMap<Key, Message>,
    next_key: Key,
    next_receipt: u64,
    index: Index,
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
    /// The redrive policy's limit, if there is a queue to move to.
    pub(crate) max_receive_count: Option<u64>,
}

impl QueueState {
    pub(crate) fn new(name: &str, settings: Settings, instance: u64, now: SystemTime) -> Self {
        let index = Index::of(settings.fifo.as_ref());
        Self {
            name: name.to_owned(),
            settings,
            tags: BTreeMap::new(),
            created: now,
            modified: now,
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
        while let Some(key) = self.index.older_than(now, self.settings.retention) {
            self.remove(key);
        }
        while let Some((until, key)) = self.index.due(now) {
            self.place(key, State::Visible { since: until });
        }
    }

    /// When the next message becomes visible by itself.
    pub(crate) fn next_due(&self) -> Option<SystemTime> {
        self.index.next_due()
    }

    pub(crate) fn send(
        &mut self,
        draft: Draft,
        id: String,
        now: SystemTime,
    ) -> Result<Sent, SqsError> {
        check::draft(&draft, &self.settings)?;
        let Some(fifo) = &self.settings.fifo else {
            // An explicit zero overrides the queue's delay.
            let own = draft.delay_secs.and_then(|secs| u64::try_from(secs).ok());
            let delay = own.map_or(self.settings.delay, Duration::from_secs);
            return Ok(self.accept(Message::new(draft, id, now), delay, now));
        };
        let deduplication =
            draft.deduplication.clone().unwrap_or_else(|| super::digest::sha256(&draft.body));
        let scope = draft.group.clone().filter(|_| fifo.deduplicate_per_group);
        let scoped = (scope, deduplication.clone());
        if let Some(earlier) = self.memory.recall(&scoped, now) {
            return Ok(earlier);
        }
        let mut message = Message::new(draft, id, now);
        message.deduplication = Some(deduplication);
        let sent = self.accept(message, self.settings.delay, now);
        self.memory.remember(scoped, sent.clone(), now);
        Ok(sent)
    }

    /// Stores a message that is in order, visible after `delay`.
    pub(crate) fn accept(
        &mut self,
        mut message: Message,
        delay: Duration,
        now: SystemTime,
    ) -> Sent {
        let key = self.next_key;
        self.next_key += 1;
        message.state = match delay {
            Duration::ZERO => State::Visible { since: now },
            delay => State::Delayed { until: now + delay },
        };
        message.sequence = self.settings.fifo.as_ref().map(|_| key);
        let sent = Sent { id: message.id.clone(), sequence: message.sequence };
        self.arrivals.tell(&self.name, &message);
        self.index.insert(key, &message);
        self.messages.insert(key, message);
        sent
    }

    /// Receives messages. The messages of the second list have left the queue: the redrive policy
    /// moves them.
    pub(crate) fn receive(&mut self, take: Take, now: SystemTime) -> (Vec<Received>, Vec<Message>) {
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
                    received.extend(self.hand_out(key, take.visibility, now));
                }
            }
        }
        (received, moved)
    }

    pub(crate) fn is_over_limit(&self) -> bool {
        self.settings.fifo.is_none() && self.index.counts().in_flight >= limits::IN_FLIGHT
    }

    fn hand_out(&mut self, key: Key, visibility: Duration, now: SystemTime) -> Option<Received> {
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
    pub(crate) fn put_in_flight(
        &mut self,
        message: Message,
        handle: &str,
        visibility: Duration,
        now: SystemTime,
    ) -> Result<(), SqsError> {
        if let Some(receipt) = self.foreign_handles.get(handle) {
            return match self.messages.get(&receipt.key) {
                Some(other) if other.id == message.id => Ok(()),
                _ => Err(SqsError::new(
                    code::RECEIPT_HANDLE_IS_INVALID,
                    format!("The receipt handle \"{handle}\" is that of another message."),
                )),
            };
        }
        let key = self.next_key;
        self.accept(message, Duration::ZERO, now);
        let receipt = self.new_receipt(key);
        self.foreign_handles.insert(handle.to_owned(), receipt);
        if let Some(message) = self.messages.get_mut(&key) {
            message.receipt = receipt.number;
        }
        self.place(key, State::InFlight { until: now + visibility, received: now });
        Ok(())
    }

    pub(crate) fn delete(&mut self, handle: &str) -> Result<(), SqsError> {
        let receipt = self.receipt(handle)?;
        let Some(message) = self.messages.get(&receipt.key) else {
            return Ok(());
        };
        let latest = message.receipt == receipt.number;
        let in_flight = matches!(message.state, State::InFlight { .. });
        if self.settings.fifo.is_some() && !(latest && in_flight) {
            return Err(SqsError::invalid_value(handle, "ReceiptHandle", EXPIRED));
        }
        // With an older handle the request succeeds and deletes nothing. Source: reference,
        // `DeleteMessage`.
        if latest {
            self.remove(receipt.key);
        }
        Ok(())
    }

    /// Makes a received message visible `secs` from now.
    pub(crate) fn change_visibility(
        &mut self,
        handle: &str,
        secs: i64,
        now: SystemTime,
    ) -> Result<(), SqsError> {
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
            State::InFlight { .. } | State::Visible { .. } | State::Delayed { .. } => {
                return self.change_nothing(handle);
            }
        };
        let until = now + Duration::from_secs(secs);
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

    /// The result for a handle whose visibility timeout has ended. AWS was seen to accept it on a
    /// standard queue, and to change nothing.
    fn change_nothing(&self, handle: &str) -> Result<(), SqsError> {
        match &self.settings.fifo {
            None => Ok(()),
            Some(_) => Err(SqsError::invalid_value(handle, "ReceiptHandle", EXPIRED)),
        }
    }

    /// Removes all messages. AWS was seen to forget their deduplication ids too.
    pub(crate) fn purge(&mut self, now: SystemTime) -> Result<(), SqsError> {
        if self.purged.is_some_and(|last| now < last + limits::BETWEEN_PURGES) {
            return Err(SqsError::new(
                code::PURGE_QUEUE_IN_PROGRESS,
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

    /// Takes the message that has been visible longest out of the queue, for a move task.
    pub(crate) fn take_visible(&mut self) -> Option<Message> {
        let key = self.index.oldest_visible()?;
        self.remove(key)
    }

    pub(crate) fn peek_visible(&self) -> Option<&Message> {
        self.messages.get(&self.index.oldest_visible()?)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.index.counts()
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn messages(&self) -> impl Iterator<Item = &Message> {
        self.messages.values()
    }

    /// Changes the settings. A FIFO queue's new delay also applies to messages that wait already.
    pub(crate) fn configure(&mut self, settings: Settings, now: SystemTime) {
        let delay_changed = settings.delay != self.settings.delay;
        self.settings = settings;
        self.modified = now;
        if delay_changed && self.settings.fifo.is_some() {
            for key in self.index.delayed() {
                if let Some(sent) = self.messages.get(&key).map(|message| message.sent) {
                    let until = sent + self.settings.delay;
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
                    code::RECEIPT_HANDLE_IS_INVALID,
                    format!("The input receipt handle \"{handle}\" is not a valid receipt handle."),
                )
            })
    }

    fn place(&mut self, key: Key, state: State) {
        // The message stays at its place in the tree: moving it costs more than all else here.
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
