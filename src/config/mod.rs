//! Settings: the environment and the policy document become a [`Config`], with all problems
//! reported together. The only room that reads the environment.

use std::collections::BTreeMap;
#[cfg(feature = "http")]
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::classify::Rules;
use crate::disposition::Strategy;
use crate::policy::RetryPolicy;
use crate::queue::{Principal, QueueUrl};
#[cfg(feature = "http")]
use crate::secrets::{Stored, Texts};
use crate::sender::TrustedSenders;
use crate::settings::{
    DeadLetterMode, Limits, Metrics, Mode, ProducerLimits, RecursiveLoop, Settings,
};
use crate::wire::Wrap;

mod host;
mod policy;
#[cfg(feature = "http")]
mod target;
#[cfg(test)]
mod tests;

use host::environment;
pub(crate) use host::{Host, is_in_lambda};
pub use policy::{InvalidPolicy, QueueConfig};

/// Every variable begins like this.
const PREFIX: &str = "REQUEUE_";
/// Left to the tests of this project.
const TEST_PREFIX: &str = "REQUEUE_TEST_";
/// One function has at most so many threads and file descriptors. Source: Lambda quotas.
const MAX_CONCURRENCY: usize = 1_000;
/// Longest run of a Lambda function. Source: Lambda quotas.
const MAX_SECONDS: f64 = 900.0;

