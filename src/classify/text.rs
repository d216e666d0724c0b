//! Classifies an error by the words of its message. This is the last resort: anyone may reword a
//! message, and its words may be about something else.
//!
//! Only whole words and whole numbers count: "order 84010 timed out" is a timeout, and "retry in
//! 400ms" is no 400. A number is a status only by the words around it.

use std::error::Error;
use std::fmt::{self, Write};

use super::status::{class_of, is_used};
use super::{aws, smtp};
use crate::failure::{Evidence, Failure, FailureClass};
use said::{IN_PROGRESS, PAYER, SAID};

mod said;

pub(super) use said::{DECLINED, TOO_LARGE};

/// The meaning of a phrase for the service.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    /// None, or it works.
    Up,
    /// It works, since it refused this request.
    Works,
    /// It does not work, whatever the message.
    Down,
    /// It does not work, and may have got the request.
    Lost,
}

impl Service {
    pub(super) fn of(self, failure: Failure) -> Failure {
        match self {
            Self::Up => failure,
            Self::Works => failure.by_status(400),
            Self::Down | Self::Lost => failure.service_down(),
        }
    }
}

/// The class of words, their meaning for the service, and their name in a reason.
pub(super) type Meaning = (FailureClass, Service, &'static str);

/// Phrases in lower case, between bars. The first row that matches wins, so rows with a longer wait
/// come first and non-retryable rows come last.
const PHRASES: [(Meaning, &str); 15] = {
    use FailureClass::{NonRetryable, Quota, RateLimit, Temporary};
    use Service::{Down, Lost, Up};
    rows! {
        (Quota, Up, "quota exceeded") =>
            "quota exceeded|exceeded quota|exceeded your quota|exceeded your current quota|\
            insufficient quota|out of quota|daily limit exceeded|quotaexceeded|dailylimitexceeded|\
            over your quota|over your space quota|exceeded its quota";
        (RateLimit, Up, "too many requests") =>
            "too many requests|rate limit|rate limits|rate limited|rate exceeded|ratelimit|\
            ratelimited|ratelimitexceeded|userratelimitexceeded|request limit exceeded|\
            resource exhausted|resourceexhausted|some resource has been exhausted|slow down|\
            throttled|throttling|over query limit|calls per second for api client";
        (Temporary, Lost, "timed out") => "timed out|timeout|time out|deadline exceeded";
        (Temporary, Down, "connection refused") => "connection refused";
        (Temporary, Lost, "connection reset") => "connection reset|econnreset|reset by peer";
        (Temporary, Lost, "connection closed") =>
            "broken pipe|connection aborted|connection closed|socket hang up";
        (Temporary, Down, "name not resolved") =>
            "dns error|failed to lookup address information|name or service not known|\
            host not found|no such host|enotfound";
        // A certificate that was not accepted is no fault of the message.
        (Temporary, Down, "certificate not accepted") =>
            "certificate validation|certificate verify failed|ssl validation|tls validation";
        (Temporary, Down, "temporarily unavailable") =>
            "service unavailable|temporarily unavailable|try again later";
        (Temporary, Down, "bad gateway") => "bad gateway|gateway timeout";
        (Temporary, Up, "server error") => "internal server error";
        (NonRetryable, Up, "bad request") => "bad request|unprocessable entity";
        (NonRetryable, Up, "validation failed") =>
            "validation error|validation errors|validation failed|failed validation";
        (NonRetryable, Up, "unauthorized") => "unauthorized|unauthenticated|authentication failed";
        (NonRetryable, Up, "forbidden") => "forbidden|access denied|invalid api key";
    }
};

/// Words of a mail server about the sender's limit. A recipient's full mailbox is none.
const MAIL_LIMITS: &str = "\
    sending limit|sending quota|daily limit|per hour|per day|sending paused|daily quota|\
    daily message quota|submission quota|submissionquotaexceededexception";
/// A limit with one of these words passes soon, whatever the rest of the message.
const PER_TIME: &str = "\
    per minute|per second|per min|persecond|per 100 seconds|throughput|calls minute|\
    requests minute|calls second|requests second";
/// So does a limit with one of these names, without a word of [`OF_DAY`].
const NAMED_SHORT: &str = "rate limit exceeded|ratelimitexceeded|userratelimitexceeded";
/// A limit with one of these words lasts for a day, or longer.
const OF_DAY: &str = "\
    per day|perday|daily|day limit|for today|calls day|requests day|per 24 hours|in 24 hours|\
    24 hour limit|per 1 day|day rate limit|requests a day|calls a day|tokens day|rpd|tpd|\
    per 1 week|per 1 month|per week|weekly|per month|permonth|monthly|month limit|current month|this month|\
    calls month|requests month";
/// Words of a failure that may pass, next to [`PHRASES`].
const MAY_PASS: &str = "\
    retry|again|later|wait|busy|lock|locked|deadlock|temporary|temporarily|transient|unavailable|\
    not available|connection|connect|database|unexpected|internal|limit|exceeded|\
    in progress|currently|maintenance";
/// A number after one of these words is a status.
const BEFORE_STATUS: [&str; 7] =
    ["http", "status", "statuscode", "code", "error", "response", "responded"];
/// A number before its phrase is a status.
const STATUS_LINES: &str = "\
    400 bad request|401 unauthorized|403 forbidden|404 not found|408 request timeout|\
    409 conflict|410 gone|422 unprocessable|429 too many requests|500 internal server error|\
    502 bad gateway|503 service unavailable|504 gateway timeout";
/// A number before one of these units is an amount and no status.
const UNITS: &str = "ms milliseconds s sec secs seconds minutes bytes kb items times records";
/// The characters of a message that are read. More would be a quoted body.
const MAX_CHARS: usize = 2_048;
/// The bytes of a body that are read, for the user's own rules.
const MAX_BODY_BYTES: usize = 16 * 1024;

pub(super) fn classify<'a>(
    chain: impl Iterator<Item = &'a (dyn Error + 'static)>,
) -> Option<Failure> {
    let words = Words::of_errors(chain);
    let said = || words.said(words.status_number());
    let limit = words.smtp(false).or_else(said).or_else(|| words.quota_or_rate_limit());
    limit.or_else(|| words.status()).or_else(|| words.other_phrase())
}

