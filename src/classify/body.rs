//! Reads the facts of a body of JSON or XML: words that may be reasons, the service's name for the
//! error, and a delay. This module knows no class.

use std::time::Duration;

use serde_json::Value;

use super::Response;
use super::retry_after::Named;
use super::text::Words;
use super::{code, doubt, rules, status};

/// The fields below which services describe an error, or list several; then those of `NetSuite`,
/// Dropbox, UPS, Foursquare, Microsoft, DynamoDB, and FHIR. The case of a name, and lines in it, say
/// nothing.
const NESTED: &str = "\
    error errors details detail extensions root_cause fault o:errorDetails reason response meta \
    odata.error innerError CancellationReasons issue";
/// Errors at a deeper level add nothing, nor do those after this many in a list.
const MAX_LEVELS: usize = 5;
const MAX_LISTED: usize = 10;

/// The fields whose text is a code: a part of it may say that a retry helps.
const CODES: &str = "\
    code reason errorCode errorType type issue .tag ECODE o:errorCode errorName errorSubcode";
/// The fields whose text may be a reason as a whole. Some services put the state of an object there.
const WORDS: &str = "status category name id";

/// The fields below which a service names the wrong parts of the request, and the fields that
/// repeat the name of such a part there. A text of the request must not choose the class. MYOB's code
/// is in `Name`.
const OF_REQUEST: [&str; 3] = ["details", "detail", "errors"];
const ECHOED: [&str; 2] = ["name", "id"];

/// The fields in which an error may say its HTTP status. The last one is Telegram's.
const STATUSES: &str = "code status statusCode httpStatus httpCode errorCode";

/// The fields in which an error may say what failed, in words.
const TEXTS: &str = "message detail errorDescription errorMessage description msg title";
/// Messages that may be reasons, of services that have no code for them: `SendGrid`, Shopify,
/// Salesforce's login; and their fields.
const SENTENCES: [&str; 3] =
    ["Maximum credits exceeded", "This shop is unavailable", "retry your request"];
const OF_SENTENCES: [&str; 3] = ["message", "errors", "errorDescription"];
/// The fields with a delay: Google's, that of many, monday.com's, Infura's, WSO2's; and in milliseconds.
const DELAYS: &str = "\
    retryDelay retryAfter retryAfterSeconds retryInSeconds backoffSeconds nextAccessTime";
const MILLIS: &str = "retryAfterMs";
/// The fields with the end of a limit: of many, and Google's Antigravity.
const RESETS: &str = "\
    resetsInSeconds resetInSeconds resetAfterSeconds resetAfter resetsAt resetAt resetTime \
    quotaResetDelay quotaResetTimeStamp";
/// Headers with the code of an error: of AWS, Mashery and Azure.
const CODE_HEADERS: [&str; 3] = ["x-amzn-errortype", "x-mashery-error-code", "x-ms-error-code"];
/// Texts before a code in XML, in lower case, and at the beginning of pages without one.
const BEFORE_CODE: &str =
    "<code>|:code>|<errorcode>|:errorcode>|<faultcode>|:faultcode>| code=\"|:value>";
/// The codes of SOAP 1.1 and 1.2 for a request at fault.
const SENDERS: [&str; 2] = ["Client", "Sender"];
const PAGES: [&str; 2] = ["<!doctype html", "<html"];
/// The longest body of another kind that is an error's message.
const MAX_TEXT: usize = 1_024;

/// The facts of an error body of a known shape.
#[derive(Default)]
pub(super) struct Details {
    pub(super) codes: Vec<String>,
    words: Vec<String>,
    /// Words that only a user's rule may name.
    echoed: Vec<String>,
    pub(super) aws_code: Option<String>,
    /// The server's name for the error, if it may be logged.
    pub(super) own_code: Option<String>,
    pub(super) delay: Option<Duration>,
    /// The end of a limit. For another failure, it is no delay.
    pub(super) reset: Option<Duration>,
    pub(super) graph_code: Option<i64>,
    pub(super) is_transient: bool,
    /// The service's messages. They are read only if it names a limit, or has a code of AWS.
    pub(super) messages: Vec<String>,
    is_daily_quota: bool,
    pub(super) limits_calls_at_once: bool,
    said_status: Option<u16>,
    /// The service's own words, if they are to be kept.
    pub(super) text: Option<String>,
}

