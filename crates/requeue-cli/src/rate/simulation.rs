//! One run: the queue, the function's execution environments, the table and the service, in virtual
//! time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use requeue::classify::Response;
use requeue::embedded::{DEFAULT_ACCOUNT, DEFAULT_REGION, EmbeddedSqs};
use requeue::policy::RetryPolicy;
use requeue::queue::{Outgoing, QueueArn};
use requeue::table::Table;
use requeue::{
    BatchProcessor, Clock, DeadLetterMode, Disposition, Failure, Handler, Message, RecursiveLoop,
    Report, Sampler, Scope, Settings, SharedTable, scoped,
};
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};

use super::Arguments;
use super::calls::{Call, Calls};
use super::figures::{RateFigures, Requests, RunCounts};
use super::late::{LateMessages, is_put_off};
use crate::Error;
use crate::progress::CommandProgress;
use crate::simulated::{
    OwnTable, RunProgress, SimulatedFunction, SimulatedTable, requests, unless_stopped,
};
use crate::stop::Stop;

/// The start time of a run.
const START: Duration = Duration::from_secs(1_800_000_000);
/// The duration of a call.
const CALL: Duration = Duration::from_millis(100);
/// The other tenants send their messages within this time.
const FEEDING: Duration = Duration::from_secs(60);

/// How the execution environments keep the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// There is no limit.
    None,
    /// Each keeps it alone.
    Nothing,
    /// All keep it together, by a table.
    Table,
}

impl Sharing {
    pub(super) const ALL: [Self; 3] = [Self::None, Self::Nothing, Self::Table];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "without a rate limit",
            Self::Nothing => "limit without a table",
            Self::Table => "limit with a table",
        }
    }
}

pub(super) fn simulate(
    arguments: &Arguments,
    policy: RetryPolicy,
    sharing: Sharing,
    progress: &CommandProgress,
    stop: &Stop,
) -> Result<RateFigures, Error> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(unless_stopped(stop, run(arguments, policy, sharing, progress)))
}

/// The service: it counts the calls, and takes as many as its true limit says, if it has one.
#[derive(Clone)]
struct CountingService {
    began: Instant,
    /// The calls that it takes in a second.
    true_rate: Option<f64>,
    /// The messages of the flood; each further one is that of another tenant.
    messages: u32,
    log: Arc<Mutex<ServiceLog>>,
}

#[derive(Default)]
struct ServiceLog {
    /// The calls of the flood.
    calls: Calls,
    /// When each other tenant sent its message.
    sent: BTreeMap<u32, Instant>,
    /// The waits of the other tenants' messages.
    waits: Vec<Duration>,
    /// The calls of the flood that it has refused.
    refused: u64,
    /// The calls that it takes at this time: a token bucket, which is full after a second.
    tokens: Option<(f64, Instant)>,
}

impl ServiceLog {
    /// Whether the service refuses a call.
    fn refuses(&mut self, true_rate: f64, now: Instant) -> bool {
        let (tokens, at) = self.tokens.unwrap_or((true_rate.max(1.0), now));
        let refilled = tokens + now.duration_since(at).as_secs_f64() * true_rate;
        let tokens = refilled.min(true_rate.max(1.0));
        let refuses = tokens < 1.0;
        self.tokens = Some((if refuses { tokens } else { tokens - 1.0 }, now));
        self.refused += u64::from(refuses);
        refuses
    }
}

impl CountingService {
    fn log(&self) -> MutexGuard<'_, ServiceLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call(&self, message: u32) -> Result<(), Failure> {
        let refuses = {
            let mut log = self.log();
            let now = Instant::now();
            if message < self.messages {
                log.calls.push(Call { at: now - self.began, message });
                self.true_rate.is_some_and(|rate| log.refuses(rate, now))
            } else {
                if let Some(sent) = log.sent.remove(&message) {
                    log.waits.push(now - sent);
                }
                false
            }
        };
        sleep(CALL).await;
        if refuses {
            let response = Response { status: 429, headers: &[], body: b"" };
            return Err(Failure::from_response(&response, SystemTime::UNIX_EPOCH));
        }
        Ok(())
    }
}

