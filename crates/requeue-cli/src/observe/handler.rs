//! A handler that reports when its calls begin and end.

use std::collections::HashMap;
use std::time::Duration;

use requeue::policy::RateLimit;
use requeue::{
    Bulk, BulkHandler, Deferral, Failure, FailureClass, Handler, Message, Scope, ScopePause,
};
use tokio::time::Instant;

use super::Observer;
use super::event::{Event, Ids, Kind, millis};
use super::sqs::{RareLines, TROUBLE_LINES};

/// The library's words for a call whose time was over.
const NO_RESPONSE: &str = "no response in time";
/// From this receive on, the library handles the messages of a batch in sequence. See
/// `docs/project/guarantees.md`, "A message that ends the process".
const SUSPICIOUS_RECEIVES: u32 = 3;

pub(crate) struct Observed<H> {
    handler: H,
    observer: Observer,
}

impl<H> Observed<H> {
    pub(crate) fn new(handler: H, observer: Observer) -> Self {
        Self { handler, observer }
    }
}

impl<H: Handler> Handler for Observed<H> {
    type Error = Failure;

    async fn handle(&self, message: Message) -> Result<(), Failure> {
        let call = Call::begin(&self.observer, self.handler.scope(&message), &message);
        let ended = self.handler.handle(message).await.map_err(Into::into);
        call.end(ended.as_ref().map(|&()| ()), is_response);
        ended
    }

    fn scope(&self, message: &Message) -> Scope {
        self.handler.scope(message)
    }

    fn rate_limit(&self, scope: Scope) -> Option<RateLimit> {
        self.handler.rate_limit(scope)
    }
}

impl<B: BulkHandler> BulkHandler for Observed<B> {
    type Error = Failure;

    async fn handle(&self, messages: Vec<Message>) -> Bulk<Failure> {
        let begin = |message| Call::begin(&self.observer, self.handler.scope(message), message);
        let calls: Vec<Call> = messages.iter().map(begin).collect();
        let ended = match self.handler.handle(messages).await {
            Bulk::Done => Bulk::Done,
            Bulk::Each(results) => {
                Bulk::Each(results.into_iter().map(|result| result.map_err(Into::into)).collect())
            }
            Bulk::Unclear(error) => Bulk::Unclear(error.into()),
        };
        for (at, call) in calls.into_iter().enumerate() {
            match &ended {
                Bulk::Done => call.end(Ok(()), is_answer),
                Bulk::Each(results) => {
                    if let Some(result) = results.get(at) {
                        call.end(result.as_ref().map(|&()| ()), is_answer);
                    }
                }
                Bulk::Unclear(failure) => call.end(Err(failure), is_answer),
            }
        }
        ended
    }

    fn messages_per_call(&self) -> usize {
        self.handler.messages_per_call()
    }

    fn scope(&self, message: &Message) -> Scope {
        self.handler.scope(message)
    }

    fn rate_limit(&self, scope: Scope) -> Option<RateLimit> {
        self.handler.rate_limit(scope)
    }

    fn needs_event(&self) -> bool {
        self.handler.needs_event()
    }
}

struct Call {
    observer: Observer,
    scope: Scope,
    /// The ids and the number of the attempt, if events are read.
    message: Option<(Ids, u32)>,
    is_suspect: bool,
    began: Instant,
    has_ended: bool,
}

impl Call {
    fn begin(observer: &Observer, scope: Scope, message: &Message) -> Self {
        let is_suspect = message.receive_count() >= SUSPICIOUS_RECEIVES;
        let message = observer.is_read().then(|| {
            let ids = Ids::new(
                message.id().unwrap_or_default(),
                message.original_id().or(message.id()).unwrap_or_default(),
            );
            (ids, message.retry_count() + 1)
        });
        {
            let mut calls = observer.0.calls.lock();
            calls.running += 1;
            calls.suspects += u64::from(is_suspect);
        }
        let call = Self {
            observer: observer.clone(),
            scope,
            message,
            is_suspect,
            began: Instant::now(),
            has_ended: false,
        };
        observer.tell(|| call.event(Kind::Called));
        call
    }

