//! Classifies errors of the AWS SDK, of any service: by their code, or by the error of the
//! connector. It names no service's own types.

use std::error::Error;

use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::error::ErrorMetadata;

use super::status::fold;
use super::{chain, code, io};
use crate::failure::{Evidence, Failure, FailureClass};

/// Codes by class. The throttling codes and the first two transient ones are those of the SDK's own
/// retry classifier. After an expired token or request, the SDK fetches new credentials or corrects its
/// clock before the next attempt.
const CODES: [((FailureClass, &str), &str); 6] = rows! {
    (FailureClass::RateLimit, "throttled") =>
        "Throttling ThrottlingException ThrottledException RequestThrottledException \
        RequestThrottled KmsThrottled TooManyRequestsException \
        ProvisionedThroughputExceededException TransactionInProgressException \
        RequestLimitExceeded BandwidthLimitExceeded LimitExceededException SlowDown \
        PriorRequestNotComplete EC2ThrottledException OverLimit";
    (FailureClass::Quota, "quota") =>
        "ServiceQuotaExceededException ServiceQuotaExceeded SendingPausedException";
    (FailureClass::Temporary, "transient") => OF_SERVICE;
    (FailureClass::Temporary, "transient") =>
        "InternalError InternalFailure InternalServerError InternalServerException \
        InternalServiceError ServiceException ExpiredToken ExpiredTokenException RequestExpired \
        RequestTimeTooSkewed ModelErrorException ResourceInUseException \
        TransactionCanceledException";
    (FailureClass::NonRetryable, "access denied") =>
        "AccessDenied AccessDeniedException AuthFailure InvalidClientTokenId InvalidSecurity \
        KmsAccessDenied NotAuthorized NotAuthorizedException SignatureDoesNotMatch \
        UnauthorizedOperation UnrecognizedClientException";
    (FailureClass::NonRetryable, "refused") =>
        "ConditionalCheckFailedException InvalidParameterException InvalidParameterValue \
        InvalidParameterValueException InvalidRequestException NoSuchBucket NoSuchKey \
        NonExistentQueue QueueDoesNotExist RequestEntityTooLargeException EndpointDisabled \
        MessageRejected ResourceNotFoundException UnsupportedOperation ValidationError \
        ValidationException";
};

/// Codes that mean that the service does not work, whatever the request.
const OF_SERVICE: &str = "\
    RequestTimeout RequestTimeoutException ServiceUnavailable ServiceUnavailableException \
    ModelNotReadyException";

/// The class of a code by the table, else by a part of it. A protocol may put a text around it:
/// `com.amazon.coral.service#ThrottlingException:http://…`,
/// `AWS.SimpleQueueService.NonExistentQueue`.
pub(super) fn by_code(code: &str) -> Option<Failure> {
    by_table(code).or_else(|| {
        let code = code::bare(code);
        let (class, meaning) = code::by_part(code)?;
        let failure = Failure::new(class, Evidence::Typed, format_args!("{meaning}: {code}"));
        Some(if meaning == code::DOWN { failure.service_down() } else { failure })
    })
}

/// As [`by_code`], but no part of a code counts.
pub(super) fn by_table(code: &str) -> Option<Failure> {
    let code = code::bare(code);
    let letters = fold(code);
    // Some protocols add a suffix to the name of an error, and some leave it out.
    let is_it = |known: &str| {
        let suffix = letters.strip_prefix(&*fold(known));
        suffix.is_some_and(|suffix| matches!(suffix, "" | "exception" | "error"))
    };
    find(|known| known == code).or_else(|| find(is_it))
}

pub(super) fn codes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a str> {
    chain(error).filter_map(|level| level.downcast_ref::<ErrorMetadata>()?.code())
}

/// The class of the first code in the table that `is_it` picks.
pub(super) fn find(mut is_it: impl FnMut(&str) -> bool) -> Option<Failure> {
    CODES.iter().find_map(|((class, meaning), codes)| {
        let code = codes.split(' ').find(|code| is_it(code))?;
        let failure = Failure::new(*class, Evidence::Typed, format_args!("{meaning}: {code}"));
        Some(if *codes == OF_SERVICE { failure.service_down() } else { failure })
    })
}

