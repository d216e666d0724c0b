//! Reads the facts of a JSON body: words that may be reasons, the service's name for the error, and
//! a delay. This module knows no class.

use std::time::Duration;

use serde_json::Value;

use super::Response;
use super::text::Words;
use super::{code, doubt, retry_after, rules, status};

/// The fields below which services describe an error, or list several; then the names of SOAP and
/// Intuit, of `NetSuite`, and of Dropbox.
const NESTED: &str = "\
    error errors details detail extensions root_cause fault Error Errors Fault o:errorDetails \
    reason";
/// Errors at a deeper level tell nothing new, nor do those after so many in a list.
const MAX_LEVELS: usize = 5;
const MAX_LISTED: usize = 10;

/// The fields whose text may be a reason, or the code of a user's rule. The last one is MYOB's.
const WORDS: &str = "\
    reason code status errorCode errorType error_code error_type errorcode type category name \
    issue id .tag ECODE o:errorCode Name";

/// The fields below which a service tells which parts of the request are wrong, and the fields that
/// repeat the name of such a part there. A text of the request must not choose the class.
const OF_REQUEST: [&str; 4] = ["details", "detail", "errors", "Errors"];
const ECHOED: [&str; 2] = ["name", "id"];

/// The fields in which an error may say its HTTP status. The last one is Telegram's.
const STATUSES: &str = "\
    code status statusCode status_code httpStatus http_status httpCode http_code error_code";

/// The fields in which an error may say what failed, in words.
const TEXTS: &str = "\
    message detail error_description errorMessage error_message description msg Message title";
/// Messages that may be reasons, of services that have no code for them: `SendGrid`.
const SENTENCES: [&str; 1] = ["Maximum credits exceeded"];
/// The longest body of another kind that is an error's message.
const MAX_TEXT: usize = 1_024;

/// The facts of an error body of a known shape.
#[derive(Default)]
pub(super) struct Details {
    pub(super) words: Vec<String>,
    /// Words that only a user's rule may name.
    echoed: Vec<String>,
    pub(super) aws_code: Option<String>,
    /// The server's name for the error, if it may be logged.
    pub(super) own_code: Option<String>,
    pub(super) delay: Option<Duration>,
    pub(super) graph_code: Option<i64>,
    pub(super) is_transient: bool,
    /// The service's messages. They are read only if it names a limit.
    messages: Vec<String>,
    is_daily_quota: bool,
    pub(super) limits_calls_at_once: bool,
    said_status: Option<u16>,
    /// The service's own words, if they are to be kept.
    pub(super) text: Option<String>,
}

impl Details {
    pub(super) fn of(response: &Response<'_>) -> Self {
        let mut details = Self::default();
        if response.status < 200 || (300..400).contains(&response.status) {
            return details;
        }
        details.aws_code = response
            .values("x-amzn-errortype")
            .find_map(|value| String::from_utf8(value.to_vec()).ok());
        if let Some(body) = json(response.body) {
            let errors = errors(&body);
            for (error, is_of_request) in &errors {
                details.read(error, *is_of_request);
            }
            let errors: Vec<&Value> = errors.into_iter().map(|(error, _)| error).collect();
            let text = || errors.iter().find_map(|error| text(error));
            details.text = rules::keep_text().then(text).flatten();
            if details.aws_code.is_none() {
                details.aws_code = body["__type"].as_str().map(str::to_owned);
            }
            details.own_code = code::of_errors(response.status, &errors);
        } else if rules::keep_text() && response.body.len() <= MAX_TEXT {
            details.text = String::from_utf8(response.body.to_vec()).ok();
        }
        let of_aws = || details.aws_code.as_deref().and_then(code::of_aws);
        details.own_code = details.own_code.take().or_else(of_aws);
        details
    }

