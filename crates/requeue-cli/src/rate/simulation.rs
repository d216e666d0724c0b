//! One run: the queue, the execution environments, the table and the service, in virtual time.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use requeue::classify::Response;
use requeue::policy::{FairShares, MessageKey, RetryPolicy};
use requeue::{
    BatchProcessor, Deferral, Disposition, Failure, Handler, LimitControl, Message, Outcome,
    Report, Sampler, Scope, scoped,
};
use tokio::time::{Instant, sleep, sleep_until};

use super::Arguments;
use super::calls::{Call, Calls, place};
use super::figures::{Kept, RunCounts, figures};
use super::limits::{Bound, Change, units};
use crate::Error;
use crate::simulated::{
    Bucket, CALL, Figures, RunProgress, SimulatedFunction, SimulatedTable, World, number,
    number_at, requests, shared_by,
};
use parking_lot::Mutex;

/// The places of a message's tenant, one for each key that a policy may have.
const KEYS: [&str; 2] = ["/tenant", "/key"];

/// The other tenants send their messages within this time.
const FEEDING: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    None,
    /// Each environment has the limit alone.
    Nothing,
    /// All environments share the limit in a table.
    Table,
    /// All environments share the limit, and tenants have fair shares of it.
    Fair,
}

/// The service: it counts the calls, and takes as many as its true limit, if it has one.
#[derive(Clone)]
struct CountingService {
    began: Instant,
    /// The messages of the flood; each further one is that of another tenant.
    messages: u32,
    /// Whether the limit is that of all tenants.
    is_shared: bool,
    log: Arc<Mutex<ServiceLog>>,
}

#[derive(Default)]
struct ServiceLog {
    /// The calls to which the limit applies: those of the flood, or of all tenants.
    calls: Calls,
    /// When each other tenant sent its message.
    sent: BTreeMap<u32, Instant>,
    /// The places of the other tenants, message by message.
    senders: Vec<usize>,
    waits: Vec<Duration>,
    refused: u64,
    /// The calls that it takes, if it refuses any.
    bucket: Option<Bucket>,
}

impl CountingService {
    async fn call(&self, message: u32, units: u32) -> Result<(), Failure> {
        let refuses = {
            let mut log = self.log.lock();
            let now = Instant::now();
            if let Some(sent) = log.sent.remove(&message) {
                log.waits.push(now - sent);
            }
            let is_limited = self.is_shared || message < self.messages;
            if is_limited {
                log.calls.push(Call { at: now - self.began, message, units });
            }
            is_limited && log.bucket.as_mut().is_some_and(|bucket| !bucket.takes())
        };
        sleep(CALL).await;
        if refuses {
            let response = Response { status: 429, headers: &[], body: b"" };
            self.log.lock().refused += 1;
            return Err(Failure::from_response(&response, SystemTime::UNIX_EPOCH));
        }
        Ok(())
    }
}

