//! Texts about a policy that several commands share.

use requeue::FailureClass;
use requeue::policy::RetryPolicy;

/// The classes that are retried, in the order of the policy.
pub(crate) const RETRIED_CLASSES: [FailureClass; 3] =
    [FailureClass::RateLimit, FailureClass::Quota, FailureClass::Temporary];

/// The retries that a class allows: its own limit or that of the policy, whichever is lower.
pub(crate) fn max_retries(policy: &RetryPolicy, class: FailureClass) -> u32 {
    policy.class(class).map_or(0, |class| {
        class.max_retries.map_or(policy.max_retries, |own| own.min(policy.max_retries))
    })
}

/// `1 retry`, `50 retries`.
pub(crate) fn retries(count: u32) -> String {
    format!("{count} retr{}", if count == 1 { "y" } else { "ies" })
}