/// What the environment says, checked.
///
/// | variable | meaning | unit, bounds | default |
/// |---|---|---|---|
/// | `REQUEUE_TARGET_URL` | where `requeue-lambda` and `requeue work` send each message | `https` URL; `http` to a loopback host only | none: both need it |
/// | `REQUEUE_ALLOW_HTTP` | allows `http` to any host, in `--target-url` too | `true`, `false` | `false` |
/// | `REQUEUE_ALLOW_LINK_LOCAL` | allows a target at a link-local address (`169.254.0.0/16`, `fe80::/10`, `fd00:ec2::/32`), where credentials are served, or at Lambda's Runtime API; in `--target-url` too | `true`, `false` | `false` |
/// | `REQUEUE_METHOD` | the HTTP method | `POST`, `PUT`, `PATCH` | `POST` |
/// | `REQUEUE_CONTENT_TYPE` | `Content-Type` of messages without the attribute `Body.ContentType`, which wins because the producer knows the format of the body | a media type | by the look of the body |
/// | `REQUEUE_HEADERS` | headers of every request, for example `{"Authorization": "Bearer …"}`; the values are never printed; a message replaces none of them, its `traceparent` included, except by `REQUEUE_ATTRIBUTE_HEADERS` | JSON object of texts, in which a word may be the ARN of a secret; no header that Requeue or HTTP itself sets | none |
/// | `REQUEUE_ATTRIBUTE_HEADERS` | message attributes that go along as headers, for example `tenant=X-Tenant, trace=X-Trace`; a message with a value that does not fit into a header is non-retryable | list of `attribute=header`; attributes of the types `String` and `Number`, without control characters, of at most 4,096 bytes | none |
/// | `REQUEUE_SCOPE` | which messages are paused together when the target asks for a pause or is down: those with the same value of a message attribute, for example `tenant`, or at a JSON pointer into the body, for example `/account/id` | name of a message attribute, or JSON pointer | all messages |
/// | `REQUEUE_SIGNING_SECRET` | signs every request as Standard Webhooks has it; never printed; while one secret replaces another, both, separated by a space | `whsec_` and 24 to 64 bytes in base64, or the ARN of a secret that holds it | none: not signed |
/// | `REQUEUE_CLIENT_CERTIFICATE` | the certificate that a target over `https` is shown if it asks for one (mutual TLS), with the intermediate ones behind it | PEM, or the ARN of a secret that holds it | none |
/// | `REQUEUE_CLIENT_KEY` | the private key of that certificate; never printed | PEM (PKCS #8, PKCS #1, SEC 1), not encrypted, or the ARN of a secret that holds it | none: needed with a certificate |
/// | `REQUEUE_CONNECT_TIMEOUT_SECONDS` | longest time to connect, TLS included | seconds, 0.001 to 900 | 5 |
/// | `REQUEUE_READ_TIMEOUT_SECONDS` | longest wait for the head of the target's response, once there is a connection | seconds, 0.001 to 900 | what is left of `REQUEUE_TIMEOUT_SECONDS` |
/// | `REQUEUE_IDLE_TIMEOUT_SECONDS` | how long an unused connection to the target is kept; should be less than what the target and its proxies keep theirs (Node 5 s, nginx 75 s, an Application Load Balancer 60 s) | seconds, 0.001 to 900 | 4 |
/// | `REQUEUE_HTTP_VERSION` | the version of HTTP: the best that the target offers over TLS, or HTTP/1.1 alone | `auto`, `1.1` | `auto` |
///
/// Those above are for HTTP delivery, by `requeue-lambda` and `requeue work`. They have no effect
/// on a handler of your own, and [`run`](crate::run) warns of each that is set. The others are for
/// every function and worker:
///
/// | variable | meaning | unit, bounds | default |
/// |---|---|---|---|
/// | `REQUEUE_POLICY` | the policy document: JSON, or the path of a file with it | see `docs/policy.md` in the repository | the preset `standard` |
/// | `REQUEUE_CONCURRENCY` | most handlers at once | 1 to 1,000 | 10 |
/// | `REQUEUE_TIMEOUT_SECONDS` | longest run of one handler | seconds, 0.001 to 900 | 30 |
/// | `REQUEUE_RESERVE_SECONDS` | kept back at the end of an invocation for settling; at most a quarter of it is | seconds, 0.001 to 900 | 5 |
/// | `REQUEUE_STRATEGY` | how a message on a standard queue waits for its next attempt: in a copy, or in its place by its visibility | `copy`, `visibility` | `copy` |
/// | `REQUEUE_WRAP` | whether a body that is no JSON object may be wrapped into one to carry the count; if not, it waits for its delay by its visibility, and gets `maxReceiveCount` receives instead of its retries | `when-needed`, `never` | `when-needed` |
/// | `REQUEUE_PRODUCER_LIMITS` | whether the message attributes `requeue.maxRetries`, `requeue.ttlSeconds` and `requeue.notBefore` limit the retries of their own message, as far as they are tighter than the policy; a message with a value that cannot be read is non-retryable | `on`, `off` | `on` |
/// | `REQUEUE_TRUSTED_SENDERS` | the senders whose retry fields in a body are believed, by SQS's `SenderId`; those of others are taken for the producer's own. `own` is the principal of this process, asked of STS when it is first needed, and must be there, or its id | list of `own` and of ids of roles and users (`AROA…`, `AIDA…`) | none: everybody's are believed |
/// | `REQUEUE_DEAD_LETTER` | how a message that is given up reaches the dead-letter queue: as it is, moved by SQS after `maxReceiveCount` receives, of which each execution environment handles only its first; as a copy that says why, handled no more until SQS moves it; or as such a copy sent there by the function | `redrive`, `annotate`, `direct` | `redrive` |
/// | `REQUEUE_DEAD_LETTER_QUEUE_URL` | the dead-letter queue of the mode `direct`; with another mode it stops the start | URL of an SQS queue | none: needed by `direct` |
/// | `REQUEUE_MODE` | whether failed messages are tried again; `report`, for emergencies, only sorts and logs failures and leaves every one to SQS: nothing is sent, nothing paused, and `maxReceiveCount` receives are all there is | `requeue`, `report` | `requeue` |
/// | `REQUEUE_METRICS` | whether each batch writes its metrics to the standard output, in CloudWatch's embedded metric format | `emf`, `off` | `emf` in a Lambda function, `off` elsewhere |
/// | `REQUEUE_SERVICE` | the dimension `Service` of the metrics | 1 to 255 printable ASCII characters, not all blank, of which the first is no colon | the function's name; `requeue` elsewhere |
/// | `REQUEUE_RECURSIVE_LOOP` | the function's property `RecursiveLoop`: unless it is `Allow`, Lambda cuts a message off after about 16 copies, so that after 10 it waits by its visibility instead, and gets `maxReceiveCount` receives in place of its other retries; other messages of its batch wait likewise, which uses up none of their retries; a policy with more than 10 retries is warned about at start | `Allow`, `Terminate` | `Terminate` |
///
/// Read from the environment as well, by [`load`](Self::load) and [`from_env`](Self::from_env), are
/// `HTTPS_PROXY` and `NO_PROXY` as [`Proxy::new`](crate::http::Proxy::new) has them, both in lower
/// case too, which wins; and `AWS_LAMBDA_RUNTIME_API`, whose address no target may have.
///
/// ```
/// use requeue::Config;
/// let error = Config::from_vars([("REQUEUE_CONCURENCY", "4"), ("REQUEUE_WRAP", "maybe")]).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "2 settings are invalid:\n  \
///      REQUEUE_CONCURENCY is unknown; did you mean REQUEUE_CONCURRENCY?\n  \
///      REQUEUE_WRAP is `maybe`: allowed are when-needed, never"
/// );
/// ```
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The policy.
    pub policy: RetryPolicy,
    /// The rules of the policy document.
    pub rules: Rules,
    /// What bounds the work on a batch.
    pub limits: Limits,
    /// How a message waits for its next attempt.
    pub strategy: Strategy,
    /// How a message that is given up reaches the dead-letter queue.
    pub dead_letter: DeadLetterMode,
    /// What is done about failures.
    pub mode: Mode,
    /// Whether bodies may be wrapped.
    pub wrap: Wrap,
    /// The senders whose retry fields are believed; `None` for everybody's.
    pub trusted_senders: Option<TrustedSenders>,
    /// Whether producers may limit the retries of their messages.
    pub producer_limits: ProducerLimits,
    /// What Lambda does about a message that the function sends to its own queue.
    pub recursive_loop: RecursiveLoop,
    /// Whether each batch writes its metrics.
    pub metrics: Option<Metrics>,
    /// Where to send messages over HTTP.
    #[cfg(feature = "http")]
    pub target: Option<crate::http::TargetUrl>,
    /// What the URL of a target may be, also of one that another source names.
    #[cfg(feature = "http")]
    pub target_rules: crate::http::TargetRules,
    /// And how.
    #[cfg(feature = "http")]
    pub http: crate::http::HttpSettings,
}

