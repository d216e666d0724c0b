//! The parts of the simulations, which all run in virtual time, and their runs side by side.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, pending};
use parking_lot::Mutex;
use requeue::embedded::{DEFAULT_ACCOUNT, DEFAULT_REGION, EmbeddedSqs};
use requeue::policy::RetryPolicy;
use requeue::queue::{Outgoing, QueueArn};
use requeue::table::{Key, MemoryTable, Table, TableError, TableResponse, Update};
use requeue::{Clock, DeadLetterMode, Message, RecursiveLoop, Sampler, Settings, SharedTable};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use crate::Error;
use crate::document::PolicyArgument;
use crate::local_sqs::ServedQueue;
use crate::output::{self, outln};
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::table::Head::{Number, Text};
use crate::table::{Rows, decimal, span, thousands};

mod function;

pub(crate) use function::{SimulatedFunction, requests};

/// A fixed time: the milliseconds of the real one would make each run different.
const START: Duration = Duration::from_secs(1_800_000_000);
/// SQS's default. Each receive asks for a time of its own.
const VISIBILITY: Duration = Duration::from_secs(30);
pub(crate) const CALL: Duration = Duration::from_millis(100);

pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) sqs: EmbeddedSqs,
    pub(crate) queue: QueueArn,
    pub(crate) dead_letters: QueueArn,
    pub(crate) settings: Settings,
}

impl World {
    pub(crate) fn new(seed: u64, policy: RetryPolicy) -> Result<Self, Error> {
        let clock = Clock::starting_at(SystemTime::UNIX_EPOCH + START);
        let sqs = EmbeddedSqs::seeded(clock.clone(), DEFAULT_REGION, DEFAULT_ACCOUNT, seed);
        let ServedQueue { queue, dead_letters } =
            ServedQueue::create(&sqs, "orders", 5, VISIBILITY)?;
        let mut settings = Settings::default();
        settings.policy = policy;
        settings.sampler = Sampler::seeded(seed);
        settings.recursive_loop = RecursiveLoop::Allow;
        settings.dead_letter = Some(DeadLetterMode::Annotate);
        Ok(Self { clock, sqs, queue, dead_letters, settings })
    }

    /// The values of `key` are those of `tenant`, for a second limit of each.
    pub(crate) fn send(&self, tenant: &str, number: u32, units: u32) -> Result<String, Error> {
        let body = json!({ "order": number, "tenant": tenant, "key": tenant, "units": units });
        let body = body.to_string();
        Ok(self.sqs.put(&self.queue, &Outgoing::new(&body, &BTreeMap::new()))?)
    }
}

pub(crate) fn number(message: &Message) -> u32 {
    number_at(message, "order")
}

pub(crate) fn number_at(message: &Message, name: &str) -> u32 {
    let body: Value = serde_json::from_str(message.body()).unwrap_or_default();
    body[name].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
}

pub(crate) fn shared_by(environments: u32, table: &SimulatedTable) -> SharedTable {
    let mut shared_table = SharedTable::by(Arc::new(table.clone()));
    shared_table.max_environments = environments;
    shared_table
}

/// The calls or writes that are taken: a bucket of tokens that refills completely in a second.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: f64,
    tokens: f64,
    refilled_at: Instant,
}

impl Bucket {
    pub(crate) fn empty(rate: f64) -> Self {
        Self { rate, tokens: 0.0, refilled_at: Instant::now() }
    }

    pub(crate) fn full(rate: f64) -> Self {
        Self { tokens: rate.max(1.0), ..Self::empty(rate) }
    }

    pub(crate) fn takes(&mut self) -> bool {
        let now = Instant::now();
        let refilled = now.duration_since(self.refilled_at).as_secs_f64() * self.rate;
        self.tokens = (self.tokens + refilled).min(self.rate.max(1.0));
        self.refilled_at = now;
        let takes = self.tokens >= 1.0;
        if takes {
            self.tokens -= 1.0;
        }
        takes
    }
}

