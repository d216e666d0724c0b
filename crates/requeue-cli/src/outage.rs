//! `requeue simulate outage`: a backlog, a service that is down and then limits its rate, and
//! execution environments of a function in front of it; once without and once with pause and
//! circuit breaker. In virtual time, over the embedded queue.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use requeue::classify::Answer;
use requeue::embedded::{DEFAULT_ACCOUNT, DEFAULT_REGION, EmbeddedSqs, Fault};
use requeue::policy::RetryPolicy;
use requeue::queue::{MAX_BATCH_ENTRIES, Outgoing, Queue, QueueArn, ReceiveRequest, Source};
use requeue::{
    BatchProcessor, Clock, DeadLetterMode, Deferral, Delay, Disposition, Failure, Limits, Message,
    RecursiveLoop, Report, Sampler, Settings,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::output::{errln, outln};
use crate::table::{duration, table};
use crate::{Error, document};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Messages in the queue when the service goes down.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    messages: u32,
    /// How long it is down, in seconds.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    outage: u64,
    /// Of a hundred calls while it is down, so many by chance are answered as when it works; the
    /// others get 503.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    availability: u32,
    /// Calls that it takes in a second when it works, as many of them at once; it answers the
    /// others with 429 and `Retry-After: 1`.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// The policy document; `-` is the standard input. Default: the built-in policy.
    #[arg(long)]
    policy: Option<PathBuf>,
    /// The seed of all chance: the same seed gives the same run.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Execution environments, and how many calls they make at once, all together.
const ENVIRONMENTS: usize = 10;
const CONCURRENT_CALLS: usize = 32;
const FUNCTION_TIMEOUT: Duration = Duration::from_secs(60);
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(360);
/// When a run begins.
const START: Duration = Duration::from_secs(1_800_000_000);
/// What a call takes, and a request to SQS.
const CALL: Duration = Duration::from_millis(100);
const REQUEST: Duration = Duration::from_millis(10);
/// Long polling, as Lambda's poller does.
const POLL: Duration = Duration::from_secs(20);
/// In a terminal a line says so often how far a run is.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let protected = match &arguments.policy {
        Some(file) => document::read(file)?.0,
        None => RetryPolicy::default(),
    };
    let unprotected = RetryPolicy { max_pause: None, circuit_breaker: None, ..protected.clone() };
    let without = simulate(arguments, unprotected, WITHOUT)?;
    let with = simulate(arguments, protected, WITH)?;
    if arguments.json {
        outln!("{:#}", json!({ "without": without.json(), "with": with.json() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let Arguments { messages, outage, rate, availability, .. } = arguments;
    let down = match availability {
        0 => "is down".to_owned(),
        some => format!("answers {some} % of the calls"),
    };
    outln!(
        "{messages} messages; a service that {down} for {} and then takes {rate} calls a second, so that they need {} at \
         least; {ENVIRONMENTS} execution environments with {CONCURRENT_CALLS} concurrent calls in all\n",
        duration(Duration::from_secs(*outage)),
        duration(arguments.least()),
    )?;
    let mut rows = table(&["", WITHOUT, WITH]);
    for (name, value) in ROWS {
        rows.add_row(vec![name.to_owned(), value(&without), value(&with)]);
    }
    outln!("{}", rows.trim_fmt())?;
    Ok(ExitCode::SUCCESS)
}

const WITHOUT: &str = "without pause and circuit breaker";
const WITH: &str = "with them";

type Row = (&'static str, fn(&Figures) -> String);

const ROWS: [Row; 11] = [
    ("calls while it was down", |figures| figures.calls_while_down.to_string()),
    ("done while it was down", |figures| {
        format!("{}, {:.1} a second", figures.done_while_down, figures.throughput_while_down)
    }),
    ("calls afterwards", |figures| figures.calls_afterwards.to_string()),
    ("  most in one second", |figures| figures.peak.to_string()),
    ("  refused by its limit", |figures| figures.refused.to_string()),
    ("until the backlog was gone, after it was back", |figures| {
        let drained = duration(figures.drained);
        match figures.ratio {
            Some(ratio) => format!("{drained}, {ratio:.2} × the least"),
            None => format!("{drained}, without the {} that were not delivered", figures.dead),
        }
    }),
    ("retries used", |figures| {
        format!("{}, {} of one message", figures.retries, figures.most_retries)
    }),
    ("longest time that a circuit was open", |figures| duration(figures.longest_open)),
    ("deferrals", |figures| figures.deferrals.to_string()),
    ("dead letters", |figures| figures.dead.to_string()),
    ("requests to SQS for each message", |figures| format!("{:.1}", figures.requests_per_message)),
];

impl Arguments {
    /// The time that the service needs for all of them, by its own rate.
    fn least(&self) -> Duration {
        Duration::from_secs_f64(f64::from(self.messages) / f64::from(self.rate))
    }
}

/// What came of a run.
struct Figures {
    calls_while_down: u64,
    done_while_down: u64,
    /// Messages done in a second, until it was back or all were done.
    throughput_while_down: f64,
    calls_afterwards: u64,
    peak: u64,
    refused: u64,
    drained: Duration,
    /// To the least time for all of them; `None` when not all were delivered.
    ratio: Option<f64>,
    retries: u64,
    most_retries: u32,
    longest_open: Duration,
    deferrals: u64,
    dead: usize,
    requests_per_message: f64,
}

impl Figures {
    fn json(&self) -> serde_json::Value {
        json!({
            "callsWhileDown": self.calls_while_down,
            "doneWhileDown": self.done_while_down,
            "throughputWhileDown": self.throughput_while_down,
            "callsAfterwards": self.calls_afterwards,
            "peakCallsPerSecond": self.peak,
            "refused": self.refused,
            "drainedSeconds": self.drained.as_secs_f64(),
            "ratio": self.ratio,
            "retries": self.retries,
            "mostRetries": self.most_retries,
            "longestOpenSeconds": self.longest_open.as_secs_f64(),
            "deferrals": self.deferrals,
            "deadLetters": self.dead,
            "requestsPerMessage": self.requests_per_message,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

fn simulate(
    arguments: &Arguments,
    policy: RetryPolicy,
    name: &'static str,
) -> Result<Figures, Error> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime
        .block_on(async { Simulation::set_up(arguments, policy, name).await?.run(arguments).await })
}

/// The stage, and what is noted on it.
struct Simulation {
    sqs: EmbeddedSqs,
    queue: QueueArn,
    dead_letters: QueueArn,
    settings: Settings,
    service: Service,
    noted: RefCell<Noted>,
    telling: RefCell<Telling>,
}

#[derive(Default)]
struct Noted {
    retries: u64,
    most_retries: u32,
    longest_open: Duration,
    deferrals: u64,
}

/// Says now and then how far a run is, on the standard error if that is a terminal. By the clock of
/// this machine: for the simulation no time passes meanwhile.
struct Telling {
    name: &'static str,
    began: Instant,
    clock: Clock,
    told: SystemTime,
    is_on: bool,
}

impl Telling {
    fn new(name: &'static str) -> Self {
        let clock = Clock::system();
        Self {
            name,
            began: Instant::now(),
            told: clock.now(),
            clock,
            is_on: std::io::stderr().is_terminal(),
        }
    }

    fn tell(&mut self, left: usize) {
        if !self.is_on {
            return;
        }
        let now = self.clock.now();
        if now.duration_since(self.told).is_ok_and(|time| time < BETWEEN_LINES) {
            return;
        }
        self.told = now;
        errln!("{}: after {}, {left} messages left", self.name, duration(self.began.elapsed()));
    }
}

impl Simulation {
    async fn set_up(
        arguments: &Arguments,
        policy: RetryPolicy,
        name: &'static str,
    ) -> Result<Self, Error> {
        // Not the time of day: its milliseconds would make each run another.
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
            let outgoing = |body| Outgoing {
                body,
                delay: Delay::default(),
                attributes: &attributes,
                group_id: None,
                deduplication_id: None,
            };
            let entries: Vec<Outgoing<'_>> = chunk.iter().map(|body| outgoing(body)).collect();
            sqs.send(&queue, &entries).await?;
        }
        sqs.set_faults(|_| Fault::AnswerAfter(REQUEST));
        let settings = Settings {
            policy,
            clock: clock.clone(),
            sampler: Sampler::seeded(arguments.seed),
            recursive_loop: RecursiveLoop::Allow,
            dead_letter: DeadLetterMode::Annotate,
            ..Settings::default()
        };
        let began = Instant::now();
        let service = Service {
            began,
            back_at: began + Duration::from_secs(arguments.outage),
            availability: f64::from(arguments.availability) / 100.0,
            // Not the one of the messages: another policy must not be another outage.
            sampler: Sampler::seeded(!arguments.seed),
            rate: f64::from(arguments.rate),
            clock,
            log: Arc::default(),
        };
        let telling = RefCell::new(Telling::new(name));
        Ok(Self { sqs, queue, dead_letters, settings, service, noted: RefCell::default(), telling })
    }

    async fn run(&self, arguments: &Arguments) -> Result<Figures, Error> {
        let requests = self.requests();
        let environments = (0..ENVIRONMENTS).map(|number| self.environment(number));
        for ended in join_all(environments).await {
            ended?;
        }
        let log = self.service.log.lock().unwrap_or_else(PoisonError::into_inner);
        let drained = log
            .last_done
            .map_or(Duration::ZERO, |last| last.saturating_duration_since(self.service.back_at));
        let down = self.service.back_at.min(log.last_done.unwrap_or(self.service.back_at))
            - self.service.began;
        let noted = self.noted.borrow();
        let dead = self.sqs.message_count(&self.dead_letters)?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let requests_per_message =
            (self.requests() - requests) as f64 / f64::from(arguments.messages);
        Ok(Figures {
            calls_while_down: log.while_down,
            done_while_down: log.done_while_down,
            throughput_while_down: per_second(log.done_while_down, down),
            calls_afterwards: log.by_second.values().sum(),
            peak: log.by_second.values().copied().max().unwrap_or_default(),
            refused: log.refused,
            drained,
            ratio: (dead == 0).then(|| drained.as_secs_f64() / arguments.least().as_secs_f64()),
            retries: noted.retries,
            most_retries: noted.most_retries,
            longest_open: noted.longest_open,
            deferrals: noted.deferrals,
            dead,
            requests_per_message,
        })
    }

    fn requests(&self) -> u64 {
        let operations = [
            "ReceiveMessage",
            "SendMessageBatch",
            "DeleteMessageBatch",
            "ChangeMessageVisibilityBatch",
        ];
        operations.iter().map(|operation| self.sqs.call_count(operation)).sum()
    }

    /// One execution environment, which is given one batch after the other until nothing is left.
    async fn environment(&self, number: usize) -> Result<(), Error> {
        let concurrency =
            CONCURRENT_CALLS / ENVIRONMENTS + usize::from(number < CONCURRENT_CALLS % ENVIRONMENTS);
        let settings = Settings {
            limits: Limits { concurrency, ..Limits::default() },
            ..self.settings.clone()
        };
        let service = self.service.clone();
        let handler = move |_: Message| {
            let service = service.clone();
            async move { service.call().await }
        };
        let processor = BatchProcessor::new(handler, self.sqs.clone(), settings);
        let ask =
            ReceiveRequest { max: MAX_BATCH_ENTRIES, wait: POLL, visibility: VISIBILITY_TIMEOUT };
        let mut open_since = None;
        loop {
            let left = self.sqs.message_count(&self.queue)?;
            if left == 0 {
                break;
            }
            self.telling.borrow_mut().tell(left);
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
            // As the poller does.
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

    /// `open_since` is when the environment deferred a message for its circuit, if that was not
    /// followed by an answered call.
    fn note(&self, report: &Report, open_since: &mut Option<Instant>) {
        let mut noted = self.noted.borrow_mut();
        for outcome in &report.outcomes {
            if matches!(outcome.disposition, Disposition::Defer { why: Deferral::CircuitOpen, .. })
            {
                open_since.get_or_insert_with(Instant::now);
            } else if matches!(outcome.disposition, Disposition::Complete)
                && let Some(since) = open_since.take()
            {
                noted.longest_open = noted.longest_open.max(since.elapsed());
            }
            match outcome.disposition {
                Disposition::Requeue { .. } => {
                    noted.retries += 1;
                    noted.most_retries = noted.most_retries.max(outcome.retry_count + 1);
                }
                Disposition::Defer { .. } => noted.deferrals += 1,
                _ => {}
            }
        }
    }
}

/// What is called.
#[derive(Clone)]
struct Service {
    began: Instant,
    back_at: Instant,
    /// The part of the calls that it answers until then.
    availability: f64,
    sampler: Sampler,
    rate: f64,
    clock: Clock,
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    while_down: u64,
    done_while_down: u64,
    /// Calls in each second since it is back.
    by_second: BTreeMap<u64, u64>,
    refused: u64,
    tokens: f64,
    refilled_at: Option<Instant>,
    last_done: Option<Instant>,
}

impl Service {
    async fn call(&self) -> Result<(), Failure> {
        let status = self.answer();
        sleep(CALL).await;
        let headers: &[(&str, &[u8])] = match status {
            200 => return Ok(()),
            429 => &[("Retry-After", b"1")],
            _ => &[],
        };
        Err(Failure::from_answer(&Answer { status, headers, body: b"" }, self.clock.now()))
    }

    fn answer(&self) -> u16 {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
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
        // A bucket of as many tokens as it refills in a second.
        let refilled =
            now.saturating_duration_since(log.refilled_at.unwrap_or(self.began)).as_secs_f64()
                * self.rate;
        log.tokens = (log.tokens + refilled).min(self.rate);
        log.refilled_at = Some(now);
        if log.tokens < 1.0 {
            log.refused += 1;
            return 429;
        }
        log.tokens -= 1.0;
        log.done_while_down += u64::from(is_down);
        log.last_done = Some(now);
        200
    }
}