pub(super) async fn simulate(
    arguments: &Arguments,
    plan: &RetryPolicy,
    bounds: &[Bound],
    sharing: Sharing,
    progress: RunProgress<'_>,
) -> Result<(Figures, Kept), Error> {
    let names = names(arguments, plan);
    let policy = limited(arguments, plan.clone(), sharing, &names)?;
    let world = World::new(arguments.simulation.seed, policy)?;
    let World { clock, sqs, queue, settings, .. } = &world;
    let mut backlog = Backlog::default();
    let tenants = arguments.tenants_of_backlog();
    for number in 0..arguments.messages {
        let units = units(number / u32::try_from(tenants)?);
        backlog.undone.insert(world.send(&names[place(number, tenants)], number, units)?);
    }
    let began = Instant::now();
    let down = arguments.table_down.map(|(from, to)| began + from..began + to);
    let has_table = matches!(sharing, Sharing::Table | Sharing::Fair);
    let table = has_table.then(|| SimulatedTable::new(clock.clone(), down));
    let period = plan.limit.map_or(1.0, |limit| limit.period.as_secs_f64());
    let bucket = arguments.true_limit.map(|limit| Bucket::full(f64::from(limit) / period));
    let log = Arc::new(Mutex::new(ServiceLog { bucket, ..ServiceLog::default() }));
    let is_shared = arguments.has_shares();
    let service = CountingService { began, messages: arguments.messages, is_shared, log };
    let environments = (0..arguments.environments + arguments.deaths).map(|_| {
        let mut settings = settings.clone();
        settings.shared_table =
            table.as_ref().map(|table| shared_by(arguments.environments, table));
        BatchProcessor::new(handler(&service), sqs.clone(), settings)
    });
    let mut function = SimulatedFunction::new(sqs.clone(), queue.clone(), environments.collect());
    function.deaths.set(arguments.deaths.try_into()?);
    function.is_warm = arguments.warm;
    let others = if is_shared { 0 } else { arguments.tenants };
    let progress = progress.counting(arguments.messages + others, Duration::ZERO);
    let counts = Cell::default();
    let backlog = RefCell::new(backlog);
    let is_done = || backlog.borrow().undone.is_empty();
    let feeding = feed(arguments, &world, &service, &bounds[0], &names[tenants..], is_done);
    let changing = change(arguments, &world, &names[0], began, table.as_ref());
    let feeding = async { tokio::try_join!(feeding, changing).map(|_| ()) };
    function
        .drain(feeding, |handled| {
            counts.set(counted(counts.get(), handled.report));
            backlog.borrow_mut().note(handled.report);
            progress.tell(handled.left);
        })
        .await?;
    let mut log = service.log.lock();
    let (calls, waits, senders) =
        (take(&mut log.calls), take(&mut log.waits), take(&mut log.senders));
    let tenant = |message: u32| match message.checked_sub(arguments.messages) {
        None => place(message, tenants),
        Some(number) => tenants + senders[usize::try_from(number).unwrap_or_default()],
    };
    let counts = RunCounts {
        deferrals_of_backlog: backlog.into_inner().deferrals,
        refused: arguments.true_limit.map(|_| log.refused),
        sqs_requests: requests(sqs),
        table_requests: table.map(|table| table.requests()),
        ..counts.get()
    };
    let (figures, mut kept) = figures(arguments, bounds, &calls, tenant, waits, counts);
    if !has_table {
        kept.broken.clear();
    }
    Ok((figures, kept))
}

/// The names of the tenants: first those of the backlog. Others have the weights of the policy.
fn names(arguments: &Arguments, policy: &RetryPolicy) -> Vec<String> {
    let number = |number: usize| format!("tenant-{number}");
    let backlog = arguments.tenants_of_backlog();
    let weighted = policy.fair_shares.iter().flat_map(|shares| shares.weights.keys().cloned());
    let all = (0..backlog).map(number).chain(weighted).chain((backlog..).map(number));
    all.take(backlog + usize::try_from(arguments.tenants).unwrap_or_default()).collect()
}

/// The policy with the limits of the run, and their places in a message.
fn limited(
    arguments: &Arguments,
    mut policy: RetryPolicy,
    sharing: Sharing,
    names: &[String],
) -> Result<RetryPolicy, Error> {
    if sharing == Sharing::None {
        (policy.limit, policy.units) = (None, None);
        policy.key_limits.clear();
    }
    let of_units: MessageKey = "/units".parse()?;
    policy.units = policy.units.map(|_| of_units.clone());
    for (limit, key) in policy.key_limits.iter_mut().zip(KEYS) {
        limit.key = key.parse()?;
        limit.units = limit.units.take().map(|_| of_units.clone());
    }
    if arguments.has_shares() {
        let own = policy.fair_shares.take();
        if sharing == Sharing::Fair {
            let mut shares = FairShares::by(KEYS[0].parse()?);
            shares.weights = own.map(|own| own.weights).unwrap_or_default();
            shares.weights.extend(names.iter().cloned().zip(arguments.weights.iter().copied()));
            policy.fair_shares = Some(shares);
        }
    }
    Ok(policy)
}

