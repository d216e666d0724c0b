//! The facts of a deployment: plain data. It knows neither AWS's clients nor good and bad.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use requeue::queue::QueueArn;
use requeue::{QueueConfig, RecursiveLoop};

/// A fact, or the reason for which it is unknown.
pub(crate) type Known<T> = Result<T, Unread>;

/// A fact that AWS did not give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unread {
    /// The permission for the request.
    pub(crate) permission: &'static str,
    /// The ARN or the name of the resource.
    pub(crate) resource: String,
    /// The service's error code, or a word for the failure of the request.
    pub(crate) code: String,
    /// Whether the service responded, so that a permission may help.
    pub(crate) is_answered: bool,
}

/// A function with the queues that invoke it, or a queue without a function.
#[derive(Clone, Debug)]
pub(crate) struct Deployment {
    pub(crate) region: String,
    /// `None` for a queue without a mapping: a worker's.
    pub(crate) function: Option<Function>,
    pub(crate) settings: FunctionSettings,
    /// `queueConfig` of the policy document.
    pub(crate) queue_config: QueueConfig,
    pub(crate) paths: Vec<QueuePath>,
    /// The table of `REQUEUE_TABLE`.
    pub(crate) table: Option<Table>,
    /// The reason for which the queue's mappings are unknown.
    pub(crate) unlisted: Option<Unread>,
    /// All alarms of the account in this region.
    pub(crate) alarms: Known<Vec<Alarm>>,
}

/// A metric alarm or a composite alarm.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alarm {
    pub(crate) name: String,
    /// Whether CloudWatch runs its actions.
    pub(crate) is_enabled: bool,
    /// The ARNs of the actions for the state ALARM.
    pub(crate) actions: Vec<String>,
    /// The metrics that it reads.
    pub(crate) metrics: Vec<Metric>,
    /// Its expressions. A query of Metrics Insights is one.
    pub(crate) expressions: Vec<String>,
    /// The rule of a composite alarm.
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
    /// `None` if the qualifier is no alias.
    pub(crate) alias: Option<Known<Alias>>,
    pub(crate) timeout: Duration,
    /// The ARN of its role.
    pub(crate) role: String,
    pub(crate) state: State,
    /// `None` if it is in no VPC of the customer.
    pub(crate) vpc: Option<Vpc>,
    pub(crate) logs: Logs,
    /// The class of its log group; `None` if there is no such group.
    pub(crate) log_group: Known<Option<String>>,
    /// The lines of its log in the last day from which CloudWatch could make no metrics.
    pub(crate) refused_metrics: Known<u64>,
    pub(crate) log_access: Known<Access>,
    pub(crate) recursive_loop: Known<RecursiveLoop>,
    pub(crate) reserved_concurrency: Known<Option<u32>>,
    /// The concurrency that the account leaves to all functions without a reserved one.
    pub(crate) unreserved_concurrency: Known<u32>,
    /// The secrets in its settings.
    pub(crate) secrets: Vec<Secret>,
}

