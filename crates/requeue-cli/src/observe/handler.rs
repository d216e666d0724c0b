//! A handler that tells when its calls begin and end.

use requeue::policy::RateLimit;
use requeue::{Bulk, BulkHandler, Failure, Handler, Message, Scope};
use tokio::time::Instant;

use super::Observer;
use super::downstream::{is_answer, is_response};
use super::event::{Event, Ids, Kind, millis};

/// The library's words for a call whose time was over.
const NO_RESPONSE: &str = "no response in time";
/// From so many receives on, the library handles the messages of a batch one after the other. See
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
                    results
                        .get(at)
                        .map(|result| call.end(result.as_ref().map(|&()| ()), is_answer));
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