/// Changes the limit as an operator does, and lets the change end by itself.
async fn change(
    arguments: &Arguments,
    world: &World,
    tenant: &str,
    began: Instant,
    table: Option<&SimulatedTable>,
) -> Result<(), Error> {
    let Some((Change { limit, from, to }, table)) = arguments.change.zip(table) else {
        return Ok(());
    };
    let World { settings, clock, .. } = world;
    sleep_until(began + from).await;
    let shared = shared_by(arguments.environments, table);
    let (policy, scope) = (&settings.policy, Scope::default());
    let control = match policy.key_limits.first().filter(|_| policy.limit.is_none()) {
        None => LimitControl::new(&shared, policy, None, scope),
        Some(first) => LimitControl::of_key(&shared, policy, None, scope, &first.key, tenant),
    };
    let control = control.ok_or("there is no limit to change")?.with_clock(clock.clone());
    let until = Some(clock.now() + to.saturating_sub(from));
    match limit {
        Some(limit) => control.set(limit, until).await?,
        None => control.pause(until).await?,
    }
    Ok(())
}

/// Each tenant is a scope, unless all share the limit; the flood is of one.
fn handler(service: &CountingService) -> impl Handler + use<> {
    let service = service.clone();
    let flood = if service.is_shared { u32::MAX } else { service.messages };
    let handler = move |message: Message| {
        let service = service.clone();
        async move { service.call(number(&message), number_at(&message, "units")).await }
    };
    scoped(handler, move |message: &Message| match number(message) {
        number if number < flood => Scope::default(),
        number => Scope::of(number.to_string()),
    })
}

/// Sends the messages of the other tenants: one of each, or their load until the flood is done.
async fn feed(
    arguments: &Arguments,
    world: &World,
    service: &CountingService,
    bound: &Bound,
    names: &[String],
    is_done: impl Fn() -> bool,
) -> Result<(), Error> {
    let sampler = Sampler::seeded(arguments.simulation.seed.rotate_left(1));
    let mut times: Vec<_> =
        (0..arguments.tenants).map(|_| FEEDING.mul_f64(sampler.sample())).collect();
    times.sort_unstable();
    let (mut times, mut last) = (times.into_iter(), Duration::ZERO);
    let mut next = || match arguments.load {
        None => times.next(),
        Some(load) => {
            let between = 100.0 / f64::from(load) / bound.messages();
            last += Duration::from_secs_f64(-(1.0 - sampler.sample()).ln() * between);
            (!is_done()).then_some(last)
        }
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let any = |sample: f64| (sample * f64::from(arguments.tenants)) as usize;
    for number in arguments.messages.. {
        let Some(at) = next() else { break };
        sleep_until(service.began + at).await;
        let sender = any(sampler.sample());
        let mut log = service.log.lock();
        log.sent.insert(number, Instant::now());
        log.senders.push(sender);
        world.send(&names[sender], number, units(number))?;
    }
    Ok(())
}

fn counted(mut counts: RunCounts, report: &Report) -> RunCounts {
    for outcome in &report.outcomes {
        counts.deferrals += u64::from(is_deferred(outcome));
        counts.defer_for_table += u64::from(is_deferred_for_table(outcome));
    }
    counts
}

#[derive(Default)]
struct Backlog {
    /// The ids of the first deliveries of the messages that are not done.
    undone: HashSet<String>,
    deferrals: u64,
}

impl Backlog {
    fn note(&mut self, report: &Report) {
        for outcome in &report.outcomes {
            let id = outcome.original_message_id.as_deref().unwrap_or_default();
            if !self.undone.contains(id) {
                continue;
            }
            self.deferrals += u64::from(is_deferred(outcome));
            if let Disposition::Complete | Disposition::DeadLetter { .. } = outcome.disposition {
                self.undone.remove(id);
            }
        }
    }
}

fn is_deferred(outcome: &Outcome) -> bool {
    matches!(outcome.disposition, Disposition::Defer { .. })
}

/// Whether the table throttled for a message, or gave no response.
fn is_deferred_for_table(outcome: &Outcome) -> bool {
    use Deferral::{TableThrottled, TableUnavailable};
    matches!(
        outcome.disposition,
        Disposition::Defer { reason: TableThrottled | TableUnavailable, .. }
    )
}
