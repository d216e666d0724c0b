//! The names of exceptions in the libraries of the languages. Each row names its libraries.

use crate::classify::text::Meaning;
use crate::classify::text::Service::{Down, Lost, Up};
use crate::failure::FailureClass::{NonRetryable, Quota, RateLimit, Temporary};

/// Names whose parts would mislead, or have no meaning, with their class. Some names occur in
/// several libraries; then the class suits all of them.
pub(super) const NAMES: [(Meaning, &str); 14] = rows! {
    // The response of a service: botocore, smithy for Go, azure.core, Elasticsearch for Node; AWS for .NET
    (Temporary, Up, "unreadable response") =>
        "ResponseParserError DeserializationError AmazonUnmarshallingException";
    // Powertools for AWS Lambda (Python, TypeScript, .NET): FIFO records after one that failed
    (Temporary, Up, "an earlier record failed") =>
        "SQSFifoCircuitBreakerError SQSFifoMessageGroupCircuitBreakerError \
        SqsFifoShortCircuitError SqsFifoMessageGroupShortCircuitError UnprocessedRecordException \
        CircuitBreakerException";
    // The code or the setup of the function: Python, Node, Java, .NET; botocore; smithy; google.auth
    (Temporary, Down, "broken deployment") =>
        "ImportError ModuleNotFoundError LoadError ClassNotFoundException NoClassDefFoundError \
        NoSuchMethodError UnsupportedClassVersionError ExceptionInInitializerError \
        UnsatisfiedLinkError LambdaValidationException TypeInitializationException \
        TypeLoadException UnexpectedBatchTypeError NoCredentialsError PartialCredentialsError \
        CredentialRetrievalError NoRegionError CredentialsProviderError DefaultCredentialsError \
        MissingDependencyException";
    (Temporary, Up, "out of resources") =>
        "MemoryError OutOfMemoryError OutOfMemoryException StackOverflowError NoMemoryError";
    // anthropic; kafka
    (Quota, Up, "quota exceeded") => "PaymentRequiredError";
    // resilience4j; Polly; Slack's Python and Node SDKs; Azure Service Bus; Cosmos DB; kafka
    (RateLimit, Up, "rate limit") =>
        "RequestNotPermitted BulkheadRejectedException ServiceBusServerBusyError \
        ServerBusyException RequestRateTooLargeException ThrottlingQuotaExceededError \
        ThrottlingQuotaExceededException";
    // Cancelled by a client's own timer: .NET's HttpClient, fetch, smithy, asyncio, Go
    (Temporary, Lost, "cancelled") =>
        "TaskCanceledException OperationCanceledException OperationCancelledException \
        CancellationException AbortError APIUserAbortError CanceledError CancelledError \
        RequestAbortedError InterruptedIOException";
    // Names of a lost connection. httpx; urllib3; http.client; aiohttp; undici; okhttp; Apache
    // HttpClient; java.io; Ruby; pymongo; amqp
    (Temporary, Lost, "connection lost") =>
        "RemoteProtocolError ProtocolError ReadError WriteError CloseError IncompleteRead \
        IncompleteReadError ChunkedEncodingError InvalidChunkLength BadStatusLine \
        ClientPayloadError ClientOSError ServiceResponseError ResponseStreamingError EOFError \
        EOFException StreamResetException NoHttpResponseException TruncatedChunkException \
        AutoReconnect StreamLostError HTTPParserError PrematureCloseException UnableToSend \
        MalformedChunkCodingException";
    // The other side is not reached, or does not work for now. socket; requests; httpx; botocore;
    // azure.core; java.net; Spring; pymongo, MongoDB for Node; ioredis; redis; StackExchange.Redis;
    // amqp; kafka; Prisma; StrangeLoop of Spring Data
    (Temporary, Down, "service not reached") =>
        "gaierror herror getaddrinfo MaxRetryError ProxyError TransportError ServiceRequestError \
        HTTPClientError FetchError UnknownHostException NoRouteToHostException BindException \
        ResourceAccessException WebClientRequestException DataAccessResourceFailureException \
        TransientDataAccessResourceException RecoverableDataAccessException \
        CannotCreateTransactionException NotPrimaryError MongoServerSelectionError \
        MongoTopologyClosedError MongoServerClosedError MongoStalePrimaryError \
        PoolClearedOnNetworkError MaxRetriesPerRequestError ClusterAllFailedError \
        BusyLoadingError ClusterDownError MasterDownError TryAgainError ReadOnlyError \
        PrismaClientInitializationError PrismaClientRustPanicError NoBrokersAvailable \
        KafkaJSNumberOfRetriesExceeded NotLeaderForPartitionError NotLeaderOrFollowerException \
        NotEnoughReplicasException RetriableException AdminShutdown CrashShutdown \
        CannotConnectNow CallNotPermittedException IsolatedCircuitException OverloadedError \
        EAIAGAIN ENOTFOUND EHOSTUNREACH ENETUNREACH EHOSTDOWN ENETDOWN ECONNREFUSED";
    (Temporary, Lost, "connection lost") =>
        "ECONNRESET ECONNABORTED EPIPE ENOTCONN ETIMEDOUT ESOCKETTIMEDOUT";
    // Another transaction, version or lock was in the way. psycopg; asyncpg; Npgsql; hibernate;
    // Spring; Rails; DynamoDB; google.api_core; the SDKs of OpenAI and Anthropic, which try it again;
    // neo4j; Azure Storage, Cosmos DB for Python
    (Temporary, Up, "busy") =>
        "TransactionCanceledException CannotAcquireLockException LockAcquisitionException \
        StaleObjectStateException StaleObjectError StaleDataError LockError WatchError TryAgain \
        ResourceInUseException MessageLockLostError SessionLockLostError ResourceModifiedError \
        ForbiddenOnReadOnlyDatabase AuthorizationExpired UpdateConditionNotSatisfied \
        ConditionNotMet CosmosAccessConditionFailedError";
    // The request is at fault. The SDKs of Stripe, OpenAI and Anthropic, Twilio, Slack; DB-API 2.0;
    // Spring; hibernate; Rails; Prisma; zod, joi, yup and ajv; okhttp; kafka
    (NonRetryable, Up, "refused") =>
        "CardError CardException StripeCardError IdempotencyError IdempotencyException \
        StripeIdempotencyError IdempotentParameterMismatchException UnprocessableEntityError \
        UnprocessableEntity UnprocessableContent NotFound NotFoundError NotFoundException \
        ResourceNotFoundError ResourceNotFound EntityNotFoundException ModelNotFoundException \
        QueueDoesNotExistException NoSuchUpload NoSuchBucketException NoSuchKeyException Gone \
        MethodNotAllowed UnsupportedMediaType MethodNotImplemented RequestTooLargeError \
        ContentTooLargeError MessageSizeTooLargeError MessageSizeExceededError \
        RecordTooLargeException DocumentTooLarge DataError DataException \
        BadSqlGrammarException SQLSyntaxErrorException SQLDataException RecordInvalid \
        RecordNotUnique ZodError SchemaError ContentFilterFinishReasonError \
        LengthFinishReasonError BindingException MethodArgumentNotValidException \
        ParamMissingException StripeInvalidGrantError SerializationException \
        SQLNonTransientException NonTransientDataAccessException";
    // Stripe; redis; psycopg; azure.core; google.auth; kafka
    (NonRetryable, Up, "access denied") =>
        "PermissionError NoPermissionError InsufficientPrivilege InvalidPassword PermissionException \
        StripePermissionError InvalidSignatureException ExpiredSignatureError InvalidTokenError \
        JsonWebTokenError";
    // Its cause is more specific; alone it is the end of some retries. tenacity; google.api_core;
    // p-retry
    (Temporary, Up, "retries used up") => "MaxRetriesExceededException RetriesExhaustedError";
};

