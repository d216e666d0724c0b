//! One batch, in eight steps:
//!
//! | | step | by | result | time it may take |
//! |---|---|---|---|---|
//! | 1 | decode | [`delivery`](crate::delivery) | a [`Delivery`] for each message | none; if STS is asked for the own role: 3 s, but at most a quarter of the time left |
//! | 2 | gate | [`attempt`], [`gate`](crate::gate) | go on, or a `Disposition` without a call | none |
//! | | | [`admission`] | with a table: the permission of all environments to call, or a `Disposition` without a call | none, or 250 ms for each of up to three requests |
//! | | | [`admission`] | with a rate limit: the reservation of its call | `maxReservationSeconds`; if it waits with its visibility timeout, up to half of the time until the reserve |
//! | | | [`admission`] | with `idempotency`: the record that its event is in progress, or a `Disposition` without a call; after the call, the table knows the end | 250 ms for each of two or three requests; 1 s with a new connection |
//! | | | [`admission`] | if it waits with its visibility timeout and was received before: the number of its attempt, or a `Disposition` without a call | 250 ms; 1 s with a new connection |
//! | | | [`pacer`] | with a rate limit: the moment of its call | none, unless earlier calls came late |
//! | 3 | handle | [`attempt`], the [`Handler`] | `Ok`, or an error | `REQUEUE_TIMEOUT_SECONDS`, but no longer than until the reserve begins |
//! | 4 | classify | the handler, [`classify`](crate::classify) | a `Failure` of one of four classes | none |
//! | 5 | decide | [`attempt`], [`policy`](crate::policy) | a `Disposition` | none |
//! | 6 | plan | [`plan`](crate::plan) | a `Plan`: done, keep, show, hide or copy | none |
//! | 7 | settle | [`settle`](crate::settle) | a `Settlement`, by requests to SQS: the copy is sent, and once it is confirmed, the original is deleted | until the last tenth of the reserve |
//! | 8 | report | this module | the [`Report`], with which the host responds | the last tenth of the reserve, with response and log |
//!
//! Steps 2 to 5 are an [`attempt`] at one message. The [`executor`] runs `REQUEUE_CONCURRENCY` of
//! them at once within their time; messages of a FIFO group run in sequence ([`groups`]).
//!
//! The reserve is the end of the invocation, in which messages are settled:
//! `REQUEUE_RESERVE_SECONDS`, 5 s by default, and at most a quarter of the time that the invocation
//! had at its start. When it begins, no further handler starts, and running handlers are cancelled:
//!
//! ```text
//! start                     deadline - reserve          deadline - reserve / 10     deadline
//!   |  decode, gate, handle, …  |  decide, plan, settle  |  report, respond, log  |
//! ```
//!
//! No retry arithmetic is here (see `policy/`), no call of a queue (see `settle/`), and no HTTP.

use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::Span;

use crate::clock::Clock;
use crate::delivery::Delivery;
use crate::disposition::Disposition;
use crate::failure::Failure;
use crate::handler::{DynBulk, Handler};
use crate::message::{Body, Raw};
use crate::observer::{Event, Observers};
use crate::plan::{Decision, Planned};
use crate::policy;
use crate::queue::{Queue, Record};
use crate::report::{Outcome, Report, Settlement};
use crate::settings::{Mode, Settings};
use crate::settle::{Settled, Settler, Task, Waiting};
use calls::SharedCalls;
use executor::Order;
use inner::{Inner, QueuePolicy};
use turn::{Attempts, Deadlines};

mod groups;
mod executor;
mod attempt;
mod admission;
mod turn;
mod calls;
mod shared_call;
mod pacer;
mod inner;
mod memory;
mod host;

pub(crate) use host::Deletes;
pub use host::ScopePause;
pub(crate) use turn::Stop;

