//! The one trait that a user implements, also by an async function, and handlers around others.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::TryFutureExt;

use crate::failure::Failure;
use crate::message::{Message, Raw};
use crate::policy::RateLimit;
use crate::scope::Scope;

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

mod in_bulk;

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
/// clones an [`Arc`] into its future. A closure written `async |message|` or
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
    /// [`limit`](crate::policy::RetryPolicy::limit) applies, if there is one.
    ///
    /// Requeue asks before each call, so a limit may change meanwhile. All execution environments
    /// must give a scope the same limit. Any value is valid: see [`RateLimit`].
    fn rate_limit(&self, _: Scope) -> Option<RateLimit> {
        None
    }

    /// Whether [`Message::to_event_record`] includes the fields of Lambda's event that this library
    /// does not know. The text of the event is then kept.
    #[doc(hidden)]
    fn needs_event(&self) -> bool {
        false
    }

    /// The handler of several messages in this one, if there is one.
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

/// A handler around another one: `around` gets the inner handler and each message, and calls the
/// inner handler or not. The inner handler determines all else: its [`scope`](Handler::scope), its
/// [`rate_limit`](Handler::rate_limit), and the methods that later versions add.
///
/// A [`Handler`] of your own around another one must forward each of these methods. If it does not,
/// all messages silently share one scope.
///
/// ```
/// use std::time::Instant;
/// use requeue::{Failure, Handler, Message, Scope, around, scoped};
///
/// #[derive(serde::Deserialize)]
/// struct Order { tenant: String }
///
/// async fn charge(message: Message<Order>) -> Result<(), Failure> { Ok(()) }
///
/// let charge = scoped(charge, |message| Scope::of(&message.body().tenant));
/// let timed = around(charge, |charge, message: Message<Order>| async move {
///     let began = Instant::now();
///     let result = charge.handle(message).await;
///     println!("{:?}", began.elapsed());
///     result
/// });
/// # fn is_handler(_: impl Handler<Order>) {}
/// # is_handler(timed);
/// ```
///
/// Around a [`BulkHandler`], `around` gets a `Vec<Message<T>>`, and [`bulk`] comes last:
/// `bulk(around(index, |index, messages: Vec<Message<Doc>>| async move { … }))`. Around the handler
/// that `bulk` returns, each call has one message.
pub fn around<H, M, R, F>(handler: H, around: F) -> Around<H, F>
where
    F: Fn(Arc<H>, M) -> R + Send + Sync + 'static,
{
    Around { handler: Arc::new(handler), around }
}

/// The handler that [`around`] returns.
pub struct Around<H, F> {
    handler: Arc<H>,
    around: F,
}

requeue_sqs::debug_by_name!(Around<H, F>);

#[diagnostic::do_not_recommend]
impl<H, F, T, R, E> Handler<T> for Around<H, F>
where
    H: Handler<T>,
    F: Fn(Arc<H>, Message<T>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), E>> + Send,
    E: Into<Failure>,
    T: Send + 'static,
{
    type Error = E;

    fn handle(&self, message: Message<T>) -> impl Future<Output = Result<(), E>> + Send {
        (self.around)(Arc::clone(&self.handler), message)
    }

    forward!(handler: scope rate_limit needs_event);
}

#[diagnostic::do_not_recommend]
impl<H, F, T, R> BulkHandler<T> for Around<H, F>
where
    H: BulkHandler<T>,
    F: Fn(Arc<H>, Vec<Message<T>>) -> R + Send + Sync + 'static,
    R: Future<Output: IntoBulk> + Send,
    T: Send + 'static,
{
    type Error = <R::Output as IntoBulk>::Error;

    async fn handle(&self, messages: Vec<Message<T>>) -> Bulk<Self::Error> {
        (self.around)(Arc::clone(&self.handler), messages).await.into_bulk()
    }

    fn messages_per_call(&self) -> usize {
        self.handler.messages_per_call()
    }

    forward!(handler: scope rate_limit needs_event);
}

/// A handler of any type, for a program that chooses its handler at run time. Its clones are the
/// same handler.
pub struct BoxHandler<T = Raw>(Arc<dyn Erased<T>>);

impl<T: 'static> BoxHandler<T> {
    /// A handler without its type.
    pub fn new(handler: impl Handler<T>) -> Self {
        Self(Arc::new(handler))
    }
}

impl<T> Clone for BoxHandler<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

requeue_sqs::debug_by_name!(BoxHandler<T>);