/// The words of a phrase as [`Words::hold`] takes them.
pub(super) fn phrase(text: &str) -> String {
    split(text).map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

/// Words in lower case between single spaces, levels between bars.
#[derive(Default)]
pub(super) struct Words {
    spaced: String,
    /// As written, for codes in which case matters.
    verbatim: Vec<String>,
}

impl Words {
    pub(super) fn of_errors<'a>(chain: impl Iterator<Item = &'a (dyn Error + 'static)>) -> Self {
        let mut words = Self::default();
        for error in chain {
            let mut text = Bounded::default();
            // Only the part that could be printed is evidence.
            let _ = write!(text, "{error}");
            // Numbers and words of an address are no evidence: `https://example.com/status/404`.
            let told = text.0.split_whitespace().filter(|piece| !piece.contains("://"));
            words.read(told.flat_map(split));
        }
        words
    }

    pub(super) fn of_body(body: &[u8]) -> Self {
        let mut words = Self::default();
        words.read(split(&String::from_utf8_lossy(&body[..body.len().min(MAX_BODY_BYTES)])));
        words
    }

    fn read<'t>(&mut self, words: impl Iterator<Item = &'t str>) {
        for word in words {
            self.spaced.push(' ');
            self.spaced.push_str(&word.to_lowercase());
            self.verbatim.push(word.to_owned());
        }
        self.spaced.push_str(" |");
    }

    pub(super) fn name_short_limit(&self) -> bool {
        // Gemini: `GenerateRequestsPerMinutePerProjectPerModel`
        let is_said = self.hold_any(PER_TIME) || self.spaced.contains("perminute");
        is_said || (self.hold_any(NAMED_SHORT) && !self.name_day())
    }

    pub(super) fn name_long_limit(&self) -> bool {
        !self.name_short_limit() && self.name_day()
    }

    fn name_day(&self) -> bool {
        self.hold_any(OF_DAY) || self.spaced.contains("sperday")
    }

    pub(super) fn quota_or_rate_limit(&self) -> Option<Failure> {
        let waits = |class| matches!(class, FailureClass::Quota | FailureClass::RateLimit);
        let failure = self.phrase(waits).or_else(|| {
            let code = aws::find(|known| self.verbatim.iter().any(|word| word == known))?;
            Some(Failure::new(code.class(), Evidence::Text, code.detail()))
        })?;
        let short = || Failure::new(FailureClass::RateLimit, Evidence::Text, "rate limit");
        Some(match failure.class() {
            FailureClass::Quota if self.name_short_limit() => short(),
            FailureClass::RateLimit if self.name_long_limit() => failure.of_long_limit(),
            _ => failure,
        })
    }

    /// The class by [`SAID`], of a response or an error with this status.
    pub(super) fn said(&self, status: Option<u16>) -> Option<Failure> {
        let is_other = |class| match class {
            FailureClass::Quota => {
                let is_of_calls = status == Some(429) && self.name_short_limit();
                is_of_calls || self.hold_any(DECLINED) || self.hold_any(PAYER)
            }
            FailureClass::RateLimit => self.hold_any(DECLINED),
            FailureClass::Temporary | FailureClass::NonRetryable => false,
        };
        let is_it = |row: &&(u16, FailureClass, &str)| {
            (row.0 == 0 || Some(row.0) == status) && self.hold_any(row.2) && !is_other(row.1)
        };
        // Stripe's 400 with such words is final.
        let is_running = || status != Some(400) && self.name_key() && self.say_in_progress();
        let row = SAID.iter().find(is_it).map(|row| row.1);
        let class = row.or_else(|| is_running().then_some(FailureClass::Temporary))?;
        let reason = match class {
            FailureClass::NonRetryable => TOO_LARGE,
            FailureClass::Quota => "account used up",
            FailureClass::RateLimit => "rate limit",
            FailureClass::Temporary => "busy",
        };
        let is_in_doubt = class == FailureClass::Temporary;
        Some(Failure::new(class, Evidence::Text, reason).doubted(is_in_doubt))
    }

    /// Whether an earlier attempt still runs. Powertools may have failed to save the "in progress
    /// record" of this one.
    pub(super) fn say_in_progress(&self) -> bool {
        self.hold_any(IN_PROGRESS) && !self.hold("in progress record")
    }

    fn name_key(&self) -> bool {
        self.spaced.contains(" idempoten")
    }

    /// Whether a limit that they name may be that of the payer's card.
    pub(super) fn say_declined(&self, status: Option<u16>) -> bool {
        status == Some(402) || self.hold_any(DECLINED)
    }

    /// Whether they have an SQLSTATE of this class.
    pub(super) fn have_sqlstate(&self, class: &str) -> bool {
        let is_it = |word: &String| word.len() == 5 && word.starts_with(class);
        self.verbatim.iter().any(is_it)
    }

    /// The class of a mail server's reply, if the words or a type name SMTP, or it has an enhanced code.
    pub(super) fn smtp(&self, is_type: bool) -> Option<Failure> {
        let words = self.verbatim.iter().map(String::as_str).filter(|word| *word != "b");
        let words: Vec<&str> = words.collect();
        // The last one is nodemailer's.
        let is_named =
            is_type || self.spaced.contains("smtp") || self.hold("all recipients were rejected");
        let reply = smtp::reply(&words, is_named)?;
        let class = match reply.starts_with('4') {
            true if self.name_long_limit() && self.hold_any("quota|limit") => FailureClass::Quota,
            true => FailureClass::Temporary,
            false if self.hold_any(MAIL_LIMITS) => FailureClass::Quota,
            false if self.hold("rate limit exceeded") => FailureClass::RateLimit,
            false => FailureClass::NonRetryable,
        };
        Some(Failure::new(class, Evidence::Text, format_args!("SMTP {reply}")))
    }

    pub(super) fn other_phrase(&self) -> Option<Failure> {
        self.phrase(|_| true)
    }

    fn phrase(&self, wanted: impl Fn(FailureClass) -> bool) -> Option<Failure> {
        let is_it = |row: &&(Meaning, &str)| wanted(row.0.0) && self.hold_any(row.1);
        let ((class, service, reason), _) = PHRASES.iter().find(is_it)?;
        Some(service.of(Failure::new(*class, Evidence::Text, reason)))
    }

    /// Whether any word says that a failure passes.
    pub(super) fn may_pass(&self) -> bool {
        let is_it = |failure: Failure| failure.class() != FailureClass::NonRetryable;
        self.hold_any(MAY_PASS) || self.other_phrase().is_some_and(is_it)
    }

    /// Whether they mean that an open connection was lost.
    pub(super) fn say_lost(&self) -> bool {
        PHRASES.iter().any(|row| row.0.1 == Service::Lost && self.hold_any(row.1))
    }

    /// Whether one of these phrases occurs, which stand between bars.
    pub(super) fn hold_any(&self, phrases: &str) -> bool {
        phrases.split('|').any(|phrase| self.hold(phrase))
    }

    /// Whether `phrase` occurs, from the beginning of a word to the end of one.
    pub(super) fn hold(&self, phrase: &str) -> bool {
        let from_word = |(at, _)| &self.spaced[at + 1..];
        let mut ends = self
            .spaced
            .match_indices(' ')
            .map(from_word)
            .filter_map(|words| words.strip_prefix(phrase));
        ends.any(|rest| rest.starts_with(' '))
    }

    pub(super) fn status(&self) -> Option<Failure> {
        Some(of_status(self.status_number()?))
    }

    /// The first number that is a status by the words around it.
    pub(super) fn status_number(&self) -> Option<u16> {
        let words: Vec<&str> = self.spaced.split_ascii_whitespace().collect();
        let after_its_name = words.iter().enumerate().find_map(|(at, word)| {
            // A version may stand between, as in "HTTP/1.1 503".
            let before = words[..at].iter().rev().find(|word| !is_http_version(word))?;
            let amount =
                words.get(at + 1).is_some_and(|unit| UNITS.split(' ').any(|it| it == *unit));
            (BEFORE_STATUS.contains(before) && !amount).then_some(*word).and_then(status)
        });
        let with_its_phrase = || {
            STATUS_LINES.split('|').find(|line| self.hold(line)).and_then(|line| status(&line[..3]))
        };
        // The codes of ClickHouse have three digits, too.
        after_its_name.or_else(with_its_phrase).filter(|_| !self.hold("db exception"))
    }
}

