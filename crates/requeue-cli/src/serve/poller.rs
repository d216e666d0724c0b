//! Lambda's poller on a laptop: receives batches from the queue, hands each to an execution
//! environment, and deletes the messages that the response acknowledges.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::select_all;
use requeue::Clock;
use requeue::embedded::{
    Batch, EmbeddedError, EmbeddedSqs, EventSourceMapping, InvocationResult, MessageState,
    MessageView,
};
use requeue::queue::QueueArn;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use uuid::Uuid;

use super::environment::{Environment, INIT_TIMEOUT, InvocationError, StartError};
use super::function::{self, Function};
use super::process_group::ProcessGroups;
use super::runtime_api::Invocation;
use super::show::{self, FinishedBatch};
use super::{Arguments, ServedSqs, show::line, watched};
use crate::Error;
use crate::observe::{Events, Ids};
use crate::stop::Stop;

/// Long polling, as Lambda's poller does.
const POLL: Duration = Duration::from_secs(20);
/// The wait for the function's output, which precedes the line of its batch.
const OUTPUT: Duration = Duration::from_millis(10);
/// The delay after the first failed start; each further delay is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The changing state of the poller; one task owns it.
pub(super) struct Poller {
    mapping: EventSourceMapping,
    queue: QueueArn,
    maximum_concurrency: usize,
    /// That of an invocation.
    timeout: Duration,
    function: Arc<Function>,
    groups: ProcessGroups,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    builds: watch::Receiver<()>,
    /// Idle environments; the last used one is taken first.
    idle: Vec<Environment>,
    /// Environments that start, or that have an invocation.
    turns: JoinSet<Turn>,
    /// The delays of the messages that each running invocation has sent, by trace.
    sent: HashMap<String, Vec<u64>>,
    /// Whether the latest start succeeded. Until then the poller receives no messages, so it wastes
    /// no receives.
    starts: bool,
    /// The number of the build. Environments of an earlier build get no invocation.
    build: u64,
    failed_starts: u32,
    next_start: Instant,
    environments: u64,
    batches: u64,
}

/// The end of a start, of an invocation, or of both.
struct Turn {
    build: u64,
    environment: Option<Environment>,
    /// Only for an environment that had to be started.
    start: Option<Result<(), StartError>>,
    invocation: Option<Invoked>,
}

struct Invoked {
    number: u64,
    batch: Batch,
    /// The ids of the messages, if the page follows them.
    ids: Vec<Ids>,
    trace: String,
    result: InvocationResult,
    error: Option<String>,
    took: Duration,
}

/// A message that came into a queue.
enum Arrival {
    /// The trace of the invocation that sent it.
    Sent {
        trace: String,
        delay_secs: u64,
    },
    DeadLetter(MessageView),
}

impl Poller {
    pub(super) fn new(
        ServedSqs { embedded, queue, dead_letters, .. }: &ServedSqs,
        arguments: &Arguments,
        function: Function,
        groups: ProcessGroups,
    ) -> Self {
        let batch_size = arguments.batch_size.into();
        let events = function.events.clone();
        Self {
            mapping: EventSourceMapping::new(embedded.clone(), queue.clone(), batch_size),
            queue: queue.clone(),
            maximum_concurrency: arguments.maximum_concurrency.into(),
            timeout: arguments.timeout,
            builds: function::builds(function.file.clone()),
            arrivals: arrivals(embedded, queue.clone(), dead_letters.clone(), events),
            function: Arc::new(function),
            groups,
            idle: Vec::new(),
            turns: JoinSet::new(),
            sent: HashMap::new(),
            starts: false,
            build: 0,
            failed_starts: 0,
            next_start: Instant::now(),
            environments: 0,
            batches: 0,
        }
    }

    /// Runs until a signal, or until the first start fails: a program that cannot be started is a
    /// mistake in the command line. `send` is the command that sends a message to the function.
    pub(super) async fn run(&mut self, stop: &Stop, send: &str) -> Result<(), Error> {
        loop {
            let is_free = self.turns.len() < self.maximum_concurrency;
            let must_start = !self.starts && self.idle.is_empty() && self.turns.is_empty();
            tokio::select! {
                biased;
                () = stop.told() => {
                    line("ending the function");
                    return Ok(());
                }
                // Messages come before the end of the invocation that sent them.
                Some(arrival) = self.arrivals.recv() => self.note(arrival),
                Some(Ok(turn)) = self.turns.join_next() => self.end_turn(turn, send)?,
                Ok(()) = self.builds.changed() => self.replace(),
                at = first_exit(&self.idle), if !self.idle.is_empty() => {
                    drop(self.idle.remove(at));
                }
                () = sleep_until(self.next_start), if must_start => self.start(),
                batch = self.mapping.poll(POLL), if self.starts && is_free => {
                    if let Some(batch) = batch? {
                        self.invoke(batch);
                    }
                }
            }
        }
    }

