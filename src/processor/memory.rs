//! Remembers messages that stay in their queue although this process has settled them, for their
//! next receive. A message that is forgotten, or that another process settled, is handled once
//! more. This module takes no decision about a message.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use crate::delivery::Delivery;
use crate::disposition::{DeadLetterReason, Disposition};
use crate::failure::Failure;
use crate::lock::lock;
use crate::plan::Decision;
use crate::queue::{MAX_RETENTION, QueueArn};
use crate::report::Settlement;
use crate::settle::Settled;

/// The most messages that are remembered, about a megabyte.
const MAX_MESSAGES: usize = 4_096;

/// The memory of settled messages, each with a value. Ids are kept in full: with equal hashes, a
/// message could be settled although it was never handled.
pub(super) struct Memory<T>(Mutex<Messages<T>>);

struct Messages<T> {
    receives: HashMap<Arc<str>, Receive<T>>,
    /// The message ids, oldest first.
    order: VecDeque<Arc<str>>,
}

/// The receive on which a message was settled.
struct Receive<T> {
    queue: Option<Arc<QueueArn>>,
    count: u32,
    /// When SQS first delivered the message, by SQS's clock.
    first_received: Option<SystemTime>,
    at: SystemTime,
    value: T,
}

impl<T> Receive<T> {
    /// Whether it is a receive of the same message. A later receive may overtake it, so a lower
    /// count is no evidence. A message that began again was first received at another time.
    fn is_of(&self, delivery: &Delivery, now: SystemTime) -> bool {
        let is_same = match (self.first_received, delivery.copy_first_received) {
            (Some(noted), Some(first)) => noted == first,
            _ => self.count < delivery.receive_count,
        };
        self.queue == delivery.queue
            && is_same
            && now.duration_since(self.at).unwrap_or_default() <= MAX_RETENTION
    }
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self(Mutex::new(Messages { receives: HashMap::new(), order: VecDeque::new() }))
    }
}

impl<T: Clone> Memory<T> {
    /// Notes a message that was settled at this time, if it has an id.
    pub(super) fn note(&self, delivery: &Delivery, at: SystemTime, value: T) {
        let Some(id) = &delivery.message_id else { return };
        let mut memory = lock(&self.0);
        let receive = Receive {
            queue: delivery.queue.clone(),
            count: delivery.receive_count,
            first_received: delivery.copy_first_received,
            at,
            value,
        };
        if let Some(known) = memory.receives.get_mut(id.as_str()) {
            *known = receive;
            return;
        }
        if memory.order.len() >= MAX_MESSAGES
            && let Some(oldest) = memory.order.pop_front()
        {
            memory.receives.remove(&oldest);
        }
        let id: Arc<str> = id.as_str().into();
        memory.order.push_back(Arc::clone(&id));
        memory.receives.insert(id, receive);
    }

    /// The value of this message, if it was settled on another receive. The same id in another
    /// queue, or with a receive count that began again, is a new message.
    pub(super) fn find(&self, delivery: &Delivery, now: SystemTime) -> Option<T> {
        let id = delivery.message_id.as_deref()?;
        let mut memory = lock(&self.0);
        let receive = memory.receives.get(id)?;
        if receive.is_of(delivery, now) {
            return Some(receive.value.clone());
        }
        memory.receives.remove(id);
        memory.order.retain(|other| **other != *id);
        None
    }
}

#[derive(Clone)]
pub(super) struct DeadLettered {
    pub(super) reason: DeadLetterReason,
    /// The failure, for the copy with the reason.
    pub(super) failure: Option<Failure>,
}

impl Memory<DeadLettered> {
    /// Notes a message that stays in its queue, if it was dead-lettered.
    pub(super) fn note_kept(&self, kept: &Settled) {
        let Decision { delivery, disposition, failure, at, .. } = &kept.decision;
        let Disposition::DeadLetter(reason) = *disposition else { return };
        let is_unconfirmed = matches!(kept.settlement, Settlement::Unconfirmed { .. });
        let failure = failure.as_ref().filter(|_| is_unconfirmed).cloned();
        self.note(delivery, *at, DeadLettered { reason, failure });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::delivery::Decoder;
    use crate::queue::Record;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn delivery(id: &str, queue: &str, count: u32, first: Option<Duration>) -> Delivery {
        let queue = format!("arn:aws:sqs:eu-west-1:123456789012:{queue}").parse().expect("an ARN");
        let mut record = Record::default();
        record.message_id = Some(id.to_owned());
        record.queue = Some(Arc::new(queue));
        record.receive_count = Some(count);
        record.first_received = first.map(|first| NOW + first);
        Delivery::decode(0, record, NOW, &Decoder::default())
    }

    #[test]
    fn another_receive_of_the_same_message_in_the_same_queue_is_known() {
        let (soon, late) = (Duration::from_secs(60), MAX_RETENTION + Duration::from_secs(1));
        let (first, later) = (Some(Duration::from_secs(5)), Some(Duration::from_secs(50)));
        for (id, queue, count, first_received, after, is_known) in [
            ("m", "orders", 4, first, soon, true),
            ("m", "orders", 9, first, MAX_RETENTION, true),
            ("m", "orders", 9, first, late, false),
            // A receive that was overtaken.
            ("m", "orders", 3, first, soon, true),
            ("m", "orders", 2, first, soon, true),
            ("m", "orders", 1, first, soon, true),
            // A message that began anew.
            ("m", "orders", 1, later, soon, false),
            ("m", "orders", 2, later, soon, false),
            ("m", "orders", 4, later, soon, false),
            // A record without its times.
            ("m", "orders", 4, None, soon, true),
            ("m", "orders", 2, None, soon, false),
            ("m", "orders-dlq", 4, first, soon, false),
            ("n", "orders", 4, first, soon, false),
            ("", "orders", 4, first, soon, false),
        ] {
            let memory = Memory::default();
            memory.note(&delivery("m", "orders", 3, first), NOW, ());
            let what = format!("{id} in {queue}, receive {count} of {first_received:?}: {after:?}");
            let next = delivery(id, queue, count, first_received);
            assert_eq!(memory.find(&next, NOW + after).is_some(), is_known, "{what}");
            // A message that began anew is not taken for the old one on its later receives.
            let next = delivery("m", "orders", 20, first_received.or(first));
            assert_eq!(memory.find(&next, NOW + soon).is_some(), is_known || id != "m", "{what}");
        }
    }

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let memory = Memory::default();
        for n in 0..=MAX_MESSAGES {
            // Twice: it takes no second place.
            memory.note(&delivery(&format!("m-{n}"), "orders", 1, None), NOW, ());
            memory.note(&delivery(&format!("m-{n}"), "orders", 2, None), NOW, ());
        }
        let knows =
            |n: usize| memory.find(&delivery(&format!("m-{n}"), "orders", 3, None), NOW).is_some();
        assert_eq!([knows(0), knows(1), knows(MAX_MESSAGES)], [false, true, true]);
        let kept = memory.0.lock().expect("no panic");
        assert_eq!((kept.receives.len(), kept.order.len()), (MAX_MESSAGES, MAX_MESSAGES));
    }
}
