//! One batch, step by step. On this page the whole path of a message can be read:
//!
//! | step | | until |
//! |---|---|---|
//! | decode | records become deliveries | |
//! | gate, handle, classify, decide | an [`attempt`] at each delivery becomes a decision; the [`executor`] keeps its time | the reserve begins |
//! | plan | the decision becomes what is carried out, and what its successors in a FIFO group may do | |
//! | settle | the plan becomes requests to SQS | the last tenth of the reserve |
//! | report | what became of each message, for the host to respond with and for the log | the deadline |
//!
//! The reserve is `REQUEUE_RESERVE_SECONDS` at the end of the invocation, and at most a quarter of
//! it.
//!
//! Has no retry arithmetic (that is `policy/`), calls no queue (that is `settle/`), and knows
//! neither Lambda nor HTTP.

use std::marker::PhantomData;
use std::sync::{Arc, Once};

use futures_util::stream;
use futures_util::{FutureExt, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::classify::Rules;
use crate::clock::Clock;
use crate::delivery::{Decoder, Delivery};
use crate::disposition::{Disposition, ReleaseReason, Strategy};
use crate::failure::Failure;
use crate::gate::{Protection, Standstill};
use crate::handler::Handler;
use crate::message::{Body, Raw};
use crate::plan::{Decision, Plan, Planned, Planner, Successors};
use crate::policy::{self, RetryPolicy};
use crate::queue::{Queue, Record};
use crate::report::{Outcome, Report};
use crate::sender::Senders;
use crate::settings::{DeadLetterMode, Limits, Mode, RecursiveLoop, Settings};
use crate::settle::{SendHold, Settled, Settler, Task, Waiting};
use crate::telemetry::{self, Emitter};
use crate::wire::Wrap;

mod attempt;
mod deadlines;
mod decode;
mod executor;
mod given_up;
mod groups;
mod rounds;

use attempt::Attempt;
use deadlines::Deadlines;
pub(crate) use deadlines::Stop;
use given_up::GivenUp;

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
    decoder: Decoder,
    recursive_loop: RecursiveLoop,
    dead_letter: DeadLetterMode,
    mode: Mode,
    wrap: Wrap,
    given_up: GivenUp,
    metrics: Option<Emitter>,
    handlers: Handle,
    /// Whether the host has said what it says once.
    said: Once,
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
            policy,
            rules,
            limits,
            recursive_loop,
            dead_letter,
            mode,
            wrap,
            producer_limits,
            trusted_senders,
            metrics,
            clock,
            sampler,
            handlers,
            ..
        } = settings;
        let (strategy, dead_letter) = match mode {
            Mode::Requeue => (settings.strategy, dead_letter),
            // Nothing is sent.
            Mode::Report => (Strategy::Visibility, DeadLetterMode::Redrive),
        };
        let calls = policy.sqs_calls.clone();
        let settler =
            Settler { queue: Arc::new(queue), clock, sampler, calls, hold: SendHold::default() };
        let handlers = handlers.unwrap_or_else(Handle::current);
        let handler = Arc::new(handler);
        let protection = Protection::new(&policy);
        let decoder = Decoder {
            max_retries: policy.max_retries,
            strategy,
            producer_limits,
            senders: trusted_senders.map(Senders::new),
            ..Decoder::default()
        };
        let inner = Inner {
            handler,
            protection,
            settler,
            policy,
            rules,
            limits,
            decoder,
            recursive_loop,
            dead_letter,
            mode,
            wrap,
            given_up: GivenUp::default(),
            metrics: metrics.map(Emitter::new),
            handlers,
            said: Once::new(),
        };
        Self { inner: Arc::new(inner), body: PhantomData }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.inner.settler.clock
    }

    /// Does what is to be done once for all batches.
    pub(crate) fn once(&self, say: impl FnOnce()) {
        self.inner.said.call_once(say);
    }

    /// Says what became of a batch, in log and metrics, and ends when `until` has come.
    pub(crate) fn observe(&self, report: &Report, until: Instant) {
        telemetry::observe(report, self.inner.metrics.as_ref(), until);
    }

    /// Works on one batch. Returns before `deadline` whatever handlers and queue do, as long as
    /// this future itself is polled.
    pub async fn process(&self, records: Vec<Record>, deadline: Instant) -> Report {
        let settler = &self.inner.settler;
        let deadlines =
            Deadlines::new(Instant::now(), deadline, &self.inner.limits, Stop::default());
        let until = deadlines.window.deadline;
        let mut settled: Vec<Settled> = Vec::new();
        let mut deleted = 0;
        for round in rounds::rounds(decode::decode(&self.inner, records, deadline).await) {
            // The next round may end the process, and the poller then deletes nothing.
            let done = stream::iter(settled[deleted..].iter().filter_map(Settled::to_delete));
            settler.delete_done(done, until).await;
            deleted = settled.len();
            self.work(round, &deadlines, |one| settled.push(one)).await;
        }
        let is_unreportable =
            |one: &Settled| one.settlement.is_kept() && one.decision.delivery.message_id.is_none();
        if settled.iter().any(is_unreportable) {
            settler
                .delete_done(stream::iter(settled.iter().filter_map(Settled::to_delete)), until)
                .await;
        }
        self.inner.report(settled, deadlines.window.started)
    }

    /// As [`process`](Self::process), for a host that has no poller to delete finished messages:
    /// each is deleted as soon as it is done, whatever its neighbours take. Returns also how many
    /// of those could not be deleted.
    pub(crate) async fn process_and_delete(
        &self,
        records: Vec<Record>,
        deadline: Instant,
        stop: &Stop,
    ) -> (Report, usize) {
        let deadlines = Deadlines::new(Instant::now(), deadline, &self.inner.limits, stop.clone());
        let deadlines = Deadlines { deletes_done: true, ..deadlines };
        let (mut settled, mut not_deleted) = (Vec::new(), 0);
        for round in rounds::rounds(decode::decode(&self.inner, records, deadline).await) {
            let (done, mut deleting) = mpsc::unbounded_channel();
            let settled = &mut settled;
            // It owns the sender, so that deleting ends when settling has.
            let note = move |one: Settled| {
                if let Some(delivery) = one.to_delete() {
                    let _ = done.send(delivery);
                }
                settled.push(one);
            };
            let working = self.work(round, &deadlines, note);
            let done = stream::poll_fn(move |context| deleting.poll_recv(context));
            let deleting = self.inner.settler.delete_done(done, deadlines.window.deadline);
            not_deleted += tokio::join!(working, deleting).1;
        }
        (self.inner.report(settled, deadlines.window.started), not_deleted)
    }

    /// Whether most messages that come now could only be deferred, for a host that need not receive
    /// them.
    pub(crate) fn standstill(&self) -> Option<Standstill> {
        let Inner { protection, settler, mode, .. } = &*self.inner;
        if *mode == Mode::Requeue { protection.standstill(settler.clock.now()) } else { None }
    }

    /// Attempt, plan, settle: from deliveries to what became of them.
    async fn work(
        &self,
        deliveries: Vec<Delivery>,
        deadlines: &Deadlines,
        settled: impl FnMut(Settled),
    ) {
        let inner = &self.inner;
        let (tasks, planned) = mpsc::unbounded_channel();
        let attempting = async move {
            let (unordered, groups) = groups::groups(deliveries);
            self.attempt(unordered, deadlines, |Planned { decision, plan, .. }| {
                // The receiver lives until every sender is gone.
                let _ = tasks.send(Task { decision, plan, waiting: Waiting::Nobody });
            })
            .await;
            let in_order = |group| self.attempt_in_order(group, deadlines, &tasks).boxed();
            stream::iter(groups)
                .for_each_concurrent(inner.limits.concurrency.max(1), in_order)
                .await;
            drop(tasks);
        };
        tokio::join!(attempting, inner.settler.settle(planned, deadlines.window, settled));
    }

    /// Attempt and plan, in any order.
    async fn attempt(
        &self,
        deliveries: Vec<Arc<Delivery>>,
        deadlines: &Deadlines,
        mut planned: impl FnMut(Planned),
    ) {
        let Inner { limits, handlers, .. } = &*self.inner;
        let attempt = Attempt::new(self, deadlines);
        let plan = |decision| planned(self.inner.plan(decision));
        executor::execute(attempt, deliveries, limits.concurrency, handlers, deadlines, plan).await;
    }

    /// Attempt and plan, one after the other: behind a message that is to be handled again, its
    /// successors stay in the queue too.
    async fn attempt_in_order(
        &self,
        group: Vec<Arc<Delivery>>,
        deadlines: &Deadlines,
        tasks: &UnboundedSender<Task>,
    ) {
        let mut group = group.into_iter();
        while let Some(delivery) = group.next() {
            let mut planned = None;
            self.attempt(vec![delivery], deadlines, |one| planned = Some(one)).await;
            let Planned { decision, plan, successors } =
                planned.expect("every delivery is decided");
            let settle = |waiting| drop(tasks.send(Task { decision, plan, waiting }));
            match successors {
                Successors::Proceed => settle(Waiting::Nobody),
                _ if group.as_slice().is_empty() => settle(Waiting::Nobody),
                Successors::ProceedOnceMoved => {
                    let (moved, is_moved) = oneshot::channel();
                    settle(Waiting::ForMove(moved));
                    if is_moved.await.is_err() {
                        break;
                    }
                }
                Successors::Wait => {
                    settle(Waiting::ForVisibility(group.as_slice().to_vec()));
                    break;
                }
            }
        }
        for delivery in group {
            let disposition = Disposition::Release(ReleaseReason::BehindFailed);
            let decision = Decision::uncalled(delivery, disposition, self.clock().now(), 0.0);
            drop(tasks.send(Task {
                decision,
                plan: Plan::Keep { unsent: None },
                waiting: Waiting::Nobody,
            }));
        }
    }
}