    fn note(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Sent { trace, delay_secs } => {
                if let Some(sent) = self.sent.get_mut(&trace) {
                    sent.push(delay_secs);
                }
            }
            Arrival::DeadLetter(message) => show::dead_letter(&message),
        }
    }

    /// Starts an environment before there is a message for it.
    fn start(&mut self) {
        self.environments += 1;
        let (function, number) = (Arc::clone(&self.function), self.environments);
        let (groups, build, builds) = (self.groups.clone(), self.build, self.builds.clone());
        self.turns.spawn(async move {
            let starting = Environment::start(&function, number, &groups);
            let (environment, start) = split(unless_built_anew(starting, builds).await);
            Turn { build, environment, start: Some(start), invocation: None }
        });
    }

    fn invoke(&mut self, batch: Batch) {
        self.batches += 1;
        let idle = self.idle.pop();
        self.environments += u64::from(idle.is_none());
        let (function, environment) = (Arc::clone(&self.function), self.environments);
        let (groups, build, number) = (self.groups.clone(), self.build, self.batches);
        let (limit, builds) = (self.timeout, self.builds.clone());
        let event = batch.event(&self.queue);
        let events = function.events.as_ref();
        let ids = events.map(|events| watched::received(events, &event)).unwrap_or_default();
        let event = Bytes::from(event.to_string());
        let trace = trace();
        self.sent.insert(trace.clone(), Vec::new());
        self.turns.spawn(async move {
            let begun = Instant::now();
            let (mut environment, start) = if idle.is_some() {
                (idle, None)
            } else {
                let limit = INIT_TIMEOUT.max(limit);
                let starting = Environment::start(&function, environment, &groups);
                let started = timeout(limit, unless_built_anew(starting, builds)).await;
                let (environment, start) = split(started.unwrap_or_else(|_| {
                    let limit = limit.as_secs();
                    let why = format!("function did not ask for an invocation within {limit} s");
                    Err(StartError::Failed(why))
                }));
                (environment, Some(start))
            };
            let mut result = InvocationResult::FunctionError;
            let error = match &mut environment {
                None => Some("the function did not start".to_owned()),
                Some(used) => {
                    let invocation = invocation(&function, trace.clone(), event, limit);
                    match used.invoke(invocation, limit).await {
                        Ok(body) => {
                            result = InvocationResult::Response(body.to_vec());
                            None
                        }
                        Err(InvocationError::Failed(why)) => Some(why),
                        Err(InvocationError::Ended(why)) => {
                            environment = None;
                            Some(why)
                        }
                    }
                }
            };
            let took = begun.elapsed();
            sleep(OUTPUT).await;
            let invocation = Invoked { number, batch, ids, trace, result, error, took };
            Turn { build, environment, start, invocation: Some(invocation) }
        });
    }

    fn end_turn(&mut self, turn: Turn, send: &str) -> Result<(), Error> {
        let is_tried = self.starts || self.failed_starts > 0 || self.build > 0;
        match turn.start {
            Some(Ok(())) if !self.starts && turn.build == self.build => {
                (self.starts, self.failed_starts) = (true, 0);
                line(format_args!("function started; send it a message: {send}"));
            }
            Some(Err(StartError::Refused(why))) if !is_tried => return Err(why.into()),
            Some(Err(StartError::Refused(why) | StartError::Failed(why)))
                if turn.build == self.build =>
            {
                let pause = (FIRST_PAUSE * 2_u32.saturating_pow(self.failed_starts.min(16)))
                    .min(LONGEST_PAUSE);
                self.failed_starts += 1;
                self.starts = false;
                self.next_start = Instant::now() + pause;
                line(format_args!("{why}; next start in {} s", pause.as_secs()));
            }
            // What an earlier build did, or a new build ended, is no failure of the function.
            None | Some(_) => {}
        }
        if let Some(invoked) = turn.invocation {
            self.acknowledge(invoked)?;
        }
        match turn.environment {
            Some(environment) if turn.build == self.build => self.idle.push(environment),
            Some(earlier) => drop(tokio::spawn(earlier.end())),
            None => {}
        }
        Ok(())
    }

    fn acknowledge(&mut self, invoked: Invoked) -> Result<(), EmbeddedError> {
        let Invoked { number, batch, ids, trace, result, error, took } = invoked;
        let messages = batch.message_ids().len();
        let kept = messages - self.mapping.acknowledge(&batch, &result)?;
        let sent = self.sent.remove(&trace).unwrap_or_default();
        let error = error.as_deref();
        if let Some(events) = &self.function.events {
            watched::acknowledged(events, ids, &batch.kept(&result), error);
        }
        line(FinishedBatch { number, messages, kept, sent, took, error });
        Ok(())
    }

    /// Handles a new build: idle environments end, and busy ones finish their invocation first.
    /// Starting ones notice it by themselves.
    fn replace(&mut self) {
        line("function was rebuilt, restarting it");
        self.build += 1;
        (self.starts, self.failed_starts, self.next_start) = (false, 0, Instant::now());
        for environment in self.idle.drain(..) {
            drop(tokio::spawn(environment.end()));
        }
    }
}

