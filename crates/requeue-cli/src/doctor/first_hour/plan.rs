//! Whether a deployment may get test messages, and what to expect of it. Asks AWS nothing.

use std::collections::HashMap;
use std::time::Duration;

use http::Uri;
use requeue::queue::QueueArn;
use requeue::{DeadLetterMode, Mode};

use super::super::facts::{Deployment, Reached};
use crate::table::span;

/// The last part of the test endpoint's path. No real service has it by accident.
const TEST_PATH: &str = "/requeue-test-endpoint";

/// A deployment that may get test messages.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) function: String,
    pub(crate) log_group: String,
    /// The URL of the endpoint, without a query.
    pub(crate) target: String,
    pub(crate) source: QueueArn,
    pub(crate) dead_letters: QueueArn,
    pub(crate) mode: &'static str,
    /// The time after which SQS moves a message by itself, if no copy with a reason goes before it.
    pub(crate) moved_after: Option<Duration>,
    /// Whether a look into the dead-letter queue could move messages.
    pub(crate) is_redriven: bool,
}

impl Plan {
    /// `variables` are those of the function. The error says why no message may be sent.
    pub(crate) fn of(
        deployment: &Deployment,
        variables: &HashMap<String, String>,
    ) -> Result<Self, String> {
        let refused = |reason: &str| format!("--first-hour sends nothing: {reason}");
        let function =
            deployment.function.as_ref().ok_or_else(|| refused("there is no function"))?;
        let name = &function.name;
        let target = target(name, variables).map_err(|reason| refused(&reason))?;
        let valid = deployment.settings.valid().ok_or_else(|| {
            refused(
                "the function's settings are not known; run the command without --first-hour, which \
                 says why",
            )
        })?;
        let config = &valid.config;
        if config.mode == Mode::Report {
            return Err(refused("REQUEUE_MODE is report, which retries nothing; remove it"));
        }
        if variables.get("REQUEUE_METRICS").is_some_and(|value| value == "off") {
            return Err(refused(
                "REQUEUE_METRICS is off, and the results are read from lines of metrics; remove it",
            ));
        }
        let [path] = deployment.paths.as_slice() else {
            return Err(refused(&format!(
                "{name} has {} queues, and the messages need exactly one; use a function with one",
                deployment.paths.len()
            )));
        };
        let source = &path.source;
        let filters = path.mapping.as_ref().map(|mapping| &mapping.filters);
        if !matches!(filters, Some(Ok(filters)) if filters.is_empty()) {
            return Err(refused(&format!(
                "Lambda would delete messages that the filter of {}'s mapping does not match; \
                 remove the filter for the test",
                source.arn.name()
            )));
        }
        let is_direct = matches!(config.dead_letter, Some(DeadLetterMode::Direct(_)));
        let dead_letters = if is_direct { &path.direct } else { &path.dead_letters };
        let known = |queue: &Option<Reached>| {
            let queue = queue.as_ref()?;
            Some((queue.arn.clone(), queue.known()?.redrive.is_some()))
        };
        let (dead_letters, is_redriven) = known(dead_letters).ok_or_else(|| {
            refused(&format!("the dead-letter queue of {} is not known", source.arn.name()))
        })?;
        let is_annotated =
            config.dead_letter == Some(DeadLetterMode::Annotate) && !source.arn.is_fifo();
        let by_sqs = source.known().and_then(|queue| {
            let redrive = queue.redrive.as_ref()?;
            Some(queue.visibility * redrive.max_receive_count)
        });
        Ok(Self {
            function: function.qualified(),
            log_group: function.logs.group_of(name),
            target,
            source: source.arn.clone(),
            dead_letters,
            mode: config.dead_letter.clone().unwrap_or_default().as_str(),
            moved_after: by_sqs.filter(|_| !is_annotated && !is_direct),
            is_redriven,
        })
    }

    /// The command that checks the deployment.
    pub(super) fn doctor(&self) -> String {
        format!("requeue doctor --function {}", self.function)
    }

    /// How the dead letter should arrive.
    pub(crate) fn arrival(&self) -> String {
        let name = self.dead_letters.name();
        match (self.moved_after, self.mode) {
            (Some(time), _) => format!("in {name} after about {}, without a reason", span(time)),
            (None, "direct") => format!("in {name} at once, with its reason"),
            (None, _) => format!("in {name} within a minute, with its reason"),
        }
    }
}

/// The URL of the test endpoint, which the function must post to.
pub(super) fn target(
    function: &str,
    variables: &HashMap<String, String>,
) -> Result<String, String> {
    let fix = "deploy examples/test-endpoint, and set TargetUrl to its output";
    let url = variables.get("REQUEUE_TARGET_URL").ok_or_else(|| {
        format!(
            "{function} has no REQUEUE_TARGET_URL; try a handler of your own by hand, as \
             docs/operate/first-hour.md says"
        )
    })?;
    let url: Uri = url.parse().map_err(|_| format!("REQUEUE_TARGET_URL is no URL; {fix}"))?;
    // Without user and query, which may be secrets.
    let host = url.authority().map_or("", |authority| authority.as_str());
    let host = host.rsplit('@').next().unwrap_or_default();
    if !url.path().ends_with(TEST_PATH) {
        return Err(format!(
            "{function} posts to {host}, and the path does not end in {TEST_PATH}, so it may be a \
             real service; {fix}"
        ));
    }
    Ok(format!("{}://{host}{}", url.scheme_str().unwrap_or("https"), url.path()))
}
