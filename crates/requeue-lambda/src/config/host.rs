//! Other variables of the environment: the address of the Runtime API, and the proxy.

#[derive(Default)]
pub(super) struct Host {
    /// `host:port`. `None` elsewhere.
    pub(super) runtime_api: Option<String>,
    /// The proxy, from the variables that many programs read.
    pub(super) https_proxy: String,
    pub(super) no_proxy: String,
}

impl Host {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads it")]
    pub(super) fn from_env() -> Self {
        let read = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        // In the order of curl.
        let either = |lower, upper| read(lower).or_else(|| read(upper)).unwrap_or_default();
        Self {
            runtime_api: read("AWS_LAMBDA_RUNTIME_API"),
            https_proxy: either("https_proxy", "HTTPS_PROXY"),
            no_proxy: either("no_proxy", "NO_PROXY"),
        }
    }
}
