//! A handler of several messages in one call, and the adapters between it and [`Handler`].

use std::future::Future;
use std::pin::Pin;

use futures_util::future::join_all;

use super::Handler;
use crate::failure::Failure;
use crate::message::{Message, Raw};
use crate::policy::RateLimit;
use crate::scope::Scope;

/// Works on several messages in one call, and has a result for each: for an API that takes many
/// items at once.
///
/// Every function `async fn(Vec<Message<T>>) -> R` is such a handler. `R` is a [`Bulk`], a list of
/// results, or one result for all. [`run_bulk`](crate::run_bulk) runs it as a Lambda. [`bulk`]
/// makes a [`Handler`] of it for all else: a [`Worker`](crate::Worker), or a `World`.
///
/// ```
/// use requeue::{Bulk, Failure, Message};
///
/// #[derive(serde::Deserialize)]
/// struct Doc { id: String }
///
/// async fn index(messages: Vec<Message<Doc>>) -> Bulk<Failure> {
///     match search_index(messages.iter().map(Message::body)).await {
///         // The response has a status for each item.
///         Ok(statuses) => statuses
///             .into_iter()
///             .map(|status| match status {
///                 200 => Ok(()),
///                 503 => Err(Failure::temporary("503")),
///                 status => Err(Failure::non_retryable(status)),
///             })
///             .collect(),
///         Err(failure) => Bulk::Unclear(failure),
///     }
/// }
/// # async fn search_index<'a>(_: impl Iterator<Item = &'a Doc>) -> Result<Vec<u16>, Failure> { Ok(Vec::new()) }
/// # let _ = requeue::bulk(index);
/// ```
///
/// A call begins when it is full, when no other message of the batch can join it, or 100 ms after its
/// first message came. It has messages of one [scope](Self::scope) only, at most one of each FIFO
/// group, and one reservation of a rate limit, unless the limit is
/// [per message](crate::policy::LimitPer). The concurrency counts calls, and the timeout
/// is that of a call.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a bulk handler of `Message<{T}>`",
    note = "a bulk handler is an async function `Fn(Vec<Message<T>>) -> R`, where `R` is `Bulk<E>`, `Vec<Result<(), E>>` or `Result<(), E>` with `E: Into<Failure>`",
    note = "its future must be `Send`, and an `async` closure may capture nothing: see the documentation of `Handler`"
)]
pub trait BulkHandler<T = Raw>: Send + Sync + 'static {
    /// The error with which a message fails.
    type Error: Into<Failure>;

    /// Works on the messages of one call. A panic, or a call whose time is over, is
    /// [`Bulk::Unclear`].
    fn handle(&self, messages: Vec<Message<T>>) -> impl Future<Output = Bulk<Self::Error>> + Send;

    /// The most messages of one call. Default 10; 0 counts as 1.
    fn messages_per_call(&self) -> usize {
        10
    }

    /// See [`Handler::scope`].
    fn scope(&self, _: &Message<T>) -> Scope {
        Scope::default()
    }

    /// See [`Handler::rate_limit`].
    fn rate_limit(&self, _: Scope) -> Option<RateLimit> {
        None
    }

    /// See [`Handler::needs_event`].
    #[doc(hidden)]
    fn needs_event(&self) -> bool {
        false
    }
}

/// How a call for several messages ended. Handlers write it as a literal, so a fourth variant would
/// be a new major version.
///
/// A list of results collects into [`Bulk::Each`]. [`IntoBulk`] converts one too, and one result for
/// all: `Ok` means that all are done, and `Err` is unclear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bulk<E> {
    /// All are done.
    Done,
    /// A result for each message, in their order. One without a result has failed.
    Each(Vec<Result<(), E>>),
    /// It is unknown which of the messages failed, and some may be done.
    ///
    /// No copy is sent, and a standard queue's message uses no retry. The messages return with
    /// their visibility timeout, after the first delay of the failure's class; a non-retryable
    /// failure counts as temporary. On their second receive at most three share a call. From the
    /// third on each is alone, and its failure is then its own. A call of one message is never
    /// unclear: its failure is that of its message.
    Unclear(E),
}

impl<E> FromIterator<Result<(), E>> for Bulk<E> {
    fn from_iter<I: IntoIterator<Item = Result<(), E>>>(results: I) -> Self {
        Self::Each(results.into_iter().collect())
    }
}

/// The result of a function that is a [`BulkHandler`].
pub trait IntoBulk {
    /// The error of a message.
    type Error: Into<Failure>;

