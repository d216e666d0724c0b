//! The message of an exception: a status in a known place, and phrases.

use std::time::Duration;

use crate::classify::http;
use crate::classify::retry_after::time::LONGEST;
use crate::classify::text::Service::{Down, Lost, Up, Works};
use crate::classify::text::{self, DECLINED, Meaning, Words};
use crate::failure::FailureClass::{NonRetryable, Quota, RateLimit, Temporary};
use crate::failure::{Evidence, Failure};

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

/// The reply of a server of FTP, whose 4yz passes (RFC 959, 4.2.1). Its numbers look like statuses.
pub(super) fn of_ftp(name: &str, message: &str) -> Option<Failure> {
    let is_named = name == "error_temp" || name.to_ascii_lowercase().contains("ftp");
    let reply = message.get(..4).filter(|reply| is_named && reply.starts_with('4'))?;
    let reply = reply.strip_suffix([' ', '-'])?.parse::<u16>().ok()?;
    Some(Failure::new(Temporary, Evidence::Text, format_args!("FTP {reply}")))
}

/// The wait that Telegram asks for, in the texts of its libraries: `A wait of 35 seconds is required`
/// (Telethon); `Flood control exceeded. Retry in 35 seconds` (python-telegram-bot, aiogram).
pub(super) fn of_flood(message: &str) -> Option<Failure> {
    let bot = || Some(message.split_once("Flood control exceeded")?.1.split_once("Retry in ")?.1);
    let rest = message.split_once("A wait of ").map(|(_, rest)| rest).or_else(bot)?;
    let (seconds, unit) = rest.split_once(' ')?;
    let delay = Duration::from_secs(seconds.parse().ok().filter(|_| unit.starts_with("second"))?);
    let class = if delay > http::LONGEST_RATE_LIMIT { Quota } else { RateLimit };
    let failure = Failure::new(class, Evidence::Text, "flood wait");
    Some(failure.told(Some(delay).filter(|delay| *delay <= LONGEST)))
}

/// Words of parsers about a response that is an error page, or empty.
const NO_JSON: &str = "\
    html|doctype|unexpected end of json input|no content to map due to end of input|\
    the input does not contain any json tokens|expected object or value|character code 60|\
    is an invalid start of a value path linenumber 0 bytepositioninline 0|\
    in json at position 0|path line 0 position 0|path line 1 position 1";

/// Whether a parser refused the first character already, so that the text is a service's error page: a
/// message is JSON.
pub(super) fn is_no_json(message: &str, words: &Words) -> bool {
    let after = |before: &str| Some(message.split_once(before)?.1);
    // Python, Gson, Jackson, Ruby. It is JSON of another shape if it was read.
    let is_first =
        words.hold("line 1 column 1") && !words.hold_any("cannot deserialize|cannot construct");
    // kotlinx
    let is_at_0 = words.hold("json token at offset 0") && !message.contains("had '[");
    // Node: `Unexpected token 'I', "Internal S"... is not valid JSON`
    let of_node = || {
        let rest = after("Unexpected token '")?;
        let token = rest.chars().next()?;
        Some(rest[token.len_utf8()..].strip_prefix("', \"")?.starts_with(token))
    };
    // Jackson: `Unrecognized token 'upstream': … line: 1, column: 9]`
    let of_jackson = || {
        let token = after("Unrecognized token '")?.split('\'').next()?;
        Some(words.hold(&format!("line 1 column {}", token.chars().count() + 1)))
    };
    // Older Ruby: `unexpected token at 'Service Unavailable'`
    let of_ruby = || {
        let rest = after("unexpected token at '")?;
        let is_inside = rest.contains(['}', ']']);
        Some(rest.starts_with(|c: char| c.is_alphabetic() || c == '<') && !is_inside)
    };
    words.hold_any(NO_JSON)
        || is_first
        || is_at_0
        || [of_node(), of_jackson(), of_ruby()].contains(&Some(true))
}

/// Words next to a limit's name by which it was reached. A name that refuses the request may be
/// about a value of that name.
pub(super) const REACHED: &str = "\
    exceeded|reached|wait|too many requests|ratelimitexceeded|userratelimitexceeded|\
    quotaexceeded|throttled|rate limited|secondary rate limit|resource exhausted";

