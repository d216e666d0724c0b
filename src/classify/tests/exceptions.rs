//! Exceptions of a function, by type and message. Most messages in `PYTHON` and `NODE` were printed by
//! the libraries themselves, on a socket of loopback. The others have the form that the library's
//! source gives them.

use super::*;
use crate::classify::Exception;

fn of(error_type: &str, message: &str) -> Failure {
    Failure::from_exception(&Exception::new(error_type, message))
}

/// Types that suffice, separated by spaces, and their class.
const TYPES: [(FailureClass, bool, &str); 12] = [
    // Python
    (
        Temporary,
        true,
        "TimeoutError ConnectionError ConnectionResetError ConnectionRefusedError BrokenPipeError \
         socket.gaierror ssl.SSLError ssl.SSLCertVerificationError requests.exceptions.ConnectTimeout \
         requests.exceptions.ReadTimeout requests.exceptions.SSLError requests.exceptions.ProxyError \
         requests.exceptions.ChunkedEncodingError urllib3.exceptions.MaxRetryError \
         urllib3.exceptions.NewConnectionError urllib3.exceptions.NameResolutionError \
         urllib3.exceptions.ProtocolError httpx.ConnectError httpx.PoolTimeout httpx.ReadError \
         httpx.RemoteProtocolError aiohttp.ServerDisconnectedError aiohttp.ClientConnectorError \
         aiohttp.ClientConnectorDNSError aiohttp.ClientPayloadError aiohttp.ServerTimeoutError \
         http.client.RemoteDisconnected http.client.IncompleteRead \
         botocore.exceptions.EndpointConnectionError botocore.exceptions.ConnectTimeoutError \
         botocore.exceptions.ReadTimeoutError botocore.exceptions.ConnectionClosedError \
         openai.APIConnectionError openai.APITimeoutError anthropic.OverloadedError \
         stripe.error.APIConnectionError google.api_core.exceptions.ServiceUnavailable \
         google.api_core.exceptions.DeadlineExceeded google.auth.exceptions.TransportError \
         azure.core.exceptions.ServiceRequestError azure.core.exceptions.ServiceResponseTimeoutError \
         redis.exceptions.ConnectionError redis.exceptions.BusyLoadingError \
         redis.exceptions.ClusterDownError psycopg.errors.AdminShutdown \
         psycopg.errors.CannotConnectNow psycopg.errors.ConnectionException \
         pymongo.errors.ServerSelectionTimeoutError pymongo.errors.AutoReconnect \
         pymongo.errors.NotPrimaryError kafka.errors.KafkaTimeoutError \
         kafka.errors.LeaderNotAvailableError slack_sdk.errors.SlackClientNotConnectedError \
         pika.exceptions.StreamLostError pika.exceptions.AMQPConnectionError opensearchpy.ConnectionError",
    ),
    // Node
    (
        Temporary,
        true,
        "ConnectTimeoutError HeadersTimeoutError BodyTimeoutError SocketError FetchError \
         APIConnectionError APIConnectionTimeoutError StripeConnectionError MongoNetworkError \
         MongoServerSelectionError MongoNetworkTimeoutError PoolClearedOnNetworkError \
         MaxRetriesPerRequestError ClusterAllFailedError PrismaClientInitializationError \
         KafkaJSConnectionError KafkaJSRequestTimeoutError KafkaJSNumberOfRetriesExceeded AbortError \
         WebAPIRequestTimeout ServiceUnavailableException ENOTFOUND ECONNREFUSED ETIMEDOUT EAI_AGAIN \
         SocketClosedUnexpectedlyError ConnectionTimeoutError ReconnectStrategyError",
    ),
    // Java
    (
        Temporary,
        true,
        "java.net.ConnectException java.net.SocketTimeoutException java.net.UnknownHostException \
         java.net.NoRouteToHostException java.net.SocketException java.net.http.HttpTimeoutException \
         java.net.http.HttpConnectTimeoutException java.util.concurrent.TimeoutException \
         java.io.EOFException javax.net.ssl.SSLHandshakeException javax.net.ssl.SSLException \
         java.io.InterruptedIOException \
         software.amazon.awssdk.core.exception.ApiCallTimeoutException \
         software.amazon.awssdk.core.exception.ApiCallAttemptTimeoutException \
         okhttp3.internal.http2.StreamResetException okhttp3.internal.http2.ConnectionShutdownException \
         org.apache.http.NoHttpResponseException org.apache.http.conn.HttpHostConnectException \
         org.apache.http.conn.ConnectTimeoutException org.apache.http.conn.ConnectionPoolTimeoutException \
         org.springframework.web.client.ResourceAccessException \
         org.springframework.web.client.HttpServerErrorException$ServiceUnavailable \
         org.springframework.web.client.HttpServerErrorException$GatewayTimeout \
         org.springframework.dao.QueryTimeoutException \
         org.springframework.dao.DataAccessResourceFailureException \
         org.springframework.jdbc.CannotGetJdbcConnectionException java.sql.SQLTransientConnectionException \
         java.sql.SQLNonTransientConnectionException java.sql.SQLTimeoutException \
         org.hibernate.exception.JDBCConnectionException \
         io.github.resilience4j.circuitbreaker.CallNotPermittedException \
         com.stripe.exception.ApiConnectionException com.google.api.gax.rpc.UnavailableException \
         com.google.api.gax.rpc.DeadlineExceededException org.apache.kafka.common.errors.TimeoutException",
    ),
    // .NET
    (
        Temporary,
        true,
        "System.Net.Sockets.SocketException System.TimeoutException TaskCanceledException \
         OperationCanceledException BrokenCircuitException TimeoutRejectedException \
         RedisConnectionException RedisTimeoutException WebSocketException",
    ),
    // Ruby
    (
        Temporary,
        true,
        "Function<Net::OpenTimeout> Function<Net::ReadTimeout> Function<Faraday::ConnectionFailed> \
         Function<Faraday::TimeoutError> Function<Faraday::SSLError> Function<Errno::ECONNREFUSED> \
         Function<Errno::ECONNRESET> Function<Errno::EPIPE> Function<Errno::EHOSTUNREACH> \
         Function<SocketError> Function<OpenSSL::SSL::SSLError> Function<EOFError> \
         Function<Seahorse::Client::NetworkingError> Function<Stripe::APIConnectionError> \
         Function<PG::ConnectionBad> Function<Redis::CannotConnectError> \
         Function<ActiveRecord::ConnectionNotEstablished>",
    ),
    // Trouble that may be this message's own, and passes
    (
        Temporary,
        false,
        "MemoryError java.lang.OutOfMemoryError psycopg.errors.DeadlockDetected \
         psycopg.errors.SerializationFailure psycopg.errors.LockNotAvailable openai.InternalServerError openai.APIResponseValidationError \
         openai.ConflictError google.api_core.exceptions.Aborted google.api_core.exceptions.InternalServerError \
         TransactionConflictException org.springframework.dao.DeadlockLoserDataAccessException \
         org.springframework.dao.CannotAcquireLockException java.sql.SQLTransientException \
         jakarta.persistence.OptimisticLockException org.hibernate.StaleObjectStateException \
         DbUpdateConcurrencyException Function<ActiveRecord::Deadlocked> \
         Function<ActiveRecord::LockWaitTimeout> com.google.api.gax.rpc.AbortedException \
         com.google.api.gax.rpc.InternalException InternalServerErrorException Function<Faraday::ServerError> \
         redis.exceptions.LockError java.util.ConcurrentModificationException",
    ),
    (
        RateLimit,
        false,
        "openai.RateLimitError anthropic.RateLimitError stripe.error.RateLimitError StripeRateLimitError \
         com.stripe.exception.RateLimitException google.api_core.exceptions.TooManyRequests \
         google.api_core.exceptions.ResourceExhausted com.google.api.gax.rpc.ResourceExhaustedException \
         ThrottlingException TooManyRequestsException ProvisionedThroughputExceededException \
         RequestLimitExceeded SlowDown Function<Faraday::TooManyRequestsError> \
         Function<Aws::DynamoDB::Errors::ThrottlingException> \
         software.amazon.awssdk.services.dynamodb.model.ProvisionedThroughputExceededException \
         software.amazon.awssdk.services.lambda.model.TooManyRequestsException \
         org.springframework.web.client.HttpClientErrorException$TooManyRequests \
         io.github.resilience4j.ratelimiter.RequestNotPermitted \
         io.github.resilience4j.bulkhead.BulkheadFullException RateLimiterRejectedException \
         WebAPIRateLimitedError kafka.errors.ThrottlingQuotaExceededError RATE_LIMIT_EXCEEDED ratelimited \
         Octokit::TooManyRequests RateLimitExceededException",
    ),
    (
        Quota,
        false,
        "ServiceQuotaExceededException azure.servicebus.exceptions.ServiceBusQuotaExceededError \
         EnforcedSpendLimitReachedError insufficient_quota QuotaExceededException anthropic.PaymentRequiredError",
    ),
    // Validation
    (
        NonRetryable,
        false,
        "pydantic_core._pydantic_core.ValidationError jsonschema.exceptions.ValidationError \
         marshmallow.exceptions.ValidationError botocore.exceptions.ParamValidationError ZodError \
         ValidationException openai.BadRequestError openai.UnprocessableEntityError \
         google.api_core.exceptions.InvalidArgument google.api_core.exceptions.FailedPrecondition \
         stripe.error.InvalidRequestError stripe.error.CardError StripeCardError StripeInvalidRequestError \
         com.stripe.exception.CardException com.stripe.exception.InvalidRequestException \
         jakarta.validation.ConstraintViolationException javax.validation.ValidationException \
         org.springframework.web.client.HttpClientErrorException$BadRequest \
         org.springframework.web.client.HttpClientErrorException$UnprocessableEntity \
         com.google.api.gax.rpc.InvalidArgumentException PrismaClientValidationError \
         FluentValidation.ValidationException Function<Faraday::BadRequestError> \
         Function<Faraday::UnprocessableEntityError> Function<ActiveRecord::RecordInvalid> \
         Function<Stripe::InvalidRequestError> com.fasterxml.jackson.databind.exc.MismatchedInputException \
         com.fasterxml.jackson.databind.exc.InvalidFormatException com.google.gson.JsonSyntaxException \
         com.fasterxml.jackson.databind.exc.UnrecognizedPropertyException System.Text.Json.JsonException",
    ),
    // Data bases
    (
        NonRetryable,
        false,
        "psycopg.errors.UniqueViolation psycopg.errors.NotNullViolation sqlalchemy.exc.IntegrityError \
         pymysql.err.IntegrityError pymongo.errors.DuplicateKeyError \
         java.sql.SQLIntegrityConstraintViolationException \
         org.springframework.dao.DataIntegrityViolationException \
         org.springframework.dao.DuplicateKeyException java.sql.SQLSyntaxErrorException \
         Function<ActiveRecord::RecordNotUnique> google.api_core.exceptions.AlreadyExists",
    ),
    // Access
    (
        NonRetryable,
        false,
        "openai.AuthenticationError openai.PermissionDeniedError stripe.error.AuthenticationError \
         StripeAuthenticationError StripePermissionError google.api_core.exceptions.Forbidden \
         google.api_core.exceptions.Unauthenticated google.api_core.exceptions.PermissionDenied \
         azure.core.exceptions.ClientAuthenticationError AccessDeniedException \
         UnrecognizedClientException Function<Faraday::UnauthorizedError> Function<Faraday::ForbiddenError> \
         org.springframework.web.client.HttpClientErrorException$Unauthorized \
         org.springframework.web.client.HttpClientErrorException$Forbidden \
         com.google.api.gax.rpc.PermissionDeniedException com.google.api.gax.rpc.UnauthenticatedException",
    ),
    // No such thing
    (
        NonRetryable,
        false,
        "openai.NotFoundError google.api_core.exceptions.NotFound ResourceNotFoundException NoSuchKey \
         azure.core.exceptions.ResourceNotFoundError Function<Faraday::ResourceNotFound> \
         org.springframework.web.client.HttpClientErrorException$NotFound \
         com.google.api.gax.rpc.NotFoundException \
         software.amazon.awssdk.services.s3.model.NoSuchKeyException",
    ),
];

