//! Exceptions that look final and pass, and the other way round, each with its public source.

use super::*;
use crate::classify::Exception;

/// Source, the chain of types and messages with the outermost first, class.
type Thrown = (&'static str, &'static [(&'static str, &'static str)], FailureClass);

#[rustfmt::skip]
const THROWN: &[Thrown] = &[
    ("anthropic-sdk-python: credit balance", &[("anthropic.BadRequestError", "Error code: 400 - {'type': 'error', 'error': {'type': 'invalid_request_error', 'message': 'Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.'}}")], Quota),
    ("anthropic-sdk-typescript: spend limits", &[("BadRequestError", "400 {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"You have reached your specified API usage limits. You will regain access on 2026-04-01 at 00:00 UTC.\"}}")], Quota),
    ("DeepSeek API, Error codes", &[("APIStatusError", "Error code: 402 - {'error': {'message': 'Insufficient Balance', 'type': 'unknown_error', 'param': None, 'code': 'invalid_request_error'}}")], Quota),
    ("DeepSeek API, Error codes", &[("Error", "402 Insufficient Balance")], Quota),
    ("huggingface_hub: 402", &[("HfHubHTTPError", "402 Client Error: Payment Required for url: https://router.huggingface.co/x (Request ID: Root=1-67) You have exceeded your monthly included credits for Inference Providers. Subscribe to PRO")], Quota),
    ("Neon, Plans: compute time", &[("NeonDbError", "Your account or project has exceeded the compute time quota. Upgrade your plan to increase limits.")], Quota),
    ("Snowflake, Resource monitors", &[("snowflake.connector.errors.ProgrammingError", "090073 (22000): Warehouse 'COMPUTE_WH' cannot be resumed because resource monitor 'DAILY_SHUTDOWN' has exceeded its quota.")], Quota),
    ("OpenAI, Rate limits: tokens of a minute", &[("RateLimitError", "Error code: 429 - {'error': {'message': 'Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 45000. The input or output tokens must be reduced in order to run successfully.', 'type': 'tokens', 'code': 'rate_limit_exceeded'}}")], NonRetryable),
    ("stripe-python, CardError", &[("stripe.error.CardError", "Your card has been declined too many times. You can try to charge this card again after 24 hours.")], NonRetryable),
    ("Snowflake connector: 390114", &[("snowflake.connector.errors.ProgrammingError", "390114 (08001): Authentication token has expired.  The user must authenticate again.")], Temporary),
    ("Snowflake connector: 000630", &[("snowflake.connector.errors.ProgrammingError", "000630 (57014): 01a: Statement reached its statement or warehouse timeout of 60 second(s) and was canceled.")], Temporary),
    ("Snowflake connector: 000603", &[("snowflake.connector.errors.ProgrammingError", "000603 (XX000): SQL execution internal error: Processing aborted by error 300010:391167117; incident 1234567.")], Temporary),
    ("Azure SQL, Transient errors: 40613", &[("pyodbc.ProgrammingError", "('42000', \"[42000] [Microsoft][ODBC Driver 17 for SQL Server][SQL Server]Database 'db' on server 'srv' is not currently available.  Please retry the connection later.  If the problem persists, contact customer support (40613) (SQLDriverConnect)\")")], Temporary),
    ("Azure SQL, Transient errors: 10928", &[("pyodbc.ProgrammingError", "('42000', '[42000] [Microsoft][ODBC Driver 17 for SQL Server][SQL Server]Resource ID : 1. The request limit for the database is 90 and has been reached. (10928)')")], Temporary),
    ("redshift_connector: serializable isolation", &[("redshift_connector.error.ProgrammingError", "{'S': 'ERROR', 'C': 'XX000', 'M': '1023', 'D': 'Serializable isolation violation on table - 37521601, transactions forming the cycle are: 573354047', 'F': '../src/pg/src/backend/x.c'}")], Temporary),
    ("PostgreSQL, Appendix A: 57P03", &[("ProgrammingError", "{'S': 'FATAL', 'C': '57P03', 'M': 'the database system is starting up', 'F': 'postmaster.c'}")], Temporary),
    ("MySQL, Commands out of sync", &[("MySQLdb.ProgrammingError", "(2014, \"Commands out of sync; you can't run this command now\")")], Temporary),
    ("MySQL, Commands out of sync", &[("mysql.connector.errors.ProgrammingError", "2014 (HY000): Commands out of sync; you can't run this command now")], Temporary),
    ("SQLAlchemy, Session", &[("sqlalchemy.exc.InvalidRequestError", "A transaction is already begun on this Session.")], Temporary),
    ("Azure.Identity, Troubleshooting", &[("Azure.Identity.AuthenticationFailedException", "ManagedIdentityCredential authentication failed: Retry failed after 4 tries. (No connection could be made because the target machine actively refused it. (169.254.169.254:80))")], Temporary),
    ("Azure.Identity, Troubleshooting", &[("Azure.Identity.AuthenticationFailedException", "ManagedIdentityCredential authentication failed: Retry failed after 4 tries. (An error occurred while sending the request.)"), ("System.AggregateException", "Retry failed after 4 tries. (An error occurred while sending the request.)"), ("Azure.RequestFailedException", "An error occurred while sending the request."), ("System.Net.Http.HttpRequestException", "An error occurred while sending the request."), ("System.IO.IOException", "Unable to read data from the transport connection: An existing connection was forcibly closed by the remote host.."), ("System.Net.Sockets.SocketException", "An existing connection was forcibly closed by the remote host.")], Temporary),
    ("Azure.Identity, Troubleshooting", &[("Azure.Identity.AuthenticationFailedException", "ClientSecretCredential authentication failed: A configuration issue is preventing authentication - Service request failed. Status: 503 (Service Unavailable)")], Temporary),
    ("azure-identity for Python", &[("azure.core.exceptions.ClientAuthenticationError", "Authentication failed: <urlopen error [Errno 110] Connection timed out>")], Temporary),
    ("@azure/identity", &[("AuthenticationError", "temporarily_unavailable(status code 503).\nMore details:\nAADSTS90033: A transient error has occurred. Please try again.")], Temporary),
    ("@azure/identity, ChainedTokenCredential", &[("AggregateAuthenticationError", "ChainedTokenCredential authentication failed.\nCredentialUnavailableError: EnvironmentCredential is unavailable.\nCredentialUnavailableError: ManagedIdentityCredential: Network unreachable.")], Temporary),
    ("google-gax: metadata plugin", &[("Error", "16 UNAUTHENTICATED: Getting metadata from plugin failed with error: connect ECONNRESET 169.254.169.254:80")], Temporary),
    ("google-gax: metadata plugin", &[("Error", "16 UNAUTHENTICATED: Failed to retrieve auth metadata with error: request to https://oauth2.googleapis.com/token failed, reason: connect ETIMEDOUT 216.239.34.10:443")], Temporary),
    ("grpc-go: per-RPC credentials", &[("StatusError", "rpc error: code = Unauthenticated desc = transport: per-RPC creds failed due to error: oauth2: cannot fetch token: Post \"https://oauth2.googleapis.com/token\": dial tcp 1.2.3.4:443: i/o timeout")], Temporary),
    ("gax-java: credentials", &[("com.google.api.gax.rpc.UnauthenticatedException", "io.grpc.StatusRuntimeException: UNAUTHENTICATED: Failed computing credential metadata"), ("io.grpc.StatusRuntimeException", "UNAUTHENTICATED: Failed computing credential metadata"), ("java.io.IOException", "Error getting access token for service account: Read timed out, iss: x@y.iam.gserviceaccount.com"), ("java.net.SocketTimeoutException", "Read timed out")], Temporary),
    ("Spring Security, OAuth 2.0 client", &[("org.springframework.security.oauth2.client.ClientAuthorizationException", "[invalid_token_response] An error occurred while attempting to retrieve the OAuth 2.0 Access Token Response: I/O error on POST request for \"https://sso/oauth/token\": Connection reset")], Temporary),
    ("Spring Security, OAuth 2.0 client", &[("org.springframework.security.oauth2.core.OAuth2AuthorizationException", "[invalid_token_response] An error occurred while attempting to retrieve the OAuth 2.0 Access Token Response: 503 Service Unavailable: [no body]")], Temporary),
    ("Amazon MSK, Limits for IAM", &[("org.apache.kafka.common.errors.SaslAuthenticationException", "[c4c1210b-9221-40ac-9fde-03daf7b747dc]: Too many connects")], RateLimit),
    ("Amazon MSK, Limits for IAM", &[("KafkaJSSASLAuthenticationError", "SASL AWS_MSK_IAM authentication failed: [74909301]: Too many connects")], RateLimit),
    ("paramiko", &[("paramiko.ssh_exception.AuthenticationException", "Authentication timeout.")], Temporary),
    ("paramiko", &[("AuthenticationException", "Authentication failed: transport shut down or saw EOF")], Temporary),
    ("simple-salesforce", &[("SalesforceAuthenticationFailed", "unknown_error: retry your request")], Temporary),
    ("Signet for Ruby", &[("Function<Signet::AuthorizationError>", "Unexpected error: #<Faraday::TimeoutError wrapped=#<Net::ReadTimeout>>")], Temporary),
    ("Any, a level that says nothing", &[("com.example.BadRequestException", "could not book"), ("java.lang.RuntimeException", "wrapped"), ("java.net.SocketTimeoutException", "Read timed out")], Temporary),
    ("Spring and Hibernate: foreign key", &[("org.springframework.dao.DataIntegrityViolationException", "could not execute statement; SQL [n/a]; constraint [fk_order_customer]"), ("org.hibernate.exception.ConstraintViolationException", "could not execute statement"), ("org.postgresql.util.PSQLException", "ERROR: insert or update on table \"orders\" violates foreign key constraint \"fk_order_customer\"")], Temporary),
    ("Oracle, ORA-02291", &[("oracledb.exceptions.IntegrityError", "ORA-02291: integrity constraint (APP.FK_ORDER) violated - parent key not found\nHelp: https://docs.oracle.com/error-help/db/ora-02291/")], Temporary),
    ("Oracle, ORA-02291", &[("java.sql.SQLIntegrityConstraintViolationException", "ORA-02291: integrity constraint (APP.FK_ORDER) violated - parent key not found")], Temporary),
    ("Db2, SQLCODE -530", &[("com.ibm.db2.jcc.am.SqlIntegrityConstraintViolationException", "DB2 SQL Error: SQLCODE=-530, SQLSTATE=23503, SQLERRMC=APP.ORDERS.FK1, DRIVER=4.26")], Temporary),
    ("V8 10", &[("SyntaxError", "Unexpected token < in JSON at position 0")], Temporary),
    ("V8 11", &[("SyntaxError", "Unexpected token 'I', \"Internal S\"... is not valid JSON")], Temporary),
    ("V8 11", &[("SyntaxError", "Unexpected token 'u', \"upstream c\"... is not valid JSON")], Temporary),
    ("Gson", &[("com.google.gson.JsonSyntaxException", "java.lang.IllegalStateException: Expected BEGIN_OBJECT but was STRING at line 1 column 1 path $")], Temporary),
    ("Gson", &[("com.google.gson.stream.MalformedJsonException", "Use JsonReader.setStrictness(Strictness.LENIENT) to accept malformed JSON at line 1 column 1 path $")], Temporary),
    ("Newtonsoft.Json", &[("Newtonsoft.Json.JsonReaderException", "Unexpected character encountered while parsing value: <. Path '', line 0, position 0.")], Temporary),
    ("Newtonsoft.Json", &[("Newtonsoft.Json.JsonReaderException", "Error parsing undefined value. Path '', line 1, position 1.")], Temporary),
    ("orjson", &[("orjson.JSONDecodeError", "unexpected character: line 1 column 1 (char 0)")], Temporary),
    ("ujson", &[("ujson.JSONDecodeError", "Expected object or value")], Temporary),
    ("kotlinx.serialization", &[("kotlinx.serialization.json.internal.JsonDecodingException", "Unexpected JSON token at offset 0: Expected start of the object '{', but had 'S' instead at path: $\nJSON input: Service Unavailable")], Temporary),
    ("Jackson", &[("com.fasterxml.jackson.core.JsonParseException", "Unrecognized token 'upstream': was expecting (JSON String, Number, Array, Object or token 'null', 'true' or 'false')\n at [Source: (String)\"upstream connect error or disconnect/reset before headers\"; line: 1, column: 9]")], Temporary),
    ("json for Ruby", &[("Function<JSON::ParserError>", "unexpected token at 'Service Unavailable'")], Temporary),
    ("botocore: cartography #2132", &[("ResponseParserError", "Unable to parse response (syntax error: line 1, column 0), invalid XML received. Further retries may succeed:\nb'Internal Failure'")], Temporary),
    ("botocore: tomodachi #1664", &[("botocore.parsers.ResponseParserError", "Unable to parse response (no element found: line 1, column 0), invalid XML received. Further retries may succeed:\nb''")], Temporary),
    ("aws-sdk-java", &[("com.amazonaws.SdkClientException", "Unable to unmarshall response (Unexpected character ('<' (code 60))). Response Code: 200, Response Text: OK")], Temporary),
    ("aws-sdk-java-v2: its cause", &[("software.amazon.awssdk.core.exception.SdkClientException", "Unable to unmarshall response"), ("com.fasterxml.jackson.core.JsonParseException", "Unexpected end-of-input in the response")], Temporary),
    ("aws-sdk-js-v3 #4576", &[("SyntaxError", "Unexpected token r in JSON at position 1\n  Deserialization error: to see the raw response, inspect the hidden field {error}.$response on this object.")], Temporary),
    ("aws-sdk-js-v3 #5851", &[("SyntaxError", "Expected ',' or '}' after property value\n  Deserialization error: to see the raw response, inspect the hidden field {error}.$response on this object.")], Temporary),
    ("aws-sdk-go-v2, smithy", &[("DeserializationError", "deserialization failed, failed to decode response body, invalid character 'u' in literal true")], Temporary),
    ("aws-sdk-go #2184", &[("Error", "SerializationError: failed decoding JSON RPC error response\ncaused by: invalid character '<' looking for beginning of value")], Temporary),
    ("aws-sdk-net", &[("Amazon.Runtime.AmazonUnmarshallingException", "Error unmarshalling response back from AWS. Request ID: x")], Temporary),
    ("Elasticsearch for Node", &[("DeserializationError", "Unexpected end of input at position 9")], Temporary),
    ("azure.core", &[("azure.core.exceptions.DeserializationError", "Unable to deserialize to object: type, AttributeError: 'str' object has no attribute 'get'")], Temporary),
    ("stripe-python", &[("stripe.error.APIError", "Invalid response body from API: upstream failed (HTTP response code was 502)")], Temporary),
    ("fingerprint, node-sdk #204", &[("JsonParseError", "Failed to parse JSON response")], Temporary),
    ("rdt-client #921", &[("Newtonsoft.Json.JsonSerializationException", "Unable to deserialize Real Debrid API response to List`1. Path 'a', line 3, position 7.")], Temporary),
    ("dateutil", &[("dateutil.parser._parser.ParserError", "Unknown string format: soon")], Temporary),
    ("Bref: a namespace", &[(r"App\Services\AddressValidation\ProviderDown", "no answer")], Temporary),
    ("Bref: a namespace", &[(r"App\Authorization\TokenEndpointDown", "no answer")], Temporary),
    ("Laravel, Eloquent", &[(r"Illuminate\Database\Eloquent\ModelNotFoundException", "No query results for model [App\\Order] 7")], NonRetryable),
    ("Google Cloud, Resource Manager: ETag", &[("Error", "googleapi: Error 409: There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff. The request's ETag x did not match., aborted")], Temporary),
    ("Google Cloud, Resource Manager: ETag", &[("googleapiclient.errors.HttpError", "<HttpError 409 when requesting https://cloudresourcemanager.googleapis.com/v1/projects/x:setIamPolicy?alt=json returned \"There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff.\". Details: \"There were concurrent policy changes.\">")], Temporary),
    ("google-http-java-client", &[("com.google.api.client.googleapis.json.GoogleJsonResponseException", "409 Conflict\nPOST https://cloudresourcemanager.googleapis.com/v1/projects/x:setIamPolicy\n{\n  \"code\" : 409,\n  \"errors\" : [ {\n    \"domain\" : \"global\",\n    \"message\" : \"There were concurrent policy changes.\",\n    \"reason\" : \"aborted\"\n  } ],\n  \"message\" : \"There were concurrent policy changes.\",\n  \"status\" : \"ABORTED\"\n}")], Temporary),
    ("Google Play Developer API", &[("com.google.api.client.googleapis.json.GoogleJsonResponseException", "409 Conflict\n{\n  \"code\" : 409,\n  \"errors\" : [ {\n    \"domain\" : \"androidpublisher\",\n    \"message\" : \"x\",\n    \"reason\" : \"concurrentUpdate\"\n  } ]\n}")], Temporary),
    ("BigQuery, Transactions", &[("google.api_core.exceptions.BadRequest", "400 Transaction is aborted due to concurrent update against table proj:ds.table. Transaction ID: x; reason: invalidQuery, location: query, message: Transaction is aborted due to concurrent update against table")], Temporary),
    ("BigQuery, Streaming buffer", &[("google.api_core.exceptions.BadRequest", "400 UPDATE or DELETE statement over table p.d.t would affect rows in the streaming buffer, which is not supported; reason: invalidQuery")], Temporary),
    ("Feign, with Stripe's code", &[("feign.FeignException$Conflict", "[409 Conflict] during [POST] to [http://x/y] [Client#pay(Req)]: [{\"error\":{\"code\":\"idempotency_key_in_use\"}}]")], Temporary),
    ("Oracle Cloud, API errors", &[("oci.exceptions.ServiceError", "{'target_service': 'compute', 'status': 409, 'code': 'IncorrectState', 'opc-request-id': 'x', 'message': 'x'}")], Temporary),
    ("Stripe, Rate limits: object locks", &[("stripe.error.InvalidRequestError", "Request req_x: This object cannot be accessed right now because another API request or Stripe process is currently accessing it.")], Temporary),
    ("axios", &[("AxiosError", "Request failed with status code 423")], Temporary),
    ("commercetools SDK for Java", &[("com.commercetools.api.client.error.BadRequestException", "detailMessage: The previous conflicting operation is still pending")], Temporary),
    ("Amazon EMR, AddJobFlowSteps", &[("ClientError", "An error occurred (ValidationException) when calling the AddJobFlowSteps operation: Maximum number of active steps(State = 'Running', 'Pending' or 'Cancel_Pending') for cluster exceeded.")], Temporary),
    ("Azure Cosmos DB, 403 with substatus 3", &[("Microsoft.Azure.Cosmos.CosmosException", "Response status code does not indicate success: Forbidden (403); Substatus: 3; ActivityId: x; Reason: (Message: {\"Errors\":[\"The requested operation cannot be performed at this region\"]})")], Temporary),
    ("Vitess", &[("MySQLError", "target: app.-.primary: vttablet: rpc error: code = FailedPrecondition desc = operation not allowed in state NOT_SERVING (errno 1105) (sqlstate HY000)")], Temporary),
    ("gRPC, HTTP to gRPC status", &[("Error", "12 UNIMPLEMENTED: Received HTTP status code 404")], Temporary),
    ("Neo4j, Status codes", &[("neo4j.exceptions.ForbiddenOnReadOnlyDatabase", "{code: Neo.ClientError.General.ForbiddenOnReadOnlyDatabase} {message: No write operations are allowed on this database.}")], Temporary),
    ("Neo4j, Status codes", &[("neo4j.exceptions.ClientError", "{code: Neo.ClientError.Security.AuthorizationExpired} {message: x}")], Temporary),
    ("Apache HttpClient", &[("org.apache.http.MalformedChunkCodingException", "CRLF expected at end of chunk")], Temporary),
    ("RabbitMQ, Exclusive queues", &[("com.rabbitmq.client.ShutdownSignalException", "channel error; protocol method: #method<channel.close>(reply-code=405, reply-text=RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/', class-id=50, method-id=20)")], Temporary),
    ("RabbitMQ, Exclusive queues", &[("pika.exceptions.ChannelClosedByBroker", "(405, \"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'\")")], Temporary),
    ("RabbitMQ, Consumers: acknowledgement timeout", &[("pika.exceptions.ChannelClosedByBroker", "(406, 'PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 1800000 ms.')")], Temporary),
    ("AMQP 0-9-1, reply codes", &[("com.rabbitmq.client.AlreadyClosedException", "connection is already closed due to connection error; protocol method: #method<connection.close>(reply-code=505, reply-text=UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead, class-id=60, method-id=40)")], Temporary),
    ("RFC 959", &[("ftplib.error_temp", "426 Failure writing network stream.")], Temporary),
    ("RFC 959", &[("ftplib.error_temp", "450 Requested file action not taken. File unavailable (e.g., file busy).")], Temporary),
    ("RFC 959", &[("ftplib.error_temp", "451 Requested action aborted: local error in processing.")], Temporary),
    ("basic-ftp", &[("FTPError", "426 Connection closed; transfer aborted.")], Temporary),
    ("Net::FTP", &[("Function<Net::FTPTempError>", "450 File busy")], Temporary),
    ("Exchange Online, 5.1.90", &[("smtplib.SMTPDataError", "(550, b\"5.1.90 Your message can't be sent because you've reached your daily limit for message recipients.\")")], Quota),
    ("Exchange Online, 5.7.232", &[("smtplib.SMTPDataError", "(550, b\"5.7.232 Your message can't be sent because your trial tenant has exceeded its daily limit for sending email to external recipients (tenant external recipient rate limit).\")")], Quota),
    ("Exchange Online, submission quota", &[("Error", "Message failed: 554 5.2.0 STOREDRV.Submission.Exception:SubmissionQuotaExceededException; Failed to process message due to a permanent exception")], Quota),
    ("cPanel, Limit the number of emails", &[("smtplib.SMTPRecipientsRefused", "{'a@example.com': (550, b'Domain example.com has exceeded the max emails per hour (167/150 (111%)) allowed.  Message discarded.')}")], Quota),
    ("cPanel, Limit the number of emails", &[("Error", "Can't send mail - all recipients were rejected: 550 Domain example.com has exceeded the max emails per hour (100/100 (100%)) allowed.  Message discarded.")], Quota),
    ("Amazon SES, Pausing email sending", &[("smtplib.SMTPDataError", "(554, b'Message rejected: Sending paused for this account. For more information, please check the inbox of the email address associated with your AWS account.')")], Quota),
    ("Amazon SES, Pausing email sending", &[("MessageRejected", "An error occurred (MessageRejected) when calling the SendEmail operation: Sending paused for this account. For more information, please check the inbox of the email address associated with your AWS account.")], Quota),
    ("Amazon SES, SMTP response codes", &[("smtplib.SMTPDataError", "(454, b'Throttling failure: Daily message quota exceeded.')")], Quota),
    ("Yahoo, SMTP error codes", &[("smtplib.SMTPDataError", "(554, b'5.7.1 Rate limit exceeded, try again later')")], RateLimit),
    ("Google Maps for Python", &[("googlemaps.exceptions._OverQueryLimit", "OVER_QUERY_LIMIT (You have exceeded your daily request quota for this API.)")], Quota),
    ("shopify-api-ruby", &[("Function<ShopifyAPI::Errors::HttpResponseError>", "{\"errors\":\"Exceeded 2 calls per second for api client. Reduce request rates to resume uninterrupted service.\"}")], RateLimit),
    ("stripe-go: the error as JSON", &[("*stripe.Error", "{\"code\":\"transaction_daily_limit_exceeded\",\"status\":402,\"message\":\"Your card's daily limit exceeded\",\"type\":\"card_error\"}")], NonRetryable),
    ("Any, a declined card", &[("Error", "Your card was declined.")], NonRetryable),
    ("pymysql: 1064", &[("ProgrammingError", "(1064, \"You have an error in your SQL syntax\")")], NonRetryable),
    ("pyodbc: 208", &[("pyodbc.ProgrammingError", "('42S02', \"[42S02] [Microsoft][ODBC Driver 18 for SQL Server]Invalid object name 'x'. (208)\")")], NonRetryable),
    ("pyodbc: 3960", &[("pyodbc.ProgrammingError", "('42000', \"[42000] [Microsoft][SQL Server]Snapshot isolation transaction aborted due to update conflict. (3960)\")")], Temporary),
    ("azure-identity: a wrong secret", &[("azure.core.exceptions.ClientAuthenticationError", "Authentication failed: AADSTS7000215: Invalid client secret provided.")], NonRetryable),
    ("V8: within a text of JSON", &[("SyntaxError", "Unexpected token '}', \"{\"a\":}\" is not valid JSON")], NonRetryable),
    ("Jackson: JSON of another shape", &[("com.fasterxml.jackson.databind.exc.MismatchedInputException", "Cannot deserialize value of type `Order` from Array value (token `JsonToken.START_ARRAY`)\n at [Source: UNKNOWN; line: 1, column: 1]")], NonRetryable),
    ("Jackson: within a text of JSON", &[("JsonParseException", "Unrecognized token 'x': was expecting (JSON String)\n at [Source: (String)\"{\"a\":x}\"; line: 1, column: 7]")], NonRetryable),
    ("Kafka: a record", &[("ValueDeserializationError", "Unexpected end of the record")], NonRetryable),
    ("json for Ruby: within a text of JSON", &[("Function<JSON::ParserError>", "unexpected token at 'x}'")], NonRetryable),
    ("kotlinx: JSON of another shape", &[("JsonDecodingException", "Unexpected JSON token at offset 0: Expected start of the object '{', but had '[' instead at path: $")], NonRetryable),
    ("Exchange: a full mailbox", &[("smtplib.SMTPRecipientsRefused", "{'a@example.com': (552, b'5.2.2 Mailbox over quota')}")], NonRetryable),
    ("RFC 959: 5yz", &[("ftplib.error_perm", "550 No such file")], Temporary),
    ("elasticsearch-py: 409", &[("googleapiclient.errors.HttpError", "<HttpError 409 when requesting https://x/y returned \"already exists\">")], NonRetryable),
];

