//! One run: the queue, the execution environments and the service, in virtual time.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use requeue::classify::Response;
use requeue::policy::RetryPolicy;
use requeue::{
    BatchProcessor, Clock, Deferral, Disposition, Failure, Handler, Message, Report, Sampler,
    Scope, scoped,
};
use tokio::time::{Instant, sleep};

use super::Arguments;
use crate::Error;
use crate::simulated::{
    Bucket, CALL, Figures, RunProgress, SimulatedFunction, SimulatedTable, World, number, requests,
    shared_by,
};
use crate::table::decimal;

/// Execution environments, and their concurrent calls in all.
pub(super) const ENVIRONMENTS: usize = 10;
pub(super) const CONCURRENT_CALLS: usize = 32;

#[derive(Clone, Copy)]
pub(super) enum Environments {
    /// Ten, each of which polls for itself.
    Polling,
    /// So many, to which Lambda delivers. They share nothing.
    Alone(u32),
    /// So many, to which Lambda delivers. They share a table.
    Sharing(u32),
}

pub(super) async fn simulate(
    arguments: &Arguments,
    (policy, environments): (RetryPolicy, Environments),
    progress: RunProgress<'_>,
) -> Result<(Figures, ()), Error> {
    let mut world = World::new(arguments.simulation.seed, policy)?;
    // The run has no table, and no message of it is a duplicate.
    world.settings.policy.idempotency = None;
    for number in 0..arguments.messages {
        world.send("", number)?;
    }
    let service = DownstreamService::new(arguments, world.clock.clone());
    let progress = progress.counting(arguments.messages, arguments.outage);
    let (scopes, counts) = (arguments.scopes, RefCell::default());
    let run = OutageRun { world, service, scopes, counts, progress };
    let table = || SimulatedTable::new(run.world.clock.clone(), None);
    let table = matches!(environments, Environments::Sharing(_)).then(table);
    run.drain(environments, table.as_ref()).await?;
    Ok((run.figures(arguments, environments, table.map(|table| table.requests()))?, ()))
}

struct OutageRun<'a> {
    world: World,
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

