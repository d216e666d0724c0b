//! One call of the handler: neither its panic nor its time-out reaches a neighbour. Takes no decision about the message.

use std::future::{Future, pending, poll_fn};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::FutureExt;
use tokio::task::yield_now;
use tracing::Instrument;

use super::crew::Desk;
use super::{BatchProcessor, Inner, Turn};
use crate::failure::{Evidence, Failure, FailureClass};
use crate::gate::{Held, Reply};
use crate::handler::{Handler, poll_last};
use crate::message::{Body, Delivery, Message};
use crate::policy;
use crate::queue::Queue;
use crate::settings::Mode;
use crate::telemetry;

/// How a handler ended.
pub(super) enum Handled {
    Done,
    Failed(Failure),
    /// A pause or an open circuit kept it from being called.
    Held(Held),
    /// Others blocked every thread: it was not called, and will not be.
    NotStarted,
    /// The host ends.
    Interrupted,
    /// It blocks its thread: it may still work on the message, so nobody else may yet.
    Abandoned,
}

impl Handled {
    pub(super) fn out_of_time() -> Self {
        Self::Failed(Failure::new(FailureClass::Temporary, Evidence::TimeOut, "the handler ran out of time"))
    }

    fn panicked() -> Self {
        Self::Failed(Failure::new(FailureClass::Temporary, Evidence::Panic, "the handler panicked"))
    }
}

/// What the end of a call says about its callee. One that was cut short by the end of the invocation says nothing.
pub(super) fn reply(handled: &Handled, had_its_time: bool) -> Reply {
    match handled {
        Handled::Done => Reply::Alive,
        Handled::Failed(failure) if had_its_time || failure.evidence() != Evidence::TimeOut => Reply::of(failure),
        Handled::Abandoned if had_its_time => Reply::Down,
        Handled::Failed(_) | Handled::Abandoned | Handled::Held(_) | Handled::NotStarted | Handled::Interrupted => {
            Reply::Silent
        }
    }
}

impl<H, Q, T> BatchProcessor<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// Calls the handler, unless the callee is left alone. What belongs to the user runs in here, and nowhere else.
    pub(super) async fn call(&self, delivery: &Arc<Delivery>, turn: &Turn, desk: &Desk<H, Q, T>) -> Handled {
        let called = async {
            // What the handler makes of an answer or an error goes by the user's rules first.
            let mut called = pin!(self.inner.rules.scope(self.call_in_scope(delivery, turn, desk)));
            let ended = poll_fn(|context| match called.as_mut().poll(context) {
                Poll::Ready(handled) => Poll::Ready(Ok(handled)),
                Poll::Pending => desk.poll_end(context).map(Err),
            });
            match ended.await {
                Ok(handled) | Err(handled @ Handled::Abandoned) => handled,
                Err(cut_off) => {
                    // A response may have come at the same moment, or be there but for the rest of its body.
                    yield_now().await;
                    let last = poll_fn(|context| Poll::Ready(poll_last(|| called.as_mut().poll(context))));
                    match last.await {
                        Poll::Ready(handled) => handled,
                        Poll::Pending => cut_off,
                    }
                }
            }
        };
        let called = async { called.instrument(telemetry::span(desk.invocation(), delivery)).await };
        AssertUnwindSafe(called).catch_unwind().await.unwrap_or_else(|payload| {
            // It is the user's, and its drop may panic too.
            if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                mem::forget(another);
            }
            Handled::panicked()
        })
    }

    async fn call_in_scope(&self, delivery: &Arc<Delivery>, turn: &Turn, desk: &Desk<H, Q, T>) -> Handled {
        let Inner { handler, protection, policy, mode, .. } = &*self.inner;
        let max_retries = policy::max_retries(policy, &delivery.progress());
        let message = match Message::new(delivery, max_retries, turn.limit) {
            Ok(message) => message,
            Err(failure) => return Handled::Failed(failure),
        };
        let (scope, caller, at) = (handler.scope(&message), delivery.caller(), turn.at);
        let may_be_held =
            *mode == Mode::Requeue && policy::may_be_held(policy, &delivery.progress(), delivery.deferrals(), at);
        let pass = if may_be_held { protection.admit(scope, caller, at) } else { Ok(protection.pass(scope, caller)) };
        let pass = match pass {
            Ok(pass) => pass,
            Err(held) => return Handled::Held(held),
        };
        if !desk.note(pass) {
            // The desk knows why.
            return pending().await;
        }
        match handler.handle(message).await {
            Ok(()) => Handled::Done,
            Err(failure) => Handled::Failed(failure),
        }
    }
}
