//! Settings: the environment and the policy document become [`Settings`], with all problems
//! reported together. Only this module reads the environment.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use crate::disposition::Strategy;
use crate::failure::DetailText;
use crate::queue::{Principal, QueueUrl};
use crate::sender::TrustedSenders;
use crate::settings::{
    DeadLetterMode, Limits, Metrics, Mode, ProducerLimits, RecursiveLoop, Settings, SharedTable,
};
#[cfg(feature = "table")]
use crate::table::DynamoTable;
use crate::table::Table;
use crate::wire::Wrap;

mod error;
mod policy;
mod variables;
#[cfg(test)]
mod tests;

pub use error::Error;
use policy::HANDLERS;
pub use policy::{InvalidPolicy, QueueConfig};
use variables::PREFIX;
pub(crate) use variables::{Host, is_in_lambda, target_variables};
pub use variables::{InvalidConfig, Variables};

/// Environments beyond this number would each have a negligible part of any limit.
const MAX_ENVIRONMENTS: u32 = 100_000;

impl Settings {
    /// Reads the environment of this process.
    ///
    /// | variable | meaning | values | default |
    /// |---|---|---|---|
    /// | `REQUEUE_POLICY` | The policy document, or the path of its file. `requeue-lambda` also takes an ARN. | keys of `docs/reference/policy.md` | the preset `standard` |
    /// | `REQUEUE_CONCURRENCY` | Most handlers at once. | 1 to 1,000 | 10 |
    /// | `REQUEUE_TIMEOUT_SECONDS` | Longest run of one handler. | 0.001 to 5,400 | 30 |
    /// | `REQUEUE_RESERVE_SECONDS` | Time to settle at the end of an invocation, at most a quarter of the invocation. | 0.001 to 5,400 | 5 |
    /// | `REQUEUE_STRATEGY` | How a message on a standard queue waits: in a copy, or in flight. | `copy`, `visibility` | `copy` |
    /// | `REQUEUE_WRAP` | Whether Requeue may wrap a body that is no JSON object. With `never`, such a message waits in flight, and has `maxReceiveCount` receives. | `when-needed`, `never` | `when-needed` |
    /// | `REQUEUE_PRODUCER_LIMITS` | Whether `requeue.maxRetries`, `requeue.ttlSeconds` and `requeue.notBefore` tighten the policy for their message. | `on`, `off` | `on` |
    /// | `REQUEUE_TRUSTED_SENDERS` | The only senders whose retry fields Requeue believes. Include this process, as `own` or by its id. | `own`, and ids of roles and users (`AROA…`, `AIDA…`), or an account's number | none: every sender |
    /// | `REQUEUE_DEAD_LETTER` | How a dead letter reaches its queue. `redrive`: SQS moves it; `annotate`: SQS moves a copy with the reason; `direct`: Requeue sends this copy. | `redrive`, `annotate`, `direct` | `redrive` in a Lambda function, `annotate` in a worker |
    /// | `REQUEUE_DEAD_LETTER_QUEUE_URL` | URL of the dead-letter queue. Only `direct` needs it. | an SQS URL | none |
    /// | `REQUEUE_DETAIL_TEXT` | Whether dead letters with a reason have up to 256 scrubbed bytes of the response's error message. | `on`, `off` | `off` |
    /// | `REQUEUE_MODE` | With `report`, for emergencies, Requeue only classifies and logs failures. Each message then has `maxReceiveCount` receives. | `requeue`, `report` | `requeue` |
    /// | `REQUEUE_TABLE` | DynamoDB table that all execution environments share: for a rate limit, a pause and a circuit, `idempotency`, and with `direct` exact attempts. The library needs the feature `table`. | name or ARN; the only key is the string `id` | none: nothing is shared |
    /// | `REQUEUE_NAMESPACE` | Part of each item's key in the table, so several functions can share the table. | 1 to 255 characters | the function's name; empty elsewhere |
    /// | `REQUEUE_MAX_ENVIRONMENTS` | Most execution environments at a time, which divide a rate limit while the table does not respond. | 1 to 100,000 | 1,000 |
    /// | `REQUEUE_METRICS` | Whether each batch writes its metrics. | `emf`, `off` | `emf` in a Lambda function, `off` elsewhere |
    /// | `REQUEUE_SERVICE` | The metrics' dimension `Service`. | 1 to 255 printable ASCII characters, not all blank, no colon first | the function's name; `requeue` elsewhere |
    /// | `REQUEUE_RECURSIVE_LOOP` | Value of the function's property `RecursiveLoop`. | `Allow`, `Terminate` | `Terminate` |
    ///
    /// The other variables that begin with `REQUEUE_` are for delivery to a URL or a function, by
    /// `requeue-lambda` and `requeue work`. They have no effect on a handler of your own, and [`run`](crate::run)
    /// warns of each that is set.
    pub fn from_env() -> Result<Self, InvalidConfig> {
        Self::checked(Variables::from_env())
    }

