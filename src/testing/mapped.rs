//! A queue of the world.

use requeue_embedded::{EmbeddedSqs, EventSourceMapping};

use crate::queue::QueueArn;

/// The visibility timeout in the ready Lambda's template: six times the function's timeout.
const VISIBILITY_SECS: &str = "360";
const MAX_RECEIVE_COUNT: u32 = 5;

/// A queue with its dead-letter queue and its event source mapping.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) queue: QueueArn,
    pub(super) dead_letters: QueueArn,
    pub(super) mapping: EventSourceMapping,
}

impl Mapped {
    pub(super) fn create(sqs: &EmbeddedSqs, name: &str, batch_size: usize) -> Self {
        let dead_letters = match name.strip_suffix(".fifo") {
            Some(stem) => format!("{stem}-dlq.fifo"),
            None => format!("{name}-dlq"),
        };
        let dead_letters = sqs.create_queue(&dead_letters, []).expect("the name of a queue");
        let redrive = format!(
            r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":{MAX_RECEIVE_COUNT}}}"#
        );
        let attributes = [("VisibilityTimeout", VISIBILITY_SECS), ("RedrivePolicy", &redrive)];
        let queue = sqs.create_queue(name, attributes).expect("the name of a queue");
        let mapping = EventSourceMapping::new(sqs.clone(), queue.clone(), batch_size);
        Self { queue, dead_letters, mapping }
    }
}
