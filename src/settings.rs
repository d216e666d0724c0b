//! The settings of a processor. Plain data with defaults; read from the environment by `config/`.

use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::classify::Rules;
use crate::clock::{Clock, Sampler};
use crate::delay::Delay;
use crate::disposition::Strategy;
use crate::failure::DetailText;
use crate::observer::Observers;
use crate::policy::RetryPolicy;
use crate::queue::QueueUrl;
use crate::sender::TrustedSenders;
use crate::table::Table;
use crate::wire::Wrap;
use crate::words::words;

pub(crate) const NO_TABLE: &str = "the policy has `idempotency`, which needs a table: set Settings::shared_table, or remove `idempotency`";

pub(crate) const NO_COPIES: &str = "the policy has `fair_shares`, and Lambda stops a message after about 16 copies in a row, of which a wait for \
                                    other tenants may take more: set the function's property RecursiveLoop and Settings::recursive_loop to Allow, or \
                                    remove `fair_shares`";

/// The settings of a processor, with their defaults.
///
/// Later versions add settings, so begin with the defaults and assign. All settings and policies of
/// this crate are made so.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Settings {
    /// The policy. Default: the built-in policy `standard`.
    pub policy: RetryPolicy,
    /// The settings of single queues, by the name of the queue; see
    /// [`policy_for`](Self::policy_for). Default: none.
    pub queues: BTreeMap<String, QueueSettings>,
    /// The rules by which the handler classifies, before the built-in tables. Default: none.
    pub rules: Rules,
    /// Whether a dead letter keeps the service's own words. Default: [`DetailText::Off`].
    pub detail_text: DetailText,
    /// The bounds of the work on a batch. Default: see [`Limits`].
    pub limits: Limits,
    /// How a message waits for its next attempt. Default: [`Strategy::Copy`].
    pub strategy: Strategy,
    /// How Lambda treats copies. Default: [`RecursiveLoop::Terminate`].
    pub recursive_loop: RecursiveLoop,
    /// How a dead-lettered message reaches the dead-letter queue. Default: `None`, which leaves it
    /// to the host. A Lambda function then has [`DeadLetterMode::Redrive`], because its role may
    /// not send. A [`Worker`](crate::Worker) has [`DeadLetterMode::OF_WORKERS`].
    pub dead_letter: Option<DeadLetterMode>,
    /// Whether failed messages are tried again at all. Default: [`Mode::Requeue`].
    pub mode: Mode,
    /// Whether a body that is no JSON object may be wrapped. Default: [`Wrap::WhenNeeded`].
    pub wrap: Wrap,
    /// The senders whose retry fields in a body Requeue trusts. It treats the retry fields of any
    /// other sender as the producer's own. Default: `None`, which trusts every sender.
    pub trusted_senders: Option<TrustedSenders>,
    /// Whether producers may limit the retries of their own messages. Default:
    /// [`ProducerLimits::On`].
    pub producer_limits: ProducerLimits,
    /// The table that all execution environments share. Default: none, so each keeps rate limits,
    /// pauses and circuits alone.
    pub shared_table: Option<SharedTable>,
    /// Whether each batch writes its metrics to the standard output. Default: it does not.
    pub metrics: Option<Metrics>,
    /// The observers of events. Default: [`LogLines`](crate::LogLines), which writes the log.
    pub observers: Observers,
    /// The clock. Default: the clock of the queue, which is this machine's unless the SQS is
    /// embedded.
    pub clock: Option<Clock>,
    /// The source of random numbers. Default: the thread's random generator.
    pub sampler: Sampler,
    /// The runtime on which handlers run. Default: the one on which the processor is made.
    pub handlers: Option<Handle>,
}

impl Settings {
    /// Whether a policy has `idempotency`, and there is no table for it.
    pub(crate) fn lacks_table(&self) -> bool {
        self.shared_table.is_none() && self.policies().any(|policy| policy.idempotency.is_some())
    }

    /// Whether tenants share a rate limit, and Lambda stops messages that wait for it.
    pub(crate) fn lacks_copies(&self) -> bool {
        self.recursive_loop == RecursiveLoop::Terminate
            && self.strategy == Strategy::Copy
            && self.policies().any(|policy| policy.fair_shares.is_some())
    }

