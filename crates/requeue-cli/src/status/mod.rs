//! `requeue status`. It only reads; a fact that no service returns is unknown, with the reason.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use requeue::queue::{Description, QueueArn};
use serde_json::{Value, json};
use tokio::runtime::Builder;

use crate::dlq::sqs::Sqs;
use crate::doctor::Clients;
use crate::duration_argument::within;
use crate::endpoints::{has_sqs_alone, shown_endpoint};
use crate::observe::epoch_millis;
use crate::queue_argument::{QueueName, RegionArgument};
use crate::send::{only_queue, served};
use crate::stop::Stop;
use crate::table::Head::{Breakable, Number, Text};
use crate::table::{Rows, clock_time, counted, moment, span, thousands};
use crate::{Error, output};

mod read;
mod log;
mod notes;

use log::{Circuit, Failure, LogFacts};
use read::Reader;

#[derive(clap::Args)]
#[command(
    after_help = "SQS tells the depth, CloudWatch the age of the oldest message and the counts of a \
                  function, and the function's log its circuit and its failures. The command only \
                  reads, and receives no message. A fact that it cannot read is unknown, with the \
                  reason.\n\n\
                  Without a queue, it shows the only one at the endpoint that AWS_ENDPOINT_URL_SQS, \
                  AWS_ENDPOINT_URL or the AWS profile sets. Without such an endpoint, or with \
                  --sqs-port, it shows a queue of `requeue serve` on this machine.\n\n\
                  Permissions: sqs:GetQueueAttributes on both queues, and with a queue's name \
                  sqs:GetQueueUrl; lambda:ListEventSourceMappings, lambda:GetFunctionConfiguration, \
                  lambda:GetFunctionConcurrency, cloudwatch:GetMetricStatistics and logs:FilterLogEvents.\n\n\
                  Exit status: 0; 1 if the queue or the function cannot be read."
)]
pub(crate) struct Arguments {
    /// The queue: its name, URL or ARN. [default: the only one at the endpoint of AWS's environment,
    /// or of `requeue serve`]
    #[arg(value_name = "QUEUE", conflicts_with_all = ["queue", "function"])]
    source: Option<QueueName>,
    /// The same as an option.
    #[arg(
        long,
        alias = "queue-url",
        value_name = "QUEUE",
        help_heading = "Queue",
        conflicts_with = "function"
    )]
    queue: Option<QueueName>,
    /// A deployed function, by its name or ARN, with all its queues.
    #[arg(long, value_name = "NAME", conflicts_with = "sqs_port")]
    function: Option<String>,
    /// How far back to look at log and counts: up to 1d.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = within(60..=86_400))]
    since: Duration,
    /// The port of `requeue serve` on 127.0.0.1. [default: 9324]
    #[arg(long, value_name = "PORT", help_heading = "Queue", conflicts_with = "region")]
    sqs_port: Option<u16>,
    #[command(flatten)]
    region: RegionArgument,
    /// Print JSON instead of tables.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

struct Status {
    now: SystemTime,
    since: Duration,
    queues: Vec<Depth>,
    functions: Vec<FunctionStatus>,
    /// A line for each fact that is not known.
    unknown: Vec<String>,
}

struct Depth {
    queue: QueueArn,
    is_of_dead_letters: bool,
    /// `None` if SQS does not return them.
    counts: Option<Description>,
    oldest: Age,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    Unknown,
    Empty,
    Of(Duration),
}

struct FunctionStatus {
    name: String,
    /// In Lambda's words.
    state: String,
    reserved_concurrency: Option<u32>,
    /// A line for each invalid setting, with which the function does not start.
    invalid_settings: Vec<String>,
    /// The queue and the state of each mapping.
    mappings: Vec<(String, String)>,
    /// The messages, in the order of `METRICS`.
    counts: Option<[u64; METRICS.len()]>,
    log: Option<LogFacts>,
    log_since: Duration,
}

