//! The test messages; whether a deployment may get them, and what to expect of it. Asks AWS
//! nothing.

use std::fmt;
use std::time::Duration;

use http::Uri;
use requeue::FailureClass::{self, NonRetryable, Quota, RateLimit, Temporary};
use requeue::queue::QueueArn;
use requeue::{DeadLetterMode, Mode};
use serde_json::json;

use super::super::arn::function_name;
use super::super::facts::{Deployment, FunctionSettings};
use crate::table::span;

/// The test function, and the last part of its URL's path. No real service has it by accident.
const TEST_NAME: &str = "requeue-test-endpoint";

/// The message attribute that marks a test message, with the id of the run as its value.
pub(crate) const MARK: &str = "requeue-test";
/// The seconds that the target asks for, by `Retry-After` or `delaySeconds`.
pub(crate) const RETRY_AFTER: u64 = 5;

/// A test message. The function of `examples/test-endpoint` reads its responses from the body.
#[derive(Debug)]
pub(crate) struct TestMessage {
    pub(crate) class: Option<FailureClass>,
    /// The target's words for its responses, one for each attempt.
    answers: &'static [&'static str],
    /// These responses of the endpoint.
    by_url: &'static str,
    /// Those of a target function.
    by_function: &'static str,
    pub(crate) expected: &'static str,
}

const LATER: &str = "one failure of this class, and a retry after the policy's delay";

macro_rules! messages {
    ($($class:expr, $answers:expr, $by_url:literal, $by_function:literal, $expected:expr;)+) => {
        [$(TestMessage {
            class: $class,
            answers: &$answers,
            by_url: $by_url,
            by_function: $by_function,
            expected: $expected,
        }),+]
    };
}

/// The first one shows whether anything works. The last one makes the function pause.
pub(crate) const MESSAGES: [TestMessage; 5] = messages! {
    None, ["ok"], "200", "nothing failed", "it completes at its first attempt";
    Some(Quota), ["quota", "ok"], "403 quotaExceeded, then 200",
        "failed with the class QUOTA, then nothing failed", LATER;
    Some(Temporary), ["temporary", "ok"], "503, then 200",
        "failed without a class, then nothing failed", LATER;
    Some(NonRetryable), ["non-retryable"], "400", "failed with the class non-retryable",
        "one failure of this class, and no retry: a dead letter";
    Some(RateLimit), ["rate-limit", "ok"], "429 with Retry-After: 5, then 200",
        "failed with the class rate-limit and delaySeconds 5, then nothing failed",
        "one failure of this class, and a retry after 5 s or more";
};

impl TestMessage {
    pub(crate) fn id(&self) -> &'static str {
        self.class.map_or("success", FailureClass::as_str)
    }

    pub(crate) fn responses(&self, target: &Target) -> &'static str {
        match target {
            Target::Url(_) => self.by_url,
            Target::Function(_) => self.by_function,
        }
    }

    pub(crate) fn body(&self, run: &str) -> String {
        json!({ MARK: run, "answers": self.answers }).to_string()
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Url(String),
    Function(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Url(name) | Self::Function(name)) = self;
        f.write_str(name)
    }
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) function: String,
    pub(crate) log_group: String,
    pub(crate) target: Target,
    pub(crate) source: QueueArn,
    pub(crate) dead_letters: QueueArn,
    pub(crate) mode: &'static str,
    /// The time after which SQS moves a message by itself, unless a copy with a reason is first.
    pub(crate) moved_after: Option<Duration>,
    /// Whether a look into the dead-letter queue could move messages.
    pub(crate) is_redriven: bool,
}

impl Plan {
    /// If no message may be sent, the error has the reason.
    pub(crate) fn of(deployment: &Deployment) -> Result<Self, String> {
        let function = deployment.function.as_ref().ok_or("there is no function")?;
        let name = &function.name;
        let valid = deployment.settings.as_ref().map_err(|_| {
            "the function's settings are not known; run the command without --first-hour, which says \
             why"
        })?;
        let (config, target) = (&valid.config, target(name, valid)?);
        if config.mode == Mode::Report {
            return Err("REQUEUE_MODE is report, which retries nothing; remove it".to_owned());
        }
        config.metrics.as_ref().ok_or(
            "REQUEUE_METRICS is off, and the results are read from lines of metrics; remove it",
        )?;
        let [path] = deployment.paths.as_slice() else {
            return Err(format!(
                "{name} has {} queues, and the messages need exactly one; use a function with one",
                deployment.paths.len()
            ));
        };
        let source = &path.source;
        let config = config.of_queue(source.arn.name());
        let filters = path.mapping.as_ref().map(|mapping| &mapping.filters);
        if !matches!(filters, Some(Ok(filters)) if filters.is_empty()) {
            return Err(format!(
                "Lambda would delete messages that the filter of {}'s mapping does not match; \
                 remove the filter for the test",
                source.arn.name()
            ));
        }
        let is_direct = matches!(config.dead_letter, Some(DeadLetterMode::Direct(_)));
        let dead_letters = if is_direct { &path.direct } else { &path.dead_letters };
        let known = dead_letters.as_ref().and_then(|queue| Some((&queue.arn, queue.known()?)));
        let (dead_letters, attributes) = known.ok_or_else(|| {
            format!("the dead-letter queue of {} is not known", source.arn.name())
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
            dead_letters: dead_letters.clone(),
            mode: config.dead_letter.clone().unwrap_or_default().as_str(),
            moved_after: by_sqs.filter(|_| !is_annotated && !is_direct),
            is_redriven: attributes.redrive.is_some(),
        })
    }

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

/// The target in these settings, which must be that of `examples/test-endpoint`.
pub(super) fn target(function: &str, valid: &FunctionSettings) -> Result<Target, String> {
    const DEPLOY: &str = "deploy examples/test-endpoint, and set";
    if let Some((name, _)) = &valid.target_function {
        return if function_name(name) == TEST_NAME {
            Ok(Target::Function(name.clone()))
        } else {
            Err(format!(
                "{function} invokes {name}, and only {TEST_NAME} is surely no real one; {DEPLOY} \
                 TargetFunction to {TEST_NAME}"
            ))
        };
    }
    let url = valid.target_url.as_deref().ok_or_else(|| {
        format!(
            "{function} has neither REQUEUE_TARGET_URL nor REQUEUE_TARGET_FUNCTION; try a handler of \
             your own by hand, as docs/operate/first-hour.md says"
        )
    })?;
    let fix = format!("{DEPLOY} TargetUrl to its output");
    let url: Uri = url.parse().map_err(|_| format!("REQUEUE_TARGET_URL is no URL; {fix}"))?;
    // Without user and query, which may be secrets.
    let host = url.authority().map_or("", |authority| authority.as_str());
    let host = host.rsplit('@').next().unwrap_or_default();
    if url.path().rsplit_once('/').is_none_or(|(_, last)| last != TEST_NAME) {
        return Err(format!(
            "{function} posts to {host}, and the path does not end in /{TEST_NAME}, so it may be a \
             real service; {fix}"
        ));
    }
    Ok(Target::Url(format!("{}://{host}{}", url.scheme_str().unwrap_or("https"), url.path())))
}
