//! Classifies an exception of any language by its type, as the runtime of a Lambda function reports
//! it: `ReadTimeout`, `java.net.SocketTimeoutException`, `Function<Net::OpenTimeout>`, `A$B`.
//!
//! Most names are specific, so [`PARTS`] has parts of names. [`NAMES`] has the names that such a
//! part would misread, and unspecific ones. A type that wraps a response has no class itself: the
//! code or the status in its message counts. A name that refuses the request hides no limit of the
//! message, and no failure that passes.

use std::error::Error;
use std::time::Duration;

use super::exception::{Exception, last_part};
use super::retry_after::in_message;
use super::status::{self, fold};
use super::text::{self, Meaning, Service, Words};
use super::{GrpcStatus, aws, code, grpc, http, rules};
use crate::clock::Clock;
use crate::failure::{Evidence, Failure, FailureClass};
use message::{MESSAGES, PASSING, REACHED};
use names::{NAMES, PARTS};

mod message;
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
        let failure = Self::classified(exception);
        let failure = match code::presentable(exception.name()) {
            Some(name) if failure.evidence() == Evidence::Unrecognised => {
                let named = format_args!("unrecognised: {name}");
                Self::new(Temporary, Evidence::Unrecognised, named).doubted(failure.is_in_doubt())
            }
            Some(_) | None => failure,
        };
        let named = failure.delay().is_none().then(|| named_delay(&failure, exception.message()));
        let failure = match named.flatten() {
            // As over HTTP, this limit is that of a day. A rule chooses the class itself.
            Some(delay)
                if delay > http::LONGEST_RATE_LIMIT && failure.evidence() != Evidence::Rule =>
            {
                failure.retry_after(delay).of_long_limit()
            }
            Some(delay) => failure.retry_after(delay),
            None => failure,
        };
        failure.with_text_of(exception)
    }

    /// With the exception's message as the service's own text, if the settings keep such texts.
    pub fn with_text_of(self, exception: &Exception) -> Self {
        self.saying(rules::keep_text().then(|| exception.message()))
    }
}

/// The delay that a service names in a message, as in `status code 503, retry after 20`. Without a
/// limit or a status, the words may be a client's about itself.
fn named_delay(failure: &Failure, message: &str) -> Option<Duration> {
    let status = || status_of(message, &Words::of_body(message.as_bytes()));
    let is_of_service = match failure.class() {
        RateLimit | Quota => true,
        Temporary => status().is_some(),
        NonRetryable => false,
    };
    is_of_service.then(|| in_message(message, Clock::system().now()))?
}

fn status_of(message: &str, words: &Words) -> Option<u16> {
    message::status_in_place(message).or_else(|| words.status_number())
}

