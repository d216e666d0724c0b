//! The policy of a command, in all forms of `--policy`. The library has the rules.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use requeue::classify::Rules;
use requeue::policy::RetryPolicy;
use requeue::queue::{Arn, MAX_DELAY};
use requeue::{FailureClass, InvalidPolicy, QueueConfig, QueueSettings, Settings, Variables};

use crate::table::counted;
use crate::{Error, bail, environment};

pub(crate) const PRESETS: [&str; 3] = ["standard", "high-volume", "critical"];

/// The longest document. Stored ones have at most 64 KiB.
const MAX_BYTES: usize = 1024 * 1024;
const ALLOWED: &str = "1 MiB; name a policy document, whose keys are in docs/reference/policy.md";

#[derive(Clone)]
pub(crate) struct Document {
    pub(crate) policy: RetryPolicy,
    pub(crate) rules: Rules,
    pub(crate) queues: BTreeMap<String, QueueSettings>,
    pub(crate) queue_config: QueueConfig,
}

impl Document {
    pub(crate) fn apply_to(self, settings: &mut Settings) {
        (settings.policy, settings.rules, settings.queues) = (self.policy, self.rules, self.queues);
    }
}

#[derive(Clone, Debug)]
pub(crate) enum PolicyName {
    StandardInput,
    File(PathBuf),
    Inline(String),
    Preset(&'static str),
}

impl FromStr for PolicyName {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match PRESETS.into_iter().find(|preset| *preset == text) {
            Some(preset) => Self::Preset(preset),
            None if text == "-" => Self::StandardInput,
            None if text.trim_start().starts_with('{') => Self::Inline(text.to_owned()),
            None => Self::File(text.into()),
        })
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StandardInput => f.write_str("(standard input)"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Inline(_) => f.write_str("(command line)"),
            Self::Preset(name) => f.write_str(name),
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct PolicyArgument {
    /// The policy: a file, `-` for the standard input, a JSON document, or the name of a built-in
    /// policy (standard, high-volume, critical). [default: `REQUEUE_POLICY`, or else standard]
    #[arg(long, help_heading = "Policy", value_name = "POLICY")]
    policy: Option<PolicyName>,
}

impl PolicyArgument {
    /// The policy of the option, or else of the environment.
    pub(crate) fn name(&self) -> Option<PolicyName> {
        self.given().or_else(|| Variables::from_env().get("POLICY")?.parse().ok())
    }

    /// The policy of the option alone, for commands that read the environment's settings.
    pub(crate) fn given(&self) -> Option<PolicyName> {
        self.policy.clone()
    }

    pub(crate) fn read(&self) -> Result<RetryPolicy, Error> {
        Ok(self.name().unwrap_or(PolicyName::STANDARD).read()?.policy)
    }

    pub(crate) fn apply_to(&self, settings: &mut Settings) -> Result<(), Error> {
        if let Some(name) = self.given() {
            name.read()?.apply_to(settings);
        }
        Ok(())
    }
}

impl PolicyName {
    pub(crate) const STANDARD: Self = Self::Preset(PRESETS[0]);

    pub(crate) fn read(&self) -> Result<Document, Error> {
        self.parse(&self.text()?)
    }

    /// The name for a title: of a file its last part.
    pub(crate) fn title(&self) -> String {
        match self {
            Self::File(path) if let Some(file) = path.file_name() => file.display().to_string(),
            other => other.to_string(),
        }
    }

    pub(crate) fn text(&self) -> Result<String, Error> {
        let read = match self {
            Self::StandardInput => environment::read(Path::new("-"), MAX_BYTES, ALLOWED),
            Self::File(path) => {
                self.refuse_arn(&path.display().to_string())?;
                environment::read(path, MAX_BYTES, ALLOWED)
            }
            Self::Inline(text) => Ok(text.clone()),
            Self::Preset(name) => Ok(serde_json::json!({ "preset": name }).to_string()),
        };
        Ok(read.map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::NotFound => {
                    format!("; name a file, or a built-in policy: {}", PRESETS.join(", "))
                }
                _ => String::new(),
            };
            format!("the policy {self} cannot be read: {error}{remedy}")
        })?)
    }

    pub(crate) fn parse(&self, text: &str) -> Result<Document, Error> {
        self.refuse_arn(text.trim())?;
        Ok(parse_text(text).map_err(|invalid| InvalidDocument {
            name: self.to_string(),
            problems: invalid.problems().to_vec(),
        })?)
    }

    fn refuse_arn(&self, text: &str) -> Result<(), Error> {
        if let Some(command) = stored(text) {
            bail!(
                "the policy {self} is an ARN: this command reads the document itself; print it \
                 with:\n  {command}"
            );
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the policy {name} has {}:\n  {}", counted(.problems.len(), "problem"), .problems.join("\n  "))]
pub(crate) struct InvalidDocument {
    name: String,
    pub(crate) problems: Vec<String>,
}

pub(crate) fn parse_text(text: &str) -> Result<Document, InvalidPolicy> {
    let mut settings = Settings::default();
    settings.set_policy(text)?;
    let Settings { policy, rules, queues, .. } = settings;
    Ok(Document { policy, rules, queues, queue_config: text.parse()? })
}

/// The command that prints the document whose ARN this is.
fn stored(arn: &str) -> Option<String> {
    match Arn::of(arn).service {
        "ssm" => Some(format!(
            "aws ssm get-parameter --with-decryption --name {arn} --query Parameter.Value --output text"
        )),
        "secretsmanager" => Some(format!(
            "aws secretsmanager get-secret-value --secret-id {arn} --query SecretString --output text"
        )),
        _ => None,
    }
}

/// The classes that are retried, in the order of the policy.
pub(crate) const RETRIED_CLASSES: [FailureClass; 3] =
    [FailureClass::RateLimit, FailureClass::Quota, FailureClass::Temporary];

/// The longest time that a class allows from the first receive to the last retry.
pub(crate) fn age_budget(policy: &RetryPolicy) -> Duration {
    let classes = RETRIED_CLASSES.into_iter().filter_map(|class| policy.class(class));
    classes.map(|class| class.total_timeout).max().unwrap_or_default()
}

/// Whether SQS deletes messages of a queue with this retention while they wait. The retention of each
/// copy starts again. So a queue whose retention exceeds every single wait loses a message only in a
/// backlog.
pub(crate) fn loses_waiting(
    retention: Duration,
    policy: &RetryPolicy,
    waits_in_place: bool,
) -> bool {
    let longest = if waits_in_place { age_budget(policy) + MAX_DELAY } else { MAX_DELAY };
    retention <= longest
}

/// The retries that a class allows: its own limit or that of the policy, whichever is lower.
pub(crate) fn max_retries(policy: &RetryPolicy, class: FailureClass) -> u32 {
    policy.class(class).map_or(0, |class| {
        class.max_retries.map_or(policy.max_retries, |own| own.min(policy.max_retries))
    })
}

pub(crate) fn retries(count: u32) -> String {
    counted(count, "retry")
}

/// Messages that wait for their reservations occupy handlers. With this many handlers, the tenants
/// of a fair limit do not wait for each other: twice the calls of a longest reservation. The number
/// of calls that a limit of units allows is unknown.
pub(crate) fn places_for_tenants(policy: &RetryPolicy) -> Option<u64> {
    let counts_calls = policy.fair_shares.is_some() && policy.units.is_none();
    let limit = policy.limit.filter(|_| counts_calls)?;
    let calls =
        limit.max_reservation.as_nanos() * u128::from(limit.limit) / limit.period.as_nanos();
    Some(u64::try_from(2 * calls).unwrap_or(u64::MAX))
}
