//! One call of the handler, in a task of its own: neither its panic nor its time-out nor a thread that it blocks reaches a neighbour.
//! Takes no decision about the message.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinError;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::{BatchProcessor, Inner, Times};
use crate::failure::{Evidence, Failure, FailureClass};
use crate::gate::{Change, Held, Pass, Reply};
use crate::handler::Handler;
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

impl<H, Q, T> BatchProcessor<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// Calls the handler, unless the callee is left alone.
    pub(super) async fn handle(&self, delivery: &Arc<Delivery>, times: Times<'_>) -> Handled {
        if let Some(defect) = &delivery.defect {
            return Handled::Failed(defect.clone());
        }
        let own = Instant::now().checked_add(self.inner.limits.timeout);
        let limit = own.map_or(times.cutoff, |own| own.min(times.cutoff));
        let call = Arc::new(Mutex::new(Call::Waiting));
        let mut task = AbortOnDropHandle::new(self.inner.handlers.spawn(self.call(delivery, limit, Arc::clone(&call))));
        let interrupted = tokio::select! {
            biased;
            ended = &mut task => return self.hear(&call, handled(ended), true),
            () = times.stop.running.cancelled() => true,
            () = sleep_until(limit) => false,
        };
        task.abort();
        let ended = timeout(times.grace, &mut task).await;
        let handled = match ended {
            // A task that was aborted before it ran never will.
            _ if matches!(*locked(&call), Call::Waiting) && interrupted => Handled::Interrupted,
            _ if matches!(*locked(&call), Call::Waiting) => Handled::NotStarted,
            Ok(Err(error)) if interrupted && error.is_cancelled() => Handled::Interrupted,
            Ok(ended) => handled(ended),
            Err(_) => Handled::Abandoned,
        };
        // The end of the invocation says nothing about the callee.
        self.hear(&call, handled, !interrupted && limit < times.cutoff)
    }

    /// What the task of a handler does: what belongs to the user runs in it, and nothing else does.
    fn call(
        &self,
        delivery: &Arc<Delivery>,
        limit: Instant,
        call: Arc<Mutex<Call>>,
    ) -> impl Future<Output = Handled> + use<H, Q, T> {
        let Inner { handler, protection, settler, policy, rules, mode, .. } = &*self.inner;
        let (handler, protection, clock) = (Arc::clone(handler), Arc::clone(protection), settler.clock.clone());
        let (delivery, max_retries) = (Arc::clone(delivery), policy.max_retries);
        let now = clock.now();
        let may_be_held =
            *mode == Mode::Requeue && policy::may_be_held(policy, &delivery.progress(), delivery.deferrals(), now);
        let span = telemetry::span(&delivery);
        // What the handler makes of an answer or an error goes by the user's rules first.
        let called = rules.scope(async move {
            *locked(&call) = Call::Reading;
            let message = match Message::new(&delivery, max_retries, limit) {
                Ok(message) => message,
                Err(failure) => return Handled::Failed(failure),
            };
            let scope = handler.scope(&message);
            let caller = delivery.caller();
            let pass = if may_be_held {
                protection.admit(scope, caller, clock.now())
            } else {
                Ok(protection.pass(scope, caller))
            };
            match pass {
                Ok(pass) => *locked(&call) = Call::Calling(pass),
                Err(held) => return Handled::Held(held),
            }
            match handler.handle(message).await {
                Ok(()) => Handled::Done,
                Err(failure) => Handled::Failed(failure),
            }
        });
        called.instrument(span)
    }

    /// Notes what a call that ended says about its callee. One that was cut short says nothing.
    fn hear(&self, call: &Mutex<Call>, handled: Handled, had_its_time: bool) -> Handled {
        let Call::Calling(pass) = std::mem::replace(&mut *locked(call), Call::Waiting) else {
            return handled;
        };
        let reply = match &handled {
            Handled::Done => Reply::Alive,
            Handled::Failed(failure) if had_its_time || failure.evidence() != Evidence::TimeOut => Reply::of(failure),
            Handled::Abandoned if had_its_time => Reply::Down,
            Handled::Failed(_) | Handled::Abandoned | Handled::Held(_) | Handled::NotStarted | Handled::Interrupted => {
                Reply::Silent
            }
        };
        match pass.give_back(reply, self.clock().now()) {
            Some(Change::Opened) => {
                tracing::warn!(
                    "what is called failed again and again: its messages are deferred, and one of them probes"
                );
            }
            Some(Change::Closed) => tracing::info!("what is called works again"),
            None => {}
        }
        handled
    }
}

/// How far the task of a handler has come.
enum Call {
    Waiting,
    Reading,
    Calling(Pass),
}

fn locked(call: &Mutex<Call>) -> MutexGuard<'_, Call> {
    call.lock().unwrap_or_else(PoisonError::into_inner)
}

fn handled(ended: Result<Handled, JoinError>) -> Handled {
    match ended {
        Ok(handled) => handled,
        Err(error) if error.is_panic() => {
            Handled::Failed(Failure::new(FailureClass::Temporary, Evidence::Panic, "the handler panicked"))
        }
        Err(_) => {
            Handled::Failed(Failure::new(FailureClass::Temporary, Evidence::TimeOut, "the handler ran out of time"))
        }
    }
}
