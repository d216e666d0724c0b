//! `requeue dlq`: lists, shows, exports, imports, discards and redrives dead letters. It knows no policy, and prints
//! bodies only on request.

use std::process::ExitCode;

use requeue::aws::SdkConfig;
use requeue::queue::QueueArn;

use crate::queue_argument::{FoundQueue, QueueName, RegionArgument};
use crate::{Error, output};

mod confirm;
pub(crate) mod discard;
pub(crate) mod export;
mod held;
mod import;
pub(crate) mod letter;
pub(crate) mod list;
pub(crate) mod outcome;
mod pace;
mod peek;
pub(crate) mod redrive;
pub(crate) mod scan;
pub(crate) mod scan_result;
pub(crate) mod sqs;
mod standing;
pub(crate) mod unseen;

use self::scan::Scan;
use self::sqs::{Described, Sqs};
pub(crate) use self::standing::Purpose;
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::table::thousands;

/// clap's own usage line shows an option as required even if a variable has set it.
macro_rules! usage {
    ($arguments:literal) => {
        concat!("requeue dlq ", $arguments, " <--queue|--source-queue> <QUEUE>")
    };
}

/// The text below the options of a command that only looks at messages.
macro_rules! help {
    (list) => {
        help!(
            "At the end the command compares SQS's counts with the messages that it saw. A note has \
             the number of messages not reached, the reason and the remedy. With --json they are \
             in notReached, and complete is false. Of a FIFO group at most the first ten messages \
             can be looked at.\n\n\
             Requeue writes class and reason into the message with REQUEUE_DEAD_LETTER=annotate or \
             direct, on a FIFO queue only with direct. With redrive, at most the class of the last \
             retry is known. If a message was redriven and failed again, `first sent` is the time \
             of its last redrive.",
            "0; 1 on an error; 130 after Ctrl-C."
        )
    };
    (peek) => {
        help!(
            "Of a FIFO group at most the first ten messages can be looked at. A note has the \
             number of messages that the command did not reach.",
            "0; 1 on an error, or if an --id is not found; 130 after Ctrl-C."
        )
    };
    (export) => {
        help!(
            "Of a FIFO group at most the first ten messages can be looked at. If the command did \
             not reach all messages, the export is incomplete. A note then has the number of the \
             others, the reason and the remedy.",
            "0; 1 on an error, if the export is incomplete, or if an --id is not found; 130 after \
             Ctrl-C."
        )
    };
    (import) => {
        "The command checks all lines before it sends the first message. It sends each body as the \
         file has it: as it was in the dead-letter queue, or as first delivered if the export was \
         made with --unwrap. A message with Requeue's fields starts afresh like a redriven one.\n\n\
         The report has a line of JSON for each message: its line in the file, its id, sent or \
         failed, and the code of the failure. Another run with the same report sends only the \
         messages that were not sent. If the command is killed during a request, it may send the \
         ten messages of that request again.\n\n\
         Permissions: sqs:GetQueueAttributes and sqs:SendMessage; with a queue's name also \
         sqs:GetQueueUrl.\n\n\
         Exit status: 0; 1 on an error, if you decline the question, or if a message was not \
         sent; 130 after Ctrl-C."
    };
    (discard) => {
        help!(
            "The command looks at all messages and writes the chosen ones to the file, complete \
             enough for `requeue dlq import`. Then it asks, and deletes the messages of the file. \
             This needs the permission sqs:DeleteMessage besides. If it did not reach all \
             messages, it writes no file and deletes none. SQS hands out at most ten messages of \
             a FIFO group: choose at most ten with --limit.",
            "0; 1 on an error, if you decline the question, if a message was not deleted, or if an \
             --id is not found; 130 after Ctrl-C."
        )
    };
    ($about:literal, $status:literal) => {
        concat!(
            "Looking at a message receives it, and SQS hides it from other readers. At the end, \
             also after Ctrl-C, the command makes all messages visible again. If the process is \
             killed, they stay hidden until their visibility timeout ends: two minutes, and a \
             second for each 100 of --max-messages.\n\n",
            $about,
            "\n\nPermissions: sqs:ReceiveMessage, sqs:ChangeMessageVisibility and \
             sqs:GetQueueAttributes. With --queue also sqs:ListDeadLetterSourceQueues, which shows \
             that it is a dead-letter queue; with a queue's name also \
             sqs:GetQueueUrl.\n\nExit status: ",
            $status
        )
    };
}

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Group the messages by class, reason and failure: their number, the oldest, and an example of
    /// each group.
    #[command(after_help = help!(list), override_usage = usage!("list [OPTIONS]"), mut_arg("queue", needed))]
    List(list::Arguments),
    /// Show messages one by one: ten unless --limit says otherwise, and their bodies only with
    /// --bodies.
    #[command(alias = "show", after_help = help!(peek), override_usage = usage!("peek [OPTIONS]"), mut_arg("queue", needed))]
    Peek(peek::Arguments),
    /// Write messages to a file as JSON Lines, complete enough to send them again. Deletes nothing.
    #[command(after_help = help!(export), override_usage = usage!("export [OPTIONS] <FILE>"), mut_arg("queue", needed))]
    Export(export::Arguments),
    /// Send the messages of an export to a queue, each with its body, attributes and group.
    #[command(after_help = help!(import))]
    Import(import::Arguments),
    /// Export messages to a file and then delete them: all of them, or those that the options
    /// choose.
    #[command(after_help = help!(discard), override_usage = usage!("discard [OPTIONS] <FILE>"), mut_arg("queue", needed))]
    Discard(discard::Arguments),
    /// Redrive messages: all of them, or those that the options choose.
    #[command(after_help = redrive::HELP, override_usage = usage!("redrive [OPTIONS]"), mut_arg("queue", needed))]
    Redrive(redrive::Arguments),
}

