//! Decode: from the records of a batch to its deliveries, one for each message. [`wire`] reads
//! Requeue's fields in a body: the body as first delivered, and the retry state.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::SystemTime;

use tokio::time::Instant;

use super::Delivery;
use crate::arrivals::{Arrivals, bounded, restart_if_redriven};
use crate::clock::Clock;
use crate::disposition::Strategy;
use crate::failure::{Evidence, Failure, FailureClass};
use crate::producer::MessageLimits;
use crate::queue::{Principal, QueueArn, Record};
use crate::sender::{Belief, Senders};
use crate::settings::{ProducerLimits, RecursiveLoop};
use crate::state::RetryState;
use crate::wire::{self, Origin};

/// The reason why no handler gets a body with two layers of untrusted retry fields.
const NESTED: &str = "the retry fields of two copies, neither by a trusted sender: REQUEUE_TRUSTED_SENDERS seems to lack the id of a \
                      function or worker that handles this queue";

#[derive(Default)]
pub(crate) struct Decoder {
    /// The limit of the count that a producer may claim.
    pub(crate) max_retries: u32,
    /// The same limit for queues that have a policy of their own, by name.
    pub(crate) own_max_retries: HashMap<String, u32>,
    pub(crate) strategy: Strategy,
    pub(crate) recursive_loop: RecursiveLoop,
    pub(crate) producer_limits: ProducerLimits,
    /// The senders whose fields are trusted; `None` trusts every sender.
    pub(crate) senders: Option<Senders>,
    pub(crate) arrivals: Arrivals,
}

impl Decoder {
    /// The deliveries of a batch, one for each message, also for one that was delivered twice.
    pub(crate) async fn decode(
        &self,
        records: Vec<Record>,
        clock: &Clock,
        deadline: Instant,
    ) -> Vec<Delivery> {
        if let Some(senders) = &self.senders {
            Box::pin(senders.identify(&records, deadline)).await;
        }
        let received = clock.now();
        let decode = |(position, record)| Delivery::decode(position, record, received, self);
        let mut deliveries: Vec<Delivery> = records.into_iter().enumerate().map(decode).collect();
        if has_duplicates(&deliveries) {
            deliveries = joined(deliveries);
        }
        if self.recursive_loop == RecursiveLoop::Terminate {
            let in_row = deliveries.iter().map(|delivery| delivery.state.copies_in_row);
            let copies_in_row = in_row.max().unwrap_or_default();
            for delivery in &mut deliveries {
                delivery.continue_row(copies_in_row);
            }
        }
        wait_behind_predecessors(&mut deliveries);
        deliveries
    }

