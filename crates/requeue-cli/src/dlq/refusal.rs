//! The reason for a failed call to SQS, in a sentence with the remedy.

use requeue::aws::NO_CREDENTIALS;
use requeue::queue::{CallError, CallErrorKind, QueueArn};

use super::sqs::Sqs;
use crate::{CREDENTIALS, Error};

impl Sqs {
    /// The error of a whole call.
    pub(crate) fn refusal(&self, operation: &str, queue: &QueueArn, error: &CallError) -> Error {
        let endpoint = &self.endpoint;
        let code = error.code.as_str();
        let name = queue.name();
        let fails = match error.kind {
            CallErrorKind::Refused | CallErrorKind::Malformed => {
                format!("SQS refuses {operation} on {name}")
            }
            // The response may come from a gateway, and not from SQS.
            CallErrorKind::Unavailable | CallErrorKind::Ambiguous => {
                format!("{operation} on {name} failed")
            }
        };
        match code {
        "AccessDenied" | "AccessDeniedException" => format!(
            "SQS refuses {operation} on {name} ({code}); this identity needs the permission sqs:{} \
             on {queue}",
            operation.strip_suffix("Batch").unwrap_or(operation),
        ),
        "KmsAccessDenied" | "KMS.AccessDeniedException" => format!(
            "SQS refuses {operation} on {name} ({code}); this identity needs kms:Decrypt and \
             kms:GenerateDataKey on the queue's key"
        ),
        "NonExistentQueue" | "QueueDoesNotExist" => {
            format!("there is no queue {queue} at {endpoint}; check the URL, the account and the \
                     region")
        }
        // Responses of emulators that implement only a part of SQS.
        "InvalidAction" | "InternalFailure" | "NotImplemented" | "Unknown" => {
            let remedy = match operation {
                "StartMessageMoveTask" | "ListMessageMoveTasks" => "; --copy works without it",
                "ListDeadLetterSourceQueues" => "; --copy with --to works without it",
                _ => "",
            };
            format!("{fails} ({code}){remedy}")
        }
        "UnsupportedOperation" if operation == "StartMessageMoveTask" => {
            format!(
                "a move task of {name} is already running; follow it to its end with --follow"
            )
        }
        "NoConnection" | "TimedOut" => {
            format!(
                "SQS does not respond to {operation} at {endpoint} ({code}); check the network, \
                 the region and AWS_ENDPOINT_URL_SQS"
            )
        }
        NO_CREDENTIALS => format!("there are no {CREDENTIALS}"),
        _ => format!("{fails}: {code}"),
    }
    .into()
    }
}
