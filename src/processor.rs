//! One batch, step by step: decode, gate, handle, classify, decide, settle. On this page the whole path of a message can be read.
//!
//! Has no retry arithmetic (that is `policy/`), calls no queue (that is `settle/`), and knows neither Lambda nor HTTP.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Once};
use std::time::{Duration, SystemTime};

use futures_util::stream;
use futures_util::{FutureExt, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::classify::Rules;
use crate::clock::Clock;
use crate::disposition::{DeadLetterReason, Deferral, Disposition, ReleaseReason, Strategy};
use crate::failure::Failure;
use crate::gate::{Held, Protection, Standstill, TimeLeft, gate};
use crate::handler::Handler;
use crate::lane::{self, Way};
use crate::message::{Body, Decoder, Delivery, Raw, Record};
use crate::policy::{self, RetryPolicy};
use crate::queue::Queue;
use crate::report::{Outcome, Report};
use crate::round;
use crate::sender::Senders;
use crate::settings::{DeadLetterMode, Limits, Mode, RecursiveLoop, Settings};
use crate::settle::{Behind, Brake, Settled, Settler, Verdict, Window};
use crate::telemetry::{self, Emitter};

mod call;
mod crew;
mod given_up;

use call::Handled;
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
    given_up: GivenUp,
    metrics: Option<Emitter>,
    handlers: Handle,
    /// Whether the host has said what it says once.
    said: Once,
}

/// How a host that ends asks its batches to end too. What was not handled is receivable again at once.
#[derive(Clone, Default)]
pub(crate) struct Stop {
    /// No handler starts any more.
    pub(crate) starting: CancellationToken,
    /// Those that run are cancelled.
    pub(crate) running: CancellationToken,
}

/// When it is a message's turn, and the one random number that it gets.
#[derive(Clone, Copy)]
struct Turn {
    began: Instant,
    /// Its handler ends by then.
    limit: Instant,
    at: SystemTime,
    sample: f64,
}

/// When what must end in an invocation.
#[derive(Clone)]
struct Times {
    window: Window,
    stop: Stop,
    /// No handler starts or runs after this.
    cutoff: Instant,
    /// Longest run of one handler.
    timeout: Duration,
    /// How long a handler that is to end has to yield.
    grace: Duration,
    /// Whether what is done is deleted as soon as it is.
    deletes_done: bool,
}

impl Times {
    fn new(started: Instant, deadline: Instant, limits: &Limits, stop: Stop) -> Self {
        let reserve = limits.reserve.min(deadline.saturating_duration_since(started) / 4);
        // A tenth of the reserve is for the response itself.
        let window = Window { started, deadline: deadline - reserve / 10 };
        let Limits { timeout, .. } = *limits;
        Self { window, stop, cutoff: deadline - reserve, timeout, grace: reserve / 2, deletes_done: false }
    }

