//! The facts of a deployment: plain data. It knows neither AWS's clients nor levels.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use requeue::queue::{CallError, QueueArn};
use requeue::{RecursiveLoop, Settings};

pub(crate) use crate::function::{Logs, Readiness};

/// A fact, or the reason for which it is unknown.
pub(crate) type Known<T> = Result<T, Unread>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unread {
    pub(crate) permission: &'static str,
    pub(crate) resource: String,
    pub(crate) error: CallError,
}

impl Unread {
    pub(crate) fn of(
        permission: &'static str,
        resource: impl Into<String>,
        error: CallError,
    ) -> Self {
        Self { permission, resource: resource.into(), error }
    }
}

/// A function with the queues that invoke it, or a queue without a function.
#[derive(Clone, Debug)]
pub(crate) struct Deployment {
    pub(crate) region: String,
    /// `None` for a queue without a mapping: a worker's.
    pub(crate) function: Option<Function>,
    pub(crate) settings: Known<FunctionSettings>,
    pub(crate) paths: Vec<QueuePath>,
    pub(crate) table: Option<Table>,
    pub(crate) target: Option<InvokedFunction>,
    /// Whether SQS confirmed all copies of the last hour, by the metrics `Requeued` and
    /// `SendUnconfirmed`; `None` without any, and unless the function is in a VPC.
    pub(crate) sends: Known<Option<bool>>,
    /// Why it is unknown whether a queue without a function has source queues.
    pub(crate) unlisted: Option<Unread>,
    pub(crate) alarms: Known<Vec<Alarm>>,
}

impl Deployment {
    /// Whether nothing shows that the function is one of Requeue.
    pub(crate) fn lacks_variables(&self) -> bool {
        self.function.is_some() && self.settings.as_ref().is_ok_and(|read| read.variables == 0)
    }