impl Config {
    /// Reads the environment of this process, and fetches the secrets that it names by ARN, if the
    /// feature `secrets` is on.
    ///
    /// All secrets are asked for at once, each in the region of its ARN, with the SDK's retries and
    /// by AWS's standard environment (credentials, `AWS_ENDPOINT_URL_SECRETS_MANAGER`,
    /// `AWS_ENDPOINT_URL_SSM`, `AWS_ENDPOINT_URL`), and for 8 s at most. A fetched text counts
    /// without the white space around it, and is checked as one that is written down. Where no
    /// secret is named, this is [`from_env`](Self::from_env).
    ///
    /// # Errors
    ///
    /// All problems in one message, those of fetching among them.
    #[cfg_attr(
        not(feature = "secrets"),
        allow(clippy::unused_async, reason = "nothing is fetched without the feature")
    )]
    pub async fn load() -> Result<Self, InvalidConfig> {
        let vars = Vars::new(environment()).on(Host::from_env());
        #[cfg(feature = "secrets")]
        let vars = vars.with_secrets().await;
        vars.into_config()
    }

    /// Reads the environment of this process. A secret named by its ARN is refused, since only
    /// [`load`](Self::load) fetches it.
    ///
    /// # Errors
    ///
    /// All problems in one message.
    pub fn from_env() -> Result<Self, InvalidConfig> {
        Vars::new(environment()).on(Host::from_env()).into_config()
    }

    /// Reads variables of which each name begins with `REQUEUE_`. An empty value counts as none. A
    /// secret named by its ARN is refused, since only [`load`](Self::load) fetches it.
    ///
    /// # Errors
    ///
    /// All problems in one message.
    pub fn from_vars<N: Into<String>, V: Into<String>>(
        vars: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, InvalidConfig> {
        Vars::new(vars.into_iter().map(|(name, value)| (name.into(), value.into()))).into_config()
    }

    /// As [`from_vars`](Self::from_vars), for the settings of a program that runs elsewhere: a
    /// secret named by its ARN is neither fetched nor refused, and left out of what it belongs to.
    /// With the ARNs of those secrets, as the program's role needs them in its policy: without what
    /// may follow an ARN in a setting.
    ///
    /// ```
    /// use requeue::Config;
    /// let secret = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders-AbCdEf";
    /// assert!(Config::from_vars([("REQUEUE_SIGNING_SECRET", secret)]).is_err());
    /// let vars = [("REQUEUE_SIGNING_SECRET", format!("{secret} {secret}::AWSPREVIOUS:"))];
    /// let (_, secrets) = Config::from_vars_without_secrets(vars).unwrap();
    /// assert_eq!(secrets, [secret.to_owned()].into());
    /// let vars = [("REQUEUE_SIGNING_SECRET", format!("{secret} none")), ("REQUEUE_WRAP", "never".to_owned())];
    /// assert_eq!(Config::from_vars_without_secrets(vars).unwrap_err().problems().len(), 1);
    /// ```
    ///
    /// # Errors
    ///
    /// All other problems in one message.
    #[cfg(feature = "http")]
    pub fn from_vars_without_secrets<N: Into<String>, V: Into<String>>(
        vars: impl IntoIterator<Item = (N, V)>,
    ) -> Result<(Self, BTreeSet<String>), InvalidConfig> {
        let vars = Vars::new(vars.into_iter().map(|(name, value)| (name.into(), value.into())));
        let mut vars = Vars { skips_secrets: true, ..vars };
        let config = Self::read(&mut vars);
        let secrets = vars.wanted.iter().map(Stored::plain_arn).collect();
        vars.checked(config).map(|config| (config, secrets))
    }

    fn read(vars: &mut Vars) -> Self {
        let defaults = Limits::default();
        let limits = Limits {
            concurrency: vars.concurrency(defaults.concurrency),
            timeout: vars.seconds("TIMEOUT_SECONDS", defaults.timeout),
            reserve: vars.seconds("RESERVE_SECONDS", defaults.reserve),
        };
        let (policy, rules) = vars.policy();
        #[cfg(feature = "http")]
        let target_rules = vars.target_rules();
        Self {
            #[cfg(feature = "http")]
            http: vars.http().timeout(limits.timeout),
            policy,
            rules,
            limits,
            strategy: vars.one_of("STRATEGY", &STRATEGY).unwrap_or_default(),
            dead_letter: vars.dead_letter(),
            mode: vars.one_of("MODE", &MODE).unwrap_or_default(),
            wrap: vars
                .one_of("WRAP", &[("when-needed", Wrap::WhenNeeded), ("never", Wrap::Never)])
                .unwrap_or_default(),
            trusted_senders: vars.trusted_senders(),
            producer_limits: vars.one_of("PRODUCER_LIMITS", &PRODUCER_LIMITS).unwrap_or_default(),
            recursive_loop: vars.one_of("RECURSIVE_LOOP", &RECURSIVE_LOOP).unwrap_or_default(),
            metrics: vars.metrics(),
            #[cfg(feature = "http")]
            target: vars.target(target_rules.clone()),
            #[cfg(feature = "http")]
            target_rules,
        }
    }

    /// The target, for a program that cannot do without.
    ///
    /// # Errors
    ///
    /// When none is set, with the remedy.
    #[cfg(feature = "http")]
    pub fn required_target(&self) -> Result<&crate::http::TargetUrl, InvalidConfig> {
        let missing = || {
            format!(
                "{PREFIX}TARGET_URL is missing: set it to the URL to which each message is to be posted"
            )
        };
        self.target.as_ref().ok_or_else(|| InvalidConfig { problems: vec![missing()] })
    }

    /// The processor's part of it.
    #[must_use]
    pub fn into_settings(self) -> Settings {
        Settings {
            metrics: self.metrics,
            policy: self.policy,
            rules: self.rules,
            limits: self.limits,
            strategy: self.strategy,
            recursive_loop: self.recursive_loop,
            dead_letter: self.dead_letter,
            mode: self.mode,
            wrap: self.wrap,
            trusted_senders: self.trusted_senders,
            producer_limits: self.producer_limits,
            ..Settings::default()
        }
    }
}

