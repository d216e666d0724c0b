//! The policy document.

use crate::policy::RetryPolicy;

pub(super) fn read(_document: &str) -> Result<RetryPolicy, Vec<String>> {
    Ok(RetryPolicy::default())
}