    fn end(mut self, ended: Result<(), &Failure>, is_response: fn(&Failure) -> bool) {
        self.has_ended = true;
        if ended.is_ok() {
            self.observer.0.calls.lock().succeeded += 1;
        }
        self.observer.downstream().note(self.scope, ended, is_response);
        self.observer.tell(|| {
            let event = self.ended();
            match ended {
                Ok(()) => event,
                Err(failure) => {
                    let class = Some(failure.class().as_str());
                    Event { class, ..event }.reason(Some(failure.detail()))
                }
            }
        });
    }

    fn ended(&self) -> Event {
        Event { elapsed_ms: Some(millis(self.began.elapsed())), ..self.event(Kind::Ended) }
    }

    fn event(&self, kind: Kind) -> Event {
        let (ids, attempt) = self.message.clone().unwrap_or_default();
        let scope = (self.scope != Scope::default()).then(|| self.scope.to_string());
        Event { attempt: Some(attempt), scope, ..Event::now(kind, ids) }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let is_cut_off = {
            let mut calls = self.observer.0.calls.lock();
            calls.running -= 1;
            calls.suspects -= u64::from(self.is_suspect);
            calls.ended += 1;
            let is_cut_off = !self.has_ended && calls.is_ending;
            calls.cut_off += u64::from(is_cut_off);
            is_cut_off
        };
        if is_cut_off {
            self.observer.tell(|| self.ended().reason(Some("cut off by the end of the worker")));
        } else if !self.has_ended {
            self.observer.downstream().unanswered(NO_RESPONSE);
            self.observer.tell(|| self.ended().reason(Some(NO_RESPONSE)));
        }
    }
}

const MAX_CAUSES: usize = 1_000;
/// This many calls in a row without a response are a failure. Fewer may be one connection.
const TROUBLE: u32 = 3;

#[derive(Default)]
pub(crate) struct Downstream {
    /// The failure that asked for the latest end of a pause, or that opened a circuit last.
    causes: HashMap<(Scope, &'static str), Cause>,
    /// No pause is longer.
    pub(crate) max_pause: Duration,
    trouble: Option<DownstreamTrouble>,
    /// The time since which a circuit is open, until it is closed.
    pub(crate) open: Option<Instant>,
}

struct Cause {
    text: String,
    /// The end of the pause that it asked for.
    until: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DownstreamTrouble {
    pub(crate) cause: String,
    pub(crate) calls: u32,
    pub(crate) has_other_causes: bool,
    pub(crate) since: Instant,
}

impl Downstream {
    /// Notes the end of a call. `is_response` is whether the service responded.
    pub(super) fn note(
        &mut self,
        scope: Scope,
        ended: Result<(), &Failure>,
        is_response: fn(&Failure) -> bool,
    ) {
        let Err(failure) = ended else {
            self.trouble = None;
            return;
        };
        if let Some(why) = deferral_of(failure) {
            let key = (scope, why.as_str());
            // The causes matter only while their scopes are paused, so old ones may be dropped.
            if self.causes.len() >= MAX_CAUSES && !self.causes.contains_key(&key) {
                self.causes.clear();
            }
            let is_pause = why == Deferral::Paused;
            let pause = failure.delay().filter(|_| is_pause).unwrap_or_default();
            let until = Instant::now() + pause.min(self.max_pause);
            if self.causes.get(&key).is_none_or(|before| before.until <= until) {
                self.causes.insert(key, Cause { text: cause(failure), until });
            }
        }
        if is_response(failure) {
            self.trouble = None;
        } else {
            self.unanswered(failure.detail());
        }
    }

