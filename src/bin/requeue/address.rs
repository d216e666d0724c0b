//! The URLs that several commands take.

use requeue::http::TargetUrl;
use requeue::queue::{QueueArn, QueueUrl};

use crate::Error;

/// The value of `--target-url`.
pub(crate) fn target(url: &str) -> Result<TargetUrl, Error> {
    Ok(TargetUrl::parse(url).map_err(|error| format!("--target-url is invalid: {error}"))?)
}

/// The value of `--queue-url`; `region` counts where the URL does not say it.
pub(crate) fn queue(url: &str, region: &str) -> Result<QueueArn, Error> {
    let parsed: QueueUrl = url.parse().map_err(|error| format!("--queue-url {url} is {error}"))?;
    Ok(parsed.arn("aws", region))
}
