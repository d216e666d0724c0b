//! The execution environments of a function: processes that are started on demand, and replaced
//! when they end or a new build exists. Each works on one call at a time.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::select_all;
use requeue::Clock;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use uuid::Uuid;

use super::LocalFunction;
use super::environment::{Environment, INIT_TIMEOUT, ProcessGroups, StartError};
use super::program::{self, Program};
use super::runtime_api::{FunctionError, Invocation};
use super::show;
use crate::Error;

/// The wait for the function's output, which precedes the line of its call.
const OUTPUT: Duration = Duration::from_millis(10);
/// The delay after the first failed start; each further delay is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

pub(crate) struct FunctionProcesses {
    program: Arc<Program>,
    groups: ProcessGroups,
    most: usize,
    timeout: Duration,
    /// The line after a start. Without one, no caller waits for the next start.
    started: Option<String>,
    calls: mpsc::Receiver<PendingCall>,
    builds: watch::Receiver<()>,
    /// Idle environments; the last used one is taken first.
    idle: Vec<Environment>,
    turns: JoinSet<Turn>,
    starts: watch::Sender<LatestStart>,
    /// The number of the build. Environments of an earlier build get no invocation.
    build: u64,
    failed_starts: u32,
    next_start: Instant,
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LatestStart {
    /// There was none of this build.
    Pending,
    Failed,
    Succeeded,
}

pub(super) struct PendingCall {
    pub(super) event: Bytes,
    /// Identifies the messages that the function sends.
    pub(super) trace: String,
    pub(super) ended: oneshot::Sender<EndedCall>,
}

pub(crate) struct EndedCall {
    pub(crate) result: Result<Bytes, FunctionError>,
    pub(crate) environment: u64,
    pub(crate) took: Duration,
}

struct Turn {
    build: u64,
    environment: Option<Environment>,
    /// Only for an environment that had to be started.
    start: Option<Result<(), StartError>>,
    call: Option<(oneshot::Sender<EndedCall>, EndedCall)>,
}

impl FunctionProcesses {
    /// `started` is the line after a start. Without one, only a call tries a failed start again.
    pub(crate) fn new(
        program: Program,
        groups: ProcessGroups,
        most: u16,
        timeout: Duration,
        started: Option<String>,
    ) -> (Self, LocalFunction) {
        let (sender, calls) = mpsc::channel(1);
        let starts = watch::Sender::new(LatestStart::Pending);
        let program = Arc::new(program);
        let function = LocalFunction {
            calls: sender,
            starts: starts.subscribe(),
            lines: program.lines,
            number: Arc::default(),
        };
        let processes = Self {
            builds: program::builds(program.file.clone()),
            program,
            groups,
            most: most.into(),
            timeout,
            started,
            calls,
            idle: Vec::new(),
            turns: JoinSet::new(),
            starts,
            build: 0,
            failed_starts: 0,
            next_start: Instant::now(),
            number: 0,
        };
        (processes, function)
    }

    /// Runs until the first start fails, which is a mistake in the command line.
    pub(crate) async fn run(&mut self) -> Error {
        loop {
            let is_free = self.turns.len() < self.most;
            let is_idle = self.idle.is_empty() && self.turns.is_empty();
            let must_start = match *self.starts.borrow() {
                LatestStart::Pending => is_idle,
                LatestStart::Failed => is_idle && self.started.is_some(),
                LatestStart::Succeeded => false,
            };
            tokio::select! {
                biased;
                Some(Ok(turn)) = self.turns.join_next() => {
                    if let Err(error) = self.end_turn(turn) {
                        return error;
                    }
                }
                Ok(()) = self.builds.changed() => self.replace(),
                at = first_exit(&self.program, &self.idle), if !self.idle.is_empty() => {
                    drop(self.idle.remove(at));
                }
                () = sleep_until(self.next_start), if must_start => self.start(),
                Some(call) = self.calls.recv(), if is_free => self.invoke(call),
            }
        }
    }

    fn start(&mut self) {
        let (starting, build) = (self.starting(), self.build);
        self.turns.spawn(async move {
            let (environment, start) = split(starting.await);
            Turn { build, environment, start: Some(start), call: None }
        });
    }

    fn starting(&mut self) -> impl Future<Output = Started> + use<> {
        self.number += 1;
        let (program, number) = (Arc::clone(&self.program), self.number);
        let (groups, mut builds) = (self.groups.clone(), self.builds.clone());
        async move {
            tokio::select! {
                started = Environment::start(&program, number, &groups) => started,
                // A process that hangs at its start must not block the next build.
                Ok(()) = builds.changed() => Err(StartError::BuiltAnew),
            }
        }
    }

