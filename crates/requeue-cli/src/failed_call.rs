//! The error of a request to AWS: one sentence with the remedy, the same for all commands.

use std::fmt;
use std::io;
use std::iter::successors;

use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use requeue::aws::{self, CONNECTION_LOST, NO_CREDENTIALS, UNREADABLE, is_unconnected};
use requeue::printable;
use requeue::queue::{CallError, CallErrorKind};

use crate::environment;
use crate::local_sqs::{SQS_PORT, beside};

mod credentials;

pub(crate) use credentials::credentials_refused;
use credentials::{
    OF_LOGIN, PROCESS_FAILED, SIGNED_OUT, WRONG_KEY, credentials_code, log_in, without_credentials,
};

/// A code of this command line: the endpoint refused the connection.
const CONNECTION_REFUSED: &str = "ConnectionRefused";

/// The beginning of the code of a response without one, as of a proxy, before its status.
const NO_CODE: &str = "HTTP ";
/// A code of this command line: the list is longer than it reads.
pub(crate) const TOO_MANY_PAGES: &str = "TooManyPages";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    NoCredentials,
    ExpiredCredentials,
    UnknownCredentials,
    Denied,
    KeyDenied,
    NoQueue,
    /// Something else than a queue does not exist.
    NotFound,
    NoResponse,
    NotOfAws,
    Throttled,
    NotImplemented,
    TooManyPages,
    Other,
}

/// Sources: the SDKs' lists of errors of expired credentials and of clock skew; IAM user guide, "Troubleshoot"; SQS API
/// reference, common errors. The last ones are of an emulator that lacks the operation.
const CODES: [(Cause, &str); 7] = [
    (Cause::ExpiredCredentials, "ExpiredToken ExpiredTokenException TokenRefreshRequired"),
    (
        Cause::UnknownCredentials,
        "AuthFailure IncompleteSignature InvalidAccessKeyId InvalidClientTokenId InvalidSecurity \
         InvalidSignatureException MissingAuthenticationToken MissingAuthenticationTokenException \
         RequestExpired RequestInTheFuture RequestTimeTooSkewed SignatureDoesNotMatch \
         UnrecognizedClientException",
    ),
    (
        Cause::Denied,
        "AccessDenied AccessDeniedException AuthorizationError NotAuthorized UnauthorizedOperation",
    ),
    (Cause::KeyDenied, "KmsAccessDenied KMS.AccessDeniedException"),
    (Cause::NoQueue, "NonExistentQueue QueueDoesNotExist"),
    (Cause::NotFound, "NoSuchEntity NotFoundException ParameterNotFound ResourceNotFoundException"),
    (Cause::NotImplemented, "InvalidAction NotImplemented UnknownOperationException"),
];

impl Cause {
    pub(crate) fn of(code: &str) -> Self {
        let known = CODES.iter().find(|(_, codes)| codes.split(' ').any(|known| known == code));
        let throttled = ["Throttl", "TooManyRequests", "RequestLimit", "SlowDown"];
        match code {
            _ if let Some((cause, _)) = known => *cause,
            NO_CREDENTIALS | SIGNED_OUT | PROCESS_FAILED | OF_LOGIN | WRONG_KEY => {
                Self::NoCredentials
            }
            CONNECTION_REFUSED | CONNECTION_LOST | "TimedOut" => Self::NoResponse,
            _ if is_unconnected(code) => Self::NoResponse,
            TOO_MANY_PAGES => Self::TooManyPages,
            UNREADABLE => Self::NotOfAws,
            _ if code.starts_with(NO_CODE) => Self::NotOfAws,
            _ if throttled.iter().any(|word| code.contains(word)) => Self::Throttled,
            _ => Self::Other,
        }
    }

    /// The remedy for such credentials; `log_in` is the one that gives others.
    pub(crate) fn remedy_of_credentials(self, log_in: &str) -> String {
        let is_unknown = self == Self::UnknownCredentials;
        let first = "check this machine's clock, the region and the account, or ";
        format!("{}{log_in}", if is_unknown { first } else { "" })
    }