    /// The policy, and those of single queues.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &RetryPolicy> {
        iter::once(&self.policy).chain(self.queues.values().map(|own| &own.policy))
    }
}

/// The bounds of the work on a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Most handlers at once; 0 counts as 1. Default 10.
    pub concurrency: usize,
    /// Longest run of one handler. Default 30 s.
    pub timeout: Duration,
    /// The time reserved at the end of an invocation, for settling. Default 5 s, but never more
    /// than a quarter of the time that the invocation has at its start.
    pub reserve: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { concurrency: 10, timeout: Duration::from_secs(30), reserve: Duration::from_secs(5) }
    }
}

/// How the execution environments of a function share rate limits, pauses, circuits and counts of
/// attempts: by a table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SharedTable {
    /// The table.
    pub table: Arc<dyn Table>,
    /// A part of the key of each item, so that several functions can use one table. Default: empty;
    /// [`Settings::from_env`] sets the function's name.
    pub namespace: String,
    /// The most execution environments at once. While the table does not respond, each makes as
    /// many calls as in the last 30 s, or an equal part of the rate limit, whichever is more.
    /// Default 1,000.
    pub max_environments: u32,
}

impl SharedTable {
    /// Shared by this table, with the defaults.
    pub fn by(table: Arc<dyn Table>) -> Self {
        Self { table, namespace: String::new(), max_environments: 1_000 }
    }
}

/// The function's property of the same name: Lambda's reaction to a function that sends to its own
/// queue. The property has these two values, so a third one would be a new major version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecursiveLoop {
    /// Lambda allows it.
    Allow,
    /// Lambda stops invoking the function after about 16 rounds, and the message reaches the
    /// dead-letter queue without a call. Therefore Requeue sends at most ten copies in a row. After
    /// ten copies of a message, or of one that shared an invocation with it, it waits with its
    /// visibility timeout.
    #[default]
    Terminate,
}

/// Whether the message attributes `requeue.maxRetries`, `requeue.ttlSeconds` and
/// `requeue.notBefore` limit the retries of their message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProducerLimits {
    /// Each binds its message where it is tighter than the policy.
    #[default]
    On,
    /// They are ordinary attributes.
    Off,
}

words! {
    "The word of the setting `REQUEUE_MODE`."
    /// How failures are treated.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Mode {
        /// Requeue classifies each failure, and retries each message that it can.
        #[default]
        Requeue = "requeue",
        /// Requeue classifies and logs each failure and leaves the message to SQS. The message
        /// becomes visible again after its visibility timeout, until the queue's redrive policy
        /// moves it. Requeue sends no copy and pauses nothing. A message that is not due waits with
        /// its visibility timeout. For emergencies.
        Report = "report",
    }
}

/// How a message that is dead-lettered reaches the dead-letter queue.
/// `docs/concepts/dead-letters.md` compares the modes in calls, requests and time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadLetterMode {
    /// The message stays in the queue until the queue's redrive policy moves it. A process
    /// remembers 4,096 messages that it dead-lettered and does not handle them again. Another process
    /// handles them once.
    #[default]
    Redrive,
    /// A copy with the reason in `retryState.deadLetter` replaces the message. Requeue calls no
    /// handler for the copy, and the queue's redrive policy moves it.
    ///
    /// If SQS does not confirm the copy, a process that remembers the message sends it again on the
    /// next receive and calls no handler. On a FIFO queue, this mode acts as
    /// [`Redrive`](Self::Redrive). So it does after ten copies in a row where loops are not allowed
    /// ([`RecursiveLoop`]).
    Annotate,
    /// Requeue sends a copy with the reason to this queue and deletes the original. If SQS does not
    /// confirm the copy, the original stays, as with [`Annotate`](Self::Annotate).
    ///
    /// SQS does not know the source queue of such a copy, so an operator who redrives it has to
    /// name one. The copy names its source in `retryState.source`, but anybody could write that:
    /// see [`Settings::trusted_senders`].
    Direct(QueueUrl),
}

impl DeadLetterMode {
    /// The mode of a worker whose settings name none: its role sends copies anyway, and dead
    /// letters then have a reason.
    pub const OF_WORKERS: Self = Self::Annotate;

