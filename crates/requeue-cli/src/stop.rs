//! The signals that ask the process to end. The first lets it clean up; the second ends it at
//! once, unless it follows right away: GNU `timeout` signals its child, and then its group.

use std::borrow::Cow;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{fs, io, thread};

use futures_util::future::select_all;
use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use requeue::Clock;

use crate::table::clock_time;
use crate::{output, progress, terminal};

/// A SIGTERM that follows another one within this time is the same request.
const DOUBLED: Duration = Duration::from_secs(1);
/// The same for any other two signals, as a supervisor and a closed terminal send them. A person
/// does not press Ctrl-C twice as fast.
const DOUBLED_BY_HAND: Duration = Duration::from_millis(100);

/// The effect of a signal before the first change.
const UNCHANGED: &str = "nothing was changed";
/// The effect of a second signal on messages in flight. `{until}` stands for the time.
pub(crate) const HOLDS_MESSAGES: &str = "messages in flight stay hidden {until}";

#[derive(Clone)]
pub(crate) struct Stop {
    number: watch::Receiver<Option<u8>>,
    end: Arc<Mutex<End>>,
}

struct End {
    /// Whether the process ends at the first signal, since there is nothing to clean up.
    is_at_first: bool,
    text: Cow<'static, str>,
    visibility: Option<Duration>,
}

impl Default for End {
    fn default() -> Self {
        Self { is_at_first: false, text: HOLDS_MESSAGES.into(), visibility: None }
    }
}

impl End {
    fn leaves(&self) -> String {
        let until = match self.visibility {
            Some(time) => {
                format!("until {} UTC at the latest", clock_time(Clock::system().now() + time))
            }
            None => "until their visibility timeout ends".to_owned(),
        };
        self.text.replace("{until}", &until)
    }
}

impl Stop {
    pub(crate) fn by_hand() -> (watch::Sender<Option<u8>>, Self) {
        let (told, number) = watch::channel(None);
        (told, Self { number, end: Arc::default() })
    }

    /// The first signal ends the process, until [`defer_end`](Self::defer_end).
    pub(crate) fn end_at_once() -> io::Result<Self> {
        Self::end_at_once_after(|| {})
    }

    /// As [`end_at_once`](Self::end_at_once), for a command that has changed nothing until then.
    pub(crate) fn end_unchanged() -> io::Result<Self> {
        let stop = Self::end_at_once()?;
        stop.leaves(UNCHANGED);
        Ok(stop)
    }

    pub(crate) fn end_at_once_after(
        before_end: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Self::listen_and(Duration::MAX, before_end)?;
        stop.end.lock().is_at_first = true;
        Ok(stop)
    }

    /// From now on the command cleans up after the first signal.
    pub(crate) fn defer_end(&self) {
        let mut end = self.end.lock();
        (end.is_at_first, end.text) = (false, HOLDS_MESSAGES.into());
    }

    /// The effect of a second signal from now on; `{until}` stands for the time.
    pub(crate) fn leaves(&self, text: impl Into<Cow<'static, str>>) {
        self.end.lock().text = text.into();
    }

    pub(crate) fn left_behind(&self) -> String {
        self.end.lock().leaves()
    }

    pub(crate) fn hides_for(&self, visibility: Duration) {
        self.end.lock().visibility = Some(visibility);
    }

    /// From now on, a signal no longer ends the process by itself.
    /// The second signal, or the end of `limit` after the first, runs `before_end` and ends all.
    pub(crate) fn listen_and(
        limit: Duration,
        before_end: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        // A thread of its own, because all others may be blocked in writes without a reader.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let mut signals = ending()
            .into_iter()
            .map(|kind| Ok((kind, signal(kind)?)))
            .collect::<io::Result<Vec<_>>>()?;
        drop(entered);
        let (first, number) = watch::channel(None);
        let stop = Self { number, end: Arc::default() };
        let end = Arc::clone(&stop.end);
        thread::spawn(move || {
            runtime.block_on(async {
                let number = next(&mut signals).await;
                first.send_replace(Some(number));
                progress::stopping(end.lock().leaves());
                let limit = if end.lock().is_at_first { Duration::ZERO } else { limit };
                let number = timeout(limit, second(&mut signals, number)).await.unwrap_or(number);
                before_end();
                let left = {
                    let end = end.lock();
                    (!end.is_at_first || end.text == UNCHANGED).then(|| end.leaves())
                };
                leave(left);
                std::process::exit(128 + i32::from(number));
            });
        });
        Ok(stop)
    }

    pub(crate) fn is_told(&self) -> bool {
        self.number.borrow().is_some()
    }

    pub(crate) async fn told(&self) {
        if self.number.clone().wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The exit status of a shell after a signal; else whether all is done.
    pub(crate) fn status(&self, is_done: bool) -> ExitCode {
        self.exit_code(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The exit status of a shell, such as 130 after Ctrl-C; `otherwise` without a signal.
    pub(crate) fn exit_code(&self, otherwise: ExitCode) -> ExitCode {
        self.number.borrow().map_or(otherwise, |number| ExitCode::from(128 + number))
    }
}

/// Before the end of the process: removes the lines, or adds the effect of that end.
fn leave(left_behind: Option<String>) {
    let (writing, written) = mpsc::channel::<()>();
    thread::spawn(move || {
        let lines = terminal::remove();
        if let Some(left_behind) = left_behind {
            // The line of a request says nothing more.
            let lines = lines.iter().filter(|_| left_behind != UNCHANGED);
            lines.for_each(output::note);
            output::note(format!("ended at once: {left_behind}"));
        }
        drop(writing);
    });
    let _ = written.recv_timeout(Duration::from_millis(100));
}

async fn next(signals: &mut [(SignalKind, Signal)]) -> u8 {
    let arrivals =
        signals.iter_mut().map(|(kind, signal)| Box::pin(async { (*kind, signal.recv().await) }));
    let ((kind, _), ..) = select_all(arrivals).await;
    u8::try_from(kind.as_raw_value()).unwrap_or(2)
}

/// The number of the signal after the first one that ends the process at once.
async fn second(signals: &mut [(SignalKind, Signal)], first: u8) -> u8 {
    let told = Instant::now();
    let terminate = SignalKind::terminate().as_raw_value();
    loop {
        let number = next(signals).await;
        let is_repeated = number == first && i32::from(number) == terminate;
        let doubled = if is_repeated { DOUBLED } else { DOUBLED_BY_HAND };
        if told.elapsed() >= doubled {
            return number;
        }
    }
}

/// Also the SIGHUP of a closed terminal, unless `nohup` makes the process ignore it.
fn ending() -> Vec<SignalKind> {
    let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate(), SignalKind::quit()];
    if !ignores(SignalKind::hangup()) {
        kinds.push(SignalKind::hangup());
    }
    kinds
}

/// Whether the process was started with this signal ignored. Only Linux has a file for that.
fn ignores(kind: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (kind.as_raw_value() - 1)) != 0)
}