    /// Reads variables whose names begin with `REQUEUE_`, as [`from_env`](Self::from_env) does. An
    /// empty value counts as none.
    pub fn from_vars<N: Into<String>, V: Into<String>>(
        vars: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, InvalidConfig> {
        Self::checked(Variables::new(vars))
    }

    fn checked(mut vars: Variables) -> Result<Self, InvalidConfig> {
        let settings = Self::read(&mut vars);
        vars.finish(settings)
    }

    /// Reads the settings for a program that has settings of its own in the same variables.
    #[doc(hidden)]
    pub fn read(vars: &mut Variables) -> Self {
        let defaults = Limits::default();
        let limits = Limits {
            concurrency: vars.concurrency(defaults.concurrency),
            timeout: vars.seconds("TIMEOUT_SECONDS").unwrap_or(defaults.timeout),
            reserve: vars.seconds("RESERVE_SECONDS").unwrap_or(defaults.reserve),
        };
        let settings = Self {
            limits,
            strategy: vars.one_of("STRATEGY", Strategy::WORDS).unwrap_or_default(),
            dead_letter: vars.dead_letter(),
            detail_text: vars.one_of("DETAIL_TEXT", &DETAIL_TEXT).unwrap_or_default(),
            mode: vars.one_of("MODE", Mode::WORDS).unwrap_or_default(),
            wrap: vars.one_of("WRAP", &WRAP).unwrap_or_default(),
            trusted_senders: vars.trusted_senders(),
            producer_limits: vars.one_of("PRODUCER_LIMITS", &PRODUCER_LIMITS).unwrap_or_default(),
            recursive_loop: vars.one_of("RECURSIVE_LOOP", &RECURSIVE_LOOP).unwrap_or_default(),
            shared_table: vars.shared_table(),
            metrics: vars.metrics(),
            ..vars.policy()
        };
        if settings.lacks_table() {
            vars.problem(
                "POLICY",
                "has `idempotency`, which needs a table: set REQUEUE_TABLE, or remove `idempotency`",
            );
        }
        // Lambda invokes nothing else.
        if vars.host.function.is_some() && settings.lacks_copies() {
            vars.problem("POLICY", FEW_COPIES);
        }
        settings
    }
}

const FEW_COPIES: &str = "has `fairBy`, and REQUEUE_RECURSIVE_LOOP is not Allow, so Lambda stops a message after about 16 copies in a row; a wait \
                          for other tenants may take more: set the function's property RecursiveLoop and REQUEUE_RECURSIVE_LOOP to Allow, or \
                          remove `fairBy`";

const WRAP: [(&str, Wrap); 2] = [("when-needed", Wrap::WhenNeeded), ("never", Wrap::Never)];

/// The modes. Only the last one needs a queue.
const DEAD_LETTER: [(&str, Option<DeadLetterMode>); 3] = [
    ("redrive", Some(DeadLetterMode::Redrive)),
    ("annotate", Some(DeadLetterMode::Annotate)),
    ("direct", None),
];

const DETAIL_TEXT: [(&str, DetailText); 2] = [("on", DetailText::On), ("off", DetailText::Off)];

const PRODUCER_LIMITS: [(&str, ProducerLimits); 2] =
    [("on", ProducerLimits::On), ("off", ProducerLimits::Off)];

/// The ids that may be trusted.
const ALLOWED: &str = "the unique id of a role or user, such as AROA… or AIDA…";

const METRICS: [(&str, bool); 2] = [("emf", true), ("off", false)];

const RECURSIVE_LOOP: [(&str, RecursiveLoop); 2] =
    [("Allow", RecursiveLoop::Allow), ("Terminate", RecursiveLoop::Terminate)];

impl Variables {
    fn concurrency(&mut self, default: usize) -> usize {
        let most = HANDLERS.max as usize;
        let what = format!("a whole number from 1 to {most}");
        self.parse("CONCURRENCY", |n| (1..=most).contains(n), &what).unwrap_or(default)
    }

