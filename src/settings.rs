//! The settings of a processor. Plain data with defaults; read from the environment by `config/`.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::classify::Rules;
use crate::clock::{Clock, Sampler};
use crate::delay::Delay;
use crate::disposition::Strategy;
use crate::policy::RetryPolicy;
use crate::queue::QueueUrl;
use crate::sender::TrustedSenders;
use crate::wire::Wrap;

/// The settings of a processor, with their defaults.
///
/// Later versions add settings, so begin with the defaults and assign. All settings and policies of
/// this crate are made so.
///
/// ```
/// use requeue::{Settings, Strategy};
/// let mut settings = Settings::default();
/// settings.limits.concurrency = 50;
/// settings.strategy = Strategy::Visibility;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Default: the built-in policy `standard`.
    pub policy: RetryPolicy,
    /// The policies of queues that have one of their own, by the name of the queue; see
    /// [`policy_for`](Self::policy_for). Default: none have.
    pub queue_policies: BTreeMap<String, RetryPolicy>,
    /// By which the handler classifies before anything built in. Default: none.
    pub rules: Rules,
    /// Default: see [`Limits`].
    pub limits: Limits,
    /// How a message waits for its next attempt. Default: [`Strategy::Copy`].
    pub strategy: Strategy,
    /// How Lambda treats copies. Default: [`RecursiveLoop::Terminate`].
    pub recursive_loop: RecursiveLoop,
    /// How a message that is given up reaches the dead-letter queue. Default:
    /// [`DeadLetterMode::Redrive`].
    pub dead_letter: DeadLetterMode,
    /// Whether failed messages are tried again at all. Default: [`Mode::Requeue`].
    pub mode: Mode,
    /// Whether a body that is no JSON object may be wrapped. Default: [`Wrap::WhenNeeded`].
    pub wrap: Wrap,
    /// The senders whose retry fields in a body are believed; those of others are taken for the
    /// producer's own. Default: `None`, everybody's are.
    pub trusted_senders: Option<TrustedSenders>,
    /// Whether producers may limit the retries of their own messages. Default:
    /// [`ProducerLimits::On`].
    pub producer_limits: ProducerLimits,
    /// Whether each batch writes its metrics to the standard output. Default: it does not.
    pub metrics: Option<Metrics>,
    /// Default: that of the queue, which is this machine's but for an embedded SQS.
    pub clock: Option<Clock>,
    /// Default: the thread's random generator.
    pub sampler: Sampler,
    /// The runtime on which handlers run. Default: the one on which the processor is made.
    pub handlers: Option<Handle>,
}

impl Settings {
    /// Another policy for the messages of one queue, for a function with several event source
    /// mappings.
    ///
    /// The queue has its own pauses and circuits with it. Its `sqs_calls` and `receive_calls` have
    /// no effect; those of [`policy`](Self::policy) are for all queues.
    ///
    /// ```no_run
    /// # use requeue::{Failure, Message, Settings};
    /// async fn handle(message: Message) -> Result<(), Failure> {
    ///     match message.queue().map(|queue| queue.name()) {
    ///         Some("refunds") => Ok(()),
    ///         _ => Ok(()),
    ///     }
    /// }
    ///
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let refunds = r#"{"preset": "critical", "maxRetries": 7}"#.parse()?;
    ///     let settings = Settings::from_env()?.policy_for("refunds", refunds);
    ///     Ok(requeue::run_with(handle, settings).await?)
    /// }
    /// ```
    #[must_use]
    pub fn policy_for(mut self, queue: impl Into<String>, policy: RetryPolicy) -> Self {
        self.queue_policies.insert(queue.into(), policy);
        self
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: RetryPolicy::default(),
            queue_policies: BTreeMap::new(),
            rules: Rules::new(),
            limits: Limits::default(),
            strategy: Strategy::Copy,
            recursive_loop: RecursiveLoop::Terminate,
            dead_letter: DeadLetterMode::Redrive,
            mode: Mode::Requeue,
            wrap: Wrap::WhenNeeded,
            trusted_senders: None,
            producer_limits: ProducerLimits::On,
            metrics: None,
            clock: None,
            sampler: Sampler::random(),
            handlers: None,
        }
    }
}

/// The bounds of the work on a batch.
///
/// ```
/// let mut limits = requeue::Limits::default();
/// limits.concurrency = 4;
/// assert_eq!(limits.timeout.as_secs(), 30);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Most handlers at once; 0 counts as 1. Default 10.
    pub concurrency: usize,
    /// Longest run of one handler. Default 30 s.
    pub timeout: Duration,
    /// Kept back at the end of an invocation, for settling. Default 5 s, but never more than a
    /// quarter of the time that the invocation has at its start.
    pub reserve: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { concurrency: 10, timeout: Duration::from_secs(30), reserve: Duration::from_secs(5) }
    }
}

