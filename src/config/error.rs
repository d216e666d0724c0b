//! The error of a `main`: why a program that uses this library cannot run.

use std::env::VarError;
use std::io;

use super::{InvalidConfig, InvalidPolicy};
use crate::pointer::InvalidJsonPointer;
use crate::policy::InvalidMessageKey;
use crate::queue::{InvalidPrincipal, InvalidQueueArn, InvalidQueueUrl};

/// Why the program cannot run. The errors of settings, policies, queues and a worker's start convert
/// into it, so a `main` needs no other type. `Display` and `Debug` print the same readable text, since
/// Rust prints the `Debug` of an error that `main` returns.
#[derive(thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<dyn std::error::Error + Send + Sync>);

requeue_sqs::debug_as_display!(Error);

impl Error {
    pub(crate) fn of(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

macro_rules! convert {
    ($($cause:ty),+ $(,)?) => {$(
        impl From<$cause> for Error {
            fn from(cause: $cause) -> Self {
                Self::of(cause)
            }
        }
    )+};
}

convert!(
    InvalidConfig,
    InvalidPolicy,
    InvalidQueueUrl,
    InvalidQueueArn,
    InvalidPrincipal,
    InvalidJsonPointer,
    InvalidMessageKey,
    VarError,
    io::Error,
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::RetryPolicy;
    use crate::queue::QueueUrl;
    use crate::settings::Settings;

    #[test]
    fn a_main_prints_all_lines_of_the_error_that_it_returns() {
        let config = Settings::from_vars([("REQUEUE_WRAP", "maybe"), ("REQUEUE_MODE", "?")]);
        let config = config.expect_err("two are wrong");
        let lines = config.to_string();
        assert_eq!(lines.lines().count(), 3, "{lines}");
        assert_eq!(format!("{config:?}"), lines);
        assert_eq!(format!("{:?}", Error::from(config)), lines);
        let policy = r#"{"maxRetries": -1, "jitter": 7}"#.parse::<RetryPolicy>();
        let policy = policy.expect_err("both are wrong");
        let lines = policy.to_string();
        assert_eq!(lines.lines().count(), 3, "{lines}");
        assert_eq!(format!("{policy:?}"), lines);
        assert_eq!(format!("{:?}", Error::from(policy)), lines);
        let url = "orders".parse::<QueueUrl>().expect_err("no URL");
        let key = "a key".parse::<crate::policy::MessageKey>().expect_err("no key");
        for (debug, error) in
            [(format!("{url:?}"), Error::from(url)), (format!("{key:?}"), Error::from(key))]
        {
            assert_eq!(debug, error.to_string());
            assert!(debug.contains(' '), "{debug}");
        }
    }
}
