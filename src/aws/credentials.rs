//! Credentials that are read anew when a service refuses them. The SDK keeps the text of the profile
//! file for ever, and other credentials until the end that they had when it read them.

use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_config::SdkConfig;
use aws_config::identity::IdentityCache;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::identity::{
    IdentityCachePartition, IdentityFuture, ResolveCachedIdentity, ResolveIdentity,
    SharedIdentityCache, SharedIdentityResolver,
};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use aws_smithy_types::config_bag::ConfigBag;
use futures_util::future::BoxFuture;

use crate::lock::lock;

/// The beginnings of the codes by which a service refuses credentials. Source: common errors of
/// AWS's services. With one half of a new file, the signature is wrong.
const REFUSALS: &str = "\
    ExpiredToken InvalidAccessKeyId InvalidClientTokenId InvalidSignature InvalidToken \
    SignatureDoesNotMatch UnrecognizedClient";

/// The longest time for credentials: less than a try of a request, whose end would be told as trouble
/// of the service. It is enough for two tries of an endpoint of credentials.
const LOAD_TIMEOUT: Duration = Duration::from_secs(12);

/// The SDK's error of a timeout does not say that it waited for credentials.
#[derive(Debug, thiserror::Error)]
#[error("the provider gives no credentials")]
struct NotProvided(#[source] BoxError);

/// The credentials of AWS's environment. Those that a program sets itself stay as they are.
#[derive(Clone)]
pub(super) struct Credentials(Arc<Mutex<Resolved>>);

struct Resolved {
    cache: SharedIdentityCache,
    /// That of the environment.
    provider: Option<IdentityCachePartition>,
    /// Read after a refusal.
    instead: Option<SharedIdentityResolver>,
    are_refused: bool,
    /// Reads the environment's configuration.
    load: fn() -> BoxFuture<'static, SdkConfig>,
}

impl Credentials {
    pub(super) fn new(load: fn() -> BoxFuture<'static, SdkConfig>) -> Self {
        let cache = cache();
        let known = Resolved { cache, provider: None, instead: None, are_refused: false, load };
        Self(Arc::new(Mutex::new(known)))
    }

    /// The configuration with these credentials.
    pub(super) fn within(self, config: SdkConfig) -> SdkConfig {
        let provider = config.credentials_provider();
        lock(&self.0).provider = provider.and_then(|provider| provider.cache_partition());
        config.into_builder().identity_cache(self).build()
    }

    /// Looks whether a service refuses its request for the credentials. The next request has those
    /// that are there then.
    pub(super) async fn look_at(
        &self,
        mut response: HttpResponse,
    ) -> Result<HttpResponse, ConnectorError> {
        if !matches!(response.status().as_u16(), 400 | 401 | 403) {
            return Ok(response);
        }
        let body = ByteStream::new(mem::replace(response.body_mut(), SdkBody::empty()));
        let body = body.collect().await.map_err(|error| ConnectorError::io(error.into()))?;
        let body = body.into_bytes();
        let text = String::from_utf8_lossy(&body);
        let header = response.headers().get("x-amzn-errortype").unwrap_or_default();
        if REFUSALS.split(' ').any(|code| text.contains(code) || header.starts_with(code)) {
            let mut known = lock(&self.0);
            known.are_refused = true;
            known.cache = cache();
        }
        *response.body_mut() = SdkBody::from(body);
        Ok(response)
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
            identity.map_err(|error| NotProvided(error).into())
        })
    }
}

requeue_sqs::debug_by_name!(Credentials);
