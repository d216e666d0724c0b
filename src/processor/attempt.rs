//! One attempt at a delivery: gate, handle, classify, decide. Neither its panic nor its timeout
//! affects another delivery. The user's code runs here, and in the call of several messages, and nowhere
//! else.

use std::future::{pending, poll_fn};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::{consume_budget, yield_now};
use tracing::Instrument;

use super::admission::{Call, Taken};
use super::calls::SharedCalls;
use super::executor::{End, LONG_RUN, Slot};
use super::inner::QueuePolicy;
use super::shared_call::{Try, share};
use super::turn::{Attempts, Handled, Turn, Uncalled};
use crate::delivery::Delivery;
use crate::disposition::{Deferral, Disposition, ReleaseReason};
use crate::gate::{Reply, TimeLeft, gate};
use crate::handler::{Handler, poll_last};
use crate::message::{Body, Message};
use crate::plan::Decision;
use crate::settings::{DeadLetterMode, Mode};
use crate::{policy, telemetry};

/// The work of a slot: one attempt after the other, until none is left or one is abandoned.
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
        // A handler that never waits would block all other work of this thread.
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
    // If it waited for a reservation or for the table, its handler began later.
    let turn = &slot.later_turn().unwrap_or(*turn);
    let reply = result.reply(attempts.deadlines.gives_its_time(turn));
    let ended = result.end_of_event();
    let least_wait = slot.note(reply, result.failure(), attempts.now());
    let mut decision = attempts.decide(delivery, turn, result, least_wait);
    decision.joined_call = tried.joined;
    let taken = mem::take(&mut tried.taken);
    drop(tried);
    taken.give_back(slot, delivery, reply, ended, &mut decision).await;
    decision
}

impl Attempts {
    /// Step 2, gate: the decision about a message that is settled without a call of its handler.
    pub(super) fn gate(&self, delivery: &Arc<Delivery>, turn: &Turn) -> Option<Decision> {
        let inner = &*self.inner;
        let QueuePolicy { policy, .. } = inner.policy(delivery);
        let Turn { began, at: now, sample, .. } = *turn;
        let decision =
            |disposition| Some(Decision::uncalled(Arc::clone(delivery), disposition, now, sample));
        if inner.has_lapsed(delivery) {
            return decision(Disposition::Release(ReleaseReason::Lapsed));
        }
        if inner.not_deleted.find(delivery, now).is_some() {
            return decision(Disposition::Complete);
        }
        let time_left =
            if began < self.deadlines.cutoff { TimeLeft::Enough } else { TimeLeft::TooLittle };
        let dead_letter = inner.planner(delivery).dead_letter_mode(delivery, now);
        let dead_lettered = inner.dead_lettered.find(delivery, now);
        let reason = dead_lettered.as_ref().map(|dead_lettered| dead_lettered.reason);
        let gated = gate(policy, dead_letter, delivery, reason, now, time_left, sample);
        if self.is_stopping() {
            // A message that was dead-lettered before keeps that reason, and is not counted again.
            let is_before = |gated: &Disposition| {
                matches!(gated, Disposition::Release(_)) && gated.stops_retrying()
            };
            let stopped = Disposition::Release(ReleaseReason::ShuttingDown);
            return decision(gated.filter(is_before).unwrap_or(stopped));
        }
        if let Some(disposition) = gated {
            let is_sent = matches!(disposition, Disposition::DeadLetter(_))
                && *dead_letter != DeadLetterMode::Redrive;
            let failure =
                dead_lettered.and_then(|dead_lettered| dead_lettered.failure).filter(|_| is_sent);
            return decision(disposition).map(|decision| Decision { failure, ..decision });
        }
        let objection = delivery.defect.as_ref().or(delivery.refusal.as_ref())?.clone();
        let decision = self.decide(delivery, turn, Handled::Failed(objection), None);
        Some(Decision { elapsed: None, ..decision })
    }
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
        // Boxed, since the layers around it would move it several times.
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

/// Calls the handler, if every step of the admission permits it.
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
    // As a bulk of one, a handler of one message would take 13 % more instructions for a batch of ten,
    // and nine more allocations for each message.
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
        // The slot has the reason.
        return pending().await;
    }
    tried.taken.attempt = None;
    attempts.inner.observers.tell(&delivery.called());
    match handler.handle(message).await {
        Ok(()) => Handled::Done,
        Err(error) => {
            let failure = error.into();
            tried.taken.refused = call.refused(&failure);
            Handled::Failed(failure)
        }
    }
}

impl Attempts {
    /// Step 5, decide: from the end of a handler to the disposition of its message.
    pub(super) fn decide(
        &self,
        delivery: &Arc<Delivery>,
        turn: &Turn,
        handled: Handled,
        least_wait: Option<Duration>,
    ) -> Decision {
        let QueuePolicy { policy, .. } = self.inner.policy(delivery);
        let Turn { began, sample, .. } = *turn;
        let now = self.now();
        let decided = |disposition| Decision {
            elapsed: Some(began.elapsed()),
            ..Decision::uncalled(Arc::clone(delivery), disposition, now, sample)
        };
        match handled {
            Handled::Done => decided(Disposition::Complete),
            Handled::Failed(failure) => {
                let usage = delivery.usage();
                let mut disposition = policy::decide(policy, &usage, &failure, now, sample);
                if let Some(least) = least_wait {
                    disposition =
                        policy::unserved(policy, &usage, &failure, disposition, least, now);
                }
                Decision { failure: Some(failure), ..decided(disposition) }
            }
            Handled::Unclear { failure, .. } => {
                let (failure, disposition) = policy::unclear(policy, failure, now, sample);
                Decision { failure: Some(failure), ..decided(disposition) }
            }
            Handled::Interrupted => decided(Disposition::Release(ReleaseReason::ShuttingDown)),
            Handled::Abandoned => decided(Disposition::Release(ReleaseReason::Abandoned)),
            Handled::Uncalled(Uncalled { disposition, start_tag }) => {
                Decision { elapsed: None, start_tag, ..decided(disposition) }
            }
        }
    }

    pub(super) fn deferred(&self, delivery: &Delivery, why: Deferral, sample: f64) -> Uncalled {
        let QueuePolicy { policy, .. } = self.inner.policy(delivery);
        policy::defer(policy, why, delivery.deferrals(), self.now(), sample).into()
    }

    pub(super) fn not_started(&self, delivery: &Arc<Delivery>) -> Decision {
        let turn = &self.turn();
        self.gate(delivery, turn).unwrap_or_else(|| {
            let late = self.deferred(delivery, Deferral::NoTimeLeft, turn.sample);
            self.decide(delivery, turn, Handled::Uncalled(late), None)
        })
    }

    /// The decision about a delivery whose handler blocks its thread.
    pub(super) fn abandoned(
        &self,
        delivery: &Arc<Delivery>,
        turn: &Turn,
        had_its_time: bool,
    ) -> (Decision, Reply) {
        let handled = Handled::Abandoned;
        let reply = handled.reply(had_its_time);
        (self.decide(delivery, turn, handled, None), reply)
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
