//! A Lambda function on this machine: its processes, each with Lambda's Runtime API. `requeue serve`
//! passes it batches, and Requeue invokes it as a target.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use requeue::queue::MAX_EVENT;
use requeue::{Clock, InBulk, Settings, bulk};
use requeue_lambda::{Config, FunctionTarget, Invoke, InvokeError, Invoked};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

use crate::observe::{Observed, Observer};
use crate::output::LineOutput;
use crate::table::counted;

mod processes;
mod environment;
mod program;
mod runtime_api;
mod show;

use environment::INIT_TIMEOUT;
pub(crate) use environment::{ProcessGroups, SHUTDOWN_GRACE};
use processes::PendingCall;
pub(crate) use processes::{EndedCall, FunctionProcesses, LatestStart};
pub(crate) use program::{Program, function_name};
pub(crate) use show::one_line;

/// A function whose [`FunctionProcesses`] run. Its clones are the same function.
#[derive(Clone)]
pub(crate) struct LocalFunction {
    calls: mpsc::Sender<PendingCall>,
    starts: watch::Receiver<LatestStart>,
    lines: LineOutput,
    number: Arc<AtomicU64>,
}

impl LocalFunction {
    pub(crate) fn starts(&self) -> watch::Receiver<LatestStart> {
        self.starts.clone()
    }

    pub(crate) async fn call(&self, event: Bytes, trace: String) -> EndedCall {
        let (ended, call) = oneshot::channel();
        let _ = self.calls.send(PendingCall { event, trace, ended }).await;
        match call.await {
            Ok(call) => call,
            // The environments end only with the command.
            Err(_) => std::future::pending().await,
        }
    }

    /// `call 3: 2 messages, function error: ValueError: no, 12 ms, process 1`
    fn show(&self, messages: usize, call: &EndedCall) {
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
        let EndedCall { result, environment, took } = call;
        let how = result.as_ref().map_or_else(|error| &*error.why, |_| "response");
        self.lines.line(format_args!(
            "call {number}: {}, {how}, {} ms, process {environment}",
            counted(messages, "message"),
            took.as_millis()
        ));
    }
}

impl Invoke for LocalFunction {
    async fn invoke(&self, event: Vec<u8>) -> Result<Invoked, InvokeError> {
        #[derive(Deserialize)]
        struct Event {
            #[serde(rename = "Records")]
            records: Vec<IgnoredAny>,
        }
        if event.len() > MAX_EVENT {
            return Err(InvokeError::TooLarge);
        }
        let messages = serde_json::from_slice(&event).map_or(0, |event: Event| event.records.len());
        let call = self.call(event.into(), trace()).await;
        self.show(messages, &call);
        Ok(match call.result {
            Ok(payload) => Invoked { payload: payload.into(), is_error: false },
            Err(error) => Invoked { payload: error.payload.into(), is_error: true },
        })
    }
}

/// A trace of its own for each invocation. Source: X-Ray developer guide, "Tracing header".
pub(crate) fn trace() -> String {
    let now = Clock::system().now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (root, parent) = (Uuid::new_v4().simple().to_string(), Uuid::new_v4().as_u64_pair().0);
    format!("Root=1-{:08x}-{};Parent={parent:016x};Sampled=0", now.as_secs(), &root[..24])
}

pub(crate) type LocalTarget = InBulk<Observed<FunctionTarget<LocalFunction>>>;

/// The time of Requeue in addition to that of the function, to start a process and to settle.
pub(crate) const BEYOND_TARGET: Duration = Duration::from_secs(20);

pub(crate) fn local_target(
    function: LocalFunction,
    timeout: Duration,
    most: u16,
    config: &mut Config,
    observer: Observer,
) -> LocalTarget {
    let Settings { limits, queues, .. } = &mut config.settings;
    // As long as the function may run, so that no response is lost.
    limits.timeout = timeout + INIT_TIMEOUT;
    limits.concurrency = limits.concurrency.min(most.into());
    for queue in queues.values_mut() {
        queue.timeout = None;
        queue.concurrency = queue.concurrency.map(|count| count.min(most.into()));
    }
    let target = FunctionTarget::new(function, config.function_settings.clone());
    bulk(Observed::new(target, observer))
}
