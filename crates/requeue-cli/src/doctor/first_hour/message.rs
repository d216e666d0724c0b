//! The test messages. The endpoint of `examples/test-endpoint` reads its responses from them.

use requeue::FailureClass;
use serde_json::json;

/// The message attribute that marks a test message, with the id of the run as its value.
pub(crate) const MARK: &str = "requeue-test";
/// The seconds that the endpoint asks for with its `Retry-After`.
pub(crate) const RETRY_AFTER: u64 = 5;

/// A test message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestMessage {
    Success,
    /// It fails once with this class, and then succeeds. A non-retryable one fails only.
    Failing(FailureClass),
}

impl TestMessage {
    /// The first one shows whether anything works at all. The last one makes the function pause, so
    /// the others go before it.
    pub(crate) const ALL: [Self; 5] = [
        Self::Success,
        Self::Failing(FailureClass::Quota),
        Self::Failing(FailureClass::Temporary),
        Self::Failing(FailureClass::NonRetryable),
        Self::Failing(FailureClass::RateLimit),
    ];

    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failing(class) => class.as_str(),
        }
    }

    /// The endpoint's words for its responses, one for each attempt.
    fn answers(self) -> Vec<&'static str> {
        match self {
            Self::Success => vec!["ok"],
            Self::Failing(FailureClass::NonRetryable) => vec![FailureClass::NonRetryable.as_str()],
            Self::Failing(class) => vec![class.as_str(), "ok"],
        }
    }

    pub(crate) fn body(self, run: &str) -> String {
        json!({ MARK: run, "answers": self.answers() }).to_string()
    }

    /// The responses that the body asks for.
    pub(crate) const fn responses(self) -> &'static str {
        match self {
            Self::Success => "200",
            Self::Failing(FailureClass::RateLimit) => "429 with Retry-After: 5, then 200",
            Self::Failing(FailureClass::Quota) => "403 quotaExceeded, then 200",
            Self::Failing(FailureClass::Temporary) => "503, then 200",
            Self::Failing(FailureClass::NonRetryable) => "400",
        }
    }

    pub(crate) const fn expected(self) -> &'static str {
        match self {
            Self::Success => "it completes at its first attempt",
            Self::Failing(FailureClass::RateLimit) => {
                "one failure of this class, and a retry after 5 s or more"
            }
            Self::Failing(FailureClass::Quota | FailureClass::Temporary) => {
                "one failure of this class, and a retry after the policy's delay"
            }
            Self::Failing(FailureClass::NonRetryable) => {
                "one failure of this class, and no retry: a dead letter"
            }
        }
    }
}
