//! `requeue invoke`: one Lambda invocation, on the embedded queue or on a real one.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_sdk_sqs::config::ProvideCredentials;
use requeue::queue::SqsQueue;
use requeue::{
    BatchProcessor, Clock, FailureClass, Handler, InvocationError, Observers, Outcome, Record,
    Report, Sampler, Settings, Settlement, SqsEvent, aws, respond,
};
use requeue_lambda::{Config, HttpTarget, TargetRules, TargetUrl};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::time::Instant;

use crate::document::PolicyArgument;
use crate::duration_argument::within;
use crate::endpoint::{self, Endpoint};
use crate::local_function::{
    BEYOND_TARGET, FunctionProcesses, LatestStart, ProcessGroups, Program, SHUTDOWN_GRACE,
    local_target,
};
use crate::local_sqs::SQS_PORT;
use crate::observe::{CircuitLines, Observer, short_id};
use crate::output::{self, LineOutput};
use crate::places::{Embedded, Places};
use crate::progress::{CommandProgress, NOTICEABLE};
use crate::queue_argument::{QueueName, RegionArgument};
use crate::stop::Stop;
use crate::table::Head::{Number, Text};
use crate::table::{Rows, duration, messages};
use crate::{Error, bail, environment, failed_call};

#[derive(clap::Args)]
#[command(after_help = "The other settings come from the environment, as in the Lambda: \
                        REQUEUE_POLICY, REQUEUE_DEAD_LETTER and the others in \
                        docs/reference/settings.md. docs/start/local.md shows sample events.")]
pub(crate) struct Arguments {
    /// The file with the SQS event, as Lambda delivers it; `-` is the standard input.
    event: PathBuf,
    /// The URL to post the messages to, instead of `REQUEUE_TARGET_URL`. http only to this machine,
    /// unless `REQUEUE_ALLOW_HTTP=true`. Without any URL, a simulated endpoint responds as the
    /// field `answer` in each body says (ok, rate-limit, quota, unavailable, error, hang, reset,
    /// invalid); with the embedded queue, time is then virtual.
    #[arg(long)]
    target_url: Option<String>,
    /// Invoke an existing Lambda function, in any language, that the command after `--` runs by its
    /// runtime interface client, as in `requeue invoke EVENT --target -- python3 -m awslambdaric
    /// app.handler`.
    #[arg(long, conflicts_with = "target_url", requires = "command")]
    target: bool,
    /// The command of `--target`.
    #[arg(last = true, value_name = "COMMAND", requires = "target")]
    command: Vec<OsString>,
    /// Settle in this queue of real SQS instead of an embedded queue, with AWS's environment
    /// (`AWS_REGION`, `AWS_ENDPOINT_URL_SQS`, …): its name, URL or ARN.
    #[arg(long, alias = "queue-url", value_name = "QUEUE", help_heading = "Queue")]
    queue: Option<QueueName>,
    #[command(flatten)]
    region: RegionArgument,
    /// Settle in real SQS, in the queue that the ARN of each record names.
    #[arg(long, conflicts_with = "queue", help_heading = "Queue")]
    sqs: bool,
    #[command(flatten)]
    policy: PolicyArgument,
    /// The function's timeout. With `--target` that of your function; Requeue has 20 s more.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = within(1..=900))]
    timeout: Duration,
    /// Print JSON with the result of each message and the response, instead of a table and the
    /// response.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// A fixed number from 0 to 1 for the jitter of every message, instead of a random one.
    #[arg(long, value_parser = sample)]
    sample: Option<f64>,
}

fn sample(text: &str) -> Result<f64, String> {
    let sample = text.parse().ok().filter(|sample| (0.0..=1.0).contains(sample));
    sample.ok_or_else(|| "it must be a number from 0 to 1".to_owned())
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let runtime = || Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let mut config = runtime()?.block_on(Config::load())?;
    arguments.policy.apply_to(&mut config.settings)?;
    let records = read_event(arguments)?;
    if arguments.target {
        return runtime()?.block_on(invoke_function(arguments, config, records));
    }
    Stop::end_at_once()?;
    if let Some(target) = arguments.target_url(&config)? {
        return runtime()?.block_on(async {
            let target = HttpTarget::new(target, config.http)?;
            invoke(arguments, config.settings, records, target).await
        });
    }
    let runtime = if arguments.is_embedded() {
        Builder::new_current_thread().enable_all().start_paused(true).build()
    } else {
        runtime()
    };
    runtime?.block_on(async {
        let url = TargetUrl::parse(endpoint::URL)?;
        let target = HttpTarget::with_connector(url, config.http, Endpoint::default());
        invoke(arguments, config.settings, records, target).await
    })
}

impl Arguments {
    fn is_embedded(&self) -> bool {
        self.queue.is_none() && !self.sqs
    }

    fn invocation_timeout(&self) -> Duration {
        self.timeout + if self.target { BEYOND_TARGET } else { Duration::ZERO }
    }

    fn target_url(&self, config: &Config) -> Result<Option<TargetUrl>, Error> {
        let Some(url) = &self.target_url else { return Ok(config.target.clone()) };
        target(url, config.target_rules.clone()).map(Some)
    }
}