impl Function {
    /// Its name, with the version or the alias.
    pub(crate) fn qualified(&self) -> String {
        let qualifier = self.qualifier.iter().map(|qualifier| format!(":{qualifier}"));
        std::iter::once(self.name.clone()).chain(qualifier).collect()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Alias {
    pub(crate) version: String,
    /// During a gradual deployment.
    pub(crate) second: Option<SecondVersion>,
}

#[derive(Clone, Debug)]
pub(crate) struct SecondVersion {
    pub(crate) version: String,
    /// Its part of the invocations, from 0 to 1.
    pub(crate) weight: f64,
    /// The properties in which it differs from the first.
    pub(crate) differences: Known<Vec<&'static str>>,
}

/// Whether Lambda can run the function, in Lambda's words.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) current: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) last_update: Option<String>,
    pub(crate) last_update_reason: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Vpc {
    pub(crate) id: String,
    pub(crate) subnets: Vec<String>,
    /// Whether the function calls SQS over IPv6.
    pub(crate) has_ipv6: bool,
    /// All route tables of the VPC.
    pub(crate) tables: Known<Vec<RouteTable>>,
    /// All endpoints in the VPC.
    pub(crate) endpoints: Known<Vec<VpcEndpoint>>,
    /// All NAT gateways in the VPC.
    pub(crate) gateways: Known<Vec<NatGateway>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteTable {
    /// The account that owns it.
    pub(crate) owner: String,
    /// Whether it is the table of all subnets without an own one.
    pub(crate) is_main: bool,
    pub(crate) subnets: Vec<String>,
    pub(crate) routes: Vec<Route>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The addresses; `None` for a prefix list.
    pub(crate) destination: Option<String>,
    /// The id of the gateway, or `local`.
    pub(crate) target: String,
    /// `false` if the target does not exist.
    pub(crate) is_active: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VpcEndpoint {
    pub(crate) id: String,
    pub(crate) vpc: String,
    /// Whether it has addresses in the subnets, unlike a gateway endpoint.
    pub(crate) is_interface: bool,
    /// As in `com.amazonaws.eu-west-1.sqs`.
    pub(crate) service: String,
    pub(crate) state: String,
    /// Whether the service's usual host name leads to it.
    pub(crate) has_private_dns: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NatGateway {
    pub(crate) id: String,
    /// Whether it leads to the internet. A private one leads to other networks only.
    pub(crate) is_public: bool,
}

/// A secret of Secrets Manager or a parameter of SSM.
#[derive(Clone, Debug)]
pub(crate) struct Secret {
    /// The ARN alone, without the suffix that a setting may have.
    pub(crate) arn: String,
    /// Whether the function's role may read it.
    pub(crate) decision: Known<AccessDecision>,
    /// `None` if it is not encrypted.
    pub(crate) key: Known<Option<EncryptionKey>>,
}

/// The table that the execution environments share.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) arn: String,
    /// `None` if there is no such table.
    pub(crate) properties: Known<Option<TableProperties>>,
    /// The attribute by which items expire; `None` if they stay.
    pub(crate) expiry: Known<Option<String>>,
    /// The permissions of the function's role; `None` without a role.
    pub(crate) access: Option<Known<Access>>,
    /// `None` if DynamoDB owns it.
    pub(crate) key: Option<EncryptionKey>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableProperties {
    /// `ACTIVE`, `UPDATING` and so on.
    pub(crate) status: String,
    /// The attributes of the key, with their types: `id (S)`.
    pub(crate) key: Vec<String>,
    /// The write capacity units; `None` on demand.
    pub(crate) provisioned: Option<u64>,
}

/// The function's logging controls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logs {
    pub(crate) is_json: bool,
    /// `INFO` and so on, if the format is JSON.
    pub(crate) level: Option<String>,
    pub(crate) group: Option<String>,
}

impl Logs {
    /// The name of the function's log group.
    pub(crate) fn group_of(&self, function: &str) -> String {
        self.group.clone().unwrap_or_else(|| format!("/aws/lambda/{function}"))
    }
}

/// The `REQUEUE_` variables, read as the function reads them at its start, except for its secrets.
#[derive(Clone, Debug)]
pub(crate) enum FunctionSettings {
    Valid(Box<Valid>),
    /// One line for each problem, if nothing can be read without the invalid ones.
    Invalid(Vec<String>),
    Unread(Unread),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Valid {
    pub(crate) config: requeue::Settings,
    /// One line for each variable that is invalid. The rest is read as if it were not set, so that
    /// one bad variable hides no other trouble.
    pub(crate) problems: Vec<String>,
    /// The ARNs of the secrets in them, without suffixes.
    pub(crate) secrets: BTreeSet<String>,
    /// The number of variables.
    pub(crate) variables: usize,
    /// The place of a policy that the doctor does not read. The policy in `config` is then
    /// meaningless.
    pub(crate) policy_elsewhere: Option<PolicyPlace>,
    /// Whether `REQUEUE_POLICY` is among the problems. The policy in `config` is then meaningless.
    pub(crate) lacks_policy: bool,
    /// Whether a setting names the strategy.
    pub(crate) names_strategy: bool,
    /// The name of the table that the execution environments share.
    pub(crate) table: Option<String>,
}

/// A place that only the function reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PolicyPlace {
    /// A file in the function's package.
    File(String),
    /// The ARN of a secret or a parameter.
    Stored(String),
}

/// A source queue, and the dead-letter queues behind it.
#[derive(Clone, Debug)]
pub(crate) struct QueuePath {
    pub(crate) mapping: Option<Mapping>,
    pub(crate) source: Reached,
    /// The dead-letter queue in the source's redrive policy.
    pub(crate) dead_letters: Option<Reached>,
    /// The queue of `REQUEUE_DEAD_LETTER_QUEUE_URL`.
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
    /// The patterns; one of them has to match.
    pub(crate) filters: Known<Vec<String>>,
}

/// A queue, and the permissions of the function's role on it.
#[derive(Clone, Debug)]
pub(crate) struct Reached {
    pub(crate) arn: QueueArn,
    /// `None` if the queue does not exist.
    pub(crate) queue: Known<Option<QueueAttributes>>,
    /// `None` if there is no role, or if it needs no permission here.
    pub(crate) access: Option<Known<Access>>,
    pub(crate) key: Option<EncryptionKey>,
    /// All mappings from it.
    pub(crate) consumers: Known<Vec<Consumer>>,
}

/// An event source mapping of a queue.
#[derive(Clone, Debug)]
pub(crate) struct Consumer {
    pub(crate) uuid: String,
    /// The ARN of the function, with its alias or version.
    pub(crate) function: String,
    pub(crate) state: String,
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
    /// `alias/aws/sqs`, which all roles may use through SQS.
    ManagedByAws,
    /// One with a policy of its own.
    Customer(Box<CustomerKey>),
}

#[derive(Clone, Debug)]
pub(crate) struct CustomerKey {
    /// An ARN, or the alias by which the queue knows it.
    pub(crate) name: String,
    /// `NotAsked` if there is no role.
    pub(crate) access: Known<Access>,
    pub(crate) key: Known<Key>,
    /// The key's own policy.
    pub(crate) policy: Known<String>,
}

/// A key as KMS describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) arn: String,
    /// `Enabled`, `Disabled`, `PendingDeletion` and so on, or `checks::NO_KEY`.
    pub(crate) state: String,
}

/// IAM's decision on each action.
pub(crate) type Access = BTreeMap<String, AccessDecision>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessDecision {
    Allowed,
    /// A statement, a boundary or an organization denies it.
    Denied,
    /// No statement allows it.
    NotAllowed,
    /// No statement denies it, but this policy does not allow it, and the role's own cannot.
    Limited(Limit),
    /// The role's policies have conditions on facts that are unknown here.
    Depends,
}

/// A policy that bounds the permissions that other policies give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The role's permissions boundary.
    Boundary,
    /// The policies of the organization on the account.
    Organization,
}
