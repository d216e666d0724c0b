//! The class of an HTTP status by itself, and how a reason names it.

use crate::failure::FailureClass;

/// Statuses that differ from their hundred.
const STATUSES: [(u16, FailureClass); 9] = {
    use FailureClass::{NonRetryable, RateLimit, Temporary};
    [
        (408, Temporary),
        (425, Temporary),
        (429, RateLimit),
        (500, Temporary),
        (501, NonRetryable),
        (502, Temporary),
        (503, Temporary),
        (504, Temporary),
        (505, NonRetryable),
    ]
};

/// A reason: the status, our own words on it, and the error's own code.
pub(super) fn told(status: u16, words: Option<&str>, own_code: Option<&str>) -> String {
    match (words, own_code) {
        (None, None) => format!("status {status}"),
        (Some(one), None) | (None, Some(one)) => format!("status {status}: {one}"),
        (Some(words), Some(code)) => format!("status {status}: {code}, {words}"),
    }
}

/// The class of a status by itself.
pub(super) fn class_of(status: u16) -> FailureClass {
    let of_hundred = match status {
        300..=499 => FailureClass::NonRetryable,
        _ => FailureClass::Temporary,
    };
    STATUSES.iter().find(|row| row.0 == status).map_or(of_hundred, |row| row.1)
}