    /// The remedy for a call that only reads, and that needs this permission.
    pub(crate) fn remedy(self, permission: &str, resource: &str) -> String {
        match self {
            Self::NoCredentials | Self::ExpiredCredentials | Self::UnknownCredentials => {
                self.remedy_of_credentials(&log_in())
            }
            Self::NoResponse | Self::NotOfAws => format!(
                "check the network, the region and AWS_ENDPOINT_URL, and run it again{}",
                environment::unused_route()
            ),
            Self::Throttled => "run it again in a minute".to_owned(),
            Self::NotImplemented => {
                "an emulator has only a part of AWS: run it against AWS".to_owned()
            }
            Self::TooManyPages => {
                "look at that list by hand: this command reads 50 pages of it".to_owned()
            }
            Self::NoQueue | Self::NotFound => {
                "check its name, the region and the account of the credentials".to_owned()
            }
            Self::Denied | Self::KeyDenied | Self::Other => {
                format!("run it with the permission {permission} on {resource}")
            }
        }
    }
}

const WITHOUT_TASK: &str = "; --copy works without it";

pub(crate) fn is_denied(code: &str) -> bool {
    Cause::of(code) == Cause::Denied
}

pub(crate) fn is_of_credentials(code: &str) -> bool {
    matches!(
        Cause::of(code),
        Cause::NoCredentials | Cause::ExpiredCredentials | Cause::UnknownCredentials
    )
}

/// Whether a request that failed may have taken effect: it was sent, and its effect is unknown.
pub(crate) fn may_be_carried_out(error: &CallError) -> bool {
    let code = error.code.as_str();
    error.kind == CallErrorKind::Ambiguous && !is_unconnected(code) && !is_of_credentials(code)
}

pub(crate) struct FailedCall<'a> {
    /// As in `SQS` or `CloudWatch Logs`.
    pub(crate) service: &'a str,
    pub(crate) operation: &'a str,
    /// The ARN, URL or name of the queue or function.
    pub(crate) resource: &'a str,
    pub(crate) endpoint: &'a str,
    pub(crate) error: &'a CallError,
}

impl fmt::Display for FailedCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, operation, resource, endpoint, error } = self;
        let code = error.code.as_str();
        let name = resource.rsplit([':', '/']).next().unwrap_or(resource);
        let cause = Cause::of(code);
        match cause {
            Cause::NoCredentials => f.write_str(&without_credentials(code)),
            Cause::ExpiredCredentials => {
                write!(f, "the AWS credentials have expired ({code}); {}", log_in())
            }
            Cause::UnknownCredentials => write!(
                f,
                "{service} at {endpoint} does not accept the AWS credentials ({code}); {}",
                cause.remedy(operation, resource)
            ),
            Cause::Denied => write!(
                f,
                "{service} refuses {operation} on {name} ({code}); this identity needs the permission \
                 {}:{} on {resource}{}",
                service.rsplit(' ').next().unwrap_or_default().to_ascii_lowercase(),
                operation.strip_suffix("Batch").unwrap_or(operation),
                if *operation == "StartMessageMoveTask" { WITHOUT_TASK } else { "" },
            ),
            Cause::KeyDenied => write!(
                f,
                "{service} refuses {operation} on {name} ({code}); this identity needs kms:Decrypt and \
                 kms:GenerateDataKey on the queue's key"
            ),
            Cause::NoQueue => write!(
                f,
                "there is no queue {resource} at {endpoint}; check its name or URL, the region \
                 (--region, AWS_REGION) and the account of the credentials"
            ),
            Cause::NoResponse => self.no_response(f),
            cause => self.other(f, name, cause),
        }?;
        // It may have been meant for an SQS on this machine.
        let is_elsewhere = matches!(cause, Cause::Denied | Cause::NoQueue | Cause::NoResponse)
            || is_of_credentials(code);
        let is_elsewhere = is_elsewhere && *service == "SQS" && endpoint.contains(".amazonaws.com");
        let hint = is_elsewhere.then(|| beside(SQS_PORT)).flatten();
        f.write_str(&hint.unwrap_or_default())
    }
}