/// Classifies a refusal by the clock, which differs after a freeze. Its code is that of a wrong secret.
pub(super) fn clock(message: &str) -> Option<Failure> {
    let differs = ["Signature expired", "Signature not yet current"];
    let failure = || Failure::new(FailureClass::Temporary, Evidence::Typed, "clock differs");
    differs.iter().any(|words| message.contains(words)).then(failure)
}

/// Classifies the generic error of the SDK, of codes that its model does not list.
pub(super) fn error_metadata(error: &(dyn Error + 'static)) -> Option<Failure> {
    let error = error.downcast_ref::<ErrorMetadata>()?;
    error.message().and_then(clock).or_else(|| by_code(error.code()?))
}

/// Classifies a call without a response, by the error of the SDK's connector.
pub(super) fn connector_error(error: &(dyn Error + 'static)) -> Option<Failure> {
    let connector = error.downcast_ref::<ConnectorError>()?;
    let temporary =
        |reason| Failure::new(FailureClass::Temporary, Evidence::Typed, reason).service_down();
    if connector.is_timeout() {
        Some(temporary("timed out"))
    } else if connector.is_io() {
        Some(chain(error).find_map(io::io_error).unwrap_or_else(|| temporary("connection failed")))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use aws_smithy_runtime_api::client::result::SdkError;

    use super::*;

    type Sdk = SdkError<ErrorMetadata, ()>;

    #[test]
    fn the_page_has_each_code() {
        for ((class, _), codes) in CODES {
            for code in codes.split(' ') {
                super::super::tests::assert_on_page(code, class);
            }
        }
        for (word, class) in super::super::tests::words_on_page("An error of the AWS SDK") {
            let is_there = |((of, _), codes): &((FailureClass, &str), &str)| {
                of.as_str() == class && codes.split(' ').any(|code| code == word)
            };
            assert!(CODES.iter().any(is_there), "the code has no {word} as {class}");
        }
    }

    fn with_code(code: &str) -> ErrorMetadata {
        ErrorMetadata::builder().code(code).message("secret words").build()
    }

    #[test]
    fn a_code_decides_whatever_is_wrapped_around_it() {
        for (code, class, reason) in [
            ("SlowDown", FailureClass::RateLimit, "throttled: SlowDown"),
            (
                "com.amazon.coral.service#ThrottlingException:http://internal",
                FailureClass::RateLimit,
                "throttled: ThrottlingException",
            ),
            (
                "AWS.SimpleQueueService.NonExistentQueue",
                FailureClass::NonRetryable,
                "refused: NonExistentQueue",
            ),
            (
                "ServiceQuotaExceededException",
                FailureClass::Quota,
                "quota: ServiceQuotaExceededException",
            ),
            ("RequestTimeout", FailureClass::Temporary, "transient: RequestTimeout"),
            (
                "AccessDeniedException",
                FailureClass::NonRetryable,
                "access denied: AccessDeniedException",
            ),
        ] {
            for failure in [Failure::aws(&with_code(code)), Failure::classified(&with_code(code))] {
                assert_eq!((failure.class(), failure.detail()), (class, reason), "{code}");
                assert_eq!(failure.evidence(), Evidence::Typed);
            }
        }
    }

    #[test]
    fn an_unknown_code_is_temporary_and_its_text_stays_out() {
        let failure = Failure::aws(&with_code("BrandNewException"));
        assert_eq!(
            (failure.class(), failure.evidence()),
            (FailureClass::Temporary, Evidence::Unrecognised)
        );
        assert!(!failure.detail().contains("secret"));
    }

    #[test]
    fn without_a_code_the_connector_is_asked() {
        let timeout = Sdk::dispatch_failure(ConnectorError::timeout("403".into()));
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let refused = Sdk::dispatch_failure(ConnectorError::io(refused.into()));
        let io = Sdk::dispatch_failure(ConnectorError::io("403".into()));
        for (error, reason) in
            [(timeout, "timed out"), (refused, "connection refused"), (io, "connection failed")]
        {
            let failure = Failure::aws(&error);
            assert_eq!(
                (failure.class(), failure.evidence(), failure.detail()),
                (FailureClass::Temporary, Evidence::Typed, reason)
            );
        }
        let service = Sdk::service_error(with_code("Throttling"), ());
        assert_eq!(Failure::classified(&service).class(), FailureClass::RateLimit);
    }
}