fn of_chain(chain: &[(&str, &str)]) -> Failure {
    let cause = chain.iter().rev().fold(None, |cause: Option<Exception>, (name, message)| {
        let exception = Exception::new(name, message);
        Some(match cause {
            Some(cause) => exception.caused_by(cause),
            None => exception,
        })
    });
    Failure::from_exception(&cause.expect("a chain has a level"))
}

#[test]
fn the_words_of_a_source_say_more_than_its_type() {
    let mut wrong = Vec::new();
    for (source, chain, class) in THROWN {
        let failure = of_chain(chain);
        if failure.class() != *class {
            wrong.push(format!("{source} {chain:.90?}: {failure}, not {class}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn a_flood_wait_names_its_delay() {
    // Telethon; python-telegram-bot; aiogram
    for (message, class, seconds) in [
        ("A wait of 35 seconds is required (caused by SendMessageRequest)", RateLimit, Some(35)),
        ("A wait of 43200 seconds is required", RateLimit, Some(43_200)),
        ("A wait of 43201 seconds is required", Quota, Some(43_201)),
        ("A wait of 99999999999 seconds is required", Quota, None),
        ("Flood control exceeded. Retry in 35 seconds", RateLimit, Some(35)),
        (
            "Flood control exceeded on method 'SendMessage' in chat 1. Retry in 34 seconds.",
            RateLimit,
            Some(34),
        ),
        ("Retry in 35 seconds", Temporary, None),
        ("A wait of some seconds is required", Temporary, None),
    ] {
        let failure = of_chain(&[("FloodWaitError", message)]);
        let delay = failure.delay().map(|delay| delay.as_secs());
        assert_eq!((failure.class(), delay), (class, seconds), "{message}");
    }
}