/// Words of a limit, and of a failure that passes, before a name or a status that refuses the
/// request.
pub(super) const PASSING: [(Meaning, &str); 6] = rows! {
    // AWS; QuickBooks; Twilio; MySQL; MSK
    (RateLimit, Up, "rate limit") =>
        "reduce your request rate|throughput exceeds the current capacity|request was throttled|\
        throttleexceeded|request limit was reached|too many concurrent|\
        exceeded the maximum number of queued messages|max questions resource|max updates resource|\
        max connections per hour resource|too many connects";
    // BigQuery and PostgreSQL; MySQL; SQL Server; ClickHouse; MongoDB; Salesforce; Elasticsearch;
    // CloudFormation, Lambda, S3, Athena; SQL Server, Redshift, BigQuery; RabbitMQ; Stripe;
    // commercetools; Cosmos DB; Vitess; a load balancer in front of gRPC; Salesforce; EMR
    (Temporary, Up, "busy") =>
        "could not serialize access|deadlock detected|deadlock found|deadlock victim|\
        deadlock avoided|lock wait timeout exceeded|try restarting transaction|writeconflict|\
        unable to obtain exclusive access|cluster block exception|client must retry|\
        client should retry|in progress state|update is in progress|currently in progress|\
        already in progress|has not yet finished|max user connections|too many connections|\
        too many clients already|remaining connection slots|cannot schedule a task|\
        waiters for this lock|statements outstanding|another concurrent transaction|\
        snapshot isolation transaction aborted|is not currently available|\
        service is currently busy|serializable isolation violation|\
        aborted due to concurrent update|rows in the streaming buffer|resource locked|\
        is currently accessing it|operation is still pending|\
        cannot be performed at this region|not allowed in state not serving|\
        received http status code 404|retry your request|\
        request limit for the database|maximum number of active steps";
    // Kubernetes; Firestore; DynamoDB; IAM for RDS, whose token is short-lived; an ETag of Cosmos DB
    // and Azure Storage, which a new run reads again; Cosmos DB
    (Temporary, Works, "busy") =>
        "object has been modified|object is being deleted|referenced transaction has expired|\
        index is currently building|backfilling global secondary index|\
        pam authentication failed|preconditionfailed 412|precondition is not met|\
        pre condition is not met|update condition specified in the request was not satisfied|\
        conditional header s is not met|gone 410 substatus|read session is not available";
    // A session in the state of an earlier message: SQLAlchemy; the DB-API; JPA; PostgreSQL; mysql2;
    // MySQL for Python
    (Temporary, Up, "connection lost") =>
        "session rollback|transaction is rolled back|cursor is not connected|cursor closed|\
        cursor already closed|connection already closed|this connection is closed|\
        entitymanager is closed|current transaction is aborted|in closed state|\
        after fatal error|no further sql can be emitted|transaction is already begun|\
        commands out of sync";
    // RabbitMQ, in numbers that look like statuses
    (Temporary, Lost, "connection lost") => "delivery acknowledgement on channel|unexpected frame";
    (Temporary, Down, "connection lost") =>
        "communications link failure|mysql server has gone away|lost connection to mysql|\
        server closed the connection unexpectedly";
};

/// Words that only exceptions of a function have, after all else.
pub(super) const MESSAGES: [(Meaning, &str); 6] = rows! {
    // Node's codes of the system, undici; .NET; paramiko
    (Temporary, Lost, "connection lost") =>
        "epipe|etimedout|esockettimedout|econnaborted|other side closed|server disconnected|\
        forcibly closed|transport shut down";
    // Node; fetch; OpenAI and Anthropic; the AWS SDK for Java; .NET; botocore; aiohttp; PostgreSQL
    (Temporary, Down, "service not reached") =>
        "econnrefused|ehostunreach|enetunreach|eai again|fetch failed|connection error|\
        with our connection to stripe|unable to execute http request|\
        ssl connection could not be established|could not connect|cannot connect|can t connect|\
        server has gone away|lost connection|connection terminated|server closed the connection|\
        connection is closed|no such host is known|network unreachable|actively refused|\
        error occurred while sending the request|database system is starting up|\
        database system is shutting down";
    // A row that this one refers to may be inserted later.
    (Temporary, Up, "constraint violated") => "violates foreign key constraint";
    (NonRetryable, Up, "declined") => DECLINED;
    (Temporary, Up, "busy") => "deadlock";
    (NonRetryable, Up, "constraint violated") =>
        "e11000|violates unique constraint|violates check constraint|duplicate entry|\
        violation of unique key|violation of primary key|unique constraint failed|\
        unique constraint violated";
};
