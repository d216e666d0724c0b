//! One run: the queue, the execution environments and the service, in virtual time.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use requeue::embedded::{DEFAULT_ACCOUNT, DEFAULT_REGION, EmbeddedSqs, Fault};
use requeue::policy::RetryPolicy;
use requeue::queue::{MAX_BATCH_ENTRIES, Outgoing, Queue, QueueArn, ReceiveRequest, Source};
use requeue::table::Table;
use requeue::{
    BatchProcessor, Clock, DeadLetterMode, Deferral, Disposition, Handler, Message, RecursiveLoop,
    Report, Sampler, Scope, Settings, SharedTable, scoped,
};
use serde_json::Value;
use tokio::time::Instant;

use super::Arguments;
use super::figures::OutageFigures;
use super::service::DownstreamService;
use crate::Error;
use crate::progress::CommandProgress;
use crate::simulated::{RunProgress, SimulatedFunction, SimulatedTable, requests, unless_stopped};
use crate::stop::Stop;

/// Execution environments, and their concurrent calls in all.
pub(super) const ENVIRONMENTS: usize = 10;
pub(super) const CONCURRENT_CALLS: usize = 32;
const FUNCTION_TIMEOUT: Duration = Duration::from_secs(60);
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(360);
/// The start time of a run.
const START: Duration = Duration::from_secs(1_800_000_000);
/// The latency of a request to SQS.
const REQUEST: Duration = Duration::from_millis(10);
/// Long polling, as Lambda's poller does.
const POLL: Duration = Duration::from_secs(20);

/// The execution environments of a run.
#[derive(Clone, Copy)]
pub(super) enum Environments {
    /// Ten, each of which polls for itself.
    Polling,
    /// So many, to which Lambda delivers. They share nothing.
    Alone(u32),
    /// So many, to which Lambda delivers. They share a table.
    Sharing(u32),
}

pub(super) fn simulate(
    arguments: &Arguments,
    policy: RetryPolicy,
    environments: Environments,
    name: &'static str,
    progress: &CommandProgress,
    stop: &Stop,
) -> Result<OutageFigures, Error> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    let running = async {
        OutageRun::set_up(arguments, policy, name, progress)
            .await?
            .run(arguments, environments)
            .await
    };
    runtime.block_on(unless_stopped(stop, running))
}

/// The parts of a run, and its counts.
struct OutageRun<'a> {
    sqs: EmbeddedSqs,
    queue: QueueArn,
    dead_letters: QueueArn,
    settings: Settings,
    service: DownstreamService,
    scopes: u32,
    counts: RefCell<RunCounts>,
    progress: RunProgress<'a>,
}

#[derive(Default)]
struct RunCounts {
    retries: u64,
    most_retries: u32,
    longest_open: Duration,
    deferrals: u64,
}

