//! The failure of one message: its class, its detail and the delay that it names. Log lines and the
//! dead-letter queue show it, so it has no body, no header, and only error text that the handler
//! chose. An operator may add scrubbed words of the service.

use std::fmt;
use std::time::Duration;

use requeue_sqs::printable::is_printable;

use crate::words::words;
use text::ServiceText;

mod text;

pub use text::DetailText;

/// The evidence from which a class was concluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Evidence {
    /// The handler chose the class.
    Handler,
    /// A [rule](crate::classify::Rules) of the user's own.
    Rule,
    /// A status, a code or the type of an error.
    Typed,
    /// Words in an error's message: the last resort.
    Text,
    /// Nothing was recognised, so the failure counts as temporary.
    Unrecognised,
    /// The message itself: its body, or an attribute that is no valid header.
    Body,
    /// A reused connection broke before the response, the response is too large to be read, or this
    /// process has no file or port for a connection. None is evidence about the downstream service.
    Connection,
    /// The handler panicked.
    Panic,
    /// The handler reached its timeout or the end of the invocation.
    TimeOut,
}

/// The evidence of a failure about the downstream service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServiceState {
    /// None: the message may be the cause.
    Unknown,
    /// A response shows that the service works, and this message has to wait.
    Up,
    /// The service does not work, whatever the message.
    Down,
    /// The service accepted no call, whatever the message.
    Refused,
}

/// One failure: a class, perhaps a delay that the downstream service named, and a detail in few
/// words.
///
/// It is deliberately no [`std::error::Error`], so that no code can wrap it and classify it again.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a handler fails by returning it"]
pub struct Failure {
    class: FailureClass,
    delay: Option<Duration>,
    /// A rule of the user's own set the delay.
    is_delay_ruled: bool,
    postponed: bool,
    service: ServiceState,
    is_in_doubt: bool,
    evidence: Evidence,
    detail: Detail,
    /// Few failures have it, and a batch has thousands.
    said: Option<Box<ServiceText>>,
}

impl Failure {
    /// The downstream service limits the rate.
    ///
    /// `detail` is the handler's own text. It must hold no body, header or secret, since it appears
    /// in logs and in the dead-letter queue. Requeue scrubs it and cuts it to 256 characters.
    pub fn rate_limit(detail: impl fmt::Display) -> Self {
        Self::new(FailureClass::RateLimit, Evidence::Handler, detail)
    }

    /// An allowance is used up. On `detail` see [`Failure::rate_limit`].
    pub fn quota(detail: impl fmt::Display) -> Self {
        Self::new(FailureClass::Quota, Evidence::Handler, detail)
    }

    /// It may work later. On `detail` see [`Failure::rate_limit`].
    pub fn temporary(detail: impl fmt::Display) -> Self {
        Self::new(FailureClass::Temporary, Evidence::Handler, detail)
    }

    /// It will never work. On `detail` see [`Failure::rate_limit`].
    ///
    /// In the default mode [`Redrive`](crate::DeadLetterMode::Redrive), SQS delivers the message
    /// again until it has been received `maxReceiveCount` times. The process that dead-lettered it does
    /// not call its handler again. Any other process calls it once: another execution environment,
    /// one after a cold start, or a restarted worker.
    ///
    /// The modes [`Annotate`](crate::DeadLetterMode::Annotate) and
    /// [`Direct`](crate::DeadLetterMode::Direct) note the failure in a copy. If SQS confirms that
    /// copy, no process calls the handler again. On a FIFO queue, `Annotate` acts as `Redrive`.
    pub fn non_retryable(detail: impl fmt::Display) -> Self {
        Self::new(FailureClass::NonRetryable, Evidence::Handler, detail)
    }

    /// Nothing failed, but the handler wants the message again after `delay`. The delay is at least
    /// a second and at most the policy's `max_retry_after`. Use it to schedule work.
    ///
    /// A message that waits in a copy uses no retry for it. With its visibility timeout (a FIFO
    /// queue, [`Strategy::Visibility`](crate::Strategy::Visibility)), the next receive counts as a
    /// retry.
    pub fn postpone(delay: Duration) -> Self {
        // A copy uses no retry for it, so nothing else would slow the next delivery.
        const SOONEST: Duration = Duration::from_secs(1);
        let postponed = Self::new(FailureClass::Temporary, Evidence::Handler, "postponed");
        Self { postponed: true, ..postponed.retry_after(delay.max(SOONEST)) }
    }

