//! The one trait a user implements; async functions qualify.

use std::future::Future;

use crate::failure::Failure;
use crate::gate::Scope;
use crate::message::{Message, Raw};

tokio::task_local! {
    /// Set while a handler that is to end is polled for the last time.
    static LAST_POLL: ();
}

/// Polls a handler for the last time before it is dropped.
pub(crate) fn poll_last<T>(poll: impl FnOnce() -> T) -> T {
    LAST_POLL.sync_scope((), poll)
}

/// Whether the handler that runs here is dropped unless it ends now: the response that it has by
/// now decides.
///
/// A handler that waits for more than it needs, such as the body of a response whose status is
/// there, asks it in its `poll` function.
///
/// ```
/// assert!(!requeue::is_last_poll());
/// ```
#[must_use]
pub fn is_last_poll() -> bool {
    LAST_POLL.try_with(|()| ()).is_ok()
}

/// Works on one message.
///
/// Every async function of the shape `async fn(Message<T>) -> Result<(), E>` with
/// `E: Into<Failure>` is a handler. Implement the trait for a type that carries state:
///
/// ```
/// use requeue::{Failure, Handler, Message};
///
/// struct Charge { currency: String }
///
/// impl Handler for Charge {
///     type Error = Failure;
///
///     async fn handle(&self, message: Message) -> Result<(), Failure> {
///         println!("{} bytes in {}", message.body().len(), self.currency);
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no handler of `Message<{T}>`",
    note = "a handler is an async function `Fn(Message<T>) -> Result<(), E>` with `E: Into<Failure>`",
    note = "`.classified()?` of `requeue::ResultExt` turns any other error into a `Failure`"
)]
pub trait Handler<T = Raw>: Send + Sync + 'static {
    /// With what a message fails: [`Failure`], or a type of your own that turns into one.
    type Error: Into<Failure>;

    /// Works on one message. It may run several times for the same message, so it must be
    /// idempotent; see [`Message::original_id`]. A panic counts as a temporary failure. The future
    /// is dropped when its time is over.
    fn handle(&self, message: Message<T>) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// The downstream service that the message is going to call: a pause or an open circuit of one
    /// scope defers no message of another. Default: one scope for all.
    ///
    /// ```
    /// # use requeue::{Failure, Handler, Message, Scope};
    /// # #[derive(serde::Deserialize)] struct Order { tenant: String }
    /// # struct Charge;
    /// impl Handler<Order> for Charge {
    /// #   type Error = Failure;
    /// #   async fn handle(&self, _: Message<Order>) -> Result<(), Failure> { Ok(()) }
    ///     // …
    ///     fn scope(&self, message: &Message<Order>) -> Scope {
    ///         Scope::of(&message.body().tenant)
    ///     }
    /// }
    /// ```
    fn scope(&self, _: &Message<T>) -> Scope {
        Scope::default()
    }
}

impl<F, T, R, E> Handler<T> for F
where
    F: Fn(Message<T>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), E>> + Send,
    E: Into<Failure>,
    T: Send + 'static,
{
    type Error = E;

    fn handle(&self, message: Message<T>) -> impl Future<Output = Result<(), E>> + Send {
        self(message)
    }
}
