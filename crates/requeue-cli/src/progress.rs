//! The progress of a long command, for a terminal and a web page. The command writes to neither, so
//! a stuck terminal or a slow page delays no message.

use std::collections::VecDeque;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{LazyLock, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use requeue::printable;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::silence::Requests;
use crate::table::{span, thousands};
use crate::{output, terminal};

/// The requests to SQS of a command; its progress shows the time without a response.
pub(crate) static SQS_REQUESTS: LazyLock<Requests> = LazyLock::new(Requests::default);

/// A step of more than this time should show its reason to wait.
pub(crate) const NOTICEABLE: Duration = Duration::from_secs(1);

const DRAW: Duration = Duration::from_millis(100);
/// The interval between lines elsewhere, as in the log of a build.
const TELL: Duration = Duration::from_secs(10);
/// After this time without an end, a command that stops shows how to end it at once.
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
    /// Facts for a person after the end, such as messages that stay hidden.
    pub(crate) notes: Vec<String>,
}

/// Reports the state of a long command to its watchers. If it is dropped, its line disappears, and
/// the channels of [`watch`](Self::watch) close.
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

    /// The state and its changes. A watcher that sleeps misses states, and delays nothing.
    pub(crate) fn watch(&self) -> watch::Receiver<ProgressState> {
        self.state.subscribe()
    }

    pub(crate) fn step(&self, step: impl Into<String>) {
        self.state.send_modify(|state| state.step = plain(step));
    }

    /// Counts these things from now on, up to `total`. Other things begin at 0.
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
        let thread = thread.spawn(move || show(delay, &state, &ended));
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

/// Draws the line again and again on a terminal, and elsewhere writes it now and then.
fn show(delay: Duration, state: &watch::Receiver<ProgressState>, ended: &mpsc::Receiver<()>) {
    let (mut estimator, mut stopping) = (Estimator::begin(), None);
    let is_drawn = terminal::can_rewrite();
    let (first, interval) = if is_drawn { (delay, DRAW) } else { (TELL, TELL) };
    let goes_on = |time| ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
    if !goes_on(first) || is_drawn && !terminal::take() {
        return;
    }
    loop {
        let state = state.borrow().clone();
        let pace = estimator.pace(&state);
        if !is_drawn {
            output::note(state.text(None, &pace));
        } else if terminal::draw(&state.text(Some(terminal::columns()), &pace)) {
            hint(&mut stopping, pace.elapsed);
        } else {
            return;
        }
        if !goes_on(interval) {
            break;
        }
    }
    if is_drawn {
        terminal::remove();
    }
}

