//! One batch, step by step: decode, gate, handle, classify, decide, settle. On this page the whole path of a message can be read.
//!
//! Has no retry arithmetic (that is `policy/`), calls no queue (that is `settle/`), and knows neither Lambda nor HTTP.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use futures_util::stream;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::classify::Rules;
use crate::clock::Clock;
use crate::disposition::{DeadLetterReason, Deferral, Disposition, ReleaseReason, Strategy};
use crate::failure::{Evidence, Failure, FailureClass};
use crate::gate::{Change, Held, Pass, Protection, Reply, TimeLeft, gate};
use crate::handler::Handler;
use crate::lane::{self, Way};
use crate::message::{Body, Delivery, Message, Raw, Record};
use crate::policy::{self, RetryPolicy};
use crate::queue::Queue;
use crate::report::{Outcome, Report};
use crate::round;
use crate::settings::{DeadLetterMode, Limits, Mode, RecursiveLoop, Settings};
use crate::settle::{Behind, Brake, Settled, Settler, Verdict, Window};

/// Works on batches: the core that Lambda, the command line and the tests share.
///
/// Cheap to clone; clones work for the same handler and queue.
pub struct BatchProcessor<H, Q, T = Raw> {
    inner: Arc<Inner<H, Q>>,
    body: PhantomData<fn() -> T>,
}

struct Inner<H, Q> {
    handler: Arc<H>,
    protection: Arc<Protection>,
    settler: Settler<Q>,
    policy: RetryPolicy,
    rules: Rules,
    limits: Limits,
    strategy: Strategy,
    recursive_loop: RecursiveLoop,
    dead_letter: DeadLetterMode,
    mode: Mode,
    handlers: Handle,
}

/// How a host that ends asks its batches to end too. What was not handled is receivable again at once.
#[derive(Default)]
pub(crate) struct Stop {
    /// No handler starts any more.
    pub(crate) starting: CancellationToken,
    /// Those that run are cancelled.
    pub(crate) running: CancellationToken,
}

/// When what must end in an invocation.
#[derive(Clone, Copy)]
struct Times<'a> {
    window: Window,
    stop: &'a Stop,
    /// No handler starts or runs after this.
    cutoff: Instant,
    /// How long an aborted handler has to yield.
    grace: Duration,
}

impl<'a> Times<'a> {
    fn new(started: Instant, deadline: Instant, limits: &Limits, stop: &'a Stop) -> Self {
        let reserve = limits.reserve.min(deadline.saturating_duration_since(started) / 4);
        // A tenth of the reserve is for the response itself.
        let window = Window { started, deadline: deadline - reserve / 10 };
        Self { window, stop, cutoff: deadline - reserve, grace: reserve / 2 }
    }
}

