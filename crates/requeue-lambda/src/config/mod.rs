//! Settings of every handler and of the target, with all problems reported together.

use std::collections::BTreeSet;
use std::io;

use requeue::{InvalidConfig, Settings, Variables};

use crate::function::{
    FunctionName, FunctionSettings, FunctionTarget, LONGEST_CALL, LambdaFunction,
};
use crate::http::{HttpSettings, Proxy, TargetRules, TargetUrl};
use crate::secrets::{Stored, Texts};

mod target;
#[cfg(test)]
mod tests;

/// The settings of the environment, checked.
///
/// Those of [`Settings::from_env`], and these:
///
/// | variable | meaning | values | default |
/// |---|---|---|---|
/// | `REQUEUE_TARGET_URL` | URL to which Requeue sends each message. | `https` URL; `http` to a loopback host | none |
/// | `REQUEUE_TARGET_FUNCTION` | The function to invoke. | name, `name:alias`, `name:version` or ARN | none |
/// | `REQUEUE_MESSAGES_PER_CALL` | Most messages in one invocation of the target function. | 1 to 10,000 | 10 |
/// | `REQUEUE_ALLOW_HTTP` | Allows `http` to any host, also in `--target-url`. | `true`, `false` | `false` |
/// | `REQUEUE_ALLOW_LINK_LOCAL` | Allows targets that Requeue refuses, also in `--target-url`. | `true`, `false` | `false` |
/// | `REQUEUE_METHOD` | HTTP method. | `POST`, `PUT`, `PATCH` | `POST` |
/// | `REQUEUE_CONTENT_TYPE` | `Content-Type` of messages without the attribute `Body.ContentType`. | a media type | by the first character of the body |
/// | `REQUEUE_HEADERS` | Headers of every request, such as `{"Authorization": "Bearer …"}`, never printed. | JSON object of texts, whose words may be ARNs of secrets; no header that Requeue or HTTP sets | none |
/// | `REQUEUE_ATTRIBUTE_HEADERS` | Message attributes to send as headers: `tenant=X-Tenant, trace=X-Trace`. If a value does not fit into a header, the message is non-retryable. | `attribute=header`, of types `String` and `Number` | none |
/// | `REQUEUE_SCOPE` | Messages with the same value at this place share pause, circuit and rate limit. | a message attribute: `tenant`; `MessageGroupId`; a JSON pointer into the body: `/account/id` | all messages in one scope |
/// | `REQUEUE_SIGNING_SECRET` | Signs requests by Standard Webhooks. Two secrets, separated by a space, give two signatures. | `whsec_` and 24 to 64 bytes in base64, or the ARN of a secret | none |
/// | `REQUEUE_CLIENT_CERTIFICATE` | Certificate for mutual TLS, then its intermediate certificates. | PEM, or the ARN of a secret | none |
/// | `REQUEUE_CLIENT_KEY` | Private key of `REQUEUE_CLIENT_CERTIFICATE`. | unencrypted PEM (PKCS #8, PKCS #1, SEC 1), or the ARN of a secret | none |
/// | `REQUEUE_CONNECT_TIMEOUT_SECONDS` | Longest time to connect, TLS included. | 0.001 to 5,400 | 5 |
/// | `REQUEUE_READ_TIMEOUT_SECONDS` | Longest wait for the head of a response. | 0.001 to 5,400 | the rest of `REQUEUE_TIMEOUT_SECONDS` |
/// | `REQUEUE_IDLE_TIMEOUT_SECONDS` | How long Requeue keeps an unused connection. Set less than the target's time (Node 5 s, nginx 75 s, ALB 60 s). | 0.001 to 5,400 | 4 |
/// | `REQUEUE_HTTP_VERSION` | `auto`: the best version that the target offers; `1.1`: only HTTP/1.1. | `auto`, `1.1` | `auto` |
///
/// Read from the environment as well, by [`load`](Self::load), are `HTTPS_PROXY` and `NO_PROXY` as
/// [`Proxy::new`](crate::Proxy::new) has them, both in lower case too, which wins; and
/// `AWS_LAMBDA_RUNTIME_API`, whose address no target may have.
///
/// ```
/// use requeue_lambda::Config;
/// let vars = [("REQUEUE_METOD", "PUT"), ("REQUEUE_TARGET_URL", "http://example.com/")];
/// let vars = vars.into_iter().chain([("REQUEUE_WRAP", "maybe")]);
/// assert_eq!(
///     Config::from_vars(vars).unwrap_err().problems(),
///     [
///         "REQUEUE_METOD is unknown; did you mean REQUEUE_METHOD?",
///         "REQUEUE_TARGET_URL is invalid: the target URL must begin with https://, unless its host \
///          is a loopback address or http is allowed explicitly; set REQUEUE_ALLOW_HTTP=true to allow it",
///         "REQUEUE_WRAP is `maybe`: must be one of when-needed, never",
///     ]
/// );
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Config {
    /// The settings of every handler.
    pub settings: Settings,
    /// Where to send messages over HTTP.
    pub target: Option<TargetUrl>,
    /// The function to invoke with the messages instead.
    pub function: Option<FunctionName>,
    /// The settings of a target function.
    pub function_settings: FunctionSettings,
    /// The variables that are set and have no effect on this target.
    pub without_effect: Vec<String>,
    /// The rules for target URLs, also for those from another source.
    pub target_rules: TargetRules,
    /// The delivery settings.
    pub http: HttpSettings,
}