    /// A failure of this class, known by this `evidence`, for handlers that classify responses
    /// themselves. On `detail` see [`Failure::rate_limit`].
    pub fn new(class: FailureClass, evidence: Evidence, detail: impl fmt::Display) -> Self {
        let detail = Detail::new(detail);
        Self {
            class,
            delay: None,
            is_delay_ruled: false,
            postponed: false,
            service: ServiceState::Unknown,
            is_in_doubt: matches!(evidence, Evidence::Panic | Evidence::TimeOut),
            evidence,
            detail,
            said: None,
        }
    }

    /// Sets the delay that the downstream service named, as with `Retry-After`. At the message's
    /// first failure of this class it overrides the policy's curve. Later the message waits for the
    /// longer of both.
    ///
    /// Requeue cuts a longer delay to the policy's
    /// [`max_retry_after`](crate::policy::RetryPolicy::max_retry_after), 12 hours by default. If it
    /// then exceeds the rest of the class's total timeout, Requeue dead-letters the message at
    /// once. Otherwise Requeue adds up to a tenth, at most a minute. A wait with the visibility
    /// timeout is at most 41,940 s.
    pub fn retry_after(self, delay: Duration) -> Self {
        Self { delay: Some(delay), is_delay_ruled: false, ..self }
    }

    /// Sets the delay of a user's own rule, which overrides the policy's curve each time.
    pub(crate) fn ruled_delay(self, delay: Duration) -> Self {
        Self { delay: Some(delay), is_delay_ruled: true, ..self }
    }

    pub(crate) fn is_delay_ruled(&self) -> bool {
        self.is_delay_ruled
    }

    /// The same, known by this evidence, for handlers that classify responses themselves.
    pub fn by(self, evidence: Evidence) -> Self {
        Self { evidence, ..self }
    }

    /// Notes that the downstream service may still work on the request, as after a timeout. With
    /// [`idempotency`](crate::policy::RetryPolicy::idempotency), Requeue then keeps the event until the in-progress record of
    /// this attempt ends. Without it, this changes nothing.
    ///
    /// Requeue notes this itself for a handler that panicked or timed out, and for an ambiguous
    /// error in [`Failure::classified`], [`Failure::from_response`], [`Failure::aws`] and
    /// [`Failure::from_grpc`]. Call this for a timeout whose class you choose.
    pub fn in_doubt(self) -> Self {
        Self { is_in_doubt: true, ..self }
    }

    /// Whether the downstream service may still work on the request.
    pub fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// The failure of a call, which need not be about this message.
    pub(crate) fn of_any_message(mut self) -> Self {
        if self.class == FailureClass::NonRetryable {
            self.class = FailureClass::Temporary;
        }
        self
    }

    /// A limit that lasts for a day or longer is a quota, whatever its name in the service.
    pub(crate) fn of_long_limit(mut self) -> Self {
        if self.class == FailureClass::RateLimit {
            self.class = FailureClass::Quota;
        }
        self
    }

    /// Notes that no work began: the downstream service takes no call now, whatever the message.
    /// Its concurrency may be used up, or this process may lack a permission.
    ///
    /// The message is deferred and uses no retry, up to
    /// [`max_deferrals`](crate::policy::RetryPolicy::max_deferrals) times in a row. After that, the
    /// failure counts as any other of its class. The other messages of the scope pause for the
    /// [delay](Self::retry_after) that the failure names. With `visibility`, each deferral uses a
    /// receive, and the waits grow with the age of the message.
    pub fn call_refused(self) -> Self {
        Self { service: ServiceState::Refused, ..self }
    }

    /// Whether the downstream service [refused the call](Self::call_refused) before any work.
    pub fn is_call_refused(&self) -> bool {
        self.service == ServiceState::Refused
    }

    pub(crate) fn doubted(self, is_in_doubt: bool) -> Self {
        if is_in_doubt { self.in_doubt() } else { self }
    }