impl<'a> OutageRun<'a> {
    async fn set_up(
        arguments: &Arguments,
        policy: RetryPolicy,
        name: &'static str,
        progress: &'a CommandProgress,
    ) -> Result<Self, Error> {
        // A fixed time: the milliseconds of the real one would make each run different.
        let clock = Clock::starting_at(SystemTime::UNIX_EPOCH + START);
        let sqs =
            EmbeddedSqs::seeded(clock.clone(), DEFAULT_REGION, DEFAULT_ACCOUNT, arguments.seed);
        let dead_letters = sqs.create_queue("orders-dlq", [])?;
        let redrive = format!(r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":5}}"#);
        let queue = sqs.create_queue("orders", [("RedrivePolicy", redrive.as_str())])?;
        let bodies: Vec<String> =
            (0..arguments.messages).map(|number| format!(r#"{{"order":{number}}}"#)).collect();
        for chunk in bodies.chunks(MAX_BATCH_ENTRIES) {
            let attributes = BTreeMap::new();
            let entries: Vec<Outgoing<'_>> =
                chunk.iter().map(|body| Outgoing::new(body, &attributes)).collect();
            sqs.send(&queue, &entries).await?;
        }
        let mut settings = Settings::default();
        settings.policy = policy;
        // The run has no table, and no message of it is a duplicate.
        settings.policy.idempotency = None;
        settings.sampler = Sampler::seeded(arguments.seed);
        settings.recursive_loop = RecursiveLoop::Allow;
        settings.dead_letter = Some(DeadLetterMode::Annotate);
        let service = DownstreamService::new(arguments, clock);
        let progress =
            RunProgress::begin(progress, name, arguments.messages).with_outage(arguments.outage);
        Ok(Self {
            sqs,
            queue,
            dead_letters,
            settings,
            service,
            scopes: arguments.scopes,
            counts: RefCell::default(),
            progress,
        })
    }

    async fn run(
        &self,
        arguments: &Arguments,
        environments: Environments,
    ) -> Result<OutageFigures, Error> {
        let before = requests(&self.sqs);
        let table = match environments {
            Environments::Polling => {
                self.poll().await?;
                None
            }
            Environments::Alone(count) => {
                self.deliver(count, None).await?;
                None
            }
            Environments::Sharing(count) => {
                let table = Arc::new(SimulatedTable::new(self.sqs.clock().clone(), None));
                self.deliver(count, Some(&table)).await?;
                Some(table)
            }
        };
        let log = self.service.log();
        let drained = log
            .last_done
            .map_or(Duration::ZERO, |last| last.saturating_duration_since(self.service.back_at));
        let down = self.service.back_at.min(log.last_done.unwrap_or(self.service.back_at))
            - self.service.began;
        let counts = self.counts.borrow();
        let dead = self.sqs.message_count(&self.dead_letters)?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let per_message = |requests: u64| requests as f64 / f64::from(arguments.messages);
        Ok(OutageFigures {
            calls_while_down: log.while_down,
            done_while_down: log.done_while_down,
            throughput_while_down: per_second(log.done_while_down, down),
            calls_afterwards: log.by_second.values().sum(),
            peak: log.by_second.values().copied().max().unwrap_or_default(),
            refused: log.refused,
            drained,
            ratio: (dead == 0).then(|| drained.as_secs_f64() / arguments.least().as_secs_f64()),
            retries: counts.retries,
            most_retries: counts.most_retries,
            longest_open: counts.longest_open,
            deferrals: counts.deferrals,
            dead,
            requests_per_message: per_message(requests(&self.sqs) - before),
            table_requests_per_message: table.map(|table| per_message(table.requests())),
        })
    }

    /// Lets each of ten execution environments poll for itself.
    async fn poll(&self) -> Result<(), Error> {
        self.sqs.set_faults(|_| Fault::RespondAfter(REQUEST));
        let environments = (0..ENVIRONMENTS).map(|number| self.environment(number));
        for ended in join_all(environments).await {
            ended?;
        }
        Ok(())
    }

    /// Lets Lambda deliver to so many execution environments.
    async fn deliver(&self, count: u32, table: Option<&Arc<SimulatedTable>>) -> Result<(), Error> {
        let mut settings = self.settings.clone();
        settings.shared_table = table.map(|table| {
            let mut shared_table = SharedTable::by(Arc::clone(table) as Arc<dyn Table>);
            shared_table.max_environments = count;
            shared_table
        });
        let environments = (0..count)
            .map(|_| BatchProcessor::new(self.handler(), self.sqs.clone(), settings.clone()));
        let function =
            SimulatedFunction::new(self.sqs.clone(), self.queue.clone(), environments.collect());
        let open_since = RefCell::new(HashMap::new());
        function
            .drain(|handled| {
                let mut open_since = open_since.borrow_mut();
                self.note(handled.report, open_since.entry(handled.environment).or_default());
                self.progress.tell(handled.left);
            })
            .await
    }

    fn handler(&self) -> impl Handler + use<> {
        let service = self.service.clone();
        let handler = move |_: Message| {
            let service = service.clone();
            async move { service.call().await }
        };
        let scopes = self.scopes;
        scoped(handler, move |message: &Message| scope(message.body(), scopes))
    }

    /// One execution environment: works on one batch after the other until the queue is empty.
    async fn environment(&self, number: usize) -> Result<(), Error> {
        let mut settings = self.settings.clone();
        settings.limits.concurrency =
            CONCURRENT_CALLS / ENVIRONMENTS + usize::from(number < CONCURRENT_CALLS % ENVIRONMENTS);
        let processor = BatchProcessor::new(self.handler(), self.sqs.clone(), settings);
        let mut ask = ReceiveRequest::default();
        (ask.wait, ask.visibility) = (POLL, VISIBILITY_TIMEOUT);
        let mut open_since = None;
        loop {
            let left = self.sqs.message_count(&self.queue)?;
            if left == 0 {
                break;
            }
            self.progress.tell(left);
            let records = Source::receive(&self.sqs, &self.queue, ask).await?;
            let receipts: Vec<String> = records
                .iter()
                .map(|record| record.receipt_handle.clone().unwrap_or_default())
                .collect();
            if records.is_empty() {
                continue;
            }
            let report = processor.process(records, Instant::now() + FUNCTION_TIMEOUT).await;
            self.note(&report, &mut open_since);
            // The poller does the same.
            let outcomes = report.outcomes.iter().zip(&receipts);
            let done: Vec<&str> = outcomes
                .filter(|(outcome, _)| !outcome.settlement.is_kept())
                .map(|(_, receipt)| receipt.as_str())
                .collect();
            if !done.is_empty() {
                self.sqs.delete(&self.queue, &done).await?;
            }
        }
        Ok(())
    }

    /// `open_since` is the time at which the environment deferred a message for its circuit, unless
    /// a call succeeded since then.
    fn note(&self, report: &Report, open_since: &mut Option<Instant>) {
        let mut counts = self.counts.borrow_mut();
        for outcome in &report.outcomes {
            if matches!(
                outcome.disposition,
                Disposition::Defer { reason: Deferral::CircuitOpen, .. }
            ) {
                open_since.get_or_insert_with(Instant::now);
            } else if matches!(outcome.disposition, Disposition::Complete)
                && let Some(since) = open_since.take()
            {
                counts.longest_open = counts.longest_open.max(since.elapsed());
            }
            match outcome.disposition {
                Disposition::Requeue { .. } => {
                    counts.retries += 1;
                    counts.most_retries = counts.most_retries.max(outcome.retry_count + 1);
                }
                Disposition::Defer { .. } => counts.deferrals += 1,
                _ => {}
            }
        }
    }
}

/// The messages take turns: the first one is of the first scope, the second of the second.
fn scope(body: &str, scopes: u32) -> Scope {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    match body["order"].as_u64() {
        Some(order) if scopes > 1 => Scope::of((order % u64::from(scopes)).to_string()),
        _ => Scope::default(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}