/// Parts of names in addition to [`code::PARTS`](crate::classify::code::PARTS), of letters in lower
/// case. The first row that matches wins: a timeout of a connection pool is a timeout.
pub(super) const PARTS: [(Meaning, &str); 15] = rows! {
    (Temporary, Up, "busy") => "serializationerror sqltransientexception";
    (Temporary, Down, "timed out") =>
        "connecttimeout connecttimedout connectiontimeout opentimeout pooltimeout acquiretimeout";
    (Temporary, Lost, "timed out") => "timeout timedout deadlineexceeded";
    (Temporary, Down, "certificate not accepted") =>
        "certificate sslerror sslexception sslhandshake sslcert tlserror sslpeer";
    (Temporary, Lost, "connection lost") =>
        "connectionreset connectionaborted connectionclosed connectionlost disconnect brokenpipe \
        socketclosed connectionshutdown";
    (Temporary, Down, "service not reached") =>
        "connection connect networkerror networkexception networkfail networkdown networktimeout \
        networkingerror networkunavailable socket unreachable nameresolution dnserror proxyauth \
        brokernotavailable";
    (Temporary, Down, "service down") =>
        "unavailable badgateway overloaded serverbusy notavailable circuitbreaker brokencircuit \
        circuitopen opencircuit";
    (Temporary, Up, "server error") =>
        "internalserver servererror servicefailure internalfailure internalerror \
        responsevalidation";
    // AWS: states for which a request waits, and things that an operator must free or enlarge
    (NonRetryable, Up, "refused") => "sizelimit lengthlimit notrunning schemaviolation";
    (Quota, Up, "quota exceeded") => "vcpulimit instancelimit volumelimit resourcelimit";
    (Temporary, Up, "busy") => "limitexceeded aborted resuming running dependencyviolation";
    (Temporary, Up, "conflict") => "conflictexception conflicterror requestconflict";
    (NonRetryable, Up, "access denied") =>
        "unauthorized unauthenticated authentication authoriz accessdenied accessforbidden \
        permissiondenied forbidden invalidcredential invalidapikey";
    (NonRetryable, Up, "constraint violated") =>
        "integrity constraint uniqueviolation checkviolation notnullviolation \
        exclusionviolation restrictviolation foreignkeyviolation duplicatekey duplicateentry \
        duplicateitem alreadyexists";
    (NonRetryable, Up, "invalid") =>
        "validation invalidargument invalidparameter invalidrequest invalidinput invaliddata \
        badrequest malformed unsupportedoperation";
};
