//! What was read of a deployment: plain data. It knows neither AWS's clients nor what is good or
//! bad.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use requeue::queue::QueueArn;
use requeue::{QueueConfig, RecursiveLoop};

/// What was asked for, or why it is not known.
pub(crate) type Known<T> = Result<T, Unread>;

/// Something that AWS did not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unread {
    /// The permission that asking for it needs.
    pub(crate) permission: &'static str,
    /// The ARN, or the name, of what was asked about.
    pub(crate) resource: String,
    /// The service's code, or a word for what became of the request.
    pub(crate) code: String,
    /// Whether that is an answer, so that a permission may help.
    pub(crate) is_answered: bool,
}

/// A function with the queues that invoke it, or a queue without a function.
#[derive(Clone, Debug)]
pub(crate) struct Deployment {
    pub(crate) region: String,
    /// `None` for a queue that no mapping leads from: a worker's.
    pub(crate) function: Option<Function>,
    pub(crate) settings: FunctionSettings,
    /// What the policy document names for its queue.
    pub(crate) queue_config: QueueConfig,
    pub(crate) paths: Vec<QueuePath>,
    /// Why it is not known whether the queue has mappings.
    pub(crate) unlisted: Option<Unread>,
}

#[derive(Clone, Debug)]
pub(crate) struct Function {
    /// Without version and alias.
    pub(crate) name: String,
    pub(crate) timeout: Duration,
    /// The ARN of its role.
    pub(crate) role: String,
    pub(crate) logs: Logs,
    pub(crate) recursive_loop: Known<RecursiveLoop>,
    pub(crate) reserved_concurrency: Known<Option<u32>>,
    /// Those that its settings name.
    pub(crate) secrets: Vec<Secret>,
}

/// A secret of Secrets Manager or a parameter of SSM.
#[derive(Clone, Debug)]
pub(crate) struct Secret {
    /// Without what may follow it in a setting.
    pub(crate) arn: String,
    /// Whether the function's role may read it.
    pub(crate) decision: Known<AccessDecision>,
}

/// The function's logging controls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logs {
    pub(crate) is_json: bool,
    /// `INFO` and so on, where the format is JSON.
    pub(crate) level: Option<String>,
    pub(crate) group: Option<String>,
}

/// The `REQUEUE_` variables, read as the function reads them at its start, but for its secrets.
#[derive(Clone, Debug)]
pub(crate) enum FunctionSettings {
    Valid(Box<Valid>),
    /// One line for each problem.
    Invalid(Vec<String>),
    Unread(Unread),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Valid {
    pub(crate) config: requeue::Settings,
    /// The ARNs of those that they name, without what may follow there.
    pub(crate) secrets: BTreeSet<String>,
    /// How many variables there are.
    pub(crate) variables: usize,
    /// A file in the function's package, which nobody can read from outside. Then the policy in
    /// `config` means nothing.
    pub(crate) policy_file: Option<String>,
    /// Whether the strategy is named, and not merely the default.
    pub(crate) names_strategy: bool,
}

/// One queue from which messages are taken, and where they go from there.
#[derive(Clone, Debug)]
pub(crate) struct QueuePath {
    pub(crate) mapping: Option<Mapping>,
    pub(crate) source: Reached,
    /// By the source's redrive policy.
    pub(crate) dead_letters: Option<Reached>,
    /// By `REQUEUE_DEAD_LETTER_QUEUE_URL`.
    pub(crate) direct: Option<Reached>,
}

#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) uuid: String,
    pub(crate) state: String,
    pub(crate) batch_size: u32,
    pub(crate) window: Duration,
    pub(crate) reports_failures: bool,
    pub(crate) maximum_concurrency: Option<u32>,
    /// The most pollers of the provisioned mode.
    pub(crate) maximum_pollers: Option<u32>,
    /// The patterns, of which one has to match.
    pub(crate) filters: Known<Vec<String>>,
}

/// A queue, and what the function's role may do to it.
#[derive(Clone, Debug)]
pub(crate) struct Reached {
    pub(crate) arn: QueueArn,
    /// `None` when there is no such queue.
    pub(crate) queue: Known<Option<QueueAttributes>>,
    /// `None` where nobody asked: there is no role, or it needs none.
    pub(crate) access: Option<Known<Access>>,
    pub(crate) key: Option<EncryptionKey>,
}

#[derive(Clone, Debug)]
pub(crate) struct QueueAttributes {
    pub(crate) visibility: Duration,
    pub(crate) retention: Duration,
    pub(crate) delay: Duration,
    pub(crate) receive_wait: Duration,
    pub(crate) maximum_message_size: u64,
    pub(crate) redrive: Option<RedriveSettings>,
    pub(crate) redrive_allow: AllowedSources,
    /// The queue's own access policy.
    pub(crate) policy: Option<String>,
}

/// The redrive policy.
#[derive(Clone, Debug)]
pub(crate) struct RedriveSettings {
    /// The ARN of the dead-letter queue.
    pub(crate) target: String,
    pub(crate) max_receive_count: u32,
}

/// The redrive allow policy, which a dead-letter queue may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AllowedSources {
    All,
    None,
    /// The ARNs of these.
    Queues(Vec<String>),
}

/// The key of a queue that KMS encrypts.
#[derive(Clone, Debug)]
pub(crate) enum EncryptionKey {
    /// `alias/aws/sqs`, which everybody may use through SQS.
    ManagedByAws,
    /// One with a policy of its own.
    Customer {
        /// An ARN, or the alias by which the queue knows it.
        name: String,
        access: Known<Access>,
    },
}

/// What IAM says of each action.
pub(crate) type Access = BTreeMap<String, AccessDecision>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessDecision {
    Allowed,
    /// A statement, a boundary or an organization denies it.
    Denied,
    /// No statement allows it.
    NotAllowed,
    /// The role's policies have conditions on what is not known here.
    Depends,
}
