//! The screen "Dead letters": looks at the queue, shows groups and messages, and redrives the chosen
//! ones. The commands of `requeue dlq` do the work.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use std::{io, iter};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::stream;
use http::{StatusCode, header};
use requeue::Clock;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::MAX_MESSAGES;
use super::job::{JobJson, JobPlace};
use super::server::{self, FailedRequest};
use super::snapshot::{BodyJson, MessageJson, Snapshot, SnapshotJson};
use crate::Error;
use crate::dlq::discard::Deleted;
use crate::dlq::letter::{Filter, Letter};
use crate::dlq::redrive::{self, CopyOptions};
use crate::dlq::scan::Scan;
use crate::dlq::{DeadLetters, QueueArguments, discard, export, messages};
use crate::progress::CommandProgress;
use crate::stop::Stop;

/// The bodies and attributes that the page keeps in memory. A look ends there.
const MAX_BYTES: usize = 256 * 1024 * 1024;
/// Messages of a redrive in a second. Source: as for `requeue dlq redrive --rate`.
const MAX_RATE: u16 = 500;

/// A dead-letter queue for the page.
pub(crate) struct DeadLetterScreen {
    pub(crate) dead_letters: DeadLetters,
    pub(crate) max_messages: u32,
    /// The message attribute or the JSON pointer that names the tenant.
    pub(crate) scope: Option<String>,
}

impl DeadLetterScreen {
    /// With the default bound, for the page beside another command.
    pub(crate) fn of(dead_letters: DeadLetters) -> Self {
        Self { dead_letters, max_messages: MAX_MESSAGES, scope: None }
    }
}

struct Screen {
    queue: DeadLetterScreen,
    may_redrive: bool,
    job: JobPlace,
    state: Mutex<ScreenState>,
}

#[derive(Default)]
struct ScreenState {
    looks: u64,
    snapshot: Option<Arc<Snapshot>>,
    selection: Option<Selection>,
}

/// Messages that the user has chosen.
struct Selection {
    number: u64,
    snapshot: Arc<Snapshot>,
    messages: Vec<usize>,
    /// The options of the plan that the user saw.
    planned: Option<CopyOptions>,
    /// Whether an export was sent to its end.
    exported: Arc<AtomicBool>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ScreenJson<'a> {
    queue: String,
    source: Option<String>,
    warnings: Vec<String>,
    may_redrive: bool,
    snapshot: Option<SnapshotJson<'a>>,
    job: Option<JobJson>,
}

