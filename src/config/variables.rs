//! The variables `REQUEUE_*` of an environment, and their problems; and Lambda's facts about the
//! function. It knows a setting only by its name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use super::policy::{InProblems, Json, MAX_SECONDS, Problems, listed};

pub(super) const PREFIX: &str = "REQUEUE_";
const TEST_PREFIX: &str = "REQUEUE_TEST_";

/// The names of the settings for HTTP delivery, without prefix, in the order of the table.
const HTTP_NAMES: &str = "\
    TARGET_URL ALLOW_HTTP ALLOW_LINK_LOCAL METHOD CONTENT_TYPE HEADERS ATTRIBUTE_HEADERS SCOPE \
    SIGNING_SECRET CLIENT_CERTIFICATE CLIENT_KEY CONNECT_TIMEOUT_SECONDS READ_TIMEOUT_SECONDS \
    IDLE_TIMEOUT_SECONDS HTTP_VERSION";

/// The names of the settings for delivery to a function, without prefix.
const FUNCTION_NAMES: &str = "TARGET_FUNCTION MESSAGES_PER_CALL";

/// The settings for HTTP delivery that a function has too.
const COMMON_NAMES: [&str; 2] = ["TARGET_URL", "SCOPE"];

const NAMES: &str = "\
    POLICY CONCURRENCY TIMEOUT_SECONDS RESERVE_SECONDS STRATEGY WRAP PRODUCER_LIMITS \
    TRUSTED_SENDERS DEAD_LETTER DEAD_LETTER_QUEUE_URL DETAIL_TEXT MODE TABLE NAMESPACE \
    MAX_ENVIRONMENTS METRICS SERVICE RECURSIVE_LOOP";

/// The variables of this process that only delivery to a target reads.
pub(crate) fn target_variables() -> Vec<String> {
    Variables::from_env().set_of(HTTP_NAMES.split(' ').chain(FUNCTION_NAMES.split(' ')))
}

/// The variables and their problems. Names are without their prefix. This type is public for
/// `requeue-lambda` alone, which reads its settings from the same variables.
#[doc(hidden)]
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "the values may be secrets")]
pub struct Variables {
    values: BTreeMap<String, String>,
    /// The names of the values that were stored elsewhere, so that problems do not show them.
    stored: BTreeSet<&'static str>,
    pub(super) host: Host,
    problems: Vec<String>,
}

impl Variables {
    /// The variables of this process.
    pub fn from_env() -> Self {
        Self { host: Host::from_env(), ..Self::new(environment()) }
    }

    /// The variables of another environment.
    pub fn new<N: Into<String>, V: Into<String>>(vars: impl IntoIterator<Item = (N, V)>) -> Self {
        let values = vars.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let (host, stored) = (Host::default(), BTreeSet::new());
        Self { values, stored, host, problems: Vec::new() }
    }

    /// Returns `read`, unless a variable has a problem.
    pub fn finish<T>(mut self, read: T) -> Result<T, InvalidConfig> {
        self.refuse_unknown();
        if self.problems.is_empty() {
            Ok(read)
        } else {
            Err(InvalidConfig { problems: self.problems })
        }
    }

    /// The value of a variable. An empty value counts as none.
    pub fn get(&self, name: &str) -> Option<String> {
        self.values.get(&format!("{PREFIX}{name}")).filter(|value| !value.is_empty()).cloned()
    }

    /// The settings without effect, by their whole names: with a target function, or with a URL
    /// alone.
    pub fn without_effect(&self, has_function: bool) -> Vec<String> {
        let names = if has_function { HTTP_NAMES } else { FUNCTION_NAMES };
        self.set_of(names.split(' ').filter(|name| !COMMON_NAMES.contains(name)))
    }

    fn set_of<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<String> {
        let set = names.filter(|name| self.get(name).is_some());
        let mut set: Vec<String> = set.map(|name| format!("{PREFIX}{name}")).collect();
        set.sort();
        set
    }

    /// The variables by their whole names.
    pub fn into_values(self) -> BTreeMap<String, String> {
        self.values
    }

    /// Gives a variable another value.
    pub fn set(&mut self, name: &str, value: String) {
        self.values.insert(format!("{PREFIX}{name}"), value);
    }

    /// Gives a variable the value that it names, which may be a secret.
    pub fn set_stored(&mut self, name: &'static str, value: String) {
        self.set(name, value);
        self.stored.insert(name);
    }

    pub(super) fn in_problems(&self, name: &str) -> InProblems {
        if self.stored.contains(name) { InProblems::Hidden } else { InProblems::Shown }
    }

    /// Notes a problem of a variable.
    pub fn problem(&mut self, name: &str, problem: impl fmt::Display) {
        self.problem_elsewhere(format_args!("{PREFIX}{name} {problem}"));
    }

    /// Notes a problem of something else in the environment.
    pub fn problem_elsewhere(&mut self, problem: impl fmt::Display) {
        self.problems.push(problem.to_string());
    }

    /// The value as `T`, if it is allowed. The problem of any other has `what` it must be.
    pub fn parse<T: FromStr>(
        &mut self,
        name: &str,
        allowed: impl Fn(&T) -> bool,
        what: &str,
    ) -> Option<T> {
        let value = self.get(name)?;
        let parsed = value.trim().parse().ok().filter(allowed);
        if parsed.is_none() {
            self.problem(name, format_args!("is `{value}`: must be {what}"));
        }
        parsed
    }

    /// A number of seconds, at most as long as a function runs.
    pub fn seconds(&mut self, name: &str) -> Option<Duration> {
        let what = format!("a number of seconds from 0.001 to {MAX_SECONDS}");
        let secs = self.parse(name, |secs: &f64| (0.001..=MAX_SECONDS).contains(secs), &what);
        secs.map(Duration::from_secs_f64)
    }

