//! A handler that reports when its calls begin and end.

use std::collections::HashMap;
use std::time::Duration;

use requeue::policy::RateLimit;
use requeue::{Bulk, BulkHandler, Deferral, Failure, Handler, Message, Scope, ScopePause};
use tokio::time::Instant;

use super::Observer;
use super::event::{Event, Ids, Kind, millis};
use super::sqs::{RareLines, TROUBLE_LINES};

/// The library's words for a call whose time was over.
const NO_RESPONSE: &str = "no response in time";

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
    began: Instant,
    has_ended: bool,
}

impl Call {
    fn begin(observer: &Observer, scope: Scope, message: &Message) -> Self {
        let message = observer.is_read().then(|| {
            let ids = Ids::new(
                message.id().unwrap_or_default(),
                message.original_id().or(message.id()).unwrap_or_default(),
            );
            (ids, message.retry_count() + 1)
        });
        observer.0.calls.lock().running += 1;
        let call = Self {
            observer: observer.clone(),
            scope,
            message,
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
        self.observer.downstream().note(ended, is_response);
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
    /// The failures that opened the circuits and began the pauses of scopes.
    causes: HashMap<(Scope, &'static str), String>,
    trouble: Option<DownstreamTrouble>,
    /// The time since which a circuit is open, until it is closed.
    pub(crate) open: Option<Instant>,
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
    pub(super) fn note(&mut self, ended: Result<(), &Failure>, is_response: fn(&Failure) -> bool) {
        let Err(failure) = ended else {
            self.trouble = None;
            return;
        };
        if is_response(failure) {
            self.trouble = None;
        } else {
            self.unanswered(failure.detail());
        }
    }

    pub(super) fn begins(&mut self, scope: Scope, why: Deferral, cause: &str) {
        // The causes matter only while their scopes are paused, so old ones may be dropped.
        if self.causes.len() >= MAX_CAUSES {
            self.causes.clear();
        }
        self.causes.insert((scope, why.as_str()), cause.to_owned());
    }

    pub(super) fn closes(&mut self, scope: Scope) {
        self.causes.remove(&(scope, Deferral::CircuitOpen.as_str()));
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
        self.causes.get(&(scope, why.as_str())).map(String::as_str)
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

/// Whether the failure was concluded from a response: its reason begins with the status.
pub(super) fn is_response(failure: &Failure) -> bool {
    failure.detail().starts_with("status ")
}

/// Whether a function responded. It fails in words of its own.
pub(super) fn is_answer(failure: &Failure) -> bool {
    !failure.is_call_refused() && !failure.is_in_doubt()
}