/// The latency of a request, and of its response.
const REQUEST: Duration = Duration::from_millis(2);
const RESPONSE: Duration = Duration::from_millis(3);
/// The most writes of one item in a second. DynamoDB allows a partition as many.
const WRITES: f64 = 1_000.0;

/// A table in this process that behaves as a remote one.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedTable(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    items: MemoryTable,
    clock: Clock,
    requests: AtomicU64,
    /// It does not respond in this time.
    down: Option<Range<Instant>>,
    capacity: Mutex<HashMap<Key, Bucket>>,
}

impl SimulatedTable {
    pub(crate) fn new(clock: Clock, down: Option<Range<Instant>>) -> Self {
        Self(Arc::new(Shared {
            items: MemoryTable::default(),
            clock,
            requests: AtomicU64::default(),
            down,
            capacity: Mutex::default(),
        }))
    }

    pub(crate) fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::Relaxed)
    }
}

impl Shared {
    async fn arrive(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        sleep(REQUEST).await;
        if self.down.as_ref().is_some_and(|down| down.contains(&Instant::now())) {
            pending::<()>().await;
        }
    }

    async fn respond(
        &self,
        answer: Result<TableResponse, TableError>,
    ) -> Result<TableResponse, TableError> {
        // HTTP cuts dates to whole seconds.
        let since_epoch =
            self.clock.now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let date = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(since_epoch.as_secs()));
        sleep(RESPONSE).await;
        Ok(TableResponse { date, ..answer? })
    }
}

impl Table for SimulatedTable {
    fn update<'a>(
        &'a self,
        key: &'a Key,
        update: &'a Update,
    ) -> BoxFuture<'a, Result<TableResponse, TableError>> {
        async move {
            let table = &self.0;
            table.arrive().await;
            let full = || Bucket::full(WRITES);
            let is_taken = table.capacity.lock().entry(*key).or_insert_with(full).takes();
            let answer = if is_taken {
                table.items.update(key, update).await
            } else {
                Err(TableError::Throttled)
            };
            table.respond(answer).await
        }
        .boxed()
    }

    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<TableResponse, TableError>> {
        async move {
            self.0.arrive().await;
            let answer = self.0.items.read(key).await;
            self.0.respond(answer).await
        }
        .boxed()
    }
}

#[derive(clap::Args)]
pub(crate) struct SimulationArguments {
    #[command(flatten)]
    pub(crate) policy: PolicyArgument,
    /// The seed of all random numbers: the same seed gives the same run.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub(crate) struct Run<S> {
    pub(crate) name: &'static str,
    pub(crate) key: &'static str,
    pub(crate) settings: S,
}

/// The figures of a run: rows for a reader, and values by their names in JSON.
#[derive(Default)]
pub(crate) struct Figures {
    rows: Vec<(String, String)>,
    json: Map<String, Value>,
}

impl Figures {
    pub(crate) fn value(&mut self, name: &str, value: impl Into<Value>) {
        self.json.insert(name.to_owned(), value.into());
    }

    pub(crate) fn row(&mut self, head: impl Into<String>, shown: String) {
        self.rows.push((head.into(), shown));
    }

    pub(crate) fn count(&mut self, head: &str, name: &str, count: impl TryInto<u64>) {
        let count = count.try_into().unwrap_or(u64::MAX);
        self.row(head, thousands(count));
        self.value(name, count);
    }

    pub(crate) fn decimal(&mut self, head: &str, name: &str, value: f64, digits: usize) {
        self.row(head, decimal(value, digits));
        self.value(name, value);
    }

    /// In whole seconds for a reader.
    pub(crate) fn time(&mut self, head: &str, name: &str, time: Duration) {
        self.row(head, span(Duration::from_secs(time.as_secs())));
        self.value(name, time.as_secs_f64());
    }
}

/// The runs with their figures, and with what else is known of each.
pub(crate) struct Comparison<T>(Vec<(Run<()>, Figures, T)>);