const MODE: [(&str, Mode); 2] = [("requeue", Mode::Requeue), ("report", Mode::Report)];

const STRATEGY: [(&str, Strategy); 2] =
    [("copy", Strategy::Copy), ("visibility", Strategy::Visibility)];

/// The modes, of which the last one needs a queue.
const DEAD_LETTER: [(&str, Option<DeadLetterMode>); 3] = [
    ("redrive", Some(DeadLetterMode::Redrive)),
    ("annotate", Some(DeadLetterMode::Annotate)),
    ("direct", None),
];

const PRODUCER_LIMITS: [(&str, ProducerLimits); 2] =
    [("on", ProducerLimits::On), ("off", ProducerLimits::Off)];

/// The ids that may be trusted.
const ALLOWED: &str = "unique ids of roles and users, as AROA… or AIDA…";

const METRICS: [(&str, bool); 2] = [("emf", true), ("off", false)];

/// The words of the property itself.
const RECURSIVE_LOOP: [(&str, RecursiveLoop); 2] =
    [("Allow", RecursiveLoop::Allow), ("Terminate", RecursiveLoop::Terminate)];

/// The names of the settings for HTTP delivery, without prefix, in the order of the table.
const HTTP_NAMES: [&str; 15] = [
    "TARGET_URL",
    "ALLOW_HTTP",
    "ALLOW_LINK_LOCAL",
    "METHOD",
    "CONTENT_TYPE",
    "HEADERS",
    "ATTRIBUTE_HEADERS",
    "SCOPE",
    "SIGNING_SECRET",
    "CLIENT_CERTIFICATE",
    "CLIENT_KEY",
    "CONNECT_TIMEOUT_SECONDS",
    "READ_TIMEOUT_SECONDS",
    "IDLE_TIMEOUT_SECONDS",
    "HTTP_VERSION",
];