impl<'a> FailedCall<'a> {
    pub(crate) fn of_sqs(
        operation: &'a str,
        resource: &'a str,
        endpoint: &'a str,
        error: &'a CallError,
    ) -> Self {
        Self { service: "SQS", operation, resource, endpoint, error }
    }

    fn no_response(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, operation, endpoint, error, .. } = self;
        let code = error.code.as_str();
        let set = environment::endpoint_variable(service);
        if let Some((variable, value)) = &set
            && !["http://", "https://"].iter().any(|scheme| value.starts_with(scheme))
        {
            return write!(
                f,
                "{variable} is `{}`, and an endpoint is a URL; begin it with http:// or https://",
                printable::url(value)
            );
        }
        let fails = match code {
            CONNECTION_REFUSED => format!("{endpoint} refuses the connection"),
            _ if is_unconnected(code) => format!("there is no connection to {endpoint} ({code})"),
            CONNECTION_LOST => {
                format!("the connection to {endpoint} broke during {operation} ({code})")
            }
            _ => format!("{service} at {endpoint} does not respond to {operation} ({code})"),
        };
        match set {
            Some((variable, _)) => write!(
                f,
                "{fails}; {variable} sets this endpoint: start the server there, or correct or unset \
                 {variable}"
            ),
            None => write!(
                f,
                "{fails}; check the network and the region, or set {} to the URL of another endpoint{}",
                environment::endpoint_variable_of(service),
                environment::unused_route()
            ),
        }
    }

    pub(crate) fn is_about_the_request(&self) -> bool {
        let cause = Cause::of(&self.error.code);
        let is_other = matches!(
            cause,
            Cause::NotOfAws
                | Cause::NotFound
                | Cause::NotImplemented
                | Cause::Throttled
                | Cause::Other
        );
        is_other && matches!(self.error.kind, CallErrorKind::Refused | CallErrorKind::Malformed)
    }

    fn other(&self, f: &mut fmt::Formatter<'_>, name: &str, cause: Cause) -> fmt::Result {
        let Self { service, operation, endpoint, error, .. } = self;
        let code = error.code.as_str();
        // Responses of emulators that implement only a part of SQS.
        let is_partial = ["InvalidAction", "InternalFailure", "NotImplemented"].contains(&code)
            || code.starts_with(NO_CODE);
        let remedy = match *operation {
            "StartMessageMoveTask" | "ListMessageMoveTasks" if is_partial => WITHOUT_TASK,
            "ListDeadLetterSourceQueues" if is_partial => {
                "; a redrive with --copy and --to works without it"
            }
            _ => "",
        };
        if cause == Cause::NotOfAws && remedy.is_empty() {
            return self.not_of_aws(f);
        }
        match error.kind {
            CallErrorKind::Unavailable if cause == Cause::Throttled => write!(
                f,
                "{service} throttles {operation} on {name} ({code}); try again in a minute"
            ),
            // The response may come from a gateway, and not from SQS.
            CallErrorKind::Unavailable | CallErrorKind::Ambiguous if remedy.is_empty() => write!(
                f,
                "{service} has trouble with {operation} on {name} ({code}); try again in a minute"
            ),
            CallErrorKind::Unavailable | CallErrorKind::Ambiguous => {
                write!(f, "{operation} on {name} failed ({code}){remedy}")
            }
            CallErrorKind::Refused | CallErrorKind::Malformed
                if cause == Cause::NotImplemented && remedy.is_empty() =>
            {
                write!(f, "{endpoint} does not implement {operation} of {service} ({code})")
            }
            CallErrorKind::Refused | CallErrorKind::Malformed => {
                write!(f, "{service} refuses {operation} on {name} ({code}){remedy}")
            }
        }
    }

    fn not_of_aws(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, operation, endpoint, error, .. } = self;
        let (code, seek) = (&error.code, "or try again in a minute");
        write!(f, "{endpoint} does not respond to {operation} as {service} does ({code}); ")?;
        match environment::endpoint_variable(service) {
            Some((variable, _)) => {
                write!(f, "{variable} sets this endpoint: correct or unset it, {seek}")
            }
            None => write!(f, "look for a proxy between this machine and {service}, {seek}"),
        }
    }
}

