//! One execution environment: a process with its children, its Runtime API, and one call at a time.

use std::collections::BTreeSet;
use std::future::pending;
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::program::Program;
use super::runtime_api::{FunctionError, Invocation, RuntimeApi, RuntimeRequest};
use super::show::{self, FunctionOutput};
use crate::progress::{CommandProgress, NOTICEABLE};

/// The longest initialisation that Lambda allows. Source: Lambda developer guide, "Understanding
/// the Lambda execution environment lifecycle".
pub(super) const INIT_TIMEOUT: Duration = Duration::from_secs(10);
const LAST_OUTPUT: Duration = Duration::from_millis(500);
const LAST_REQUEST: Duration = Duration::from_millis(200);
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Ends its process when it is dropped.
pub(super) struct Environment {
    pub(super) number: u64,
    api: RuntimeApi,
    pid: Pid,
    groups: ProcessGroups,
    exit: watch::Receiver<Option<ExitStatus>>,
    next: Option<oneshot::Sender<Invocation>>,
}

pub(super) enum StartError {
    Refused(String),
    Failed(FunctionError),
    BuiltAnew,
}

impl Environment {
    pub(super) async fn start(
        program: &Arc<Program>,
        number: u64,
        groups: &ProcessGroups,
    ) -> Result<Self, StartError> {
        let refused = |error: io::Error| StartError::Refused(error.to_string());
        let api = RuntimeApi::listen().await.map_err(refused)?;
        let child = program.command(api.address, number).spawn();
        let child = child.map_err(|error| StartError::Refused(program.refused(&error)))?;
        let output = FunctionOutput { environment: number, program: Arc::clone(program) };
        let mut environment = Self::of(api, child, output, groups).map_err(refused)?;
        let step = match program.file {
            Some(_) => "starting the function",
            None => "building or starting the function, until it asks for an invocation",
        };
        let _progress = CommandProgress::shown_after(NOTICEABLE, step);
        let mut hint = std::pin::pin!(async {
            sleep(INIT_TIMEOUT).await;
            no_invocation_asked_for(program);
            pending::<()>().await;
        });
        loop {
            let request = tokio::select! {
                biased;
                request = environment.api.request() => request,
                status = exited_and_read(&environment.exit) => {
                    let why = show::exited_at_start(status, program.kind);
                    return Err(StartError::Failed(FunctionError::exited("-", why, status)));
                }
                () = &mut hint => continue,
            };
            match request {
                RuntimeRequest::Next(next) => {
                    environment.next = Some(next);
                    return Ok(environment);
                }
                RuntimeRequest::Error { id: None, error } => {
                    return Err(StartError::Failed(FunctionError::reported_at_start(error)));
                }
                RuntimeRequest::Response { .. } | RuntimeRequest::Error { .. } => {}
            }
        }
    }

    fn of(
        api: RuntimeApi,
        mut child: Child,
        function_output: FunctionOutput,
        groups: &ProcessGroups,
    ) -> io::Result<Self> {
        let number = function_output.environment;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.ok_or_else(|| io::Error::other("the process has no id"))?;
        groups.add(pid);
        let mut output = JoinSet::new();
        let of_errors = function_output.clone();
        child.stdout.take().map(|stream| output.spawn(function_output.pass_through(stream)));
        child.stderr.take().map(|stream| output.spawn(of_errors.pass_through(stream)));
        let (sender, exit) = watch::channel(None);
        let ended = groups.clone();
        tokio::spawn(async move {
            let status = child.wait().await.unwrap_or_default();
            // As in Lambda, its children do not outlive it.
            ended.kill(pid);
            let _ =
                timeout(LAST_OUTPUT, async { while output.join_next().await.is_some() {} }).await;
            sender.send_replace(Some(status));
        });
        Ok(Self { number, api, pid, groups: groups.clone(), exit, next: None })
    }

