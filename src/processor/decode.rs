//! Decode: from the records of a batch to its deliveries, one for each message.

use std::collections::HashMap;

use tokio::time::Instant;

use super::inner::Inner;
use crate::delivery::Delivery;
use crate::queue::{QueueArn, Record};
use crate::settings::RecursiveLoop;

/// Reads each record, and joins those that are the same message delivered twice.
pub(super) async fn decode(
    inner: &Inner,
    records: Vec<Record>,
    deadline: Instant,
) -> Vec<Delivery> {
    if let Some(senders) = &inner.decoder.senders {
        Box::pin(senders.identify(&records, deadline)).await;
    }
    let received = inner.clock.now();
    let decode = |(position, record)| Delivery::decode(position, record, received, &inner.decoder);
    let mut deliveries: Vec<Delivery> = records.into_iter().enumerate().map(decode).collect();
    if has_duplicates(&deliveries) {
        deliveries = joined(deliveries);
    }
    if inner.recursive_loop == RecursiveLoop::Terminate {
        let copies_in_row = deliveries
            .iter()
            .map(|delivery| delivery.state.copies_in_row)
            .max()
            .unwrap_or_default();
        for delivery in &mut deliveries {
            delivery.continue_row(copies_in_row);
        }
    }
    wait_behind_predecessors(&mut deliveries);
    deliveries
}

/// Tells each message of a FIFO group which one comes before it, also if that one is done and only
/// to be deleted once more. A batch usually has one queue. If it has two, groups of the same name
/// are different groups.
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
