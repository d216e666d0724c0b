//! When a message can be received: for tests that let time pass until then.

use std::collections::BTreeMap;
use std::time::SystemTime;

use requeue_sqs::QueueArn;
use tokio::time::sleep;

use crate::{EmbeddedError, EmbeddedSqs, MessageState, MessageView};

impl EmbeddedSqs {
    /// Sleeps until a message of the queue can be received; `false` at once if it has none.
    ///
    /// With tokio's paused clock that takes no time.
    pub async fn wait_until_due(&self, queue: &QueueArn) -> Result<bool, EmbeddedError> {
        let messages = self.messages(queue)?;
        let Some(due) = due(&messages, queue.is_fifo()) else {
            return Ok(false);
        };
        sleep(due.duration_since(self.0.clock.now()).unwrap_or_default()).await;
        Ok(true)
    }
}

/// The time at which the first of the messages can be received. While a message of a FIFO group is
/// in flight, the others of its group are held back.
fn due(messages: &[MessageView], is_fifo: bool) -> Option<SystemTime> {
    let group = |message: &MessageView| message.group_id.clone().filter(|_| is_fifo);
    let mut held = BTreeMap::new();
    for message in messages {
        if let (Some(group), MessageState::InFlightUntil(until)) = (group(message), message.state) {
            let known = held.entry(group).or_insert(until);
            *known = until.max(*known);
        }
    }
    let due = |message: &MessageView| {
        let own = match message.state {
            MessageState::Visible => SystemTime::UNIX_EPOCH,
            MessageState::DelayedUntil(until) | MessageState::InFlightUntil(until) => until,
        };
        group(message).and_then(|group| held.get(&group)).map_or(own, |held| own.max(*held))
    };
    messages.iter().map(due).min()
}