#[diagnostic::do_not_recommend]
impl<T: 'static> Handler<T> for BoxHandler<T> {
    type Error = Failure;

    fn handle(&self, message: Message<T>) -> impl Future<Output = Result<(), Failure>> + Send {
        self.0.handle(message)
    }

    forward!(0: scope rate_limit needs_event as_bulk);
}

/// The methods of [`Handler`], with one type for all futures.
trait Erased<T>: Send + Sync {
    fn handle(
        &self,
        message: Message<T>,
    ) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + '_>>;
    fn scope(&self, message: &Message<T>) -> Scope;
    fn rate_limit(&self, scope: Scope) -> Option<RateLimit>;
    fn needs_event(&self) -> bool;
    fn as_bulk(&self) -> Option<&dyn DynBulk<T>>;
}

impl<H: Handler<T>, T: 'static> Erased<T> for H {
    fn handle(
        &self,
        message: Message<T>,
    ) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + '_>> {
        Box::pin(Handler::handle(self, message).map_err(Into::into))
    }

    fn scope(&self, message: &Message<T>) -> Scope {
        Handler::scope(self, message)
    }

    fn rate_limit(&self, scope: Scope) -> Option<RateLimit> {
        Handler::<T>::rate_limit(self, scope)
    }

    fn needs_event(&self) -> bool {
        Handler::needs_event(self)
    }

    fn as_bulk(&self) -> Option<&dyn DynBulk<T>> {
        Handler::as_bulk(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::handler::{bulk, scoped};

    /// A handler that has each of the methods.
    struct Inner;

    fn limit() -> RateLimit {
        RateLimit::new(7, Duration::from_secs(1))
    }

    impl Handler<String> for Inner {
        type Error = Failure;

        async fn handle(&self, message: Message<String>) -> Result<(), Failure> {
            Err(Failure::quota(message.body()))
        }

        fn scope(&self, message: &Message<String>) -> Scope {
            Scope::of(message.body())
        }

        fn rate_limit(&self, scope: Scope) -> Option<RateLimit> {
            (scope == Scope::of("a")).then(limit)
        }

        fn needs_event(&self) -> bool {
            true
        }
    }

    impl BulkHandler<String> for Inner {
        type Error = Failure;

        async fn handle(&self, messages: Vec<Message<String>>) -> Bulk<Failure> {
            messages.iter().map(|message| Err(Failure::quota(message.body()))).collect()
        }

        fn messages_per_call(&self) -> usize {
            3
        }

        fn scope(&self, message: &Message<String>) -> Scope {
            Scope::of(message.body())
        }

        fn rate_limit(&self, scope: Scope) -> Option<RateLimit> {
            (scope == Scope::of("a")).then(limit)
        }

        fn needs_event(&self) -> bool {
            true
        }
    }

    fn message() -> Message<String> {
        Message::builder("a".to_owned()).build()
    }

    async fn assert_is_inner(handler: impl Handler<String>, messages_per_call: Option<usize>) {
        let failure: Failure = handler.handle(message()).await.expect_err("it fails").into();
        assert_eq!(failure, Failure::quota("a"));
        assert_eq!(handler.scope(&message()), Scope::of("a"));
        let limits = ["a", "b"].map(|scope| Handler::rate_limit(&handler, Scope::of(scope)));
        assert_eq!(limits, [Some(limit()), None]);
        assert!(handler.needs_event());
        assert_eq!(handler.as_bulk().map(DynBulk::messages_per_call), messages_per_call);
    }

    #[tokio::test]
    async fn a_handler_around_another_has_all_of_its_methods() {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let counted = || {
            around(Inner, |inner, message: Message<String>| async move {
                CALLS.fetch_add(1, Ordering::Relaxed);
                Handler::handle(&*inner, message).await
            })
        };
        assert_is_inner(counted(), None).await;
        assert_is_inner(BoxHandler::new(counted()).clone(), None).await;
        let scope = |message: &Message<String>| Scope::of(message.body());
        assert_is_inner(scoped(BoxHandler::new(counted()), scope), None).await;
        let counted = || {
            around(Inner, |inner, messages: Vec<Message<String>>| async move {
                CALLS.fetch_add(1, Ordering::Relaxed);
                BulkHandler::handle(&*inner, messages).await
            })
        };
        assert_is_inner(bulk(counted()), Some(3)).await;
        assert_is_inner(BoxHandler::new(bulk(counted())), Some(3)).await;
        assert_eq!(CALLS.load(Ordering::Relaxed), 5);
    }
}
