//! The message of an exception: a status in a known place, and phrases.

use crate::classify::text::Service::{Down, Lost, Up};
use crate::classify::text::{self, Meaning};
use crate::failure::FailureClass::{NonRetryable, RateLimit, Temporary};

/// The status at the beginning of a message, or at the place where a client puts it: `429 Client
/// Error: Too Many Requests`, `403 {"error":…`, `(404) Reason: …`, `<HttpError 404 when`, `indicate
/// success: 507 (`, `[POST] "https://…": 422 Unprocessable`, `too many 503 error responses`.
pub(super) fn status_in_place(message: &str) -> Option<u16> {
    let begins = |text: &str| {
        let number = text::status(text.get(..3)?)?;
        let rest = text.get(3..)?;
        let next = rest.trim_start_matches([',', ':']).trim_start();
        let is_told = next.is_empty()
            || next.starts_with(|c: char| c.is_ascii_uppercase() || "{\"'[()".contains(c))
            || ["status code", "message=", "when requesting", "error responses"]
                .iter()
                .any(|word| next.starts_with(word));
        (is_told && !rest.starts_with(|c: char| c.is_ascii_alphanumeric())).then_some(number)
    };
    // `TransportError(429, 'es_rejected_execution_exception')`; in a place also `TooManyRequests (429)`
    let called = |text: &str, is_place: bool| {
        let (name, status) = text.split_once('(')?;
        let is_name = name.trim_end().bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_told = is_place || name.is_empty() || !status.get(3..)?.starts_with(')');
        begins(status).filter(|_| is_name && is_told)
    };
    let message = message.trim_start();
    let after = |before: &str| {
        let (_, rest) = message.split_once(before)?;
        begins(rest).or_else(|| called(rest, true))
    };
    let is_of_ofetch = message.starts_with('[') && message.contains("] \"");
    begins(message.trim_start_matches('['))
        .or_else(|| ["<HttpError ", "indicate success: ", "too many "].into_iter().find_map(after))
        .or_else(|| after("\": ").filter(|_| is_of_ofetch))
        .or_else(|| called(message, false))
}

/// Words next to a limit's name by which it was reached. A name that refuses the request may be
/// about a value of that name.
pub(super) const REACHED: &str = "\
    exceeded|reached|wait|too many requests|ratelimitexceeded|userratelimitexceeded|\
    quotaexceeded|throttled|rate limited|secondary rate limit|resource exhausted";

/// Words of a limit, and of a failure that passes, before a name or a status that refuses the
/// request.
pub(super) const PASSING: [(Meaning, &str); 4] = [
    // AWS; QuickBooks; Twilio; MySQL
    (
        (RateLimit, Up, "rate limit"),
        "reduce your request rate|throughput exceeds the current capacity|request was throttled|\
        throttleexceeded|request limit was reached|too many concurrent|\
        exceeded the maximum number of queued messages|max questions resource|max updates resource|max connections per hour resource",
    ),
    // BigQuery and PostgreSQL; MySQL; SQL Server; ClickHouse; MongoDB; Salesforce; Elasticsearch;
    // CloudFormation, Lambda, S3, Athena
    (
        (Temporary, Up, "busy"),
        "could not serialize access|deadlock detected|deadlock found|deadlock victim|\
        deadlock avoided|lock wait timeout exceeded|try restarting transaction|writeconflict|\
        unable to obtain exclusive access|cluster block exception|client must retry|\
        client should retry|in progress state|update is in progress|currently in progress|\
        already in progress|has not yet finished|max user connections|too many connections|\
        too many clients already|remaining connection slots|cannot schedule a task|\
        waiters for this lock|statements outstanding",
    ),
    // A session in the state of an earlier message: SQLAlchemy; the DB-API; JPA; PostgreSQL; mysql2
    (
        (Temporary, Up, "connection lost"),
        "session rollback|transaction is rolled back|cursor is not connected|cursor closed|\
        cursor already closed|connection already closed|this connection is closed|\
        entitymanager is closed|current transaction is aborted|in closed state|\
        after fatal error|no further sql can be emitted",
    ),
    (
        (Temporary, Down, "connection lost"),
        "communications link failure|mysql server has gone away|lost connection to mysql|\
        server closed the connection unexpectedly",
    ),
];

/// Words that only exceptions of a function have, after all else.
pub(super) const MESSAGES: [(Meaning, &str); 4] = [
    // Node's codes of the system, undici
    (
        (Temporary, Lost, "connection lost"),
        "epipe|etimedout|esockettimedout|econnaborted|other side closed|server disconnected",
    ),
    // Node; fetch; OpenAI and Anthropic; the AWS SDK for Java; .NET; botocore; aiohttp
    (
        (Temporary, Down, "service not reached"),
        "econnrefused|ehostunreach|enetunreach|eai again|fetch failed|connection error|\
        with our connection to stripe|unable to execute http request|\
        ssl connection could not be established|could not connect|cannot connect|can t connect|\
        server has gone away|lost connection|connection terminated|server closed the connection|\
        connection is closed|no such host is known",
    ),
    ((Temporary, Up, "busy"), "deadlock"),
    (
        (NonRetryable, Up, "constraint violated"),
        "e11000|violates unique constraint|violates check constraint|duplicate entry|\
        violation of unique key|violation of primary key|unique constraint failed|\
        unique constraint violated",
    ),
];
