//! Invokes a function by Lambda's API. Only this file calls it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, RETRY_AFTER};
use ::http::{Method, Request};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_runtime_api::client::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use requeue::Settings;
use requeue::aws::{self, SdkConfig};
use requeue::queue::{MAX_EVENT, MAX_RUN};
use requeue_aws::{CallError, Region, Service, call};
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::connection::http_clients;
use super::{FunctionName, Invoke, InvokeError, Invoked};

/// The longest start before a run, and the time of the requests. Source: Lambda developer guide,
/// "Lambda execution environment lifecycle": ten seconds for the init phase.
const START: Duration = Duration::from_secs(15);
/// The longest wait for the function's own timeout. Without it, the function is still invoked.
const ASKING: Duration = Duration::from_secs(3);

/// The time limit of a call if the function's own timeout is unknown.
pub(crate) const LONGEST_CALL: Duration = MAX_RUN.saturating_add(START);

/// The time limit of a call that the settings make, for a function with this timeout of its own.
pub fn call_limit(limit: Duration, own: Duration) -> Duration {
    let least = own + START;
    if limit >= LONGEST_CALL { least } else { limit.max(least) }
}

/// A function in Lambda, invoked synchronously by the `Invoke` API. Clones share their connections.
///
/// It needs the permission `lambda:InvokeFunction`. Credentials, region and endpoint come from
/// AWS's standard environment (`AWS_ENDPOINT_URL_LAMBDA`, `AWS_ENDPOINT_URL`); an ARN names the
/// region. No invocation is tried again.
#[derive(Clone)]
pub struct LambdaFunction {
    name: FunctionName,
    http: Arc<dyn Fn() -> SharedHttpClient + Send + Sync>,
    config: Arc<OnceCell<SdkConfig>>,
}

requeue::debug_by_name!(LambdaFunction; |it| name: it.name);

impl LambdaFunction {
    /// The function of this name, by AWS's standard environment, which is loaded at the first call.
    ///
    /// # Errors
    ///
    /// If TLS cannot be set up.
    pub fn from_env(name: FunctionName) -> io::Result<Self> {
        Ok(Self { name, http: Arc::new(http_clients()?), config: Arc::default() })
    }

    /// Uses a configuration of your own, except its HTTP client, its retries and its time limits.
    ///
    /// # Errors
    ///
    /// If TLS cannot be set up.
    pub fn new(name: FunctionName, config: &SdkConfig) -> io::Result<Self> {
        let http = http_clients()?;
        let config = for_calls(&config.to_builder().http_client(http()).build(), &name);
        Ok(Self { name, http: Arc::new(http), config: Arc::new(OnceCell::new_with(Some(config))) })
    }

    /// Sets the time limits of calls by the function's own timeout: no call ends before it. Lambda
    /// is asked for it once, which needs `lambda:GetFunctionConfiguration`. Without that permission
    /// a call lasts as long as any function may run.
    pub async fn fit(&self, settings: &mut Settings) {
        let Settings { limits, queues, .. } = settings;
        let known = timeout(ASKING, self.timeout()).await.ok().flatten();
        if known.is_none() {
            tracing::info!(
                function = %self.name,
                "the function's timeout is not known: lambda:GetFunctionConfiguration is optional"
            );
        }
        let own = known.unwrap_or(MAX_RUN);
        let limit = call_limit(limits.timeout, own);
        if limits.timeout < limit {
            tracing::warn!(
                function = %self.name,
                timeoutSeconds = limits.timeout.as_secs_f64(),
                functionTimeoutSeconds = known.map(|own| own.as_secs()),
                "REQUEUE_TIMEOUT_SECONDS ends no call before the function's own timeout: remove it"
            );
        }
        limits.timeout = limit;
        for limit in queues.values_mut().filter_map(|queue| queue.timeout.as_mut()) {
            *limit = call_limit(*limit, own);
        }
    }

    async fn timeout(&self) -> Option<Duration> {
        let request = Request::get(self.name.path("configuration")).body(String::new()).ok()?;
        let read = |answer: &HttpResponse| requeue_aws::json::<Value>(answer);
        let configuration = call(self.config().await, Service::Lambda, request, read).await.ok()?;
        let timeout = Duration::from_secs(configuration["Timeout"].as_u64()?);
        // The response comes at the end of an execution, which may have several invocations.
        let execution = &configuration["DurableConfig"]["ExecutionTimeout"];
        let execution = execution.as_u64().map(|secs| Duration::from_secs(secs).min(MAX_RUN));
        (timeout <= MAX_RUN).then_some(timeout.max(execution.unwrap_or_default()))
    }

    async fn config(&self) -> &SdkConfig {
        let make = async || {
            let http = Arc::clone(&self.http);
            for_calls(&aws::config_with(move || http()).await, &self.name)
        };
        self.config.get_or_init(make).await
    }

    fn error(&self, error: &CallError) -> InvokeError {
        let refused = |code: &str, remedy| InvokeError::Refused {
            code: code.to_owned(),
            remedy: format!("{}: {remedy}", self.name),
        };
        match error {
            SdkError::ServiceError(refusal) => {
                let (answer, error) = (refusal.raw(), refusal.err());
                let seconds = answer.headers().get(RETRY_AFTER.as_str());
                let seconds = seconds.and_then(|text| text.trim().parse().ok());
                InvokeError::of_response(
                    &self.name,
                    answer.status().as_u16(),
                    error.code(),
                    error.message().unwrap_or_default(),
                    seconds.map(Duration::from_secs),
                )
            }
            SdkError::ResponseError(answer) => {
                let status = answer.raw().status().as_u16();
                InvokeError::of_response(&self.name, status, None, "", None)
            }
            _ => match aws::code_without_error(error) {
                code @ "RequestNotBuilt" => refused(code, "set AWS_REGION"),
                code @ aws::NO_CREDENTIALS => {
                    refused(code, "set AWS credentials in the environment")
                }
                code if aws::is_unconnected(code) => refused(
                    code,
                    "a function in a VPC needs a NAT gateway or an interface endpoint of Lambda",
                ),
                code => InvokeError::Lost { code: code.to_owned() },
            },
        }
    }
}

fn for_calls(config: &SdkConfig, name: &FunctionName) -> SdkConfig {
    let config = config
        .to_builder()
        .retry_config(RetryConfig::disabled())
        .timeout_config(TimeoutConfig::disabled())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    match &name.region {
        Some(region) => config.region(Region::new(region.clone())).build(),
        None => config.build(),
    }
}

impl Invoke for LambdaFunction {
    async fn invoke(&self, event: Vec<u8>) -> Result<Invoked, InvokeError> {
        if event.len() > MAX_EVENT {
            return Err(InvokeError::TooLarge);
        }
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.name.path("invocations"))
            .header(CONTENT_TYPE, "application/json")
            .header("x-amz-invocation-type", "RequestResponse")
            .body(event)
            .expect("the name fits into a path");
        let read = |answer: &HttpResponse| {
            let payload = answer.body().bytes().unwrap_or_default().to_vec();
            let is_error = answer.headers().get("x-amz-function-error").is_some();
            Ok(Invoked { payload, is_error })
        };
        let invoked = call(self.config().await, Service::Lambda, request, read).await;
        invoked.map_err(|error| self.error(&error))
    }
}
