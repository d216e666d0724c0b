//! One attempt at a delivery: gate, handle, classify, decide. Neither its panic nor its timeout
//! affects another delivery.

use std::future::{Future, pending, poll_fn};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument, Span};

use super::BatchProcessor;
use super::deadlines::{Deadlines, Turn};
use super::executor::{self, End, Slot};
use super::handled::{Call, Ended, Handled, Refused, Taken};
use super::inner::Inner;
use super::policies::QueuePolicy;
use crate::delivery::Delivery;
use crate::disposition::{Disposition, ReleaseReason};
use crate::fleet::Ticket;
use crate::gate::{Caller, Change, Reply, TimeLeft, gate};
use crate::handler::{Handler, poll_last};
use crate::message::{Body, Message};
use crate::observer::Event;
use crate::plan::Decision;
use crate::policy::{self, RetryPolicy};
use crate::queue::Queue;
use crate::settings::{DeadLetterMode, Mode};
use crate::settle::Settler;
use crate::telemetry;

/// The attempts of one batch.
pub(super) struct Attempts<H, Q, T> {
    pub(super) processor: BatchProcessor<H, Q, T>,
    pub(super) deadlines: Deadlines,
    /// The span of the log lines.
    invocation: Span,
}

impl<H, Q, T> executor::Runner for Attempts<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    fn turn(&self) -> Turn {
        let Settler { clock, sampler, .. } = &self.processor.inner.settler;
        let began = Instant::now();
        Turn {
            began,
            limit: self.deadlines.limit(began),
            at: clock.now(),
            sample: sampler.sample(),
        }
    }

    async fn run(&self, delivery: &Arc<Delivery>, turn: &Turn, slot: &Slot<Self>) -> Decision {
        if let Some(decision) =
            self.gate(delivery, turn, self.with_own_limit(delivery, turn).as_ref())
        {
            return decision;
        }
        let mut taken = Taken::default();
        let handled = self.handle(delivery, turn, slot, &mut taken).await;
        // If it waited for a slot of the rate limit, or for the store, its handler began later.
        let QueuePolicy { events, .. } = self.processor.inner.policy(delivery);
        let turn = &slot.later_turn().unwrap_or(*turn);
        let (reply, ended) =
            (handled.reply(self.deadlines.gives_its_time(turn)), handled.end_of_event());
        let least_wait = slot.note(reply, self.now());
        let mut decision = self.decide(delivery, turn, handled, least_wait);
        let Taken { event, attempt, ticket, refused } = taken;
        if let Some(attempt) = attempt {
            self.take_back(attempt, slot).await;
        }
        if let (Ended::Unknown, Some(lease)) = (ended, &event.lease) {
            let Decision { disposition, at, .. } = &mut decision;
            *disposition = policy::after_lease(*disposition, delivery.strategy, lease.rest(), *at);
        }
        if let Some(events) = events {
            decision.once = self.conclude(events, event, ended, slot).await;
        }
        if let Some(ticket) = &ticket {
            self.tell_holds(ticket, reply, delivery).await;
        }
        if let Some(refused) = refused {
            self.tell_refused(&refused, delivery, slot).await;
        }
        decision
    }

    fn not_started(&self, delivery: &Arc<Delivery>, turn: &Turn) -> Decision {
        // On this thread no user's code may run, so a limit of the handler's is not known.
        self.gate(delivery, turn, None)
            .unwrap_or_else(|| self.decide(delivery, turn, Handled::NotStarted, None))
    }

    fn abandoned(
        &self,
        delivery: &Arc<Delivery>,
        turn: &Turn,
        had_its_time: bool,
    ) -> (Decision, Reply) {
        let handled = Handled::Abandoned;
        let reply = handled.reply(had_its_time);
        (self.decide(delivery, turn, handled, None), reply)
    }

    fn announce(&self, change: Change) {
        self.announce_change(change);
    }
}