pub(crate) fn target(url: &str, rules: TargetRules) -> Result<TargetUrl, Error> {
    let target = TargetUrl::parse_with(url, rules).map_err(|error| {
        let remedy = error
            .allowed_by()
            .map(|name| format!("; set {name}=true to allow it"))
            .unwrap_or_default();
        format!("--target-url is invalid: {error}{remedy}")
    })?;
    Ok(target)
}

/// The longest event. Those of Lambda have at most 6 MB, and `requeue event` prints longer ones.
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

fn read_event(arguments: &Arguments) -> Result<Vec<Record>, Error> {
    let path = arguments.event.display();
    let text = environment::read(
        &arguments.event,
        MAX_EVENT_BYTES,
        "16 MiB; Lambda's own events have 6 MB",
    )
    .map_err(|error| format!("the event {path} cannot be read: {error}"))?;
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let event = SqsEvent::with_texts(text)
        .map_err(|error| format!("the event {path} is not JSON: {error}"))?;
    event.into_records().map_err(|error| {
        let what = match error {
            InvocationError::NoRecords { service: Some(service) } => {
                format!("is one of {service}, not of SQS")
            }
            _ => "has no list `Records`".to_owned(),
        };
        format!("the event {path} {what}; print a valid event with `requeue event BODY`").into()
    })
}

