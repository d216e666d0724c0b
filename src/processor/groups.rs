//! The order of FIFO queues: the messages of one group go one after the other.

use std::collections::HashMap;
use std::sync::Arc;

use crate::delivery::Delivery;

/// The deliveries that go in any order, and those of each FIFO group in theirs.
pub(super) fn groups(deliveries: Vec<Delivery>) -> (Vec<Arc<Delivery>>, Vec<Vec<Arc<Delivery>>>) {
    let (fifo, unordered): (Vec<_>, Vec<_>) = deliveries.into_iter().partition(Delivery::is_fifo);
    let mut groups: Vec<Vec<Arc<Delivery>>> = Vec::new();
    // A batch has one queue as a rule; should it have two, groups of the same name are not the same
    // group.
    let mut numbers = HashMap::new();
    for mut delivery in fifo {
        let group = (delivery.queue.clone(), delivery.group_id.clone());
        let number = *numbers.entry(group).or_insert(groups.len());
        if number == groups.len() {
            groups.push(Vec::new());
        }
        if let Some(predecessor) = groups[number].last() {
            delivery.follow(predecessor);
        }
        groups[number].push(Arc::new(delivery));
    }
    (unordered.into_iter().map(Arc::new).collect(), groups)
}