pub(super) fn of_status(status: u16) -> Failure {
    let reason = format_args!("status {status}");
    Failure::new(class_of(status), Evidence::Text, reason).by_status(status)
}

/// A number that is a status. Other numbers of three digits are codes of something else.
pub(super) fn status(word: &str) -> Option<u16> {
    word.parse().ok().filter(|status| word.len() == 3 && is_used(*status))
}

fn is_http_version(word: &str) -> bool {
    matches!(word, "1.0" | "1.1" | "2" | "2.0" | "3")
}

/// Words and numbers; a point or comma between two digits belongs to the number.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let bytes = text.as_bytes();
    let within_number = |at: usize| {
        let digit =
            |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
        matches!(bytes[at], b'.' | b',') && digit(at.checked_sub(1)) && digit(at.checked_add(1))
    };
    let mut rest = text.char_indices().peekable();
    std::iter::from_fn(move || {
        let part = |(at, c): (usize, char)| c.is_alphanumeric() || within_number(at);
        while rest.next_if(|&next| !part(next)).is_some() {}
        let &(start, _) = rest.peek()?;
        let mut end = start;
        while let Some((at, c)) = rest.next_if(|&next| part(next)) {
            end = at + c.len_utf8();
        }
        Some(&text[start..end])
    })
}