/// Classifies one level of a chain. The cause of a refusal may pass.
pub(super) fn exception(error: &(dyn Error + 'static)) -> Option<Failure> {
    let exception = error.downcast_ref::<Exception>()?;
    let failure = of_level(exception)?;
    if is_passing(&failure) {
        return Some(failure);
    }
    let mut causes = super::chain(error).skip(1).filter_map(<dyn Error>::downcast_ref);
    Some(causes.find_map(|cause| of_level(cause).filter(is_passing)).unwrap_or(failure))
}

fn is_passing(failure: &Failure) -> bool {
    failure.class() != NonRetryable
}

/// In this order: a validator, a limit or failure that passes, a refusal, a status, words.
fn of_level(exception: &Exception) -> Option<Failure> {
    let words = Words::of_errors(std::iter::once(exception as &(dyn Error + 'static)));
    let message = exception.message();
    let status = message::status_in_place(message).map(text::of_status);
    let number = status_of(message, &words);
    // A limit of a declined card is the payer's.
    let is_declined = words.say_declined(number);
    // A service that responded was reached, whatever the name.
    let by_name = |code: &str| {
        by_code(code, exception, &words, is_declined)
            .filter(|failure| status.is_none() || !failure.is_service_down())
    };
    let named: Vec<Failure> = exception.codes().map(last_part).filter_map(by_name).collect();
    if let Some(final_one) = named.first().filter(|_| is_validator(exception, &words)) {
        return Some(final_one.clone());
    }
    let by_grpc = || Some(Failure::from_grpc(GrpcStatus::named(grpc::in_message(message)?)?));
    let is_refused = !named.is_empty() || by_grpc().is_some();
    let is_told = !is_refused || (words.hold_any(REACHED) && !words.hold("invalid request error"));
    let of_words = || words.quota_or_rate_limit().filter(|_| !is_declined);
    let limit = || of_words().filter(|limit| is_told && is_passing(limit));
    // The message may quote the name of some other error, which must not dead-letter the message.
    let mentioned = || exception.mentioned().filter_map(by_name).find(is_passing);
    let failure = words
        .smtp(exception.codes().any(|code| fold(code).contains("smtp")))
        .or_else(|| message::of_ftp(exception.name(), message))
        .or_else(|| aws::clock(message))
        .or_else(|| message::of_flood(message))
        .or_else(|| words.said(number))
        .or_else(|| of_status_and_code(number?, exception))
        .or_else(|| of_transaction(message, by_name))
        .or_else(|| by_grpc().filter(is_passing))
        .or_else(|| named.iter().find(|failure| is_passing(failure)).cloned())
        .or_else(limit)
        .or_else(|| by_words(&words, &PASSING))
        .or_else(|| is_login(exception).then(|| of_login(&words).or_else(mentioned))?)
        .or_else(by_grpc)
        .or_else(|| named.first().cloned())
        .or_else(mentioned)
        .or_else(|| status.clone())
        .or_else(of_words)
        .or_else(|| words.status())
        .or_else(|| by_words(&words, &MESSAGES))?;
    // `Error code: 429 - You exceeded your current quota` names the limit.
    let quota = || of_words().filter(|limit| limit.class() == Quota);
    Some(match failure.class() {
        RateLimit if words.name_short_limit() => failure,
        RateLimit if words.name_long_limit() => failure.of_long_limit(),
        RateLimit => quota().unwrap_or(failure),
        // As over HTTP, a service that refuses a request works.
        Temporary if !failure.is_service_down() && number.is_some_and(|it| it / 100 == 4) => {
            Service::Works.of(failure)
        }
        _ => failure,
    })
}

/// A code that counts with this status alone.
fn of_status_and_code(status: u16, exception: &Exception) -> Option<Failure> {
    let find = |reason: &str| exception.codes().find(|code| code.eq_ignore_ascii_case(reason));
    let (class, code) = http::by_status(status, find)?;
    let code = code::presentable(code).unwrap_or("by its code");
    let failure = Failure::new(class, Evidence::Typed, format_args!("status {status}: {code}"));
    Some(failure.doubted(class == Temporary))
}

/// Whether it means that a login was refused, or that no token could be fetched for one.
fn is_login(exception: &Exception) -> bool {
    let name = fold(exception.name());
    ["authentication", "authoriz", "unauthenticated"].iter().any(|part| name.contains(part))
        || grpc::in_message(exception.message()) == Some("UNAUTHENTICATED")
}

/// Why no token could be fetched: the words of a network, a timeout, a limit or a server error.
fn of_login(words: &Words) -> Option<Failure> {
    let status = words.status().filter(is_passing);
    let phrase = || words.other_phrase().filter(is_passing);
    status.or_else(phrase).or_else(|| by_words(words, &MESSAGES).filter(is_passing))
}

/// Why DynamoDB cancelled a transaction: one code for each item, `None` for those without fault. A
/// condition that failed fails again, whatever else was in the way.
fn of_transaction(message: &str, by_name: impl Fn(&str) -> Option<Failure>) -> Option<Failure> {
    let (_, reasons) = message.split_once("specific reasons [")?;
    let reasons = reasons.split(']').next()?.split(", ");
    let failures = reasons.filter_map(|reason| by_name(&format!("{reason}Exception")));
    failures.max_by_key(|failure| (failure.class() == NonRetryable, failure.class() == RateLimit))
}

/// Whether it refuses the data, which its text quotes, so that no words count. A service may use
/// such a name for anything.
fn is_validator(exception: &Exception, words: &Words) -> bool {
    let folded = fold(exception.name());
    let of_service = ["An error occurred (", "(Service: ", "StatusCode: ", "api error "];
    (VALIDATORS.split(' ').any(|part| folded.contains(part)) || is_json(&folded, exception, words))
        && !of_service.iter().any(|words| exception.message().contains(words))
}

/// Parts of such names, except those of parsers.
const VALIDATORS: &str = "\
    validation zoderror schemaerror argumentnotvalid constraintviolation recordinvalid parammissing \
    notfound unprocessable toolarge notallowed carderror cardexception";

fn by_code(code: &str, exception: &Exception, words: &Words, is_declined: bool) -> Option<Failure> {
    let name = code::bare(code);
    let folded = fold(name);
    // `404`; jsforce: `ERROR_HTTP_503`
    let number = folded.trim_start_matches("error").trim_start_matches("http");
    if let Some(status) = text::status(number) {
        return Some(text::of_status(status));
    }
    if WRAPPERS.split(' ').any(|wrapper| wrapper.eq_ignore_ascii_case(&folded)) {
        return None;
    }
    let typed = |class, service: Service, meaning: &str| {
        let failure = match code::presentable(name) {
            Some(name) => Failure::new(class, Evidence::Typed, format_args!("{meaning}: {name}")),
            None => Failure::new(class, Evidence::Typed, meaning),
        };
        service.of(failure).doubted(service == Lost)
    };
    // Its name is unspecific, and its text has the cause: .NET uses one name for this and TLS.
    if folded.contains("authentication") && words.hold_any(TLS) {
        return Some(typed(Temporary, Down, "certificate not accepted"));
    }
    // The files of this machine: Python's `PermissionError`, Java's `AccessDeniedException`, .NET's
    // `UnauthorizedAccessException`. Stripe and AWS have names like these.
    let is_access = ["permissionerror", "accessdenied", "unauthorizedaccess"];
    let is_java = exception.codes().any(|code| code.starts_with("java.nio.file."));
    let message = exception.message();
    let is_path = message.starts_with('/') && !message.contains(char::is_whitespace);
    let is_file = is_java || is_path || words.hold_any("errno 13|errno 1|access to the path");
    if is_file && is_access.iter().any(|part| folded.contains(part)) {
        return Some(typed(Temporary, Up, "file access"));
    }
    // Stripe has one type for a key that is used again, and for one whose first request still runs.
    if folded.contains("idempoten") && words.say_in_progress() {
        return Some(typed(Temporary, Up, "in progress").in_doubt());
    }
    if folded == "programmingerror" {
        let is_final = ["42", "22"].iter().any(|class| words.have_sqlstate(class));
        let is_final = is_final || words.hold_any(WRONG_STATEMENT);
        // A pooler gave the connection of another session, which has other prepared statements.
        let is_other = words.hold("prepared statement")
            && words.hold_any("does not exist|already exists")
            && !words.hold("syntax");
        return (is_final && !is_other).then(|| typed(NonRetryable, Up, "refused"));
    }
    let is_named = |row: &&(_, &str)| row.1.split(' ').any(|it| it.eq_ignore_ascii_case(&folded));
    if let Some(((class, service, meaning), _)) = NAMES.iter().find(is_named) {
        return Some(typed(*class, *service, meaning));
    }
    // Salesforce has one code for the requests of a day and those at once, and Databricks a 429 with it.
    let is_short = name == "REQUEST_LIMIT_EXCEEDED" && words.hold_any("concurrentrequests|429");
    let by_reason = || http::by_reason(name);
    let constant = by_reason().filter(|_| code::is_constant(name) && !is_short);
    let by_aws = if is_declined { aws::by_table } else { aws::by_code };
    if let Some(known) = constant.or_else(|| by_aws(name)).or_else(by_reason) {
        return Some(known);
    }
    if is_json(&folded, exception, words) {
        let is_response = exception.codes().any(|code| code.starts_with("requests."))
            || folded.contains("response")
            || words.hold_any(OF_RESPONSE);
        let is_other = is_response || message::is_no_json(message, words);
        let class = if is_other { Temporary } else { NonRetryable };
        return Some(typed(class, Up, "no JSON"));
    }
    let mut part = PARTS.iter().filter(|row| row.1.split(' ').any(|part| folded.contains(part)));
    let part = part.find(|row| !is_declined || row.0.0 == NonRetryable || row.0.1 != Up);
    if let Some(((class, service, meaning), _)) = part {
        if *service != Up && is_of_item(&folded) {
            return None;
        }
        // A row that this one refers to may be inserted later.
        let is_early = *meaning == "constraint violated" && words.hold_any(NO_PARENT)
            || folded.contains("foreignkey");
        let is_there = *meaning == "conflict" && words.hold_any("already exists|already exist");
        let class = if is_there { NonRetryable } else { *class };
        return Some(typed(if is_early { Temporary } else { class }, *service, meaning));
    }
    let by_status = || status::of_name(name).map(text::of_status);
    grpc::of_type(name).map(Failure::from_grpc).or_else(by_status)
}

/// Whether a name is about a thing that the message names, which says nothing about the service:
/// `SeatNotAvailableException`, `UnsupportedNetworkException`.
fn is_of_item(folded: &str) -> bool {
    let is_refused = REFUSED.split(' ').any(|part| folded.contains(part));
    let available = ["notavailable", "unavailable"].iter().find_map(|part| folded.split_once(part));
    let is_item = |before: &str| ITEMS.split(' ').any(|end| before.ends_with(end));
    is_refused || available.is_some_and(|(before, _)| is_item(before))
}

/// Parts of names that refuse a value.
const REFUSED: &str = "notfound invalid unsupported notsupported";
/// The ends of the names of such things, before `Unavailable`. Any other name, as in `BankUnavailable`,
/// may be that of a service.
const ITEMS: &str = "\
    appointment caption captions content date episode fare feature file flight format inventory item \
    items listing offer option page product quantity room seat seats size sku slot song stock subtitle \
    subtitles ticket tickets track transcript transcripts username variant vehicle video";

const TLS: &str = "certificate|remote certificate|ssl|tls|handshake";

/// Words about a row that another one refers to: most data bases; Oracle; Db2.
const NO_PARENT: &str = "foreign key|parent key not found|sqlstate 23503";

/// Words about a wrong statement, in what drivers of Python name `ProgrammingError`.
const WRONG_STATEMENT: &str = "\
    syntax|undefined|undefinedtable|undefinedcolumn|undefinedfunction|does not exist|\
    doesn t exist|no such table|no such column|unknown column|invalid object name|\
    invalid column name|invalid identifier|number of bindings";

fn is_json(folded: &str, exception: &Exception, words: &Words) -> bool {
    let is_parser = JSON_PARSERS.split(' ').any(|part| folded.contains(part));
    // Ruby's is `JSON::ParserError`. Parsers of responses, dates and tables have this name too.
    let is_ruby = || exception.codes().any(|code| fold(code).contains("jsonparsererror"));
    is_parser
        || (folded == "parsererror" && is_ruby())
        || (folded == "syntaxerror" && words.hold_any("json|raw response"))
}

/// Words of a response that could not be read. Which one broke the request is unknown.
const OF_RESPONSE: &str = "response|responses|retries may succeed|content type";

/// Parts of the names of such exceptions: Python's and requests', Jackson's, Gson's, .NET's,
/// Newtonsoft's, Ruby's, kotlinx'.
const JSON_PARSERS: &str = "\
    jsondecod jsonparse jsonsyntax jsonmapping jsonprocessing jsoneof jsonreader jsonserialization \
    jsonexception invalidjson malformedjson deserializ mismatchedinput invalidformat \
    unrecognizedproperty streamread databind";

fn by_words(words: &Words, table: &[(Meaning, &str)]) -> Option<Failure> {
    let ((class, service, meaning), _) = table.iter().find(|row| words.hold_any(row.1))?;
    let failure = Failure::new(*class, Evidence::Text, meaning).doubted(*service == Lost);
    Some(service.of(failure))
}

/// Names that wrap a response, or anything: the code, the status or the words in the message count.
// Of botocore, requests, aiohttp, azure.core, axios, gaxios, Azure for JS, got, MongoDB, gRPC, Spring,
// retrofit, .NET, Java, the DB-API and Powertools.
const WRAPPERS: &str = "\
    ClientError HTTPError HttpError ClientResponseError HttpResponseError \
    AxiosError GaxiosError RestError RequestError MongoServerError UnknownError \
    StatusRuntimeException RpcException HttpClientErrorException HttpServerErrorException \
    WebClientResponseException HttpException HttpRequestException ExecutionException \
    CompletionException AggregateException OperationalError IdempotencyPersistenceLayerError \
    IdempotencyPersistenceLayerException";