#[test]
fn a_type_says_what_happened() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (class, is_down, types) in TYPES {
        for name in types.split_whitespace() {
            count += 1;
            let failure = of(name, "");
            let told = (failure.class(), failure.is_service_down());
            if told != (class, is_down) || failure.evidence() != Evidence::Typed {
                wrong.push(format!("{name}: {failure} {:?} {}", failure.evidence(), told.1));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(count >= 250, "{count}");
}

/// networkx; pytube; docker; hibernate; Plaid; ACM; AWS and Azure of things; Kafka, ccxt, Cassandra,
/// azure-identity, Elasticsearch, Telegram, Stripe of services
#[test]
fn a_name_about_an_item_opens_no_circuit() {
    for (is_down, names) in [
        (
            false,
            "networkx.exception.NetworkXNoPath networkx.exception.NetworkXError \
             youtube_transcript_api._errors.VideoUnavailable pytube.exceptions.VideoUnavailable \
             com.acme.SeatNotAvailableException ProductUnavailable ItemUnavailableError \
             SlotNotAvailableError App\\Exceptions\\RoomUnavailableException \
             Function<Booking::DateUnavailable> docker.errors.NetworkNotFound \
             UnsupportedNetworkException InvalidNetworkException CardNetworkNotSupported \
             InvalidCertificateException GiftCertificateNotFoundError InvalidTimeoutException \
             InvalidConnectionIdException ConnectionNotFoundException SocialNetworkMissing",
        ),
        (
            true,
            "NetworkError NetworkException telegram.error.NetworkError ClientNetworkException \
             PoolClearedOnNetworkError Function<Seahorse::Client::NetworkingError> \
             UnavailableException Unavailable ServiceUnavailable ServiceNotAvailableException \
             LeaderNotAvailableError CoordinatorNotAvailableException BrokerNotAvailableError \
             ReplicaNotAvailableException ccxt.base.errors.ExchangeNotAvailable \
             azure.identity.CredentialUnavailableError EndpointUnavailableException \
             NodeUnavailableException DatabaseUnavailable NetworkUnavailableException \
             ServiceTemporarilyUnavailable ApiUnavailableError HostUnavailable BankUnavailable LedgerNotAvailableException \
             ConnectionUnavailableException ReadTimeout ConnectException SSLError",
        ),
    ] {
        for name in names.split_whitespace() {
            let failure = of(name, "");
            // An unrecognised failure counts for no circuit.
            let is_known = failure.evidence() != Evidence::Unrecognised;
            assert_eq!(failure.class(), Temporary, "{name}");
            assert_eq!((failure.is_service_down(), is_known), (is_down, is_down), "{name}");
        }
    }
}

#[test]
fn a_refusal_that_passes_opens_no_circuit() {
    for (error_type, message) in [
        ("StatusError", "Operation cannot be fulfilled on x: the object has been modified"),
        (
            "Error",
            "3 INVALID_ARGUMENT: The referenced transaction has expired or is no longer valid.",
        ),
        ("error", "PAM authentication failed for user \"app\""),
        ("groq.BadRequestError", "Error code: 400 - {'error': {'code': 'tool_use_failed'}}"),
        ("Azure.RequestFailedException", "x\nStatus: 412 (x)\nErrorCode: ConditionNotMet"),
        ("openai.ConflictError", "Error code: 409 - x"),
    ] {
        let failure = of(error_type, message);
        assert_eq!((failure.class(), failure.is_service_up()), (Temporary, true), "{message}");
    }
}

#[test]
fn a_deployment_that_broke_is_no_fault_of_the_message() {
    for (name, message) in [
        ("ModuleNotFoundError", "No module named 'orders'"),
        ("java.lang.ClassNotFoundException", "Class not found: example.Handler"),
        ("java.lang.NoClassDefFoundError", "com/example/Bank"),
        ("LambdaValidationException", "Could not find the specified handler assembly"),
        ("botocore.exceptions.NoCredentialsError", "Unable to locate credentials"),
        ("CredentialsProviderError", "Could not load credentials from any providers"),
    ] {
        let failure = of(name, message);
        assert_eq!((failure.class(), failure.is_service_down()), (Temporary, true), "{name}");
    }
}

/// Type, message as the library prints it, class, whether the service is down.
type Printed = (&'static str, &'static str, FailureClass, bool);

#[rustfmt::skip]
const PYTHON: &[Printed] = &[
    ("ConnectionError", "HTTPConnectionPool(host='127.0.0.1', port=9): Max retries exceeded with url: / (Caused by NewConnectionError(\"HTTPConnection(host='127.0.0.1', port=9): Failed to establish a new connection: [Errno 111] Connection refused\"))", Temporary, true),
    ("HTTPError", "400 Client Error: Bad Request for url: http://127.0.0.1:38391/503", NonRetryable, false),
    ("HTTPError", "404 Client Error: Not Found for url: http://127.0.0.1:38391/404", NonRetryable, false),
    ("HTTPError", "409 Client Error: Conflict for url: http://127.0.0.1:38391/409", NonRetryable, false),
    ("HTTPError", "429 Client Error: Too Many Requests for url: http://127.0.0.1:38391/400", RateLimit, false),
    ("HTTPError", "500 Server Error: Internal Server Error for url: http://127.0.0.1:38391/", Temporary, false),
    ("HTTPError", "503 Server Error: Service Unavailable for url: http://127.0.0.1:38391/", Temporary, true),
    ("HTTPError", "507 Server Error: Insufficient Storage for url: http://127.0.0.1:38391/", Quota, false),
    ("HTTPError", "HTTP Error 429: Too Many Requests", RateLimit, false),
    ("HTTPStatusError", "Client error '422 Unprocessable Entity' for url 'http://127.0.0.1:38391/422'\nFor more information check: https://developer.mozilla.org/en-US/docs/Web/HTTP/Status/422", NonRetryable, false),
    ("HTTPStatusError", "Client error '429 Too Many Requests' for url 'http://127.0.0.1:38391/429'", RateLimit, false),
    ("HTTPStatusError", "Server error '502 Bad Gateway' for url 'http://127.0.0.1:38391/502'", Temporary, true),
    ("URLError", "<urlopen error [Errno 111] Connection refused>", Temporary, true),
    ("URLError", "<urlopen error [Errno -2] Name or service not known>", Temporary, true),
    ("ClientResponseError", "429, message='Too Many Requests', url='http://127.0.0.1:38391/400'", RateLimit, false),
    ("ClientResponseError", "404, message='Not Found', url='http://127.0.0.1:38391/503'", NonRetryable, false),
    ("ClientResponseError", "503, message='Service Unavailable', url='http://127.0.0.1:38391/'", Temporary, true),
    ("ClientError", "An error occurred (ThrottlingException) when calling the SendMessage operation (reached max retries: 4): Rate exceeded", RateLimit, false),
    ("ClientError", "An error occurred (ProvisionedThroughputExceededException) when calling the PutItem operation: The level of configured provisioned throughput for the table was exceeded.", RateLimit, false),
    ("ClientError", "An error occurred (ValidationException) when calling the PutItem operation: One or more parameter values were invalid", NonRetryable, false),
    ("ClientError", "An error occurred (404) when calling the HeadObject operation: Not Found", NonRetryable, false),
    ("ClientError", "An error occurred (403) when calling the HeadObject operation: Forbidden", NonRetryable, false),
    ("ClientError", "An error occurred (503) when calling the HeadObject operation: Service Unavailable", Temporary, true),
    ("ClientError", "An error occurred (SlowDown) when calling the PutObject operation: Please reduce your request rate.", RateLimit, false),
    ("ClientError", "An error occurred (TransactionConflictException) when calling the X operation: Transaction is ongoing for the item", Temporary, false),
    ("ClientError", "An error occurred (ConditionalCheckFailedException) when calling the PutItem operation: The conditional request failed", NonRetryable, false),
    ("ClientError", "An error occurred (InternalServerError) when calling the PutItem operation: Internal server error", Temporary, false),
    ("ClientError", "An error occurred (SomethingNewFault) when calling the Do operation: what", Temporary, false),
    ("ClientError", "An error occurred (AccessDeniedException) when calling the Query operation: User: x is not authorized", NonRetryable, false),
    ("ParamValidationError", "Parameter validation failed:\nMissing required parameter in input: \"TableName\"", NonRetryable, false),
    ("EndpointConnectionError", "Could not connect to the endpoint URL: \"http://127.0.0.1:9/\"", Temporary, true),
    ("RateLimitError", "Error code: 429 - Rate limit reached for gpt-4 in organization org-x on requests per min (RPM): Limit 3", RateLimit, false),
    ("RateLimitError", "Error code: 429 - {'error': {'message': 'You exceeded your current quota, please check your plan and billing details.', 'type': 'insufficient_quota', 'code': 'insufficient_quota'}}", Quota, false),
    ("APIStatusError", "Error code: 413 - too large", NonRetryable, false),
    ("ResourceExhausted", "429 Quota exceeded for quota metric 'Read requests' and limit 'Read requests per minute' of service 'x'", RateLimit, false),
    ("RetryError", "Timeout of 60.0s exceeded, last exception: 503 x", Temporary, true),
    ("HttpError", "<HttpError 403 when requesting https://x/y returned \"words\". Details: \"[{'reason': 'rateLimitExceeded'}]\">", RateLimit, false),
    ("HttpError", "<HttpError 404 when requesting https://x/y returned \"words\". Details: \"[{'reason': 'notFound'}]\">", NonRetryable, false),
    ("HttpError", "<HttpError 503 when requesting https://x/y returned \"words\". Details: \"[{'reason': 'backendError'}]\">", Temporary, false),
    ("HttpResponseError", "Operation returned an invalid status 'Too Many Requests'", RateLimit, false),
    ("HttpResponseError", "(AuthorizationFailed) The client does not have authorization\nCode: AuthorizationFailed\nMessage: The client does not have authorization", NonRetryable, false),
    ("ConnectionError", "Error 111 connecting to localhost:9. Connection refused.", Temporary, true),
    ("OperationalError", "connection to server at \"127.0.0.1\", port 9 failed: Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?\n", Temporary, true),
    ("OperationalError", "(2003, \"Can't connect to MySQL server on '127.0.0.1' ([Errno 111] Connection refused)\")", Temporary, true),
    ("OperationalError", "(1213, 'Deadlock found when trying to get lock; try restarting transaction')", Temporary, false),
    ("OperationalError", "(2006, 'MySQL server has gone away')", Temporary, true),
    ("OperationalError", "(psycopg2.OperationalError) connection to server at \"127.0.0.1\", port 9 failed: Connection refused", Temporary, true),
    ("DBAPIError", "(psycopg2.errors.DeadlockDetected) deadlock detected", Temporary, false),
    ("_InactiveRpcError", "<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n\tdetails = \"failed to connect to all addresses\"", Temporary, true),
    ("_InactiveRpcError", "<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.INVALID_ARGUMENT\n\tdetails = \"x\"", NonRetryable, false),
    ("_InactiveRpcError", "<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.RESOURCE_EXHAUSTED\n\tdetails = \"x\"", RateLimit, false),
    ("RetryError", "RetryError[<Future at 0x7f29a6a00210 state=finished raised ConnectionError>]", Temporary, true),
    ("RetryError", "RetryError[<Future at 0x7f29a69f4e90 state=finished raised ZeroDivisionError>]", Temporary, false),
    ("SlackApiError", "The request to the Slack API failed. (url: https://slack.com/api/chat.postMessage)\nThe server responded with: {'ok': False, 'error': 'ratelimited'}", RateLimit, false),
    ("TwilioRestException", "HTTP 429 error: Too Many Requests", RateLimit, false),
    ("TwilioRestException", "HTTP 400 error: Invalid 'To' Phone Number", NonRetryable, false),
    ("ValidationError", "1 validation error for O\nid\n  Input should be a valid integer, unable to parse string as an integer [type=int_parsing, input_value='too many requests', input_type=str]", NonRetryable, false),
    ("JSONDecodeError", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)", NonRetryable, false),
    ("JSONDecodeError", "Expecting value: line 1 column 1 (char 0)", Temporary, false),
    ("requests.exceptions.JSONDecodeError", "Expecting ',' delimiter: line 1 column 7 (char 6)", Temporary, false),
    ("PermissionError", "[Errno 13] Permission denied: '/tmp/x'", Temporary, false),
    ("PermissionError", "Request req_1: words", NonRetryable, false),
    ("IntegrityError", "insert or update on table \"a\" violates foreign key constraint \"b\"", Temporary, false),
    ("KeyError", "'id'", Temporary, false),
];

#[rustfmt::skip]
const NODE: &[Printed] = &[
    ("TypeError", "fetch failed", Temporary, true),
    ("TypeError", "Cannot read properties of undefined (reading 'y')", Temporary, false),
    ("TimeoutError", "The operation was aborted due to timeout", Temporary, true),
    ("SyntaxError", "Unexpected token '<', \"<html>\" is not valid JSON", Temporary, false),
    ("SyntaxError", "Expected property name or '}' in JSON at position 1 (line 1 column 2)", NonRetryable, false),
    ("SyntaxError", "Unexpected end of JSON input", Temporary, false),
    ("Error", "connect ECONNREFUSED 127.0.0.1:9", Temporary, true),
    ("Error", "socket hang up", Temporary, true),
    ("Error", "getaddrinfo ENOTFOUND nope.invalid", Temporary, true),
    ("Error", "getaddrinfo EAI_AGAIN nope.invalid", Temporary, true),
    ("Error", "connect ETIMEDOUT 192.0.2.1:443", Temporary, true),
    ("AxiosError", "timeout of 200ms exceeded", Temporary, true),
    ("AxiosError", "Request failed with status code 400", NonRetryable, false),
    ("AxiosError", "Request failed with status code 429", RateLimit, false),
    ("AxiosError", "Request failed with status code 503", Temporary, true),
    ("GaxiosError", "Request failed with status code 404", NonRetryable, false),
    ("RequestError", "connect ECONNREFUSED 127.0.0.1:9", Temporary, true),
    ("HTTPError", "Request failed with status code 429 (Too Many Requests): GET http://127.0.0.1:39131/400", RateLimit, false),
    ("TimeoutError", "Timeout awaiting 'request' for 200ms", Temporary, true),
    ("FetchError", "request to http://127.0.0.1:9/ failed, reason: connect ECONNREFUSED 127.0.0.1:9", Temporary, true),
    // The SDKs of OpenAI and Stripe keep the name `Error`.
    ("Error", "429 Rate limit reached for x", RateLimit, false),
    ("Error", "429 You exceeded your current quota, please check your plan and billing details.", Quota, false),
    ("Error", "401 Incorrect API key provided", NonRetryable, false),
    ("Error", "500 The server had an error while processing your request", Temporary, false),
    ("Error", "404 status code (no body)", NonRetryable, false),
    ("Error", "Connection error.", Temporary, true),
    ("Error", "Request timed out.", Temporary, true),
    ("Error", "An error occurred with our connection to Stripe.", Temporary, true),
    ("RateLimitError", "429 {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"x\"}}", RateLimit, false),
    ("OverloadedError", "529 {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}", Temporary, true),
    ("MongoServerError", "E11000 duplicate key error collection: a.b index: _id_ dup key: { _id: 1 }", NonRetryable, false),
    ("error", "duplicate key value violates unique constraint \"a\"", NonRetryable, false),
    ("Error", "Connection terminated unexpectedly", Temporary, true),
    ("Error", "14 UNAVAILABLE: No connection established. Last error: connect ECONNREFUSED", Temporary, true),
    ("Error", "3 INVALID_ARGUMENT: bad", NonRetryable, false),
    ("Error", "8 RESOURCE_EXHAUSTED: Quota exceeded for quota metric 'Queries' and limit 'Queries per minute'", RateLimit, false),
    ("Error", "429 items were handled", Temporary, false),
    ("Error", "order 42 is not paid", Temporary, false),
    ("Error", "order (404) is missing", Temporary, false),
    ("Error", "order(429) waits", Temporary, false),
];

#[rustfmt::skip]
const OTHERS: &[Printed] = &[
    ("software.amazon.awssdk.services.sfn.model.SfnException", "Rate exceeded (Service: Sfn, Status Code: 400, Request ID: 1b-2)", RateLimit, false),
    ("software.amazon.awssdk.services.dynamodb.model.DynamoDbException", "Throughput exceeds the current capacity (Service: DynamoDb, Status Code: 400, Request ID: 1b-2)", RateLimit, false),
    ("software.amazon.awssdk.services.dynamodb.model.ProvisionedThroughputExceededException", "The level was exceeded (Service: DynamoDb, Status Code: 400, Request ID: 1b-2)", RateLimit, false),
    ("software.amazon.awssdk.services.ec2.model.Ec2Exception", "Request limit exceeded. (Service: Ec2, Status Code: 503, Request ID: 1b-2)", RateLimit, false),
    ("com.amazonaws.AmazonServiceException", "Rate exceeded (Service: AmazonCloudFormation; Status Code: 400; Error Code: Throttling; Request ID: 1b-2)", RateLimit, false),
    ("com.amazonaws.AmazonServiceException", "x (Service: AmazonX; Status Code: 400; Error Code: TooManyTagsException; Request ID: 1b-2)", NonRetryable, false),
    ("software.amazon.awssdk.core.exception.SdkClientException", "Unable to execute HTTP request: Connect to x:443 failed: connect timed out", Temporary, true),
    ("java.lang.RuntimeException", "java.net.SocketTimeoutException: Read timed out", Temporary, true),
    ("java.util.concurrent.ExecutionException", "software.amazon.awssdk.services.kms.model.ThrottlingException: x (Service: Kms, Status Code: 400)", RateLimit, false),
    ("java.lang.RuntimeException", "com.example.ValidationException: no id", NonRetryable, false),
    ("java.lang.RuntimeException", "the ledger said FareValidationError", Temporary, false),
    ("org.springframework.web.client.HttpClientErrorException", "429 Too Many Requests: [no body]", RateLimit, false),
    ("org.springframework.web.client.HttpClientErrorException$Conflict", "409 Conflict: \"x\"", NonRetryable, false),
    ("io.grpc.StatusRuntimeException", "UNAVAILABLE: io exception", Temporary, true),
    ("io.grpc.StatusRuntimeException", "NOT_FOUND: no such order", NonRetryable, false),
    ("io.grpc.StatusRuntimeException", "DEADLINE_EXCEEDED: deadline exceeded after 4.9s", Temporary, true),
    ("com.fasterxml.jackson.core.JsonParseException", "Unexpected character ('<' (code 60)): expected a valid value (JSON String, Number)\n at [Source: (String)\"<html>\"; line: 1, column: 2]", Temporary, false),
    ("com.fasterxml.jackson.core.JsonParseException", "Unexpected character ('x' (code 120)): was expecting double-quote", NonRetryable, false),
    ("HttpRequestException", "Response status code does not indicate success: 429 (Too Many Requests).", RateLimit, false),
    ("HttpRequestException", "Response status code does not indicate success: 507 (Insufficient Storage).", Quota, false),
    ("HttpRequestException", "Connection refused (127.0.0.1:9)", Temporary, true),
    ("HttpRequestException", "The SSL connection could not be established, see inner exception.", Temporary, true),
    ("AuthenticationException", "The remote certificate is invalid because of errors in the certificate chain: UntrustedRoot", Temporary, true),
    ("RpcException", "Status(StatusCode=\"Unavailable\", Detail=\"Error connecting to subchannel.\")", Temporary, true),
    ("RpcException", "Status(StatusCode=\"InvalidArgument\", Detail=\"x\")", NonRetryable, false),
    ("RequestFailedException", "Too many\nStatus: 429 (Too Many Requests)\nErrorCode: TooManyRequests\n", RateLimit, false),
    ("Function<Net::HTTPClientException>", "404 \"Not Found\"", NonRetryable, false),
    ("Function<Net::HTTPFatalError>", "503 \"Service Unavailable\"", Temporary, true),
    ("*url.Error", "Get \"https://x\": dial tcp 10.0.0.1:443: connect: connection refused", Temporary, true),
    ("OpError", "dial tcp: lookup api.example.com: no such host", Temporary, true),
    ("deadlineExceededError", "context deadline exceeded", Temporary, true),
    ("errorString", "rpc error: code = ResourceExhausted desc = x", RateLimit, false),
    ("Error", "rpc error: code = PermissionDenied desc = x", NonRetryable, false),
    ("OperationError", "operation error DynamoDB: PutItem, https response error StatusCode: 400, RequestID: X, ProvisionedThroughputExceededException: The level", RateLimit, false),
    ("OperationError", "operation error S3: GetObject, https response error StatusCode: 503, RequestID: X, api error SlowDown: Please reduce your request rate.", RateLimit, false),
    ("OperationError", "operation error S3: GetObject, https response error StatusCode: 404, RequestID: X, api error NoSuchKey: x", NonRetryable, false),
];

#[rustfmt::skip]
const WEIGHED: &[Printed] = &[
    // BigQuery, Octokit, QuickBooks, ECS, gRPC, Salesforce, RDS Data, Athena, CloudFormation, Elasticsearch, MySQL
    ("google.api_core.exceptions.Forbidden", "403 Exceeded rate limits: too many table update operations for this table; reason: rateLimitExceeded, location: table.write", RateLimit, false),
    ("google.api_core.exceptions.Forbidden", "403 POST https://bigquery.googleapis.com/x: Exceeded rate limits: too many api requests per user per method", RateLimit, false),
    ("google.api_core.exceptions.Forbidden", "403 Quota exceeded: Your project exceeded quota for free query bytes scanned.", Quota, false),
    ("Function<Google::Cloud::PermissionDeniedError>", "rateLimitExceeded: Exceeded rate limits: too many table update operations for this table", RateLimit, false),
    ("Octokit.ForbiddenException", "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.", RateLimit, false),
    ("Function<Quickbooks::Forbidden>", "message=ThrottleExceeded; errorCode=003001; statusCode=403: The request limit was reached.  Try again later", RateLimit, false),
    ("InvalidParameterException", "An error occurred (InvalidParameterException) when calling the RunTask operation: Error retrieving subnet information for [subnet-1]: Request limit exceeded. (ErrorCode: RequestLimitExceeded)", RateLimit, false),
    ("InvalidParameterException", "An error occurred (InvalidParameterException) when calling the RunTask operation: Error retrieving security group information for [sg-1]: Rate exceeded (ErrorCode: Throttling)", RateLimit, false),
    ("AccessDeniedException", "An error occurred (AccessDeniedException) when calling the InvokeModel operation: Rate exceeded", RateLimit, false),
    ("Error", "7 PERMISSION_DENIED: Quota exceeded for quota metric 'Requests' and limit 'Requests per minute' of service 'x'", RateLimit, false),
    ("google.api_core.exceptions.PermissionDenied", "403 Quota exceeded for quota metric 'Publisher throughput'", RateLimit, false),
    ("SalesforceMalformedRequest", "Malformed request https://x. Response content: [{'message': 'unable to obtain exclusive access to this record', 'errorCode': 'UNABLE_TO_LOCK_ROW', 'fields': []}]", Temporary, false),
    ("BadRequestException", "An error occurred (BadRequestException) when calling the ExecuteStatement operation: Communications link failure\n\nThe last packet sent successfully to the server was 0 milliseconds ago.", Temporary, true),
    ("google.api_core.exceptions.BadRequest", "400 Could not serialize access to table p:d.t due to concurrent update; reason: invalidQuery, location: query", Temporary, false),
    ("InvalidRequestException", "An error occurred (InvalidRequestException) when calling the GetQueryResults operation: Query has not yet finished. Current state: RUNNING", Temporary, false),
    ("ClientError", "An error occurred (ValidationError) when calling the UpdateStack operation: Stack:arn:aws:cloudformation:x is in UPDATE_IN_PROGRESS state and can not be updated.", Temporary, false),
    ("opensearchpy.exceptions.AuthorizationException", "AuthorizationException(403, 'cluster_block_exception', 'index [x] blocked by: [FORBIDDEN/12/index read-only / allow delete (api)];')", Temporary, false),
    ("java.sql.SQLSyntaxErrorException", "User 'app' has exceeded the 'max_user_connections' resource (current value: 10)", Temporary, false),
    ("java.sql.SQLSyntaxErrorException", "User 'app' has exceeded the 'max_questions' resource (current value: 10)", RateLimit, false),
    ("com.plaid.ApiException", "Status Code: 400\nReason: Bad Request\nHTTP response body: {\n  \"error_code\": \"INSTITUTION_DOWN\"}", Temporary, true),
    // The same names without a limit, and validators, which quote the data
    ("ForbiddenException", "You are not allowed to change the rate limit", NonRetryable, false),
    ("Error", "3 INVALID_ARGUMENT: rate limit must be positive", NonRetryable, false),
    ("openai.BadRequestError", "Error code: 400 - {'error': {'message': \"'rate limit exceeded, too many requests' is too long\", 'type': 'invalid_request_error'}}", NonRetryable, false),
    ("openai.BadRequestError", "Error code: 400 - {'error': {'message': \"Invalid value: 'in_progress'\", 'type': 'invalid_request_error', 'code': 'invalid_value'}}", NonRetryable, false),
    ("openai.UnprocessableEntityError", "422: name must not contain 'too many requests'", NonRetryable, false),
    ("openai.NotFoundError", "Error code: 404 - {'error': 'no model rate limit exceeded'}", NonRetryable, false),
    ("google.api_core.exceptions.BadRequest", "400 Invalid query: deadlock", NonRetryable, false),
    ("ValidationError", "1 validation error for O\nmsg\n  too long [type=string_too_long, input_value='deadlock detected, too many connections, quota exceeded', input_type=str]", NonRetryable, false),
    ("ZodError", "[{\"message\": \"rate limit exceeded\"}]", NonRetryable, false),
    ("jsonschema.exceptions.ValidationError", "'rateLimitExceeded' is not one of ['a']", NonRetryable, false),
    // gspread, googleapiclient, the Go client, google-genai
    ("gspread.exceptions.APIError", "APIError: [429]: Quota exceeded for quota metric 'Read requests' and limit 'Read requests per minute per user' of service 'sheets.googleapis.com'.", RateLimit, false),
    ("googleapiclient.errors.HttpError", "<HttpError 403 when requesting https://x returned \"Quota exceeded for quota metric 'Queries' and limit 'Queries per minute per user'\". Details: \"Quota exceeded\">", RateLimit, false),
    ("Error", "googleapi: Error 403: Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service 'compute.googleapis.com'.", RateLimit, false),
    ("Error", "Google API error - [429] Quota exceeded for quota group 'ReadGroup' and limit 'Read requests per user per 100 seconds'.", RateLimit, false),
    ("ClientError", "429 RESOURCE_EXHAUSTED. {'error': {'message': 'You exceeded your current quota', 'details': [{'violations': [{'quotaId': 'GenerateRequestsPerMinutePerProjectPerModel-FreeTier'}]}]}}", RateLimit, false),
    ("ClientError", "429 RESOURCE_EXHAUSTED. {'error': {'message': 'You exceeded your current quota', 'details': [{'violations': [{'quotaId': 'GenerateRequestsPerDayPerProjectPerModel-FreeTier'}]}]}}", Quota, false),
    // smtplib, JavaMail, Spring, Net::SMTP, nodemailer, net/textproto, System.Net.Mail
    ("smtplib.SMTPAuthenticationError", "(454, b'4.7.0 Too many login attempts, please try again later. b4-x - gsmtp')", Temporary, false),
    ("javax.mail.AuthenticationFailedException", "454 4.7.0 Too many login attempts, please try again later. l204 - gsmtp", Temporary, false),
    ("org.springframework.mail.MailAuthenticationException", "Authentication failed; nested exception is javax.mail.AuthenticationFailedException: 454 4.7.0 Too many login attempts", Temporary, false),
    ("Error", "Invalid login: 454 4.7.0 Too many login attempts, please try again later.", Temporary, false),
    ("com.sun.mail.smtp.SMTPSendFailedException", "450 Requested mail action not taken: mailbox unavailable", Temporary, false),
    ("javax.mail.MessagingException", "452 Insufficient system storage", Temporary, false),
    ("Error", "SMTP Error (451): Failed to add recipient (Temporary local problem - please try later)", Temporary, false),
    ("Function<Net::SMTPUnknownError>", "could not get 3xx (421: 421 Domain is not allowed to send: recipient limit exceeded, try again after Sun, 05 Oct 2025 19:22:44 UTC )", Temporary, false),
    ("textproto.Error", "452 4.2.2 The email account that you tried to reach is over quota", Temporary, false),
    ("smtplib.SMTPRecipientsRefused", "{'a@example.com': (450, b'4.2.1 The user is receiving mail too quickly')}", Temporary, false),
    ("smtplib.SMTPRecipientsRefused", "{'a@example.com': (550, b'5.1.1 User unknown')}", NonRetryable, false),
    ("smtplib.SMTPSenderRefused", "(552, b'5.3.4 Message too big', 'a@example.com')", NonRetryable, false),
    ("Function<Net::SMTPFatalError>", "550 5.1.1 The email account that you tried to reach does not exist.", NonRetryable, false),
    ("System.Net.Mail.SmtpException", "Mailbox unavailable. The server response was: 5.7.1 relay denied", NonRetryable, false),
    ("Error", "Message failed: 550 5.4.6 User x has exceeded its 24-hour sending limit.", Quota, false),
    ("HTTPError", "503 Server Error: Service Unavailable for url: https://api.example.com/v3/smtp/email", Temporary, true),
    // ClickHouse, MongoDB
    ("ServerException", "Code: 439.\nDB::Exception: Cannot schedule a task: no free thread (timeout=0) (threads=10000, jobs=10000). Stack trace:", Temporary, false),
    ("ServerException", "Code: 319.\nDB::Exception: Unknown status, client must retry. Stack trace:", Temporary, false),
    ("ServerException", "Code: 473. DB::Exception: READ locking attempt on \"db.t\" has timed out! (120000ms) Possible deadlock avoided. Client should retry.. (DEADLOCK_AVOIDED)", Temporary, false),
    ("DatabaseError", "Code: 516. DB::Exception: default: Authentication failed: password is incorrect", NonRetryable, false),
    ("DatabaseError", "Code: 404. DB::Exception: x", Temporary, false),
    ("MongoServerError", "Command failed with error 391 (ReauthenticationRequired): 'x'", Temporary, false),
    // requests, urllib3, ofetch, Cosmos DB
    ("urllib3.exceptions.MaxRetryError", "HTTPSConnectionPool(host='x', port=443): Max retries exceeded with url: /v1 (Caused by ResponseError('too many 429 error responses'))", RateLimit, false),
    ("requests.exceptions.RetryError", "HTTPSConnectionPool(host='x', port=443): Max retries exceeded with url: /v1 (Caused by ResponseError('too many 429 error responses'))", RateLimit, false),
    ("requests.exceptions.RetryError", "HTTPSConnectionPool(host='x', port=443): Max retries exceeded with url: /v1 (Caused by ResponseError('too many 503 error responses'))", Temporary, true),
    ("FetchError", "[POST] \"https://api.example.com/orders\": 422 Unprocessable Entity", NonRetryable, false),
    ("FetchError", "[POST] \"https://api.example.com/orders\": 429 Too Many Requests", RateLimit, false),
    ("FetchError", "[POST] \"https://api.example.com/orders\": <no response> fetch failed", Temporary, true),
    ("CosmosException", "Response status code does not indicate success: TooManyRequests (429); Substatus: 3200; ActivityId: x; Reason: ();", RateLimit, false),
    ("CosmosException", "Response status code does not indicate success: Conflict (409); Substatus: 0; ActivityId: x; Reason: ();", NonRetryable, false),
    ("ApiException", "(404)\nReason: Not Found\nHTTP response headers: HTTPHeaderDict({})", NonRetryable, false),
    // DynamoDB, by the reason of each item
    ("TransactionCanceledException", "An error occurred (TransactionCanceledException) when calling the TransactWriteItems operation: Transaction cancelled, please refer cancellation reasons for specific reasons [ConditionalCheckFailed, None]", NonRetryable, false),
    ("software.amazon.awssdk.services.dynamodb.model.TransactionCanceledException", "Transaction cancelled, please refer cancellation reasons for specific reasons [None, ValidationError] (Service: DynamoDb, Status Code: 400, Request ID: 1b-2)", NonRetryable, false),
    ("TransactionCanceledException", "Transaction cancelled, please refer cancellation reasons for specific reasons [DuplicateItem, ThrottlingError]", NonRetryable, false),
    ("TransactionCanceledException", "Transaction cancelled, please refer cancellation reasons for specific reasons [ThrottlingError]", RateLimit, false),
    ("TransactionCanceledException", "Transaction cancelled, please refer cancellation reasons for specific reasons [TransactionConflict, ProvisionedThroughputExceeded]", RateLimit, false),
    ("wrapError", "put: operation error DynamoDB: TransactWriteItems, https response error StatusCode: 400, RequestID: X, TransactionCanceledException: Transaction cancelled, please refer cancellation reasons for specific reasons [TransactionConflict]", Temporary, false),
    // AWS: its clock; one error in each language
    ("InvalidSignatureException", "Signature expired: 20240101T000000Z is now earlier than 20240101T000500Z (20240101T001000Z - 5 min.)", Temporary, false),
    ("ClientError", "An error occurred (SignatureDoesNotMatch) when calling the SendEmail operation: Signature not yet current: 20240101T000000Z is still later than 20231231T000500Z", Temporary, false),
    ("InvalidSignatureException", "The request signature we calculated does not match the signature you provided.", NonRetryable, false),
    ("software.amazon.awssdk.services.glue.model.ConcurrentRunsExceededException", "Concurrent runs exceeded for job-x (Service: Glue, Status Code: 400, Request ID: 1)", RateLimit, false),
    ("software.amazon.awssdk.services.sfn.model.ExecutionLimitExceededException", "The maximum number of running executions has been reached. (Service: Sfn, Status Code: 400, Request ID: 1)", RateLimit, false),
    ("OperationError", "operation error SFN: StartExecution, https response error StatusCode: 400, RequestID: X, ExecutionLimitExceeded: The maximum number of running executions has been reached.", RateLimit, false),
    ("software.amazon.awssdk.services.route53.model.PriorRequestNotCompleteException", "The request was rejected because Route 53 was still processing a prior request. (Service: Route53, Status Code: 400, Request ID: 1)", RateLimit, false),
    ("software.amazon.awssdk.services.lambda.model.ResourceConflictException", "The operation cannot be performed at this time. An update is in progress for resource: x (Service: Lambda, Status Code: 409, Request ID: 1)", Temporary, false),
    ("software.amazon.awssdk.services.lambda.model.ResourceConflictException", "Function already exist: f (Service: Lambda, Status Code: 409, Request ID: 1)", NonRetryable, false),
    ("software.amazon.awssdk.services.s3.model.S3Exception", "A conflicting conditional operation is currently in progress against this resource. Please try again. (Service: S3, Status Code: 409, Request ID: 1)", Temporary, false),
    ("OperationError", "operation error S3: PutObject, https response error StatusCode: 409, RequestID: x, HostID: y, api error ConditionalRequestConflict: The conditional request cannot succeed due to a conflicting operation against this resource.", Temporary, false),
    ("OperationError", "operation error S3: PutObject, https response error StatusCode: 409, RequestID: x, api error OperationAborted: A conflicting conditional operation", Temporary, false),
    ("software.amazon.awssdk.services.rdsdata.model.DatabaseResumingException", "The Aurora DB instance is resuming after being auto-paused. (Service: RdsData, Status Code: 400, Request ID: 1)", Temporary, false),
    ("software.amazon.awssdk.services.glue.model.CrawlerRunningException", "Crawler with name x has already started (Service: Glue, Status Code: 400, Request ID: 1)", Temporary, false),
    ("software.amazon.awssdk.services.glue.model.CrawlerNotRunningException", "x (Service: Glue, Status Code: 400, Request ID: 1)", NonRetryable, false),
    ("software.amazon.awssdk.services.ssm.model.TooManyUpdatesException", "There are concurrent updates for a resource (Service: Ssm, Status Code: 400, Request ID: x)", RateLimit, false),
    ("software.amazon.awssdk.services.sqs.model.PurgeQueueInProgressException", "Only one PurgeQueue operation on q is allowed every 60 seconds. (Service: Sqs, Status Code: 403, Request ID: 1)", Temporary, false),
    ("OperationError", "operation error EC2: DeleteSecurityGroup, https response error StatusCode: 400, RequestID: 1b-2, api error DependencyViolation: resource sg-1 has a dependent object", Temporary, false),
    ("ClientError", "An error occurred (TextSizeLimitExceededException) when calling the DetectEntities operation: Input text size exceeds limit.", NonRetryable, false),
    // Java NIO, .NET
    ("java.nio.file.AccessDeniedException", "/var/task/cache/x", Temporary, false),
    ("java.nio.file.AccessDeniedException", "/tmp/a b -> /tmp/c: Operation not permitted", Temporary, false),
    ("UnauthorizedAccessException", "Access to the path '/var/task/x' is denied.", Temporary, false),
    ("AccessDeniedException", "Access Denied (Service: S3, Status Code: 403, Request ID: 1)", NonRetryable, false),
    // SQLAlchemy, MySQL, psycopg, JPA
    ("InvalidRequestError", "This Session's transaction has been rolled back due to a previous exception during flush. To begin a new transaction with this Session, first issue Session.rollback().", Temporary, false),
    ("InvalidRequestError", "Can't reconnect until invalid transaction is rolled back", Temporary, false),
    ("ProgrammingError", "2055: Cursor is not connected", Temporary, false),
    ("ProgrammingError", "(psycopg2.errors.UndefinedTable) relation \"x\" does not exist", NonRetryable, false),
    ("org.springframework.dao.InvalidDataAccessApiUsageException", "EntityManager is closed", Temporary, false),
    ("BadRequestException", "the customer wrote: I lost connection to my ISP", NonRetryable, false),
    // Twilio, Salesforce, jsforce, Slack, SNS, SES, Entity Framework, Prisma, MongoDB, EC2
    ("TwilioRestException", "HTTP 400 error: Unable to create record: This 'From' number has exceeded the maximum number of queued messages", RateLimit, false),
    ("Function<Twilio::REST::RestError>", "[HTTP 400] 21611 : Unable to create record\nThis 'From' number has exceeded the maximum number of queued messages", RateLimit, false),
    ("SalesforceRefusedRequest", "Request refused for https://x. Response content: [{'message': 'TotalRequests Limit exceeded.', 'errorCode': 'REQUEST_LIMIT_EXCEEDED'}]", Quota, false),
    ("com.sforce.ws.SoapFaultException", "REQUEST_LIMIT_EXCEEDED: TotalRequests Limit exceeded.", Quota, false),
    ("REQUEST_LIMIT_EXCEEDED", "ConcurrentRequests (Concurrent API Requests) Limit exceeded.", RateLimit, false),
    ("ERROR_HTTP_429", "x", RateLimit, false),
    ("ERROR_HTTP_503", "<html>", Temporary, true),
    ("SlackApiError", "The request to the Slack API failed. (url: https://www.slack.com/api/chat.postMessage)\nThe server responded with: {'ok': False, 'error': 'channel_not_found'}", NonRetryable, false),
    ("Error", "An API error occurred: channel_not_found", NonRetryable, false),
    ("Function<Slack::Web::Api::Errors::NotAuthed>", "not_authed", NonRetryable, false),
    ("EndpointDisabledException", "An error occurred (EndpointDisabled) when calling the Publish operation: Endpoint is disabled", NonRetryable, false),
    ("MessageRejected", "An error occurred (MessageRejected) when calling the SendEmail operation: Email address is not verified.", NonRetryable, false),
    ("SqlException", "Violation of UNIQUE KEY constraint 'UQ'. Cannot insert duplicate key in object 'dbo.X'.", NonRetryable, false),
    ("PrismaClientKnownRequestError", "\nInvalid `prisma.o.create()` invocation:\n\n\nUnique constraint failed on the fields: (`id`)", NonRetryable, false),
    ("mandrill.InvalidKeyError", "Invalid API key", NonRetryable, false),
    ("MongoServerError", "you are over your space quota, using 512 MB of 512 MB", Quota, false),
    ("ClientError", "An error occurred (VcpuLimitExceeded) when calling the RunInstances operation: You have requested more vCPU capacity than your current vCPU limit of 32 allows", Quota, false),
];

#[test]
fn a_message_says_what_its_wrapper_does_not() {
    let mut wrong = Vec::new();
    for (error_type, message, class, is_down) in
        [PYTHON, NODE, OTHERS, WEIGHED].into_iter().flatten()
    {
        let failure = of(error_type, message);
        if (failure.class(), failure.is_service_down()) != (*class, *is_down) {
            let down = failure.is_service_down();
            wrong.push(format!("{error_type} {message:.90}: {failure}, down {down}, not {class}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn the_page_has_the_evidence_of_an_exception() {
    let (_, section) =
        PAGE.split_once("\n## An exception of a function\n").expect("the page has it");
    let section = section.split("\n## ").next().unwrap_or_default();
    let quoted = |text: &'static str| text.split('`').skip(1).step_by(2);
    let mut count = 0;
    for row in section.lines().filter(|row| row.contains(" | `")) {
        let (evidence, classes) = row.rsplit_once(" | ").expect("a row has two cells");
        let classes: Vec<&str> = quoted(classes).collect();
        for word in quoted(evidence).filter(|word| !classes.contains(word) && *word != "temporary")
        {
            count += 1;
            let told = word.trim_end_matches([' ', '…']);
            let named = [told, &format!("{told}Exception")].map(|name| of(name, ""));
            // A limit and trouble that passes come before a name that refuses.
            let by_words = [of("Forbidden", told), of("Error", told)];
            let is_it = |failure: &Failure| classes.contains(&failure.class().as_str());
            assert!(named.iter().chain(&by_words).any(is_it), "{word} is not {classes:?}");
        }
    }
    assert!(count >= 30, "{count}");
}

#[test]
fn the_detail_has_the_name_and_never_the_message() {
    for (error_type, detail) in [
        ("a.b.BankClosed", "unrecognised: BankClosed"),
        ("A$Fare", "unrecognised: Fare"),
        ("Function<Bank::Closed>", "unrecognised: Closed"),
        ("App\\Validation\\Closed", "unrecognised: Closed"),
        ("Function<Authorization::Closed>", "unrecognised: Closed"),
        ("com.example.Validation$Closed", "unrecognised: Closed"),
        ("Dear Ann", "unrecognised error"),
        ("e0b6f1bd48d2f4b589d2a5f1c9c1f0a1", "unrecognised error"),
        ("httpx.ReadTimeout", "timed out: ReadTimeout"),
        ("Ann's 49 1701234567 Timeout", "timed out"),
    ] {
        let failure = of(error_type, "a secret");
        assert_eq!(failure.detail(), detail, "{error_type}");
        assert!(!format!("{failure:?}").contains("secret"));
    }
    let exception = Exception::new("BankClosed", "a secret");
    assert!(!format!("{exception:?}").contains("secret"));
}

#[test]
fn a_cause_says_what_its_effect_does_not() {
    let cause = Exception::new("SocketException", "Connection refused");
    let middle = Exception::new("HttpRequestException", "see inner exception").caused_by(cause);
    let failure =
        Failure::from_exception(&Exception::new("AggregateException", "x").caused_by(middle));
    assert_eq!((failure.class(), failure.is_service_down()), (Temporary, true));
}

#[test]
fn the_users_rules_come_before_the_table() {
    let rules: Rules = r#"{"rules": [
        {"match": {"code": "BankClosed"}, "class": "RATE_LIMIT", "delaySeconds": 60},
        {"match": {"code": "SlowDown"}, "class": "QUOTA"},
        {"match": {"code": "BankOpen"}, "class": "RATE_LIMIT"},
        {"match": {"code": "UNAVAILABLE"}, "class": "NON_RETRYABLE"},
        {"match": {"code": "TimeoutError", "words": "final"}, "class": "NON_RETRYABLE"}
    ]}"#
    .parse()
    .expect("rules");
    let by_rules = |error_type: &str, message: &str| rules.within(|| of(error_type, message));
    for error_type in [
        "BankClosed",
        "com.example.BankClosed",
        "Api$BankClosed",
        "Function<Api::BankClosed>",
        "a/BankClosed",
        "App\\Exceptions\\BankClosed",
    ] {
        let failure = by_rules(error_type, "");
        assert_eq!(failure.class(), RateLimit, "{error_type}");
        assert_eq!(failure.delay(), Some(Duration::from_secs(60)));
    }
    let slow = "An error occurred (SlowDown) when calling the PutObject operation: x";
    assert_eq!(by_rules("ClientError", slow).class(), Quota);
    assert_eq!(by_rules("StatusRuntimeException", "UNAVAILABLE: x").class(), NonRetryable);
    assert_eq!(by_rules("TimeoutError", "final").class(), NonRetryable);
    assert_eq!(by_rules("TimeoutError", "timed out").class(), Temporary);
    assert!(by_rules("TimeoutError", "final").is_in_doubt());
    let long = by_rules("BankOpen", "status code 429, retry after 86400");
    assert_eq!((long.class(), long.delay()), (RateLimit, Some(Duration::from_hours(24))));
}

proptest! {
    #[test]
    fn any_type_and_message_are_survived(error_type in "\\PC{0,40}", message in "(?s).{0,80}") {
        let failure = of(&error_type, &message);
        prop_assert!(failure.detail().chars().count() <= 128);
    }
}

#[test]
fn a_limit_is_that_of_its_time() {
    const METRIC: &str = "<HttpError 403 when requesting https://gmail.googleapis.com/ returned \"Quota exceeded for quota metric 'Queries' and limit 'Queries per minute per user' of service 'gmail.googleapis.com'\". Details: \"[{'reason': 'rateLimitExceeded'}]\">";
    for (error_type, message, class) in [
        ("googleapiclient.errors.HttpError", METRIC, RateLimit),
        (
            "googleapiclient.errors.HttpError",
            &METRIC.replace("minute per user", "day").replace("rateLimitExceeded", "x"),
            Quota,
        ),
        (
            "botocore.errorfactory.ThrottlingException",
            "An error occurred (ThrottlingException) when calling the InvokeModel operation: Too many tokens per day, please wait before trying again.",
            Quota,
        ),
        (
            "botocore.errorfactory.ThrottlingException",
            "An error occurred (ThrottlingException) when calling the InvokeModel operation: Too many tokens, please wait before trying again.",
            RateLimit,
        ),
        ("openai.RateLimitError", "Error code: 429 - You exceeded your current quota", Quota),
        ("RateLimitError", "Requests per minute of your daily plan are used up", RateLimit),
    ] {
        assert_eq!(of(error_type, message).class(), class, "{message}");
    }
}

#[test]
fn a_status_in_the_call_of_a_type_says_more_than_its_name() {
    for (error_type, message, class, detail) in [
        (
            "elasticsearch.exceptions.TransportError",
            "TransportError(429, 'es_rejected_execution_exception', 'rejected execution')",
            RateLimit,
            "status 429",
        ),
        (
            "opensearchpy.exceptions.TransportError",
            "TransportError(503, 'x')",
            Temporary,
            "status 503",
        ),
        (
            "elasticsearch.ApiError",
            "ApiError(429, 'circuit_breaking_exception')",
            RateLimit,
            "status 429",
        ),
        (
            "elasticsearch.exceptions.TransportError",
            "TransportError('N/A', 'Connection refused')",
            Temporary,
            "service not reached: TransportError",
        ),
        (
            "elasticsearch.exceptions.RequestError",
            "RequestError(400, 'mapper_parsing_exception', 'failed to parse')",
            NonRetryable,
            "status 400",
        ),
        ("OrderError", "OrderError(429 items)", Temporary, "unrecognised: OrderError"),
    ] {
        let failure = of(error_type, message);
        assert_eq!((failure.class(), failure.detail()), (class, detail), "{message}");
    }
}

#[test]
fn a_key_whose_first_request_still_runs_is_in_doubt() {
    const STRIPE: &str = "There is currently another in-progress request using this Idempotent Key (that probably means you submitted twice, and the other request is still going through): k";
    for (error_type, message, class) in [
        ("stripe.error.IdempotencyError", STRIPE, Temporary),
        ("StripeIdempotencyError", STRIPE, Temporary),
        (
            "IdempotencyAlreadyInProgressError",
            "Execution already in progress with idempotency key: f#1",
            Temporary,
        ),
        (
            "software.amazon.lambda.powertools.idempotency.exceptions.IdempotencyAlreadyInProgressException",
            "",
            Temporary,
        ),
        (
            "stripe.error.IdempotencyError",
            "Keys for idempotent requests can only be used with the same parameters they were first used with.",
            NonRetryable,
        ),
    ] {
        let failure = of(error_type, message);
        assert_eq!(failure.class(), class, "{message}");
        assert_eq!(failure.is_in_doubt(), class == Temporary, "{message}");
        assert!(!failure.is_service_down(), "{message}");
    }
}

#[test]
fn a_record_of_powertools_that_was_not_saved_has_the_class_of_its_cause() {
    const LAYER: &str =
        "aws_lambda_powertools.utilities.idempotency.exceptions.IdempotencyPersistenceLayerError";
    for (cause, class, detail) in [
        (
            "An error occurred (ThrottlingException) when calling the PutItem operation: slow",
            RateLimit,
            "throttled: ThrottlingException",
        ),
        (
            "An error occurred (AccessDeniedException) when calling the PutItem operation: no",
            NonRetryable,
            "access denied: AccessDeniedException",
        ),
        (
            "Could not connect to the endpoint URL: \"https://dynamodb/\"",
            Temporary,
            "service not reached",
        ),
    ] {
        for record in
            ["save in progress record to", "update success record to", "delete error record from"]
        {
            let failure = of(LAYER, &format!("Failed to {record} idempotency store - ({cause})"));
            assert_eq!((failure.class(), failure.detail()), (class, detail), "{record}: {cause}");
            assert!(!failure.is_in_doubt(), "{record}: {cause}");
        }
    }
}

#[test]
fn a_delay_in_the_message_counts_for_limits_and_statuses() {
    let nothing = (Temporary, None);
    for (error_type, message, (class, delay)) in [
        ("Error", "status code 503, retry after 20", (Temporary, Some(20_000))),
        ("BankException", "bank responded 503, Retry-After: 20", (Temporary, Some(20_000))),
        ("Error", "status code 429, retry after 20", (RateLimit, Some(20_000))),
        ("Error", "status code 503, retry after undefined", nothing),
        ("Error", "status code 503, retry after ", nothing),
        ("Error", "status code 503, retry after 0", (Temporary, Some(0))),
        (
            "openai.RateLimitError",
            "Error code: 429 - {'error': {'message': 'Rate limit reached for gpt-4o on tokens per \
             min (TPM): Limit 30000. Please try again in 1.2s.', 'code': 'rate_limit_exceeded'}}",
            (RateLimit, Some(1_200)),
        ),
        // The client's own plan.
        ("ConnectionError", "connection lost, will retry in 30s", nothing),
        ("InvalidOrder", "status code 422, retry after 20", (NonRetryable, None)),
        // A limit that lasts for longer than 12 h: OpenAI for Python, the AI SDK, Django REST framework,
        // Stack Exchange, Codex
        (
            "openai.RateLimitError",
            "Error code: 429 - {'error': {'code': '429', 'message': 'Requests to the \
             Embeddings_Create Operation under Azure OpenAI API version 2023-05-15 have exceeded \
             call rate limit of your current OpenAI S0 pricing tier. Please retry after 86400 \
             seconds. Please go here: https://aka.ms/oai/quotaincrease'}}",
            (Quota, Some(86_400_000)),
        ),
        (
            "AI_APICallError",
            "Requests have exceeded token rate limit. Please retry after 86400 seconds.",
            (Quota, Some(86_400_000)),
        ),
        (
            "Throttled",
            "Request was throttled. Expected available in 86399 seconds.",
            (Quota, Some(86_399_000)),
        ),
        (
            "Error",
            "429: too many requests, more requests available in 82216 seconds",
            (Quota, Some(82_216_000)),
        ),
        (
            "Error",
            "status code 429: usage limit reached. Try again in 4 days 13 hours.",
            (Quota, Some(392_400_000)),
        ),
        ("Error", "status code 429, retry after 43200", (RateLimit, Some(43_200_000))),
        ("Error", "status code 503, retry after 86400", (Temporary, Some(86_400_000))),
        (
            "Azure.RequestFailedException",
            "Too many requests. Retry after 60000 ms.\nStatus: 429 (Too Many Requests)",
            (RateLimit, Some(60_000)),
        ),
    ] {
        let failure = Failure::from_exception(&Exception::new(error_type, message));
        let found = failure.delay().map(|delay| delay.as_millis());
        assert_eq!((failure.class(), found), (class, delay), "{message}");
    }
    let now = jiff::Timestamp::try_from(crate::clock::Clock::system().now()).expect("a time");
    let later = (now + Duration::from_mins(1)).strftime("%a, %d %b %Y %H:%M:%S GMT");
    let message = format!("status code 429, retry after {later}");
    let failure = Failure::from_exception(&Exception::new("Error", message.as_str()));
    let delay = failure.delay().expect("a delay").as_secs();
    assert!((50..=60).contains(&delay), "{failure:?}");
}