    /// Without a queue that is the dead-letter queue of another one. Handling its messages is the
    /// mistake, which the check `dead-letter-consumers` of the other one reports.
    pub(crate) fn handled(&self) -> impl Iterator<Item = &QueuePath> {
        let is_of = |path: &QueuePath, other: &QueuePath| {
            let dead_letters = other.dead_letters.as_ref().map(|reached| &reached.arn);
            dead_letters == Some(&path.source.arn) && path.source.arn != other.source.arn
        };
        self.paths.iter().filter(move |path| {
            !self.paths.iter().any(|other| is_of(path, other) && !is_of(other, path))
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Alarm {
    pub(crate) name: String,
    pub(crate) is_enabled: bool,
    /// The ARNs of the actions for the state ALARM.
    pub(crate) actions: Vec<String>,
    pub(crate) metrics: Vec<Metric>,
    /// Its expressions. A query of Metrics Insights is one.
    pub(crate) expressions: Vec<String>,
    pub(crate) rule: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Metric {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) dimensions: BTreeMap<String, String>,
    /// The account that has it, if the alarm names one.
    pub(crate) account: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Function {
    /// Without version and alias.
    pub(crate) name: String,
    /// The version or the alias that the mapping invokes.
    pub(crate) qualifier: Option<String>,
    /// Other versions and aliases that mappings invoke, with the function's name.
    pub(crate) mapped: Vec<String>,
    pub(crate) timeout: Duration,
    pub(crate) role: String,
    pub(crate) state: Readiness,
    /// The last start that failed with this configuration, and its error.
    pub(crate) start_failure: Known<Option<(SystemTime, String)>>,
    /// The id of its VPC; `None` if it is in none of the customer.
    pub(crate) vpc: Option<String>,
    pub(crate) logs: Logs,
    /// The class of its log group; `None` if there is no such group.
    pub(crate) log_group: Known<Option<String>>,
    pub(crate) log_access: Known<Access>,
    pub(crate) recursive_loop: Known<RecursiveLoop>,
    pub(crate) reserved_concurrency: Known<Option<u32>>,
    /// The concurrency that the account leaves to all functions without a reserved one.
    pub(crate) unreserved_concurrency: Known<u32>,
    pub(crate) secrets: Vec<Secret>,
}

impl Function {
    pub(crate) fn qualified(&self) -> String {
        let qualifier = self.qualifier.iter().map(|qualifier| format!(":{qualifier}"));
        std::iter::once(self.name.clone()).chain(qualifier).collect()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Secret {
    /// The ARN alone, without the suffix that a setting may have.
    pub(crate) arn: String,
    /// Whether the function's role may read it.
    pub(crate) access: Known<Access>,
    /// `None` without one of the customer.
    pub(crate) key: Known<Option<CustomerKey>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) arn: String,
    /// `None` if there is no such table.
    pub(crate) properties: Known<Option<TableProperties>>,
    /// The attribute by which items expire; `None` if they stay.
    pub(crate) expiry: Known<Option<String>>,
    /// The permissions of the function's role.
    pub(crate) access: Known<Access>,
    pub(crate) key: Option<CustomerKey>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableProperties {
    pub(crate) status: String,
    /// The attributes of the key, with their types: `id (S)`.
    pub(crate) key: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct InvokedFunction {
    /// The name or the ARN, with a version or an alias, as in the setting.
    pub(crate) name: String,
    pub(crate) arn: String,
    pub(crate) messages_per_call: u32,
    /// `None` if there is no such function.
    pub(crate) properties: Known<Option<TargetProperties>>,
    pub(crate) reserved_concurrency: Known<Option<u32>>,
    /// The permissions of the function's role.
    pub(crate) access: Known<Access>,
}

#[derive(Clone, Debug)]
pub(crate) struct TargetProperties {
    pub(crate) state: Readiness,
    pub(crate) timeout: Duration,
    pub(crate) isolates_tenants: bool,
    pub(crate) is_durable: bool,
}

/// The `REQUEUE_` variables, read as the function reads them at its start, except for its secrets.
#[derive(Clone, Debug, Default)]
pub(crate) struct FunctionSettings {
    pub(crate) config: Settings,
    /// One line for each variable that is invalid. The rest is read as if it were not set.
    pub(crate) problems: Vec<String>,
    /// The names of the variables that are not in `config`, since they or others are invalid.
    pub(crate) unread: BTreeSet<String>,
    pub(crate) secrets: BTreeSet<String>,
    pub(crate) variables: usize,
    /// The place of a policy that only the function reads: the ARN of a stored text, or a file in
    /// its package. The policy in `config` is then meaningless.
    pub(crate) policy_elsewhere: Option<String>,
    /// Whether `REQUEUE_POLICY` is among the problems. The policy in `config` is then meaningless.
    pub(crate) lacks_policy: bool,
    pub(crate) table: Option<String>,
    pub(crate) target_url: Option<String>,
    pub(crate) target_function: Option<(String, u32)>,
}

#[derive(Clone, Debug)]
pub(crate) struct QueuePath {
    pub(crate) mapping: Option<Mapping>,
    pub(crate) source: Reached,
    pub(crate) dead_letters: Option<Reached>,
    /// The queue of `REQUEUE_DEAD_LETTER_QUEUE_URL`, or of the policy's entry for the source.
    pub(crate) direct: Option<Reached>,
}

#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) uuid: String,
    /// The ARN of the function, with its alias or version.
    pub(crate) function: String,
    pub(crate) state: String,
    pub(crate) batch_size: u32,
    pub(crate) window: Duration,
    pub(crate) reports_failures: bool,
    pub(crate) maximum_concurrency: Option<u32>,
    pub(crate) maximum_pollers: Option<u32>,
    pub(crate) filters: Known<Vec<String>>,
}

impl Mapping {
    /// The most batches at a time; `None` if nothing bounds them. A poller invokes the function up
    /// to ten times at once. Source: Lambda developer guide, "Provisioned mode".
    pub(crate) fn most_batches(&self) -> Option<u32> {
        let by_pollers = self.maximum_pollers.map(|pollers| pollers.saturating_mul(10));
        self.maximum_concurrency.or(by_pollers)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Reached {
    pub(crate) arn: QueueArn,
    /// `None` if the queue does not exist.
    pub(crate) queue: Known<Option<QueueAttributes>>,
    pub(crate) access: Known<Access>,
    pub(crate) key: Option<CustomerKey>,
    pub(crate) consumers: Known<Vec<Mapping>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueAttributes {
    pub(crate) visibility: Duration,
    pub(crate) delay: Duration,
    pub(crate) retention: Duration,
    pub(crate) maximum_message_size: u64,
    pub(crate) redrive: Option<RedriveSettings>,
    /// The ARNs of the queues that a redrive allow policy allows, if this dead-letter queue has
    /// one.
    pub(crate) redrive_allow: Option<Vec<String>>,
    pub(crate) policy: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RedriveSettings {
    pub(crate) target: String,
    pub(crate) max_receive_count: u32,
}

/// A KMS key with a policy of its own. All roles may use those that AWS manages.
#[derive(Clone, Debug)]
pub(crate) struct CustomerKey {
    /// An ARN, or the alias by which the queue knows it.
    pub(crate) name: String,
    pub(crate) access: Known<Access>,
    pub(crate) key: Known<Key>,
    pub(crate) policy: Known<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) arn: String,
    /// `Enabled`, `Disabled`, `PendingDeletion` and so on, or `checks::NO_KEY`.
    pub(crate) state: String,
}

/// Empty without a role, or if it needs no permission.
pub(crate) type Access = BTreeMap<String, AccessDecision>;

/// From bad to good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AccessDecision {
    /// A statement or a boundary denies it.
    Denied,
    /// The role's permissions boundary does not allow it, and the role's own policies cannot.
    OutOfBoundary,
    /// No statement allows it.
    NotAllowed,
    /// By the organization's policies. IAM may not know all facts of their conditions.
    OutOfOrganization,
    /// The role's policies have conditions on facts that are unknown here.
    Depends,
    Allowed,
}