impl OutageRun<'_> {
    fn figures(
        &self,
        arguments: &Arguments,
        environments: Environments,
        table_requests: Option<u64>,
    ) -> Result<Figures, Error> {
        let (log, counts, back_at) =
            (self.service.log.lock(), self.counts.borrow(), self.service.back_at);
        let drained =
            log.last_done.map_or(Duration::ZERO, |last| last.saturating_duration_since(back_at));
        let down = back_at.min(log.last_done.unwrap_or(back_at)) - self.service.began;
        let dead = self.world.sqs.message_count(&self.world.dead_letters)?;
        // Messages that were not delivered would make it too good.
        let ratio = (dead == 0).then(|| drained.as_secs_f64() / arguments.least().as_secs_f64());
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let per_message = |requests: u64| requests as f64 / f64::from(arguments.messages);
        let table_requests = table_requests.map(per_message);
        let mut of = Figures::default();
        of.count("dead letters", "deadLetters", dead);
        of.time("until the backlog was gone, after the outage", "drainedSeconds", drained);
        let shown = ratio.map_or_else(|| "–".to_owned(), |ratio| decimal(ratio, 2));
        of.row("  as a multiple of the least time", shown);
        of.value("ratio", ratio);
        of.count("calls during the outage", "callsWhileDown", log.while_down);
        of.count("done during the outage", "doneWhileDown", log.done_while_down);
        let throughput = per_second(log.done_while_down, down);
        of.decimal("  in each second", "throughputWhileDown", throughput, 1);
        let (calls, peak) = (log.by_second.values().sum::<u64>(), log.by_second.values().max());
        of.count("calls after the outage", "callsAfterwards", calls);
        of.count("  most in one second", "peakCallsPerSecond", peak.copied().unwrap_or_default());
        of.count("  refused by the rate limit", "refused", log.refused);
        of.count("retries used", "retries", counts.retries);
        of.count("  most for one message", "mostRetries", counts.most_retries);
        let longest = counts.longest_open;
        of.time("longest time that a circuit was open", "longestOpenSeconds", longest);
        of.count("deferrals", "deferrals", counts.deferrals);
        let requests = per_message(requests(&self.world.sqs));
        of.decimal("requests to SQS for each message", "requestsPerMessage", requests, 1);
        of.value("tableRequestsPerMessage", table_requests);
        if !matches!(environments, Environments::Polling) {
            let shown = table_requests.map_or_else(|| "none".to_owned(), |some| decimal(some, 2));
            of.row("requests to the table for each message", shown);
        }
        Ok(of)
    }

    async fn drain(
        &self,
        environments: Environments,
        table: Option<&SimulatedTable>,
    ) -> Result<(), Error> {
        let World { sqs, queue, settings, .. } = &self.world;
        let new = |settings| BatchProcessor::new(self.handler(), sqs.clone(), settings);
        let polling = |number: usize| {
            let mut settings = settings.clone();
            settings.limits.concurrency = CONCURRENT_CALLS / ENVIRONMENTS
                + usize::from(number < CONCURRENT_CALLS % ENVIRONMENTS);
            new(settings)
        };
        let function =
            |environments| SimulatedFunction::new(sqs.clone(), queue.clone(), environments);
        let function = match environments {
            Environments::Polling => function((0..ENVIRONMENTS).map(polling).collect()).polling(),
            Environments::Alone(count) | Environments::Sharing(count) => {
                let mut settings = settings.clone();
                settings.shared_table = table.map(|table| shared_by(count, table));
                function((0..count).map(|_| new(settings.clone())).collect())
            }
        };
        let open_since = RefCell::new(HashMap::new());
        function
            .drain(ready(Ok(())), |handled| {
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
        // The messages take turns: the first one is of the first scope, the second of the second.
        scoped(handler, move |message: &Message| match scopes {
            1 => Scope::default(),
            scopes => Scope::of((number(message) % scopes).to_string()),
        })
    }

    /// `open_since`: when the environment deferred a message for its circuit, if none worked since.
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

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

#[derive(Clone)]
pub(super) struct DownstreamService {
    pub(super) began: Instant,
    pub(super) back_at: Instant,
    /// The share of calls that it accepts during the outage.
    availability: f64,
    sampler: Sampler,
    clock: Clock,
    pub(super) log: Arc<Mutex<ServiceLog>>,
}

pub(super) struct ServiceLog {
    pub(super) while_down: u64,
    pub(super) done_while_down: u64,
    pub(super) by_second: BTreeMap<u64, u64>,
    pub(super) refused: u64,
    /// The calls that it accepts.
    bucket: Bucket,
    pub(super) last_done: Option<Instant>,
}

impl DownstreamService {
    pub(super) fn new(arguments: &Arguments, clock: Clock) -> Self {
        let began = Instant::now();
        Self {
            began,
            back_at: began + arguments.outage,
            availability: f64::from(arguments.availability) / 100.0,
            // A sampler of its own, so that another policy does not change the outage.
            sampler: Sampler::seeded(!arguments.simulation.seed),
            clock,
            log: Arc::new(Mutex::new(ServiceLog {
                while_down: 0,
                done_while_down: 0,
                by_second: BTreeMap::new(),
                refused: 0,
                bucket: Bucket::empty(arguments.rate.into()),
                last_done: None,
            })),
        }
    }

    pub(super) async fn call(&self) -> Result<(), Failure> {
        let status = self.status();
        sleep(CALL).await;
        let headers: &[(&str, &[u8])] = match status {
            200 => return Ok(()),
            429 => &[("Retry-After", b"1")],
            _ => &[],
        };
        Err(Failure::from_response(&Response { status, headers, body: b"" }, self.clock.now()))
    }

    fn status(&self) -> u16 {
        let mut log = self.log.lock();
        let now = Instant::now();
        let is_down = now < self.back_at;
        if is_down {
            log.while_down += 1;
            if self.sampler.sample() >= self.availability {
                return 503;
            }
        } else {
            *log.by_second.entry((now - self.back_at).as_secs()).or_default() += 1;
        }
        if !log.bucket.takes() {
            log.refused += 1;
            return 429;
        }
        log.done_while_down += u64::from(is_down);
        log.last_done = Some(now);
        200
    }
}
