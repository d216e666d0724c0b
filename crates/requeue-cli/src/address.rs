//! The URLs that several commands take.

use requeue::queue::{QueueArn, QueueUrl};
use requeue_lambda::{TargetRules, TargetUrl};

use crate::Error;

/// The value of `--target-url`, by the rules of the environment's settings.
pub(crate) fn target(url: &str, rules: TargetRules) -> Result<TargetUrl, Error> {
    let target = TargetUrl::parse_with(url, rules).map_err(|error| {
        let remedy =
            error.allowed_by().map(|name| format!("; {name}=true allows it")).unwrap_or_default();
        format!("--target-url is invalid: {error}{remedy}")
    })?;
    Ok(target)
}

/// The value of `--queue-url`; `region` counts where the URL does not say it.
pub(crate) fn queue(url: &str, region: &str) -> Result<QueueArn, Error> {
    let parsed: QueueUrl = url.parse().map_err(|error| format!("--queue-url {url} is {error}"))?;
    Ok(parsed.arn("aws", region))
}
