//! Finds a command's dead-letter queue, makes sure that it is one, and asks before a change.

use std::io::{IsTerminal, stdin};
use std::thread;

use futures_util::future::join_all;
use requeue::Clock;
use requeue::aws::SdkConfig;
use requeue::queue::{Description, MAX_IN_FLIGHT, QueueArn};
use rustix::termios::{QueueSelector, tcflush};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::oneshot;

use super::scan::{Scan, visibility};
use super::sqs::Sqs;
use crate::progress::CommandProgress;
use crate::queue_argument::{FoundQueue, QueueName, RegionArgument};
use crate::stop::Stop;
use crate::table::{clock_time, counted, span};
use crate::{Error, output};

/// The queue, and how many of its messages.
#[derive(Default, clap::Args)]
pub(crate) struct QueueArguments {
    /// The dead-letter queue: its name, URL or ARN.
    #[arg(value_name = "QUEUE", conflicts_with_all = ["queue", "source_queue"])]
    dead_letter_queue: Option<QueueName>,
    /// The same as an option.
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
    pub(crate) region: RegionArgument,
    /// Most messages to look at.
    #[arg(long, help_heading = "Queue", value_name = "COUNT", default_value_t = MAX_MESSAGES,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_IN_FLIGHT)))]
    max_messages: u32,
}

const MAX_MESSAGES: u32 = 10_000;
const MAX_SOURCES: usize = 10;

#[derive(Clone)]
pub(crate) struct DeadLetters {
    pub(crate) sqs: Sqs,
    pub(crate) queue: Description,
    pub(crate) max_messages: usize,
    pub(crate) source: Option<QueueArn>,
    /// The reason to doubt that it is one.
    pub(crate) doubt: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Look,
    /// They may leave it for good.
    Delete,
    /// They go to another queue. `--to` may name it, also if the source queue is gone.
    Redrive,
}

impl QueueArguments {
    pub(crate) fn of_source(source: QueueName, region: RegionArgument) -> Self {
        Self { source_queue: Some(source), region, max_messages: MAX_MESSAGES, ..Self::default() }
    }

    pub(crate) async fn find(&self, purpose: Purpose) -> Result<DeadLetters, Error> {
        let own = self.queue.as_ref().or(self.dead_letter_queue.as_ref());
        let (option, name) = match (own, &self.source_queue) {
            (None, Some(name)) => ("--source-queue", name),
            (Some(name), _) => ("--queue", name),
            (None, None) => return Err("the queue is missing; name it as orders-dlq".into()),
        };
        let sdk = crate::sdk::config().await;
        let found = named(name, option, &self.region, &sdk).await?;
        let sqs = Sqs::of(&sdk, found.endpoint);
        let described = sqs.describe(&found.arn).await?;
        let max_messages = usize::try_from(self.max_messages).unwrap_or(usize::MAX);
        if self.source_queue.is_none() {
            let (source, doubt) = (None, check(&sqs, &described, purpose, self.any_queue).await?);
            return Ok(DeadLetters { sqs, queue: described, max_messages, source, doubt });
        }
        let Some(dead_letters) = &described.dead_letter_queue else {
            let name = described.arn.name();
            return Err(format!(
                "{name} has no redrive policy that names a dead-letter queue; name the dead-letter \
                 queue with --queue"
            )
            .into());
        };
        let (queue, source) = (sqs.describe(dead_letters).await?, Some(described.arn));
        Ok(DeadLetters { sqs, queue, max_messages, source, doubt: None })
    }

    pub(crate) fn is_given(&self) -> bool {
        self.dead_letter_queue.is_some() || self.queue.is_some() || self.source_queue.is_some()
    }
}

pub(super) async fn named(
    name: &QueueName,
    option: &str,
    region: &RegionArgument,
    sdk: &SdkConfig,
) -> Result<FoundQueue, Error> {
    let found = name.find(option, region, sdk).await?;
    found.note.iter().for_each(|text| output::remark(text));
    Ok(found)
}

impl DeadLetters {
    pub(super) fn name(&self) -> &str {
        self.queue.arn.name()
    }

    /// The messages that can be received, by SQS's approximate counts.
    pub(super) fn visible(&self) -> u64 {
        self.queue.messages.saturating_sub(self.queue.in_flight + self.queue.delayed)
    }

    pub(crate) async fn of(
        sqs: Sqs,
        queue: &QueueArn,
        source: Option<&QueueArn>,
    ) -> Result<Self, Error> {
        let (queue, max_messages) = (sqs.describe(queue).await?, MAX_MESSAGES as usize);
        Ok(Self { sqs, queue, max_messages, source: source.cloned(), doubt: None })
    }

    /// With the counts of now.
    pub(crate) async fn refreshed(&self) -> Result<Self, Error> {
        let queue = self.sqs.describe(&self.queue.arn).await?;
        Ok(Self { queue, ..self.clone() })
    }

