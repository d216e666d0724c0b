//! `requeue send`: sends a message to the queue of `requeue serve`, or to any other queue.

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::MessageAttributeValue;
use requeue::aws;
use requeue::embedded::{DEFAULT_ACCOUNT, DEFAULT_REGION};
use requeue::queue::{Attribute, AttributeValue, QueueUrl};
use tokio::net::TcpStream;
use tokio::time::timeout;
use uuid::Uuid;

use crate::address::{self, Asked};
use crate::message::GivenMessage;
use crate::output::{errln, outln};
use crate::serve::SQS_PORT;
use crate::{CREDENTIALS, Error, serve};

/// SQS on this machine responds in milliseconds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
#[command(
    after_help = "Without --queue-url the message goes to a `requeue serve` on this machine and \
                  needs no AWS credentials. With --queue-url, AWS's environment leads to SQS: \
                  AWS_REGION, credentials, and for an emulator AWS_ENDPOINT_URL_SQS.\n\n\
                  The command prints the message id."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    message: GivenMessage,
    /// Seconds until the message can be received, at most 900. FIFO queues allow none.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i32).range(0..=900))]
    delay: Option<i32>,
    /// The deduplication id on a FIFO queue: SQS accepts one message with it in 5 minutes.
    /// [default: a new one for each message]
    #[arg(long, value_name = "ID")]
    deduplication_id: Option<String>,
    /// The queue of `requeue serve`. [default: the only one]
    #[arg(long, value_name = "NAME", conflicts_with = "queue_url")]
    queue: Option<String>,
    /// The port of `requeue serve` on 127.0.0.1.
    #[arg(long, default_value_t = SQS_PORT)]
    sqs_port: u16,
    /// The URL of any other queue.
    #[arg(long, value_name = "URL")]
    queue_url: Option<String>,
    /// The region of that queue, if its URL has none.
    #[arg(long, env = "AWS_REGION", default_value = "us-east-1")]
    region: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(send(arguments))
}

