//! The environment of this process: Requeue's variables, and Lambda's facts about the function.

/// The prefix of every variable.
pub(super) const PREFIX: &str = "REQUEUE_";
/// The prefix of variables for this project's tests.
const TEST_PREFIX: &str = "REQUEUE_TEST_";

/// The variables of this process with Requeue's prefix.
#[allow(clippy::disallowed_methods, reason = "the one place that reads it")]
pub(super) fn environment() -> impl Iterator<Item = (String, String)> {
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
    /// Whether `RUST_LOG` is set. Lambda does not set it, but `tracing` filters by it.
    pub(crate) has_rust_log: bool,
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
            has_rust_log: read("RUST_LOG").is_some(),
        }
    }
}
