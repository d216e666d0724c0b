//! `requeue send`: sends a message to the queue of `requeue serve`, or to any other queue.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region, SharedCredentialsProvider};
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::operation::send_message::SendMessageError;
use aws_sdk_sqs::types::MessageAttributeValue;
use requeue::aws::SdkConfig;
use requeue::embedded::DEFAULT_REGION;
use requeue::printable;
use requeue::queue::{Attribute, AttributeValue, MAX_BATCH_BYTES, MAX_DELAY};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::timeout;
use uuid::Uuid;

use crate::duration_argument::within;
use crate::endpoints::{has_sqs_endpoint, shown_endpoint};
use crate::failed_call::{FailedCall, call_error};
use crate::local_sqs::{SQS_PORT, dead_letters_of};
use crate::output::{self, outln};
use crate::progress::{CommandProgress, NOTICEABLE, SQS_REQUESTS};
use crate::queue_argument::{FoundQueue, QueueName, RegionArgument, sqs_client};
use crate::stop::Stop;
use crate::table::messages;
use crate::{Error, bail, environment, sdk};

/// SQS on this machine responds in milliseconds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
#[command(
    after_help = "A queue named by URL or ARN is at SQS, and so is one named by its name, or the \
                  only one, if AWS_ENDPOINT_URL_SQS, AWS_ENDPOINT_URL or the AWS profile sets an \
                  endpoint, or if --region or --profile is given. AWS's environment then counts: \
                  AWS_REGION and credentials. Otherwise the message goes to a `requeue serve` on \
                  this machine and needs no AWS credentials.\n\n\
                  The command prints the message id."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    message: GivenMessage,
    /// The time until the message can be received, at most 15m. FIFO queues allow none.
    #[arg(long, help_heading = "Message", value_name = "DURATION", value_parser = within(0..=MAX_DELAY.as_secs()))]
    delay: Option<Duration>,
    /// The deduplication id on a FIFO queue: SQS accepts one message with it in 5 minutes.
    /// [default: a new one for each message]
    #[arg(long, help_heading = "Message", value_name = "ID")]
    deduplication_id: Option<String>,
    /// The queue: its name, URL or ARN. [default: the only one at the endpoint of AWS's environment,
    /// or of `requeue serve`]
    #[arg(long, alias = "queue-url", value_name = "QUEUE", help_heading = "Queue")]
    queue: Option<QueueName>,
    /// The port of `requeue serve` on 127.0.0.1. [default: 9324]
    #[arg(long, value_name = "PORT", help_heading = "Queue", conflicts_with_all = ["region", "profile"])]
    sqs_port: Option<u16>,
    #[command(flatten)]
    region: RegionArgument,
    /// Print JSON: the queue and the message ids.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stop = Stop::end_at_once()?;
    runtime.block_on(send(arguments, &stop))
}