/// The position of the first idle environment whose process has ended.
async fn first_exit(idle: &[Environment]) -> usize {
    let exits = idle.iter().map(|environment| Box::pin(environment.exited()));
    let (status, at, _) = select_all(exits).await;
    line(format_args!("{} between invocations", show::exited(status)));
    at
}

/// Reports messages that reach the dead-letter queue, and messages that functions send. The AWS
/// SDKs give each request the trace of the invocation, as for Lambda's loop detection.
fn arrivals(
    sqs: &EmbeddedSqs,
    source: QueueArn,
    dead_letters: QueueArn,
    events: Option<Events>,
) -> mpsc::UnboundedReceiver<Arrival> {
    let (sender, arrivals) = mpsc::unbounded_channel();
    sqs.on_arrival(move |queue, message| {
        if let Some(events) = &events
            && (queue == source.name() || queue == dead_letters.name())
        {
            watched::arrived(events, message, queue == dead_letters.name());
        }
        let arrival = if queue == dead_letters.name() {
            Some(Arrival::DeadLetter(message.clone()))
        } else if queue != source.name() {
            None
        } else {
            message.system_attributes.get("AWSTraceHeader").map(|trace| Arrival::Sent {
                trace: trace.clone(),
                delay_secs: match message.state {
                    MessageState::DelayedUntil(until) => {
                        until.duration_since(message.sent).unwrap_or_default().as_secs()
                    }
                    MessageState::Visible | MessageState::InFlightUntil(_) => 0,
                },
            })
        };
        if let Some(arrival) = arrival {
            // The receiver is gone when the command ends.
            let _ = sender.send(arrival);
        }
    });
    arrivals
}

/// A process that hangs at its start must not block the next build.
async fn unless_built_anew(
    starting: impl Future<Output = Result<Environment, StartError>>,
    mut builds: watch::Receiver<()>,
) -> Result<Environment, StartError> {
    tokio::select! {
        started = starting => started,
        Ok(()) = builds.changed() => Err(StartError::BuiltAnew),
    }
}

fn split(
    started: Result<Environment, StartError>,
) -> (Option<Environment>, Result<(), StartError>) {
    match started {
        Ok(environment) => (Some(environment), Ok(())),
        Err(error) => (None, Err(error)),
    }
}

fn invocation(function: &Function, trace: String, event: Bytes, limit: Duration) -> Invocation {
    let now = Clock::system().now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Invocation {
        request_id: Uuid::new_v4().to_string(),
        deadline_millis: (now + limit).as_millis(),
        function_arn: function.arn(),
        trace,
        event,
    }
}

/// A trace of its own for each invocation. Source: X-Ray developer guide, "Tracing header".
fn trace() -> String {
    let now = Clock::system().now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (root, parent) = (Uuid::new_v4().simple().to_string(), Uuid::new_v4().as_u64_pair().0);
    format!("Root=1-{:08x}-{};Parent={parent:016x};Sampled=0", now.as_secs(), &root[..24])
}