    pub(super) async fn invoke(
        &mut self,
        invocation: Invocation,
        limit: Duration,
    ) -> Result<Bytes, FunctionError> {
        let request_id = invocation.request_id.clone();
        timeout(limit, self.end_of(invocation)).await.unwrap_or_else(|_| {
            self.groups.kill(self.pid);
            Err(FunctionError::timed_out(&request_id, limit))
        })
    }

    async fn end_of(&mut self, invocation: Invocation) -> Result<Bytes, FunctionError> {
        let mut given = false;
        loop {
            if let Some(next) = self.next.take() {
                // After a broken connection, the process asks again.
                given = next.send(invocation.clone()).is_ok();
            }
            let request = tokio::select! {
                biased;
                request = self.api.request() => request,
                status = exited_and_read(&self.exit) => {
                    let (id, why) = (&invocation.request_id, show::exited(status));
                    return Err(FunctionError::exited(id, why, status));
                }
            };
            match request {
                RuntimeRequest::Next(next) => {
                    self.next = Some(next);
                    if given {
                        return Err(FunctionError::restarted());
                    }
                }
                RuntimeRequest::Response { id, body } if id == invocation.request_id => {
                    return Ok(body);
                }
                RuntimeRequest::Error { id, error }
                    if id.as_ref().is_none_or(|id| *id == invocation.request_id) =>
                {
                    return Err(FunctionError::reported(error));
                }
                RuntimeRequest::Response { .. } | RuntimeRequest::Error { .. } => {}
            }
        }
    }

    pub(super) async fn exited(&self) -> ExitStatus {
        exited(&self.exit).await
    }

    pub(super) async fn end(self) {
        self.groups.terminate(self.pid);
        let _ = timeout(SHUTDOWN_GRACE, self.exited()).await;
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        self.groups.kill(self.pid);
    }
}

/// A command may still build the function, as `cargo run` does.
fn no_invocation_asked_for(program: &Program) {
    let secs = INIT_TIMEOUT.as_secs();
    let rule = if program.file.is_none() { "if it is already built, it must" } else { "it must" };
    program.lines.line(format_args!(
        "the function has asked for no invocation within {secs} s:\n         {rule} {}",
        program.kind.what_it_must_be()
    ));
}

/// The end of a process, after its last complete request was read.
async fn exited_and_read(exit: &watch::Receiver<Option<ExitStatus>>) -> ExitStatus {
    let status = exited(exit).await;
    sleep(LAST_REQUEST).await;
    status
}

async fn exited(exit: &watch::Receiver<Option<ExitStatus>>) -> ExitStatus {
    let status = exit.clone().wait_for(Option::is_some).await.ok().and_then(|status| *status);
    match status {
        Some(status) => status,
        // This task waits for the process while the runtime lives.
        None => pending().await,
    }
}

const LOOK: Duration = Duration::from_millis(20);

/// The groups whose first process has not ended yet. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct ProcessGroups(Arc<Mutex<BTreeSet<i32>>>);

impl ProcessGroups {
    pub(super) fn add(&self, pid: Pid) {
        self.0.lock().insert(pid.as_raw_nonzero().get());
    }

    pub(super) fn terminate(&self, pid: Pid) {
        if self.0.lock().contains(&pid.as_raw_nonzero().get()) {
            let _ = kill_process_group(pid, Signal::TERM);
        }
    }

    /// Kills the rest of a group, unless it has ended: another one may have its number by now.
    pub(super) fn kill(&self, pid: Pid) {
        if self.0.lock().remove(&pid.as_raw_nonzero().get()) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    pub(crate) fn kill_all(&self) {
        for group in std::mem::take(&mut *self.0.lock()) {
            if let Some(pid) = Pid::from_raw(group) {
                let _ = kill_process_group(pid, Signal::KILL);
            }
        }
    }

    pub(crate) async fn end_all(&self, grace: Duration) {
        let groups: Vec<i32> = self.0.lock().iter().copied().collect();
        groups.into_iter().filter_map(Pid::from_raw).for_each(|pid| self.terminate(pid));
        let end = Instant::now() + grace;
        while !self.0.lock().is_empty() && Instant::now() < end {
            sleep(LOOK).await;
        }
        self.kill_all();
    }
}
