//! A handler that a test scripts.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use requeue::policy::RateLimit;
use requeue::queue::Attribute;
use requeue::{DeadLetterInfo, Failure, Handler, Message, Scope};
use serde_json::Value;
use tokio::time::Instant;

/// A handler that does what a function of the message says, and remembers the messages it saw.
#[derive(Clone)]
pub struct Script {
    act: Arc<dyn Fn(&Seen) -> Act + Send + Sync>,
    scope: fn(&Message) -> Scope,
    limit: fn(Scope) -> Option<RateLimit>,
    calls: Arc<Mutex<Vec<Seen>>>,
    done: Arc<Mutex<Vec<String>>>,
    running: Arc<()>,
}

/// A message as a handler saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub body: String,
    pub id: Option<String>,
    pub original_id: Option<String>,
    pub attempt: u32,
    pub receive_count: u32,
    pub is_last: bool,
    pub dead_letter: Option<DeadLetterInfo>,
    pub attributes: BTreeMap<String, Attribute>,
    pub group_id: Option<String>,
    pub first_sent: SystemTime,
    pub first_received: SystemTime,
    pub time_left: Duration,
    pub at: Instant,
}

impl Seen {
    /// The number in a body of numbered messages.
    pub fn n(&self) -> usize {
        let body: Value = serde_json::from_str(&self.body).expect("JSON");
        usize::try_from(body["n"].as_u64().expect("a number")).expect("a small one")
    }
}

/// What a scripted handler does.
#[derive(Clone, Debug)]
pub enum Act {
    Done,
    Fail(Failure),
    Panic,
    Hang,
    /// Works for so long, then does the other.
    After(Duration, Box<Act>),
}

impl Act {
    pub fn after(time: Duration, then: Self) -> Self {
        Self::After(time, Box::new(then))
    }

    /// Works for so long, then is done.
    pub fn work(time: Duration) -> Self {
        Self::after(time, Self::Done)
    }
}

impl Script {
    pub fn new(act: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        let (calls, done) = Default::default();
        Self {
            act: Arc::new(act),
            scope: |_| Scope::default(),
            limit: |_| None,
            calls,
            done,
            running: Arc::default(),
        }
    }

    pub fn scoped(self, scope: fn(&Message) -> Scope) -> Self {
        Self { scope, ..self }
    }

    /// Scopes have these rate limits.
    pub fn limited(self, limit: fn(Scope) -> Option<RateLimit>) -> Self {
        Self { limit, ..self }
    }

    pub fn always(failure: Failure) -> Self {
        Self::new(move |_| Act::Fail(failure.clone()))
    }

    /// Fails on the first attempts, so many of each message, and is done then.
    pub fn failing_first(times: usize, failure: Failure) -> Self {
        let counts: Mutex<BTreeMap<String, usize>> = Mutex::default();
        Self::new(move |seen| {
            let mut counts = counts.lock().expect("no panic while it is held");
            let count = counts.entry(seen.body.clone()).or_default();
            *count += 1;
            if *count <= times { Act::Fail(failure.clone()) } else { Act::Done }
        })
    }

    pub fn calls(&self) -> Vec<Seen> {
        self.calls.lock().expect("no panic while it is held").clone()
    }

    /// The bodies in the order in which the handler saw them.
    pub fn seen(&self) -> Vec<String> {
        self.calls().into_iter().map(|seen| seen.body).collect()
    }

    /// The bodies of those messages of which a call came to a good end.
    pub fn done(&self) -> Vec<String> {
        self.done.lock().expect("no panic while it is held").clone()
    }

    /// How many handlers are running.
    pub fn running(&self) -> usize {
        // One belongs to the script that the processor holds, one to the test's own clone.
        Arc::strong_count(&self.running).saturating_sub(2)
    }
}

impl Handler for Script {
    type Error = Failure;

    fn scope(&self, message: &Message) -> Scope {
        (self.scope)(message)
    }

    fn rate_limit(&self, scope: Scope) -> Option<RateLimit> {
        (self.limit)(scope)
    }

    fn handle(&self, message: Message) -> impl Future<Output = Result<(), Failure>> + Send {
        let seen = Seen {
            body: message.body().to_string(),
            id: message.id().map(str::to_owned),
            original_id: message.original_id().map(str::to_owned),
            attempt: message.attempt().get(),
            receive_count: message.receive_count(),
            is_last: message.is_last_attempt(),
            dead_letter: message.dead_letter(),
            attributes: message.attributes().clone(),
            group_id: message.group_id().map(str::to_owned),
            first_sent: message.first_sent(),
            first_received: message.first_received(),
            time_left: message.time_left(),
            at: Instant::now(),
        };
        let act = (self.act)(&seen);
        let (done, body) = (Arc::clone(&self.done), seen.body.clone());
        self.calls.lock().expect("no panic while it is held").push(seen);
        let running = Arc::clone(&self.running);
        let future: Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>> =
            Box::pin(async move {
                let ended = perform(act).await;
                if ended.is_ok() {
                    done.lock().expect("no panic while it is held").push(body);
                }
                drop(running);
                ended
            });
        future
    }
}

async fn perform(mut act: Act) -> Result<(), Failure> {
    while let Act::After(time, then) = act {
        tokio::time::sleep(time).await;
        act = *then;
    }
    match act {
        Act::Done | Act::After(..) => Ok(()),
        Act::Fail(failure) => Err(failure),
        Act::Panic => panic!("as scripted"),
        Act::Hang => std::future::pending().await,
    }
}
