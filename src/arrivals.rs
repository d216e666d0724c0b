//! When a message that a redrive policy moved arrived in this queue. SQS goes on with its receive
//! count and with the time of its first receive, and does not mention the move. So each execution
//! environment notes the count and the time of its own first receive.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::queue::{MAX_VISIBILITY, QueueArn, Record};

/// The most messages that are remembered. One more starts afresh on each receive.
const MAX_ARRIVALS: usize = 10_000;

/// The first receive of a moved message that this execution environment saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// The queue of that receive.
    queue: Option<Arc<QueueArn>>,
    /// Receives before that one, most of them in other queues.
    pub(crate) receives_before: u32,
    pub(crate) at: SystemTime,
}

/// The arrivals that this execution environment saw, by message id.
#[derive(Default)]
pub(crate) struct Arrivals(Mutex<HashMap<String, Arrival>>);

impl Arrivals {
    /// The arrival of a record that is received `now`; `None` if no redrive policy moved it.
    pub(crate) fn of(&self, record: &Record, now: SystemTime) -> Option<Arrival> {
        if !record.was_dead_lettered {
            return None;
        }
        let receives_before = record.receive_count.unwrap_or(1).saturating_sub(1);
        let new = Arrival { queue: record.queue.clone(), receives_before, at: now };
        let Some(id) = &record.message_id else { return Some(new) };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A receive that was overtaken by a later one may arrive with the lower count.
        if let Some(arrival) = known.get(id).filter(|known| known.queue == new.queue) {
            let receives_before = arrival.receives_before.min(receives_before);
            return Some(Arrival { receives_before, ..arrival.clone() });
        }
        if known.len() >= MAX_ARRIVALS {
            // No message waits longer than this by its visibility timeout.
            known.retain(|_, arrival| {
                now.duration_since(arrival.at).is_ok_and(|age| age < MAX_VISIBILITY)
            });
        }
        if known.len() < MAX_ARRIVALS {
            known.insert(id.clone(), new.clone());
        }
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn record(id: &str, queue: &str, receive_count: u32) -> Record {
        let queue = format!("arn:aws:sqs:eu-west-1:123456789012:{queue}").parse();
        let mut record = Record::default();
        record.message_id = Some(id.to_owned());
        record.queue = Some(Arc::new(queue.expect("an ARN")));
        record.receive_count = Some(receive_count);
        record.was_dead_lettered = true;
        record
    }

    fn at(secs: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + secs)
    }

    #[test]
    fn the_first_receive_of_a_moved_message_in_a_queue_is_its_arrival() {
        let arrivals = Arrivals::default();
        // message, queue, receive count, second → receives before, arrived in second
        for (id, queue, receives, second, before, arrived) in [
            ("a", "dead", 6, 0, 5, 0),
            ("a", "dead", 7, 60, 5, 0),
            ("b", "dead", 11, 60, 10, 60),
            ("a", "dead", 9, 4_000, 5, 0),
            // It moved on.
            ("a", "deader", 10, 5_000, 9, 5_000),
            ("a", "deader", 11, 5_001, 9, 5_000),
            // A receive that was overtaken.
            ("b", "dead", 5, 5_002, 4, 60),
        ] {
            let arrival =
                arrivals.of(&record(id, queue, receives), at(second)).expect("it was moved");
            assert_eq!(
                (arrival.receives_before, arrival.at),
                (before, at(arrived)),
                "{id}, receive {receives}"
            );
        }
        let mut not_moved = record("a", "dead", 3);
        not_moved.was_dead_lettered = false;
        assert_eq!(arrivals.of(&not_moved, at(0)), None);
    }

    #[test]
    fn no_more_arrivals_are_kept_than_there_is_room_for() {
        let arrivals = Arrivals::default();
        let arrive = |n: usize, now| {
            arrivals.of(&record(&n.to_string(), "dead", 6), now).expect("it was moved").at
        };
        for n in 0..MAX_ARRIVALS {
            arrive(n, at(0));
        }
        let later = at(0) + MAX_VISIBILITY - Duration::from_secs(1);
        assert_eq!((arrive(MAX_ARRIVALS, later), arrive(MAX_ARRIVALS, later)), (later, later));
        assert_eq!(arrivals.0.lock().expect("no panic").len(), MAX_ARRIVALS);
        assert_eq!(arrive(0, later), at(0), "the first ones are known still");
        let latest = at(0) + MAX_VISIBILITY;
        arrive(MAX_ARRIVALS, latest);
        assert_eq!(arrivals.0.lock().expect("no panic").len(), 1);
    }
}
