//! `requeue simulate outage`, in virtual time, over the embedded queue: without and with pause and
//! circuit breaker, or without and with a table that the execution environments share.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use requeue::classify::Response;
use requeue::policy::{RateLimit, RetryPolicy};
use requeue::{
    BatchProcessor, Clock, Deferral, Disposition, Failure, Handler, Message, Report, Sampler,
    Scope, scoped,
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::Error;
use crate::duration_argument::within;
use crate::progress::CommandProgress;
use crate::simulated::{
    Bucket, CALL, Comparison, Figures, Run, RunProgress, SimulatedFunction, SimulatedTable,
    SimulationArguments, World, number, requests, shared_by,
};
use crate::stop::Stop;
use crate::table::{decimal, span, thousands};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Messages in the queue when the service goes down.
    #[arg(long, help_heading = "Messages", default_value_t = 20_000,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    messages: u32,
    /// The time for which the service is down.
    #[arg(long, help_heading = "Service", value_name = "DURATION", default_value = "10m", value_parser = within(0..=86_400))]
    outage: Duration,
    /// Percentage of calls that succeed while the service is down, chosen at random; the others get
    /// 503.
    #[arg(long, help_heading = "Service", value_name = "PERCENT", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=100))]
    availability: u32,
    /// Calls in a second that the service accepts when it works, also as a burst; the others get
    /// 429 and `Retry-After: 1`.
    #[arg(long, help_heading = "Service", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Scopes, such as tenants, over which the messages are spread. Each has its own pause and
    /// circuit, as with `REQUEUE_SCOPE`.
    #[arg(long, help_heading = "Messages", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    scopes: u32,
    /// Calls in a second that the policy allows: `limit` of its `rateLimit`. [default: that of the
    /// policy, or none]
    #[arg(long, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: Option<u32>,
    /// Let Lambda deliver batches of 10 to this number of execution environments. Compare those that
    /// share nothing with those that share a table, both with pause and circuit breaker.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    environments: Option<u32>,
    #[command(flatten)]
    simulation: SimulationArguments,
}

impl Arguments {
    fn least(&self) -> Duration {
        Duration::from_secs_f64(f64::from(self.messages) / f64::from(self.rate))
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let options = &arguments.simulation;
    let runs = runs(arguments, options.policy.read()?);
    let simulate = async |run, progress: RunProgress<'_>| simulate(arguments, run, progress).await;
    Comparison::shown(options, &head(arguments), runs, &simulate)?.print(options)
}

pub(crate) fn rows(
    arguments: &Arguments,
    policy: RetryPolicy,
    progress: &CommandProgress,
    stop: &Stop,
) -> Result<Value, Error> {
    let simulate = async |run, progress: RunProgress<'_>| simulate(arguments, run, progress).await;
    Ok(Comparison::of(runs(arguments, policy), progress, stop, &simulate)?.page())
}

fn runs(arguments: &Arguments, mut policy: RetryPolicy) -> [Run<(RetryPolicy, Environments)>; 2] {
    if let Some(calls) = arguments.limit {
        policy.limit = Some(RateLimit::new(calls, Duration::from_secs(1)));
    }
    let run = |name, key, policy, environments| Run { name, key, settings: (policy, environments) };
    let Some(count) = arguments.environments else {
        let mut unprotected = policy.clone();
        (unprotected.max_pause, unprotected.circuit_breaker) = (None, None);
        let polling = Environments::Polling;
        return [
            run("without pause and circuit breaker", "without", unprotected, polling),
            run("with both", "with", policy, polling),
        ];
    };
    [
        run("without a table", "withoutTable", policy.clone(), Environments::Alone(count)),
        run("with a table", "withTable", policy, Environments::Sharing(count)),
    ]
}

fn head(arguments: &Arguments) -> String {
    let Arguments { messages, outage, rate, scopes, availability, .. } = arguments;
    let of_scopes = if *scopes > 1 { format!(" of {scopes} scopes") } else { String::new() };
    let down = match availability {
        0 => "is down".to_owned(),
        some => format!("accepts {some} % of the calls"),
    };
    let function = match arguments.environments {
        None => format!(
            "{ENVIRONMENTS} execution environments with {CONCURRENT_CALLS} concurrent calls in all"
        ),
        Some(count) => {
            format!("{count} execution environments, with pause and circuit breaker")
        }
    };
    format!(
        "{} messages{of_scopes}; a service that {down} for {} and then accepts {} calls a second; \
         all messages need at least {}; {function}",
        thousands(*messages),
        span(*outage),
        thousands(*rate),
        span(Duration::from_secs(arguments.least().as_secs())),
    )
}

/// Execution environments, and their concurrent calls in all.
const ENVIRONMENTS: usize = 10;
const CONCURRENT_CALLS: usize = 32;

#[derive(Clone, Copy)]
enum Environments {
    /// Ten, each of which polls for itself.
    Polling,
    /// This many, to which Lambda delivers. They share nothing.
    Alone(u32),
    /// This many, to which Lambda delivers. They share a table.
    Sharing(u32),
}

async fn simulate(
    arguments: &Arguments,
    (policy, environments): (RetryPolicy, Environments),
    progress: RunProgress<'_>,
) -> Result<(Figures, ()), Error> {
    let mut world = World::new(arguments.simulation.seed, policy)?;
    // The run has no table, and no message of it is a duplicate.
    world.settings.policy.idempotency = None;
    for number in 0..arguments.messages {
        world.send("", number, 1)?;
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
        // The messages alternate: the first one is of the first scope, the second of the second.
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
struct DownstreamService {
    began: Instant,
    back_at: Instant,
    /// The share of calls that it accepts during the outage.
    availability: f64,
    sampler: Sampler,
    clock: Clock,
    log: Arc<Mutex<ServiceLog>>,
}

struct ServiceLog {
    while_down: u64,
    done_while_down: u64,
    by_second: BTreeMap<u64, u64>,
    refused: u64,
    bucket: Bucket,
    last_done: Option<Instant>,
}

impl DownstreamService {
    fn new(arguments: &Arguments, clock: Clock) -> Self {
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

    async fn call(&self) -> Result<(), Failure> {
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