    /// The word of the setting `REQUEUE_DEAD_LETTER`.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Redrive => "redrive",
            Self::Annotate => "annotate",
            Self::Direct(_) => "direct",
        }
    }

    /// The queue to which copies are sent, if the mode names one.
    pub const fn queue(&self) -> Option<&QueueUrl> {
        match self {
            Self::Direct(queue) => Some(queue),
            Self::Redrive | Self::Annotate => None,
        }
    }

    /// How long a copy in the mode [`Annotate`](Self::Annotate) waits before its first receive. If
    /// SQS delivers such a copy sooner, somebody else has sent it: an operator's redrive.
    pub const ANNOTATION_DELAY: Delay = Delay::secs(10);

    /// After each of its first receives, up to this number, an annotated copy becomes visible again
    /// at once. After that it waits for its visibility timeout. A redrive policy with a higher
    /// `maxReceiveCount`, or none, must not keep the function busy.
    pub const MAX_SHOWN_RECEIVES: u32 = 10;
}

/// The fixed values of each line of metrics, which CloudWatch reads in its embedded metric format.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// The dimension `Service`: 1 to 255 printable ASCII characters.
    pub service: String,
    /// The field `level`. Set it to the log level of the function: Lambda drops lines below that
    /// level.
    pub level: String,
}

impl Metrics {
    /// The metrics of a service, at level INFO.
    pub fn of(service: impl Into<String>) -> Self {
        Self { service: service.into(), level: "INFO".to_owned() }
    }
}

/// The settings of one queue: see [`Settings::policy_for`].
/// A policy becomes such settings by `into`, and the text of a document's entry by `parse`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct QueueSettings {
    /// The policy. It replaces [`Settings::policy`] as a whole, except `sqs_calls` and
    /// `receive_calls`.
    pub policy: RetryPolicy,
    /// The rules, which replace [`Settings::rules`]. Default: `None`, which keeps those.
    pub rules: Option<Rules>,
    /// Longest run of one handler. Default: `None`, which keeps that of [`Settings::limits`].
    pub timeout: Option<Duration>,
    /// Most handlers at once in a batch of this queue, or in a worker on it; 0 counts as 1. Default:
    /// `None`, which keeps that of [`Settings::limits`].
    pub concurrency: Option<usize>,
    /// How a dead-lettered message reaches the dead-letter queue. Default: `None`, which keeps
    /// [`Settings::dead_letter`].
    pub dead_letter: Option<DeadLetterMode>,
}

impl From<RetryPolicy> for QueueSettings {
    fn from(policy: RetryPolicy) -> Self {
        Self { policy, ..Self::default() }
    }
}

impl Settings {
    /// Sets the policy of one queue, and all else that is to differ for its messages. It is for a
    /// process that works on several queues, such as a function with several event source mappings.
    ///
    /// The queue then has its own pauses, circuits and limits.
    ///
    /// ```
    /// use requeue::{QueueSettings, Settings};
    /// let refunds: QueueSettings = r#"{"maxRetries": 7, "concurrency": 2}"#.parse()?;
    /// let settings = Settings::default().policy_for("refunds", refunds);
    /// # Ok::<(), requeue::InvalidPolicy>(())
    /// ```
    #[must_use]
    pub fn policy_for(mut self, queue: impl Into<String>, own: impl Into<QueueSettings>) -> Self {
        self.queues.insert(queue.into(), own.into());
        self
    }

    /// The settings as they count for the messages of one queue.
    #[must_use]
    pub fn of_queue(&self, queue: &str) -> Self {
        let mut settings = self.clone();
        if let Some(own) = self.queues.get(queue) {
            settings.apply(own.clone());
        }
        settings
    }

    pub(crate) fn apply(&mut self, own: QueueSettings) {
        let QueueSettings { policy, rules, timeout, concurrency, dead_letter } = own;
        let RetryPolicy { sqs_calls, receive_calls, .. } = self.policy.clone();
        self.policy = RetryPolicy { sqs_calls, receive_calls, ..policy };
        if let Some(rules) = rules {
            self.rules = rules;
        }
        self.limits.timeout = timeout.unwrap_or(self.limits.timeout);
        self.limits.concurrency = concurrency.unwrap_or(self.limits.concurrency);
        self.dead_letter = dead_letter.or(self.dead_letter.take());
    }
}
