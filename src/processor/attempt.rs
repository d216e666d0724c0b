//! One attempt at a delivery: gate, handle, classify, decide. Neither its panic nor its timeout
//! affects another delivery. The user's code runs here, and nowhere else.

use std::future::{pending, poll_fn};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::FutureExt;
use tokio::task::{consume_budget, yield_now};
use tracing::Instrument;

use super::admission::{Call, Refused, Taken};
use super::deadlines::Turn;
use super::decide::{Handled, Uncalled};
use super::executor::{End, LONG_RUN, Slot};
use super::inner::QueuePolicy;
use crate::delivery::Delivery;
use crate::disposition::Deferral;
use crate::gate::is_refused;
use crate::handler::{Handler, poll_last};
use crate::message::{Body, Message};
use crate::observer::Event;
use crate::plan::Decision;
use crate::policy;
use crate::settings::Mode;
use crate::telemetry;

/// The work of a slot: one attempt after the other, until no delivery is left or this one has been
/// abandoned.
pub(super) async fn work<H: Handler<T>, T: Body>(handler: Arc<H>, slot: Slot) {
    while let Some((delivery, turn)) = slot.take() {
        let decision = attempt(&*handler, &slot, &delivery, &turn).await;
        let is_long = decision.elapsed.is_some_and(|elapsed| elapsed >= LONG_RUN);
        if !slot.finish(decision) {
            break;
        }
        // A handler that never waits would keep everything else off this thread.
        if is_long {
            yield_now().await;
        } else {
            consume_budget().await;
        }
    }
}

async fn attempt<H: Handler<T>, T: Body>(
    handler: &H,
    slot: &Slot,
    delivery: &Arc<Delivery>,
    turn: &Turn,
) -> Decision {
    let attempts = slot.attempts();
    if let Some(decision) = attempts.gate(delivery, turn) {
        return decision;
    }
    let mut taken = Taken::default();
    let result = handle(handler, slot, delivery, turn, &mut taken).await;
    // If it waited for a slot of the rate limit, or for the table, its handler began later.
    let turn = &slot.later_turn().unwrap_or(*turn);
    let reply = result.reply(attempts.deadlines.gives_its_time(turn));
    let ended = result.end_of_event();
    let least_wait = slot.note(reply, attempts.now());
    let mut decision = attempts.decide(delivery, turn, result, least_wait);
    taken.give_back(slot, delivery, reply, ended, &mut decision).await;
    decision
}

/// Steps 3 and 4, handle and classify: runs the handler until it ends or must end. A panic or a
/// timeout is classified here, any other error by the handler.
async fn handle<H: Handler<T>, T: Body>(
    handler: &H,
    slot: &Slot,
    delivery: &Arc<Delivery>,
    turn: &Turn,
    taken: &mut Taken,
) -> Handled {
    let attempts = slot.attempts();
    let called = async {
        // The user's rules apply first if the handler classifies a response or an error.
        let called = call(handler, slot, delivery, turn, taken);
        let mut called = pin!(attempts.inner.rules.scope(called));
        let ended = poll_fn(|context| match called.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(Ok(result)),
            Poll::Pending => slot.poll_end(context).map(Err),
        });
        match ended.await {
            Ok(result) => result,
            Err(End::Abandoned) => Handled::Abandoned,
            Err(end) => {
                // A response may have arrived at the same moment, or lack only the rest of its
                // body.
                yield_now().await;
                let last =
                    poll_fn(|context| Poll::Ready(poll_last(|| called.as_mut().poll(context))));
                match (last.await, end) {
                    (Poll::Ready(result), _) => result,
                    (_, End::TimeOut) if slot.has_begun() => Handled::timed_out(),
                    (_, End::TimeOut) => {
                        let why = Deferral::NoTimeLeft;
                        Handled::Uncalled(attempts.deferred(delivery, why, turn.sample))
                    }
                    (_, End::Stop) if slot.has_begun() => Handled::Interrupted,
                    (_, End::Stop) => Handled::Uncalled(Uncalled::stopped()),
                    (_, End::Abandoned) => Handled::Abandoned,
                }
            }
        }
    };
    let called = async { called.instrument(telemetry::span(&attempts.invocation, delivery)).await };
    AssertUnwindSafe(called).catch_unwind().await.unwrap_or_else(|payload| {
        // The payload is the user's, and its drop may panic too.
        if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            mem::forget(another);
        }
        Handled::panicked()
    })
}

/// Calls the handler, if every step of the admission lets its message through.
async fn call<H: Handler<T>, T: Body>(
    handler: &H,
    slot: &Slot,
    delivery: &Arc<Delivery>,
    turn: &Turn,
    taken: &mut Taken,
) -> Handled {
    let attempts = slot.attempts();
    let QueuePolicy { policy, .. } = attempts.inner.policy(delivery);
    let max_retries = policy::max_retries(policy, &delivery.usage());
    let mut message = match Message::new(delivery, max_retries, turn.limit, turn.sample) {
        Ok(message) => message,
        Err(failure) => return Handled::Failed(failure),
    };
    let scope = handler.scope(&message);
    let limit = handler.rate_limit(scope).or(policy.limit);
    let limit = limit.filter(|_| attempts.inner.mode == Mode::Requeue);
    let call = Call::new(slot, delivery, turn, scope, limit.as_ref());
    let permit = match call.admit(taken).await {
        Ok(permit) => permit,
        Err(uncalled) => return Handled::Uncalled(uncalled),
    };
    if attempts.is_stopping() {
        return Handled::Uncalled(Uncalled::stopped());
    }
    if limit.is_some() {
        message.set_rate_limited();
    }
    if let Some(later) = slot.begin_after_wait() {
        message.set_deadline(later.limit);
    }
    if !slot.hold(permit) {
        // The slot knows why.
        return pending().await;
    }
    taken.attempt = None;
    attempts.inner.observers.tell(&Event::Called {
        message_id: delivery.message_id.as_deref(),
        original_message_id: delivery.original_id(),
        attempt: delivery.retries().saturating_add(1),
        receive_count: delivery.receive_count,
    });
    match handler.handle(message).await {
        Ok(()) => Handled::Done,
        Err(error) => {
            let failure = error.into();
            taken.refused = limit
                .filter(|limit| limit.adaptive && is_refused(&failure))
                .map(|limit| Refused { scope, limit, asked: turn.at });
            Handled::Failed(failure)
        }
    }
}
