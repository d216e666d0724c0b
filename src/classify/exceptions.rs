//! Classifies an exception of any language by its type, as the runtime of a Lambda function reports
//! it: `ReadTimeout`, `java.net.SocketTimeoutException`, `Function<Net::OpenTimeout>`, `A$B`.
//!
//! Most names say what happened, so [`PARTS`] has parts of names. [`NAMES`] has the names that such a
//! part would misread, and those that say nothing to a reader. A type that wraps a response says
//! nothing by itself: the code or the status in its message counts.

use std::error::Error;

use super::exception::Exception;
use super::status::fold;
use super::text::{self, Meaning, Service, Words};
use super::{GrpcStatus, aws, code, grpc, http, rules};
use crate::failure::{Evidence, Failure, FailureClass};
use names::{NAMES, PARTS};

mod names;

use FailureClass::{NonRetryable, Quota, RateLimit, Temporary};
use Service::{Down, Lost, Up};

impl Failure {
    /// Classifies an exception of any language, as [`Failure::classified`] does: by the rules in
    /// force, by its type and those of its causes, by the code or status in its message, by its
    /// words. A rule's `code` may name the last part of the type: `BankClosed` of
    /// `com.example.BankClosed`.
    ///
    /// The reason has the last part of the type if it looks like a name, and never the message.
    pub fn from_exception(exception: &Exception) -> Self {
        let text = rules::keep_text().then(|| exception.message());
        let failure = Self::classified(exception);
        let failure = match code::presentable(exception.name()) {
            Some(name) if failure.evidence() == Evidence::Unrecognised => {
                let named = format_args!("unrecognised: {name}");
                Self::new(Temporary, Evidence::Unrecognised, named).doubted(failure.is_in_doubt())
            }
            Some(_) | None => failure,
        };
        failure.saying(text)
    }
}

