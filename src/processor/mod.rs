//! One batch, in eight steps:
//!
//! | | step | by | result | time it may take |
//! |---|---|---|---|---|
//! | 1 | decode | [`decode`] | a [`Delivery`] for each message | none; if STS is asked for the own role: 3 s, but at most a quarter of the time left |
//! | 2 | gate | [`decide`], [`gate`](crate::gate) | go on, or a `Disposition` without a call | none |
//! | | | [`admission`] | with a table: the permission of all environments to call, or a `Disposition` without a call | none, or 250 ms for each of up to three requests |
//! | | | [`admission`] | with a rate limit: the reservation of its call | `maxReservationSeconds`; if it waits by its visibility, up to half of the time until the reserve |
//! | | | [`admission`] | with `idempotency`: the record that its event is in progress, or a `Disposition` without a call; after the call, the table knows the end | 250 ms for each of two or three requests; 1 s with a new connection |
//! | | | [`admission`] | if it waits by its visibility and was received before: the number of its attempt, or a `Disposition` without a call | 250 ms; 1 s with a new connection |
//! | | | [`pacer`] | with a rate limit: the moment of its call | none, unless earlier calls came late |
//! | 3 | handle | [`attempt`], the [`Handler`] | `Ok`, or an error | `REQUEUE_TIMEOUT_SECONDS`, but no longer than until the reserve begins |
//! | 4 | classify | the handler, [`classify`](crate::classify) | a `Failure` of one of four classes | none |
//! | 5 | decide | [`decide`], [`policy`](crate::policy) | a `Disposition` | none |
//! | 6 | plan | [`Inner`], [`plan`](crate::plan) | a `Plan`: done, keep, show, hide or copy | none |
//! | 7 | settle | [`settle`](crate::settle) | a `Settlement`, by requests to SQS: the copy is sent, and once it is confirmed, the original is deleted | until the last tenth of the reserve |
//! | 8 | report | [`Inner`] | the [`Report`], with which the host responds | the last tenth of the reserve, with response and log |
//!
//! Steps 2 to 5 are an [`attempt`] at one message. The [`executor`] makes as many at once as
//! `REQUEUE_CONCURRENCY` says and keeps their time; messages of a FIFO group go one after the other
//! ([`groups`]).
//!
//! The reserve is the end of the invocation that is kept back for settling:
//! `REQUEUE_RESERVE_SECONDS`, 5 s by default, and at most a quarter of the time that the invocation
//! had at its start. Once it has begun, no handler starts, and those that run are cancelled:
//!
//! ```text
//! start                     deadline - reserve          deadline - reserve / 10     deadline
//!   |  decode, gate, handle, …  |  decide, plan, settle  |  report, respond, log  |
//! ```
//!
//! For example, a function with a timeout of 20 s or more has a reserve of 5 s. When four seconds
//! are left:
//!
//! - A failure that came while more than 5 s were left is settled; calls to SQS have 3.5 s more.
//! - A handler that still ran with 5 s left was cancelled. Its message has failed by a timeout,
//!   which is temporary. A result that was ready at that moment counts. If a handler blocks its
//!   thread, a result within the next 2.5 s, half the reserve, counts too.
//! - A message whose handler had not started is deferred, and uses up no retry.
//!
//! A function with a timeout of 12 s has a reserve of 3 s, and its handlers still run.
//!
//! This module has no retry arithmetic (that is `policy/`), calls no queue (that is `settle/`), and
//! knows neither Lambda nor HTTP.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::stream;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::Span;

use crate::clock::Clock;
use crate::delivery::Delivery;
use crate::gate::{NotPermitted, Scope, Standstill};
use crate::handler::{DynBulk, Handler};
use crate::message::{Body, Raw};
use crate::observer::{Event, Observers};
use crate::plan::{Decision, Planned};
use crate::queue::{Queue, QueueArn, Record};
use crate::report::Report;
use crate::settings::{Mode, Settings};
use crate::settle::{Deleted, Settled, Settler, Task, Waiting};

mod decode;
mod groups;
mod attempt;
mod admission;
mod calls;
mod pacer;
mod decide;
mod executor;
mod memory;
mod inner;

use calls::SharedCalls;
pub(crate) use decide::Stop;
use decide::{Attempts, Deadlines};
use inner::Inner;

/// The deletes of a batch, by message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deletes {
    /// Those that were settled on an earlier receive.
    pub(crate) known: usize,
    pub(crate) deleted: Deleted,
}

/// A message that is to be settled.
enum Undone {
    /// Its turn in its group needed the plan.
    Planned(Box<Task>),
    Decided(Decision),
}

