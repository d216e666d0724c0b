//! `requeue dlq`: what lies in a dead-letter queue and why, and getting it back. Nothing here knows
//! a policy, and no body is printed unless it was asked for.

use std::process::ExitCode;

use requeue::aws;
use requeue::queue::QueueArn;

use crate::address::{self, Asked};
use crate::{Error, output};

mod confirm;
mod export;
mod held;
mod letter;
mod list;
mod peek;
mod progress_line;
mod redrive;
mod refusal;
mod scan;
mod scan_result;
mod sqs;
mod unseen;

use self::scan::Scan;
use self::sqs::{Described, Sqs};
use crate::stop::Stop;

/// In clap's own an option is called needed that a variable has set.
macro_rules! usage {
    ($arguments:literal) => {
        concat!("requeue dlq ", $arguments, " <--queue-url <URL>|--source-queue-url <URL>>")
    };
}

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Groups the messages by class, reason and what they failed with: how many, since when, and an
    /// example of each.
    #[command(after_help = HIDDEN, override_usage = usage!("list [OPTIONS]"))]
    List(list::Arguments),
    /// Shows messages one by one, ten unless --limit says otherwise; their bodies only with
    /// --bodies.
    #[command(after_help = HIDDEN, override_usage = usage!("peek [OPTIONS]"))]
    Peek(peek::Arguments),
    /// Writes messages to a file as JSON Lines, with everything needed to send them again. Deletes
    /// nothing.
    #[command(after_help = HIDDEN, override_usage = usage!("export [OPTIONS] <FILE>"))]
    Export(export::Arguments),
    /// Brings messages back: all of them, or those that were chosen.
    #[command(after_help = redrive::HELP, override_usage = usage!("redrive [OPTIONS]"))]
    Redrive(redrive::Arguments),
}

const HIDDEN: &str = "To look at a message is to receive it: it is hidden from other readers \
                      meanwhile, and made visible again at the end, also after Ctrl-C. Only if the \
                      process is killed does it stay hidden until its visibility timeout ends, two \
                      minutes and a second for each 100 of --max-messages.\n\n\
                      At the end SQS's counts are compared with what was seen. A note says how \
                      many messages were not reached, why, and what to do; with --json, list has \
                      them in notReached, and complete is false. Of a FIFO group at most the first \
                      ten messages can be looked at.\n\n\
                      Class and reason are what Requeue wrote into the message \
                      (REQUEUE_DEAD_LETTER=annotate or direct; on a FIFO queue direct alone); in \
                      the mode redrive the class of the last retry is known at most. For a message \
                      that was brought back and failed again, the time of its last redrive stands \
                      as first sent. Permissions: sqs:ReceiveMessage, sqs:ChangeMessageVisibility, \
                      sqs:GetQueueAttributes; with sqs:ListDeadLetterSourceQueues a note says if \
                      the queue is no queue's dead-letter queue.\n\n\
                      Ends with status 0, with 1 on an error or if an export is not complete, and \
                      with 130 after Ctrl-C.";

/// Which queue, and how much of it.
#[derive(clap::Args)]
struct QueueArguments {
    /// The dead-letter queue.
    #[arg(
        long,
        value_name = "URL",
        required_unless_present = "source_queue_url",
        conflicts_with = "source_queue_url"
    )]
    queue_url: Option<String>,
    /// The queue it belongs to, instead: the dead-letter queue is found in its redrive policy.
    #[arg(long, value_name = "URL")]
    source_queue_url: Option<String>,
    /// The region of the queue, where its URL does not say it.
    #[arg(long, env = "AWS_REGION", default_value = "us-east-1")]
    region: String,
    /// Looks at so many messages at most.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(1..=MAX_IN_FLIGHT))]
    max_messages: u32,
}

/// Messages that may be in flight at once. Source: SQS developer guide, "Amazon SQS message
/// quotas".
const MAX_IN_FLIGHT: i64 = 120_000;

/// A dead-letter queue that was found.
struct DeadLetters {
    sqs: Sqs,
    queue: Described,
    /// The queue that it was found by.
    source: Option<QueueArn>,
}

pub(crate) fn run(command: &Command) -> Result<ExitCode, Error> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::List(arguments) => list::run(arguments).await,
            Command::Peek(arguments) => peek::run(arguments).await,
            Command::Export(arguments) => export::run(arguments).await,
            Command::Redrive(arguments) => redrive::run(arguments).await,
        }
    })
}

impl QueueArguments {
    async fn find(&self) -> Result<DeadLetters, Error> {
        let (option, url) = match (&self.queue_url, &self.source_queue_url) {
            (None, Some(url)) => ("--source-queue-url", url.as_str()),
            (url, _) => ("--queue-url", url.as_deref().unwrap_or_default()),
        };
        let arn = self.arn(option, url)?;
        let sdk = aws::config().await;
        let asked = Asked::of(option, url, &arn, &sdk).await?;
        if let Some(text) = &asked.note {
            note(text);
        }
        let sqs = Sqs::of(&sdk, asked.endpoint);
        let described = sqs.describe(&arn).await?;
        if self.source_queue_url.is_none() {
            return Ok(DeadLetters { sqs, queue: described, source: None });
        }
        let Some((dead_letters, _)) = &described.redrive else {
            let name = described.arn.name();
            return Err(format!(
                "{name} has no redrive policy, and so no dead-letter queue of its own: name that \
                 with --queue-url"
            )
            .into());
        };
        let queue = sqs.describe(dead_letters).await?;
        Ok(DeadLetters { sqs, queue, source: Some(described.arn) })
    }

    /// The queue of a URL that was given as this option.
    fn arn(&self, option: &str, url: &str) -> Result<QueueArn, Error> {
        address::queue(option, url, &self.region)
    }

    fn max_messages(&self) -> usize {
        usize::try_from(self.max_messages).unwrap_or(usize::MAX)
    }
}

impl DeadLetters {
    fn name(&self) -> &str {
        self.queue.arn.name()
    }

    /// Says what looking into this queue brings about.
    async fn warn(&self) {
        // Who looks may lack the permission to ask this: then nothing is said.
        if self.source.is_none()
            && self.sqs.sources(&self.queue.arn).await.is_ok_and(|sources| sources.is_empty())
        {
            note(&format!(
                "no queue's redrive policy names {}: is it a dead-letter queue? Each look at a \
                 message counts as a receive",
                self.name()
            ));
        }
        if let Some((next, receives)) = &self.queue.redrive {
            note(&format!(
                "{} has a redrive policy itself: each look at a message counts as a receive, and \
                 after {receives} of them SQS moves it on to {}",
                self.name(),
                next.name(),
            ));
        }
        if self.queue.arn.is_fifo() {
            note(&format!(
                "{} is a FIFO queue: of each group at most the first ten messages can be looked at",
                self.name()
            ));
        }
    }

    fn scan<'a>(&'a self, place: &QueueArguments, stop: &'a Stop) -> Scan<'a> {
        Scan::new(&self.sqs, &self.queue, place.max_messages(), stop)
    }
}

/// A line for the person, beside the output.
fn note(text: &str) {
    output::note(format_args!("note: {text}"));
}

/// `1 message`, `2 messages`.
fn messages(count: impl TryInto<u64>) -> String {
    match count.try_into().unwrap_or(u64::MAX) {
        1 => "1 message".to_owned(),
        count => format!("{count} messages"),
    }
}