async fn send(arguments: &Arguments, stop: &Stop) -> Result<ExitCode, Error> {
    let message = &arguments.message;
    let body = message.body()?;
    if body.is_empty() {
        bail!(
            "the body is empty, and SQS takes no empty message; give at least one \
                    character"
        );
    }
    let progress = CommandProgress::shown_after(NOTICEABLE, "looking for the queue");
    let (found, sdk) = match arguments.at_sqs().await? {
        Some(queue) => {
            let sdk = sdk::config().await;
            (queue.find("--queue", &arguments.region, &sdk).await?, sdk)
        }
        None => served(arguments.sqs_port, arguments.queue.as_ref()).await?,
    };
    found.note.iter().for_each(|text| output::remark(text));
    let url = match &arguments.queue {
        Some(QueueName::Url { text, .. }) => text.clone(),
        _ => found.arn.url(),
    };
    let client = sqs_client(&sdk, found.arn.region());
    let is_fifo = found.arn.is_fifo();
    arguments.check(found.arn.name(), is_fifo)?;
    let attributes: Vec<_> =
        message.attributes().into_iter().map(|(name, value)| (name, typed(value))).collect();
    progress.step(format!("sending to {} at {}", found.arn.name(), found.endpoint));
    progress.count("messages", Some(message.count.into()));
    let delay_secs = arguments.delay.and_then(|delay| i32::try_from(delay.as_secs()).ok());
    let (mut ids, mut ended) = (Vec::new(), ExitCode::SUCCESS);
    stop.defer_end();
    for number in 1..=message.count {
        let id = arguments.deduplication_id.clone();
        let id = id.or_else(|| is_fifo.then(|| Uuid::new_v4().to_string()));
        let request = client
            .send_message()
            .queue_url(&url)
            .message_body(&body)
            .set_message_attributes(Some(attributes.iter().cloned().collect()))
            .set_message_group_id(message.group.clone())
            .set_message_deduplication_id(id)
            .set_delay_seconds(delay_secs);
        let running = SQS_REQUESTS.begin("sqs", Duration::ZERO);
        let sent = tokio::select! {
            biased;
            sent = request.send() => sent.map_err(|error| failed(&found, &error))?,
            () = stop.told() => {
                drop(progress);
                output::note(format_args!(
                    "note: interrupted after {} of {}; one more may have been sent, since SQS did \
                     not respond to its request",
                    number - 1,
                    messages(message.count)
                ));
                ended = stop.exit_code(ExitCode::FAILURE);
                break;
            }
        };
        running.responded();
        let id = sent.message_id().unwrap_or_default().to_owned();
        if arguments.json {
            ids.push(id);
        } else {
            let count = message.count;
            let sent =
                || output::note(format_args!("{number} of {count} messages sent, at last {id}"));
            outln!("{id}").inspect_err(|_| sent())?;
        }
        progress.done(number);
    }
    if arguments.json {
        let told = output::json(&json!({ "queue": found.arn.to_string(), "messageIds": ids }));
        told.inspect_err(|_| output::note(format_args!("messages sent: {}", ids.join(", "))))?;
    }
    Ok(ended)
}

/// The error of a send. SQS's own words distinguish a message that it refuses.
fn failed(to: &FoundQueue, error: &SdkError<SendMessageError>) -> String {
    let (call, queue) = (call_error(error), to.arn.to_string());
    let failed = FailedCall::of_sqs("SendMessage", &queue, &to.endpoint, &call);
    let words = error.as_service_error().and_then(ProvideErrorMetadata::message);
    match words.filter(|_| failed.is_about_the_request()) {
        Some(words) => format!("{failed}: {}", printable::line(words)),
        None => failed.to_string(),
    }
}

impl Arguments {
    /// The queue, if it is at SQS, and not one of `requeue serve`.
    async fn at_sqs(&self) -> Result<Option<QueueName>, Error> {
        let is_given = self.region.given().is_some() || self.region.profile.is_some();
        Ok(match &self.queue {
            Some(QueueName::Name(_)) | None if self.sqs_port.is_some() => None,
            Some(QueueName::Name(_)) if !is_given && !has_sqs_endpoint().await => None,
            Some(queue) => Some(queue.clone()),
            None => only_queue(&self.region, is_given).await?,
        })
    }

    fn check(&self, name: &str, is_fifo: bool) -> Result<(), Error> {
        if is_fifo && self.message.group.is_none() {
            bail!("{name} is a FIFO queue, and each of its messages needs a group; add --group ID");
        }
        if is_fifo && self.delay.is_some() {
            bail!(
                "{name} is a FIFO queue, whose messages have no delay of their own; remove --delay"
            );
        }
        if !is_fifo && self.deduplication_id.is_some() {
            bail!(
                "{name} is a standard queue; remove --deduplication-id, which is for FIFO queues"
            );
        }
        Ok(())
    }
}

/// The queue of a running `requeue serve`.
pub(crate) async fn served(
    sqs_port: Option<u16>,
    queue: Option<&QueueName>,
) -> Result<(FoundQueue, SdkConfig), Error> {
    let port = sqs_port.unwrap_or(SQS_PORT);
    if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
        bail!(
            "no SQS listens on port {port} of 127.0.0.1; start `requeue serve` in another \
             terminal, name its port with --sqs-port, or name a queue at SQS with --queue and its \
             URL or ARN"
        );
    }
    let sdk = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(DEFAULT_REGION))
        // Example credentials, never those of the user.
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new(
            "example", "example", None, None, "example",
        )))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(format!("http://127.0.0.1:{port}"))
        .build();
    let region = RegionArgument::default();
    let find = async {
        let only = if queue.is_none() { Some(only(&region, &sdk).await?) } else { None };
        let queue = queue.or(only.as_ref()).ok_or("the queue is missing")?;
        queue.find("--queue", &region, &sdk).await
    };
    let found = timeout(RESPONSE_TIMEOUT, find).await.map_err(|_| {
        format!(
            "port {port} of 127.0.0.1 did not respond within {} s; another program may use it; \
             name the port of `requeue serve` with --sqs-port",
            RESPONSE_TIMEOUT.as_secs()
        )
    })??;
    Ok((found, sdk))
}