    /// The end of a handler that begins now.
    fn limit(&self, began: Instant) -> Instant {
        began.checked_add(self.timeout).map_or(self.cutoff, |own| own.min(self.cutoff))
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
        let dead_letters = match &dead_letter {
            DeadLetterMode::Direct(url) => Some(url.clone()),
            DeadLetterMode::Redrive | DeadLetterMode::Annotate => None,
        };
        let settler =
            Settler { queue: Arc::new(queue), clock, sampler, wrap, dead_letters, calls, brake: Brake::default() };
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

    /// Works on one batch. Returns before `deadline` whatever handlers and queue do, as long as this future itself is polled.
    pub async fn process(&self, records: Vec<Record>, deadline: Instant) -> Report {
        let times = Times::new(Instant::now(), deadline, &self.inner.limits, Stop::default());
        let mut settled: Vec<Settled> = Vec::new();
        let mut deleted = 0;
        for round in round::rounds(self.inner.decode(records, deadline).await) {
            // The next ones may end the process, and the poller then deletes nothing.
            let done = stream::iter(settled[deleted..].iter().filter_map(Settled::to_delete));
            self.inner.settler.delete_done(done, times.window.deadline).await;
            deleted = settled.len();
            self.settle(round, &times, |one| settled.push(one)).await;
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
        let times = Times::new(Instant::now(), deadline, &self.inner.limits, stop.clone());
        let times = Times { deletes_done: true, ..times };
        let (mut settled, mut not_deleted) = (Vec::new(), 0);
        for round in round::rounds(self.inner.decode(records, deadline).await) {
            let (done, mut deleting) = mpsc::unbounded_channel();
            let settled = &mut settled;
            // It owns the sender, so that deleting ends when settling has.
            let note = move |one: Settled| {
                if let Some(delivery) = one.to_delete() {
                    let _ = done.send(delivery);
                }
                settled.push(one);
            };
            let settling = self.settle(round, &times, note);
            let done = stream::poll_fn(move |context| deleting.poll_recv(context));
            let deleting = self.inner.settler.delete_done(done, times.window.deadline);
            not_deleted += tokio::join!(settling, deleting).1;
        }
        (self.inner.report(settled, times.window.started), not_deleted)
    }

    /// Whether most messages that come now could only be deferred, for a host that need not receive them.
    pub(crate) fn standstill(&self) -> Option<Standstill> {
        let Inner { protection, settler, mode, .. } = &*self.inner;
        if *mode == Mode::Requeue { protection.standstill(settler.clock.now()) } else { None }
    }

    /// From deliveries to what became of them.
    async fn settle(&self, deliveries: Vec<Delivery>, times: &Times, settled: impl FnMut(Settled)) {
        let inner = &self.inner;
        let (verdicts, decided) = mpsc::unbounded_channel();
        let handling = async move {
            let (loose, lanes) = lane::lanes(deliveries);
            // The receiver lives until every sender is gone.
            self.work(loose, times, |verdict| drop(verdicts.send(verdict))).await;
            let running = |lane| self.run_lane(lane, times, &verdicts).boxed();
            stream::iter(lanes).for_each_concurrent(inner.limits.concurrency.max(1), running).await;
            drop(verdicts);
        };
        tokio::join!(handling, inner.settler.settle(decided, times.window, settled));
    }

    /// Works on messages that must keep their order: behind one that is to be handled again, the others stay in the queue too.
    async fn run_lane(&self, lane: Vec<Arc<Delivery>>, times: &Times, verdicts: &UnboundedSender<Verdict>) {
        let settle = |verdict| drop(verdicts.send(verdict));
        let mut lane = lane.into_iter();
        while let Some(delivery) = lane.next() {
            let mut decided = None;
            self.work(vec![delivery], times, |verdict| decided = Some(verdict)).await;
            let mut verdict = decided.expect("every message is decided");
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

    /// The turn of a message, now.
    fn turn(&self, times: &Times) -> Turn {
        let Settler { clock, sampler, .. } = &self.inner.settler;
        let began = Instant::now();
        Turn { began, limit: times.limit(began), at: clock.now(), sample: sampler.sample() }
    }

    /// Gate: what is decided about a message without a call of its handler.
    fn uncalled(&self, delivery: &Arc<Delivery>, turn: &Turn, times: &Times) -> Option<Verdict> {
        let Inner { settler, policy, .. } = &*self.inner;
        let Turn { began, at: now, sample, .. } = *turn;
        let verdict = |disposition| Some(Verdict::uncalled(Arc::clone(delivery), disposition, now));
        if settler.has_lapsed(delivery) {
            return verdict(Disposition::Release(ReleaseReason::Lapsed));
        }
        if times.stop.starting.is_cancelled() {
            return verdict(Disposition::Release(ReleaseReason::ShuttingDown));
        }
        let time_left = if began < times.cutoff { TimeLeft::Enough } else { TimeLeft::TooLittle };
        let dead_letter = self.inner.dead_letter_mode(delivery, now);
        let given_up = self.inner.given_up.find(delivery, now);
        let reason = given_up.as_ref().map(|given_up| given_up.reason);
        if let Some(disposition) = gate(policy, dead_letter, delivery, reason, now, time_left, sample) {
            let disposition = self.inner.feasible(delivery, disposition, dead_letter, now, sample);
            let is_sent_again = matches!(disposition, Disposition::Annotate(_) | Disposition::Direct(_));
            let failure = given_up.and_then(|given_up| given_up.failure).filter(|_| is_sent_again);
            return Some(Verdict { failure, ..Verdict::uncalled(Arc::clone(delivery), disposition, now) });
        }
        let objection = delivery.defect.as_ref().or(delivery.refusal.as_ref())?.clone();
        Some(Verdict { elapsed: None, ..self.conclude(delivery, turn, Handled::Failed(objection)) })
    }

    /// Classify and decide: from how a handler ended to what is to happen to its message.
    fn conclude(&self, delivery: &Arc<Delivery>, turn: &Turn, handled: Handled) -> Verdict {
        let Inner { settler, policy, .. } = &*self.inner;
        let Turn { began, sample, .. } = *turn;
        let now = settler.clock.now();
        let elapsed = (!matches!(handled, Handled::Held(_) | Handled::NotStarted)).then(|| began.elapsed());
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
        let dead_letter = self.inner.dead_letter_mode(delivery, now);
        let disposition = self.inner.feasible(delivery, disposition, dead_letter, now, sample);
        Verdict { failure, elapsed, ..Verdict::uncalled(Arc::clone(delivery), disposition, now) }
    }
}

fn has_duplicates(deliveries: &[Delivery]) -> bool {
    let mut ids: Vec<&str> = deliveries.iter().filter_map(|delivery| delivery.message_id.as_deref()).collect();
    ids.sort_unstable();
    ids.windows(2).any(|ids| ids[0] == ids[1])
}

/// Those that are the same message delivered twice become one.
fn joined(deliveries: Vec<Delivery>) -> Vec<Delivery> {
    let mut joined: Vec<Delivery> = Vec::with_capacity(deliveries.len());
    let mut positions: HashMap<String, usize> = HashMap::new();
    for delivery in deliveries {
        if let Some(&at) = delivery.message_id.as_ref().and_then(|id| positions.get(id)) {
            joined[at].join(delivery);
        } else {
            positions.extend(delivery.message_id.clone().map(|id| (id, joined.len())));
            joined.push(delivery);
        }
    }
    joined
}

impl<H, Q: Queue> Inner<H, Q> {
    /// Reads each record, and joins those that are the same message delivered twice.
    async fn decode(&self, records: Vec<Record>, deadline: Instant) -> Vec<Delivery> {
        if let Some(senders) = &self.decoder.senders {
            senders.identify(&records, deadline).await;
        }
        let received = self.settler.clock.now();
        let decode = |(position, record)| Delivery::decode(position, record, received, &self.decoder);
        let mut deliveries: Vec<Delivery> = records.into_iter().enumerate().map(decode).collect();
        if has_duplicates(&deliveries) {
            deliveries = joined(deliveries);
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
    fn feasible(
        &self,
        delivery: &Delivery,
        wanted: Disposition,
        dead_letter: &DeadLetterMode,
        now: SystemTime,
        sample: f64,
    ) -> Disposition {
        match wanted {
            // What is done is done, whoever has it now; and an abandoned handler costs no call.
            Disposition::Complete | Disposition::Release(ReleaseReason::Abandoned) => wanted,
            _ if self.settler.has_lapsed(delivery) => Disposition::Release(ReleaseReason::Lapsed),
            Disposition::Requeue { .. } if self.mode == Mode::Report => Disposition::Release(ReleaseReason::Reported),
            // Without an id it waits by a copy in every other mode.
            Disposition::Defer { .. } if self.mode == Mode::Report && delivery.strategy == Strategy::Copy => {
                Disposition::Release(ReleaseReason::Reported)
            }
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
            Disposition::DeadLetter(reason) => self.dead_letter(delivery, reason, dead_letter, now, sample),
            Disposition::Release(ReleaseReason::GivenUp) if self.is_sent_for_want_of_an_id(delivery) => {
                policy::defer(&self.policy, Deferral::Unreportable, delivery.deferrals(), now, sample)
            }
            Disposition::Requeue { .. }
            | Disposition::Defer { .. }
            | Disposition::Release(_)
            | Disposition::Annotate(_)
            | Disposition::Direct(_) => wanted,
        }
    }

    /// The mode that the settings choose, or [`DeadLetterMode::Redrive`] where its copy cannot be made: a copy needs all of the record, and on
    /// a FIFO queue it would lose its place. What cannot be sent to the dead-letter queue goes there by its receives on a FIFO queue, or its
    /// group would follow it there unhandled.
    fn dead_letter_mode(&self, delivery: &Arc<Delivery>, now: SystemTime) -> &DeadLetterMode {
        let is_copyable = delivery.defect.is_none() && delivery.queue.is_some();
        let is_last = || delivery.is_fifo() && policy::is_spent(&self.policy, &delivery.progress());
        let can_be_sent = || self.settler.can_be_dead_letter(delivery, now);
        match &self.dead_letter {
            _ if !is_copyable => &DeadLetterMode::Redrive,
            DeadLetterMode::Annotate if delivery.is_fifo() || delivery.ends_its_row() => &DeadLetterMode::Redrive,
            DeadLetterMode::Direct(_) if is_last() && !can_be_sent() => &DeadLetterMode::Redrive,
            mode => mode,
        }
    }

    /// Whether SQS could not be told to keep it, and it can be sent again instead.
    fn is_sent_for_want_of_an_id(&self, delivery: &Delivery) -> bool {
        let can_be_copied = delivery.defect.is_none() && delivery.queue.is_some() && !delivery.is_fifo();
        delivery.message_id.is_none() && can_be_copied && self.mode == Mode::Requeue
    }

    /// The way to the dead-letter queue.
    fn dead_letter(
        &self,
        delivery: &Delivery,
        reason: DeadLetterReason,
        mode: &DeadLetterMode,
        now: SystemTime,
        sample: f64,
    ) -> Disposition {
        match mode {
            DeadLetterMode::Direct(_) => Disposition::Direct(reason),
            DeadLetterMode::Annotate => Disposition::Annotate(reason),
            DeadLetterMode::Redrive if self.is_sent_for_want_of_an_id(delivery) => {
                policy::defer(&self.policy, Deferral::Unreportable, delivery.deferrals(), now, sample)
            }
            DeadLetterMode::Redrive => Disposition::DeadLetter(reason),
        }
    }

    fn report(&self, mut settled: Vec<Settled>, started: Instant) -> Report {
        if self.mode == Mode::Requeue {
            settled
                .iter()
                .filter(|settled| settled.settlement.is_kept())
                .for_each(|kept| self.given_up.note(&kept.verdict));
        }
        settled.sort_unstable_by_key(|settled| settled.verdict.delivery.position);
        Report {
            outcomes: settled.into_iter().map(|settled| self.outcome(settled)).collect(),
            elapsed: started.elapsed(),
        }
    }

    fn outcome(&self, settled: Settled) -> Outcome {
        let Settled { verdict: Verdict { delivery, disposition, failure, elapsed, at, .. }, settlement } = settled;
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