impl<H, Q, T> Attempts<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    pub(super) fn new(processor: &BatchProcessor<H, Q, T>, deadlines: &Deadlines) -> Self {
        Self {
            processor: processor.clone(),
            deadlines: deadlines.clone(),
            invocation: Span::current(),
        }
    }

    pub(super) fn announce_change(&self, change: Change) {
        let is_enforced = self.processor.inner.mode == Mode::Requeue;
        let event = match change {
            Change::Opened => Event::CircuitOpened { is_shared: false, is_enforced },
            Change::OpenedForAll => Event::CircuitOpened { is_shared: true, is_enforced: true },
            Change::Closed => Event::CircuitClosed { is_shared: false },
            Change::ClosedForAll => Event::CircuitClosed { is_shared: true },
        };
        self.invocation.in_scope(|| self.processor.inner.observers.tell(&event));
    }

    /// Step 2, gate: the decision about a message that is settled without a call of its handler.
    fn gate(
        &self,
        delivery: &Arc<Delivery>,
        turn: &Turn,
        with_own_limit: Option<&RetryPolicy>,
    ) -> Option<Decision> {
        let Inner { settler, given_up, not_deleted, .. } = &*self.processor.inner;
        let QueuePolicy { policy, .. } = self.processor.inner.policy(delivery);
        let Turn { began, at: now, sample, .. } = *turn;
        let decision =
            |disposition| Some(Decision::uncalled(Arc::clone(delivery), disposition, now, sample));
        if settler.has_lapsed(delivery) {
            return decision(Disposition::Release(ReleaseReason::Lapsed));
        }
        if not_deleted.find(delivery, now).is_some() {
            return decision(Disposition::Complete);
        }
        if self.is_stopping() {
            return decision(Disposition::Release(ReleaseReason::ShuttingDown));
        }
        let time_left =
            if began < self.deadlines.cutoff { TimeLeft::Enough } else { TimeLeft::TooLittle };
        let dead_letter = self.processor.inner.planner(delivery).dead_letter_mode(delivery, now);
        let policy = with_own_limit.unwrap_or(policy);
        let given_up = given_up.find(delivery, now);
        let reason = given_up.as_ref().map(|given_up| given_up.reason);
        if let Some(disposition) =
            gate(policy, dead_letter, delivery, reason, now, time_left, sample)
        {
            let is_sent = matches!(disposition, Disposition::DeadLetter(_))
                && *dead_letter != DeadLetterMode::Redrive;
            let failure = given_up.and_then(|given_up| given_up.failure).filter(|_| is_sent);
            return Some(Decision {
                failure,
                ..Decision::uncalled(Arc::clone(delivery), disposition, now, sample)
            });
        }
        let objection = delivery.defect.as_ref().or(delivery.refusal.as_ref())?.clone();
        let decision = self.decide(delivery, turn, Handled::Failed(objection), None);
        Some(Decision { elapsed: None, ..decision })
    }

    /// Steps 3 and 4, handle and classify: runs the handler until it ends or must end. The user's
    /// code runs here, and nowhere else. A panic or a timeout is classified here, any other error
    /// by the handler.
    async fn handle(
        &self,
        delivery: &Arc<Delivery>,
        turn: &Turn,
        slot: &Slot<Self>,
        taken: &mut Taken,
    ) -> Handled {
        let called = async {
            // The user's rules apply first if the handler classifies a response or an error.
            let mut called =
                pin!(self.processor.inner.rules.scope(self.call(delivery, turn, slot, taken)));
            let ended = poll_fn(|context| match called.as_mut().poll(context) {
                Poll::Ready(handled) => Poll::Ready(Ok(handled)),
                Poll::Pending => slot.poll_end(context).map(Err),
            });
            match ended.await {
                Ok(handled) => handled,
                Err(End::Abandoned) => Handled::Abandoned,
                Err(end) => {
                    // A response may have arrived at the same moment, or lack only the rest of its
                    // body.
                    yield_now().await;
                    let last =
                        poll_fn(|context| Poll::Ready(poll_last(|| called.as_mut().poll(context))));
                    match last.await {
                        Poll::Ready(handled) => handled,
                        Poll::Pending => match end {
                            End::TimeOut if !slot.has_begun() => Handled::NotStarted,
                            End::Stop if !slot.has_begun() => Handled::Stopped,
                            end => Handled::ended(end),
                        },
                    }
                }
            }
        };
        let called = async { called.instrument(telemetry::span(&self.invocation, delivery)).await };
        AssertUnwindSafe(called).catch_unwind().await.unwrap_or_else(|payload| {
            // The payload is the user's, and its drop may panic too.
            if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                mem::forget(another);
            }
            Handled::panicked()
        })
    }

    /// Calls the handler, unless the downstream service is paused, its circuit is open, or its rate
    /// limit has no slot, or its event is done or in progress.
    async fn call(
        &self,
        delivery: &Arc<Delivery>,
        turn: &Turn,
        slot: &Slot<Self>,
        taken: &mut Taken,
    ) -> Handled {
        let Inner { handler, mode, counts, .. } = &*self.processor.inner;
        let QueuePolicy { policy, protection, holds, events, .. } =
            self.processor.inner.policy(delivery);
        let max_retries = policy::max_retries(policy, &delivery.usage());
        let mut message = match Message::new(delivery, max_retries, turn.limit, turn.sample) {
            Ok(message) => message,
            Err(failure) => return Handled::Failed(failure),
        };
        let (scope, caller, at) = (handler.scope(&message), Caller::of(delivery), turn.at);
        let limit = handler.rate_limit(scope).or(policy.limit);
        let limit = limit.as_ref().filter(|_| *mode == Mode::Requeue);
        let call = Call { delivery, turn, slot, scope, limit };
        let may_be_held = *mode == Mode::Requeue
            && policy::may_be_held(policy, &delivery.usage(), delivery.deferrals(), at);
        let admitted = match mode {
            Mode::Requeue => protection.admit(scope, caller, at),
            Mode::Report => Ok(protection.permit(scope, caller)),
        };
        let mut permit = match admitted {
            // It calls in any case. If a permit to probe was free, its call counts as a probe.
            Err(_) if !may_be_held => protection.permit_despite(scope, caller),
            Ok(permit) => permit,
            Err(held) => return self.held(held, &call).await,
        };
        let holds = holds.as_ref().filter(|_| *mode == Mode::Requeue);
        if let Some(holds) = holds {
            taken.ticket = match self.ticket(holds, &call, may_be_held).await {
                Ok(ticket) => ticket,
                Err(handled) => return handled,
            };
            // Its end gives back the lease to probe.
            if self.processor.inner.settler.has_lapsed(delivery) || self.has_expired(delivery) {
                return Handled::NotStarted;
            }
            message.set_deadline(slot.wait(Duration::ZERO).limit);
        }
        if let Some(limit) = limit {
            message.set_rate_limited();
            let ticket = &mut taken.ticket;
            let is_probe = ticket.as_ref().is_some_and(Ticket::is_probe);
            let is_held = may_be_held && holds.is_some() && !is_probe;
            match self.wait_for_slot(&call, limit, is_held, ticket).await {
                Ok(None) => {}
                Ok(Some(later)) => {
                    message.set_deadline(later.limit);
                    // A pause may have begun meanwhile, or the circuit may have opened.
                    if let Some(holds) = holds
                        && may_be_held
                        && !taken.ticket.as_ref().is_some_and(Ticket::is_probe)
                    {
                        taken.ticket = match self.ask_holds(holds, &call).await {
                            Ok(ticket) => Some(ticket),
                            Err(handled) => return handled,
                        };
                    }
                    if may_be_held && !permit.is_probe() {
                        permit = match protection.admit(scope, caller, self.now()) {
                            Ok(permit) => permit,
                            Err(held) => return self.held(held, &call).await,
                        };
                    }
                }
                Err(handled) => return handled,
            }
        }
        if let Some(events) = events.as_ref().filter(|_| *mode == Mode::Requeue) {
            match self.acquire(events, delivery, turn, slot, &mut taken.event).await {
                Ok(later) => message.set_deadline(later.limit),
                Err(handled) => return handled,
            }
        }
        if let Some(counts) = counts {
            match self.count(counts, delivery, slot, &mut taken.attempt).await {
                Ok(None) => {}
                Ok(Some(later)) => message.set_deadline(later.limit),
                Err(handled) => return handled,
            }
        }
        if let Some(limit) = limit {
            match self.pace(&call, limit).await {
                Ok(None) => {}
                Ok(Some(later)) => message.set_deadline(later.limit),
                Err(handled) => return handled,
            }
        }
        if self.is_stopping() {
            return Handled::Stopped;
        }
        if !slot.hold(permit) {
            // The slot knows why.
            return pending().await;
        }
        taken.attempt = None;
        match handler.handle(message).await {
            Ok(()) => Handled::Done,
            Err(error) => {
                let failure = error.into();
                taken.refused = limit.and_then(|limit| Refused::of(&failure, scope, *limit, at));
                Handled::Failed(failure)
            }
        }
    }

    /// Whether the host ends, so that no handler starts and no request to the store begins.
    pub(super) fn is_stopping(&self) -> bool {
        self.deadlines.stop.starting.is_cancelled()
    }

    /// Asks the store. A request under way may have its effect, so its answer is awaited even if the
    /// host ends meanwhile.
    pub(super) async fn ask_store<A>(&self, asked: impl Future<Output = A>) -> Result<A, Handled> {
        if self.is_stopping() {
            return Err(Handled::Stopped);
        }
        timeout_at(self.deadlines.cutoff, asked).await.map_err(|_| Handled::NotStarted)
    }

    pub(super) fn now(&self) -> SystemTime {
        self.processor.inner.settler.clock.now()
    }
}