impl<H, Q: Queue> Inner<H, Q> {
    fn planner(&self) -> Planner<'_> {
        let Self { policy, mode, dead_letter, wrap, .. } = self;
        Planner { policy, mode: *mode, dead_letter, wrap: *wrap }
    }

    fn plan(&self, decision: Decision) -> Planned {
        let is_lapsed = self.settler.has_lapsed(&decision.delivery);
        self.planner().plan(decision, is_lapsed)
    }

    fn report(&self, mut settled: Vec<Settled>, started: Instant) -> Report {
        if self.mode == Mode::Requeue {
            settled
                .iter()
                .filter(|settled| settled.settlement.is_kept())
                .for_each(|kept| self.given_up.note(kept));
        }
        settled.sort_unstable_by_key(|settled| settled.decision.delivery.position);
        Report {
            outcomes: settled.into_iter().map(|settled| self.outcome(settled)).collect(),
            elapsed: started.elapsed(),
        }
    }

    fn outcome(&self, settled: Settled) -> Outcome {
        let Settled {
            decision: Decision { delivery, disposition, failure, elapsed, at, .. },
            settlement,
        } = settled;
        let retry = failure
            .as_ref()
            .filter(|_| matches!(disposition, Disposition::Requeue { .. }))
            .and_then(|failure| policy::next_retry(&self.policy, &delivery.progress(), failure));
        let failure = failure.filter(|failure| !failure.is_postponed());
        Outcome {
            message_id: delivery.message_id.clone(),
            original_message_id: delivery.original_id().map(str::to_owned),
            queue: delivery.queue.clone(),
            retry_count: delivery.retries(),
            hops: delivery.state.hops,
            receive_count: delivery.receive_count,
            is_stuck: settlement.is_kept()
                && disposition.gives_up()
                && policy::is_stuck(&self.policy, &delivery.progress()),
            class: failure.as_ref().map(Failure::class),
            reason: failure.map(|failure| failure.reason().to_owned()),
            disposition,
            retry,
            settlement,
            elapsed,
            age: at.duration_since(delivery.first_sent).unwrap_or_default(),
        }
    }
}

impl<H, Q, T> Clone for BatchProcessor<H, Q, T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), body: PhantomData }
    }
}