#[derive(Deserialize)]
struct Chosen {
    snapshot: u64,
    groups: Vec<usize>,
    messages: Vec<usize>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlanOptions {
    rate: Option<u16>,
    fresh_budget: bool,
}

/// The routes below `/api/dead-letters`.
pub(super) fn routes(queue: DeadLetterScreen, may_redrive: bool, job: JobPlace) -> Router {
    let state = Mutex::default();
    let screen = Arc::new(Screen { queue, may_redrive, job, state });
    let reading = Router::new()
        .route("/", get(show))
        .route("/look", post(look))
        .route("/job", get(async |State(screen): Shared| server::json(&screen.job.json())))
        .route("/job/stop", post(async |State(screen): Shared| screen.job.stop()))
        .route("/looks/{look}/groups/{group}/{from}", get(rows))
        .route("/looks/{look}/messages/{message}", get(message))
        .route("/looks/{look}/messages/{message}/body", get(body))
        .route("/looks/{look}/messages/{message}/download", get(download))
        .route("/selections", post(choose))
        .route("/selections/{selection}/export", get(exported))
        .route("/selections/{selection}/plan", post(plan));
    let changing = Router::new()
        .route("/selections/{selection}/redrive", post(redrive))
        .route("/selections/{selection}/discard", post(discard));
    let all = if may_redrive { reading.merge(changing) } else { reading };
    all.with_state(screen)
}

type Shared = State<Arc<Screen>>;
type Responded = Result<Response, FailedRequest>;

async fn show(State(screen): Shared) -> Response {
    let DeadLetters { queue, source, .. } = &screen.queue.dead_letters;
    let snapshot = screen.state().snapshot.clone();
    server::json(&ScreenJson {
        queue: queue.arn.to_string(),
        source: source.as_ref().map(ToString::to_string),
        warnings: screen.queue.dead_letters.warnings().await,
        may_redrive: screen.may_redrive,
        snapshot: snapshot.as_ref().map(|snapshot| snapshot.json()),
        job: screen.job.json(),
    })
}

/// Receives all messages, keeps them in memory, and makes them visible again.
async fn look(State(screen): Shared) -> Responded {
    let runtime = Handle::current();
    let job = screen.job.clone();
    job.start("look", move |progress, stop| {
        let looked = runtime.block_on(screen.look(&progress, &stop));
        looked.map_err(|error| error.to_string())
    })
}

async fn rows(
    State(screen): Shared,
    Path((look, group, from)): Path<(u64, usize, usize)>,
) -> Responded {
    let snapshot = screen.snapshot(look)?;
    snapshot.rows(group, from).map(|rows| server::json(&rows)).ok_or_else(outdated)
}

async fn message(State(screen): Shared, Path((look, at)): Path<(u64, usize)>) -> Responded {
    of_letter(&screen, look, at, |letter| server::json(&MessageJson::of(letter, &letter.read())))
}

async fn body(State(screen): Shared, Path((look, at)): Path<(u64, usize)>) -> Responded {
    of_letter(&screen, look, at, |letter| server::json(&BodyJson::of(&letter.read())))
}

/// The whole body, as it is in the queue.
async fn download(State(screen): Shared, Path((look, at)): Path<(u64, usize)>) -> Responded {
    of_letter(&screen, look, at, |letter| {
        attachment(&format!("{}.txt", letter.id), Body::from(letter.body.clone()))
    })
}

async fn choose(State(screen): Shared, body: Bytes) -> Responded {
    let chosen: Chosen = server::parsed(&body)?;
    let snapshot = screen.snapshot(chosen.snapshot)?;
    let messages = snapshot.chosen(&chosen.groups, &chosen.messages);
    let count = messages.len();
    let mut state = screen.state();
    let number = state.selection.as_ref().map_or(1, |before| before.number + 1);
    let (planned, exported) = (None, Arc::default());
    state.selection = Some(Selection { number, snapshot, messages, planned, exported });
    Ok(server::json(&json!({ "selection": number, "count": count })))
}

/// The chosen messages as JSON Lines, as `requeue dlq export` writes them.
async fn exported(State(screen): Shared, Path(selection): Path<u64>) -> Responded {
    let (snapshot, messages) = screen.selected(selection)?;
    let exported = screen.exported(selection)?;
    let end = iter::from_fn(move || {
        exported.store(true, Ordering::Relaxed);
        None
    });
    let lines = messages.into_iter().map(move |at| {
        let line = export::line(&snapshot.letters[at], false);
        line.map_err(|error| io::Error::other(error.to_string()))
    });
    let lines = lines.chain(end);
    let name = format!("{}.jsonl", screen.queue.dead_letters.queue.arn.name());
    Ok(attachment(&name, Body::from_stream(stream::iter(lines))))
}

async fn plan(State(screen): Shared, Path(selection): Path<u64>, body: Bytes) -> Responded {
    let PlanOptions { rate, fresh_budget } = server::parsed(&body)?;
    if rate.is_some_and(|rate| !(1..=MAX_RATE).contains(&rate)) {
        let error = format!("the rate must be 1 to {MAX_RATE} messages in a second");
        return Err(FailedRequest::new(StatusCode::BAD_REQUEST, &error));
    }
    let options = CopyOptions { rate, fresh_budget };
    let (snapshot, messages) = screen.selected(selection)?;
    // The errors of the calls are not `Send`.
    let runtime = Handle::current();
    let planning = spawn_blocking(move || {
        let lines = runtime.block_on(screen.plan(&snapshot, &messages, options));
        let lines = lines.map_err(|error| FailedRequest::new(StatusCode::BAD_GATEWAY, &error))?;
        screen.note_plan(selection, options);
        Ok(server::json(&lines))
    });
    planning.await.map_err(|error| FailedRequest::new(StatusCode::INTERNAL_SERVER_ERROR, &error))?
}

/// Redrives as planned.
async fn redrive(State(screen): Shared, Path(selection): Path<u64>) -> Responded {
    let (snapshot, messages) = screen.selected(selection)?;
    let planned = screen.state().selection.as_ref().and_then(|of| of.planned);
    let options = planned.ok_or_else(outdated)?;
    let runtime = Handle::current();
    let job = screen.job.clone();
    job.start("redrive", move |progress, stop| {
        let redriving = screen.redrive(&snapshot, &messages, options, &progress, &stop);
        let redriven = runtime.block_on(redriving).map_err(|error| error.to_string());
        screen.forget();
        redriven
    })
}

/// Deletes the messages of an export.
async fn discard(State(screen): Shared, Path(selection): Path<u64>) -> Responded {
    let (snapshot, messages) = screen.selected(selection)?;
    let letters = || messages.iter().map(|at| &snapshot.letters[*at]);
    let refused = |text: &str| FailedRequest::new(StatusCode::CONFLICT, text);
    if !screen.exported(selection)?.load(Ordering::Relaxed) {
        return Err(refused("the export is not complete, so nothing was deleted; export first"));
    }
    if letters().any(|letter| letter.record.attributes.is_none()) {
        return Err(refused(
            "the attributes of a message cannot be read, so its export is not complete; choose \
             other messages",
        ));
    }
    let ids: HashSet<String> = letters().map(|letter| letter.id.clone()).collect();
    let runtime = Handle::current();
    let job = screen.job.clone();
    job.start("discard", move |progress, stop| {
        let kept = screen.keep(&snapshot, &messages).map_err(|error| error.to_string())?;
        let discarded = runtime.block_on(screen.discard(&ids, &kept, &progress, &stop));
        screen.forget();
        discarded.map_err(|error| error.to_string())
    })
}

fn outdated() -> FailedRequest {
    FailedRequest::new(StatusCode::GONE, "the list is outdated; look at the queue again")
}

fn of_letter(
    screen: &Screen,
    look: u64,
    at: usize,
    respond: impl FnOnce(&Letter) -> Response,
) -> Responded {
    let snapshot = screen.snapshot(look)?;
    snapshot.letters.get(at).map(respond).ok_or_else(outdated)
}

/// A file to save. Its type is never one that a browser shows.
fn attachment(name: &str, body: Body) -> Response {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let name: String = name.chars().filter(is_plain).collect();
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
    ];
    (headers, body).into_response()
}

