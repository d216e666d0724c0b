//! The embedded queues of `requeue invoke`, and the places of an event's messages in them after the
//! invocation. Each message is read once, because a batch may have ten thousand.

use std::collections::{BTreeSet, HashMap};
use std::time::SystemTime;

use requeue::embedded::{EmbeddedSqs, MessageState, MessageView};
use requeue::queue::QueueArn;
use requeue::{Clock, DeadLetter, DeadLetterMode, Record, Settings};

use crate::Error;
use crate::table::duration;

/// An embedded SQS with the event's messages in flight, as after a receive by Lambda.
pub(crate) struct Embedded {
    pub(crate) sqs: EmbeddedSqs,
    clock: Clock,
    queues: BTreeSet<QueueArn>,
}

impl Embedded {
    pub(crate) fn with(
        records: &[Record],
        settings: &Settings,
        clock: Clock,
    ) -> Result<Self, Error> {
        let sqs = EmbeddedSqs::new(clock.clone());
        let mut queues = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for record in records {
            let Some(queue) = &record.queue else { continue };
            if queues.insert(QueueArn::clone(queue)) {
                sqs.create_queue(queue.name(), [("VisibilityTimeout", "360")])?;
            }
            let own = settings.queues.get(queue.name()).and_then(|own| own.dead_letter.as_ref());
            if let Some(DeadLetterMode::Direct(url)) = own.or(settings.dead_letter.as_ref()) {
                let dead_letters = url.arn(queue.partition(), queue.region());
                if queues.insert(dead_letters.clone()) {
                    sqs.create_queue(dead_letters.name(), [])?;
                }
            }
            let Some(id) = &record.message_id else { continue };
            let is_whole = record.receipt_handle.is_some() && record.body.is_some();
            // The same message may be delivered twice.
            if is_whole && ids.insert((queue, id)) {
                sqs.put_in_flight(queue, record.clone())?;
            }
        }
        Ok(Self { sqs, clock, queues })
    }

    pub(crate) fn places(&self) -> Places {
        let (mut places, now) = (Places::default(), self.clock.now());
        for queue in &self.queues {
            for message in self.sqs.messages(queue).unwrap_or_default() {
                places.add(queue.name(), message, now);
            }
        }
        places
    }
}

/// The beginning of the body of a wrapped copy.
const WRAPPED: &str = r#"{"retryBody":"#;

#[derive(Debug, Default)]
pub(crate) struct Places {
    by_id: HashMap<String, Vec<String>>,
    /// The copies of a message, by the id that it had at first: the id and the place of each.
    copies: HashMap<String, Vec<(String, String)>>,
}

impl Places {
    fn add(&mut self, queue: &str, message: MessageView, now: SystemTime) {
        let state = state(message.state, now);
        let wrapped = if message.body.starts_with(WRAPPED) { "wrapped " } else { "" };
        if let Some(original) = DeadLetter::read(&message.body).original_message_id() {
            let place = format!("{wrapped}copy in {queue}, {state}");
            self.copies.entry(original.to_owned()).or_default().push((message.id.clone(), place));
        }
        self.by_id.entry(message.id).or_default().push(format!("in {queue}, {state}"));
    }

    pub(crate) fn itself(&self, id: &str) -> impl Iterator<Item = &str> {
        self.by_id.get(id).into_iter().flatten().map(String::as_str)
    }

    /// Where its copies are: messages with another id that name the same original.
    pub(crate) fn copies(&self, id: &str, original: &str) -> impl Iterator<Item = &str> {
        let copies = self.copies.get(original).into_iter().flatten();
        copies.filter(move |(copy, _)| copy != id).map(|(_, place)| place.as_str())
    }
}

fn state(state: MessageState, now: SystemTime) -> String {
    let left = |until: SystemTime| duration(until.duration_since(now).unwrap_or_default());
    match state {
        MessageState::Visible => "visible".to_owned(),
        MessageState::DelayedUntil(until) => format!("visible in {}", left(until)),
        MessageState::InFlightUntil(until) => format!("visible again in {}", left(until)),
    }
}