async fn run(
    arguments: &Arguments,
    policy: RetryPolicy,
    sharing: Sharing,
    progress: &CommandProgress,
) -> Result<RateFigures, Error> {
    // A fixed time: the milliseconds of the real one would make each run different.
    let clock = Clock::starting_at(SystemTime::UNIX_EPOCH + START);
    let sqs = EmbeddedSqs::seeded(clock.clone(), DEFAULT_REGION, DEFAULT_ACCOUNT, arguments.seed);
    let queue = if arguments.true_limit.is_none() {
        sqs.create_queue("orders", [])?
    } else {
        // A message that was refused too often must leave the queue.
        let dead_letters = sqs.create_queue("orders-dlq", [])?;
        let redrive = format!(r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":5}}"#);
        sqs.create_queue("orders", [("RedrivePolicy", redrive.as_str())])?
    };
    let mut late = LateMessages::default();
    for number in 0..arguments.messages {
        late.add(send(&sqs, &queue, number)?, number);
    }
    let began = Instant::now();
    let down = arguments.table_down.map(|(from, to)| began + from..began + to);
    let table =
        (sharing == Sharing::Table).then(|| Arc::new(SimulatedTable::new(clock.clone(), down)));
    let true_rate = arguments.true_limit.map(|limit| f64::from(limit) / period(arguments));
    let service =
        CountingService { began, true_rate, messages: arguments.messages, log: Arc::default() };
    let settings = settings(arguments, policy, sharing);
    let skews = Sampler::seeded(!arguments.seed);
    let tables: Vec<_> = (0..arguments.environments)
        .map(|_| table.clone().map(|table| Arc::new(OwnTable::of(table))))
        .collect();
    let environments = tables.iter().map(|table| {
        let mut settings = settings.clone();
        settings.shared_table = table.clone().map(|table| {
            let mut shared_table = SharedTable::by(table as Arc<dyn Table>);
            shared_table.max_environments = arguments.environments;
            shared_table
        });
        settings.clock = Some(skewed(&clock, arguments.skew, skews.sample()));
        BatchProcessor::new(handler(&service), sqs.clone(), settings)
    });
    let mut function = SimulatedFunction::new(sqs.clone(), queue.clone(), environments.collect());
    function.duplicates = f64::from(arguments.duplicates) / 100.0;
    function.is_warm = arguments.warm;
    let all = arguments.messages + arguments.tenants;
    let progress = RunProgress::begin(progress, sharing.name(), all);
    let counts = Cell::default();
    let late = RefCell::new(late);
    let feeding = feed(arguments, &sqs, &queue, &service);
    function
        .drain_while(feeding, |handled| {
            counts.set(counted(counts.get(), handled.report));
            let table = tables[handled.environment].as_ref();
            late.borrow_mut().note(handled, table.is_some_and(|table| table.was_throttled()));
            progress.tell(handled.left);
        })
        .await?;
    let requests = Requests { sqs: requests(&sqs), table: table.map(|table| table.requests()) };
    let log = service.log();
    let (limit, messages) = (arguments.rate_limit(), arguments.messages);
    let mut counts = counts.get();
    counts.refused = arguments.true_limit.map(|_| log.refused);
    let late = late.into_inner().into_numbers();
    Ok(RateFigures::of(&log.calls, &limit, messages, &late, &log.waits, counts, &requests))
}

fn period(arguments: &Arguments) -> f64 {
    arguments.rate_limit().period.as_secs_f64()
}

fn settings(arguments: &Arguments, policy: RetryPolicy, sharing: Sharing) -> Settings {
    let mut settings = Settings::default();
    let own = policy.limit;
    settings.policy = policy;
    settings.policy.limit = (sharing != Sharing::None).then(|| {
        let mut limit = arguments.rate_limit();
        if let Some(own) = own {
            limit.max_reservation = own.max_reservation;
        }
        limit
    });
    settings.sampler = Sampler::seeded(arguments.seed);
    settings.recursive_loop = RecursiveLoop::Allow;
    settings.dead_letter = Some(DeadLetterMode::Annotate);
    settings
}

/// Each tenant is a scope; the flood is of one.
fn handler(service: &CountingService) -> impl Handler + use<> {
    let (service, flood) = (service.clone(), service.messages);
    let handler = move |message: Message| {
        let service = service.clone();
        async move { service.call(number(&message)).await }
    };
    scoped(handler, move |message: &Message| match number(message) {
        number if number < flood => Scope::default(),
        number => Scope::of(number.to_string()),
    })
}

/// A clock that is wrong by up to `most` seconds.
fn skewed(clock: &Clock, most: Duration, sample: f64) -> Clock {
    let (clock, later, earlier) = (clock.clone(), (2 * most).mul_f64(sample), most);
    Clock::showing(move || clock.now() + later - earlier)
}

/// Sends a message, and returns its id.
fn send(sqs: &EmbeddedSqs, queue: &QueueArn, number: u32) -> Result<String, Error> {
    Ok(sqs.put(queue, &Outgoing::new(&format!(r#"{{"order":{number}}}"#), &BTreeMap::new()))?)
}

fn number(message: &Message) -> u32 {
    let body: Value = serde_json::from_str(message.body()).unwrap_or_default();
    body["order"].as_u64().and_then(|order| u32::try_from(order).ok()).unwrap_or_default()
}

/// Sends the messages of the other tenants.
async fn feed(
    arguments: &Arguments,
    sqs: &EmbeddedSqs,
    queue: &QueueArn,
    service: &CountingService,
) -> Result<(), Error> {
    let times = Sampler::seeded(arguments.seed.rotate_left(1));
    let mut times: Vec<_> =
        (0..arguments.tenants).map(|_| FEEDING.mul_f64(times.sample())).collect();
    times.sort_unstable();
    for (number, at) in (arguments.messages..).zip(times) {
        sleep_until(service.began + at).await;
        service.log().sent.insert(number, Instant::now());
        send(sqs, queue, number)?;
    }
    Ok(())
}

fn counted(mut counts: RunCounts, report: &Report) -> RunCounts {
    for outcome in &report.outcomes {
        counts.deferrals += u64::from(matches!(outcome.disposition, Disposition::Defer { .. }));
        counts.put_off += u64::from(is_put_off(outcome));
    }
    counts
}
