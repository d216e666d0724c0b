//! The other host: it receives by long polls, runs the processor, and deletes messages that are
//! done. Its shutdown loses no message. It knows neither Lambda nor HTTP, and decides nothing.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{RwLock, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout};

use crate::clock::{Sampler, after};
use crate::disposition::Strategy;
use crate::handler::Handler;
use crate::lock::lock;
use crate::message::{Body, Raw};
use crate::observer::Event;
use crate::policy::CallPolicy;
use crate::processor::{BatchProcessor, Deletes, ScopePause, Stop};
use crate::queue::{CallError, MAX_BATCH_ENTRIES, Queue, QueueArn, ReceiveRequest, Source};
use crate::report::Report;
use crate::settings::{DeadLetterMode, Limits, Mode, RecursiveLoop, Settings};
use crate::telemetry;
use crate::wire::Wrap;

mod settings;
mod check;
mod calls;
mod poll;
mod extension;

use calls::FreeCalls;
pub use check::StartError;
use extension::{Extended, InHand};
use poll::{Asking, PAUSE, PROBING, Received, Standing, Trouble};
pub use settings::{Progress, Until, WithoutDeadLetterQueue, WorkerSettings};

/// A receive fails if its response is this late after its wait.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between two checks whether a queue is empty, while nothing is received.
const EMPTY_CHECKS: Duration = Duration::from_secs(2);

/// Works on a queue by long polls, in a container or on a laptop. It takes the same handler and the
/// same settings as a Lambda.
///
/// During a pause or an open circuit of the downstream service, the worker receives only messages
/// that may probe: it could only defer the others. After failed probes it also defers a few batches,
/// so that other messages probe. This does not apply if messages have a [`Scope`](crate::Scope) with
/// a key, since the next message may have another scope.
///
/// The worker deletes each message that the report of a batch does not keep. SQS delivers the
/// others again after their visibility timeout, which the worker extends while it works on them.
/// The number of copies in a row has no limit of ten, since no service detects loops here.
/// `docs/start/worker.md` describes the treatment of each message, and the shutdown.
///
/// A batch has no deadline: each handler has its own [`timeout`](Limits::timeout). Handlers run on
/// the runtime on which the worker is made, and must leave it a thread. If they block all threads,
/// the worker extends and receives no message.
///
/// It logs nothing until a `tracing` subscriber is installed, for example by
/// [`init_logging`](crate::init_logging). It handles no signals: it ends by the future that
/// [`run`](Self::run) takes. `examples/worker` is a whole program with signals.
pub struct Worker<H, Q, T = Raw> {
    processor: BatchProcessor<H, Extended<Q>, T>,
    source: Extended<Q>,
    queue: QueueArn,
    visibility: Duration,
    max_receives: Option<u32>,
    mode: Mode,
    limits: Limits,
    sampler: Sampler,
    receive_calls: CallPolicy,
    settings: WorkerSettings,
    progress: Mutex<Progress>,
    standing: Standing,
    /// Locked for reading by each batch in work, and for writing by one that may end the process.
    beside: RwLock<()>,
    /// Whether a deferred message costs no receive: it waits in a copy.
    passes: bool,
    trouble: Trouble,
}

