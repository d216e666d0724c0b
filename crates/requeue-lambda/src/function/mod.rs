//! A function as the target: the handler invokes it with several messages' records, and its
//! response decides about each. It decides no retry, reads a limited part of a response, and logs
//! none.

use std::fmt;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use requeue::policy::MessageKey;
use requeue::{Bulk, BulkHandler, Evidence, Failure, FailureClass, Message, Scope};
use tokio::time::Instant;

use crate::before_last_poll;
use crate::http::scope;

mod answer;
mod connection;
mod error;
mod lambda;
mod name;

pub use error::InvokeError;
pub(crate) use lambda::LONGEST_CALL;
pub use lambda::{LambdaFunction, call_limit};
pub use name::{FunctionName, InvalidFunctionName};

/// The response of a function. An invoker writes it as a literal, so a third field would be a new
/// major version.
#[derive(Clone, PartialEq, Eq)]
pub struct Invoked {
    /// The response, or the beginning of a long one.
    pub payload: Vec<u8>,
    /// Whether the function failed, by Lambda's header `X-Amz-Function-Error`.
    pub is_error: bool,
}

/// Omits the response, which may be secret.
impl fmt::Debug for Invoked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { payload, is_error } = self;
        write!(f, "Invoked({} bytes, is_error: {is_error})", payload.len())
    }
}

/// Runs a function: Lambda, or a stand-in.
pub trait Invoke: Send + Sync + 'static {
    /// One synchronous invocation with this event.
    fn invoke(&self, event: Vec<u8>) -> impl Future<Output = Result<Invoked, InvokeError>> + Send;
}

/// The settings of a function as the target.
///
/// ```
/// use requeue_lambda::FunctionSettings;
///
/// let mut settings = FunctionSettings::default();
/// settings.messages_per_call = 1;
/// settings.scope = Some("tenant".parse()?);
/// # Ok::<(), requeue::policy::InvalidMessageKey>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FunctionSettings {
    /// The most messages of one call. Default 10; 0 counts as 1.
    pub messages_per_call: usize,
    /// Messages with the same value at this place share a pause, a circuit and a rate limit. Those
    /// without a value share one of their own. Default: all messages share one.
    pub scope: Option<MessageKey>,
}

impl Default for FunctionSettings {
    fn default() -> Self {
        Self { messages_per_call: 10, scope: None }
    }
}

/// Invokes a function with the event that an event source mapping would send, as if SQS had
/// delivered each message again: see [`Message::to_event_record`].
///
/// If Lambda does not invoke the function, its messages are deferred and use no retry. Further
/// calls pause for the time that Lambda names, or for 1 to 60 s. An error that somebody must
/// correct, such as a missing permission, is logged with its remedy. A call that is too large for
/// Lambda is halved.
pub struct FunctionTarget<I> {
    invoker: I,
    settings: FunctionSettings,
    refusals: Mutex<Refusals>,
}

impl<I: Invoke> FunctionTarget<I> {
    /// The target of this invoker.
    pub fn new(invoker: I, settings: FunctionSettings) -> Self {
        Self { invoker, settings, refusals: Mutex::default() }
    }

    async fn call(&self, records: &[String], ids: &[&str]) -> Result<Bulk<Failure>, TooLarge> {
        let event = format!("{{\"Records\":[{}]}}", records.join(","));
        let invoked = before_last_poll(self.invoker.invoke(event.into_bytes())).await;
        let failure = match invoked {
            Some(Ok(Invoked { payload, is_error })) => {
                self.refusals().end();
                return Ok(answer::read(&payload, is_error, ids));
            }
            Some(Err(InvokeError::TooLarge)) => return Err(TooLarge),
            Some(Err(error)) => match self.failure(&error) {
                refused if refused.is_call_refused() => {
                    return Ok(Bulk::Each(vec![Err(refused); ids.len()]));
                }
                failure => failure,
            },
            None => {
                let detail = "no response of the function in time; it may still run";
                Failure::new(FailureClass::Temporary, Evidence::TimeOut, detail)
            }
        };
        Ok(Bulk::Unclear(failure))
    }