impl Details {
    pub(super) fn of(response: &Response<'_>, named: &Named<'_>) -> Self {
        let mut details = Self::default();
        if response.status < 200 || (300..400).contains(&response.status) {
            return details;
        }
        details.aws_code = CODE_HEADERS
            .iter()
            .flat_map(|name| response.values(name))
            .find_map(|value| String::from_utf8(value.to_vec()).ok());
        if let Some(body) = json(response.body) {
            let errors = errors(&body);
            for (at, (error, is_of_request)) in errors.iter().enumerate() {
                let levels = if at < each(&body).count() { 0 } else { MAX_LEVELS };
                let delay_of = |find: &Find<'_>| first(error, find, levels);
                details.delay = details.delay.or_else(|| delay_of(&|error| delay(error, named)));
                details.reset = details.reset.or_else(|| delay_of(&|error| reset(error, named)));
                details.read(error, *is_of_request);
            }
            let errors: Vec<&Value> = errors.into_iter().map(|(error, _)| error).collect();
            let text = || errors.iter().flat_map(|error| texts(error)).next();
            details.text = rules::keep_text().then(text).flatten().map(str::to_owned);
            // The reason why DynamoDB cancelled a transaction is more specific than the
            // cancellation.
            let mut causes =
                each(&body["CancellationReasons"]).filter_map(|cause| word(&cause["Code"]));
            let cause = causes.find(|cause| cause != "None").or(details.aws_code.take());
            details.aws_code = cause.or_else(|| word(&body["__type"]));
            details.own_code = code::of_errors(response.status, &errors);
        } else {
            let text = String::from_utf8_lossy(response.body);
            let code = code_in_text(text.trim_start_matches('\u{feff}').trim_start());
            let code = code.filter(|code| *code != response.status.to_string());
            details.codes.extend(code.clone());
            details.aws_code = details.aws_code.take().or(code);
            let is_kept = rules::keep_text() && response.body.len() <= MAX_TEXT;
            details.text = is_kept.then(|| text.into_owned());
        }
        let of_aws = || code::presentable(code::bare(details.aws_code.as_deref()?));
        details.own_code = details.own_code.take().or_else(|| of_aws().map(str::to_owned));
        details
    }