    /// Splits a body, and decides how far its sender is trusted.
    fn read<'a>(
        &self,
        body: &'a str,
        queue: Option<&QueueArn>,
        sender: Option<Principal>,
    ) -> (wire::ReadBody<'a>, Trust) {
        let own = queue.and_then(|queue| self.own_max_retries.get(queue.name()));
        let max_retries = own.copied().unwrap_or(self.max_retries);
        let read = wire::read(body, max_retries);
        let Some(senders) =
            self.senders.as_ref().filter(|_| !matches!(read.origin, Origin::Fresh { .. }))
        else {
            return (read, Trust::Full);
        };
        match senders.believes(sender) {
            Belief::Believed => (read, Trust::Full),
            Belief::Unknown => (read, Trust::Unknown),
            Belief::NotBelieved => {
                let is_nested =
                    matches!(read.origin, Origin::Ours(_)) && wire::bears_fields(&read.payload);
                senders.warn(sender);
                (
                    wire::read_as_foreign(body, max_retries),
                    if is_nested { Trust::Nested } else { Trust::Full },
                )
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trust {
    Full,
    /// STS has not returned the role of this process yet.
    Unknown,
    /// Neither the fields nor the fields inside them are trusted. Each copy would add a layer.
    Nested,
}

impl Delivery {
    /// Reads a record. `received` is the time of this batch, for a record without times.
    pub(crate) fn decode(
        position: usize,
        mut record: Record,
        received: SystemTime,
        decoder: &Decoder,
    ) -> Self {
        let arrival = decoder.arrivals.of(&record, received);
        let broken = |what| Failure::new(FailureClass::NonRetryable, Evidence::Body, what);
        let mut defect =
            record.attributes.is_none().then(|| broken("a message attribute cannot be read"));
        let body = record.body.take().filter(|body| !body.is_empty()).unwrap_or_else(|| {
            defect = Some(broken("the record has no body"));
            String::new()
        });
        let is_fifo = record.queue.as_ref().is_some_and(|queue| queue.is_fifo());
        let (read, trust) = decoder.read(&body, record.queue.as_deref(), record.sender);
        let is_unverified = trust == Trust::Unknown;
        if trust == Trust::Nested {
            defect = Some(broken(NESTED));
        }
        let is_of_later_version = matches!(read.origin, Origin::LaterVersion(_));
        let is_first = matches!(read.origin, Origin::Fresh { .. });
        let mut state = match read.origin {
            Origin::Fresh { retry_count } => RetryState { retry_count, ..RetryState::default() },
            Origin::Ours(state) => *state,
            Origin::LaterVersion(_) => RetryState::default(),
        };
        if is_fifo {
            // On a FIFO queue such a count is not Requeue's, which counts receives there. So the
            // handler is called before the receives show that the message is dead-lettered.
            state.retry_count = 0;
        }
        let payload = match read.payload {
            Cow::Borrowed(_) => None,
            Cow::Owned(restored) => Some(restored),
        };
        let state = restart_if_redriven(state, &record);
        // The times of SQS are those of the queue from which the message was moved.
        let (sent, copy_first_received) = match &arrival {
            Some(arrival) => (None, Some(arrival.at)),
            None => (record.sent, record.first_received),
        };
        let here = copy_first_received.unwrap_or(received);
        let state = bounded(state, sent.unwrap_or(here), here);
        let receive_count = record.receive_count.unwrap_or(1).max(1);
        let attributes = record.attributes.unwrap_or_default();
        let first_sent = state.first_sent.or(sent).unwrap_or(here);
        let (limits, refusal) = match decoder.producer_limits {
            ProducerLimits::On => MessageLimits::read(&attributes, first_sent).map_or_else(
                |refusal| (MessageLimits::default(), Some(refusal)),
                |limits| (limits, None),
            ),
            ProducerLimits::Off => (MessageLimits::default(), None),
        };
        let message_id = record.message_id.filter(|id| !id.is_empty());
        let strategy = match decoder.strategy {
            // A copy would make the fields trusted, even if they are forged.
            _ if is_unverified => Strategy::Visibility,
            // A copy would lose its order.
            Strategy::Copy if is_fifo => Strategy::Visibility,
            // Requeue can ask SQS to keep a message only by its id.
            Strategy::Visibility if message_id.is_none() && !is_fifo => Strategy::Copy,
            strategy @ (Strategy::Copy | Strategy::Visibility) => strategy,
        };
        Self {
            position,
            message_id,
            receipt_handles: record
                .receipt_handle
                .filter(|handle| !handle.is_empty())
                .into_iter()
                .collect(),
            queue: record.queue,
            strategy,
            copies_in_row: None,
            waits_for_others: false,
            receive_count,
            receives_before: arrival.map_or(0, |arrival| arrival.receives_before),
            waits: limits.receives(here),
            waits_behind: 0,
            counted: OnceLock::new(),
            said: OnceLock::new(),
            first_sent,
            first_received: state.first_received.unwrap_or(here),
            sent: sent.unwrap_or(here),
            copy_first_received,
            group_id: record.group_id,
            trace_header: record.trace_header.filter(|_| is_first),
            attributes,
            event: record.event,
            limits,
            refusal,
            payload: payload.unwrap_or(body),
            state,
            defect,
            is_unverified,
            is_of_later_version,
        }
    }
}

/// Notes for each message of a FIFO group the one before it, even if that one is done and only to
/// be deleted once more. Groups of two queues are different groups.
fn wait_behind_predecessors(deliveries: &mut [Delivery]) {
    let mut last = HashMap::new();
    for at in 0..deliveries.len() {
        let (before, rest) = deliveries.split_at_mut(at);
        let delivery = &mut rest[0];
        if delivery.is_fifo() {
            let group = (delivery.queue.clone(), delivery.group_id.clone());
            if let Some(predecessor) = last.insert(group, at) {
                delivery.wait_behind(&before[predecessor]);
            }
        }
    }
}

/// The key of a message. Ids are unique in one queue only: another queue may have the same.
fn key(delivery: &Delivery) -> Option<(&str, Option<&QueueArn>)> {
    Some((delivery.message_id.as_deref()?, delivery.queue.as_deref()))
}

fn has_duplicates(deliveries: &[Delivery]) -> bool {
    let mut keys: Vec<_> = deliveries.iter().filter_map(key).collect();
    keys.sort_unstable();
    keys.windows(2).any(|keys| keys[0] == keys[1])
}

/// Deliveries of the same message become one.
fn joined(deliveries: Vec<Delivery>) -> Vec<Delivery> {
    let mut joined: Vec<Delivery> = Vec::with_capacity(deliveries.len());
    let mut positions = HashMap::new();
    for delivery in deliveries {
        let key = delivery.message_id.clone().map(|id| (id, delivery.queue.clone()));
        if let Some(&at) = key.as_ref().and_then(|key| positions.get(key)) {
            Delivery::join(&mut joined[at], delivery);
        } else {
            positions.extend(key.map(|key| (key, joined.len())));
            joined.push(delivery);
        }
    }
    joined
}