    pub(super) fn unanswered(&mut self, cause: &str) {
        let trouble = self.trouble.get_or_insert_with(|| DownstreamTrouble {
            cause: cause.to_owned(),
            calls: 0,
            has_other_causes: false,
            since: Instant::now(),
        });
        trouble.calls = trouble.calls.saturating_add(1);
        if trouble.cause != cause {
            trouble.has_other_causes = true;
            cause.clone_into(&mut trouble.cause);
        }
    }

    /// Notes whether a circuit is open. At the end of the last one, the time since the first opened.
    pub(crate) fn look(&mut self, pauses: &[ScopePause]) -> Option<Duration> {
        if pauses.iter().any(|pause| pause.reason == Deferral::CircuitOpen) {
            // Another execution environment may have opened it.
            self.open.get_or_insert_with(Instant::now);
            return None;
        }
        self.open.take().map(|since| since.elapsed())
    }

    pub(crate) fn cause(&self, scope: Scope, why: Deferral) -> Option<&str> {
        self.causes.get(&(scope, why.as_str())).map(|cause| cause.text.as_str())
    }

    pub(crate) fn trouble(&self) -> Option<DownstreamTrouble> {
        self.trouble.clone().filter(|trouble| trouble.calls >= TROUBLE)
    }
}

/// Reports every 30 s that a circuit is still open. The library writes its first line.
#[derive(Default)]
pub(crate) struct CircuitLog(RareLines);

impl CircuitLog {
    pub(crate) fn note(&mut self, open: Option<Instant>, next_try: Option<Duration>) {
        let Some(since) = open else {
            self.0.end();
            return;
        };
        if since.elapsed() >= TROUBLE_LINES && self.0.is_due() {
            tracing::warn!(
                troubleSeconds = since.elapsed().as_secs(),
                nextTrySeconds = next_try.map(|time| time.as_secs()),
                "a circuit is still open"
            );
        }
    }
}

/// Why messages are deferred after the failure: the pause to which the failure may lead. A rate limit or a quota without a delay leads to none.
fn deferral_of(failure: &Failure) -> Option<Deferral> {
    match failure.class() {
        _ if failure.is_postponed() => None,
        _ if failure.is_call_refused() => failure.delay().map(|_| Deferral::Paused),
        FailureClass::RateLimit | FailureClass::Quota => failure.delay().map(|_| Deferral::Paused),
        FailureClass::Temporary => Some(Deferral::CircuitOpen),
        FailureClass::NonRetryable => None,
    }
}

/// `status 429, delay 60 s`
fn cause(failure: &Failure) -> String {
    let reason = failure.detail();
    match failure.delay() {
        Some(delay) if is_response(failure) => {
            format!("{reason}, delay {} s", delay.as_secs_f64().ceil())
        }
        _ => reason.to_owned(),
    }
}

/// Whether the failure was concluded from a response: its reason begins with the status.
pub(super) fn is_response(failure: &Failure) -> bool {
    failure.detail().starts_with("status ")
}

/// Whether a function responded. It fails in words of its own.
pub(super) fn is_answer(failure: &Failure) -> bool {
    !failure.is_call_refused() && !failure.is_in_doubt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_cause_of_a_pause_is_the_failure_that_asked_for_its_end() {
        let max_pause = Duration::from_secs(60);
        let mut downstream = Downstream { max_pause, ..Downstream::default() };
        for (after, delay, cause) in [
            (0, 400, "status 429, delay 400 s"),
            (1, 3, "status 429, delay 400 s"),
            (58, 3, "status 429, delay 3 s"),
            (1, 9, "status 429, delay 9 s"),
        ] {
            tokio::time::advance(Duration::from_secs(after)).await;
            let failure = Failure::rate_limit("status 429").retry_after(Duration::from_secs(delay));
            downstream.note(Scope::default(), Err(&failure), is_response);
            assert_eq!(
                downstream.cause(Scope::default(), Deferral::Paused),
                Some(cause),
                "{delay}"
            );
        }
    }
}
