//! The class of an HTTP status by itself, and how a reason names it.

use crate::failure::FailureClass;

/// Statuses that differ from their hundred.
const STATUSES: [(u16, FailureClass); 10] = {
    use FailureClass::{NonRetryable, Quota, RateLimit, Temporary};
    [
        (408, Temporary),
        (425, Temporary),
        (429, RateLimit),
        // DeepL
        (456, Quota),
        (500, Temporary),
        (501, NonRetryable),
        (502, Temporary),
        (503, Temporary),
        (504, Temporary),
        (505, NonRetryable),
    ]
};

/// Statuses from 400 to 499 that speak of the request itself, or of its object. The same request
/// fails again, even if the response names a delay.
const FINAL: [u16; 15] =
    [400, 402, 404, 405, 406, 410, 411, 414, 415, 416, 417, 422, 428, 431, 451];
/// Statuses from 400 to 499 with which services refuse a client that calls too often: GitHub's,
/// Binance's, Twitter's and Shopify's.
const TOO_OFTEN: [u16; 4] = [403, 418, 420, 430];

/// The class of a status from 400 to 499 that cannot speak of the request, if the response names a
/// delay.
pub(super) fn class_until_later(status: u16) -> Option<FailureClass> {
    match status {
        _ if FINAL.contains(&status) => None,
        _ if TOO_OFTEN.contains(&status) => Some(FailureClass::RateLimit),
        400..=499 => Some(FailureClass::Temporary),
        _ => None,
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_each_status_that_is_final_in_any_case() {
        let row = super::super::tests::PAGE.lines().find(|row| row.contains("also with a delay"));
        let row = row.expect("the page has a row for them");
        for status in FINAL {
            assert!(row.contains(&status.to_string()), "{status}");
        }
    }
}