/// Without a queue these commands have nothing to do.
fn needed(queue: clap::Arg) -> clap::Arg {
    queue.required_unless_present("source_queue")
}

/// The queue, and how many of its messages.
#[derive(Default, clap::Args)]
pub(crate) struct QueueArguments {
    /// The dead-letter queue: its name, URL or ARN.
    #[arg(
        long,
        help_heading = "Queue",
        alias = "queue-url",
        value_name = "QUEUE",
        conflicts_with = "source_queue"
    )]
    queue: Option<QueueName>,
    /// A source queue, instead: its redrive policy names the dead-letter queue.
    #[arg(long, help_heading = "Queue", alias = "source-queue-url", value_name = "QUEUE")]
    source_queue: Option<QueueName>,
    /// Take the queue even if no redrive policy names it as a dead-letter queue.
    #[arg(long, help_heading = "Queue", conflicts_with = "source_queue")]
    any_queue: bool,
    #[command(flatten)]
    region: RegionArgument,
    /// Most messages to look at.
    #[arg(long, help_heading = "Queue", value_name = "COUNT", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(1..=MAX_IN_FLIGHT))]
    pub(crate) max_messages: u32,
}

/// Messages that can be in flight at once. Source: SQS developer guide, "Amazon SQS message
/// quotas".
const MAX_IN_FLIGHT: i64 = 120_000;

/// A dead-letter queue.
#[derive(Clone)]
pub(crate) struct DeadLetters {
    sdk: SdkConfig,
    pub(crate) sqs: Sqs,
    pub(crate) queue: Described,
    /// The source queue whose redrive policy named it.
    pub(crate) source: Option<QueueArn>,
    /// The reason to doubt that it is one.
    pub(crate) doubt: Option<String>,
}

pub(crate) fn run(command: &Command) -> Result<ExitCode, Error> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::List(arguments) => list::run(arguments).await,
            Command::Peek(arguments) => peek::run(arguments).await,
            Command::Export(arguments) => export::run(arguments).await,
            Command::Import(arguments) => import::run(arguments).await,
            Command::Discard(arguments) => discard::run(arguments).await,
            Command::Redrive(arguments) => redrive::run(arguments).await,
        }
    })
}

impl QueueArguments {
    /// The dead-letter queue, or that of the source queue.
    pub(crate) fn new(
        queue: Option<QueueName>,
        source_queue: Option<QueueName>,
        region: Option<&str>,
        max_messages: u32,
    ) -> Self {
        let region = RegionArgument::of(region);
        Self { queue, source_queue, region, max_messages, any_queue: false }
    }

