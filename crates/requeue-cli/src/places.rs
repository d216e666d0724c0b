//! The places of an event's messages in the embedded queues after the invocation. Each message is
//! read once, because a batch may have ten thousand.

use std::collections::{BTreeSet, HashMap};
use std::time::SystemTime;

use requeue::embedded::{EmbeddedSqs, MessageState, MessageView};
use requeue::queue::QueueArn;

use crate::table::duration;

/// The field by which a copy names its original; in a wrapped text the quotes are escaped.
const ORIGINAL: &str = r#""originalMessageId":""#;
/// The beginning of the body of a wrapped copy.
const WRAPPED: &str = r#"{"retryBody":"#;

#[derive(Debug, Default)]
pub(crate) struct Places {
    by_id: HashMap<String, Vec<String>>,
    /// The copies of a message, by the id that it had at first: the id and the place of each.
    copies: HashMap<String, Vec<(String, String)>>,
}

impl Places {
    pub(crate) fn of(sqs: &EmbeddedSqs, queues: &BTreeSet<QueueArn>, now: SystemTime) -> Self {
        let mut places = Self::default();
        for queue in queues {
            for message in sqs.messages(queue).unwrap_or_default() {
                places.add(queue.name(), message, now);
            }
        }
        places
    }

    fn add(&mut self, queue: &str, message: MessageView, now: SystemTime) {
        let state = state(message.state, now);
        let wrapped = if message.body.starts_with(WRAPPED) { "wrapped " } else { "" };
        for original in originals(&message.body) {
            let place = format!("{wrapped}copy in {queue}, {state}");
            self.copies.entry(original.to_owned()).or_default().push((message.id.clone(), place));
        }
        self.by_id.entry(message.id).or_default().push(format!("in {queue}, {state}"));
    }

    /// Where the message itself is.
    pub(crate) fn itself(&self, id: &str) -> impl Iterator<Item = &str> {
        self.by_id.get(id).into_iter().flatten().map(String::as_str)
    }

    /// Where its copies are: messages with another id that name the same original.
    pub(crate) fn copies(&self, id: &str, original: &str) -> impl Iterator<Item = &str> {
        let copies = self.copies.get(original).into_iter().flatten();
        copies.filter(move |(copy, _)| copy != id).map(|(_, place)| place.as_str())
    }
}

/// The ids that a body gives for its original: one, unless the producer's own text has others.
fn originals(body: &str) -> BTreeSet<&str> {
    let after = body.match_indices(ORIGINAL).map(|(at, name)| &body[at + name.len()..]);
    after.filter_map(|rest| Some(rest.split_once('"')?.0)).collect()
}

fn state(state: MessageState, now: SystemTime) -> String {
    let left = |until: SystemTime| duration(until.duration_since(now).unwrap_or_default());
    match state {
        MessageState::Visible => "visible".to_owned(),
        MessageState::DelayedUntil(until) => format!("visible in {}", left(until)),
        MessageState::InFlightUntil(until) => format!("visible again in {}", left(until)),
    }
}