    /// Reads one error: an object, or its code alone.
    fn read(&mut self, error: &Value, is_of_request: bool) {
        let field = |name: &str| code::field(error, name);
        let is_echoed = |name: &&str| {
            is_of_request && ECHOED.contains(name) && (*name != "name" || error.get(name).is_some())
        };
        let (echoed, names): (Vec<&str>, Vec<&str>) = WORDS.split(' ').partition(is_echoed);
        self.echoed.extend(echoed.into_iter().filter_map(|name| word(field(name))));
        self.words.extend(names.into_iter().filter_map(|name| word(field(name))));
        let fields = CODES.split(' ').map(field);
        let mut codes: Vec<_> = [error].into_iter().chain(fields).filter_map(word).collect();
        // Resend's code. Elsewhere a name may be that of anything.
        if !is_of_request && !codes.iter().any(|code| code.contains(char::is_alphabetic)) {
            codes.extend(word(field("name")).filter(|name| name.contains('_')));
        }
        self.codes.extend(codes);
        // Google Ads: `"errorCode":{"databaseError":"CONCURRENT_MODIFICATION"}`
        let inner = field("errorCode").as_object().into_iter().flat_map(|object| object.values());
        self.codes.extend(inner.take(MAX_LISTED).filter_map(word));
        // Firebase: `TOO_MANY_ATTEMPTS_TRY_LATER : Access to this account has been …`
        let message = field("message").as_str();
        let said = OF_SENTENCES.into_iter().filter_map(|name| field(name).as_str());
        self.words.extend(said.filter(|said| SENTENCES.contains(said)).map(str::to_owned));
        let message = message.filter(|_| !is_of_request);
        let code = message.and_then(|message| message.split(" : ").next());
        self.codes.extend(code.filter(|code| code::is_constant(code)).map(str::to_owned));
        // Salesforce: `ConcurrentRequests (Concurrent API Requests) Limit exceeded.`
        self.limits_calls_at_once |= message.is_some_and(|text| text.starts_with("Concurrent"));
        self.messages.extend(texts(error).map(str::to_owned));
        // Gemini: `GenerateRequestsPerDayPerProjectPerModel`
        self.is_daily_quota |= each(&error["violations"])
            .any(|violation| violation["quotaId"].as_str().is_some_and(|id| id.contains("PerDay")));
        // HubSpot's name for the limit: `DAILY`, `TEN_SECONDLY_ROLLING`
        let policy = error["policyName"].as_str().filter(|_| !is_of_request);
        self.words.extend(policy.map(|policy| format!("{policy} policy")));
        // A problem type is a URI, which ends in the code.
        let end = |name: &str| error[name].as_str()?.rsplit(['#', '/', '.', ':']).next();
        self.codes.extend(end("type").map(str::to_owned));
        let ends = ["@type", "documentation_url"].into_iter().filter_map(end);
        self.words.extend(ends.map(str::to_owned));
        // Dropbox: `too_many_requests/...`, `path/too_many_write_operations/..`
        if let Some(summary) = error["error_summary"].as_str() {
            let summary = code::summary(summary);
            self.codes.extend(summary.split('/').map(str::to_owned));
            self.codes.push(summary.to_owned());
        }
        // GraphQL Yoga, and a data source of Apollo
        let places = [&error["http"]["status"], &error["response"]["status"]];
        let said = STATUSES.split(' ').map(field).chain(places).find_map(said_status);
        self.said_status = self.said_status.or(said.filter(|_| !error["fbtrace_id"].is_string()));
        if error["fbtrace_id"].is_string() {
            let code = &error["code"];
            self.graph_code = code.as_i64().or_else(|| code.as_str()?.parse().ok());
            // The service is down for now; Instagram: the medium is not ready to be published;
            // WhatsApp: maintenance, and a number that was deleted a moment ago
            self.is_transient = error["is_transient"] == true
                || matches!(self.graph_code, Some(2 | 9_007 | 131_057 | 133_015));
        }
    }

    /// The status by which the response is classified. If a success is a failure by its body, the
    /// status comes from the body, or from a code there.
    pub(super) fn status(&self, status: u16) -> u16 {
        let of_name = || self.words().find_map(status::of_name);
        let is_success = (200..300).contains(&status);
        is_success.then(|| self.said_status.or_else(of_name)).flatten().unwrap_or(status)
    }

    /// Whether a limit of the service lasts for a day, or longer: `Too many tokens per day`
    /// (Bedrock).
    pub(super) fn is_of_day(&self) -> bool {
        let is_long = |text: &String| Words::of_body(text.as_bytes()).name_long_limit();
        self.is_daily_quota || self.messages.iter().any(is_long)
    }

    /// Whether a fault of SOAP blames the request, and no word says that it passes: WCF has this code
    /// for any fault.
    pub(super) fn is_of_sender(&self, body: &[u8]) -> bool {
        let is_code = |code: &String| SENDERS.contains(&code.rsplit('.').next().unwrap_or(code));
        let words = || Words::of_body(body);
        body.contains(&b'<') && self.codes.iter().any(is_code) && !words().may_pass()
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.codes.iter().chain(&self.words).map(String::as_str)
    }