    /// The value as [`Bulk`].
    fn into_bulk(self) -> Bulk<Self::Error>;
}

impl<E: Into<Failure>> IntoBulk for Bulk<E> {
    type Error = E;

    fn into_bulk(self) -> Self {
        self
    }
}

impl<E: Into<Failure>> IntoBulk for Vec<Result<(), E>> {
    type Error = E;

    fn into_bulk(self) -> Bulk<E> {
        Bulk::Each(self)
    }
}

impl<E: Into<Failure>> IntoBulk for Result<(), E> {
    type Error = E;

    fn into_bulk(self) -> Bulk<E> {
        self.map_or_else(Bulk::Unclear, |()| Bulk::Done)
    }
}

impl<F, T, R> BulkHandler<T> for F
where
    F: Fn(Vec<Message<T>>) -> R + Send + Sync + 'static,
    R: Future<Output: IntoBulk> + Send,
    T: Send + 'static,
{
    type Error = <R::Output as IntoBulk>::Error;

    async fn handle(&self, messages: Vec<Message<T>>) -> Bulk<Self::Error> {
        self(messages).await.into_bulk()
    }
}

/// A [`Handler`] that puts several messages into one call of `handler`: see [`BulkHandler`].
pub fn bulk<B>(handler: B) -> InBulk<B> {
    InBulk(handler)
}

/// The handler that [`bulk`] returns.
#[derive(Clone, Copy)]
pub struct InBulk<B>(B);

requeue_sqs::debug_by_name!(InBulk<B>);

#[diagnostic::do_not_recommend]
impl<B: BulkHandler<T>, T: Send + 'static> Handler<T> for InBulk<B> {
    type Error = Failure;

    /// A call for this message alone.
    async fn handle(&self, message: Message<T>) -> Result<(), Failure> {
        let [result] = <[_; 1]>::try_from(self.call(vec![message]).await?)
            .expect("one result for one message");
        result
    }

    forward!(0: scope rate_limit needs_event);

    fn as_bulk(&self) -> Option<&dyn DynBulk<T>> {
        Some(self)
    }
}

/// A [`BulkHandler`] that calls `handler` for each of its messages, all at once.
pub fn each<H>(handler: H) -> Each<H> {
    Each(handler)
}

/// The bulk handler that [`each`] returns.
#[derive(Clone, Copy)]
pub struct Each<H>(H);

requeue_sqs::debug_by_name!(Each<H>);

#[diagnostic::do_not_recommend]
impl<H: Handler<T, Error: Send>, T: Send + 'static> BulkHandler<T> for Each<H> {
    type Error = H::Error;

    async fn handle(&self, messages: Vec<Message<T>>) -> Bulk<H::Error> {
        Bulk::Each(join_all(messages.into_iter().map(|message| self.0.handle(message))).await)
    }

    forward!(0: scope rate_limit);
}

/// A bulk handler of any type, as the processor calls it.
pub trait DynBulk<T>: Send + Sync {
    /// See [`BulkHandler::messages_per_call`].
    fn messages_per_call(&self) -> usize;

    /// A result for each message, or the failure of the whole call.
    fn call(
        &self,
        messages: Vec<Message<T>>,
    ) -> Pin<Box<dyn Future<Output = CallResult> + Send + '_>>;
}

pub(crate) type CallResult = Result<Vec<Result<(), Failure>>, Failure>;

impl<B: BulkHandler<T>, T: Send + 'static> DynBulk<T> for InBulk<B> {
    fn messages_per_call(&self) -> usize {
        self.0.messages_per_call().max(1)
    }

    fn call(
        &self,
        messages: Vec<Message<T>>,
    ) -> Pin<Box<dyn Future<Output = CallResult> + Send + '_>> {
        let count = messages.len();
        Box::pin(async move { results(self.0.handle(messages).await, count) })
    }
}

/// A result for each of this many messages.
fn results<E: Into<Failure>>(bulk: Bulk<E>, count: usize) -> CallResult {
    let mut results: Vec<Result<(), Failure>> = match bulk {
        Bulk::Done => return Ok(vec![Ok(()); count]),
        Bulk::Unclear(error) => return Err(error.into()),
        Bulk::Each(results) => {
            results.into_iter().map(|result| result.map_err(Into::into)).collect()
        }
    };
    if results.len() > count {
        tracing::error!(
            messages = count,
            results = results.len(),
            "the bulk handler returned more results than it got messages; the surplus counts for nothing"
        );
    }
    results.resize_with(count, || {
        Err(Failure::temporary("the bulk handler returned no result for the message"))
    });
    Ok(results)
}
