//! The four classes of failures, and their names.

use std::fmt;
use std::str::FromStr;

use crate::words::words;

words! {
    "The word used in messages, logs and metrics."
    /// The four kinds of failures, each with delays and budgets of its own.
    ///
    /// Match on it without `_`. Every policy, table and metric has a place for each of the four. A
    /// fifth class would be a new major version.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum FailureClass {
        /// Too many requests just now: HTTP 429 and its relatives.
        RateLimit = "rate-limit",
        /// An allowance is used up, for hours perhaps.
        Quota = "quota",
        /// A failure that should pass: a timeout, a reset, a 503, a panic, anything unrecognised.
        Temporary = "temporary",
        /// Trying again cannot help: the message goes to the dead-letter queue.
        NonRetryable = "non-retryable",
    }
}

impl FailureClass {
    /// All four, in the order of every table.
    pub const ALL: [Self; 4] = [Self::RateLimit, Self::Quota, Self::Temporary, Self::NonRetryable];

    /// The inverse of [`as_str`](Self::as_str).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }
}

/// The inverse of `Display`.
impl FromStr for FailureClass {
    type Err = UnknownFailureClass;

    fn from_str(name: &str) -> Result<Self, UnknownFailureClass> {
        Self::from_name(name).ok_or(UnknownFailureClass)
    }
}

/// A word that names no [`FailureClass`].
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a failure class is rate-limit, quota, temporary or non-retryable")]
#[non_exhaustive]
pub struct UnknownFailureClass;

requeue_sqs::debug_as_display!(UnknownFailureClass);

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_names_are_their_own_inverse() {
        for class in FailureClass::ALL {
            assert_eq!(FailureClass::from_name(class.as_str()), Some(class));
            assert_eq!(class.to_string().parse(), Ok(class));
        }
        assert_eq!("rate_limit".parse::<FailureClass>(), Err(UnknownFailureClass));
        assert_eq!(FailureClass::from_name("rate_limit"), None);
    }
}