    /// Notes the messages of the source queues: dead-lettered ones may not be in this queue yet. A
    /// fact that SQS does not return is no reason to fail.
    pub(crate) async fn tell_waiting(&self) {
        let sources = match &self.source {
            Some(source) => vec![source.clone()],
            None => self.sqs.sources(&self.queue.arn).await.unwrap_or_default(),
        };
        let sources = sources.iter().take(MAX_SOURCES).map(|source| self.sqs.describe(source));
        for queue in join_all(sources).await.into_iter().flatten() {
            if queue.messages > 0 {
                let name = queue.arn.name();
                output::remark(&format!(
                    "{} in {name}: unless REQUEUE_DEAD_LETTER is direct, a dead-lettered one gets \
                     here only when it is received again, which an open circuit may defer; see \
                     `requeue status {name}`",
                    counted(queue.messages, "message")
                ));
            }
        }
    }

    pub(crate) fn warn(&self) {
        self.warnings().iter().for_each(|text| output::remark(text));
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let Description { dead_letter_queue: next, max_receive_count, .. } = &self.queue;
        let mut warnings: Vec<String> = self.doubt.iter().cloned().collect();
        if let Some((next, receives)) = next.as_ref().zip(*max_receive_count) {
            warnings.push(format!(
                "{} has a redrive policy itself: each look at a message counts as a receive, and \
                 after {} SQS moves it to {}",
                self.name(),
                counted(receives, "receive"),
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

    /// The time at which messages are visible again if a redrive with these options is killed.
    pub(crate) fn if_killed(&self, rate: Option<u16>) -> String {
        let hidden = visibility(&self.queue, self.max_messages, rate);
        format!(
            "if the command is killed, its messages are visible again {} later: killed now, at {} UTC",
            span(hidden),
            clock_time(Clock::system().now() + hidden)
        )
    }

    pub(crate) fn scan<'a>(&'a self, stop: &'a Stop, progress: &'a CommandProgress) -> Scan<'a> {
        progress.step(format!("looking at {}", self.name()));
        progress.count("messages", Some(self.visible()));
        Scan::new(&self.sqs, &self.queue, self.max_messages, stop, progress)
    }

    /// A result as JSON, with the queue that it is about.
    pub(super) fn json(&self, result: impl Serialize) -> Result<Value, Error> {
        let mut json = serde_json::to_value(result)?;
        json["queue"] = self.queue.arn.to_string().into();
        Ok(json)
    }
}

/// Refuses a queue that is certainly none, and names the right one. Returns a doubt otherwise.
async fn check(
    sqs: &Sqs,
    queue: &Description,
    purpose: Purpose,
    takes_any: bool,
) -> Result<Option<String>, Error> {
    let sources = sqs.sources(&queue.arn).await;
    if sources.as_ref().is_ok_and(|sources| !sources.is_empty()) {
        return Ok(None);
    }
    let name = queue.arn.name();
    let own = queue.dead_letter_queue.as_ref().map(QueueArn::name);
    let doubt = match (&sources, own) {
        (Err(error), _) => format!("it is unknown whether {name} is a dead-letter queue: {error}"),
        (Ok(_), Some(own)) => format!("{name} is not a dead-letter queue, and has one: {own}"),
        (Ok(_), None) => {
            format!("no queue names {name} in its redrive policy, so it may be a queue in use")
        }
    };
    let is_allowed = match purpose {
        Purpose::Look => own.is_none() && sources.is_err(),
        Purpose::Delete => false,
        Purpose::Redrive => own.is_none(),
    };
    if is_allowed || takes_any {
        return Ok(Some(format!("{doubt}; each look at a message counts as a receive")));
    }
    let right =
        own.map_or("name a dead-letter queue".to_owned(), |own| format!("use --queue {own}"));
    Err(format!("{doubt}; {right}; --any-queue takes {name} all the same").into())
}

/// The progress of a command, which first asks SQS for the queue.
pub(super) fn progress() -> CommandProgress {
    CommandProgress::shown("asking SQS for the queue")
}

pub(crate) fn require_terminal(what: &str) -> Result<(), Error> {
    if stdin().is_terminal() {
        return Ok(());
    }
    Err(format!(
        "{what}; there is no terminal for a question: add --yes, or see the plan with --dry-run"
    )
    .into())
}

/// Whether the user agrees. A signal declines.
pub(crate) async fn agreed(what: &str, stop: &Stop) -> Result<bool, Error> {
    require_terminal(what)?;
    // Keys typed before the question are no reply to it.
    tcflush(stdin(), QueueSelector::IFlush)?;
    output::question(&format!("{what}. Continue? [y/N] "));
    let (told, answer) = oneshot::channel();
    // A thread of its own, because the end of the runtime would wait for a blocked one of tokio.
    thread::spawn(move || {
        let mut answer = String::new();
        let read = stdin().read_line(&mut answer).map(|_| answer);
        let _ = told.send(read);
    });
    let answer = tokio::select! {
        answer = answer => answer?,
        () = stop.told() => return Ok(false),
    };
    Ok(matches!(answer?.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