/// The only queue at the endpoint of AWS's environment. `is_at_sqs`: an option leads there.
pub(crate) async fn only_queue(
    region: &RegionArgument,
    is_at_sqs: bool,
) -> Result<Option<QueueName>, Error> {
    if !has_sqs_endpoint().await {
        if is_at_sqs {
            bail!("--region and --profile lead to SQS; name the queue there with --queue");
        }
        return Ok(None);
    }
    only(region, &sdk::config().await).await.map(Some)
}

/// The only queue that is no dead-letter queue.
async fn only(region: &RegionArgument, sdk: &SdkConfig) -> Result<QueueName, Error> {
    let endpoint = shown_endpoint("SQS", sdk);
    let listed = sqs_client(sdk, region.or_of(sdk)).list_queues().send().await;
    let listed = listed.map_err(|error| {
        let error = call_error(&error);
        FailedCall::of_sqs("ListQueues", &endpoint, &endpoint, &error).to_string()
    })?;
    let names = listed.queue_urls().iter().filter_map(|url| url.rsplit('/').next());
    let names: Vec<&str> = names.collect();
    let dead_letters: Vec<String> = names.iter().map(|name| dead_letters_of(name)).collect();
    let sources = names.into_iter().filter(|name| !dead_letters.iter().any(|dead| dead == name));
    match sources.collect::<Vec<_>>()[..] {
        [only] => Ok(QueueName::Name(only.to_owned())),
        [] => bail!("there is no queue at {endpoint}; create one, or name it with --queue"),
        ref several => {
            let names = several.join(", ");
            bail!("there are several queues at {endpoint}: {names}; choose one with --queue")
        }
    }
}

fn typed(attribute: Attribute) -> MessageAttributeValue {
    let value = MessageAttributeValue::builder().data_type(attribute.data_type);
    let value = match attribute.value {
        AttributeValue::Text(text) => value.string_value(text),
        AttributeValue::Binary(bytes) => value.binary_value(bytes.into()),
    };
    value.build().expect("it has a data type")
}

/// The message in the options of `requeue send` and `requeue event`.
#[derive(clap::Args)]
pub(crate) struct GivenMessage {
    /// The body; `@FILE` reads it from a file, and `-` from the standard input.
    body: String,
    /// A message attribute of the type String. May be given several times.
    #[arg(long = "attribute", help_heading = "Message", value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,
    /// The message group. FIFO queues keep the order within it; fair queues share capacity between
    /// groups.
    #[arg(long, help_heading = "Message", value_name = "ID")]
    pub(crate) group: Option<String>,
    /// The number of such messages.
    #[arg(long, help_heading = "Message", value_name = "MESSAGES", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) count: u16,
}

pub(crate) fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("a message attribute must have a name and a value; write it as in tenant=acme"
            .to_owned()),
    }
}

impl GivenMessage {
    pub(crate) fn body(&self) -> Result<String, Error> {
        let (name, path) = if self.body == "-" {
            ("the standard input".to_owned(), "-")
        } else if let Some(path) = self.body.strip_prefix('@') {
            (format!("the body {path}"), path)
        } else {
            return Ok(self.body.clone());
        };
        let allowed = format!(
            "the {MAX_BATCH_BYTES} bytes that SQS accepts; store it elsewhere, and send its address"
        );
        let text = environment::read(Path::new(path), MAX_BATCH_BYTES, &allowed);
        text.map_err(|error| format!("{name} cannot be read: {error}").into())
    }

    pub(crate) fn attributes(&self) -> BTreeMap<String, Attribute> {
        let typed = |(name, value): &(String, String)| (name.clone(), Attribute::text(value));
        self.attributes.iter().map(typed).collect()
    }
}