impl<T> Comparison<T> {
    /// For a command: shows the simulated system, and continues until a signal ends the process.
    pub(crate) fn shown<S>(
        arguments: &SimulationArguments,
        head: &str,
        runs: impl IntoIterator<Item = Run<S>>,
        simulate: &impl AsyncFn(S, RunProgress<'_>) -> Result<(Figures, T), Error>,
    ) -> Result<Self, Error> {
        if !arguments.json {
            output::words(&format!("{head}\n\n"))?;
        }
        Stop::end_at_once()?;
        let (_never, stop) = Stop::by_hand();
        Self::of(runs, &CommandProgress::shown("simulating"), &stop, simulate)
    }

    pub(crate) fn of<S>(
        runs: impl IntoIterator<Item = Run<S>>,
        progress: &CommandProgress,
        stop: &Stop,
        simulate: &impl AsyncFn(S, RunProgress<'_>) -> Result<(Figures, T), Error>,
    ) -> Result<Self, Error> {
        let mut compared = Vec::new();
        for Run { name, key, settings } in runs {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().start_paused(true).build()?;
            let (figures, more) = runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = stop.told() => Err("stopped before its end".into()),
                    ended = simulate(settings, RunProgress::begin(progress, name)) => ended,
                }
            })?;
            compared.push((Run { name, key, settings: () }, figures, more));
        }
        Ok(Self(compared))
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, &T)> {
        self.0.iter().map(|(run, _, more)| (run.name, more))
    }

    pub(crate) fn print(&self, arguments: &SimulationArguments) -> Result<ExitCode, Error> {
        if arguments.json {
            let runs = self.0.iter().map(|(run, figures, _)| (run.key.to_owned(), &figures.json));
            output::json(&runs.collect::<BTreeMap<_, _>>())?;
        } else {
            let heads = self.0.iter().map(|(run, ..)| Number(run.name));
            let mut rows = Rows::under([Text("")].into_iter().chain(heads));
            for (name, values) in self.rows() {
                rows.add([name].into_iter().chain(values).map(str::to_owned));
            }
            outln!("{}", rows.text())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    pub(crate) fn page(&self) -> Value {
        let names: Vec<&str> = self.0.iter().map(|(run, ..)| run.name).collect();
        let row = |(name, values)| json!({ "name": name, "values": values });
        json!({ "names": names, "rows": self.rows().map(row).collect::<Vec<_>>() })
    }

    /// Each name with the values of all runs, which have the same rows.
    fn rows(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        let first = self.0.first().map_or(&[][..], |(_, figures, _)| &figures.rows);
        first.iter().enumerate().map(|(at, (name, _))| {
            let values = self.0.iter().map(|(_, figures, _)| figures.rows[at].1.as_str());
            (name.as_str(), values.collect())
        })
    }
}

/// The progress of a run: the virtual time of an outage, and then the messages that left the queue.
pub(crate) struct RunProgress<'a> {
    command: &'a CommandProgress,
    messages: u64,
    began: Instant,
    outage: Duration,
}

impl<'a> RunProgress<'a> {
    fn begin(command: &'a CommandProgress, name: &'static str) -> Self {
        command.step(name);
        Self { command, messages: 0, began: Instant::now(), outage: Duration::ZERO }
    }

    /// For this many messages, of which none is done before the end of the outage.
    pub(crate) fn counting(self, messages: u32, outage: Duration) -> Self {
        Self { messages: messages.into(), outage, ..self }
    }

    pub(crate) fn tell(&self, left: usize) {
        let (time, left) = (self.began.elapsed(), u64::try_from(left).unwrap_or(u64::MAX));
        if time < self.outage {
            self.command.count("virtual s", Some(self.outage.as_secs()));
            self.command.done(time.as_secs());
        } else {
            self.command.count("messages", Some(self.messages));
            self.command.done(self.messages.saturating_sub(left));
        }
    }
}