    fn trusted_senders(&mut self) -> Option<TrustedSenders> {
        const NAME: &str = "TRUSTED_SENDERS";
        let list = self.get(NAME)?;
        let mut trusted = TrustedSenders::default();
        for sender in list.split(',').map(str::trim) {
            // Other ids, such as that of an access key, have the same form and name no sender.
            // Emulators, and the root user, have the number of their account.
            let is_known = ["AROA", "AIDA"].iter().any(|kind| sender.starts_with(kind))
                || sender.len() == 12 && sender.bytes().all(|byte| byte.is_ascii_digit());
            match sender.parse::<Principal>() {
                _ if sender == "own" => trusted.own = true,
                Ok(id) if is_known && id.to_string() == sender => trusted.ids.push(id),
                Ok(_) | Err(_) => {
                    self.problem(NAME, format_args!("has `{sender}`: must be `own` or {ALLOWED}"));
                }
            }
        }
        Some(trusted)
    }

    fn dead_letter(&mut self) -> Option<DeadLetterMode> {
        const URL: &str = "DEAD_LETTER_QUEUE_URL";
        let mode = self.one_of("DEAD_LETTER", &DEAD_LETTER);
        let url = self.get(URL);
        match (mode, url) {
            (Some(None), Some(url)) => match url.trim().parse::<QueueUrl>() {
                Ok(url) => return Some(DeadLetterMode::Direct(url)),
                Err(error) => {
                    let shown = crate::printable::url(&url);
                    self.problem(URL, format_args!("is `{shown}`: {error}"));
                }
            },
            (Some(None), None) => {
                self.problem(
                    URL,
                    format_args!(
                        "is missing: {PREFIX}DEAD_LETTER is `direct`, which sends to that queue"
                    ),
                );
            }
            (None, Some(_)) if self.get("DEAD_LETTER").is_some() => {}
            (None | Some(Some(_)), Some(_)) => {
                self.problem(
                    URL,
                    format_args!("has no effect: {PREFIX}DEAD_LETTER is not `direct`"),
                );
            }
            (Some(mode), None) => return mode,
            (None, None) => {}
        }
        None
    }

    fn shared_table(&mut self) -> Option<SharedTable> {
        const TABLE: &str = "TABLE";
        const OTHERS: [&str; 2] = ["NAMESPACE", "MAX_ENVIRONMENTS"];
        let what =
            "the name of a DynamoDB table (3 to 255 of a-z, A-Z, 0-9, _, - and .) or its ARN";
        let table = self.parse(TABLE, |table: &String| is_table(table), what);
        let namespace = self.parse(
            OTHERS[0],
            |name: &String| name.chars().count() <= 255,
            "at most 255 characters",
        );
        let most = self.parse(
            OTHERS[1],
            |most| (1..=MAX_ENVIRONMENTS).contains(most),
            &format!("a whole number from 1 to {MAX_ENVIRONMENTS}"),
        );
        if self.get(TABLE).is_none() {
            for name in OTHERS {
                if self.get(name).is_some() {
                    self.problem(name, format_args!("has no effect without {PREFIX}{TABLE}"));
                }
            }
        }
        let mut shared_table = SharedTable::by(self.table(&table?)?);
        shared_table.namespace =
            namespace.or_else(|| self.host.function.clone()).unwrap_or_default();
        shared_table.max_environments = most.unwrap_or(shared_table.max_environments);
        Some(shared_table)
    }

