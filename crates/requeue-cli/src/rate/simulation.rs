//! One run: the queue, the function's execution environments, the table and the service, in virtual
//! time.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use requeue::classify::Response;
use requeue::policy::RetryPolicy;
use requeue::{
    BatchProcessor, Clock, Deferral, Disposition, Failure, Handler, Message, Outcome, Report,
    Sampler, Scope, scoped,
};
use tokio::time::{Instant, sleep, sleep_until};

use super::Arguments;
use super::calls::{Call, Calls};
use super::figures::{self, RunCounts};
use crate::Error;
use crate::simulated::{
    BATCHING_WINDOW, Bucket, CALL, Figures, Handled, RunProgress, SimulatedFunction,
    SimulatedTable, World, number, requests, shared_by,
};
use parking_lot::Mutex;

/// The other tenants send their messages within this time.
const FEEDING: Duration = Duration::from_secs(60);

/// A free poller delivers a message so soon after the batching window.
const ON_TIME: Duration = Duration::from_millis(100);

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

/// The service: it counts the calls, and takes as many as its true limit says, if it has one.
#[derive(Clone)]
struct CountingService {
    began: Instant,
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
    /// The calls that it takes, if it refuses any.
    bucket: Option<Bucket>,
}

impl CountingService {
    async fn call(&self, message: u32) -> Result<(), Failure> {
        let refuses = {
            let mut log = self.log.lock();
            let now = Instant::now();
            if message < self.messages {
                log.calls.push(Call { at: now - self.began, message });
                let refuses = log.bucket.as_mut().is_some_and(|bucket| !bucket.takes());
                log.refused += u64::from(refuses);
                refuses
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

pub(super) async fn simulate(
    arguments: &Arguments,
    policy: RetryPolicy,
    sharing: Sharing,
    progress: RunProgress<'_>,
) -> Result<(Figures, Calls), Error> {
    let world = World::new(arguments.simulation.seed, limited(arguments, policy, sharing))?;
    let World { clock, sqs, queue, settings, .. } = &world;
    let mut late = LateMessages::default();
    for number in 0..arguments.messages {
        late.add(world.send(number)?, number);
    }
    let began = Instant::now();
    let down = arguments.table_down.map(|(from, to)| began + from..began + to);
    let table = (sharing == Sharing::Table).then(|| SimulatedTable::new(clock.clone(), down));
    let period = arguments.rate_limit().period.as_secs_f64();
    let bucket = arguments.true_limit.map(|limit| Bucket::full(f64::from(limit) / period));
    let log = Arc::new(Mutex::new(ServiceLog { bucket, ..ServiceLog::default() }));
    let service = CountingService { began, messages: arguments.messages, log };
    let skews = Sampler::seeded(!arguments.simulation.seed);
    let tables: Vec<_> = (0..arguments.environments)
        .map(|_| table.as_ref().map(SimulatedTable::of_another))
        .collect();
    let environments = tables.iter().map(|table| {
        let mut settings = settings.clone();
        settings.shared_table =
            table.as_ref().map(|table| shared_by(arguments.environments, table));
        settings.clock = Some(skewed(clock, arguments.skew, skews.sample()));
        BatchProcessor::new(handler(&service), sqs.clone(), settings)
    });
    let mut function = SimulatedFunction::new(sqs.clone(), queue.clone(), environments.collect());
    function.duplicates = f64::from(arguments.duplicates) / 100.0;
    function.is_warm = arguments.warm;
    let all = arguments.messages + arguments.tenants;
    let progress = progress.counting(all, Duration::ZERO);
    let counts = Cell::default();
    let late = RefCell::new(late);
    let feeding = feed(arguments, &world, &service);
    function
        .drain_while(feeding, |handled| {
            counts.set(counted(counts.get(), handled.report));
            let table = tables[handled.environment].as_ref();
            late.borrow_mut().note(handled, table.is_some_and(SimulatedTable::was_throttled));
            progress.tell(handled.left);
        })
        .await?;
    let mut log = service.log.lock();
    let (limit, calls) = (arguments.rate_limit(), take(&mut log.calls));
    let counts = RunCounts {
        refused: arguments.true_limit.map(|_| log.refused),
        sqs_requests: requests(sqs),
        table_requests: table.map(|table| table.requests()),
        ..counts.get()
    };
    let late = late.into_inner().late;
    Ok((figures::of(&calls, &limit, arguments.messages, &late, &log.waits, counts), calls))
}

/// The policy with the limit of the run, and the policy's own wait for it.
fn limited(arguments: &Arguments, mut policy: RetryPolicy, sharing: Sharing) -> RetryPolicy {
    let own = policy.limit;
    policy.limit = (sharing != Sharing::None).then(|| {
        let mut limit = arguments.rate_limit();
        if let Some(own) = own {
            limit.max_reservation = own.max_reservation;
        }
        limit
    });
    policy
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

/// Sends the messages of the other tenants.
async fn feed(
    arguments: &Arguments,
    world: &World,
    service: &CountingService,
) -> Result<(), Error> {
    let times = Sampler::seeded(arguments.simulation.seed.rotate_left(1));
    let mut times: Vec<_> =
        (0..arguments.tenants).map(|_| FEEDING.mul_f64(times.sample())).collect();
    times.sort_unstable();
    for (number, at) in (arguments.messages..).zip(times) {
        sleep_until(service.began + at).await;
        service.log.lock().sent.insert(number, Instant::now());
        world.send(number)?;
    }
    Ok(())
}

fn counted(mut counts: RunCounts, report: &Report) -> RunCounts {
    for outcome in &report.outcomes {
        counts.deferrals += u64::from(matches!(outcome.disposition, Disposition::Defer { .. }));
        counts.defer_for_table += u64::from(is_put_off(outcome));
    }
    counts
}

/// The messages that cannot be called in order: the table was throttled or down when they asked, or
/// Lambda delivered them late, since its pollers had too many others.
#[derive(Default)]
struct LateMessages {
    /// The numbers of the messages, by the ids of their first deliveries.
    numbers: HashMap<String, u32>,
    /// When a message that waits is due.
    due: HashMap<u32, Instant>,
    late: BTreeSet<u32>,
}

impl LateMessages {
    fn add(&mut self, id: String, number: u32) {
        self.numbers.insert(id, number);
    }

    /// Notes a batch. `was_throttled` says that the table took no request of it at first.
    fn note(&mut self, handled: &Handled<'_>, was_throttled: bool) {
        let now = Instant::now();
        for outcome in &handled.report.outcomes {
            let id = outcome.original_message_id.as_ref();
            let Some(&number) = id.and_then(|id| self.numbers.get(id)) else { continue };
            let is_late = |due| handled.delivered > due + BATCHING_WINDOW + ON_TIME;
            if self.due.remove(&number).is_some_and(is_late) || was_throttled || is_put_off(outcome)
            {
                self.late.insert(number);
            }
            if let Some(wait) = outcome.disposition.wait() {
                self.due.insert(number, now + wait.total());
            }
        }
    }
}

/// Whether the table took no request for a message, or gave no answer.
fn is_put_off(outcome: &Outcome) -> bool {
    use Deferral::{TableThrottled, TableUnavailable};
    matches!(
        outcome.disposition,
        Disposition::Defer { reason: TableThrottled | TableUnavailable, .. }
    )
}