/// A text that takes at most this many characters.
#[derive(Default)]
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_CHARS.saturating_sub(self.0.len());
        self.0.extend(text.chars().take(room));
        if text.len() > room { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FailureClass::{NonRetryable, Quota, RateLimit, Temporary};

    fn of(text: &str) -> Option<(FailureClass, String)> {
        let error: Box<dyn Error> = text.into();
        let failure = classify(std::iter::once(&*error))?;
        assert_eq!(failure.evidence(), Evidence::Text);
        Some((failure.class(), failure.detail().to_owned()))
    }

    #[test]
    fn whole_words_and_whole_numbers_count() {
        for (text, class, reason) in [
            ("order 84010 timed out", Temporary, "timed out"),
            ("timeout after 4000 ms", Temporary, "timed out"),
            ("Timeout: retry in 400ms", Temporary, "timed out"),
            (
                "HTTP status client error (429 Too Many Requests) for url (https://x)",
                RateLimit,
                "too many requests",
            ),
            ("Request failed with status code 429", RateLimit, "status 429"),
            ("HTTP/1.1 503", Temporary, "status 503"),
            ("server said: 502 Bad Gateway", Temporary, "status 502"),
            ("Error: 404", NonRetryable, "status 404"),
            ("403 Forbidden: rateLimitExceeded", RateLimit, "too many requests"),
            ("You exceeded your current quota, rate limit 3", Quota, "quota exceeded"),
            ("ThrottlingException: Rate of requests", RateLimit, "throttled: ThrottlingException"),
            ("RESOURCE_EXHAUSTED", RateLimit, "too many requests"),
            ("Forbidden", NonRetryable, "forbidden"),
            ("connection reset by peer (os error 104)", Temporary, "connection reset"),
        ] {
            assert_eq!(of(text), Some((class, reason.to_owned())), "{text}");
        }
    }

    #[test]
    fn numbers_and_parts_of_words_prove_nothing() {
        for text in [
            "",
            "order 1429 was not booked",
            "order 429 was not booked",
            "order 404 not booked",
            "retry in 400ms",
            "retry in 400 ms",
            "error 400 ms ago",
            "status 0.503",
            "code 4,290",
            "status 99999999999999999999",
            "unforbidden fruits",
            "expected value at line 1 column 400",
            "the corporate limits of the town",
            "ThrottlingExceptionHandler is missing",
            "\u{0}\u{feff}日本語",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn a_phrase_is_found_where_it_overlaps_what_only_looks_like_it() {
        for (body, phrase, is_held) in [
            ("11 1 1", "1 1", true),
            ("1 1 11", "1 1", true),
            ("11 11", "1 1", false),
            ("retry, retryretry retry now", "retry retry", false),
            ("no retry retry retry", "retry retry", true),
            ("not yet, not yet not", "not yet not", true),
        ] {
            assert_eq!(Words::of_body(body.as_bytes()).hold(phrase), is_held, "{body}: {phrase}");
        }
    }

    #[test]
    fn a_phrase_does_not_span_two_errors() {
        #[derive(Debug)]
        struct Outer(Box<dyn Error>);
        impl fmt::Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("it took too much time")
            }
        }
        impl Error for Outer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&*self.0)
            }
        }
        assert_eq!(super::super::recognised(&Outer("out of paper".into())), None);
        let class = super::super::recognised(&Outer("connection refused".into()))
            .map(|failure| failure.class());
        assert_eq!(class, Some(Temporary));
    }

    #[test]
    fn a_message_that_cannot_be_printed_or_does_not_end_is_survived() {
        #[derive(Debug)]
        struct Odd(bool);
        impl fmt::Display for Odd {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("timed out ")?;
                if self.0 {
                    loop {
                        f.write_str("é and so on ")?;
                    }
                }
                Err(fmt::Error)
            }
        }
        impl Error for Odd {}
        for odd in [Odd(true), Odd(false)] {
            assert_eq!(Failure::classified(&odd).detail(), "timed out");
        }
    }
}
