//! Tells an observer about the messages that enter queues.

use std::fmt;
use std::sync::Arc;

use super::message::Message;

/// The observer, called with the queue's name and the message while the queues are locked.
type Observer = Arc<dyn Fn(&str, &Message) + Send + Sync>;

/// At most one observer.
#[derive(Clone, Default)]
pub(crate) struct Arrivals(Option<Observer>);

impl Arrivals {
    pub(crate) fn told_to(observer: Observer) -> Self {
        Self(Some(observer))
    }

    pub(super) fn tell(&self, queue: &str, message: &Message) {
        if let Some(observer) = &self.0 {
            observer(queue, message);
        }
    }
}

impl fmt::Debug for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Arrivals").field(&self.0.is_some()).finish()
    }
}