enum Undone {
    /// A message of a group, which needed the plan for its successors.
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
    /// A processor that passes messages to `handler` and settles them in `queue`.
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
        // Boxed: the type of this future is too deep for the compiler in a caller's future.
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
        let deliveries = self.inner.decoder.decode(records, self.clock(), deadline).await;
        for round in groups::rounds(deliveries) {
            // The next round may end the process, and then the poller would delete nothing.
            delete(&settled[deleted..]).await;
            deleted = settled.len();
            let settle = |one: Settled| {
                self.inner.note_copied(&one);
                settled.push(one);
            };
            self.work(round, &deadlines, settle, || ()).await;
        }
        let is_unreportable =
            |one: &Settled| one.settlement.is_kept() && one.decision.delivery.message_id.is_none();
        if settled.iter().any(is_unreportable) {
            delete(&settled).await;
        }
        self.inner.report(settled, deadlines.window.started)
    }

    /// Steps 2 to 7: attempts, plans and settles concurrently, until each delivery is settled.
    /// `called` runs when a message of a standard queue needs no call any more.
    async fn work(
        &self,
        deliveries: Vec<Delivery>,
        deadlines: &Deadlines,
        settled: impl FnMut(Settled),
        mut called: impl FnMut(),
    ) {
        let (tasks, decided) = mpsc::unbounded_channel();
        let attempting = async move {
            let (unordered, groups) = groups::groups(deliveries);
            let calls = self.calls(unordered.len(), false, deadlines);
            // The receiver ends when all senders are dropped.
            let decided = |decision| {
                called();
                drop(tasks.send(Undone::Decided(decision)));
            };
            let order = Order::Any(self.slots(deadlines));
            self.attempt(order, unordered, calls.as_ref(), deadlines, decided).await;
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

    /// Steps 2 to 5. Returns the deliveries that are left.
    async fn attempt(
        &self,
        order: Order,
        deliveries: Vec<Arc<Delivery>>,
        calls: Option<&Arc<SharedCalls<T>>>,
        deadlines: &Deadlines,
        decided: impl FnMut(Decision),
    ) -> Vec<Arc<Delivery>> {
        let (inner, deadlines) = (Arc::clone(&self.inner), deadlines.clone());
        let attempts = Attempts { inner, deadlines, invocation: Span::current() };
        let work = |slot| attempt::work(Arc::clone(&self.handler), slot, calls.cloned());
        executor::execute(attempts, order, deliveries, work, decided).await
    }

    fn slots(&self, deadlines: &Deadlines) -> usize {
        deadlines.concurrency.saturating_mul(self.messages_per_call())
    }

    pub(crate) fn messages_per_call(&self) -> usize {
        self.handler.as_bulk().map_or(1, DynBulk::messages_per_call).max(1)
    }

    /// The calls of this many messages or groups, if the handler takes several messages.
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

    /// Reports a settled batch to the observers, until `until`: a late response is useless.
    pub(crate) fn observe(&self, report: &Report, until: Instant) {
        self.inner.observers.tell_settled(report, self.clock().now(), || Instant::now() < until);
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.inner.observers
    }
}

impl Inner {
    /// Step 6, plan: how a decision is carried out, and whether its successors may proceed.
    fn plan(&self, decision: Decision) -> Planned {
        let is_lapsed = self.has_lapsed(&decision.delivery);
        self.planner(&decision.delivery).plan(decision, is_lapsed)
    }

    /// Step 8, report: the outcome of each message of a batch, in the order of its records.
    fn report(&self, mut settled: Vec<Settled>, started: Instant) -> Report {
        if self.mode == Mode::Requeue {
            settled
                .iter()
                .filter(|settled| settled.settlement.is_kept())
                .for_each(|kept| self.dead_lettered.note_kept(kept));
        }
        settled.sort_unstable_by_key(|settled| settled.decision.delivery.position);
        Report {
            outcomes: settled.into_iter().map(|settled| self.outcome(settled)).collect(),
            elapsed: started.elapsed(),
        }
    }

    fn outcome(&self, settled: Settled) -> Outcome {
        let Settled {
            decision:
                Decision {
                    delivery,
                    disposition,
                    failure,
                    elapsed,
                    joined_call,
                    at,
                    start_tag,
                    idempotency,
                    ..
                },
            settlement,
        } = settled;
        let QueuePolicy { policy, .. } = self.policy(&delivery);
        // The limit of all messages has the number 0.
        let limit = start_tag.and_then(|tag| policy.key_limits.get(tag.split().0.checked_sub(1)?));
        let retry = failure
            .as_ref()
            .filter(|_| matches!(disposition, Disposition::Requeue { .. }))
            .and_then(|failure| policy::next_retry(policy, &delivery.usage(), failure));
        let failure = failure.filter(|failure| !failure.is_postponed());
        Outcome {
            message_id: delivery.message_id.clone(),
            original_message_id: delivery.original_id().map(str::to_owned),
            queue: delivery.queue.clone(),
            retry_count: delivery.retries(),
            hops: delivery.state.hops,
            receive_count: delivery.receive_count,
            is_stuck: settlement.is_kept()
                && disposition.stops_retrying()
                && policy::is_stuck(policy, &delivery.usage()),
            class: failure.as_ref().map(Failure::class),
            detail: failure.map(|failure| failure.detail().to_owned()),
            disposition,
            limit_key: limit.map(|limit| limit.key.to_string()),
            retry,
            settlement,
            idempotency,
            elapsed,
            joined_call,
            age: at.duration_since(delivery.first_sent).unwrap_or_default(),
        }
    }

    /// Remembers a message that has a copy. SQS also confirms a delete by the receipt handle of an
    /// earlier receive, which deletes nothing: the message would be handled in addition to its
    /// copy.
    fn note_copied(&self, Settled { decision, settlement }: &Settled) {
        if matches!(settlement, Settlement::Moved | Settlement::MovedNotDeleted { .. }) {
            self.not_deleted.note(&decision.delivery, self.clock.now(), ());
        }
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
