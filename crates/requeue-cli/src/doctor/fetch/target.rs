//! The function that the function invokes.

use std::time::Duration;

use futures_util::future::OptionFuture;
use requeue_lambda::call_limit;

use super::super::arn::{Arn, function_name};
use super::super::checks::INVOKING;
use super::super::facts::{FunctionSettings, InvokedFunction, TargetProperties};
use super::function::{CONCURRENCY, CONCURRENCY_PATH, DEFAULT_TIMEOUT, count};
use super::{CONFIGURATION, Clients, deployed};

/// The settings with the time limit of a call as the target's own timeout makes it.
pub(super) fn fitted(
    mut settings: FunctionSettings,
    target: Option<&InvokedFunction>,
) -> FunctionSettings {
    let found = target.and_then(|target| target.properties.as_ref().ok()?.as_ref());
    if let (FunctionSettings::Valid(valid), Some(target)) = (&mut settings, found) {
        let requeue::Settings { limits, queues, .. } = &mut valid.config;
        let own = queues.values_mut().filter_map(|queue| queue.timeout.as_mut());
        for limit in own.chain([&mut limits.timeout]) {
            *limit = call_limit(*limit, target.timeout);
        }
    }
    settings
}

impl Clients {
    /// The target in the settings, and the permissions of `role` on it.
    pub(super) async fn target(
        &self,
        settings: &FunctionSettings,
        role: Option<&str>,
    ) -> Option<InvokedFunction> {
        let (name, messages_per_call) = settings.valid()?.target_function.clone()?;
        let arn = if name.starts_with("arn:") {
            name.clone()
        } else {
            let Arn { partition, account, .. } = Arn::of(role.unwrap_or_default());
            format!("arn:{partition}:lambda:{}:{account}:function:{name}", self.region)
        };
        let configuration = deployed::function_configuration(&self.sdk, &name);
        let (configuration, concurrency) = tokio::join!(
            self.ask(CONFIGURATION, &name, configuration),
            self.get(CONCURRENCY, function_name(&name), CONCURRENCY_PATH)
        );
        let properties = match configuration {
            Ok(found) => Ok(Some(TargetProperties {
                state: found.state,
                timeout: Duration::from_secs(found.timeout.unwrap_or(DEFAULT_TIMEOUT)),
            })),
            Err(unread) if unread.error.code == "ResourceNotFoundException" => Ok(None),
            Err(unread) => Err(unread),
        };
        let access = role.map(|role| self.simulate(role, &INVOKING, &arn));
        let access = OptionFuture::from(access).await;
        let reserved_concurrency =
            concurrency.map(|concurrency| count(&concurrency["ReservedConcurrentExecutions"]));
        Some(InvokedFunction {
            name,
            arn,
            messages_per_call,
            properties,
            reserved_concurrency,
            access,
        })
    }
}
