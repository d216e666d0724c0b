//! AWS by code, whatever the status; Azure, Microsoft Graph and Cloudflare.

use super::*;

#[test]
fn aws_services_that_speak_json_name_a_code() {
    const DYNAMO: &str = "DynamoDB, Error handling";
    const COMMON: &str = "AWS Common Errors";
    const KMS: &str = "AWS KMS, Throttling requests";
    const LAMBDA: &str = "Lambda API Reference, Invoke";
    const BEDROCK: &str = "Bedrock API Reference, InvokeModel";
    const SQS: &str = "SQS, Common Error Types";
    for (source, status, code, class) in [
        (
            DYNAMO,
            400,
            "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
            RateLimit,
        ),
        (DYNAMO, 400, "com.amazonaws.dynamodb.v20120810#ThrottlingException", RateLimit),
        (DYNAMO, 400, "com.amazonaws.dynamodb.v20120810#RequestLimitExceeded", RateLimit),
        (DYNAMO, 400, "com.amazonaws.dynamodb.v20120810#TransactionInProgressException", RateLimit),
        (
            DYNAMO,
            400,
            "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",
            NonRetryable,
        ),
        (DYNAMO, 400, "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException", NonRetryable),
        (DYNAMO, 400, "com.amazon.coral.validate#ValidationException", NonRetryable),
        (DYNAMO, 500, "com.amazonaws.dynamodb.v20120810#InternalServerError", Temporary),
        (COMMON, 400, "com.amazon.coral.service#UnrecognizedClientException", NonRetryable),
        (COMMON, 400, "com.amazon.coral.service#ExpiredTokenException", Temporary),
        (COMMON, 400, "com.amazon.coral.service#AccessDeniedException", NonRetryable),
        (COMMON, 400, "com.amazon.coral.service#SomethingNew", NonRetryable),
        (COMMON, 503, "com.amazon.coral.service#SomethingNew", Temporary),
        (KMS, 400, "ThrottlingException", RateLimit),
        (SQS, 400, "com.amazonaws.sqs#QueueDoesNotExist", NonRetryable),
        (SQS, 403, "com.amazonaws.sqs#RequestThrottled", RateLimit),
        (SQS, 400, "com.amazonaws.sqs#KmsThrottled", RateLimit),
        (SQS, 400, "com.amazonaws.sqs#KmsAccessDenied", NonRetryable),
        (LAMBDA, 429, "TooManyRequestsException", RateLimit),
        (LAMBDA, 500, "ServiceException", Temporary),
        (LAMBDA, 413, "RequestEntityTooLargeException", NonRetryable),
        (BEDROCK, 429, "ModelNotReadyException", Temporary),
        (BEDROCK, 429, "ThrottlingException", RateLimit),
        (BEDROCK, 400, "ServiceQuotaExceededException", Quota),
    ] {
        // In the body, or in a header with the place where it is described.
        let body = format!(r#"{{"__type":"{code}","message":"403 Forbidden: throttled"}}"#);
        let header = format!("{code}:http://internal.amazon.com/coral/");
        assert_told(&[
            (source, status, &[], &body, class, None),
            (source, status, &[("x-amzn-ErrorType", &header)], "", class, None),
        ]);
    }
}

#[test]
fn what_stands_before_a_service_of_aws_answers_in_its_own_way() {
    const GATEWAY: &str = "API Gateway, Gateway response types";
    const BALANCER: &str = "Elastic Load Balancing, Troubleshoot your Application Load Balancers";
    const S3: &str = "Amazon S3, Error responses";
    const SLOW: &str =
        "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>";
    let throttled = &[("x-amzn-ErrorType", "TooManyRequestsException"), ("Retry-After", "1")];
    let used_up = &[("x-amzn-ErrorType", "LimitExceededException")];
    assert_told(&[
        (GATEWAY, 429, throttled, r#"{"message":"Too Many Requests"}"#, RateLimit, Some(1_000)),
        (GATEWAY, 429, used_up, r#"{"message":"Limit Exceeded"}"#, RateLimit, None),
        (
            GATEWAY,
            403,
            &[("x-amzn-ErrorType", "ForbiddenException")],
            r#"{"message":"Forbidden"}"#,
            NonRetryable,
            None,
        ),
        (GATEWAY, 504, &[], r#"{"message":"Endpoint request timed out"}"#, Temporary, None),
        (GATEWAY, 502, &[], r#"{"message":"Internal server error"}"#, Temporary, None),
        (BALANCER, 460, &[], "", NonRetryable, None),
        (
            BALANCER,
            503,
            &[("Server", "awselb/2.0")],
            "<h1>503 Service Temporarily Unavailable</h1>",
            Temporary,
            None,
        ),
        (BALANCER, 561, &[], "", Temporary, None),
        (S3, 503, &[], SLOW, RateLimit, None),
        (S3, 404, &[], "<Error><Code>NoSuchKey</Code></Error>", NonRetryable, None),
        (
            "AWS SDKs, Retry behavior",
            503,
            &[("x-amz-retry-after", "1500")],
            "",
            Temporary,
            Some(1_500),
        ),
    ]);
}

#[test]
fn microsoft_and_cloudflare_name_their_delays() {
    const ARM: &str = "Azure Resource Manager, Throttling requests";
    const CONFLICT: &str = "Azure, Resolve errors: AnotherOperationInProgress";
    const COSMOS: &str = "Azure Cosmos DB, HTTP status codes";
    const STORAGE: &str = "Azure Storage, Common REST API error codes";
    const GRAPH: &str = "Microsoft Graph, Throttling guidance";
    const CLOUDFLARE: &str = "Cloudflare, 5xx errors";
    let error = |code: &str| {
        format!(
            r#"{{"error":{{"code":"{code}","message":"Another operation is in progress, quota exceeded"}}}}"#
        )
    };
    let reset = &[("ratelimit-remaining", "0"), ("ratelimit-reset", "1700000060")];
    assert_told(&[
        (ARM, 429, &[("Retry-After", "17")], &error("TooManyRequests"), RateLimit, Some(17_000)),
        (CONFLICT, 409, &[], &error("AnotherOperationInProgress"), Temporary, None),
        (CONFLICT, 409, &[], &error("RetryableError"), Temporary, None),
        (CONFLICT, 409, &[], &error("Conflict"), NonRetryable, None),
        (
            COSMOS,
            429,
            &[("x-ms-retry-after-ms", "1500")],
            r#"{"code":"429"}"#,
            RateLimit,
            Some(1_500),
        ),
        (COSMOS, 409, &[], r#"{"code":"Conflict"}"#, NonRetryable, None),
        (COSMOS, 412, &[], r#"{"code":"PreconditionFailed"}"#, NonRetryable, None),
        (
            STORAGE,
            503,
            &[("x-ms-error-code", "ServerBusy")],
            "<Error><Code>ServerBusy</Code></Error>",
            Temporary,
            None,
        ),
        (STORAGE, 500, &[("x-ms-error-code", "OperationTimedOut")], "", Temporary, None),
        (GRAPH, 429, &[("Retry-After", "10")], &error("TooManyRequests"), RateLimit, Some(10_000)),
        (
            GRAPH,
            503,
            &[("Retry-After", "5")],
            &error("serviceNotAvailable"),
            Temporary,
            Some(5_000),
        ),
        (GRAPH, 509, &[], &error("bandwidthLimitExceeded"), RateLimit, None),
        (GRAPH, 403, &[], &error("accessDenied"), NonRetryable, None),
        (
            "Cloudflare, Rate limits of the API",
            429,
            &[("retry-after", "240")],
            r#"{"success":false}"#,
            RateLimit,
            Some(240_000),
        ),
        (CLOUDFLARE, 520, &[], "error code: 520", Temporary, None),
        (CLOUDFLARE, 522, &[], "error code: 522", Temporary, None),
        (CLOUDFLARE, 530, &[], "error code: 1016", Temporary, None),
        (
            "DigitalOcean API, Rate limit",
            429,
            reset,
            r#"{"id":"too_many_requests"}"#,
            RateLimit,
            Some(60_000),
        ),
    ]);
}

#[test]
#[rustfmt::skip]
fn a_lock_a_lease_and_a_pending_operation_pass() {
    assert_told(&[
        ("Azure Blob Storage, Error codes", 409, &[("x-ms-error-code", "LeaseAlreadyPresent")], "<Error><Code>LeaseAlreadyPresent</Code></Error>", Temporary, None),
        ("Azure Blob Storage, Error codes", 409, &[("x-ms-error-code", "LeaseIsBreakingAndCannotBeAcquired")], "<Error><Code>LeaseIsBreakingAndCannotBeAcquired</Code></Error>", Temporary, None),
        ("Azure Blob Storage, Error codes", 409, &[("x-ms-error-code", "PendingCopyOperation")], "", Temporary, None),
        ("Azure Blob Storage, Error codes", 412, &[("x-ms-error-code", "LeaseIdMissing")], "", Temporary, None),
        ("Azure Files, Error codes", 409, &[("x-ms-error-code", "SharingViolation")], "", Temporary, None),
        ("Azure Files, Error codes", 409, &[("x-ms-error-code", "FileLockConflict")], "", Temporary, None),
        ("Azure, Resolve allocation failures", 409, &[], r#"{"error": {"code": "AllocationFailed", "message": "Allocation failed. We do not have sufficient capacity"}}"#, Temporary, None),
        ("Azure, Resolve errors for resource quotas", 409, &[], r#"{"error": {"code": "OperationNotAllowed", "message": "Operation could not be completed as it results in exceeding approved Total Regional Cores quota."}}"#, Quota, None),
        ("Oracle Cloud, API errors", 409, &[], r#"{"code": "IncorrectState", "message": "x"}"#, Temporary, None),
        ("Scaleway API, Errors", 409, &[], r#"{"type": "transient_state", "resource": "instance", "resource_id": "x", "current_state": "starting"}"#, Temporary, None),
        ("Hetzner Cloud API, Errors", 409, &[], r#"{"error": {"code": "conflict", "message": "The resource has changed during the request, please retry"}}"#, Temporary, None),
        ("Alibaba Cloud ECS, Error codes", 403, &[], r#"{"RequestId": "x", "Code": "LastTokenProcessing", "Message": "The last token request is processing."}"#, Temporary, None),
        ("Alibaba Cloud SLB, Error codes", 403, &[], r#"{"RequestId": "x", "Code": "OperationConflict", "Message": "x"}"#, Temporary, None),
        ("Google Ads API, Common errors", 400, &[], r#"{"error": {"code": 400, "message": "Request contains an invalid argument.", "status": "INVALID_ARGUMENT", "details": [{"@type": "type.googleapis.com/google.ads.googleads.v21.errors.GoogleAdsFailure", "errors": [{"errorCode": {"databaseError": "CONCURRENT_MODIFICATION"}, "message": "Multiple requests were attempting to modify the same resource at once. Retry the request."}]}]}}"#, Temporary, None),
        ("GKE, Troubleshooting: incompatible operation", 400, &[], r#"{"error": {"code": 400, "message": "Cluster is running incompatible operation operation-1", "status": "FAILED_PRECONDITION", "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "CLUSTER_ALREADY_HAS_OPERATION"}]}}"#, Temporary, None),
        ("Kubernetes, Resource quotas", 403, &[], r#"{"kind": "Status", "status": "Failure", "message": "pods \"x\" is forbidden: exceeded quota: compute", "reason": "Forbidden", "code": 403}"#, Quota, None),
        ("Kubernetes, API concepts: conflicts", 409, &[], r#"{"kind": "Status", "status": "Failure", "message": "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version and try again", "reason": "Conflict", "code": 409}"#, NonRetryable, None),
        ("Amazon SES API v2, SendEmail: errors", 400, &[("x-amzn-ErrorType", "SendingPausedException")], r#"{"message": "Sending paused for this account."}"#, Quota, None),
        ("Amazon SES, Pausing email sending", 400, &[], "<ErrorResponse><Error><Type>Sender</Type><Code>MessageRejected</Code><Message>Sending paused for this account. For more information, please check the inbox</Message></Error></ErrorResponse>", Quota, None),
        ("Amazon Cognito, ForgotPassword: errors", 400, &[], r#"{"__type": "TooManyFailedAttemptsException", "message": "x"}"#, RateLimit, None),
        ("Amazon Bedrock, Errors", 424, &[("x-amzn-ErrorType", "ModelStreamErrorException:http://x")], r#"{"message":"x"}"#, Temporary, None),
        ("Microsoft Graph, JSON batching", 424, &[], r#"{"error": {"code": "FailedDependency", "message": "x"}}"#, Temporary, None),
        ("Railway, Application not found", 404, &[("x-railway-fallback", "true")], r#"{"status": "error", "code": 404, "message": "Application not found", "request_id": "x"}"#, Temporary, None),
    ]);
}
