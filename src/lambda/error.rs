//! The error with which a function ends. It knows no event.

use std::fmt;

use crate::config::InvalidConfig;

/// Why the function cannot run. `Display` and `Debug` print the same readable text, since a `main`
/// that returns the error prints its `Debug`.
#[derive(thiserror::Error)]
#[error("{0}")]
pub struct Error(pub(super) lambda_runtime::Error);

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<InvalidConfig> for Error {
    fn from(error: InvalidConfig) -> Self {
        Self(error.into())
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self(error.into())
    }
}
