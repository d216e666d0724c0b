//! The option `--target-url` of several commands.

use requeue_lambda::{TargetRules, TargetUrl};

use crate::Error;

/// Parses `--target-url` by the rules of the environment's settings.
pub(crate) fn target(url: &str, rules: TargetRules) -> Result<TargetUrl, Error> {
    let target = TargetUrl::parse_with(url, rules).map_err(|error| {
        let remedy = error
            .allowed_by()
            .map(|name| format!("; set {name}=true to allow it"))
            .unwrap_or_default();
        format!("--target-url is invalid: {error}{remedy}")
    })?;
    Ok(target)
}