/// The function's property of the same name: how Lambda acts when a function sends to the queue
/// that invokes it. The property has these two values, so a third one would be a new major version.
///
/// ```
/// assert_eq!(requeue::RecursiveLoop::default(), requeue::RecursiveLoop::Terminate);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecursiveLoop {
    /// It lets it.
    Allow,
    /// It refuses to invoke the function after about 16 rounds; the message reaches the dead-letter
    /// queue unseen. Therefore a message waits by its visibility once it, or one that shared an
    /// invocation with it, has come back in ten copies.
    #[default]
    Terminate,
}

/// Whether the message attributes `requeue.maxRetries`, `requeue.ttlSeconds` and
/// `requeue.notBefore` bind their own message.
///
/// ```
/// assert_eq!(requeue::ProducerLimits::default(), requeue::ProducerLimits::On);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProducerLimits {
    /// They do, as far as they are tighter than the policy. A message with a value that cannot be
    /// read is non-retryable.
    #[default]
    On,
    /// They are attributes as any other.
    Off,
}

/// How failures are treated.
///
/// ```
/// assert_eq!(requeue::Mode::default(), requeue::Mode::Requeue);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Each is sorted, and what can be tried again is.
    #[default]
    Requeue,
    /// Each is sorted and logged, and left to SQS as if there were no Requeue: it comes back after
    /// its visibility timeout, until the queue's redrive policy moves it. Nothing is sent, nothing
    /// paused. A message that is not due waits by its visibility. For emergencies.
    Report,
}

impl Mode {
    /// The word of the setting `REQUEUE_MODE`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requeue => "requeue",
            Self::Report => "report",
        }
    }
}

/// How a message that is given up reaches the dead-letter queue.
///
/// A message that failed for good, in a queue with a `maxReceiveCount` of 10:
///
/// | | `Redrive` | `Annotate` | `Direct` |
/// |---|---|---|---|
/// | calls of the handler | 1 by each process that receives it, 10 at most | 1 | 1 |
/// | in the dead-letter queue | after 10 visibility timeouts | after 10 s | at once |
/// | SQS requests, all in all; of a message among ten | 11; 1.1 | 25; 2.5 | 5; 0.5 |
/// | says why | no | yes | yes |
/// | an operator moves it back | to where it came from | to where it came from | to a queue that has to be named |
/// | its FIFO group | waits | waits, as with `Redrive` | goes on |
///
/// ```
/// assert_eq!(requeue::DeadLetterMode::default(), requeue::DeadLetterMode::Redrive);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadLetterMode {
    /// It stays in the queue until the queue's redrive policy moves it. A process remembers 4,096
    /// messages that it gave up and does not handle them again; another process does, once.
    #[default]
    Redrive,
    /// It is replaced by a copy that says in `retryState.deadLetter` why it was given up, and is
    /// not handled again; the queue's redrive policy moves that. Where SQS does not confirm the
    /// copy, a process that remembers the message sends it again on the next receive, without a
    /// call of the handler. On a FIFO queue, and after ten copies in a row where loops are not
    /// allowed ([`RecursiveLoop`]), it is as [`Redrive`](Self::Redrive).
    Annotate,
    /// A copy that says why is sent to this queue, and the original is deleted. If SQS does not
    /// confirm the copy, the original stays, as with [`Annotate`](Self::Annotate). SQS does not
    /// know where such a copy came from, so an operator who moves it back has to name the queue.
    /// The copy claims one in `retryState.source`, which anybody could write: see
    /// [`Settings::trusted_senders`].
    Direct(QueueUrl),
}

impl DeadLetterMode {
    /// The word of the setting `REQUEUE_DEAD_LETTER`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Redrive => "redrive",
            Self::Annotate => "annotate",
            Self::Direct(_) => "direct",
        }
    }

    /// The queue to which copies are sent, if the mode names one.
    #[must_use]
    pub const fn queue(&self) -> Option<&QueueUrl> {
        match self {
            Self::Direct(queue) => Some(queue),
            Self::Redrive | Self::Annotate => None,
        }
    }

    /// How long a copy in the mode [`Annotate`](Self::Annotate) waits before its first receive. One
    /// that is received sooner was therefore sent by somebody else: an operator's redrive.
    pub const ANNOTATION_DELAY: Delay = Delay::secs(10);

    /// On so many receives an annotated copy becomes visible again at once. A redrive policy with a
    /// higher `maxReceiveCount`, or a queue without one, must not keep the function busy.
    pub const MAX_SHOWN_RECEIVES: u32 = 10;
}

/// The fixed values of each line of metrics, which CloudWatch reads in its embedded metric format.
///
/// ```
/// let metrics = requeue::Metrics::of("orders");
/// assert_eq!(metrics.level, "INFO");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// The dimension `Service`: 1 to 255 printable ASCII characters.
    pub service: String,
    /// The member `level`. Lambda drops lines below the level of the function's log; so it should
    /// be that level.
    pub level: String,
}

impl Metrics {
    /// The metrics of a service, at level INFO.
    #[must_use]
    pub fn of(service: impl Into<String>) -> Self {
        Self { service: service.into(), level: "INFO".to_owned() }
    }
}