    /// Reads one error: an object, or its code alone.
    fn read(&mut self, error: &Value, is_of_request: bool) {
        let word = |value: &Value| {
            let text = value.as_str().map(str::to_owned);
            text.or_else(|| value.as_i64().map(|code| code.to_string()))
        };
        let is_echoed = |name: &&str| is_of_request && ECHOED.contains(name);
        let (echoed, names): (Vec<&str>, Vec<&str>) = WORDS.split(' ').partition(is_echoed);
        self.echoed.extend(echoed.into_iter().filter_map(|name| word(&error[name])));
        let fields = names.into_iter().map(|name| &error[name]);
        self.words.extend([error].into_iter().chain(fields).filter_map(word));
        // Firebase: `TOO_MANY_ATTEMPTS_TRY_LATER : Access to this account has been …`
        let message = error["message"].as_str();
        self.words.extend(message.filter(|message| SENTENCES.contains(message)).map(str::to_owned));
        let message = message.filter(|_| !is_of_request);
        let code = message.and_then(|message| message.split(" : ").next());
        self.words.extend(code.filter(|code| code::is_constant(code)).map(str::to_owned));
        // Salesforce: `ConcurrentRequests (Concurrent API Requests) Limit exceeded.`
        self.limits_calls_at_once |= message.is_some_and(|text| text.starts_with("Concurrent"));
        self.messages.extend(text(error).filter(|_| !is_of_request));
        // Gemini: `GenerateRequestsPerDayPerProjectPerModel`
        self.is_daily_quota |= each(&error["violations"])
            .any(|violation| violation["quotaId"].as_str().is_some_and(|id| id.contains("PerDay")));
        // HubSpot's name for the limit: `DAILY`, `TEN_SECONDLY_ROLLING`
        let policy = error["policyName"].as_str().filter(|_| !is_of_request);
        self.words.extend(policy.map(|policy| format!("{policy} policy")));
        // A problem type is a URI, which ends in the word.
        for name in ["type", "@type", "documentation_url"] {
            let uri = error[name].as_str();
            self.words.extend(
                uri.and_then(|uri| uri.rsplit(['#', '/', '.', ':']).next()).map(str::to_owned),
            );
        }
        // Dropbox: `too_many_requests/...`, `path/too_many_write_operations/..`
        if let Some(summary) = error["error_summary"].as_str() {
            let summary = code::summary(summary);
            self.words.extend(summary.split('/').map(str::to_owned));
            self.words.push(summary.to_owned());
        }
        let delay = || error["retryDelay"].as_str().and_then(retry_after::proto_duration);
        let seconds = || {
            // Discord's place, Telegram's, and that of Salesforce Marketing Cloud
            let places = [error, &error["parameters"]];
            let seconds = ["retry_after", "retryAfter", "retry_after_seconds", "retryAfterSeconds"];
            let find = |names: &[&str]| {
                let mut fields =
                    places.into_iter().flat_map(|place| names.iter().map(|name| &place[name]));
                fields.find_map(retry_after::json_seconds)
            };
            let millis = || find(&["retry_after_ms", "retryAfterMs"]).map(|delay| delay / 1_000);
            find(&seconds).or_else(millis)
        };
        self.delay = self.delay.or_else(delay).or_else(seconds);
        // GraphQL Yoga, and a data source of Apollo
        let places = [&error["http"]["status"], &error["response"]["status"]];
        let said = STATUSES.split(' ').map(|name| &error[name]).chain(places).find_map(said_status);
        self.said_status = self.said_status.or(said.filter(|_| !error["fbtrace_id"].is_string()));
        if error["fbtrace_id"].is_string() {
            let code = &error["code"];
            self.graph_code = code.as_i64().or_else(|| code.as_str()?.parse().ok());
            self.is_transient = error["is_transient"] == true;
        }
    }

    /// The status by which the response is classified. A success in which the service says that it
    /// failed has the status that stands there, or for which a code stands.
    pub(super) fn status(&self, status: u16) -> u16 {
        let of_name = || self.words.iter().find_map(|word| status::of_name(word));
        let is_success = (200..300).contains(&status);
        is_success.then(|| self.said_status.or_else(of_name)).flatten().unwrap_or(status)
    }

    /// Whether a limit of the service is one of a day, or of a longer time: `Too many tokens per day`
    /// (Bedrock).
    pub(super) fn is_of_day(&self) -> bool {
        let is_long = |text: &String| Words::of_body(text.as_bytes()).name_long_limit();
        self.is_daily_quota || self.messages.iter().any(is_long)
    }

    pub(super) fn says(&self, reason: &str) -> bool {
        self.words.iter().any(|word| word == reason)
    }

    /// Whether a code says that the service may still work on the request.
    pub(super) fn are_in_doubt(&self) -> bool {
        self.words.iter().chain(&self.aws_code).any(|code| doubt::of_code(code))
    }

    /// The codes that a user's rule may name.
    pub(super) fn codes(&self) -> impl Iterator<Item = &str> {
        self.words.iter().chain(&self.echoed).chain(&self.aws_code).map(String::as_str)
    }
}

/// The words of an error, of which a code is none.
fn text(error: &Value) -> Option<String> {
    let mut fields = TEXTS.split(' ').map(|name| &error[name]).chain([error]);
    fields.find_map(|field| field.as_str().filter(|text| text.contains(' '))).map(str::to_owned)
}

fn said_status(value: &Value) -> Option<u16> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    u16::try_from(number).ok().filter(|status| (400..600).contains(status))
}

/// The JSON of a body. A byte or an escape that is no Unicode text must not hide the code beside it.
fn json(body: &[u8]) -> Option<Value> {
    serde_json::from_slice(body).ok().or_else(|| {
        let text = String::from_utf8_lossy(body);
        let is_around = |c: char| c.is_whitespace() || matches!(c, '\0' | '\u{feff}');
        let text = text.trim_matches(is_around);
        let may_be = text.starts_with(['{', '[']);
        may_be.then(|| serde_json::from_slice(&without_surrogates(text)).ok())?
    })
}

/// Turns each escape of half a surrogate pair, which no `str` can hold, into another character.
fn without_surrogates(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    let mut rest = bytes.as_mut_slice();
    while let [first, tail @ ..] = rest {
        if *first == b'\\'
            && let [b'u', high @ (b'd' | b'D'), low @ (b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F'), ..] =
                tail
        {
            (*high, *low) = (b'f', b'f');
        }
        rest = tail;
    }
    bytes
}

/// The body, or those that it lists, and the errors below them, level by level, each with whether it
/// stands below a field of [`OF_REQUEST`]. An error is an object; only the field `error` may be a
/// code itself.
fn errors(body: &Value) -> Vec<(&Value, bool)> {
    let mut level: Vec<(&Value, bool)> = each(body).map(|error| (error, false)).collect();
    let mut errors = Vec::new();
    for _ in 0..MAX_LEVELS {
        let below = level.iter().flat_map(|(error, is_of_request)| {
            NESTED.split(' ').flat_map(move |name| {
                let is_of_request = *is_of_request || OF_REQUEST.contains(&name);
                each(&error[name])
                    .filter(move |below| below.is_object() || name == "error")
                    .map(move |below| (below, is_of_request))
            })
        });
        let below = below.collect();
        errors.append(&mut level);
        level = below;
    }
    errors
}

fn each(value: &Value) -> impl Iterator<Item = &Value> {
    let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    values.iter().take(MAX_LISTED).filter(|value| !value.is_null())
}