    pub(crate) fn region(&self) -> &RegionArgument {
        &self.region
    }

    pub(crate) async fn find(&self, purpose: Purpose) -> Result<DeadLetters, Error> {
        let (option, name) = match (&self.queue, &self.source_queue) {
            (None, Some(name)) => ("--source-queue", name),
            (Some(name), _) => ("--queue", name),
            (None, None) => return Err("--queue is missing; name a queue as orders-dlq".into()),
        };
        let sdk = crate::sdk::config().await;
        let found = self.named(option, name, &sdk).await?;
        let sqs = Sqs::of(&sdk, found.endpoint);
        let described = sqs.describe(&found.arn).await?;
        if self.source_queue.is_none() {
            let doubt = standing::check(&sqs, &described, purpose, self.any_queue).await?;
            return Ok(DeadLetters { sdk, sqs, queue: described, source: None, doubt });
        }
        let Some((dead_letters, _)) = &described.redrive else {
            let name = described.arn.name();
            return Err(format!(
                "{name} has no redrive policy that names a dead-letter queue; name the dead-letter \
                 queue with --queue"
            )
            .into());
        };
        let queue = sqs.describe(dead_letters).await?;
        Ok(DeadLetters { sdk, sqs, queue, source: Some(described.arn), doubt: None })
    }

    /// The queue that was given as this option.
    async fn named(
        &self,
        option: &str,
        name: &QueueName,
        sdk: &SdkConfig,
    ) -> Result<FoundQueue, Error> {
        let found = name.find(option, &self.region, sdk).await?;
        if let Some(text) = &found.note {
            note(text);
        }
        Ok(found)
    }

    pub(crate) fn is_given(&self) -> bool {
        self.queue.is_some() || self.source_queue.is_some()
    }

    fn max_messages(&self) -> usize {
        usize::try_from(self.max_messages).unwrap_or(usize::MAX)
    }
}

impl DeadLetters {
    fn name(&self) -> &str {
        self.queue.arn.name()
    }

    /// The dead-letter queue of this source queue.
    pub(crate) async fn of(sqs: Sqs, queue: &QueueArn, source: &QueueArn) -> Result<Self, Error> {
        let (sdk, source) = (SdkConfig::builder().build(), Some(source.clone()));
        Ok(Self { queue: sqs.describe(queue).await?, sdk, sqs, source, doubt: None })
    }

    /// With the counts of now.
    pub(crate) async fn refreshed(&self) -> Result<Self, Error> {
        let queue = self.sqs.describe(&self.queue.arn).await?;
        Ok(Self { queue, ..self.clone() })
    }

    /// Notes the side effects of looking into this queue.
    pub(crate) fn warn(&self) {
        self.warnings().iter().for_each(|text| note(text));
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.doubt.iter().cloned().collect();
        if let Some((next, receives)) = &self.queue.redrive {
            warnings.push(format!(
                "{} has a redrive policy itself: each look at a message counts as a receive, and \
                 after {receives} receive{} SQS moves it to {}",
                self.name(),
                if *receives == 1 { "" } else { "s" },
                next.name(),
            ));
        }
        if self.queue.arn.is_fifo() {
            warnings.push(format!(
                "{} is a FIFO queue: at most the first ten messages of each group can be looked at",
                self.name()
            ));
        }
        warnings
    }

    fn scan<'a>(
        &'a self,
        place: &QueueArguments,
        stop: &'a Stop,
        progress: &'a CommandProgress,
    ) -> Scan<'a> {
        progress.step(format!("looking at {}", self.name()));
        progress.count("messages", Some(self.queue.visible));
        Scan::new(&self.sqs, &self.queue, place.max_messages(), stop, progress)
    }
}

/// The progress of a command, which first asks SQS for the queue.
fn progress() -> CommandProgress {
    CommandProgress::shown("asking SQS for the queue")
}

/// A line for the user on the standard error.
fn note(text: &str) {
    output::note(format_args!("note: {text}"));
}

/// `1 message`, `2,000 messages`.
pub(crate) fn messages(count: impl TryInto<u64>) -> String {
    match count.try_into().unwrap_or(u64::MAX) {
        1 => "1 message".to_owned(),
        count => format!("{} messages", thousands(count)),
    }
}
