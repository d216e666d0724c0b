//! The events that are handled once.

use std::time::Duration;

use crate::pointer::JsonPointer;

/// Calls the handler once for each event, as far as a store can tell: of several messages about one
/// event, only one is called at a time. After its success the others complete without a call.
///
/// It needs a [store](crate::Coordination). The store holds a hash of the event's name, and the time
/// until which the event counts as done.
///
/// ```
/// use requeue::policy::{Once, RetryPolicy};
///
/// let mut once = Once::default();
/// once.key = Some("/orderId".parse()?);
/// let mut policy = RetryPolicy::default();
/// policy.once = Some(once);
/// # Ok::<(), requeue::InvalidJsonPointer>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Once {
    /// The place of the event's name in the body: a text that is not empty, or a number. `None`,
    /// and a message without such a name: the id of the message's first delivery.
    pub key: Option<JsonPointer>,
    /// How long an event counts as done after its success. Default 14 days.
    pub keep: Duration,
    /// How a message proceeds if the store does not answer. Default: [`WhenUnavailable::Call`].
    pub when_unavailable: WhenUnavailable,
}

impl Default for Once {
    fn default() -> Self {
        Self {
            key: None,
            keep: Duration::from_hours(14 * 24),
            when_unavailable: WhenUnavailable::Call,
        }
    }
}

/// How a message proceeds if the store does not say whether its event is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenUnavailable {
    /// Its handler is called, perhaps for an event that is done.
    #[default]
    Call,
    /// It is deferred, at most [`max_deferrals`](super::RetryPolicy::max_deferrals) times. Then its
    /// handler is called.
    Defer,
}
