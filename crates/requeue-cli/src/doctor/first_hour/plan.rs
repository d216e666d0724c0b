//! The test messages; whether a deployment may get them, and what to expect of it. Asks AWS nothing.

use std::time::Duration;

use http::Uri;
use requeue::FailureClass::{self, NonRetryable, Quota, RateLimit, Temporary};
use requeue::queue::QueueArn;
use requeue::{DeadLetterMode, Mode};
use serde_json::json;

use super::super::facts::{Deployment, Reached};
use crate::table::span;

/// The last part of the test endpoint's path. No real service has it by accident.
const TEST_PATH: &str = "/requeue-test-endpoint";

/// The message attribute that marks a test message, with the id of the run as its value.
pub(crate) const MARK: &str = "requeue-test";
/// The seconds that the endpoint asks for with its `Retry-After`.
pub(crate) const RETRY_AFTER: u64 = 5;

/// A test message. The endpoint of `examples/test-endpoint` reads its responses from the body.
#[derive(Debug)]
pub(crate) struct TestMessage {
    /// The class of its failure; `None` if it only succeeds.
    pub(crate) class: Option<FailureClass>,
    /// The endpoint's words for its responses, one for each attempt.
    answers: &'static [&'static str],
    /// These responses.
    pub(crate) responses: &'static str,
    pub(crate) expected: &'static str,
}

const LATER: &str = "one failure of this class, and a retry after the policy's delay";

/// The first one shows whether anything works at all. The last one makes the function pause, so the
/// others go before it.
pub(crate) const MESSAGES: [TestMessage; 5] = [
    TestMessage {
        class: None,
        answers: &["ok"],
        responses: "200",
        expected: "it completes at its first attempt",
    },
    TestMessage {
        class: Some(Quota),
        answers: &["quota", "ok"],
        responses: "403 quotaExceeded, then 200",
        expected: LATER,
    },
    TestMessage {
        class: Some(Temporary),
        answers: &["temporary", "ok"],
        responses: "503, then 200",
        expected: LATER,
    },
    TestMessage {
        class: Some(NonRetryable),
        answers: &["non-retryable"],
        responses: "400",
        expected: "one failure of this class, and no retry: a dead letter",
    },
    TestMessage {
        class: Some(RateLimit),
        answers: &["rate-limit", "ok"],
        responses: "429 with Retry-After: 5, then 200",
        expected: "one failure of this class, and a retry after 5 s or more",
    },
];

impl TestMessage {
    pub(crate) fn id(&self) -> &'static str {
        self.class.map_or("success", FailureClass::as_str)
    }

    pub(crate) fn body(&self, run: &str) -> String {
        json!({ MARK: run, "answers": self.answers }).to_string()
    }
}

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
    /// The error says why no message may be sent.
    pub(crate) fn of(deployment: &Deployment) -> Result<Self, String> {
        let refused = |reason: &str| format!("--first-hour sends nothing: {reason}");
        let function =
            deployment.function.as_ref().ok_or_else(|| refused("there is no function"))?;
        let name = &function.name;
        let valid = deployment.settings.valid().ok_or_else(|| {
            refused(
                "the function's settings are not known; run the command without --first-hour, which \
                 says why",
            )
        })?;
        let (config, url) = (&valid.config, valid.target_url.as_deref());
        let target = target(name, url).map_err(|reason| refused(&reason))?;
        if config.mode == Mode::Report {
            return Err(refused("REQUEUE_MODE is report, which retries nothing; remove it"));
        }
        if config.metrics.is_none() {
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
pub(super) fn target(function: &str, url: Option<&str>) -> Result<String, String> {
    let fix = "deploy examples/test-endpoint, and set TargetUrl to its output";
    let url = url.ok_or_else(|| {
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