    #[cfg_attr(
        feature = "table",
        expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as without it")
    )]
    #[cfg(feature = "table")]
    fn table(&mut self, table: &str) -> Option<Arc<dyn Table>> {
        Some(Arc::new(DynamoTable::from_env(table)))
    }

    #[cfg(not(feature = "table"))]
    fn table(&mut self, _: &str) -> Option<Arc<dyn Table>> {
        self.problem("TABLE", "needs the feature `table` of the dependency `requeue`");
        None
    }

    fn metrics(&mut self) -> Option<Metrics> {
        let is_on = self.one_of("METRICS", &METRICS).unwrap_or(self.host.function.is_some());
        // The values that CloudWatch accepts for a dimension. Source: CloudWatch API reference,
        // "Dimension".
        let fits = |name: &String| {
            (1..=255).contains(&name.len())
                && !name.starts_with(':')
                && name.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
                && !name.trim().is_empty()
        };
        let said = self.parse(
            "SERVICE",
            fits,
            "a name of 1 to 255 printable ASCII characters, of which the first is no colon",
        );
        let service =
            said.or_else(|| self.host.function.clone()).unwrap_or_else(|| "requeue".to_owned());
        let mut metrics = Metrics::of(service);
        metrics.level = self.host.log_level.clone().unwrap_or(metrics.level);
        is_on.then_some(metrics)
    }

    fn policy(&mut self) -> Settings {
        let mut settings = Settings::default();
        let Some(value) = self.get("POLICY") else { return settings };
        let document = if value.trim_start().starts_with('{') {
            value
        } else {
            match read_file(&value) {
                Ok(document) => document,
                Err(error) => {
                    let allowed = "a JSON object, or the path of a file that can be read";
                    self.problem(
                        "POLICY",
                        format_args!("is `{value}` ({error}): must be {allowed}"),
                    );
                    return settings;
                }
            }
        };
        if let Err(refused) = settings.read_policy(&document, self.in_problems("POLICY")) {
            for problem in refused.problems() {
                self.problem("POLICY", problem);
            }
        }
        settings
    }
}

/// The longest policy document. Stored ones have at most 64 KiB.
const MAX_POLICY_BYTES: usize = 1024 * 1024;

/// Some files have no end.
fn read_file(path: &str) -> io::Result<String> {
    let mut document = String::new();
    let mut file = File::open(path)?.take(MAX_POLICY_BYTES as u64 + 1);
    file.read_to_string(&mut document)?;
    if document.len() > MAX_POLICY_BYTES {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(document)
}

/// Whether DynamoDB takes this for a table. Source: DynamoDB developer guide, "Naming rules", and API
/// reference, `UpdateItem`.
fn is_table(table: &str) -> bool {
    let name = match table.strip_prefix("arn:") {
        Some(arn) => arn.rsplit_once(":table/").map_or("", |(_, name)| name),
        None => table,
    };
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (3..=255).contains(&name.len()) && name.bytes().all(is_allowed)
}

/// The units of a duration as people write it, the longest first, in seconds.
const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// The seconds of `45s`, `1h30m` or `2d`: each unit at most once, the longest first.
pub fn duration_secs(text: &str) -> Option<u64> {
    let (mut rest, mut secs, mut units) = (text, 0_u64, &UNITS[..]);
    while !rest.is_empty() {
        let at = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..at].parse().ok()?;
        let unit = rest[at..].chars().next()?;
        let position = units.iter().position(|(name, _)| *name == unit)?;
        secs = secs.checked_add(number.checked_mul(units[position].1)?)?;
        (rest, units) = (&rest[at + 1..], &units[position + 1..]);
    }
    Some(secs).filter(|_| !text.is_empty())
}