/// The words of the output, and the metrics.
const METRICS: [(&str, &str); 6] = [
    ("received", "Received"),
    ("completed", "Completed"),
    ("retried", "Requeued"),
    ("deferred", "Deferred"),
    ("left to SQS", "Released"),
    ("dead-lettered", "DeadLettered"),
];

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    Stop::end_at_once()?;
    let status = runtime.block_on(read(arguments))?;
    if arguments.json {
        output::json(&status.json())?;
    } else {
        output::words(&status.text())?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn read(arguments: &Arguments) -> Result<Status, Error> {
    let Arguments { function, region, sqs_port, .. } = arguments;
    let mut queue = arguments.queue.clone().or_else(|| arguments.source.clone());
    if queue.is_none() && function.is_none() && sqs_port.is_none() {
        queue = only_queue(region, region.given().is_some()).await?;
    }
    match (function, queue) {
        (Some(function), _) => {
            let sdk = crate::sdk::config().await;
            let clients = Clients::new(&sdk, region.of_function(function, &sdk));
            let invoked = clients.invoked(function).await?;
            let sqs = Sqs::of(&clients.sdk, shown_endpoint("SQS", &clients.sdk));
            Reader::new(arguments, sqs, Some(clients)).of_function(invoked).await
        }
        (None, Some(queue)) if sqs_port.is_none() => {
            let sdk = crate::sdk::config().await;
            let found = queue.find("--queue", region, &sdk).await?;
            found.note.iter().for_each(|text| output::remark(text));
            let clients = Clients::new(&sdk, found.arn.region());
            let sqs = Sqs::of(&clients.sdk, found.endpoint);
            let clients = Some(clients).filter(|_| !has_sqs_alone(&sdk));
            Reader::new(arguments, sqs, clients).of_queue(&found.arn).await
        }
        (None, queue) => {
            let (found, sdk) = served(*sqs_port, queue.as_ref()).await?;
            let sqs = Sqs::of(&sdk, found.endpoint);
            Reader::new(arguments, sqs, None).of_queue(&found.arn).await
        }
    }
}

const SHOWN: usize = 5;
const IN_JSON: usize = 100;

fn time(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

impl Status {
    fn text(&self) -> String {
        let mut parts = Vec::new();
        if !self.queues.is_empty() {
            parts.push(queues(&self.queues));
        }
        for function in &self.functions {
            parts.push(function.facts(self.now, self.since));
            parts.extend(function.failures());
        }
        let unknown = self.unknown.iter().map(|text| format!("unknown: {text}"));
        let notes = self.notes().into_iter().map(|text| format!("note: {text}"));
        let rest = unknown.chain(notes).collect::<Vec<_>>().join("\n");
        parts.extend(Some(rest).filter(|text| !text.is_empty()));
        parts.join("\n\n") + "\n"
    }

    fn json(&self) -> Value {
        let queue = |depth: &Depth| {
            let count = |of: fn(&Description) -> u64| depth.counts.as_ref().map(of);
            json!({
                "queue": depth.queue.to_string(),
                "deadLetters": depth.is_of_dead_letters,
                "visible": count(visible),
                "inFlight": count(|counts| counts.in_flight),
                "delayed": count(|counts| counts.delayed),
                "oldestSeconds": match depth.oldest {
                    Age::Of(age) => Some(age.as_secs()),
                    Age::Unknown | Age::Empty => None,
                },
            })
        };
        json!({
            "at": moment(self.now),
            "sinceSeconds": self.since.as_secs(),
            "queues": self.queues.iter().map(queue).collect::<Vec<_>>(),
            "functions": self.functions.iter().map(|one| one.json(self.now)).collect::<Vec<_>>(),
            "unknown": self.unknown,
            "notes": self.notes(),
        })
    }
}

fn visible(counts: &Description) -> u64 {
    counts.messages.saturating_sub(counts.in_flight + counts.delayed)
}

fn queues(depths: &[Depth]) -> String {
    let mut rows = Rows::under([
        Text("queue"),
        Number("visible"),
        Number("in flight"),
        Number("delayed"),
        Number("oldest"),
    ]);
    for Depth { queue, counts, oldest, .. } in depths {
        let count = |of: fn(&Description) -> u64| {
            counts.as_ref().map_or_else(|| "unknown".to_owned(), |counts| thousands(of(counts)))
        };
        let oldest = match oldest {
            Age::Unknown => "unknown".to_owned(),
            Age::Empty => "none".to_owned(),
            Age::Of(age) => span(*age),
        };
        rows.add([
            queue.name().to_owned(),
            count(visible),
            count(|counts| counts.in_flight),
            count(|counts| counts.delayed),
            oldest,
        ]);
    }
    rows.text()
}

impl FunctionStatus {
    fn facts(&self, now: SystemTime, since: Duration) -> String {
        let mut rows = Rows::under([Text("function"), Breakable("")]);
        let mut row = |name: &str, text: String| rows.add([name.to_owned(), text]);
        row("name", self.name.clone());
        row("state", self.state.clone());
        if let Some((at, why)) = self.log.as_ref().and_then(LogFacts::start_failure) {
            row("start", format!("failed at {} UTC: {why}", clock_time(at)));
        }
        for problem in &self.invalid_settings {
            row("setting", problem.clone());
        }
        if self.reserved_concurrency == Some(0) {
            row("concurrency", "reserved: 0, so Lambda never invokes the function".to_owned());
        }
        for (queue, state) in &self.mappings {
            row("mapping", format!("{queue}: {state}"));
        }
        row("circuit", self.circuit(now));
        let counts = self.counts.map(|counts| {
            let each = METRICS.iter().zip(counts);
            let each = each.map(|((word, _), count)| format!("{} {word}", thousands(count)));
            each.collect::<Vec<_>>().join(", ")
        });
        row(&format!("last {}", span(since)), counts.unwrap_or_else(|| "unknown".to_owned()));
        rows.text()
    }

    fn circuit(&self, now: SystemTime) -> String {
        let Some(log) = &self.log else { return "unknown".to_owned() };
        let at = |millis| format!("{} UTC", clock_time(time(millis)));
        match log.circuit() {
            Circuit::NotOpened => format!("not opened in the last {}", span(self.log_since)),
            Circuit::Closed { at: closed } => format!("closed at {}", at(closed)),
            Circuit::Open { since, environments, cause } => {
                let places = environments.map_or_else(
                    || "all execution environments".to_owned(),
                    |count| counted(count as u64, "execution environment"),
                );
                let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
                let due = log.next_due(epoch_millis(now));
                let due = due.map(|due| format!("; a deferred message is due at {}", at(due)));
                let due = due.unwrap_or_default();
                format!("open since {} in {places}{cause}{due}", at(since))
            }
        }
    }

    fn failures(&self) -> Option<String> {
        let failures = self.log.as_ref()?.failures();
        if failures.is_empty() {
            // A failed invocation has no line of a message.
            let since = span(self.log_since);
            return Some(format!("no line of a failed or waiting message in the last {since}"));
        }
        let mut rows = Rows::under([
            Text("last, UTC"),
            Number("messages"),
            Text("result"),
            Text("class"),
            Breakable("reason"),
        ]);
        for (Failure { result, class, reason }, count, at) in failures.iter().take(SHOWN) {
            let words = [*result, class.unwrap_or_default(), reason].map(str::to_owned);
            let [result, class, reason] = words;
            rows.add([clock_time(time(*at)), thousands(*count), result, class, reason]);
        }
        let more = failures.len().saturating_sub(SHOWN);
        let more = (more > 0).then(|| {
            let rest = failures[SHOWN..].iter().map(|(_, count, _)| count).sum::<u64>();
            format!(
                "\n{} more with {}",
                counted(rest, "message"),
                counted(more as u64, "other reason")
            )
        });
        Some(rows.text() + &more.unwrap_or_default())
    }

    fn json(&self, now: SystemTime) -> Value {
        let circuit = self.log.as_ref().map(|log| match log.circuit() {
            Circuit::NotOpened => json!({ "state": "not-opened" }),
            Circuit::Closed { at } => json!({ "state": "closed", "since": moment(time(at)) }),
            Circuit::Open { since, environments, cause } => json!({
                "state": "open",
                "since": moment(time(since)),
                "environments": environments,
                "shared": environments.is_none(),
                "cause": cause,
                "deferredUntil": log.next_due(epoch_millis(now)).and_then(|due| moment(time(due))),
            }),
        });
        let failures = self.log.as_ref().map(|log| {
            let failures = log.failures().into_iter().take(IN_JSON).map(|(one, count, at)| {
                json!({
                    "at": moment(time(at)),
                    "messages": count,
                    "result": one.result,
                    "class": one.class,
                    "failure": one.reason,
                })
            });
            failures.collect::<Vec<_>>()
        });
        let counts = self.counts.map(|counts| {
            let each = METRICS.iter().zip(counts);
            let each = each.map(|((_, metric), count)| ((*metric).to_owned(), count.into()));
            Value::Object(each.collect())
        });
        let mappings =
            self.mappings.iter().map(|(queue, state)| json!({ "queue": queue, "state": state }));
        json!({
            "function": self.name,
            "state": self.state,
            "reservedConcurrency": self.reserved_concurrency,
            "invalidSettings": self.invalid_settings,
            "startFailure": self.log.as_ref().and_then(LogFacts::start_failure).map(|(at, why)| {
                json!({ "at": moment(at), "error": why })
            }),
            "mappings": mappings.collect::<Vec<_>>(),
            "circuit": circuit,
            "counts": counts,
            "logSinceSeconds": self.log_since.as_secs(),
            "failures": failures,
        })
    }
}