/// Shows once how to end a command that takes long to stop, `since` then.
fn hint(since: &mut Option<Duration>, now: Duration) {
    let Some(left_behind) = STOPPING.get() else { return };
    if now.saturating_sub(*since.get_or_insert(now)) >= HINT {
        *since = Some(Duration::MAX);
        output::note(format!(
            "note: the command waits for its last requests; a second Ctrl-C ends it at once, and \
             then {left_behind}"
        ));
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
            self.growth.counts.clear();
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

/// A signal asked the process to end. The text is the effect of a second one.
static STOPPING: OnceLock<String> = OnceLock::new();

/// From now on the line shows that the command is about to end.
pub(crate) fn stopping(left_behind: String) {
    STOPPING.get_or_init(|| left_behind);
}

struct Pace {
    elapsed: Duration,
    per_second: f64,
    left: Duration,
    /// The time since the step or the counts changed.
    still: Duration,
    /// The time without a response of SQS.
    silent: Option<Duration>,
    is_stopping: bool,
}

/// Without a change for this long, the rate and the time are no longer known.
const STILL: Duration = Duration::from_secs(5);
/// An estimate from less time is a guess.
const ESTIMATED: Duration = Duration::from_secs(2);
/// The widths of the bar, of which the first that fits is drawn.
const BARS: [usize; 3] = [24, 12, 6];

impl ProgressState {
    /// With a bar, if there is one that fits into the columns. `None` is no terminal.
    fn text(&self, columns: Option<usize>, pace: &Pace) -> String {
        let stopping = if pace.is_stopping { "stopping" } else { "" };
        let (step, counts) = (joined(&[&self.step, stopping]), self.counts());
        let all = joined(&[&counts, &self.rate(pace), &self.time(pace)]);
        let fits = |text: &String| Some(text.chars().count()) <= columns;
        let with_bar = |width| Some(format!("{step}  {}  {all}", self.bar(width)?));
        let drawn = BARS.into_iter().filter_map(with_bar).find(fits);
        let colon = if counts.is_empty() { "," } else { ":" };
        let line = |between| format!("{step}{colon}{between}{all}");
        drawn.unwrap_or_else(|| match line(" ") {
            _ if all.is_empty() => step.clone(),
            whole if columns.is_some() && !fits(&whole) => line("\n  "),
            whole => whole,
        })
    }

    /// `4,000 of 12,000 messages, 3 failed`.
    fn counts(&self) -> String {
        let Self { unit, done, total, failed, detail, .. } = self;
        if unit.is_empty() {
            return String::new();
        }
        let total = total.map(|total| format!(" of {}", thousands(total.max(*done))));
        let failed =
            if *failed > 0 { format!("{} failed", thousands(*failed)) } else { String::new() };
        let counted = format!("{}{} {unit}", thousands(*done), total.unwrap_or_default());
        joined(&[&counted, detail, &failed])
    }

    /// `410/s`, unless it is a guess, or the counted things are not the result.
    fn rate(&self, pace: &Pace) -> String {
        // Seconds pass at one in a second.
        let has_rate = self.is_counting() && self.unit != "s" && self.detail.is_empty();
        let is_moving = pace.silent.is_none() && pace.still < STILL;
        let is_known = has_rate && is_moving && pace.elapsed >= ESTIMATED && pace.per_second >= 0.1;
        if is_known { format!("{}/s", per_second(pace.per_second)) } else { String::new() }
    }

    /// `20 s left`, or the time since the beginning if the end is not known.
    fn time(&self, pace: &Pace) -> String {
        let seconds = |time: Duration| span(Duration::from_secs(time.as_secs()));
        match self.total {
            _ if let Some(silent) = pace.silent => {
                format!("no response from SQS for {}", seconds(silent))
            }
            _ if pace.elapsed < ESTIMATED => String::new(),
            // Its messages are hidden.
            _ if self.is_counting() && pace.still >= STILL => {
                format!("no change for {}", seconds(pace.still))
            }
            Some(total) if self.is_counting() && total > self.done && !pace.left.is_zero() => {
                format!("{} left", seconds(pace.left.max(Duration::from_secs(1))))
            }
            _ => seconds(pace.elapsed),
        }
    }

    fn is_counting(&self) -> bool {
        !self.unit.is_empty() && self.done > 0
    }

    /// `━━━━────────`, if the total is known.
    fn bar(&self, width: usize) -> Option<String> {
        let total = self.total.filter(|total| *total > 0 && !self.unit.is_empty())?;
        let part = u128::from(self.done.min(total)) * width as u128 / u128::from(total);
        let filled = usize::try_from(part).unwrap_or(width);
        Some("━".repeat(filled) + &"─".repeat(width - filled))
    }
}

fn per_second(per_second: f64) -> String {
    if per_second < 10.0 {
        return format!("{per_second:.1}");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
    thousands(per_second.round() as u64)
}

fn joined(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_longest_bar_that_fits() {
        let state = ProgressState {
            step: "copying to orders".to_owned(),
            unit: "messages",
            done: 4_000,
            total: Some(12_000),
            failed: 3,
            detail: String::new(),
            notes: Vec::new(),
        };
        let pace = Pace {
            elapsed: Duration::from_secs(9),
            per_second: 410.4,
            left: Duration::from_secs(20),
            still: Duration::ZERO,
            silent: None,
            is_stopping: false,
        };
        let plain = "copying to orders: 4,000 of 12,000 messages, 3 failed, 410/s, 20 s left";
        for (columns, text) in [
            (
                Some(100),
                "copying to orders  ━━━━━━━━────────────────  4,000 of 12,000 messages, 3 failed, \
                 410/s, 20 s left",
            ),
            (
                Some(90),
                "copying to orders  ━━━━────────  4,000 of 12,000 messages, 3 failed, 410/s, 20 s left",
            ),
            (
                Some(79),
                "copying to orders  ━━────  4,000 of 12,000 messages, 3 failed, 410/s, 20 s left",
            ),
            (Some(78), plain),
            (Some(70), &plain.replace(": ", ":\n  ")),
            (None, plain),
        ] {
            assert_eq!(state.text(columns, &pace), text, "{columns:?}");
        }
        let stuck = Pace { still: Duration::from_secs(94), ..pace };
        let silent = Pace { silent: Some(Duration::from_secs(8)), ..stuck };
        for (pace, end) in [
            (&stuck, ": 4,000 of 12,000 messages, 3 failed, no change for 94 s"),
            (&silent, ": 4,000 of 12,000 messages, 3 failed, no response from SQS for 8 s"),
            (
                &Pace { is_stopping: true, ..silent },
                ", stopping: 4,000 of 12,000 messages, 3 failed, no response from SQS for 8 s",
            ),
        ] {
            assert_eq!(state.text(None, pace), format!("copying to orders{end}"));
        }
        let looking = ProgressState { detail: "80 copied".to_owned(), failed: 0, ..state };
        assert_eq!(
            looking.text(Some(90), &pace),
            "copying to orders  ━━━━────────  4,000 of 12,000 messages, 80 copied, 20 s left"
        );
    }

    #[test]
    fn a_line_estimates_only_what_it_can() {
        let of = |unit, done, total, secs| {
            let still = if secs > 9 { Duration::from_secs(5) } else { Duration::ZERO };
            let state = ProgressState {
                step: "asking".to_owned(),
                unit,
                done,
                total,
                ..Default::default()
            };
            let elapsed = Duration::from_secs(secs);
            let pace = Pace {
                elapsed,
                per_second: 2.0,
                left: Duration::from_secs(7),
                still,
                silent: None,
                is_stopping: false,
            };
            state.text(None, &pace)
        };
        for (said, text) in [
            (of("", 0, None, 1), "asking"),
            (of("", 0, None, 3), "asking, 3 s"),
            (of("calls", 0, None, 1), "asking: 0 calls"),
            (of("calls", 2, None, 3), "asking: 2 calls, 2.0/s, 3 s"),
            (of("calls", 0, Some(9), 3), "asking: 0 of 9 calls, 3 s"),
            (of("calls", 2, Some(9), 1), "asking: 2 of 9 calls"),
            (of("calls", 2, Some(9), 3), "asking: 2 of 9 calls, 2.0/s, 7 s left"),
            (of("calls", 10, Some(9), 3), "asking: 10 of 10 calls, 2.0/s, 3 s"),
            (of("calls", 2, Some(9), 10), "asking: 2 of 9 calls, no change for 5 s"),
            (of("calls", 0, None, 10), "asking: 0 calls, 10 s"),
        ] {
            assert_eq!(said, text);
        }
    }
}
