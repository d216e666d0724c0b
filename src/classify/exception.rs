//! An exception of a function as plain data: its type, its message and the codes in both. Knows no
//! class.

use std::error::Error;
use std::fmt;

use super::code;

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

    /// The last part of the type: `C` of `a.b.C`, `A$C` and `Function<A::C>`.
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

/// Without its message, which may quote a body or a secret.
impl fmt::Debug for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exception")
            .field("name", &code::presentable(self.name()))
            .finish_non_exhaustive()
    }
}

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

/// The codes in the messages that SDKs make of a response.
const BEFORE_CODE: [(&str, &str); 5] = [
    // botocore
    ("An error occurred (", ")"),
    // The AWS SDK for Java, version 1
    ("Error Code: ", ";"),
    // The AWS SDK for Go
    ("api error ", ":"),
    // The Azure SDKs for Python and .NET
    ("\nCode: ", "\n"),
    ("\nErrorCode: ", "\n"),
];
/// Words that end so name an exception, such as the cause that Java and Go put into the message.
const ENDINGS: [&str; 4] = ["Exception", "Error", "Timeout", "Detected"];
/// The bytes of a message in which codes are sought.
const MAX_MESSAGE: usize = 4_096;
const MAX_MENTIONED: usize = 16;

/// Every code in an error's chain.
pub(super) fn codes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a str> {
    let exceptions = super::chain(error).filter_map(|level| level.downcast_ref::<Exception>());
    exceptions.flat_map(|exception| exception.codes().chain(exception.mentioned()))
}

/// The codes in a known place: those of [`BEFORE_CODE`], and the type of a cause at the beginning.
fn codes_in(message: &str) -> impl Iterator<Item = String> {
    let in_place = BEFORE_CODE.iter().filter_map(|(before, after)| {
        let (_, rest) = message.split_once(before)?;
        Some(rest.split_once(after)?.0)
    });
    let first = message.split(": ").next().map(last_part).filter(|name| is_name(name));
    in_place.chain(first).map(str::to_owned)
}

/// The names of exceptions anywhere in a message, such as the cause that Go and Python put there.
fn mentioned_in(message: &str) -> Vec<String> {
    let words = message.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| is_name(word)).take(MAX_MENTIONED).map(str::to_owned).collect()
}

fn is_name(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && ENDINGS.iter().any(|end| word.len() > end.len() && word.ends_with(end))
}

/// The last part of a type's name, without what a language puts around it.
fn last_part(error_type: &str) -> &str {
    let name = error_type.trim().trim_start_matches(['*', '&']);
    // Ruby's runtime: `Function<Net::ReadTimeout>`. Elsewhere `<…>` and `` `1 `` are parameters.
    let ruby =
        ["Function<", "Runtime<", "Init<"].iter().find_map(|before| name.strip_prefix(before));
    let name = ruby.and_then(|name| name.strip_suffix('>')).unwrap_or(name);
    let name = name.split(['<', '`', '[']).next().unwrap_or(name);
    name.rsplit(['.', ':', '$', '#', '/']).find(|part| !part.is_empty()).unwrap_or(name)
}
