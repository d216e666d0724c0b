//! The environment of this process: our variables, and what Lambda says of the function.

/// Every variable begins like this.
pub(super) const PREFIX: &str = "REQUEUE_";
/// Left to the tests of this project.
const TEST_PREFIX: &str = "REQUEUE_TEST_";

/// The variables of this process that are ours.
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

/// What Lambda says of the function, its logging controls among it, which a custom runtime has to
/// honour. Source: Lambda developer guide, "Defined runtime environment variables" and "Configuring
/// advanced logging controls".
#[derive(Clone, Default)]
pub(crate) struct Host {
    /// `None` elsewhere.
    pub(crate) function: Option<String>,
    /// Lambda sets none unless its format is JSON.
    pub(crate) log_level: Option<String>,
    pub(crate) logs_json: bool,
    /// Not of Lambda's, but what `tracing` filters by.
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