impl Config {
    /// Reads the environment of this process, and fetches the secrets and the policy document that
    /// it names by ARN.
    ///
    /// All secrets are asked for at once, each in the region of its ARN, with the SDK's retries and
    /// by AWS's standard environment (credentials, `AWS_ENDPOINT_URL_SECRETS_MANAGER`,
    /// `AWS_ENDPOINT_URL_SSM`, `AWS_ENDPOINT_URL`), and for 8 s at most. A fetched text counts
    /// without the white space around it, and is checked as one that is written down.
    ///
    /// # Errors
    ///
    /// All problems in one message, those of fetching among them.
    pub async fn load() -> Result<Self, InvalidConfig> {
        Self::load_from(Variables::from_env()).await
    }

    /// As [`load`](Self::load), with variables of which a program has replaced some by its options.
    #[doc(hidden)]
    pub async fn load_from(variables: Variables) -> Result<Self, InvalidConfig> {
        let reader = Reader::new(variables).with_environment();
        reader.with_secrets().await.into_config()
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
        Reader::new(Variables::new(vars)).into_config()
    }

    /// As [`from_vars`](Self::from_vars), for the settings of a program that runs elsewhere. A
    /// secret named by its ARN is neither fetched nor refused, and is missing in the settings. Also
    /// returns the ARNs of those secrets, without suffixes, for the policy of the program's role.
    ///
    /// ```
    /// use requeue_lambda::Config;
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
    pub fn from_vars_without_secrets<N: Into<String>, V: Into<String>>(
        vars: impl IntoIterator<Item = (N, V)>,
    ) -> Result<(Self, BTreeSet<String>), InvalidConfig> {
        let reader = Reader::new(Variables::new(vars));
        let mut reader = Reader { skips_secrets: true, ..reader };
        let config = reader.config();
        let secrets = reader.wanted.iter().map(Stored::plain_arn).collect();
        reader.vars.finish((config, secrets))
    }

    /// The target URL, for a program that needs one.
    ///
    /// # Errors
    ///
    /// If no URL is set; the error names the remedy.
    pub fn required_target(&self) -> Result<&TargetUrl, InvalidConfig> {
        self.target.as_ref().ok_or_else(|| {
            InvalidConfig::of(
                "REQUEUE_TARGET_URL is missing: set it to the URL for the messages, or \
                 REQUEUE_TARGET_FUNCTION to a Lambda function",
            )
        })
    }

    /// The target function as a handler. The time limit of the settings becomes the function's own,
    /// as [`LambdaFunction::fit`] has it.
    ///
    /// # Errors
    ///
    /// If there is no target function, or TLS cannot be set up.
    pub async fn target_function(&mut self) -> io::Result<FunctionTarget<LambdaFunction>> {
        let name = self.function.clone().ok_or_else(|| io::Error::other("no target function"))?;
        let function = LambdaFunction::from_env(name)?;
        function.fit(&mut self.settings).await;
        Ok(FunctionTarget::new(function, self.function_settings.clone()))
    }

    /// Logs the variables that have no effect on the target.
    pub fn warn_of_variables_without_effect(&self) {
        if !self.without_effect.is_empty() {
            tracing::warn!(
                variables = self.without_effect.join(", "),
                "these settings have no effect on the target: remove them"
            );
        }
    }
}

struct Reader {
    vars: Variables,
    /// `host:port` of Lambda's Runtime API; `None` elsewhere.
    runtime_api: Option<String>,
    /// The name and the region of the function in Lambda.
    own_name: Option<(String, Option<String>)>,
    proxy: Proxy,
    texts: Texts,
    /// Texts that the variables name and that were not fetched.
    wanted: BTreeSet<Stored>,
    /// Whether missing texts are accepted.
    skips_secrets: bool,
}

impl Reader {
    fn new(vars: Variables) -> Self {
        Self {
            vars,
            runtime_api: None,
            own_name: None,
            proxy: Proxy::default(),
            texts: Texts::new(),
            wanted: BTreeSet::new(),
            skips_secrets: false,
        }
    }

    /// With the other variables of this process, which many programs read.
    #[allow(clippy::disallowed_methods, reason = "the one place that reads them")]
    fn with_environment(self) -> Self {
        let read = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        // In the order of curl.
        let either = |lower, upper| read(lower).or_else(|| read(upper)).unwrap_or_default();
        let proxy =
            Proxy::new(either("https_proxy", "HTTPS_PROXY"), either("no_proxy", "NO_PROXY"));
        let own_name = read("AWS_LAMBDA_FUNCTION_NAME").map(|name| (name, read("AWS_REGION")));
        Self { runtime_api: read("AWS_LAMBDA_RUNTIME_API"), own_name, proxy, ..self }
    }

    fn into_config(mut self) -> Result<Config, InvalidConfig> {
        let config = self.config();
        self.vars.finish(config)
    }

    fn config(&mut self) -> Config {
        self.stored_policy();
        let mut settings = Settings::read(&mut self.vars);
        let target_rules = self.target_rules();
        let function = self.function();
        if function.is_some() && self.vars.get("TIMEOUT_SECONDS").is_none() {
            settings.limits.timeout = LONGEST_CALL;
        }
        // If a queue has a shorter timeout, Requeue ends its call at that.
        let own = settings.queues.values().filter_map(|queue| queue.timeout);
        let longest = own.chain([settings.limits.timeout]).max();
        let timeout = longest.unwrap_or(settings.limits.timeout);
        let http = HttpSettings { timeout, ..self.http() };
        Config {
            target: self.target(target_rules.clone()),
            target_rules,
            function_settings: self.function_settings(http.scope.clone()),
            without_effect: self.vars.without_effect(function.is_some()),
            function,
            http,
            settings,
        }
    }
}