impl<H, Q, T> BatchProcessor<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// A processor that hands messages to `handler` and settles them in `queue`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, unless the settings name one for the handlers.
    pub fn new(handler: H, queue: Q, settings: Settings) -> Self {
        let Settings {
            policy, rules, limits, recursive_loop, dead_letter, mode, wrap, clock, sampler, handlers, ..
        } = settings;
        let (strategy, dead_letter) = match mode {
            Mode::Requeue => (settings.strategy, dead_letter),
            // Nothing is sent.
            Mode::Report => (Strategy::Visibility, DeadLetterMode::Redrive),
        };
        let calls = policy.sqs_calls.clone();
        let dead_letters = match &dead_letter {
            DeadLetterMode::Direct(url) => Some(url.clone()),
            DeadLetterMode::Redrive | DeadLetterMode::Annotate => None,
        };
        let settler =
            Settler { queue: Arc::new(queue), clock, sampler, wrap, dead_letters, calls, brake: Brake::default() };
        let handlers = handlers.unwrap_or_else(Handle::current);
        let handler = Arc::new(handler);
        let protection = Protection::new(&policy);
        let inner = Inner {
            handler,
            protection,
            settler,
            policy,
            rules,
            limits,
            strategy,
            recursive_loop,
            dead_letter,
            mode,
            handlers,
        };
        Self { inner: Arc::new(inner), body: PhantomData }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.inner.settler.clock
    }

    /// Works on one batch. Returns before `deadline` whatever handlers and queue do, as long as this future itself is polled.
    pub async fn process(&self, records: Vec<Record>, deadline: Instant) -> Report {
        let stop = Stop::default();
        let times = Times::new(Instant::now(), deadline, &self.inner.limits, &stop);
        let mut settled: Vec<Settled> = Vec::new();
        let mut deleted = 0;
        for round in round::rounds(self.inner.decode(records)) {
            // The next ones may end the process, and the poller then deletes nothing.
            let done = stream::iter(settled[deleted..].iter().filter_map(Settled::to_delete));
            self.inner.settler.delete_done(done, times.window.deadline).await;
            deleted = settled.len();
            self.settle(round, times, |one| settled.push(one)).await;
        }
        let unreportable = settled
            .iter()
            .any(|Settled { verdict, settlement }| settlement.is_kept() && verdict.delivery.message_id.is_none());
        if unreportable {
            let done = stream::iter(settled.iter().filter_map(Settled::to_delete));
            self.inner.settler.delete_done(done, times.window.deadline).await;
        }
        self.inner.report(settled, times.window.started)
    }

    /// As [`process`](Self::process), for a host that has no poller to delete what is done: that happens as soon as it is done,
    /// whatever its neighbours take. Returns also how many of those could not be deleted.
    pub(crate) async fn process_and_delete(
        &self,
        records: Vec<Record>,
        deadline: Instant,
        stop: &Stop,
    ) -> (Report, usize) {
        let times = Times::new(Instant::now(), deadline, &self.inner.limits, stop);
        let (mut settled, mut not_deleted) = (Vec::new(), 0);
        for round in round::rounds(self.inner.decode(records)) {
            let (done, mut deleting) = mpsc::unbounded_channel();
            let settled = &mut settled;
            // It owns the sender, so that deleting ends when settling has.
            let note = move |one: Settled| {
                if let Some(delivery) = one.to_delete() {
                    let _ = done.send(delivery);
                }
                settled.push(one);
            };
            let settling = self.settle(round, times, note);
            let done = stream::poll_fn(move |context| deleting.poll_recv(context));
            let deleting = self.inner.settler.delete_done(done, times.window.deadline);
            not_deleted += tokio::join!(settling, deleting).1;
        }
        (self.inner.report(settled, times.window.started), not_deleted)
    }

    /// From deliveries to what became of them.
    async fn settle(&self, deliveries: Vec<Delivery>, times: Times<'_>, settled: impl FnMut(Settled)) {
        let inner = &self.inner;
        let (verdicts, decided) = mpsc::unbounded_channel();
        let handling = async move {
            let lanes = stream::iter(lane::lanes(deliveries));
            lanes
                .for_each_concurrent(inner.limits.concurrency.max(1), |lane| self.run_lane(lane, times, &verdicts))
                .await;
            drop(verdicts);
        };
        tokio::join!(handling, inner.settler.settle(decided, times.window, settled));
    }

    /// Works on messages that must keep their order: behind one that is to be handled again, the others stay in the queue too.
    async fn run_lane(&self, lane: Vec<Arc<Delivery>>, times: Times<'_>, verdicts: &UnboundedSender<Verdict>) {
        // The receiver lives until every sender is gone.
        let settle = |verdict| drop(verdicts.send(verdict));
        let mut lane = lane.into_iter();
        while let Some(delivery) = lane.next() {
            let mut verdict = self.run(delivery, times).await;
            match lane::way(&self.inner.policy, &verdict) {
                Way::Free => settle(verdict),
                Way::Passable => {
                    verdict.behind = Behind::Passing;
                    settle(verdict);
                }
                _ if lane.as_slice().is_empty() => settle(verdict),
                Way::FreeOnceMoved => {
                    let (moved, is_moved) = oneshot::channel();
                    verdict.behind = Behind::Listening(moved);
                    settle(verdict);
                    if is_moved.await.is_err() {
                        break;
                    }
                }
                Way::Blocked => {
                    verdict.behind = Behind::Waiting(lane.as_slice().to_vec());
                    settle(verdict);
                    break;
                }
            }
        }
        for delivery in lane {
            let disposition = Disposition::Release(ReleaseReason::BehindFailed);
            settle(Verdict::uncalled(delivery, disposition, self.clock().now()));
        }
    }

    /// Gate, handle, classify, decide: from a delivery to what is to happen to it.
    async fn run(&self, delivery: Arc<Delivery>, times: Times<'_>) -> Verdict {
        let Inner { settler, policy, dead_letter, .. } = &*self.inner;
        let sample = settler.sampler.sample();
        let time_left = if Instant::now() < times.cutoff { TimeLeft::Enough } else { TimeLeft::TooLittle };

        let now = settler.clock.now();
        if settler.has_lapsed(&delivery) {
            return Verdict::uncalled(delivery, Disposition::Release(ReleaseReason::Lapsed), now);
        }
        if times.stop.starting.is_cancelled() {
            return Verdict::uncalled(delivery, Disposition::Release(ReleaseReason::ShuttingDown), now);
        }
        if let Some(disposition) = gate(policy, dead_letter, &delivery, now, time_left, sample) {
            let disposition = self.inner.feasible(&delivery, disposition, now, sample);
            return Verdict::uncalled(delivery, disposition, now);
        }

        let began = Instant::now();
        let handled = self.handle(&delivery, times).await;
        let elapsed = (!matches!(handled, Handled::NotStarted | Handled::Held(_))).then(|| began.elapsed());

        let now = settler.clock.now();
        let (disposition, failure) = match handled {
            Handled::Held(Held { why, rest }) => {
                (policy::hold(policy, &delivery.progress(), why, rest, delivery.deferrals(), now, sample), None)
            }
            Handled::Done => (Disposition::Complete, None),
            Handled::Failed(failure) => {
                (policy::decide(policy, &delivery.progress(), &failure, now, sample), Some(failure))
            }
            Handled::NotStarted => {
                (policy::defer(policy, Deferral::NoTimeLeft, delivery.deferrals(), now, sample), None)
            }
            Handled::Interrupted => (Disposition::Release(ReleaseReason::ShuttingDown), None),
            Handled::Abandoned => (Disposition::Release(ReleaseReason::Abandoned), None),
        };
        let disposition = self.inner.feasible(&delivery, disposition, now, sample);
        Verdict { failure, elapsed, ..Verdict::uncalled(delivery, disposition, now) }
    }

    /// Runs the handler in a task of its own, so that neither its panic nor its time-out reaches a neighbour.
    async fn handle(&self, delivery: &Arc<Delivery>, times: Times<'_>) -> Handled {
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
        // What the handler makes of an answer or an error goes by the user's rules first.
        rules.scope(async move {
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
        })
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

fn locked(call: &Mutex<Call>) -> std::sync::MutexGuard<'_, Call> {
    call.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a handler ended.
enum Handled {
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

fn handled(ended: Result<Handled, tokio::task::JoinError>) -> Handled {
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

/// Whether SQS could not be told to keep it, and it can be sent again instead.
fn is_unreportable(delivery: &Delivery) -> bool {
    delivery.message_id.is_none() && delivery.defect.is_none() && delivery.queue.is_some() && !delivery.is_fifo()
}

impl<H, Q: Queue> Inner<H, Q> {
    /// Reads each record, and joins those that are the same message delivered twice.
    fn decode(&self, records: Vec<Record>) -> Vec<Delivery> {
        let received = self.settler.clock.now();
        let mut deliveries: Vec<Delivery> = Vec::with_capacity(records.len());
        let mut positions: HashMap<String, usize> = HashMap::with_capacity(records.len());
        for (position, record) in records.into_iter().enumerate() {
            let delivery = Delivery::decode(position, record, received, self.policy.max_retries, self.strategy);
            let Some(id) = &delivery.message_id else {
                deliveries.push(delivery);
                continue;
            };
            match positions.get(id) {
                None => {
                    positions.insert(id.clone(), deliveries.len());
                    deliveries.push(delivery);
                }
                Some(&at) => deliveries[at].join(delivery),
            }
        }
        if self.recursive_loop == RecursiveLoop::Terminate {
            let lineage = deliveries.iter().map(|delivery| delivery.state.lineage).max().unwrap_or_default();
            for delivery in &mut deliveries {
                delivery.descend(lineage);
            }
        }
        deliveries
    }

    /// The disposition that can be carried out for this record: a copy needs a queue and a message that is still ours, and what SQS
    /// shall keep needs an id.
    fn feasible(&self, delivery: &Delivery, wanted: Disposition, now: SystemTime, sample: f64) -> Disposition {
        match wanted {
            // What is done is done, whoever has it now; and an abandoned handler costs no call.
            Disposition::Complete | Disposition::Release(ReleaseReason::Abandoned) => wanted,
            _ if self.settler.has_lapsed(delivery) => Disposition::Release(ReleaseReason::Lapsed),
            Disposition::Requeue { .. } if self.mode == Mode::Report => Disposition::Release(ReleaseReason::Reported),
            Disposition::Requeue { .. } | Disposition::Defer { .. } if delivery.queue.is_none() => {
                Disposition::Release(ReleaseReason::NoQueue)
            }
            Disposition::Defer { why: Deferral::NoTimeLeft, .. }
                if delivery.state.deferrals >= self.policy.max_deferrals =>
            {
                Disposition::Release(ReleaseReason::DeferredTooOften)
            }
            Disposition::Defer {
                why: why @ (Deferral::NotDue | Deferral::Paused | Deferral::CircuitOpen | Deferral::NoTimeLeft),
                wait,
            } if delivery.strategy == Strategy::Visibility => {
                Disposition::Defer { why, wait: policy::deferred_in_place(wait, now) }
            }
            Disposition::DeadLetter(reason) => self.dead_letter(delivery, reason, now, sample),
            Disposition::Release(ReleaseReason::GivenUp) if is_unreportable(delivery) => {
                policy::defer(&self.policy, Deferral::Unreportable, delivery.deferrals(), now, sample)
            }
            Disposition::Requeue { .. }
            | Disposition::Defer { .. }
            | Disposition::Release(_)
            | Disposition::Annotate(_)
            | Disposition::Direct(_) => wanted,
        }
    }

    /// The way to the dead-letter queue that the settings choose. A copy needs all of the record, and on a FIFO queue it would lose its
    /// place.
    fn dead_letter(&self, delivery: &Delivery, reason: DeadLetterReason, now: SystemTime, sample: f64) -> Disposition {
        let copyable = delivery.defect.is_none() && delivery.queue.is_some();
        match self.dead_letter {
            DeadLetterMode::Direct(_) if copyable => Disposition::Direct(reason),
            DeadLetterMode::Annotate if copyable && !delivery.is_fifo() && !delivery.ends_its_row() => {
                Disposition::Annotate(reason)
            }
            DeadLetterMode::Redrive | DeadLetterMode::Annotate | DeadLetterMode::Direct(_) => {
                if is_unreportable(delivery) {
                    policy::defer(&self.policy, Deferral::Unreportable, delivery.deferrals(), now, sample)
                } else {
                    Disposition::DeadLetter(reason)
                }
            }
        }
    }

    fn report(&self, mut settled: Vec<Settled>, started: Instant) -> Report {
        settled.sort_unstable_by_key(|settled| settled.verdict.delivery.position);
        Report {
            outcomes: settled.into_iter().map(|settled| self.outcome(settled)).collect(),
            elapsed: started.elapsed(),
        }
    }

    fn outcome(&self, settled: Settled) -> Outcome {
        let Settled { verdict: Verdict { delivery, disposition, failure, elapsed, .. }, settlement } = settled;
        Outcome {
            message_id: delivery.message_id.clone(),
            original_message_id: delivery.original_id().map(str::to_owned),
            retry_count: delivery.retries(),
            hops: delivery.state.hops,
            receive_count: delivery.receive_count,
            is_stuck: settlement.is_kept()
                && disposition.gives_up()
                && policy::is_stuck(&self.policy, &delivery.progress()),
            class: failure.as_ref().map(Failure::class),
            reason: failure.map(|failure| failure.reason().to_owned()),
            disposition,
            settlement,
            elapsed,
        }
    }
}

impl<H, Q, T> Clone for BatchProcessor<H, Q, T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), body: PhantomData }
    }
}