/// Works on batches: the core that Lambda, the command line and the tests share.
///
/// It is cheap to clone. All clones use the same handler and queue.
pub struct BatchProcessor<H, Q, T = Raw> {
    handler: Arc<H>,
    settler: Arc<Settler<Q>>,
    inner: Arc<Inner>,
    body: PhantomData<fn() -> T>,
}

requeue_sqs::debug_by_name!(BatchProcessor<H, Q, T>);

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
    /// Outside a tokio runtime, unless the settings name one for the handlers. If a policy has
    /// [`idempotency`](crate::policy::RetryPolicy::idempotency) and the settings have no table.
    pub fn new(handler: H, queue: Q, settings: Settings) -> Self {
        let (inner, settler) = Inner::new(queue, settings);
        Self { handler: Arc::new(handler), settler, inner: Arc::new(inner), body: PhantomData }
    }

    /// Works on one batch. It returns before `deadline` even if handlers or the queue hang, as long
    /// as this future is polled. The deadline is an instant of the standard library or of tokio, whose
    /// time may be paused in a test.
    pub async fn process(&self, records: Vec<Record>, deadline: impl Into<Instant>) -> Report {
        // The type of this future is so deep that the compiler gives up on a caller's around it.
        self.work_on(records, deadline.into()).boxed().await
    }

    async fn work_on(&self, records: Vec<Record>, deadline: Instant) -> Report {
        let Self { settler, .. } = self;
        let limits = self.inner.limits(&records);
        let deadlines = Deadlines::new(Instant::now(), deadline, limits, Stop::default());
        let until = deadlines.window.deadline;
        let mut settled: Vec<Settled> = Vec::with_capacity(records.len());
        let mut deleted = 0;
        let delete = async |settled: &[Settled]| {
            let done = stream::iter(settled.iter().filter_map(Settled::to_delete));
            settler.delete_done(done, until, |_| ()).await;
        };
        self.inner.observers.tell(&Event::Received { messages: records.len() });
        let deliveries = decode::decode(&self.inner, records, deadline).await;
        for round in groups::rounds(deliveries) {
            // The next round may end the process, and the poller then deletes nothing.
            delete(&settled[deleted..]).await;
            deleted = settled.len();
            let settle = |one: Settled| {
                self.inner.note_copied(&one);
                settled.push(one);
            };
            self.work(round, &deadlines, settle).await;
        }
        let is_unreportable =
            |one: &Settled| one.settlement.is_kept() && one.decision.delivery.message_id.is_none();
        if settled.iter().any(is_unreportable) {
            delete(&settled).await;
        }
        self.inner.report(settled, deadlines.window.started)
    }

    /// As [`process`](Self::process), for a host without a poller that deletes finished messages.
    /// Each is deleted as soon as it is done, however long the others take. A message that could not
    /// be deleted is not handled on its next receive, but deleted.
    pub(crate) async fn process_and_delete(
        &self,
        records: Vec<Record>,
        deadline: Instant,
        stop: &Stop,
    ) -> (Report, Deletes) {
        let Self { settler, inner, .. } = self;
        let not_deleted = &inner.not_deleted;
        let limits = inner.limits(&records);
        let deadlines = Deadlines::new(Instant::now(), deadline, limits, stop.clone());
        let deadlines = Deadlines { deletes_done: true, ..deadlines };
        let until = deadlines.window.deadline;
        inner.observers.tell(&Event::Received { messages: records.len() });
        let mut deliveries = decode::decode(&self.inner, records, deadline).await;
        let now = settler.clock.now();
        let known: Vec<_> = deliveries
            .extract_if(.., |delivery| not_deleted.find(delivery, now).is_some())
            .map(Arc::new)
            .collect();
        let known_count = known.len();
        let note = |delivery: &Delivery| not_deleted.note(delivery, settler.clock.now(), ());
        let mut settled = Vec::new();
        let working = async {
            let mut deleted = Deleted::default();
            for round in groups::rounds(deliveries) {
                let (done, mut deleting) = mpsc::unbounded_channel();
                let settled = &mut settled;
                // This closure owns the sender, so that deleting ends when settling has ended.
                let settle = move |one: Settled| {
                    if let Some(delivery) = one.to_delete() {
                        let _ = done.send(delivery);
                    } else if settler.has_lapsed(&one.decision.delivery) {
                        self.inner.note_copied(&one);
                    }
                    settled.push(one);
                };
                let working = self.work(round, &deadlines, settle);
                let done = stream::poll_fn(move |context| deleting.poll_recv(context));
                deleted += tokio::join!(working, settler.delete_done(done, until, note)).1;
            }
            deleted
        };
        let deleting = settler.delete_done(stream::iter(known), until, note);
        let (mut all, again) = tokio::join!(working, deleting);
        all += again;
        let deletes = Deletes { known: known_count, deleted: all };
        (self.inner.report(settled, deadlines.window.started), deletes)
    }

    /// Steps 2 to 7: attempt, plan and settle, side by side, until each delivery is settled.
    async fn work(
        &self,
        deliveries: Vec<Delivery>,
        deadlines: &Deadlines,
        settled: impl FnMut(Settled),
    ) {
        let (tasks, decided) = mpsc::unbounded_channel();
        let attempting = async move {
            let (unordered, groups) = groups::groups(deliveries);
            let calls = self.calls(unordered.len(), false, deadlines);
            // The receiver lives until every sender is gone.
            let decided = |decision| drop(tasks.send(Undone::Decided(decision)));
            self.attempt(unordered, calls.as_ref(), deadlines, decided).await;
            let calls = self.calls(groups.len(), true, deadlines);
            let in_order =
                |group| self.attempt_in_order(group, calls.as_ref(), deadlines, &tasks).boxed();
            stream::iter(groups).for_each_concurrent(self.slots(deadlines), in_order).await;
            drop(tasks);
        };
        let task = |undone| match undone {
            Undone::Planned(task) => *task,
            Undone::Decided(decision) => {
                let Planned { decision, plan, .. } = self.inner.plan(decision);
                Task { decision, plan, waiting: Waiting::Nobody }
            }
        };
        let settling = self.settler.settle(decided, task, deadlines.window, settled);
        tokio::join!(attempting, settling);
    }

    /// Steps 2 to 5, in any order.
    async fn attempt(
        &self,
        deliveries: Vec<Arc<Delivery>>,
        calls: Option<&Arc<SharedCalls<T>>>,
        deadlines: &Deadlines,
        decided: impl FnMut(Decision),
    ) {
        let slots = self.slots(deadlines);
        let (inner, deadlines) = (Arc::clone(&self.inner), deadlines.clone());
        let attempts = Attempts { inner, deadlines, invocation: Span::current() };
        let work = |slot| attempt::work(Arc::clone(&self.handler), slot, calls.cloned());
        executor::execute(attempts, slots, deliveries, work, decided).await;
    }

    /// Attempts at once.
    fn slots(&self, deadlines: &Deadlines) -> usize {
        deadlines.concurrency.saturating_mul(self.messages_per_call())
    }

    /// The most messages of a call.
    pub(crate) fn messages_per_call(&self) -> usize {
        self.handler.as_bulk().map_or(1, DynBulk::messages_per_call).max(1)
    }

    /// The calls of so many messages or groups, if the handler takes several messages.
    fn calls(
        &self,
        coming: usize,
        is_in_order: bool,
        deadlines: &Deadlines,
    ) -> Option<Arc<SharedCalls<T>>> {
        self.handler.as_bulk()?;
        let slots = self.slots(deadlines);
        Some(SharedCalls::new(coming, slots, deadlines.concurrency, is_in_order))
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// Runs `say` once for all batches.
    pub(crate) fn once(&self, say: impl FnOnce()) {
        self.inner.said.call_once(say);
    }

    /// Tells the observers of a settled batch. At `until` the messages end, since a response that is
    /// late because of its log is useless.
    pub(crate) fn observe(&self, report: &Report, until: Instant) {
        self.inner.observers.tell_settled(report, self.clock().now(), || Instant::now() < until);
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.inner.observers
    }

    /// The standstill of a queue, if most of its messages could now only be deferred. A host need
    /// not receive them.
    pub(crate) fn standstill(&self, queue: &QueueArn) -> Option<Standstill> {
        match self.inner.mode {
            Mode::Requeue => {
                self.inner.policies.of(Some(queue)).protection.standstill(self.clock().now())
            }
            Mode::Report => None,
        }
    }

    /// The pauses and open circuits of a queue: those of this processor, and those of all execution
    /// environments as last seen. Of a scope with both, the longer one.
    pub(crate) fn pauses(&self, queue: &QueueArn) -> Vec<(Scope, NotPermitted)> {
        if self.inner.mode == Mode::Report {
            return Vec::new();
        }
        let policy = self.inner.policies.of(Some(queue));
        let own = policy.protection.pauses(self.clock().now());
        let shared = policy.pauses.iter().flat_map(|pauses| pauses.all());
        let mut longest: HashMap<Scope, NotPermitted> = HashMap::new();
        for (scope, paused) in own.into_iter().chain(shared) {
            let known = longest.entry(scope).or_insert(paused);
            if paused.rest > known.rest {
                *known = paused;
            }
        }
        longest.into_iter().collect()
    }
}

impl<H, Q, T> Clone for BatchProcessor<H, Q, T> {
    fn clone(&self) -> Self {
        let Self { handler, settler, inner, body } = self;
        Self {
            handler: Arc::clone(handler),
            settler: Arc::clone(settler),
            inner: Arc::clone(inner),
            body: *body,
        }
    }
}
