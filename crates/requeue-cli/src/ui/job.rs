//! Long work of the page: one at a time in each place, with its progress, a stop and a result.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use axum::response::Response;
use http::StatusCode;
use parking_lot::Mutex;
use requeue::Clock;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::server::{self, FailedRequest};
use crate::Error;
use crate::progress::{CommandProgress, ProgressState, SQS_REQUESTS};
use crate::stop::Stop;
use crate::table::{clock_time, moment, thousands};

const MAX_RESULTS: usize = 20;

/// A place for one job, which keeps the latest one and the results before it for each browser.
#[derive(Clone, Default)]
pub(super) struct JobPlace(Arc<Mutex<Jobs>>);

#[derive(Default)]
struct Jobs {
    /// The latest one, and earlier ones with a result.
    all: VecDeque<Job>,
    /// Whether a running job has a line on the terminal.
    has_line: bool,
    is_closed: bool,
}

#[derive(Clone)]
struct Job {
    number: u64,
    name: &'static str,
    progress: watch::Receiver<ProgressState>,
    told: watch::Sender<Option<u8>>,
    stop: Stop,
    started: SystemTime,
    end: Arc<OnceLock<End>>,
}

struct End {
    at: SystemTime,
    result: Result<Value, String>,
}

impl JobPlace {
    /// From now on a running job has a line on the terminal.
    pub(super) fn show_line(&self) {
        self.0.lock().has_line = true;
    }

    /// Starts the work on a thread of its own. Refuses it while another job runs here.
    pub(super) fn start(
        &self,
        name: &'static str,
        work: impl FnOnce(CommandProgress, Stop) -> Result<Value, Error> + Send + 'static,
    ) -> Result<Response, FailedRequest> {
        let mut jobs = self.0.lock();
        if let Some(job) = jobs.all.front().filter(|job| job.is_running()) {
            let error = format!("{} is running; wait for its end, or stop it", job.name);
            return Err(FailedRequest::new(StatusCode::CONFLICT, &error));
        }
        if jobs.is_closed {
            return Err(FailedRequest::new(StatusCode::CONFLICT, "the command is about to end"));
        }
        let (told, stop) = Stop::by_hand();
        let silent = CommandProgress::silent(name);
        let progress = if jobs.has_line { silent.with_line() } else { silent };
        let number = jobs.all.front().map_or(1, |job| job.number + 1);
        let (progress_seen, started) = (progress.watch(), Clock::system().now());
        let end = Arc::default();
        let job =
            Job { number, name, progress: progress_seen, told, stop: stop.clone(), started, end };
        jobs.all.pop_front_if(|before| !before.has_result());
        jobs.all.truncate(MAX_RESULTS);
        jobs.all.push_front(job.clone());
        let (end, state) = (Arc::clone(&job.end), job.json());
        spawn_blocking(move || {
            let result = work(progress, stop).map_err(|error| error.to_string());
            end.set(End { at: Clock::system().now(), result })
        });
        Ok(server::json(&state))
    }

    pub(super) fn json(&self) -> Value {
        json!(self.0.lock().all.front().map(Job::json))
    }

    /// The same, with the latest results, the newest first.
    pub(super) fn all_json(&self) -> Value {
        let jobs = self.0.lock();
        let results: Value = jobs.with_results().map(Job::json).collect();
        json!({ "latest": jobs.all.front().map(Job::json), "results": results })
    }

    pub(super) fn stop(&self) -> Response {
        if let Some(job) = self.0.lock().all.front() {
            job.told.send_replace(Some(0));
        }
        server::json(&self.json())
    }

    async fn ended(&self) {
        while self.0.lock().all.front().is_some_and(Job::is_running) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops the job and waits for its end. Returns a line for each result, the newest last.
    pub(super) async fn end(&self) -> Vec<String> {
        self.0.lock().is_closed = true;
        let _ = self.stop();
        self.ended().await;
        let jobs = self.0.lock();
        let mut lines: Vec<String> = jobs.with_results().filter_map(Job::summary).collect();
        lines.reverse();
        lines
    }
}

impl Jobs {
    fn with_results(&self) -> impl Iterator<Item = &Job> {
        self.all.iter().filter(|job| job.has_result()).take(MAX_RESULTS)
    }
}

impl Job {
    /// Whether its end is worth keeping: an error, a value, or a note.
    fn has_result(&self) -> bool {
        let is_told = |end: &End| end.result != Ok(Value::Null);
        self.end.get().is_some_and(|end| is_told(end) || !self.progress.borrow().notes.is_empty())
    }

    /// The end in a line of text: `14:03:22 UTC redrive: 12 messages copied to orders; done by class:
    /// 12 of 12 quota`. `None` if it has no words, as that of a simulation.
    fn summary(&self) -> Option<String> {
        let End { at, result } = self.end.get()?;
        let mut words = match result {
            Ok(value) => {
                let lines = value["lines"].as_array().into_iter().flatten();
                let texts = lines.chain([&value["error"]]).filter_map(Value::as_str);
                texts.map(str::to_owned).chain(by_class(value)).collect()
            }
            Err(error) => vec![error.clone()],
        };
        words.extend(self.progress.borrow().notes.iter().cloned());
        let line = format!("{} UTC {}: {}", clock_time(*at), self.name, words.join("; "));
        (!words.is_empty()).then_some(line)
    }

