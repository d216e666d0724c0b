//! Long work of the page: one at a time in each place, with its progress, a stop and a result.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::server::{self, FailedRequest};
use crate::progress::{CommandProgress, ProgressState};
use crate::stop::Stop;

/// How long the end of the page waits for a job, which makes messages visible again.
const END_GRACE: Duration = Duration::from_secs(20);

/// A place for one job. It keeps the latest one, so that the page can ask for its result.
#[derive(Clone, Default)]
pub(super) struct JobPlace(Arc<Mutex<Option<Job>>>);

#[derive(Clone)]
struct Job {
    number: u64,
    name: &'static str,
    progress: watch::Receiver<ProgressState>,
    told: watch::Sender<Option<u8>>,
    end: Arc<OnceLock<Result<Value, String>>>,
}

/// A job for the page.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobJson {
    number: u64,
    name: &'static str,
    progress: ProgressState,
    is_running: bool,
    is_stopping: bool,
    result: Option<Value>,
    error: Option<String>,
}

impl JobPlace {
    fn latest(&self) -> MutexGuard<'_, Option<Job>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the work on a thread of its own. Refuses it while another job runs here.
    pub(super) fn start(
        &self,
        name: &'static str,
        work: impl FnOnce(CommandProgress, Stop) -> Result<Value, String> + Send + 'static,
    ) -> Result<Response, FailedRequest> {
        let mut latest = self.latest();
        if let Some(job) = latest.as_ref().filter(|job| job.is_running()) {
            let error = format!("{} is running; wait for its end, or stop it", job.name);
            return Err(FailedRequest::new(StatusCode::CONFLICT, &error));
        }
        let (told, stop) = Stop::by_hand();
        let progress = CommandProgress::silent(name);
        let number = latest.as_ref().map_or(1, |job| job.number + 1);
        let job = Job { number, name, progress: progress.watch(), told, end: Arc::default() };
        *latest = Some(job.clone());
        let (end, state) = (Arc::clone(&job.end), job.json());
        spawn_blocking(move || end.set(work(progress, stop)));
        Ok(server::json(&state))
    }

    pub(super) fn json(&self) -> Option<JobJson> {
        self.latest().as_ref().map(Job::json)
    }

    pub(super) fn stop(&self) -> Response {
        if let Some(job) = self.latest().as_ref() {
            job.told.send_replace(Some(0));
        }
        server::json(&self.json())
    }

    /// Stops the job and waits for its end, within limits.
    pub(super) async fn end(&self) {
        let Some(job) = self.latest().clone().filter(Job::is_running) else { return };
        job.told.send_replace(Some(0));
        let _ = timeout(END_GRACE, async {
            while job.is_running() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}

impl Job {
    fn is_running(&self) -> bool {
        self.end.get().is_none()
    }

    fn json(&self) -> JobJson {
        let end = self.end.get();
        JobJson {
            number: self.number,
            name: self.name,
            progress: self.progress.borrow().clone(),
            is_running: end.is_none(),
            is_stopping: end.is_none() && self.told.borrow().is_some(),
            result: end.and_then(|end| end.as_ref().ok()).cloned(),
            error: end.and_then(|end| end.as_ref().err()).cloned(),
        }
    }
}