    /// The value for one of these words.
    pub fn one_of<T: Clone>(&mut self, name: &str, values: &[(&str, T)]) -> Option<T> {
        let value = self.get(name)?;
        let found =
            values.iter().find(|(word, _)| *word == value).map(|(_, meaning)| meaning.clone());
        if found.is_none() {
            let words: Vec<&str> = values.iter().map(|(word, _)| *word).collect();
            self.problem(name, format_args!("is `{value}`: must be one of {}", words.join(", ")));
        }
        found
    }

    /// The fields of a JSON object in their order, with values that are texts.
    pub fn members(&mut self, name: &str) -> Option<Vec<(String, Option<String>)>> {
        let text = self.get(name)?;
        let unused = Problems::new(InProblems::Hidden);
        let members = match Json::parse(&text, &unused) {
            Ok(json) => json.members(),
            Err(error) => {
                let (line, column) = (error.line(), error.column());
                self.problem(
                    name,
                    format_args!("is not JSON from line {line}, column {column} on"),
                );
                return None;
            }
        };
        if members.is_none() {
            self.problem(name, "is not a JSON object");
        }
        Some(members?.into_iter().map(|(name, value)| (name, value.text())).collect())
    }

    fn refuse_unknown(&mut self) {
        let names = || [HTTP_NAMES, FUNCTION_NAMES, NAMES].into_iter().flat_map(|it| it.split(' '));
        for (name, value) in &self.values {
            let own = name.strip_prefix(PREFIX).unwrap_or(name);
            if names().any(|known| known == own) || is_service_link(name, value) {
                continue;
            }
            let edits = |known: &&str| strsim::damerau_levenshtein(own, known);
            let few = (own.len() / 3).clamp(1, 2);
            let nearest = names().min_by_key(edits).filter(|known| edits(known) <= few);
            let meant = nearest.or_else(|| names().find(|known| known.starts_with(own)));
            let hint = meant.map(|known| format!("; did you mean {PREFIX}{known}?"));
            self.problems.push(format!("{name} is unknown{}", hint.unwrap_or_default()));
        }
        self.problems.sort();
    }
}

/// Whether Kubernetes made the variable for a Service whose name begins with `requeue`. Source:
/// Kubernetes, "Discovering services", and the variables of Docker's links.
fn is_service_link(name: &str, value: &str) -> bool {
    const PROTOCOLS: [&str; 3] = ["tcp", "udp", "sctp"];
    let is_port = value.parse::<u16>().is_ok();
    let is_address = value.parse::<IpAddr>().is_ok();
    let is_url = value.split_once("://").is_some_and(|(protocol, address)| {
        PROTOCOLS.contains(&protocol) && address.parse::<SocketAddr>().is_ok()
    });
    let is_of = |port: &str, protocol: &str| {
        port.parse::<u16>().is_ok() && PROTOCOLS.contains(&protocol.to_lowercase().as_str())
    };
    match name.split('_').collect::<Vec<_>>().as_slice() {
        [.., "SERVICE", "HOST"] => is_address,
        [.., "SERVICE", "PORT"] => is_port,
        [.., "PORT", port, of] if is_of(port, of) => is_url,
        [.., "PORT", port, of, "PROTO"] if is_of(port, of) => PROTOCOLS.contains(&value),
        [.., "PORT", port, of, "PORT"] if is_of(port, of) => is_port,
        [.., "PORT", port, of, "ADDR"] if is_of(port, of) => is_address,
        [.., "PORT"] => is_url,
        _ => name.contains("_SERVICE_PORT_") && is_port,
    }
}

/// The variables of this process with Requeue's prefix.
#[allow(clippy::disallowed_methods, reason = "the one place that reads it")]
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let known = name.starts_with(PREFIX) && !name.starts_with(TEST_PREFIX);
        known.then(|| (name, value.to_string_lossy().into_owned()))
    })
}

/// Whether Lambda, or something that stands in for it, started this process.
#[allow(clippy::disallowed_methods, reason = "the one place that reads it")]
pub(crate) fn is_in_lambda() -> bool {
    std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some()
}

/// Lambda's facts about the function. A custom runtime has to honour its logging controls. Source:
/// Lambda developer guide, "Defined runtime environment variables" and "Configuring advanced
/// logging controls".
#[derive(Clone, Default)]
pub(crate) struct Host {
    /// The function's name; `None` outside Lambda.
    pub(crate) function: Option<String>,
    /// The log level. Lambda sets none unless its log format is JSON.
    pub(crate) log_level: Option<String>,
    pub(crate) logs_json: bool,
    /// `RUST_LOG`, the filter of `tracing`. Lambda does not set it.
    pub(crate) rust_log: Option<String>,
}

impl Host {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads it")]
    pub(crate) fn from_env() -> Self {
        let read = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            function: read("AWS_LAMBDA_FUNCTION_NAME"),
            log_level: read("AWS_LAMBDA_LOG_LEVEL"),
            logs_json: read("AWS_LAMBDA_LOG_FORMAT")
                .is_some_and(|format| format.eq_ignore_ascii_case("json")),
            rust_log: read("RUST_LOG"),
        }
    }
}

/// All problems of the settings.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", listed(.problems, " setting is invalid:", " settings are invalid:"))]
pub struct InvalidConfig {
    pub(super) problems: Vec<String>,
}

impl InvalidConfig {
    /// One problem of a program that uses the library.
    #[doc(hidden)]
    pub fn of(problem: impl Into<String>) -> Self {
        Self { problems: vec![problem.into()] }
    }

    /// The problems, one line each.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}

requeue_sqs::debug_as_display!(InvalidConfig);
