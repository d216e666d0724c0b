//! A handler that tells when its calls begin and end.

use requeue::policy::RateLimit;
use requeue::{Bulk, BulkHandler, Failure, Handler, Message, Scope};
use tokio::time::Instant;

use super::Observer;
use super::downstream::{is_answer, is_response};
use super::event::{Event, Ids, Kind, millis};

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
        match self.handler.handle(messages).await {
            Bulk::Done => {
                for call in calls {
                    call.end(Ok(()), is_answer);
                }
                Bulk::Done
            }
            Bulk::Each(results) => {
                let results: Vec<Result<(), Failure>> =
                    results.into_iter().map(|result| result.map_err(Into::into)).collect();
                for (call, result) in calls.into_iter().zip(&results) {
                    call.end(result.as_ref().map(|&()| ()), is_answer);
                }
                Bulk::Each(results)
            }
            Bulk::Unclear(error) => {
                let failure = error.into();
                for call in calls {
                    call.end(Err(&failure), is_answer);
                }
                Bulk::Unclear(failure)
            }
        }
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
        observer.begin_call(is_suspect);
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
        self.observer.end_call(self.is_suspect);
        if !self.has_ended {
            let why = self.observer.drop_call();
            self.observer.tell(|| self.ended().reason(Some(why)));
        }
    }
}