/// Those of all others.
const NAMES: [&str; 14] = [
    "POLICY",
    "CONCURRENCY",
    "TIMEOUT_SECONDS",
    "RESERVE_SECONDS",
    "STRATEGY",
    "WRAP",
    "PRODUCER_LIMITS",
    "TRUSTED_SENDERS",
    "DEAD_LETTER",
    "DEAD_LETTER_QUEUE_URL",
    "MODE",
    "METRICS",
    "SERVICE",
    "RECURSIVE_LOOP",
];

/// The variables of this process that only HTTP delivery reads, so that they have no effect on a
/// handler of one's own.
pub(crate) fn http_variables() -> Vec<String> {
    let set = environment().filter(|(_, value)| !value.is_empty()).map(|(name, _)| name);
    let is_http =
        |name: &String| name.strip_prefix(PREFIX).is_some_and(|name| HTTP_NAMES.contains(&name));
    let mut names: Vec<String> = set.filter(is_http).collect();
    names.sort();
    names
}

/// The variables, and what is wrong with them.
struct Vars {
    values: BTreeMap<String, String>,
    host: Host,
    /// What has been fetched for them.
    #[cfg(feature = "http")]
    texts: Texts,
    /// What they name and is not among it.
    #[cfg(feature = "http")]
    wanted: BTreeSet<Stored>,
    /// Whether that is no problem.
    #[cfg(feature = "http")]
    skips_secrets: bool,
    problems: Vec<String>,
}

impl Vars {
    fn new(vars: impl Iterator<Item = (String, String)>) -> Self {
        Self {
            values: vars.collect(),
            host: Host::default(),
            #[cfg(feature = "http")]
            texts: Texts::new(),
            #[cfg(feature = "http")]
            wanted: BTreeSet::new(),
            #[cfg(feature = "http")]
            skips_secrets: false,
            problems: Vec::new(),
        }
    }

    fn on(self, host: Host) -> Self {
        Self { host, ..self }
    }

    fn into_config(mut self) -> Result<Config, InvalidConfig> {
        let config = Config::read(&mut self);
        self.checked(config)
    }

    fn checked(mut self, config: Config) -> Result<Config, InvalidConfig> {
        self.refuse_unknown();
        if self.problems.is_empty() {
            Ok(config)
        } else {
            Err(InvalidConfig { problems: self.problems })
        }
    }

    fn get(&self, name: &str) -> Option<String> {
        self.values.get(&format!("{PREFIX}{name}")).filter(|value| !value.is_empty()).cloned()
    }

    fn problem(&mut self, name: &str, problem: impl fmt::Display) {
        self.problems.push(format!("{PREFIX}{name} {problem}"));
    }

    fn parse<T: FromStr>(
        &mut self,
        name: &str,
        allowed: impl Fn(&T) -> bool,
        what: &str,
    ) -> Option<T> {
        let value = self.get(name)?;
        let parsed = value.trim().parse().ok().filter(allowed);
        if parsed.is_none() {
            self.problem(name, format_args!("is `{value}`: allowed is {what}"));
        }
        parsed
    }

    fn concurrency(&mut self, default: usize) -> usize {
        let what = format!("a whole number from 1 to {MAX_CONCURRENCY}");
        self.parse("CONCURRENCY", |n| (1..=MAX_CONCURRENCY).contains(n), &what).unwrap_or(default)
    }