/// The code and the kind of an error of the SDK. Its own text may quote a whole response.
pub(crate) fn call_error<E>(error: &SdkError<E>) -> CallError
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match error {
        SdkError::ServiceError(response) => {
            let status = response.raw().status().as_u16();
            match response.err().code() {
                Some(code) => CallError::responded(status, code),
                None => CallError::responded(status, &format!("{NO_CODE}{status}")),
            }
        }
        SdkError::TimeoutError(_) => CallError::timed_out(),
        other if aws::lacks_credentials(other) => CallError::ambiguous(credentials_code(other)),
        SdkError::DispatchFailure(_) if is_refused(error) => {
            CallError::ambiguous(CONNECTION_REFUSED)
        }
        other => CallError::ambiguous(aws::code_without_error(other)),
    }
}

fn is_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use requeue::aws::NO_CONNECTION;

    use super::*;

    fn told(status: u16, code: &str, operation: &str) -> String {
        let error = if status == 0 {
            CallError::ambiguous(code)
        } else {
            CallError::responded(status, code)
        };
        FailedCall {
            service: "SQS",
            operation,
            resource: "arn:aws:sqs:eu-west-1:123456789012:orders",
            endpoint: "https://sqs.eu-west-1.amazonaws.com",
            error: &error,
        }
        .to_string()
    }

    #[test]
    fn each_cause_names_its_remedy() {
        let send = "SendMessageBatch";
        for (status, code, operation, expected) in [
            (403, "ExpiredToken", send, "credentials have expired (ExpiredToken); log in again"),
            (0, NO_CREDENTIALS, send, "there are no AWS credentials in the environment"),
            (403, "InvalidClientTokenId", send, "does not accept the AWS credentials ("),
            (403, "AccessDenied", send, "the permission sqs:SendMessage on arn:aws:sqs:eu-west-1"),
            (400, "KmsAccessDenied", send, "needs kms:Decrypt and kms:GenerateDataKey"),
            (
                400,
                "AWS.SimpleQueueService.NonExistentQueue",
                send,
                "no queue arn:aws:sqs:eu-west-1:123456789012:orders at https://sqs.eu-west-1.amazonaws.com; check",
            ),
            (503, "ServiceUnavailable", send, "SQS has trouble with SendMessageBatch on orders"),
            (
                502,
                "HTTP 502",
                send,
                "does not respond to SendMessageBatch as SQS does (HTTP 502); ",
            ),
            (0, UNREADABLE, send, "to SendMessageBatch as SQS does (UnreadableResponse); "),
            (500, "HTTP 500", "StartMessageMoveTask", "; --copy works without it"),
            (400, "RequestThrottled", send, "SQS throttles SendMessageBatch on orders"),
            (0, CONNECTION_REFUSED, send, "amazonaws.com refuses the connection; "),
            (0, NO_CONNECTION, send, "there is no connection to https://sqs.eu-west-1"),
            (
                0,
                "NoConnection: certificate not trusted",
                send,
                "amazonaws.com (NoConnection: certificate not trusted); check the network",
            ),
            (
                0,
                CONNECTION_LOST,
                send,
                "amazonaws.com broke during SendMessageBatch (ConnectionLost)",
            ),
            (0, "TimedOut", send, "does not respond to SendMessageBatch (TimedOut)"),
            (400, "InvalidMessageContents", send, "SQS refuses SendMessageBatch on orders ("),
            (400, "InvalidAction", "StartMessageMoveTask", "; --copy works without it"),
            (500, "InternalFailure", "ListMessageMoveTasks", "; --copy works without it"),
        ] {
            let told = told(status, code, operation);
            assert!(told.contains(expected), "{status} {code}: {told}");
        }
    }

    #[test]
    fn only_a_refused_request_shows_the_words_of_sqs() {
        for (code, expected) in
            [("InvalidMessageContents", true), ("AccessDenied", false), ("ExpiredToken", false)]
        {
            let error = CallError::responded(400, code);
            let (operation, resource, endpoint) = ("SendMessage", "orders", "http://localhost");
            let failed =
                FailedCall { service: "SQS", operation, resource, endpoint, error: &error };
            assert_eq!(failed.is_about_the_request(), expected, "{code}");
        }
    }
}