async fn send(arguments: &Arguments) -> Result<ExitCode, Error> {
    let message = &arguments.message;
    let body = message.body()?;
    let (client, url) = match &arguments.queue_url {
        Some(url) => elsewhere(arguments, url).await?,
        None => served(arguments).await?,
    };
    let is_fifo = url.strip_suffix(".fifo").is_some();
    arguments.check(&url, is_fifo)?;
    let attributes: Vec<_> =
        message.attributes().into_iter().map(|(name, value)| (name, typed(value))).collect();
    for _ in 0..message.count {
        let id = arguments.deduplication_id.clone();
        let id = id.or_else(|| is_fifo.then(|| Uuid::new_v4().to_string()));
        let request = client
            .send_message()
            .queue_url(&url)
            .message_body(&body)
            .set_message_attributes(Some(attributes.iter().cloned().collect()))
            .set_message_group_id(message.group.clone())
            .set_message_deduplication_id(id)
            .set_delay_seconds(arguments.delay);
        let sent = request.send().await.map_err(|error| refusal(&error, &url))?;
        outln!("{}", sent.message_id().unwrap_or_default())?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    fn check(&self, url: &str, is_fifo: bool) -> Result<(), Error> {
        let name = url.rsplit('/').next().unwrap_or(url);
        if is_fifo && self.message.group.is_none() {
            return Err(format!(
                "{name} is a FIFO queue, and each of its messages needs a group; add --group ID"
            )
            .into());
        }
        if is_fifo && self.delay.is_some() {
            return Err(format!(
                "{name} is a FIFO queue, and its messages have no delay of their own; remove \
                 --delay"
            )
            .into());
        }
        if !is_fifo && self.deduplication_id.is_some() {
            return Err(format!(
                "{name} is a standard queue, and only FIFO queues accept a deduplication id; \
                 remove --deduplication-id"
            )
            .into());
        }
        Ok(())
    }
}

/// The queue of a running `requeue serve`.
async fn served(arguments: &Arguments) -> Result<(Client, String), Error> {
    let port = arguments.sqs_port;
    if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
        return Err(format!(
            "no SQS listens on port {port} of 127.0.0.1; start `requeue serve` in another \
             terminal, name its port with --sqs-port, or name another queue with --queue-url"
        )
        .into());
    }
    let endpoint = format!("http://127.0.0.1:{port}");
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(DEFAULT_REGION))
        // Example credentials, never those of the user.
        .credentials_provider(Credentials::new("example", "example", None, None, "example"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(&endpoint)
        .build();
    let client = Client::from_conf(config);
    let listed = timeout(RESPONSE_TIMEOUT, client.list_queues().send()).await;
    let listed = listed.map_err(|_| {
        format!(
            "port {port} of 127.0.0.1 did not respond within {} s; another program may use it; \
             name the port of `requeue serve` with --sqs-port",
            RESPONSE_TIMEOUT.as_secs()
        )
    })?;
    let listed = listed.map_err(|error| refusal(&error, &endpoint))?;
    if let Some(name) = &arguments.queue {
        return Ok((client, format!("{endpoint}/{DEFAULT_ACCOUNT}/{name}")));
    }
    let urls = listed.queue_urls();
    let dead_letters: Vec<String> = urls.iter().map(|url| serve::dead_letters_of(url)).collect();
    match urls.iter().filter(|url| !dead_letters.contains(url)).collect::<Vec<_>>()[..] {
        [only] => Ok((client, only.clone())),
        [] => {
            Err(format!("there is no queue at {endpoint}; create one, or name it with --queue")
                .into())
        }
        ref several => {
            let names: Vec<&str> =
                several.iter().filter_map(|url| url.rsplit('/').next()).collect();
            Err(format!(
                "there are several queues at {endpoint}: {}; choose one with --queue",
                names.join(", ")
            )
            .into())
        }
    }
}

/// Any other queue, by AWS's environment.
async fn elsewhere(arguments: &Arguments, url: &str) -> Result<(Client, String), Error> {
    let queue = address::queue("--queue-url", url, &arguments.region)?;
    url.parse::<QueueUrl>().map_err(|error| format!("--queue-url {url} is {error}"))?;
    let sdk = aws::config().await;
    let asked = Asked::of("--queue-url", url, &queue, &sdk).await?;
    if let Some(note) = &asked.note {
        errln!("note: {note}");
    }
    let region = Region::new(queue.region().to_owned());
    let config = aws_sdk_sqs::config::Builder::from(&sdk).region(region).build();
    Ok((Client::from_conf(config), url.to_owned()))
}

fn typed(attribute: Attribute) -> MessageAttributeValue {
    let value = MessageAttributeValue::builder().data_type(attribute.data_type);
    let value = match attribute.value {
        AttributeValue::Text(text) => value.string_value(text),
        AttributeValue::Binary(bytes) => value.binary_value(bytes.into()),
    };
    value.build().expect("it has a data type")
}

/// The error if SQS did not accept a message, or did not respond.
fn refusal<E>(error: &SdkError<E>, place: &str) -> String
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match error {
        SdkError::ServiceError(response) => {
            let error = response.err();
            let code = error.code().unwrap_or("Unknown");
            let said = error.message().map(|message| format!(": {message}")).unwrap_or_default();
            match code {
                "NonExistentQueue"
                | "QueueDoesNotExist"
                | "AWS.SimpleQueueService.NonExistentQueue" => {
                    format!("there is no queue {place}; check its name, the account and the region")
                }
                _ => format!("SQS refuses the message for {place} ({code}){said}"),
            }
        }
        error if aws::lacks_credentials(error) => format!("there are no {CREDENTIALS}"),
        _ => format!(
            "SQS does not respond for {place}; check the network, the region and \
             AWS_ENDPOINT_URL_SQS"
        ),
    }
}