    fn failure(&self, error: &InvokeError) -> Failure {
        let class = match error {
            InvokeError::Throttled { .. } => FailureClass::RateLimit,
            _ => FailureClass::Temporary,
        };
        let failure = Failure::new(class, Evidence::Typed, error);
        match error {
            InvokeError::Throttled { retry_after, .. } => {
                let pause = self.refusals().begin(None, *retry_after);
                failure.retry_after(pause).call_refused()
            }
            InvokeError::Refused { code, .. } => {
                let pause = self.refusals().begin(Some(error), None);
                let detail = format_args!("Lambda cannot invoke the function: {code}");
                let failure = Failure::new(class, Evidence::Typed, detail);
                failure.retry_after(pause).call_refused()
            }
            InvokeError::Lost { .. } => failure.in_doubt(),
            InvokeError::Rejected { .. } | InvokeError::TooLarge => failure,
        }
    }

    fn refusals(&self) -> std::sync::MutexGuard<'_, Refusals> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct TooLarge;

impl<I: Invoke> BulkHandler for FunctionTarget<I> {
    type Error = Failure;

    async fn handle(&self, messages: Vec<Message>) -> Bulk<Failure> {
        let records: Vec<String> = messages.iter().map(Message::to_event_record).collect();
        let ids: Vec<&str> = messages.iter().map(Message::idempotency_key).collect();
        let is_limited = messages.iter().any(Message::is_rate_limited);
        let all = 0..ids.len();
        let (mut results, mut calls) = (Vec::with_capacity(ids.len()), vec![all]);
        while let Some(call) = calls.pop() {
            if is_limited && !results.is_empty() {
                // Each request has a reservation of the limit. The next attempt gets another one.
                results.extend(call.map(|_| Err(Failure::postpone(Duration::ZERO))));
                continue;
            }
            let count = call.len();
            match self.call(&records[call.clone()], &ids[call.clone()]).await {
                Ok(bulk) if count == ids.len() => return bulk,
                Ok(Bulk::Done) => results.extend(call.map(|_| Ok(()))),
                Ok(Bulk::Each(each)) => {
                    let missing = "the function has no result for the message";
                    let missing = std::iter::repeat(Err(Failure::temporary(missing)));
                    results.extend(each.into_iter().chain(missing).take(count));
                }
                // The other part is clear, so these cannot return together.
                Ok(Bulk::Unclear(failure)) => results.extend(call.map(|_| Err(failure.clone()))),
                Err(TooLarge) if count > 1 => {
                    let middle = call.start + count / 2;
                    calls.extend([middle..call.end, call.start..middle]);
                }
                Err(TooLarge) => {
                    let detail = "the record is larger than the event that Lambda takes";
                    results.push(Err(Failure::new(
                        FailureClass::NonRetryable,
                        Evidence::Body,
                        detail,
                    )));
                }
            }
        }
        Bulk::Each(results)
    }

    fn messages_per_call(&self) -> usize {
        self.settings.messages_per_call
    }

    fn scope(&self, message: &Message) -> Scope {
        scope::of(self.settings.scope.as_ref(), message)
    }

    fn needs_event(&self) -> bool {
        true
    }
}

requeue::debug_by_name!(FunctionTarget<I>; |it| settings: it.settings);

#[derive(Default)]
struct Refusals {
    pause: Option<(Duration, Instant)>,
    logged: Option<(String, Instant)>,
}

/// The pause of the first refusal, and of many in a row.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The time between two lines about the same error.
const SILENCE: Duration = Duration::from_secs(300);

impl Refusals {
    /// Notes a refusal and returns its pause. The refusals of calls that began together count as
    /// one. An error to correct is logged.
    fn begin(&mut self, to_correct: Option<&InvokeError>, named: Option<Duration>) -> Duration {
        let now = Instant::now();
        let length = match self.pause {
            None => FIRST_PAUSE,
            Some((length, end)) if now < end => length,
            Some((length, _)) => length.saturating_mul(2),
        };
        let length = named.unwrap_or(length).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.pause = Some((length, now + length));
        if let Some(error) = to_correct {
            let error = error.to_string();
            let is_known = |(known, at): &(String, Instant)| *known == error && now < *at + SILENCE;
            if !self.logged.as_ref().is_some_and(is_known) {
                tracing::error!(error, "the messages of the target function are deferred");
                self.logged = Some((error, now));
            }
        }
        length
    }

    /// Lambda invoked the function.
    fn end(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests;
