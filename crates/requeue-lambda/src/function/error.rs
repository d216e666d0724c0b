//! The errors of the Invoke API: why there is no response of a function, and the words about it.

use std::time::Duration;

use super::FunctionName;

/// Why there is no response of a function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvokeError {
    /// No invocation began, and the same one can begin later.
    #[error("Lambda did not invoke the function: {code}")]
    Throttled {
        /// The error code.
        code: String,
        /// The time that Lambda asks to wait.
        retry_after: Option<Duration>,
    },
    /// No invocation began, and none can until somebody changes something.
    #[error("Lambda cannot invoke the function: {code}: {remedy}")]
    Refused {
        /// The error code.
        code: String,
        /// How to change that.
        remedy: String,
    },
    /// No invocation began: the event is larger than Lambda takes.
    #[error("the event is larger than Lambda takes")]
    TooLarge,
    /// No invocation began: Lambda does not take this event.
    #[error("Lambda does not take the event: {code}")]
    Rejected {
        /// The error code.
        code: String,
    },
    /// An invocation may have begun, and may still run.
    #[error("no response of the function: {code}")]
    Lost {
        /// The error code.
        code: String,
    },
}

#[derive(Clone, Copy)]
enum Meaning {
    Wait,
    Fix(&'static str),
    TooLarge,
    Rejected,
}

use Meaning::{Fix, Rejected, TooLarge, Wait};

macro_rules! meanings {
    ($($meaning:expr => $codes:literal;)+) => {
        /// The errors of `Invoke`, and those of every AWS service that concern the caller, by
        /// meaning. Source: Lambda API reference, `Invoke` and "Common errors", and the service's
        /// model in botocore 1.44.
        const MEANINGS: &[(Meaning, &str)] = &[$(($meaning, $codes)),+];
    };
}

meanings! {
    Wait =>
        "TooManyRequestsException ThrottlingException RequestThrottled EC2ThrottledException \
         EC2UnexpectedException ENILimitReachedException ENINotReadyException \
         SubnetIPAddressLimitReachedException CodeArtifactUserPendingException \
         ResourceNotReadyException ResourceConflictException ServiceQuotaExceededException \
         SnapStartNotReadyException SnapStartTimeoutException EFSMountConnectivityException \
         EFSMountTimeoutException S3FilesMountConnectivityException S3FilesMountTimeoutException";
    Fix("the role needs lambda:InvokeFunction on it") => "AccessDeniedException AccessDenied";
    Fix("no such function, version or alias; check the name and the region") =>
        "ResourceNotFoundException";
    Fix("publish a version of it") => "NoPublishedVersionException";
    Fix("choose a runtime that Lambda supports") =>
        "InvalidRuntimeException RuntimeAliasDeletedException RuntimeVersionDeletedException";
    Fix("deploy the function again") =>
        "InvalidZipFileException CodeArtifactUserDeletedException CodeArtifactUserFailedException";
    Fix("the function's KMS key must be enabled, and its role needs kms:Decrypt on it") =>
        "KMSAccessDeniedException KMSDisabledException KMSInvalidStateException \
         KMSNotFoundException";
    Fix("mend the VPC configuration of the function: its subnets and security groups") =>
        "InvalidSecurityGroupIDException InvalidSubnetIDException";
    Fix("its role needs the permissions of AWSLambdaVPCAccessExecutionRole") =>
        "EC2AccessDeniedException";
    Fix("mend the function's file system, its mount targets and its permissions") =>
        "EFSIOException EFSMountFailureException S3FilesMountFailureException";
    Fix("publish a version whose initialization and afterRestore hook succeed") =>
        "SnapStartException SnapStartRegenerationFailureException";
    Fix("set the property RecursiveLoop of the function to Allow") =>
        "RecursiveInvocationException";
    Fix("choose a function that can be invoked synchronously") => "ModeNotSupportedException";
    Fix("check REQUEUE_TARGET_FUNCTION") => "InvalidParameterValueException";
    Rejected =>
        "DurableExecutionAlreadyStartedException InvalidRequestContentException \
         UnsupportedMediaTypeException";
    TooLarge => "RequestTooLargeException SerializedRequestEntityTooLargeException";
    Fix("AWS does not accept the credentials; check the role and the clock") =>
        "ExpiredTokenException InvalidSignatureException MissingAuthenticationTokenException \
         UnrecognizedClientException IncompleteSignature";
}

impl InvokeError {
    /// The meaning of an error response of the API. Its message is about the state of a function
    /// and is not shown, since it may quote the request.
    pub(super) fn of_response(
        function: &FunctionName,
        status: u16,
        code: Option<&str>,
        message: &str,
        retry_after: Option<Duration>,
    ) -> Self {
        let is_code = |code: &&str| {
            (1..=100).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        let known = |codes: &str| codes.split(' ').any(|known| Some(known) == code);
        let meaning = MEANINGS.iter().find(|(_, codes)| known(codes)).map(|(meaning, _)| *meaning);
        // An inactive function becomes active again. The message may also have the function's name.
        let is_failed =
            code == Some("ResourceConflictException") && message.contains("state: Failed");
        let is_invalid = code == Some("InvalidParameterValueException");
        let meaning = match () {
            () if is_failed => {
                Some(Fix("its state is Failed; look at StateReason and deploy it again"))
            }
            () if is_invalid => lacks_parameter(message).or(meaning),
            () => meaning.or_else(|| by_status(status)),
        };
        let code = code.filter(is_code).map_or_else(|| format!("HTTP {status}"), str::to_owned);
        match meaning {
            Some(Wait) => Self::Throttled { code, retry_after },
            Some(Fix(remedy)) => Self::Refused { code, remedy: format!("{function}: {remedy}") },
            Some(TooLarge) => Self::TooLarge,
            Some(Rejected) => Self::Rejected { code },
            None => Self::Lost { code },
        }
    }
}

/// `None` if an invocation may have begun.
fn by_status(status: u16) -> Option<Meaning> {
    match status {
        401 | 403 => Some(Fix("it may not be invoked by this role")),
        404 | 410 => Some(Fix("no such function; check the name, the region and the endpoint")),
        402 | 409 | 429 => Some(Wait),
        // A proxy may have waited for an invocation.
        408 => None,
        413 => Some(TooLarge),
        400..500 => Some(Rejected),
        _ => None,
    }
}

/// A function that Lambda does not invoke in this way. Source: Lambda developer guide, "Tenant
/// isolation" and "Invoking durable functions".
fn lacks_parameter(message: &str) -> Option<Meaning> {
    let message = message.to_lowercase();
    let words = || message.split(|c: char| !c.is_alphanumeric() && !":-_".contains(c));
    let says = |those: &[&str]| words().any(|word| those.contains(&word));
    if says(&["tenant", "tenancy"]) {
        Some(Fix("Requeue names no tenant: choose a function without TenancyConfig"))
    } else if says(&["unqualified", "qualified", "qualifier"]) {
        Some(Fix("a durable function needs a version or an alias, as in NAME:live"))
    } else if says(&["durable"]) {
        Some(Fix("the ExecutionTimeout of a durable function must be 900 s at most"))
    } else {
        None
    }
}