impl<H, Q, T> fmt::Debug for Worker<H, Q, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl<H, Q, T> Worker<H, Q, T>
where
    H: Handler<T>,
    Q: Queue + Source,
    T: Body,
{
    /// Creates a worker on `queue`. It checks that the queue exists, and has a dead-letter queue
    /// and a visibility timeout. It also checks that the clocks of SQS and of this machine agree,
    /// since it recognises redrives by their times.
    pub async fn start(
        handler: H,
        source: Q,
        queue: &QueueArn,
        settings: Settings,
        worker: WorkerSettings,
    ) -> Result<Self, StartError> {
        let dead_letter = settings.dead_letter.or(Some(DeadLetterMode::OF_WORKERS));
        let settings = Settings { recursive_loop: RecursiveLoop::Allow, dead_letter, ..settings };
        let settings = telemetry::completed(settings);
        let own = settings.of_queue(queue.name());
        let description = Box::pin(check::check(&source, queue, &own, &worker)).await?;
        let source = Extended::new(source, settings.observers.clone());
        let trouble = Trouble::none(&description, settings.observers.clone());
        let (limits, sampler) = (own.limits, settings.sampler.clone());
        let (receive_calls, mode) = (settings.policy.receive_calls.clone(), settings.mode);
        let passes = !description.arn.is_fifo()
            && (own.strategy, own.wrap) == (Strategy::Copy, Wrap::WhenNeeded);
        Ok(Self {
            processor: BatchProcessor::new(handler, source.clone(), settings),
            source,
            trouble,
            queue: description.arn,
            visibility: description.visibility,
            max_receives: description.max_receive_count,
            mode,
            limits,
            sampler,
            receive_calls,
            settings: worker,
            progress: Mutex::default(),
            standing: Standing::default(),
            beside: RwLock::default(),
            passes,
        })
    }

    /// Works until `shutdown` is ready, and then ends. It receives no more messages and starts no
    /// handler. Running handlers have [`WorkerSettings::shutdown_timeout`] to end. The other
    /// messages become visible after the last long polls have ended: SQS may give messages to an
    /// abandoned poll, and hide them. A message that was dead-lettered or has expired may wait for
    /// its visibility timeout, and so may its successors in its FIFO group.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) -> Progress {
        self.source.begin();
        let stop = Stop::default();
        let concurrency = self.limits.concurrency.max(1);
        let most = self.processor.messages_per_call();
        let (receivers, calls_per_batch) = self.settings.shares(concurrency, most);
        tracing::info!(queue = %self.queue, concurrency, "working");
        let calls = FreeCalls::new(concurrency);
        let mut work = std::pin::pin!(join_all((0..receivers).map(|_| self.receive_and_work(
            &calls,
            calls_per_batch,
            &stop
        ))));
        // Here and below in this order, so that the same events always lead to the same requests.
        tokio::select! {
            biased;
            _ = &mut work => {}
            () = shutdown => self.end(work, &stop).await,
        }
        let progress = self.progress();
        tracing::info!(
            queue = self.queue.name(),
            received = progress.received,
            completed = progress.completed,
            requeued = progress.requeued,
            deadLettered = progress.dead_lettered,
            givenBack = progress.waiting,
            notSettled = progress.not_settled(),
            notDeleted = progress.not_deleted,
            "ended"
        );
        progress
    }

    async fn end(&self, mut work: impl Future + Unpin, stop: &Stop) {
        // The log may block until its reader takes lines, so the cancel is first.
        self.stop_starting(stop);
        tracing::info!(queue = self.queue.name(), "shutting down");
        let rest = self.rest();
        if timeout(self.settings.shutdown_timeout.saturating_sub(rest), &mut work).await.is_err() {
            stop.running.cancel();
            if timeout(rest, &mut work).await.is_err() {
                tracing::warn!(
                    queue = self.queue.name(),
                    "not everything was settled in time: SQS delivers the rest again after its visibility timeout"
                );
            }
        }
    }

    fn stop_starting(&self, stop: &Stop) {
        self.source.end();
        stop.starting.cancel();
    }

    /// The counts so far.
    pub fn progress(&self) -> Progress {
        *lock(&self.progress)
    }

    /// The current pauses and open circuits, as [`BatchProcessor::pauses`] lists them.
    pub fn pauses(&self) -> Vec<ScopePause> {
        self.processor.pauses()
    }

    async fn receive_and_work(&self, calls: &FreeCalls, calls_per_batch: u32, stop: &Stop) {
        let messages_per_call = self.processor.messages_per_call();
        while !stop.starting.is_cancelled() {
            let free = tokio::select! {
                biased;
                () = stop.starting.cancelled() => break,
                free = calls.gather(calls_per_batch) => free,
            };
            let most = free.num_permits().saturating_mul(messages_per_call).min(MAX_BATCH_ENTRIES);
            // The lock of `turn` is kept until the messages are settled.
            let Some((max, turn)) = self.turn(most, stop).await else { break };
            match self.receive(max, stop).await {
                Ok(received) if received.records.is_empty() => {
                    calls.received();
                    if self.settings.until == Until::Empty && self.is_empty().await {
                        self.stop_starting(stop);
                    }
                    self.pause(PAUSE.saturating_sub(received.asked.elapsed()), stop).await;
                }
                Ok(received) => {
                    calls.received();
                    let (report, deletes) = self.work(received, free, stop).await;
                    if let Some(mut turn) = turn {
                        turn.received(&report);
                    }
                    calls.pause_deletes(|failures| {
                        failures.add_deletes(&self.receive_calls, &self.sampler, deletes)
                    });
                }
                Err(error) => calls.pause_receives(|failures| {
                    let Self { receive_calls, sampler, trouble, .. } = self;
                    failures.add_receive(receive_calls, sampler, &error, trouble)
                }),
            }
        }
    }

    /// Waits for `pause`, or until the worker shuts down.
    async fn pause(&self, pause: Duration, stop: &Stop) {
        if pause.is_zero() {
            return;
        }
        tokio::select! {
            biased;
            () = sleep(pause) => {}
            () = stop.starting.cancelled() => {}
        }
    }

    /// Waits while messages could only be deferred, and returns how many to receive then: a
    /// receiver that is alone at most as many as may probe. `None` if the worker shuts down.
    async fn turn(&self, batch_size: usize, stop: &Stop) -> Option<(usize, Option<Asking<'_>>)> {
        let mut turn = loop {
            if self.processor.standstill(&self.queue).is_none() {
                self.standing.end(&self.queue, self.processor.observers());
                return Some((batch_size, None));
            }
            tokio::select! {
                biased;
                turn = self.standing.turn() => break turn,
                () = stop.starting.cancelled() => return None,
                // A probe may have ended the standstill while another one of this receiver runs.
                () = sleep(PROBING) => {}
            }
        };
        let mut has_paused = false;
        loop {
            let Some(still) = self.processor.standstill(&self.queue) else {
                self.standing.end(&self.queue, self.processor.observers());
                return Some((batch_size, None));
            };
            self.standing.begin(&mut turn, &still, &self.queue, self.processor.observers());
            let pause = turn.pause(&still, has_paused, self.passes);
            if pause.is_zero() {
                return Some((turn.most(&still).min(batch_size), Some(turn)));
            }
            // No other receiver checks at the same time.
            tokio::select! {
                biased;
                () = sleep(pause) => has_paused = true,
                () = stop.starting.cancelled() => return None,
                () = self.emptied() => {
                    self.stop_starting(stop);
                    return None;
                }
            }
        }
    }

    /// The end of the shutdown time, in which the messages of cancelled handlers are settled.
    fn rest(&self) -> Duration {
        self.limits.reserve.min(self.settings.shutdown_timeout / 4)
    }

    /// How long a worker that shuts down waits for a long poll in progress: until shortly before
    /// handlers are cancelled, so that its messages can be released.
    fn last_poll(&self) -> Duration {
        self.settings.shutdown_timeout.saturating_sub(self.rest() + self.rest() / 4)
    }

    /// How long one receive waits for a message. Its response comes before the worker has to end.
    fn wait(&self) -> Duration {
        let within = self.last_poll().saturating_sub(Duration::from_secs(1)).as_secs();
        poll::wait(self.settings.until, self.visibility).min(Duration::from_secs(within))
    }

    async fn receive(&self, max: usize, stop: &Stop) -> Result<Received, CallError> {
        let (wait, asked) = (self.wait(), Instant::now());
        let ask = ReceiveRequest::new(max, wait, self.visibility);
        let mut response =
            std::pin::pin!(timeout(wait + RESPONSE_TIMEOUT, self.source.receive(&self.queue, ask)));
        let response = tokio::select! {
            biased;
            response = &mut response => response,
            () = stop.starting.cancelled() => {
                let Ok(response) = timeout(self.last_poll(), response).await else {
                    tracing::warn!(
                        queue = %self.queue,
                        "a long poll had to be cut off: SQS may have hidden messages for it"
                    );
                    return Ok(Received { records: Vec::new(), asked });
                };
                response
            }
        };
        let records = response.unwrap_or_else(|_| Err(CallError::timed_out()))?;
        self.trouble.end();
        Ok(Received { records, asked })
    }

    /// Handles one batch, with the roles of Lambda's poller and of a function. Gives back the calls
    /// that it does not need any more.
    async fn work(
        &self,
        Received { records, asked }: Received,
        mut calls: SemaphorePermit<'_>,
        stop: &Stop,
    ) -> (Report, Deletes) {
        let messages = u32::try_from(records.len()).unwrap_or(u32::MAX);
        lock(&self.progress).received += u64::from(messages);
        let in_hand = records.iter().filter_map(InHand::of).collect();
        let messages_per_call = self.processor.messages_per_call();
        let needed = records.len().div_ceil(messages_per_call);
        drop(calls.split(calls.num_permits().saturating_sub(needed)));
        // The messages of a shared call end together, with the batch.
        let called = || drop(calls.split(usize::from(messages_per_call == 1)));
        let process = async {
            let is_alone = !self.queue.is_fifo() && self.processor.has_suspects(&records);
            let _alone = if is_alone { Some(self.beside.write().await) } else { None };
            let _beside = if is_alone { None } else { Some(self.beside.read().await) };
            // Time for each message in sequence, since a FIFO group is handled in its order.
            let time = self.limits.timeout.saturating_mul(messages);
            let deadline = after(time.saturating_add(self.limits.reserve));
            self.processor.process_and_delete(records, deadline, stop, called).await
        };
        let (mut report, deletes) =
            self.source.during(&self.queue, in_hand, self.visibility, asked, process).await;
        // The redrive policy of the start would have moved them instead.
        report.note_stuck_after(self.max_receives);
        self.processor.observe(&report, Instant::now() + RESPONSE_TIMEOUT);
        let messages = deletes.deleted.failed;
        if messages > 0 {
            self.processor.observers().tell(&Event::NotDeleted { queue: &self.queue, messages });
        }
        let mut progress = lock(&self.progress);
        progress.add(&report.outcomes, self.mode, self.max_receives, deletes);
        drop(progress);
        (report, deletes)
    }

    /// Ends when a queue that is being drained is empty.
    async fn emptied(&self) {
        while self.settings.until == Until::Shutdown || !self.is_empty().await {
            sleep(EMPTY_CHECKS).await;
        }
    }

    /// Whether the queue is empty. If SQS does not respond, it counts as not empty.
    async fn is_empty(&self) -> bool {
        let described = timeout(RESPONSE_TIMEOUT, self.source.describe(&self.queue)).await;
        self.trouble.is_empty(described.unwrap_or_else(|_| Err(CallError::timed_out())))
    }
}
