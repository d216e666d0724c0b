//! One attempt at a delivery: gate, handle, classify, decide. Neither its panic nor its timeout
//! affects another delivery. The user's code runs here, and nowhere else.

use std::future::{pending, poll_fn};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::{consume_budget, yield_now};
use tokio::time::Instant;
use tracing::Instrument;

use super::admission::{Call, Taken};
use super::calls::{CallMember, Joined, Leading, SharedCalls, Verdict};
use super::decide::{Handled, Turn, Uncalled};
use super::executor::{End, LONG_RUN, Slot};
use super::inner::QueuePolicy;
use crate::delivery::Delivery;
use crate::disposition::Deferral;
use crate::gate::Permit;
use crate::handler::{DynBulk, Handler, poll_last};
use crate::message::{Body, Message};
use crate::observer::Event;
use crate::plan::Decision;
use crate::policy;
use crate::settings::Mode;
use crate::telemetry;

/// A call of a bulk handler is held by one of its messages.
struct Try<'a, T> {
    taken: Taken,
    calls: Option<&'a Arc<SharedCalls<T>>>,
    /// Whether its message may still join a call.
    is_coming: bool,
    /// Whether its call was that of another message.
    joined: bool,
    /// The call that it leads.
    leading: Option<Leading<T>>,
}

