//! Remembers the messages that this process gave up and that are still in their queue. They are
//! left to its redrive policy, or SQS did not confirm the copy with the reason. SQS delivers them
//! again until it moves them, and another call of their handlers would change nothing. This module
//! takes no decision about a message.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::delivery::Delivery;
use crate::disposition::{DeadLetterReason, Disposition};
use crate::failure::Failure;
use crate::plan::Decision;
use crate::queue::{MAX_RETENTION, QueueArn};
use crate::report::Settlement;
use crate::settle::Settled;

/// The most messages that are remembered, about a megabyte. The oldest one is forgotten for a new
/// one.
const MAX_MESSAGES: usize = 4_096;

/// The memory of given-up messages. A message that is forgotten, or that another process gave up,
/// is handled once more. Ids are kept in full: with equal hashes, a message could become a dead
/// letter without ever having been handled.
#[derive(Default)]
pub(super) struct GivenUp(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    /// The receives, by message id.
    messages: HashMap<Arc<str>, Receive>,
    /// The message ids, in the order of their arrival.
    order: VecDeque<Arc<str>>,
}

/// The receive on which a message was given up.
struct Receive {
    queue: Option<Arc<QueueArn>>,
    count: u32,
    at: SystemTime,
    why: Why,
}

/// Why a message was given up.
#[derive(Clone)]
pub(super) struct Why {
    pub(super) reason: DeadLetterReason,
    /// The failure, for the copy with the reason.
    pub(super) failure: Option<Failure>,
}

impl Receive {
    fn is_before(&self, delivery: &Delivery, now: SystemTime) -> bool {
        self.queue == delivery.queue
            && self.count < delivery.receive_count
            && now.duration_since(self.at).unwrap_or_default() <= MAX_RETENTION
    }
}

impl GivenUp {
    /// Notes a message that stays in its queue, if it was given up. A message without an id is not
    /// recognised on its next receive.
    pub(super) fn note(&self, kept: &Settled) {
        let Decision { delivery, disposition, failure, at, .. } = &kept.decision;
        let Disposition::DeadLetter(reason) = disposition else { return };
        let why = match &kept.settlement {
            Settlement::Unconfirmed { .. } => Why { reason: *reason, failure: failure.clone() },
            _ => Why { reason: *reason, failure: None },
        };
        let Some(id) = &delivery.message_id else { return };
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let receive =
            Receive { queue: delivery.queue.clone(), count: delivery.receive_count, at: *at, why };
        if let Some(known) = memory.messages.get_mut(id.as_str()) {
            *known = receive;
            return;
        }
        if memory.order.len() >= MAX_MESSAGES
            && let Some(oldest) = memory.order.pop_front()
        {
            memory.messages.remove(&oldest);
        }
        let id: Arc<str> = id.as_str().into();
        memory.order.push_back(Arc::clone(&id));
        memory.messages.insert(id, receive);
    }

    /// Why this message was given up on an earlier receive, if it was. The same id in another queue,
    /// or with a receive count that began anew, is a new message. So a message is handled in its
    /// dead-letter queue.
    pub(super) fn find(&self, delivery: &Delivery, now: SystemTime) -> Option<Why> {
        // No process has given it up before its first receive.
        if delivery.receive_count <= 1 {
            return None;
        }
        let id = delivery.message_id.as_deref()?;
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let given_up = memory.messages.get(id)?;
        if given_up.is_before(delivery, now) {
            return Some(given_up.why.clone());
        }
        memory.messages.remove(id);
        memory.order.retain(|other| **other != *id);
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::delivery::Decoder;
    use crate::queue::Record;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn delivery(id: &str, queue: &str, count: u32) -> Delivery {
        let queue = format!("arn:aws:sqs:eu-west-1:123456789012:{queue}").parse().expect("an ARN");
        let record = Record {
            message_id: Some(id.to_owned()),
            body: Some("{}".to_owned()),
            queue: Some(Arc::new(queue)),
            receive_count: Some(count),
            ..Record::default()
        };
        Delivery::decode(0, record, NOW, &Decoder::default())
    }

    fn given_up(delivery: Delivery) -> Settled {
        let disposition = Disposition::DeadLetter(DeadLetterReason::NonRetryable);
        let decision = Decision::uncalled(Arc::new(delivery), disposition, NOW, 0.5);
        Settled { decision, settlement: Settlement::Kept }
    }

    #[test]
    fn a_later_receive_of_the_same_message_in_the_same_queue_is_known() {
        let (soon, late) = (Duration::from_secs(60), MAX_RETENTION + Duration::from_secs(1));
        for (id, queue, count, after, is_known) in [
            ("m", "orders", 4, soon, true),
            ("m", "orders", 9, MAX_RETENTION, true),
            ("m", "orders", 9, late, false),
            ("m", "orders", 3, soon, false),
            ("m", "orders", 1, soon, false),
            ("m", "orders-dlq", 4, soon, false),
            ("n", "orders", 4, soon, false),
            ("", "orders", 4, soon, false),
        ] {
            let memory = GivenUp::default();
            memory.note(&given_up(delivery("m", "orders", 3)));
            let what = format!("{id} in {queue}, receive {count}, after {after:?}");
            let next = delivery(id, queue, count);
            assert_eq!(memory.find(&next, NOW + after).is_some(), is_known, "{what}");
            // A message that began anew is not taken for the old one on its later receives.
            assert_eq!(
                memory.find(&delivery("m", "orders", 20), NOW + soon).is_some(),
                is_known || id != "m" || count == 1,
                "{what}"
            );
        }
    }

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let memory = GivenUp::default();
        for n in 0..=MAX_MESSAGES {
            // Twice: it takes no second place.
            memory.note(&given_up(delivery(&format!("m-{n}"), "orders", 1)));
            memory.note(&given_up(delivery(&format!("m-{n}"), "orders", 2)));
        }
        let knows =
            |n: usize| memory.find(&delivery(&format!("m-{n}"), "orders", 3), NOW).is_some();
        assert_eq!([knows(0), knows(1), knows(MAX_MESSAGES)], [false, true, true]);
        let kept = memory.0.lock().expect("no panic");
        assert_eq!((kept.messages.len(), kept.order.len()), (MAX_MESSAGES, MAX_MESSAGES));
    }
}