impl Screen {
    fn state(&self) -> MutexGuard<'_, ScreenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn snapshot(&self, number: u64) -> Result<Arc<Snapshot>, FailedRequest> {
        let snapshot = self.state().snapshot.clone();
        snapshot.filter(|snapshot| snapshot.number == number).ok_or_else(outdated)
    }

    fn selected(&self, number: u64) -> Result<(Arc<Snapshot>, Vec<usize>), FailedRequest> {
        let state = self.state();
        let selection = state.selection.as_ref().filter(|of| of.number == number);
        let Selection { snapshot, messages, .. } = selection.ok_or_else(outdated)?;
        Ok((Arc::clone(snapshot), messages.clone()))
    }

    fn note_plan(&self, number: u64, options: CopyOptions) {
        if let Some(of) = self.state().selection.as_mut().filter(|of| of.number == number) {
            of.planned = Some(options);
        }
    }

    fn exported(&self, number: u64) -> Result<Arc<AtomicBool>, FailedRequest> {
        let state = self.state();
        let selection = state.selection.as_ref().filter(|of| of.number == number);
        selection.map(|of| Arc::clone(&of.exported)).ok_or_else(outdated)
    }

    /// Forgets the list, because the queue has changed.
    fn forget(&self) {
        let mut state = self.state();
        (state.snapshot, state.selection) = (None, None);
    }

    /// Writes the messages to a file of this machine: nobody knows whether a browser saved its
    /// export.
    fn keep(&self, snapshot: &Snapshot, messages: &[usize]) -> Result<String, Error> {
        let name = self.queue.dead_letters.queue.arn.name();
        let since = Clock::system().now().duration_since(SystemTime::UNIX_EPOCH);
        let millis = since.unwrap_or_default().as_millis();
        let path = format!("{name}-discarded-{millis}.jsonl");
        export::write_file(path.as_ref(), messages.iter().map(|at| &snapshot.letters[*at]))?;
        Ok(path)
    }

    async fn discard(
        &self,
        ids: &HashSet<String>,
        kept: &str,
        progress: &CommandProgress,
        stop: &Stop,
    ) -> Result<Value, Error> {
        let now = self.queue.dead_letters.refreshed().await?;
        let Deleted { count: deleted, gone, error } =
            discard::delete(&self.place(), &now, ids, stop, progress).await;
        discard::keep_gone(kept.as_ref(), ids, &gone)?;
        let count = u64::try_from(ids.len()).unwrap_or(u64::MAX);
        let mut lines = vec![format!("{} deleted", messages(deleted))];
        lines.push(format!("the messages are in {kept}, where the command was started"));
        if deleted < count {
            let left = messages(count - deleted);
            lines.push(format!("{left} not deleted: stopped, or held by another reader"));
        }
        let error = error.map(|error| error.to_string());
        Ok(json!({ "lines": lines, "isComplete": deleted == count, "error": error }))
    }

    fn place(&self) -> QueueArguments {
        QueueArguments::new(None, None, None, self.queue.max_messages)
    }

    async fn look(&self, progress: &CommandProgress, stop: &Stop) -> Result<Value, Error> {
        let now = self.queue.dead_letters.refreshed().await?;
        let max = usize::try_from(self.queue.max_messages).unwrap_or(usize::MAX);
        progress.count("messages", Some(now.queue.count()));
        let mut scan = Scan::new(&now.sqs, &now.queue, max, stop, progress);
        let (mut seen, mut bytes) = (Vec::new(), 0);
        let walked = scan
            .walk(async |letters, _| {
                bytes += letters.iter().map(Letter::size).sum::<usize>();
                seen.extend(letters);
                Ok(if bytes > MAX_BYTES {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                })
            })
            .await;
        progress.step("making the messages visible again");
        let is_released = scan.release().await;
        let not_reached = scan.unseen_count();
        let looked = walked?;
        let mut state = self.state();
        state.looks += 1;
        let taken = Clock::system().now();
        let mut snapshot = Snapshot::new(state.looks, taken, seen, self.queue.scope.as_deref());
        snapshot.is_complete = looked.is_complete() && bytes <= MAX_BYTES;
        snapshot.is_released = is_released;
        snapshot.not_reached = if snapshot.is_complete { 0 } else { not_reached };
        state.snapshot = Some(Arc::new(snapshot));
        state.selection = None;
        Ok(Value::Null)
    }

    async fn plan(
        &self,
        snapshot: &Snapshot,
        messages: &[usize],
        options: CopyOptions,
    ) -> Result<Vec<String>, Error> {
        let arguments = self.arguments(snapshot, messages, options);
        let letters = messages.iter().map(|at| &snapshot.letters[*at]);
        redrive::plan(&arguments, &self.queue.dead_letters, letters).await
    }

    async fn redrive(
        &self,
        snapshot: &Snapshot,
        messages: &[usize],
        options: CopyOptions,
        progress: &CommandProgress,
        stop: &Stop,
    ) -> Result<Value, Error> {
        let arguments = self.arguments(snapshot, messages, options);
        let now = self.queue.dead_letters.refreshed().await?;
        let end = redrive::redrive(&arguments, &now, stop, progress).await?;
        let error = end.error.map(|error| error.to_string());
        Ok(json!({ "lines": end.lines, "isComplete": end.is_complete, "error": error }))
    }

    fn arguments(
        &self,
        snapshot: &Snapshot,
        messages: &[usize],
        options: CopyOptions,
    ) -> redrive::Arguments {
        let ids: HashSet<String> =
            messages.iter().map(|at| snapshot.letters[*at].id.clone()).collect();
        redrive::Arguments::copying(Filter::of_ids(ids), self.place(), options)
    }
}