    /// The class.
    pub fn class(&self) -> FailureClass {
        self.class
    }

    /// The delay that the downstream service or the handler named.
    pub fn delay(&self) -> Option<Duration> {
        self.delay
    }

    /// Whether this is a [`postponement`](Failure::postpone).
    pub fn is_postponed(&self) -> bool {
        self.postponed
    }

    /// Notes that the downstream service does not work, for example after a 503 or without a
    /// response in time. The message is not the cause.
    ///
    /// In an outage, a message with such a failure uses no retry. Requeue notes this in failures
    /// that it classifies; a handler that builds its own failures calls this.
    pub fn service_down(self) -> Self {
        Self { service: ServiceState::Down, ..self }
    }

    /// Whether a response with a status from 200 to 499 shows that the service works, such as a 409
    /// with `Retry-After`.
    pub(crate) fn is_service_up(&self) -> bool {
        self.service == ServiceState::Up
    }

    pub(crate) fn is_service_down(&self) -> bool {
        self.service == ServiceState::Down
    }

    /// Notes the status of the response. With 502 to 504 and similar, the service does not work.
    pub(crate) fn by_status(self, status: u16) -> Self {
        let service = match status {
            200..500 => ServiceState::Up,
            502..=504 | 521..=530 => ServiceState::Down,
            _ => ServiceState::Unknown,
        };
        Self { service, ..self }
    }

    pub(crate) fn noting(self, words: impl fmt::Display) -> Self {
        Self { detail: Detail::new(format_args!("{}, {words}", self.detail.as_str())), ..self }
    }

    /// The evidence from which the class was concluded.
    pub fn evidence(&self) -> Evidence {
        self.evidence
    }

    /// Its words, scrubbed.
    pub fn detail(&self) -> &str {
        self.detail.as_str()
    }
}

/// Class and detail: `rate-limit: the bank asks to wait`.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.detail())
    }
}

/// Few words that may be stored and logged: at most 256 characters, each of them legal in an SQS
/// message and harmless in a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Detail(Box<str>);

impl Detail {
    const MAX_CHARS: usize = 256;
    /// The most bytes in UTF-8, and so in JSON: no character of a detail needs a longer escape.
    pub(crate) const MAX_BYTES: usize = 4 * Self::MAX_CHARS;

    pub(crate) fn new(words: impl fmt::Display) -> Self {
        let words = words.to_string();
        let harmless = |c: char| {
            if is_printable(c) && !matches!(c, '\u{FFFE}' | '\u{FFFF}') { c } else { ' ' }
        };
        Self(words.chars().map(harmless).take(Self::MAX_CHARS).collect())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

words! {
    "The word used in messages, logs and metrics."
    /// The four kinds of failures, each with delays and budgets of its own.
    ///
    /// Match on it without `_`, since a fifth class would be a new major version. Every policy,
    /// table and metric covers all four.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum FailureClass {
        /// Too many requests just now: HTTP 429 and its relatives.
        RateLimit = "rate-limit",
        /// An allowance is used up, perhaps for hours.
        Quota = "quota",
        /// A failure that should pass: a timeout, a reset, a 503, a panic, anything unrecognised.
        Temporary = "temporary",
        /// Trying again cannot help: the message goes to the dead-letter queue.
        NonRetryable = "non-retryable",
    }
}

impl FailureClass {
    /// All four, in the order of every table.
    pub const ALL: [Self; 4] = [Self::RateLimit, Self::Quota, Self::Temporary, Self::NonRetryable];
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_is_scrubbed_and_cut() {
        assert_eq!(
            Failure::temporary("a\nb\u{1b}[31m\u{FFFF}c\u{202e}\u{9b}d").detail(),
            "a b [31m c  d"
        );
        assert_eq!(Failure::temporary("x".repeat(257)).detail().chars().count(), 256);
    }

    #[test]
    fn class_names_are_their_own_inverse() {
        for class in FailureClass::ALL {
            assert_eq!(FailureClass::from_name(class.as_str()), Some(class));
        }
        assert_eq!(FailureClass::from_name("rate_limit"), None);
    }
}