/// Classifies one level of a chain by its name, and by the codes and the status in its message.
pub(super) fn exception(error: &(dyn Error + 'static)) -> Option<Failure> {
    let exception = error.downcast_ref::<Exception>()?;
    let words = Words::of_errors(std::iter::once(error));
    let message = exception.message();
    let by_name = || exception.codes().find_map(|code| by_code(code, exception, &words));
    let by_grpc = || Some(Failure::from_grpc(GrpcStatus::named(grpc::in_message(message)?)?));
    // The message may quote the name of some other error, which must not dead-letter the message.
    let mentioned = || {
        exception
            .mentioned()
            .filter_map(|name| by_code(name, exception, &words))
            .find(|failure| failure.class() != NonRetryable)
    };
    // `TransportError(429, 'es_rejected_execution_exception')`: the status says more than the name.
    let called = || {
        let (name, _) = message.split_once('(')?;
        let failure =
            text::of_status(leading_status(message).filter(|_| name == exception.name())?);
        (failure.class() != NonRetryable).then_some(failure)
    };
    let failure = called()
        .or_else(by_name)
        .or_else(by_grpc)
        .or_else(|| words.quota_or_rate_limit())
        .or_else(|| by_words(&words, &LIMITS))
        .or_else(mentioned)
        .or_else(|| leading_status(message).map(text::of_status))
        .or_else(|| words.status())
        .or_else(|| by_words(&words, &MESSAGES))?;
    // `Error code: 429 - You exceeded your current quota` says which limit it is.
    let quota = || words.quota_or_rate_limit().filter(|limit| limit.class() == Quota);
    Some(match failure.class() {
        RateLimit if words.name_short_limit() => failure,
        RateLimit if words.name_long_limit() => failure.of_long_limit(),
        RateLimit => quota().unwrap_or(failure),
        _ => failure,
    })
}

fn by_code(code: &str, exception: &Exception, words: &Words) -> Option<Failure> {
    if let Some(status) = code.parse().ok().filter(|status| (300..600).contains(status)) {
        return Some(text::of_status(status));
    }
    let name = code::bare(code);
    let folded = fold(name);
    if WRAPPERS.split(' ').any(|wrapper| wrapper.eq_ignore_ascii_case(&folded)) {
        return None;
    }
    let typed = |class, service: Service, meaning: &str| {
        let failure = match code::presentable(name) {
            Some(name) => Failure::new(class, Evidence::Typed, format_args!("{meaning}: {name}")),
            None => Failure::new(class, Evidence::Typed, meaning),
        };
        (if service == Up { failure } else { failure.service_down() }).doubted(service == Lost)
    };
    // Its name says where it is found, and its text what failed: .NET has one of the two for TLS.
    let is_tls = folded.contains("authentication") && words.hold_any(TLS);
    if is_tls {
        return Some(typed(Temporary, Down, "certificate not accepted"));
    }
    // The files of this machine, unless a service refused: Python's `PermissionError` and Stripe's.
    if folded == "permissionerror" {
        let is_file = words.hold("errno 13") || words.hold("errno 1");
        let refused = (NonRetryable, Up, "access denied");
        let (class, service, meaning) =
            if is_file { (Temporary, Up, "file access") } else { refused };
        return Some(typed(class, service, meaning));
    }
    // Stripe has one type for a key that is used again, and for one whose first request still runs.
    if folded.contains("idempoten") && words.hold_any(IN_PROGRESS) {
        return Some(typed(Temporary, Up, "in progress").in_doubt());
    }
    let is_named = |row: &&(_, &str)| row.1.split(' ').any(|it| it.eq_ignore_ascii_case(&folded));
    if let Some(((class, service, meaning), _)) = NAMES.iter().find(is_named) {
        return Some(typed(*class, *service, meaning));
    }
    if let Some(known) = aws::by_code(name) {
        return Some(known);
    }
    if let Some((class, reason)) = http::class_of_reason(name) {
        return Some(Failure::new(class, Evidence::Typed, reason));
    }
    if is_json(&folded, words) {
        let is_response = exception.codes().any(|code| code.starts_with("requests."));
        let is_other = is_response || words.hold_any(NO_JSON);
        let class = if is_other { Temporary } else { NonRetryable };
        return Some(typed(class, Up, "no JSON"));
    }
    let part = PARTS.iter().find(|row| row.1.split(' ').any(|part| folded.contains(part)));
    if let Some(((class, service, meaning), _)) = part {
        // A row that this one refers to may be inserted later.
        let is_early = *meaning == "constraint violated" && words.hold("foreign key")
            || folded.contains("foreignkey");
        return Some(typed(if is_early { Temporary } else { *class }, *service, meaning));
    }
    grpc::of_type(name).map(Failure::from_grpc)
}

const IN_PROGRESS: &str = "in progress|inprogress|already processing|still going through";

const TLS: &str = "\
    certificate|remote certificate|ssl|tls|handshake";

/// Words of parsers about a response that is an error page, or empty. A message of the queue is neither.
const NO_JSON: &str = "\
    html|doctype|expecting value line 1 column 1 char 0|unexpected end of json input|\
    no content to map due to end of input|the input does not contain any json tokens|\
    character code 60|is an invalid start of a value path linenumber 0 bytepositioninline 0";

fn is_json(folded: &str, words: &Words) -> bool {
    let is_parser = JSON_PARSERS.split(' ').any(|part| folded.contains(part));
    is_parser || (folded == "syntaxerror" && words.hold("json"))
}

/// Parts of the names of such exceptions: Python's and requests', Jackson's, Gson's, .NET's,
/// Newtonsoft's, Ruby's, kotlinx'.
const JSON_PARSERS: &str = "\
    jsondecod jsonparse jsonsyntax jsonmapping jsonprocessing jsoneof jsonreader jsonserialization \
    jsonexception invalidjson malformedjson deserializ parsererror mismatchedinput invalidformat \
    unrecognizedproperty streamread databind";

/// The status with which a message begins, or that stands where a client puts it: `429 Client Error:
/// Too Many Requests`, `403 {"error":…`, `<HttpError 404 when`, `indicate success: 507 (`.
fn leading_status(message: &str) -> Option<u16> {
    let begins = |text: &str| {
        let number = text.get(..3)?.parse().ok().filter(|status| (300..600).contains(status))?;
        let rest = text.get(3..)?;
        let next = rest.trim_start_matches([',', ':']).trim_start();
        let is_told = next.is_empty()
            || next.starts_with(|c: char| c.is_ascii_uppercase() || "{\"'[(".contains(c))
            || ["status code", "message=", "when requesting"]
                .iter()
                .any(|word| next.starts_with(word));
        (is_told && !rest.starts_with(|c: char| c.is_ascii_alphanumeric())).then_some(number)
    };
    let before_status = ["<HttpError ", "indicate success: "];
    let after = |before: &&str| begins(message.split_once(*before)?.1);
    let called = || {
        let (name, status) = message.split_once('(')?;
        begins(status).filter(|_| name.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    };
    begins(message.trim_start()).or_else(|| before_status.iter().find_map(after)).or_else(called)
}

/// Words of a limit, which come before the status beside them: AWS throttles with 400, too.
const LIMITS: [(Meaning, &str); 1] = [(
    (RateLimit, Up, "rate limit"),
    "reduce your request rate|throughput exceeds the current capacity|request was throttled",
)];

/// Words that only exceptions of a function have, after all else.
const MESSAGES: [(Meaning, &str); 4] = [
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
    ((Temporary, Up, "busy"), "deadlock|deadlock detected|could not serialize access"),
    (
        (NonRetryable, Up, "constraint violated"),
        "e11000|violates unique constraint|violates check constraint|duplicate entry",
    ),
];

fn by_words(words: &Words, table: &[(Meaning, &str)]) -> Option<Failure> {
    let ((class, service, meaning), _) = table.iter().find(|row| words.hold_any(row.1))?;
    let failure = Failure::new(*class, Evidence::Text, meaning);
    let failure = if *service == Up { failure } else { failure.service_down() };
    Some(failure.doubted(*service == Lost))
}

/// Names that wrap a response, or anything: the code, the status or the words in the message count.
// Of botocore, requests, aiohttp, azure.core, axios, gaxios, Azure for JS, got, MongoDB, gRPC, Spring,
// retrofit, .NET, Java and the DB-API.
const WRAPPERS: &str = "\
    ClientError HTTPError HttpError ClientResponseError HttpResponseError \
    AxiosError GaxiosError RestError RequestError MongoServerError UnknownError \
    StatusRuntimeException RpcException HttpClientErrorException HttpServerErrorException \
    WebClientResponseException HttpException HttpRequestException ExecutionException \
    CompletionException AggregateException OperationalError";