    fn seconds(&mut self, name: &str, default: Duration) -> Duration {
        self.given_seconds(name).unwrap_or(default)
    }

    fn given_seconds(&mut self, name: &str) -> Option<Duration> {
        let what = format!("a number of seconds from 0.001 to {MAX_SECONDS}");
        let secs = self.parse(name, |secs: &f64| (0.001..=MAX_SECONDS).contains(secs), &what);
        secs.map(Duration::from_secs_f64)
    }

    fn one_of<T: Clone>(&mut self, name: &str, values: &[(&str, T)]) -> Option<T> {
        let value = self.get(name)?;
        let found =
            values.iter().find(|(word, _)| *word == value).map(|(_, meaning)| meaning.clone());
        if found.is_none() {
            let words: Vec<&str> = values.iter().map(|(word, _)| *word).collect();
            self.problem(name, format_args!("is `{value}`: allowed are {}", words.join(", ")));
        }
        found
    }

    fn trusted_senders(&mut self) -> Option<TrustedSenders> {
        const NAME: &str = "TRUSTED_SENDERS";
        let list = self.get(NAME)?;
        let mut trusted = TrustedSenders::default();
        for sender in list.split(',').map(str::trim) {
            match sender.parse::<Principal>() {
                _ if sender == "own" => trusted.own = true,
                Ok(id) if id.to_string() == sender => trusted.ids.push(id),
                Ok(_) | Err(_) => self
                    .problem(NAME, format_args!("has `{sender}`: allowed are `own` and {ALLOWED}")),
            }
        }
        Some(trusted)
    }

    fn dead_letter(&mut self) -> DeadLetterMode {
        const URL: &str = "DEAD_LETTER_QUEUE_URL";
        let mode = self.one_of("DEAD_LETTER", &DEAD_LETTER);
        let url = self.get(URL);
        match (mode, url) {
            (Some(None), Some(url)) => match url.trim().parse::<QueueUrl>() {
                Ok(url) => return DeadLetterMode::Direct(url),
                Err(error) => self.problem(URL, format_args!("is `{url}`: {error}")),
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
            (Some(Some(mode)), None) => return mode,
            (None, None) => {}
        }
        DeadLetterMode::default()
    }

    fn metrics(&mut self) -> Option<Metrics> {
        let is_on = self.one_of("METRICS", &METRICS).unwrap_or(self.host.function.is_some());
        // What CloudWatch takes as the value of a dimension. Source: CloudWatch API reference,
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

    fn policy(&mut self) -> (RetryPolicy, Rules) {
        let Some(value) = self.get("POLICY") else {
            return Default::default();
        };
        let document = if value.trim_start().starts_with('{') {
            value
        } else {
            match std::fs::read_to_string(&value) {
                Ok(document) => document,
                Err(error) => {
                    let allowed = "a JSON object, or the path of a file that can be read";
                    self.problem(
                        "POLICY",
                        format_args!("is `{value}` ({error}): allowed is {allowed}"),
                    );
                    return Default::default();
                }
            }
        };
        policy::read(&document).unwrap_or_else(|problems| {
            for problem in problems {
                self.problem("POLICY", problem);
            }
            Default::default()
        })
    }

    fn refuse_unknown(&mut self) {
        let names = || HTTP_NAMES.into_iter().chain(NAMES);
        let is_known = |name: &str| {
            name.strip_prefix(PREFIX).is_some_and(|name| names().any(|known| known == name))
        };
        let unknown: Vec<String> =
            self.values.keys().filter(|name| !is_known(name)).cloned().collect();
        for name in unknown {
            let like = |known: &str| strsim::jaro_winkler(&name, &format!("{PREFIX}{known}"));
            let nearest = names().max_by(|one, other| like(one).total_cmp(&like(other)));
            let hint = nearest.filter(|known| like(known) > 0.9);
            let hint =
                hint.map(|known| format!("; did you mean {PREFIX}{known}?")).unwrap_or_default();
            self.problems.push(format!("{name} is unknown{hint}"));
        }
        self.problems.sort();
    }
}

/// Everything that is wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidConfig {
    problems: Vec<String>,
}

impl InvalidConfig {
    /// Each on a line of its own.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}

impl fmt::Display for InvalidConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.problems.len();
        write!(f, "{count} setting{} invalid:", if count == 1 { " is" } else { "s are" })?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for InvalidConfig {}