async fn invoke(
    arguments: &Arguments,
    mut settings: Settings,
    mut records: Vec<Record>,
    target: impl Handler,
) -> Result<ExitCode, Error> {
    let progress = CommandProgress::shown_after(NOTICEABLE, "asking for the queue");
    settings.observers = Observers::only(CircuitLines);
    settings.sampler = arguments.sample.map_or_else(Sampler::random, Sampler::always);
    let mut embedded = None;
    let queue = if arguments.is_embedded() {
        let clock = Clock::starting_at(received(&records)?);
        let made = embedded.insert(Embedded::with(&records, &settings, clock)?);
        SqsQueue::new(&made.sqs.client())
    } else {
        real_queue(arguments, &mut records).await?
    };
    let deadline = Instant::now() + arguments.invocation_timeout();
    progress.step(format!("waiting for the handler of {}", messages(records.len())));
    let report = BatchProcessor::new(target, queue, settings).process(records, deadline).await;
    drop(progress);
    if let Some(embedded) = embedded {
        let places = embedded.places();
        conclude(arguments, &report, |outcome| embedded_place(&places, outcome))?;
    } else {
        conclude(arguments, &report, place)?;
        unsettled(&report).map_or(Ok(()), Err)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// SQS by AWS's environment. Without credentials Requeue could settle no message.
async fn real_queue(arguments: &Arguments, records: &mut [Record]) -> Result<SqsQueue, Error> {
    let config = aws::config().await;
    if let Some(provider) = config.credentials_provider() {
        let provided = provider.provide_credentials().await;
        provided.map_err(|error| failed_call::credentials_refused(&error))?;
    }
    if let Some(queue) = &arguments.queue {
        let found = queue.find("--queue", &arguments.region, &config).await?;
        found.note.iter().for_each(|text| output::remark(text));
        let queue = Arc::new(found.arn);
        for record in records {
            record.queue = Some(Arc::clone(&queue));
        }
    }
    Ok(SqsQueue::new(&aws_sdk_sqs::Client::new(&config)))
}

fn unsettled(report: &Report) -> Option<Error> {
    let kept = report.outcomes.iter().filter(|outcome| outcome.settlement.is_kept());
    let codes: Vec<&str> = kept.filter_map(|outcome| outcome.settlement.code()).collect();
    let first = codes.first()?;
    let (count, all) = (codes.len(), report.outcomes.len());
    let remedy = "check the queue, the permissions and AWS_ENDPOINT_URL_SQS";
    Some(format!("SQS did not confirm {count} of {all} messages ({first}); {remedy}").into())
}

/// The receive time by its own time stamps: an old event file is replayed as a fresh one.
fn received(records: &[Record]) -> Result<SystemTime, Error> {
    // HTTP dates and AWS's signatures end with the year 9999, which the invocation needs.
    const YEAR_9999: Duration = Duration::from_secs(253_370_764_800);
    let mut latest = None;
    for (at, record) in records.iter().enumerate() {
        let times = [
            ("SentTimestamp", record.sent),
            ("ApproximateFirstReceiveTimestamp", record.first_received),
        ];
        for (name, time) in times.into_iter().filter_map(|(name, time)| Some((name, time?))) {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            if since >= YEAR_9999 {
                bail!(
                    "Records[{at}] has the {name} {}; it must be milliseconds since 1970, before \
                     the year 9999; correct the event",
                    since.as_millis()
                );
            }
            latest = latest.max(Some(time));
        }
    }
    Ok(latest.unwrap_or_else(|| Clock::system().now()))
}

/// The response on stdout, the table on stderr.
fn conclude(
    arguments: &Arguments,
    report: &Report,
    place: impl Fn(&Outcome) -> String,
) -> Result<(), Error> {
    let response = respond(report)?;
    if arguments.json {
        let messages: Vec<Value> =
            report.outcomes.iter().map(|outcome| json(outcome, &place(outcome))).collect();
        return output::json(&json!({ "messages": messages, "response": response }));
    }
    let mut rows = Rows::under([
        Text("message"),
        Number("attempt"),
        Text("class"),
        Text("disposition"),
        Text("delay"),
        Text("why"),
        Text("where it is now"),
    ]);
    for outcome in &report.outcomes {
        rows.add([
            outcome.message_id.as_deref().map_or_else(|| "(no id)".to_owned(), short_id),
            (outcome.retry_count + 1).to_string(),
            outcome.class.map_or(String::new(), |class| class.to_string()),
            disposition(outcome),
            delay(outcome),
            outcome.detail.clone().unwrap_or_default(),
            place(outcome),
        ]);
    }
    output::note(rows.note());
    output::json_line(&response)
}

fn json(outcome: &Outcome, place: &str) -> Value {
    json!({
        "messageId": outcome.message_id,
        "attempt": outcome.retry_count + 1,
        "class": outcome.class.map(FailureClass::as_str),
        "disposition": outcome.disposition.as_str(),
        "reason": outcome.disposition.reason(),
        "delaySeconds": outcome.disposition.wait().map(|wait| wait.total().as_secs_f64()),
        "detail": outcome.detail,
        "settlement": outcome.settlement.as_str(),
        "place": place,
    })
}

fn disposition(outcome: &Outcome) -> String {
    let name = outcome.disposition.as_str();
    outcome.disposition.reason().map_or_else(|| name.to_owned(), |why| format!("{name} ({why})"))
}

fn delay(outcome: &Outcome) -> String {
    let Some(wait) = outcome.disposition.wait() else { return String::new() };
    let wait = duration(wait.total());
    match outcome.retry.and_then(|retry| retry.cut_from) {
        Some(named) => format!("{wait}, cut from {} by maxRetryAfterSeconds", duration(named)),
        None => wait,
    }
}

fn place(outcome: &Outcome) -> String {
    match &outcome.settlement {
        Settlement::Done => "done; Lambda deletes it".to_owned(),
        Settlement::Moved => "a copy is in the queue, the original is deleted".to_owned(),
        Settlement::MovedNotDeleted { .. } => {
            "a copy is in the queue; Lambda deletes the original".to_owned()
        }
        Settlement::KeptNotDelayed { code } => format!(
            "in the queue, delay not confirmed ({code}); visible after its visibility timeout"
        ),
        Settlement::Kept => "in the queue; visible after its visibility timeout".to_owned(),
        Settlement::Unconfirmed { code } => format!(
            "in the queue, no copy confirmed ({code}); visible after its visibility timeout at the \
             latest"
        ),
        other => other.as_str().to_owned(),
    }
}

fn embedded_place(places: &Places, outcome: &Outcome) -> String {
    let (Some(id), Some(original)) = (&outcome.message_id, &outcome.original_message_id) else {
        return place(outcome);
    };
    if outcome.settlement == Settlement::Done {
        // A copy with its id belongs to a message of another queue.
        return place(outcome);
    }
    let itself = places.itself(id).filter_map(|at| match &outcome.settlement {
        Settlement::Unconfirmed { code } => Some(format!("no copy confirmed ({code}); {at}")),
        settlement => settlement.is_kept().then(|| at.to_owned()),
    });
    let found: Vec<String> = itself.chain(places.copies(id, original).map(str::to_owned)).collect();
    if found.is_empty() { place(outcome) } else { found.join("; ") }
}

/// `--target`: Requeue invokes a function on this machine.
async fn invoke_function(
    arguments: &Arguments,
    mut config: Config,
    records: Vec<Record>,
) -> Result<ExitCode, Error> {
    // Warnings of what the function returns.
    requeue::init_logging_to(tracing::Level::WARN, || output::Notes);
    let groups = ProcessGroups::default();
    let at_end = groups.clone();
    Stop::end_at_once_after(move || at_end.kill_all())?;
    // The embedded queue has no port. A function that sends messages reaches that of `requeue serve`,
    // or of the endpoint that this command was given.
    let given = environment::endpoint_variable("SQS").map(|(_, url)| url);
    let sqs_url = given.unwrap_or_else(|| format!("http://127.0.0.1:{SQS_PORT}"));
    let program = Program::target(&arguments.command, sqs_url, LineOutput::Stderr)?;
    let most = u16::try_from(config.settings.limits.concurrency).unwrap_or(u16::MAX).max(1);
    let (mut processes, function) =
        FunctionProcesses::new(program, groups.clone(), most, arguments.timeout, None);
    let mut starts = function.starts();
    let observer = Observer::new(None, false);
    let target = local_target(function, arguments.timeout, most, &mut config, observer);
    let ended = tokio::select! {
        error = processes.run() => Err(error),
        ended = async {
            // The first process may take its time, as when its command builds it.
            let _ = starts.wait_for(|latest| *latest != LatestStart::Pending).await;
            invoke(arguments, config.settings, records, target).await
        } => ended,
    };
    groups.end_all(SHUTDOWN_GRACE).await;
    ended
}