/// The work of a slot: one attempt after the other, until no delivery is left or this one has been
/// abandoned.
pub(super) async fn work<H: Handler<T>, T: Body>(
    handler: Arc<H>,
    slot: Slot,
    calls: Option<Arc<SharedCalls<T>>>,
) {
    while let Some((delivery, turn)) = slot.take() {
        let decision = attempt(&*handler, &slot, &delivery, &turn, calls.as_ref()).await;
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
    calls: Option<&Arc<SharedCalls<T>>>,
) -> Decision {
    let attempts = slot.attempts();
    let mut tried =
        Try { taken: Taken::default(), calls, is_coming: true, joined: false, leading: None };
    if let Some(decision) = attempts.gate(delivery, turn) {
        return decision;
    }
    let mut result = handle(handler, slot, delivery, turn, &mut tried).await;
    if let Some(leading) = tried.leading.take() {
        result = leading.tell_all(result);
    }
    // If it waited for a slot of the rate limit, or for the table, its handler began later.
    let turn = &slot.later_turn().unwrap_or(*turn);
    let reply = result.reply(attempts.deadlines.gives_its_time(turn));
    let ended = result.end_of_event();
    let least_wait = slot.note(reply, result.cause(), attempts.now());
    let mut decision = attempts.decide(delivery, turn, result, least_wait);
    decision.joined_call = tried.joined;
    let taken = mem::take(&mut tried.taken);
    drop(tried);
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
    tried: &mut Try<'_, T>,
) -> Handled {
    let attempts = slot.attempts();
    let called = async {
        // The user's rules apply first if the handler classifies a response or an error.
        // Boxed, since the layers around it would move all of it again and again.
        let called = Box::pin(call(handler, slot, delivery, turn, tried));
        let mut called = pin!(attempts.inner.policy(delivery).rules.scope(called));
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
    tried: &mut Try<'_, T>,
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
    let bulk = handler.as_bulk().zip(tried.calls);
    let call = Call::new(slot, delivery, turn, scope, limit.as_ref(), bulk.is_some());
    let permit = match call.admit(&mut tried.taken).await {
        Ok(permit) => permit,
        Err(uncalled) => return Handled::Uncalled(uncalled),
    };
    if let Some((bulk, calls)) = bulk {
        return Box::pin(share(bulk, calls, &call, message, permit, tried)).await;
    }
    if attempts.is_stopping() {
        return Handled::Uncalled(Uncalled::stopped());
    }
    if call.is_limited() {
        message.set_rate_limited();
    }
    if let Some(later) = slot.begin_after_wait() {
        message.set_deadline(later.limit);
    }
    if !slot.hold(permit) {
        // The slot knows why.
        return pending().await;
    }
    tried.taken.attempt = None;
    attempts.inner.observers.tell(&called(delivery));
    match handler.handle(message).await {
        Ok(()) => Handled::Done,
        Err(error) => {
            let failure = error.into();
            tried.taken.refused = call.refused(&failure);
            Handled::Failed(failure)
        }
    }
}

/// Joins a call of several messages, and leads it if no other message does, or not to its end.
async fn share<T: Body>(
    bulk: &dyn DynBulk<T>,
    calls: &Arc<SharedCalls<T>>,
    call: &Call<'_>,
    message: Message<T>,
    mut permit: Permit,
    tried: &mut Try<'_, T>,
) -> Handled {
    tried.is_coming = false;
    let joined = Instant::now();
    let mut member = CallMember { message, delivery: Arc::clone(call.delivery) };
    loop {
        let verdict = match calls.join(call.key(bulk.messages_per_call()), member) {
            Joined::Leads(leading) => {
                tried.leading = Some(leading);
                return lead(bulk, calls, call, joined, permit, tried).await;
            }
            Joined::Follows(verdict) => verdict,
        };
        call.slot.follow(permit);
        let counted = tried.taken.attempt.take();
        match verdict.await {
            Ok(Verdict::Ended { handled, began: Some(began) }) => {
                tried.joined = true;
                call.slot.begin_at(began);
                return handled;
            }
            Ok(Verdict::Ended { handled, began: None }) => {
                tried.taken.attempt = counted;
                return handled;
            }
            Ok(Verdict::Leaderless(again)) => {
                tried.taken.attempt = counted;
                let Some(own) = call.slot.unfollow() else { return pending().await };
                (member, permit) = (again, own);
            }
            Err(_) => return Handled::Abandoned,
        }
    }
}

/// Makes the call of several messages, as soon as it may begin.
async fn lead<T: Body>(
    bulk: &dyn DynBulk<T>,
    calls: &SharedCalls<T>,
    call: &Call<'_>,
    joined: Instant,
    permit: Permit,
    tried: &mut Try<'_, T>,
) -> Handled {
    let Call { attempts, slot, .. } = *call;
    let Try { taken, leading, .. } = tried;
    let Some(leads) = leading.as_mut() else { return Handled::Abandoned };
    slot.extend(attempts.deadlines.cutoff);
    leads.gathered().await;
    let _running = calls.running().await;
    let admitted = async {
        let mut permit = call.renew_since(joined, permit, taken).await?;
        if call.is_limited() && !call.reserves_alone() {
            permit = call.reserve(permit, taken).await?;
            call.pace().await?;
        }
        call.check_other(call.delivery)?;
        Ok(permit)
    };
    let permit = match admitted.await {
        Ok(permit) => permit,
        Err(uncalled) => {
            // The others of its call did not lapse or expire.
            if call.check_other(call.delivery).is_err()
                && let Some(leading) = leading.take()
            {
                leading.hand_over();
            }
            return Handled::Uncalled(uncalled);
        }
    };
    if attempts.is_stopping() {
        return Handled::Uncalled(Uncalled::stopped());
    }
    let Turn { began, limit: end, .. } = slot.wait(Duration::ZERO);
    if !slot.hold(permit) {
        return pending().await;
    }
    taken.attempt = None;
    let messages = leads.begin(began, |delivery| call.check_other(delivery)).into_iter().map(
        |CallMember { mut message, delivery }| {
            message.set_deadline(end);
            if call.is_limited() {
                message.set_rate_limited();
            }
            attempts.inner.observers.tell(&called(&delivery));
            message
        },
    );
    let results = match bulk.call(messages.collect()).await {
        Ok(results) => results,
        Err(failure) => {
            taken.refused = call.refused(&failure);
            return Handled::Failed(failure);
        }
    };
    let failures = results.iter().filter_map(|result| result.as_ref().err());
    taken.refused = failures.map(|failure| call.refused(failure)).find(Option::is_some).flatten();
    leading.take().map_or(Handled::Abandoned, |leading| leading.tell_each(results))
}

fn called(delivery: &Delivery) -> Event<'_> {
    Event::Called {
        message_id: delivery.message_id.as_deref(),
        original_message_id: delivery.original_id(),
        attempt: delivery.retries().saturating_add(1),
        receive_count: delivery.receive_count,
    }
}

impl<T> Drop for Try<'_, T> {
    fn drop(&mut self) {
        if let Some(calls) = self.calls
            && self.is_coming
            && calls.counts_attempts()
        {
            calls.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;
    use crate::message::Raw;

    fn future_of<H: Handler, F>(
        _: H,
        _: impl Fn(Arc<H>, Slot, Option<Arc<SharedCalls<Raw>>>) -> F,
    ) -> usize {
        size_of::<F>()
    }

    /// Each slot of a batch keeps one, and it is moved when its task is spawned.
    #[test]
    fn the_future_of_a_slot_is_small_whatever_its_handler_keeps() {
        let small = |_: Message| async { Ok::<(), Failure>(()) };
        let large = |_: Message| async {
            let kept = [0_u8; 10_000];
            yield_now().await;
            std::hint::black_box(&kept);
            Ok::<(), Failure>(())
        };
        let sizes = [future_of(small, work), future_of(large, work)];
        assert_eq!(sizes[0], sizes[1]);
        assert!(sizes[0] <= 3_328, "{sizes:?}");
    }
}
