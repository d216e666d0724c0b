//! The progress of a long command, for two watchers: the person at the terminal, and a web page that
//! follows the same command. The command itself writes to neither, so a stuck terminal or a slow
//! page holds up no message.

use std::collections::VecDeque;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{LazyLock, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use requeue::printable;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

mod line;

use line::Pace;

use crate::output;
use crate::silence::Requests;
use crate::terminal;

/// The requests to SQS of a command, whose silence its line of progress tells.
pub(crate) static SQS_REQUESTS: LazyLock<Requests> = LazyLock::new(Requests::default);

/// A step of more than this time should say what it waits for.
pub(crate) const NOTICEABLE: Duration = Duration::from_secs(1);

const DRAW: Duration = Duration::from_millis(100);
/// The interval between lines elsewhere, as in the log of a build.
const TELL: Duration = Duration::from_secs(10);
/// After this time without an end, a command that stops says how to end it at once.
const HINT: Duration = Duration::from_secs(5);
/// The pace is that of the last seconds.
const WINDOW: Duration = Duration::from_secs(15);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProgressState {
    /// The current step, as in `copying to orders`.
    pub(crate) step: String,
    /// The things that the step counts, as in `messages`; empty if it counts none.
    pub(crate) unit: &'static str,
    pub(crate) done: u64,
    /// `None` if the number is not known. SQS's counts are approximate, so `done` may exceed it.
    pub(crate) total: Option<u64>,
    pub(crate) failed: u64,
    /// Another count, as in `628 copied`, if the things that are counted are not the result.
    pub(crate) detail: String,
    /// What a person has to know after the end, as of messages that stay hidden.
    pub(crate) notes: Vec<String>,
}

/// Tells the watchers of a long command where it is. If it is dropped, its line disappears, and the
/// channels of [`watch`](Self::watch) close.
pub(crate) struct CommandProgress {
    state: watch::Sender<ProgressState>,
    _display: Option<Display>,
    tells_notes: bool,
}

impl CommandProgress {
    /// A line on the standard error: at once on a terminal, elsewhere every ten seconds.
    pub(crate) fn shown(step: impl Into<String>) -> Self {
        Self::shown_after(Duration::ZERO, step)
    }

    /// For a step that is usually too short for a line.
    pub(crate) fn shown_after(delay: Duration, step: impl Into<String>) -> Self {
        let silent = Self::silent(step);
        Self { _display: Display::start(delay, silent.watch()), tells_notes: true, ..silent }
    }

    /// For watchers of the channel alone, who see the notes too.
    pub(crate) fn silent(step: impl Into<String>) -> Self {
        let state = ProgressState { step: plain(step), ..ProgressState::default() };
        Self { state: watch::Sender::new(state), _display: None, tells_notes: false }
    }

    /// Adds a line to a silent progress. The notes stay with the watchers.
    pub(crate) fn with_line(self) -> Self {
        Self { _display: Display::start(NOTICEABLE, self.watch()), ..self }
    }

    /// Whether a note appears on the terminal at once.
    pub(crate) fn tells_notes(&self) -> bool {
        self.tells_notes
    }

    /// The state and its changes. A watcher that sleeps misses states, and holds up nothing.
    pub(crate) fn watch(&self) -> watch::Receiver<ProgressState> {
        self.state.subscribe()
    }

    pub(crate) fn step(&self, step: impl Into<String>) {
        self.state.send_modify(|state| state.step = plain(step));
    }

    /// Counts these things from now on, of which there are so many. Other things begin at 0.
    pub(crate) fn count(&self, unit: &'static str, total: Option<u64>) {
        self.count_from(unit, total, 0);
    }

    /// The same, of which `before` were done before this command. Its pace counts only the others.
    pub(crate) fn count_from(&self, unit: &'static str, total: Option<u64>, before: u64) {
        self.state.send_modify(|state| {
            if state.unit != unit {
                (state.unit, state.done, state.failed) = (unit, before, 0);
            }
            state.total = total;
        });
    }

    pub(crate) fn done(&self, done: impl TryInto<u64>) {
        let done = done.try_into().unwrap_or(u64::MAX);
        self.state.send_modify(|state| state.done = done);
    }

    /// Notes a text for a person, also for watchers after the end.
    pub(crate) fn note(&self, text: String) {
        if self.tells_notes {
            output::note(format_args!("note: {text}"));
        }
        self.state.send_modify(|state| state.notes.push(plain(text)));
    }

    pub(crate) fn detail(&self, detail: String) {
        self.state.send_modify(|state| state.detail = detail);
    }

    pub(crate) fn failed(&self, failed: u64) {
        self.state.send_modify(|state| state.failed = failed);
    }
}

/// A step may name a queue, and no name controls the terminal.
fn plain(step: impl Into<String>) -> String {
    printable::line(&step.into()).into_owned()
}

struct Display {
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Display {
    /// `None` if the machine has no thread left: a command without a line is better than none.
    fn start(delay: Duration, state: watch::Receiver<ProgressState>) -> Option<Self> {
        let (end, ended) = mpsc::channel();
        let thread = thread::Builder::new().name("progress".to_owned());
        let thread = thread.spawn(move || {
            let show = if terminal::can_rewrite() { draw } else { tell };
            show(delay, &state, &ended);
        });
        Some(Self { end: Some(end), thread: Some(thread.ok()?) })
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn draw(delay: Duration, state: &watch::Receiver<ProgressState>, ended: &mpsc::Receiver<()>) {
    let mut estimator = Estimator::begin();
    if ended.recv_timeout(delay) != Err(RecvTimeoutError::Timeout) || !terminal::take() {
        return;
    }
    let mut hint = StopHint::default();
    loop {
        let state = state.borrow().clone();
        let pace = estimator.pace(&state);
        if !terminal::draw(&state.text(Some(terminal::columns()), &pace)) {
            return;
        }
        hint.look(pace.elapsed);
        if ended.recv_timeout(DRAW) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    terminal::remove();
}

fn tell(_: Duration, state: &watch::Receiver<ProgressState>, ended: &mpsc::Receiver<()>) {
    let mut estimator = Estimator::begin();
    while ended.recv_timeout(TELL) == Err(RecvTimeoutError::Timeout) {
        let state = state.borrow().clone();
        let pace = estimator.pace(&state);
        output::note(state.text(None, &pace));
    }
}

/// Tells once how to end a command that takes long to stop.
#[derive(Default)]
struct StopHint {
    since: Option<Duration>,
    is_told: bool,
}

impl StopHint {
    fn look(&mut self, now: Duration) {
        let Some(left_behind) = STOPPING.get().filter(|_| !self.is_told) else { return };
        if now.saturating_sub(*self.since.get_or_insert(now)) >= HINT {
            self.is_told = true;
            output::note(format!(
                "note: the command waits for its last requests; a second Ctrl-C ends it at once, \
                 and then {left_behind}"
            ));
        }
    }
}

struct Estimator {
    began: Instant,
    seen: ProgressState,
    changed: Instant,
    /// From the last moment without a count on.
    growth: Growth,
}

impl Estimator {
    fn begin() -> Self {
        let (began, seen) = (Instant::now(), ProgressState::default());
        Self { began, seen, changed: began, growth: Growth::within(WINDOW) }
    }

    fn pace(&mut self, state: &ProgressState) -> Pace {
        let now = Instant::now();
        if state.done == 0 || state.unit != self.seen.unit {
            // The work of this count, or that of other things, begins here.
            self.growth.restart();
        }
        if *state != self.seen {
            (self.seen, self.changed) = (state.clone(), now);
        }
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let rate = |(growth, time): (u64, Duration)| growth as f64 / time.as_secs_f64();
        // 0 if too little time has passed.
        let per_second = self.growth.note(state.done).map_or(0.0, rate);
        let rest = state.total.unwrap_or_default().saturating_sub(state.done);
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let left = Duration::try_from_secs_f64(rest as f64 / per_second).unwrap_or_default();
        let (elapsed, still) = (now.duration_since(self.began), now.duration_since(self.changed));
        let silent = SQS_REQUESTS.silence().map(|silence| silence.since);
        let is_stopping = STOPPING.get().is_some();
        Pace { elapsed, per_second, left, still, silent, is_stopping }
    }
}

/// The growth in less time is a guess.
const LEAST: Duration = Duration::from_secs(1);

pub(crate) struct Growth {
    window: Duration,
    counts: VecDeque<(Instant, u64)>,
}

impl Growth {
    pub(crate) const fn within(window: Duration) -> Self {
        Self { window, counts: VecDeque::new() }
    }

    /// Forgets the counts so far.
    pub(crate) fn restart(&mut self) {
        self.counts.clear();
    }

    /// Notes the count now, and returns its growth and the time for it, once that is long enough.
    pub(crate) fn note(&mut self, count: u64) -> Option<(u64, Duration)> {
        let now = Instant::now();
        self.counts.push_back((now, count));
        while self.counts.len() > 2 && now.duration_since(self.counts[1].0) >= self.window {
            self.counts.pop_front();
        }
        let (began, first) = *self.counts.front()?;
        let time = now.duration_since(began);
        (time >= LEAST).then(|| (count.saturating_sub(first), time))
    }
}

/// A signal asked the process to end: what a second one would leave.
static STOPPING: OnceLock<String> = OnceLock::new();

/// From now on the line says that the command is about to end.
pub(crate) fn stopping(left_behind: String) {
    STOPPING.get_or_init(|| left_behind);
}
