//! The errors of a queue call.

use crate::printable;

/// The code of a message that is longer than its queue allows. SQS has none for it:
/// [`code_with_text`] reads it.
pub const MESSAGE_TOO_LONG: &str = "MessageTooLong";

/// The response of the service to one entry of a call.
pub type Confirmation = Result<(), EntryError>;

/// One entry was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryError {
    /// The service's code, or `Unconfirmed` when it did not mention the entry.
    pub code: String,
    /// Sending the same entry again cannot help.
    pub sender_fault: bool,
}

impl EntryError {
    /// The service responded with this code.
    pub fn responded(code: &str, sender_fault: bool) -> Self {
        Self { code: shown(code), sender_fault }
    }

    /// The service did not mention the entry, so it may have been carried out. Another try might do
    /// it twice.
    pub fn unconfirmed() -> Self {
        Self { code: "Unconfirmed".to_owned(), sender_fault: true }
    }
}

/// A whole call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}")]
#[non_exhaustive]
pub struct CallError {
    /// The service's code, or one of ours for a call without a response.
    pub code: String,
    /// Its meaning.
    pub kind: CallErrorKind,
}

/// The meaning of a failed call for its entries. Each kind decides which entries may be sent again,
/// so a fifth would be a new major version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallErrorKind {
    /// The service refused the call, and will refuse it again: configuration, permission,
    /// encryption.
    Refused,
    /// The service refused the call as a whole, perhaps because of one entry. Each entry alone may
    /// pass.
    Malformed,
    /// The service refused the call for now: throttled, or an error on its side that it names.
    Unavailable,
    /// There is no response, so the service may or may not have carried the call out.
    Ambiguous,
}

impl CallError {
    /// The service responded with this HTTP status and this code.
    pub fn responded(status: u16, code: &str) -> Self {
        let code = short(code);
        let is_of_gateway = matches!(status, 502 | 504);
        let kind = if !is_of_gateway && (status == 429 || is_one_of(UNAVAILABLE, code)) {
            CallErrorKind::Unavailable
        } else if status >= 500 {
            // A gateway or a proxy responded, and the service may nevertheless have made the call.
            CallErrorKind::Ambiguous
        } else if is_one_of(MALFORMED, code) {
            CallErrorKind::Malformed
        } else {
            CallErrorKind::Refused
        };
        Self { code: shown(code), kind }
    }

    /// There is no response, for the reason that `code` names.
    pub fn ambiguous(code: &str) -> Self {
        Self::new(code, CallErrorKind::Ambiguous)
    }

    /// A failure with this code and this meaning.
    pub fn new(code: &str, kind: CallErrorKind) -> Self {
        Self { code: code.to_owned(), kind }
    }

    /// There is no response in time.
    pub fn timed_out() -> Self {
        Self::ambiguous("TimedOut")
    }
}

/// Codes that mean "later". Source: SQS API reference, `SendMessageBatch` and common errors; the
/// SDK's list of throttling codes. After an expired token, the next request has new credentials, if
/// there are any.
const UNAVAILABLE: &str = "\
     BandwidthLimitExceeded EC2ThrottledException ExpiredToken ExpiredTokenException InternalError \
     InternalFailure KMS.ThrottlingException KmsThrottled LimitExceededException \
     PriorRequestNotComplete ProvisionedThroughputExceededException RequestLimitExceeded \
     RequestThrottled RequestThrottledException ServiceUnavailable SlowDown ThrottledException \
     Throttling ThrottlingException TooManyRequestsException TransactionInProgressException";

/// Codes for which one entry may be the cause. Source: SQS API reference, `SendMessageBatch`.
const MALFORMED: &str = "\
     BatchEntryIdsNotDistinct BatchRequestTooLong InvalidBatchEntryId InvalidMessageContents \
     InvalidParameterValue MessageTooLong MissingParameter TooManyEntriesInBatchRequest";

fn is_one_of(codes: &str, code: &str) -> bool {
    codes.split(' ').any(|known| known == code)
}

/// The code of a refused send with this text, or [`MESSAGE_TOO_LONG`] if the text says so. Source: SQS's
/// response to a message over the `MaximumMessageSize` of its queue.
pub fn code_with_text<'a>(code: &'a str, text: Option<&str>) -> &'a str {
    let is_too_long = text.is_some_and(|text| text.contains("Message must be shorter than "));
    if is_too_long { MESSAGE_TOO_LONG } else { code }
}

/// SQS prefixes some codes for old clients: `AWS.SimpleQueueService.BatchRequestTooLong`. `KMS.`
/// stays, since a key refuses for other reasons than a queue. Source: SQS API reference, errors of
/// `SendMessage`.
fn short(code: &str) -> &str {
    let code = code.rsplit('#').next().unwrap_or(code);
    code.strip_prefix("AWS.SimpleQueueService.").unwrap_or(code)
}

/// The longest code that is kept; those of SQS have fewer characters. Another service at its
/// address may send anything, and codes are logged.
const MAX_CODE_LEN: usize = 100;

fn shown(code: &str) -> String {
    printable::start_of_line(short(code), MAX_CODE_LEN).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_short_and_printable() {
        let long = format!("AWS.SimpleQueueService.A\n\u{1b}[2J\u{202e}{}", "x".repeat(1_000));
        for code in [CallError::responded(400, &long).code, EntryError::responded(&long, true).code]
        {
            assert!(
                code.starts_with("A\u{FFFD}\u{FFFD}[2J\u{FFFD}x") && code.len() < 120,
                "{code}"
            );
        }
        assert_eq!(CallError::responded(400, "com.amazonaws.sqs#OverLimit").code, "OverLimit");
    }
}
