//! The parts of every client of the AWS SDK: credentials, region and endpoints by AWS's own rules,
//! and one HTTP client. It knows no service. The SDK keeps the text of the profile file for ever,
//! and other credentials until their end; here they are read again when a service refuses them.
//!
//! Your own clients of the same configuration link no second HTTP client and no second TLS stack.
//!
//! ```no_run
//! # async fn example() {
//! let queue = requeue::queue::SqsQueue::new(&aws_sdk_sqs::Client::new(&requeue::aws::config().await));
//! # }
//! ```

use std::error::Error;
use std::iter::successors;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::identity::IdentityCache;
use aws_credential_types::Credentials as Keys;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_runtime_api::client::identity::{
    IdentityCachePartition, IdentityFuture, ResolveCachedIdentity, ResolveIdentity,
    SharedIdentityCache, SharedIdentityResolver,
};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::{ConnectorError, SdkError};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use aws_smithy_types::config_bag::ConfigBag;
use aws_smithy_types::retry::RetryConfig;
use aws_types::service_config::{LoadServiceConfig, ServiceConfigKey};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lock::lock;

mod connections;

pub use aws_config::SdkConfig;
#[doc(hidden)]
pub use connections::Moment;
pub(crate) use connections::UNUSED;

/// Whether a call failed for lack of credentials. The SDK shows that only in the text of an error.
pub fn lacks_credentials(error: &(dyn Error + 'static)) -> bool {
    successors(Some(error), |error| Error::source(*error))
        .any(|error| error.to_string().contains("credentials"))
}

/// The code of a call without credentials, in errors and logs.
pub const NO_CREDENTIALS: &str = "NoCredentials";

/// The beginning of the code of a call that failed because no connection could be made: nothing was
/// sent. If the cause is known, it follows, as in `NoConnection: connection refused`.
pub const NO_CONNECTION: &str = "NoConnection";

/// Words of an error without a connection, and the code. The types are of several libraries.
const UNCONNECTED: [(&str, &str); 7] = [
    ("Too many open files", "NoConnection: too many open files"),
    ("dns error", "NoConnection: host name not resolved"),
    ("invalid peer certificate", "NoConnection: certificate not trusted"),
    ("Connection refused", "NoConnection: connection refused"),
    ("unreachable", "NoConnection: network unreachable"),
    ("timed out", "NoConnection: timed out"),
    ("timeout", "NoConnection: timed out"),
];

/// Whether this is the code of a call without a connection.
pub fn is_unconnected(code: &str) -> bool {
    code.starts_with(NO_CONNECTION)
}

/// The code of a call whose connection broke: it may have taken effect.
pub const CONNECTION_LOST: &str = "ConnectionLost";

/// The code of a response that is not one of AWS, such as a page of HTML.
pub const UNREADABLE: &str = "UnreadableResponse";

/// [`NO_CONNECTION`] or [`CONNECTION_LOST`], for a call that the HTTP client could not complete.
pub fn connection_code(error: &(dyn Error + 'static)) -> &'static str {
    let is_unmade = successors(Some(error), |error| Error::source(*error))
        .filter_map(|error| error.downcast_ref::<hyper_util::client::legacy::Error>())
        .any(hyper_util::client::legacy::Error::is_connect);
    if !is_unmade {
        return CONNECTION_LOST;
    }
    let texts: Vec<String> =
        successors(Some(error), |error| Error::source(*error)).map(ToString::to_string).collect();
    let known = UNCONNECTED.iter().find(|(words, _)| texts.iter().any(|text| text.contains(words)));
    known.map_or(NO_CONNECTION, |(_, code)| code)
}

/// The code of a call without an error of the service: nothing was sent, no response came, or none
/// that can be read.
pub fn code_without_error<E: Error + 'static>(error: &SdkError<E, HttpResponse>) -> &'static str {
    match error {
        SdkError::ConstructionFailure(_) => "RequestNotBuilt",
        SdkError::TimeoutError(_) => "TimedOut",
        SdkError::DispatchFailure(_) if lacks_credentials(error) => NO_CREDENTIALS,
        SdkError::DispatchFailure(_) => connection_code(error),
        _ => UNREADABLE,
    }
}

/// The configuration by AWS's standard environment variables and files, without those of retries:
/// over a wrong one, the SDK would panic.
///
/// If a service refuses the credentials, they are read again for the next request. A connection
/// that was unused for 2 s is not used again, since connections may die while Lambda freezes a
/// function.
pub async fn config() -> SdkConfig {
    config_with(connections::of_sdk).await
}

/// As [`config`], with clients of HTTP that `make` makes. Public for `requeue-lambda` alone.
#[doc(hidden)]
pub async fn config_with(make: impl Fn() -> SharedHttpClient + Send + Sync + 'static) -> SdkConfig {
    let credentials =
        Credentials::new(|| load(connections::http_client(connections::of_sdk, None)).boxed());
    let http = connections::http_client(make, Some(credentials.clone()));
    credentials.within(load(http).await)
}

async fn load(http: SharedHttpClient) -> SdkConfig {
    let loader = aws_config::defaults(BehaviorVersion::latest());
    let sdk = loader.retry_config(RetryConfig::standard()).http_client(http).load().await;
    let endpoint = sdk.endpoint_url().filter(|url| is_set(url)).map(str::to_owned);
    let mut config = sdk.to_builder();
    config.set_endpoint_url(endpoint);
    config.service_config(ServiceSettings(sdk)).build()
}

fn is_set(value: &str) -> bool {
    !value.trim().is_empty()
}

/// The settings of single services. An empty endpoint is none: the SDK would panic.
struct ServiceSettings(SdkConfig);

impl LoadServiceConfig for ServiceSettings {
    fn load_config(&self, key: ServiceConfigKey<'_>) -> Option<String> {
        self.0.service_config()?.load_config(key).filter(|value| is_set(value))
    }
}

requeue_sqs::debug_by_name!(ServiceSettings);

/// The beginnings of the codes by which a service refuses credentials. Source: common errors of
/// AWS's services. With one half of a new file, the signature is wrong.
const REFUSALS: &str = "\
    ExpiredToken InvalidAccessKeyId InvalidClientTokenId InvalidSignature InvalidToken \
    SignatureDoesNotMatch UnrecognizedClient";

/// The timeout of loading credentials. It is less than a try of a request, whose timeout would look
/// like a failure of the service, and enough for two tries of a credentials endpoint.
const LOAD_TIMEOUT: Duration = Duration::from_secs(12);

/// The SDK's error of a timeout does not say that it waited for credentials.
#[derive(Debug, thiserror::Error)]
#[error("the provider gives no credentials")]
struct NotProvided(#[source] BoxError);

/// The SDK would panic.
const WRONG_KEY: &str =
    "the access key id has a space, a line end or another character that no key has";

/// The credentials of AWS's environment. Those that a program sets itself stay as they are.
#[derive(Clone)]
struct Credentials(Arc<Mutex<Resolved>>);

struct Resolved {
    cache: SharedIdentityCache,
    provider: Option<IdentityCachePartition>,
    /// Read after a refusal.
    instead: Option<SharedIdentityResolver>,
    are_refused: bool,
    load: fn() -> BoxFuture<'static, SdkConfig>,
}

impl Credentials {
    fn new(load: fn() -> BoxFuture<'static, SdkConfig>) -> Self {
        let cache = cache();
        let known = Resolved { cache, provider: None, instead: None, are_refused: false, load };
        Self(Arc::new(Mutex::new(known)))
    }

    fn within(self, config: SdkConfig) -> SdkConfig {
        let provider = config.credentials_provider();
        lock(&self.0).provider = provider.and_then(|provider| provider.cache_partition());
        config.into_builder().identity_cache(self).build()
    }

    /// Checks whether a service refuses the credentials. The next request then reads them again.
    async fn look_at(&self, mut response: HttpResponse) -> Result<HttpResponse, ConnectorError> {
        if !matches!(response.status().as_u16(), 400 | 401 | 403) {
            return Ok(response);
        }
        let body = ByteStream::new(mem::replace(response.body_mut(), SdkBody::empty()));
        let body = body.collect().await.map_err(|error| ConnectorError::io(error.into()))?;
        let body = body.into_bytes();
        let text = String::from_utf8_lossy(&body);
        let header = response.headers().get("x-amzn-errortype").unwrap_or_default();
        if REFUSALS.split(' ').any(|code| text.contains(code) || header.starts_with(code)) {
            self.refuse();
        }
        *response.body_mut() = SdkBody::from(body);
        Ok(response)
    }

    fn refuse(&self) {
        let mut known = lock(&self.0);
        known.are_refused = true;
        known.cache = cache();
    }

    /// A provider that has read nothing yet, after a refusal.
    async fn provider(&self, given: SharedIdentityResolver) -> SharedIdentityResolver {
        if lock(&self.0).provider != Some(given.cache_partition()) {
            return given;
        }
        let are_refused = mem::take(&mut lock(&self.0).are_refused);
        if are_refused {
            let load = lock(&self.0).load;
            let anew = load().await.credentials_provider();
            lock(&self.0).instead = anew.map(SharedIdentityResolver::new);
        }
        lock(&self.0).instead.clone().unwrap_or(given)
    }
}

fn cache() -> SharedIdentityCache {
    IdentityCache::lazy().load_timeout(LOAD_TIMEOUT).build()
}

impl ResolveCachedIdentity for Credentials {
    fn resolve_cached_identity<'a>(
        &'a self,
        resolver: SharedIdentityResolver,
        components: &'a RuntimeComponents,
        config: &'a ConfigBag,
    ) -> IdentityFuture<'a> {
        IdentityFuture::new(async move {
            let provider = self.provider(resolver).await;
            let cache = lock(&self.0).cache.clone();
            let identity = cache.resolve_cached_identity(provider, components, config).await;
            let identity = identity.map_err(NotProvided)?;
            let key = identity.data::<Keys>().map(Keys::access_key_id);
            if key.is_some_and(|key| !key.bytes().all(|byte| byte.is_ascii_graphic())) {
                self.refuse();
                return Err(NotProvided(WRONG_KEY.into()).into());
            }
            Ok(identity)
        })
    }
}

requeue_sqs::debug_by_name!(Credentials);
