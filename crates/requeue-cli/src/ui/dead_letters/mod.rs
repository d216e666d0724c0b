//! The screen "Dead letters". The commands of `requeue dlq` do the work.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::stream;
use http::{StatusCode, header};
use serde::Deserialize;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

mod screen;

pub(crate) use screen::DeadLetterScreen;
use screen::{Screen, Selection};

use super::job::JobPlace;
use super::server::{self, FailedRequest};
use super::snapshot;
use crate::dlq::letter::Letter;
use crate::dlq::redrive::CopyOptions;
use crate::dlq::{DeadLetters, export};

/// Messages of a redrive in a second. Source: as for `requeue dlq redrive --rate`.
const MAX_RATE: u16 = 500;

#[derive(Deserialize)]
struct Chosen {
    snapshot: u64,
    groups: Vec<usize>,
    messages: Vec<usize>,
}

pub(super) fn routes(queue: DeadLetterScreen, may_redrive: bool, job: JobPlace) -> Router {
    let screen = Arc::new(Screen::new(queue, may_redrive, job));
    let reading = Router::new()
        .route("/", get(show))
        .route("/look", post(look))
        .route("/job", get(async |State(screen): Shared| server::json(&screen.job.json())))
        .route("/jobs", get(async |State(screen): Shared| server::json(&screen.job.all_json())))
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
    let dead_letters = &screen.queue.dead_letters;
    let DeadLetters { queue, source, .. } = dead_letters;
    let snapshot = screen.state.lock().snapshot.clone();
    server::json(&json!({
        "queue": queue.arn.to_string(),
        "source": source.as_ref().map(ToString::to_string),
        "warnings": dead_letters.warnings(),
        "mayRedrive": screen.may_redrive,
        "snapshot": snapshot.map(|snapshot| snapshot.json()),
    }))
}

/// Receives all messages, keeps them in memory, and makes them visible again.
async fn look(State(screen): Shared) -> Responded {
    let runtime = Handle::current();
    let job = screen.job.clone();
    job.start("look", move |progress, stop| runtime.block_on(screen.look(&progress, &stop)))
}

async fn rows(
    State(screen): Shared,
    Path((look, group, from)): Path<(u64, usize, usize)>,
) -> Responded {
    let snapshot = screen.snapshot(look)?;
    snapshot.rows(group, from).map(|rows| server::json(&rows)).ok_or_else(outdated)
}

async fn message(State(screen): Shared, Path((look, at)): Path<(u64, usize)>) -> Responded {
    of_letter(&screen, look, at, |letter| server::json(&snapshot::message(letter)))
}

async fn body(State(screen): Shared, Path((look, at)): Path<(u64, usize)>) -> Responded {
    of_letter(&screen, look, at, |letter| server::json(&snapshot::body(letter)))
}

async fn download(State(screen): Shared, Path((look, at)): Path<(u64, usize)>) -> Responded {
    of_letter(&screen, look, at, |letter| {
        let body = letter.read().payload().to_owned();
        attachment(&format!("{}.txt", letter.id), Body::from(body))
    })
}

async fn choose(State(screen): Shared, body: Bytes) -> Responded {
    let chosen: Chosen = server::parsed(&body)?;
    let snapshot = screen.snapshot(chosen.snapshot)?;
    let messages = snapshot.chosen(&chosen.groups, &chosen.messages);
    let count = messages.len();
    let mut state = screen.state.lock();
    let number = state.selection.as_ref().map_or(1, |before| before.number + 1);
    state.selection = Some(Selection { number, snapshot, messages, planned: None });
    Ok(server::json(&json!({ "selection": number, "count": count })))
}

/// The chosen messages as JSON Lines, as `requeue dlq export` writes them.
async fn exported(State(screen): Shared, Path(selection): Path<u64>) -> Responded {
    let (snapshot, messages) = screen.selected(selection)?;
    // A reader that has stopped must not keep a list that another look has replaced.
    let snapshot = Arc::downgrade(&snapshot);
    let lines = messages.into_iter().map(move |at| {
        let snapshot = snapshot.upgrade().ok_or_else(|| io::Error::other("another look began"))?;
        let line = export::line(&snapshot.letters[at], false);
        line.map_err(|error| io::Error::other(error.to_string()))
    });
    let name = format!("{}.jsonl", screen.queue.dead_letters.queue.arn.name());
    Ok(attachment(&name, Body::from_stream(stream::iter(lines))))
}

async fn plan(State(screen): Shared, Path(selection): Path<u64>, body: Bytes) -> Responded {
    let options: CopyOptions = server::parsed(&body)?;
    if options.rate.is_some_and(|rate| !(1..=MAX_RATE).contains(&rate)) {
        let error = format!("the rate must be 1 to {MAX_RATE} messages in a second");
        return Err(FailedRequest::new(StatusCode::BAD_REQUEST, &error));
    }
    let (snapshot, messages) = screen.selected(selection)?;
    // The errors of the calls are not `Send`.
    let runtime = Handle::current();
    let planning = spawn_blocking(move || {
        let plan = runtime.block_on(screen.plan(&snapshot, &messages, options));
        let plan = plan.map_err(|error| FailedRequest::new(StatusCode::BAD_GATEWAY, &error))?;
        screen.note_plan(selection, options);
        Ok(server::json(&plan))
    });
    planning.await.map_err(|error| FailedRequest::new(StatusCode::INTERNAL_SERVER_ERROR, &error))?
}

async fn redrive(State(screen): Shared, Path(selection): Path<u64>) -> Responded {
    let (snapshot, messages) = screen.selected(selection)?;
    let planned = screen.state.lock().selection.as_ref().and_then(|of| of.planned);
    let options = planned.ok_or_else(outdated)?;
    let runtime = Handle::current();
    let job = screen.job.clone();
    job.start("redrive", move |progress, stop| {
        let redriving = screen.redrive(&snapshot, &messages, options, &progress, &stop);
        let redriven = runtime.block_on(redriving);
        screen.forget();
        redriven
    })
}

async fn discard(State(screen): Shared, Path(selection): Path<u64>) -> Responded {
    let (snapshot, messages) = screen.selected(selection)?;
    let mut letters = messages.iter().map(|at| &snapshot.letters[*at]);
    if letters.any(|letter| letter.record.attributes.is_none()) {
        let why = "the attributes of a message cannot be read, so no file of it is complete; \
                   choose other messages";
        return Err(FailedRequest::new(StatusCode::CONFLICT, why));
    }
    let runtime = Handle::current();
    let job = screen.job.clone();
    job.start("discard", move |progress, stop| {
        let kept = screen
            .keep(&snapshot, &messages)
            .map_err(|error| format!("{error}; nothing was deleted"))?;
        let discarding = screen.discard(&snapshot, &messages, &kept, &progress, &stop);
        let discarded = runtime.block_on(discarding);
        screen.forget();
        discarded
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
