//! `requeue status`: a queue and its function now. It only reads, and receives no message. It fetches
//! facts and shows them; a fact that nobody tells is unknown, with the reason.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use requeue::embedded::DEFAULT_REGION;
use requeue::queue::{Description, QueueArn, QueueUrl};
use tokio::runtime::Builder;

mod log;
mod read;
mod show;

use log::LogFacts;
use read::Reader;

use crate::dlq::sqs::Sqs;
use crate::doctor::{Arn, Clients};
use crate::duration_argument::within;
use crate::endpoints::{has_sqs_alone, shown_endpoint};
use crate::queue_argument::{QueueName, RegionArgument};
use crate::send::{only_queue, served};
use crate::stop::Stop;
use crate::{Error, output};

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
                  cloudwatch:GetMetricStatistics and logs:FilterLogEvents.\n\n\
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
    /// `None` if SQS does not tell them.
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
    /// The queue and the state of each mapping.
    mappings: Vec<(String, String)>,
    /// The messages, in the order of `METRICS`.
    counts: Option<[u64; METRICS.len()]>,
    log: Option<LogFacts>,
    log_since: Duration,
    has_scopes: bool,
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
            let of_arn = Some(Arn::of(function).region).filter(|region| !region.is_empty());
            let clients = Clients::new(&sdk, of_arn.unwrap_or_else(|| region.or_of(&sdk)));
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
            let to = served(*sqs_port, queue.as_ref()).await?;
            let url: QueueUrl = to.url.parse()?;
            let sqs = Sqs::by(to.client, to.endpoint);
            Reader::new(arguments, sqs, None).of_queue(&url.arn("aws", DEFAULT_REGION)).await
        }
    }
}