    fn is_running(&self) -> bool {
        self.end.get().is_none()
    }

    fn json(&self) -> Value {
        let end = self.end.get();
        let silence = SQS_REQUESTS.silence().filter(|_| end.is_none());
        json!({
            "number": self.number,
            "name": self.name,
            "progress": *self.progress.borrow(),
            "isRunning": end.is_none(),
            "isStopping": end.is_none() && self.told.borrow().is_some(),
            // The time without a response of SQS, if it is long.
            "sqsSilentMs": silence.and_then(|time| u64::try_from(time.since.as_millis()).ok()),
            // The effect of an end of the process at once.
            "ifKilled": end.is_none().then(|| self.stop.left_behind()),
            "started": moment(self.started),
            "ended": end.and_then(|end| moment(end.at)),
            "result": end.and_then(|end| end.result.as_ref().ok()),
            "error": end.and_then(|end| end.result.as_ref().err()),
        })
    }
}

/// `done by class: 12 of 40 quota, 3 of 3 temporary`; `None` for a job that counts no classes.
fn by_class(result: &Value) -> Option<String> {
    let mut classes: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for kind in result["kinds"].as_array()? {
        let count = |name: &str| kind[name].as_u64().unwrap_or_default();
        let (done, all) = classes.entry(kind["class"].as_str()?).or_default();
        *done += count("done");
        *all += count("done") + count("left");
    }
    let class = |(class, (done, all))| format!("{} of {} {class}", thousands(done), thousands(all));
    Some(format!(
        "done by class: {}",
        classes.into_iter().map(class).collect::<Vec<_>>().join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_results_stay_and_work_without_a_result_takes_no_place() {
        let place = JobPlace::default();
        for number in 1..=50 {
            let result = if number % 2 == 0 { Value::Null } else { json!(number) };
            place.start("redrive", move |_, _| Ok(result)).expect("no other job runs");
            place.ended().await;
        }
        let results = || place.all_json()["results"].as_array().cloned().expect("results");
        let numbers: Vec<Value> = results().into_iter().map(|job| job["number"].clone()).collect();
        let expected: Vec<u64> = (1..=50).rev().filter(|number| number % 2 == 1).collect();
        assert_eq!(numbers, expected[..MAX_RESULTS]);
        let has_ended = |job: &Value| job["ended"].is_string() && job["isRunning"] == false;
        assert!(results().iter().all(has_ended), "each with its end");
        let noted = |progress: CommandProgress, _| {
            progress.note("hidden until 12:00:00 UTC".to_owned());
            Ok(Value::Null)
        };
        place.start("look", noted).expect("no other job runs");
        place.ended().await;
        let latest = &results()[0];
        let count = latest["progress"]["notes"].as_array().map(Vec::len);
        assert_eq!((latest["number"].as_u64(), count), (Some(51), Some(1)));
    }

    #[tokio::test]
    async fn the_end_of_the_page_tells_the_result_of_the_job_that_ran() {
        let results = [
            (
                Ok(json!({ "lines": ["3 messages copied", "1 left"], "error": null })),
                Some("3 messages copied; 1 left"),
            ),
            (
                Ok(json!({
                    "lines": ["3 deleted"],
                    "error": "disk full",
                    "kinds": [
                        { "class": "quota", "done": 1, "left": 2 },
                        { "class": "quota", "done": 1_100, "left": 0 },
                        { "class": "temporary", "done": 1, "left": 0 },
                    ],
                })),
                Some("3 deleted; disk full; done by class: 1,101 of 1,103 quota, 1 of 1 temporary"),
            ),
            (Ok(Value::Null), None),
            (Err("no queue".to_owned()), Some("no queue")),
        ];
        for (result, words) in results {
            let place = JobPlace::default();
            assert_eq!(place.all_json()["results"], json!([]));
            let (told, is_told) = std::sync::mpsc::channel::<()>();
            let work = move |_, _| {
                let result = is_told.recv().map_or(result, |()| unreachable!("nothing is sent"));
                result.map_err(Error::from)
            };
            place.start("redrive", work).expect("no other job runs");
            let telling = async { drop(told) };
            let (lines, ()) = tokio::join!(place.end(), telling);
            let without_time =
                |line: &String| line.split_once(" UTC ").map(|(_, text)| text.to_owned());
            let texts: Vec<String> = lines.iter().filter_map(without_time).collect();
            let expected = words.map(|words| format!("redrive: {words}"));
            assert_eq!(texts, Vec::from_iter(expected));
            assert!(place.start("redrive", |_, _| Ok(Value::Null)).is_err(), "it is closed");
        }
    }
}