    fn invoke(&mut self, call: PendingCall) {
        let idle = self.idle.pop();
        let starting = idle.is_none().then(|| self.starting());
        let (program, number) = (Arc::clone(&self.program), self.number);
        let (build, limit) = (self.build, self.timeout);
        self.turns.spawn(async move {
            let begun = Instant::now();
            let PendingCall { event, trace, ended } = call;
            let (mut environment, start) = match starting {
                None => (idle, None),
                Some(starting) => {
                    let (environment, start) = split(in_time(starting, limit).await);
                    (environment, Some(start))
                }
            };
            let result = match &mut environment {
                None => {
                    let failed = match &start {
                        Some(Err(StartError::Failed(error))) => Some(error.payload.clone()),
                        _ => None,
                    };
                    Err(FunctionError::not_started(failed))
                }
                Some(used) => {
                    let now = Clock::system().now().duration_since(SystemTime::UNIX_EPOCH);
                    let invocation = Invocation {
                        request_id: Uuid::new_v4().to_string(),
                        deadline_millis: (now.unwrap_or_default() + limit).as_millis(),
                        function_arn: program.arn(),
                        trace,
                        event,
                    };
                    used.invoke(invocation, limit).await
                }
            };
            // The number of an idle one is that of its start.
            let number = environment.as_ref().map_or(number, |used| used.number);
            if result.as_ref().is_err_and(|error| error.has_ended) {
                environment = None;
            }
            let took = begun.elapsed();
            sleep(OUTPUT).await;
            let call = Some((ended, EndedCall { result, environment: number, took }));
            Turn { build, environment, start, call }
        });
    }

    fn end_turn(&mut self, turn: Turn) -> Result<(), Error> {
        let latest = *self.starts.borrow();
        let is_tried = latest != LatestStart::Pending || self.build > 0;
        match turn.start {
            Some(Ok(())) if latest != LatestStart::Succeeded && turn.build == self.build => {
                self.failed_starts = 0;
                if let Some(line) = &self.started {
                    self.program.lines.line(line);
                }
                self.starts.send_replace(LatestStart::Succeeded);
            }
            Some(Err(StartError::Refused(why))) if !is_tried => return Err(why.into()),
            Some(Err(StartError::Refused(why))) if turn.build == self.build => self.fail(&why),
            Some(Err(StartError::Failed(error))) if turn.build == self.build => {
                self.fail(&error.why);
            }
            // A failure of an earlier build, or of a start that a new build ended, does not count.
            None | Some(_) => {}
        }
        match turn.environment {
            Some(environment) if turn.build == self.build => self.idle.push(environment),
            Some(earlier) => drop(tokio::spawn(earlier.end())),
            None => {}
        }
        if let Some((ended, call)) = turn.call {
            // No caller waits for a call whose time is over.
            let _ = ended.send(call);
        }
        Ok(())
    }

    /// Notes a failed start. Concurrent failures count once.
    fn fail(&mut self, why: &str) {
        if self.failed_starts > 0 && Instant::now() < self.next_start {
            return;
        }
        let pause =
            (FIRST_PAUSE * 2_u32.saturating_pow(self.failed_starts.min(16))).min(LONGEST_PAUSE);
        self.failed_starts += 1;
        self.starts.send_replace(LatestStart::Failed);
        self.next_start = Instant::now() + pause;
        let next = match self.started {
            Some(_) => format!("; next start in {} s", pause.as_secs()),
            None => String::new(),
        };
        self.program.lines.line(format_args!("{why}{next}"));
    }

    /// Idle environments end, busy ones finish their invocation, and starting ones notice it.
    fn replace(&mut self) {
        self.program.lines.line("function was rebuilt, restarting it");
        self.build += 1;
        (self.failed_starts, self.next_start) = (0, Instant::now());
        self.starts.send_replace(LatestStart::Pending);
        for environment in self.idle.drain(..) {
            drop(tokio::spawn(environment.end()));
        }
    }
}

async fn first_exit(program: &Program, idle: &[Environment]) -> usize {
    let exits = idle.iter().map(|environment| Box::pin(environment.exited()));
    let (status, at, _) = select_all(exits).await;
    program.lines.line(format_args!("{} between invocations", show::exited(status)));
    at
}

/// A start for a call ends with the time of the call.
async fn in_time(starting: impl Future<Output = Started>, limit: Duration) -> Started {
    let limit = INIT_TIMEOUT.max(limit);
    timeout(limit, starting).await.unwrap_or_else(|_| {
        let why = format!("function did not ask for an invocation within {} s", limit.as_secs());
        Err(StartError::Failed(FunctionError::silent(why)))
    })
}

type Started = Result<Environment, StartError>;

fn split(started: Started) -> (Option<Environment>, Result<(), StartError>) {
    match started {
        Ok(environment) => (Some(environment), Ok(())),
        Err(error) => (None, Err(error)),
    }
}
