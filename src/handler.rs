//! The one trait a user implements; async functions qualify.

use std::future::Future;

use crate::failure::Failure;
use crate::gate::Scope;
use crate::message::{Message, Raw};
use crate::policy::RateLimit;

/// Methods that a handler leaves to the one inside it.
macro_rules! forward {
    ($inner:tt: $($method:ident)+) => { $(forward!(@$method $inner);)+ };
    (@scope $inner:tt) => {
        fn scope(&self, message: &Message<T>) -> Scope {
            self.$inner.scope(message)
        }
    };
    (@rate_limit $inner:tt) => {
        fn rate_limit(&self, scope: Scope) -> Option<RateLimit> {
            self.$inner.rate_limit(scope)
        }
    };
    (@needs_event $inner:tt) => {
        fn needs_event(&self) -> bool {
            self.$inner.needs_event()
        }
    };
    (@as_bulk $inner:tt) => {
        fn as_bulk(&self) -> Option<&dyn DynBulk<T>> {
            self.$inner.as_bulk()
        }
    };
}

mod around;
mod in_bulk;

pub use around::{Around, BoxHandler, around};
pub use in_bulk::{Bulk, BulkHandler, DynBulk, Each, InBulk, IntoBulk, bulk, each};

tokio::task_local! {
    /// Set during the last poll of a handler whose time is over.
    static LAST_POLL: ();
}

/// Polls a handler for the last time before it is dropped.
pub(crate) fn poll_last<T>(poll: impl FnOnce() -> T) -> T {
    LAST_POLL.sync_scope((), poll)
}

/// Whether this is the last poll of the handler that runs here. If the handler does not end now,
/// Requeue drops it.
///
/// A handler may wait for more than it needs, such as a body after the status. Such a handler
/// checks this in its `poll` function, and on the last poll ends with the part that it has.
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
///
/// A closure may be a handler too. The futures of all messages share its captures, so each call
/// clones an [`Arc`](std::sync::Arc) into its future. A closure written `async |message|` or
/// `async move |message|` qualifies if it captures nothing but references to statics:
///
/// ```
/// # use std::sync::Arc;
/// # use requeue::{Failure, Handler, Message};
/// # struct Bank;
/// # impl Bank { async fn charge(&self, _: &str) -> Result<(), Failure> { Ok(()) } }
/// # fn is_handler(_: impl Handler) {}
/// let bank = Arc::new(Bank);
/// let charge = move |message: Message| {
///     let bank = Arc::clone(&bank);
///     async move { bank.charge(message.body()).await }
/// };
/// # is_handler(charge);
/// # is_handler(async |_: Message| Ok::<(), Failure>(()));
/// ```
///
/// [`around`] makes a handler of another one, and [`BoxHandler`] takes a handler of any type.
/// The future must be [`Send`]; if it keeps a value that is not, the compiler names the value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of `Message<{T}>`",
    note = "a handler is an async function `Fn(Message<T>) -> Result<(), E>` with `E: Into<Failure>`",
    note = "`.classified()?` of `requeue::ResultExt` turns any other error into a `Failure`",
    note = "its future must be `Send`, and an `async` closure may capture nothing: see the documentation of `Handler`"
)]
pub trait Handler<T = Raw>: Send + Sync + 'static {
    /// The error with which a message fails: [`Failure`], or a type of your own that turns into
    /// one.
    type Error: Into<Failure>;

    /// Works on one message. It may run several times for the same message, so it must be
    /// idempotent; see [`Message::original_id`]. A panic counts as a temporary failure. Requeue
    /// drops the future when its time is over.
    fn handle(&self, message: Message<T>) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// The scope of the message, such as the downstream service that it is going to call. A pause
    /// or an open circuit of one scope defers no message of another. Default: one scope for all
    /// messages. [`scoped`] adds a scope to a function.
    fn scope(&self, _: &Message<T>) -> Scope {
        Scope::default()
    }

    /// The rate limit of a scope, if it has one of its own. Default: `None`, so the policy's
    /// [`limit`](crate::policy::RetryPolicy::limit) holds, if there is one.
    ///
    /// Requeue asks before each call, so a limit may change meanwhile. All execution environments
    /// must give a scope the same limit. Any value is valid: see [`RateLimit`].
    fn rate_limit(&self, _: Scope) -> Option<RateLimit> {
        None
    }

    /// Whether [`Message::to_event_record`] is to have the fields of Lambda's event that this library
    /// does not know. The text of the event is then kept.
    #[doc(hidden)]
    fn needs_event(&self) -> bool {
        false
    }

    /// The handler of several messages behind this one, if there is one.
    #[doc(hidden)]
    fn as_bulk(&self) -> Option<&dyn DynBulk<T>> {
        None
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

/// Adds scopes to a handler that is a function: `scope` gives the [`Scope`] of each message. See
/// [`Handler::scope`].
///
/// ```no_run
/// use requeue::{Failure, Message, Scope, scoped};
///
/// #[derive(serde::Deserialize)]
/// struct Order { tenant: String }
///
/// async fn charge(message: Message<Order>) -> Result<(), Failure> { Ok(()) }
///
/// #[tokio::main]
/// async fn main() -> Result<(), requeue::Error> {
///     requeue::run(scoped(charge, |message| Scope::of(&message.body().tenant))).await
/// }
/// ```
pub fn scoped<H, T, F>(handler: H, scope: F) -> Scoped<H, F>
where
    H: Handler<T>,
    F: Fn(&Message<T>) -> Scope + Send + Sync + 'static,
{
    Scoped { handler, scope }
}

/// The handler that [`scoped`] returns.
#[derive(Clone, Copy)]
pub struct Scoped<H, F> {
    handler: H,
    scope: F,
}

requeue_sqs::debug_by_name!(Scoped<H, F>);

// A compiler error about a function would list each adapter.
#[diagnostic::do_not_recommend]
impl<H, T, F> Handler<T> for Scoped<H, F>
where
    H: Handler<T>,
    F: Fn(&Message<T>) -> Scope + Send + Sync + 'static,
{
    type Error = H::Error;

    fn handle(&self, message: Message<T>) -> impl Future<Output = Result<(), H::Error>> + Send {
        self.handler.handle(message)
    }

    fn scope(&self, message: &Message<T>) -> Scope {
        (self.scope)(message)
    }

    forward!(handler: rate_limit needs_event as_bulk);
}
