//! The environment of this process: our variables, and what Lambda says of the function.

use super::{PREFIX, TEST_PREFIX};

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
#[derive(Default)]
pub(crate) struct Host {
    /// `None` elsewhere.
    pub(crate) function: Option<String>,
    /// Lambda sets none unless its format is JSON.
    pub(crate) log_level: Option<String>,
    pub(crate) logs_json: bool,
    /// `host:port`. `None` elsewhere.
    #[cfg(feature = "http")]
    pub(crate) runtime_api: Option<String>,
    /// As programs in general take it, not only Lambda's.
    #[cfg(feature = "http")]
    pub(crate) https_proxy: String,
    #[cfg(feature = "http")]
    pub(crate) no_proxy: String,
}

impl Host {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads it")]
    pub(crate) fn from_env() -> Self {
        let read = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        // In the order of curl.
        #[cfg(feature = "http")]
        let either = |lower, upper| read(lower).or_else(|| read(upper)).unwrap_or_default();
        Self {
            function: read("AWS_LAMBDA_FUNCTION_NAME"),
            log_level: read("AWS_LAMBDA_LOG_LEVEL"),
            logs_json: read("AWS_LAMBDA_LOG_FORMAT")
                .is_some_and(|format| format.eq_ignore_ascii_case("json")),
            #[cfg(feature = "http")]
            runtime_api: read("AWS_LAMBDA_RUNTIME_API"),
            #[cfg(feature = "http")]
            https_proxy: either("https_proxy", "HTTPS_PROXY"),
            #[cfg(feature = "http")]
            no_proxy: either("no_proxy", "NO_PROXY"),
        }
    }
}
