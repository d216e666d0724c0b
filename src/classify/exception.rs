//! An exception of a function as plain data: its type, its message and the codes in both. Knows no
//! class.

use std::error::Error;
use std::fmt;

use super::code;
use super::status::fold;

/// An exception as a function reports it: the name of its type, its message, and its cause.
///
/// Requeue reads the message, but never repeats it.
#[derive(Clone)]
pub struct Exception {
    message: String,
    /// The last part of the type, the whole type, and the codes that stand for the error.
    codes: Vec<String>,
    /// The names of other exceptions in the message.
    mentioned: Vec<String>,
    cause: Option<Box<Exception>>,
}

impl Exception {
    /// An exception of this type. Each may be empty.
    pub fn new(error_type: &str, message: &str) -> Self {
        let mut codes = vec![last_part(error_type).to_owned()];
        if error_type != codes[0] {
            codes.push(error_type.to_owned());
        }
        let message = message.to_owned();
        let beginning = &message[..message.floor_char_boundary(MAX_MESSAGE)];
        codes.extend(codes_in(beginning));
        let mentioned = mentioned_in(beginning);
        Self { message, codes, mentioned, cause: None }
    }

    /// The same, with the exception that caused it.
    #[must_use]
    pub fn caused_by(self, cause: Self) -> Self {
        Self { cause: Some(Box::new(cause)), ..self }
    }

    /// The same, with a further code that a user's rule may name.
    #[must_use]
    pub fn with_code(mut self, code: &str) -> Self {
        self.codes.push(code.to_owned());
        self
    }

    /// The last part of the type: `C` of `a.b.C`, `A$C`, `A\C` and `Function<A::C>`.
    pub fn name(&self) -> &str {
        &self.codes[0]
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn codes(&self) -> impl Iterator<Item = &str> {
        self.codes.iter().map(String::as_str)
    }

    pub(super) fn mentioned(&self) -> impl Iterator<Item = &str> {
        self.mentioned.iter().map(String::as_str)
    }
}

// Without its message, which may quote a body or a secret.
requeue_sqs::debug_by_name!(Exception; |it| name: code::presentable(it.name()));

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Exception {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.cause.as_deref()?)
    }
}

/// The texts before a code in messages that SDKs make of a response: botocore, the AWS SDK for Go, Slack's
/// for Node. The last one is Spring's, before a cause.
const BEFORE_CODE: [&str; 4] =
    ["An error occurred (", "api error ", "An API error occurred: ", "nested exception is "];
/// Fields of a body, or of an SDK's text, that have a code: `Error Code: Throttling`,
/// `(ErrorCode: RequestLimitExceeded)`, `'errorCode': 'UNABLE_TO_LOCK_ROW'`, `"reason":"backendError"`.
const FIELDS: [&str; 4] = ["code", "errorcode", "error", "reason"];
/// Words that end so name an exception, such as the cause that Java and Go put into the message.
const ENDINGS: [&str; 4] = ["Exception", "Error", "Timeout", "Detected"];
/// The bytes of a message in which codes are sought.
const MAX_MESSAGE: usize = 4_096;
const MAX_FOUND: usize = 16;

/// Every code in an error's chain.
pub(super) fn codes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a str> {
    let exceptions = super::chain(error).filter_map(|level| level.downcast_ref::<Exception>());
    exceptions.flat_map(|exception| exception.codes().chain(exception.mentioned()))
}

/// The codes in a known place, and the type of a cause, or a code, at the beginning.
fn codes_in(message: &str) -> impl Iterator<Item = String> {
    let in_place =
        BEFORE_CODE.iter().filter_map(|before| Some(beginning(message.split_once(before)?.1)));
    let first = message.split(": ").next().map(last_part);
    let first = first.filter(|name| is_name(name) || code::is_constant(name));
    // The AWS SDK for Go: `StatusCode: 400, RequestID: 1b-2, ExecutionLimitExceeded: …`
    let of_go = || Some(beginning(message.split_once("RequestID: ")?.1.split_once(", ")?.1));
    let alone = code::presentable(message).filter(|code| code.contains('_'));
    let found = in_place.chain(of_go()).chain(first).chain(alone).chain(fields_in(message));
    found.take(MAX_FOUND).map(str::to_owned)
}

/// The code at the beginning of a text.
fn beginning(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "_.#$-".contains(c)));
    text[..end.unwrap_or(text.len())].trim_end_matches('.')
}

fn fields_in(message: &str) -> impl Iterator<Item = &str> {
    message.match_indices([':', '=']).filter_map(|(at, sign)| {
        let name = message[..at].trim_end_matches([' ', '"', '\'', '\\']);
        let name = fold(name.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next()?);
        let rest = message[at + sign.len()..].trim_start_matches([' ', '"', '\'', '\\']);
        let value = beginning(rest);
        // A number is a status only if the words around it say so.
        let is_code = is_code(value)
            || name.ends_with("code") && value.bytes().any(|byte| byte.is_ascii_alphabetic());
        (FIELDS.contains(&&*name) && is_code).then_some(value)
    })
}

/// `channel_not_found`, `rateLimitExceeded`, but no plain word.
fn is_code(word: &str) -> bool {
    let tail = word.trim_start_matches(|c: char| !c.is_ascii_lowercase());
    word.contains('_') || tail.contains(|c: char| c.is_ascii_uppercase())
}

/// The names of exceptions anywhere in a message, such as the cause that Go and Python put there.
fn mentioned_in(message: &str) -> Vec<String> {
    let words = message.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| is_name(word)).take(MAX_FOUND).map(str::to_owned).collect()
}

fn is_name(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && ENDINGS.iter().any(|end| word.len() > end.len() && word.ends_with(end))
}

/// The last part of a type's name, without what a language puts around it. A namespace says nothing.
pub(super) fn last_part(error_type: &str) -> &str {
    let name = error_type.trim().trim_start_matches(['*', '&']);
    // Ruby's runtime: `Function<Net::ReadTimeout>`. Elsewhere `<…>` and `` `1 `` are parameters.
    let ruby =
        ["Function<", "Runtime<", "Init<"].iter().find_map(|before| name.strip_prefix(before));
    let name = ruby.and_then(|name| name.strip_suffix('>')).unwrap_or(name);
    let name = name.split(['<', '`', '[']).next().unwrap_or(name);
    name.rsplit(['.', ':', '$', '#', '/', '\\']).find(|part| !part.is_empty()).unwrap_or(name)
}