    /// The word that is this reason: `rate_limited`, `RateLimited`. In a sentence, each letter
    /// counts.
    pub(super) fn spelled(&self, reason: &str) -> Option<&str> {
        let letters = status::fold(reason);
        let is_it = |word: &str| code::presentable(word).is_some() && status::fold(word) == letters;
        self.words().find(|word| *word == reason || is_it(word))
    }

    /// Whether a code means that the service may still work on the request.
    pub(super) fn are_in_doubt(&self) -> bool {
        self.words().chain(self.aws_code.as_deref()).any(doubt::of_code)
    }

    /// The codes that a user's rule may name.
    pub(super) fn for_rules(&self) -> impl Iterator<Item = &str> {
        self.words().chain(self.echoed.iter().chain(&self.aws_code).map(String::as_str))
    }
}

fn word(value: &Value) -> Option<String> {
    let text = value.as_str().map(str::to_owned);
    text.or_else(|| value.as_i64().map(|code| code.to_string()))
}

/// The words of an error, of which a code is none.
fn texts(error: &Value) -> impl Iterator<Item = &str> {
    let fields = TEXTS.split(' ').map(|name| code::field(error, name)).chain([error]);
    fields.filter_map(|field| field.as_str().filter(|text| text.contains(' ')))
}

type Find<'f> = dyn Fn(&Value) -> Option<Duration> + 'f;

/// The time that an error names, or the first below it. A field of that name anywhere in a body may be one
/// of the request.
fn first(error: &Value, find: &Find<'_>, levels: usize) -> Option<Duration> {
    let below = || {
        let fields = error.as_object().filter(|_| levels > 0)?.values();
        fields.flat_map(each).find_map(|below| first(below, find, levels - 1))
    };
    find(error).or_else(below)
}

/// The delay that an error names.
fn delay(error: &Value, named: &Named<'_>) -> Option<Duration> {
    let field = |name: &str| named.in_json(code::field(error, name));
    // Telegram's field.
    let parameters = || delay(error.get("parameters")?, named);
    let millis = || Some(field(MILLIS)? / 1_000);
    DELAYS.split(' ').find_map(field).or_else(millis).or_else(parameters)
}

fn reset(error: &Value, named: &Named<'_>) -> Option<Duration> {
    let field = |name: &str| named.in_json(code::field(error, name));
    RESETS.split(' ').filter_map(field).find(|reset| !reset.is_zero())
}

/// The code of an error in XML: `<Code>Throttling</Code>`, `<Error code="3001">`; or Cloudflare's text.
fn code_in_text(text: &str) -> Option<String> {
    if let Some(code) = text.strip_prefix("error code: ") {
        return code::presentable(code.trim()).map(str::to_owned);
    }
    let lower = text.to_ascii_lowercase();
    let is_xml = text.starts_with('<') && !PAGES.iter().any(|page| lower.starts_with(page));
    let after = |before: &str| {
        let value = text[lower.find(before)? + before.len()..].split(['<', '"']).next()?;
        code::presentable(value.trim().rsplit(':').next()?)
    };
    is_xml.then(|| BEFORE_CODE.split('|').find_map(after))?.map(str::to_owned)
}

fn said_status(value: &Value) -> Option<u16> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    u16::try_from(number).ok().filter(|status| (400..600).contains(status))
}

/// The JSON of a body. A byte or an escape that is no Unicode text must not hide the code.
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

/// The body, or the bodies that it lists, and the errors below them, level by level, each with
/// whether it is below a field of [`OF_REQUEST`]. An error is an object; only the field `error` may
/// be a code itself.
fn errors(body: &Value) -> Vec<(&Value, bool)> {
    let mut level: Vec<(&Value, bool)> = each(body).map(|error| (error, false)).collect();
    let mut errors = Vec::new();
    for _ in 0..MAX_LEVELS {
        let below = level.iter().flat_map(|(error, is_of_request)| {
            NESTED.split(' ').flat_map(move |name| {
                let is_of_request = *is_of_request || OF_REQUEST.contains(&name);
                each(code::field(error, name))
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
