//! Messages from another queue: a redrive policy moved them here, or somebody redrove them here.
//!
//! After a move, SQS continues the receive count and keeps the time of the first receive, and does
//! not mention the move. So each execution environment notes the count and the time of its own
//! first receive.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use crate::lock::lock;
use crate::queue::{MAX_RETENTION, MAX_VISIBILITY, QueueArn, Record};
use crate::settings::DeadLetterMode;
use crate::state::{REDRIVE_TOLERANCE, RetryState};
use crate::trace;
use crate::wire::{DeadLetter, DeadLetterInfo};

/// The most messages that are remembered. A further one starts again on each receive.
const MAX_ARRIVALS: usize = 10_000;

/// The first receive of a moved message that this execution environment saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
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
        let mut known = lock(&self.0);
        // A receive that a later one overtook may arrive with the lower count.
        if let Some(arrival) = known.get(id).filter(|known| known.queue == new.queue) {
            let receives_before = arrival.receives_before.min(receives_before);
            return Some(Arrival { receives_before, ..arrival.clone() });
        }
        if known.len() >= MAX_ARRIVALS {
            // No message waits longer than this with its visibility timeout.
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

/// The state of a message that starts again if it was redriven, or if SQS moved it to a dead-letter
/// queue. Otherwise the unchanged state: a time that SQS does not give is no evidence.
pub(crate) fn restart_if_redriven(state: RetryState, record: &Record) -> RetryState {
    let Record { sent, first_received, was_dead_lettered, ref dead_letter_source, .. } = *record;
    let since = |from: Option<SystemTime>, to: Option<SystemTime>| to?.duration_since(from?).ok();
    let enqueued_later =
        since(state.retry_timestamp, sent).is_some_and(|later| later > REDRIVE_TOLERANCE);
    // If an annotated copy was received before its delay was over, somebody else sent it. The limit
    // is a second less, since SQS does not promise a delay to the millisecond.
    let least = Duration::from_secs(u64::from(DeadLetterMode::ANNOTATION_DELAY.as_secs()) - 1);
    let received_too_soon =
        state.dead_letter.is_some() && since(sent, first_received).is_some_and(|time| time < least);
    let was_sent_elsewhere = state.source.is_some();
    let redriven = enqueued_later || received_too_soon || was_sent_elsewhere || was_dead_lettered;
    if !redriven || state.redrives >= DeadLetter::MAX_REDRIVES {
        return state;
    }
    let last_dead_letter = DeadLetterInfo::to_remember(
        &state,
        was_dead_lettered,
        dead_letter_source.as_ref().map(ToString::to_string),
    );
    // No documentation says that a redrive ends the row of copies.
    RetryState { copies_in_row: state.copies_in_row, ..state.restarted(last_dead_letter) }
}

/// The state, with times within bounds. A body may be forged, so no time in it moves a bound.
pub(crate) fn bounded(state: RetryState, sent: SystemTime, received: SystemTime) -> RetryState {
    let after = |time: SystemTime, wait| time.checked_add(wait).unwrap_or(time);
    let not_before = state.not_before.map(|due| due.min(after(sent, MAX_RETENTION)));
    // The age begins at the end of a wait, and this copy may still be in that wait.
    let youngest = not_before.map_or(received, |due| due.max(received));
    RetryState {
        first_sent: state.first_sent.map(|first| first.min(sent)),
        first_received: state.first_received.map(|first| first.min(received)),
        not_before,
        age_from: state.age_from.map(|from| from.min(youngest)),
        traceparent: state.traceparent.filter(|parent| trace::is_traceparent(parent)),
        ..state
    }
}

#[cfg(test)]
mod tests {
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
