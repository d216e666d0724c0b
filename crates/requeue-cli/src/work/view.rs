//! The view of a worker at work: lines on a terminal, the log, and the page.

use std::iter;
use std::time::Duration;

use axum::Router;
use futures_util::FutureExt as _;
use requeue::{Mode, Progress, ScopePause, init_logging_to, printable};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, interval, timeout};

use super::Started;
use super::line::{Depth, Ending, Figures, InHand, LAST, WINDOW, on_page, rate, seconds};
use super::trouble::{self, TroubleLog};
use crate::observe::{Causes, Event, Events, Observer, Reader, ReceivingTrouble, message_line};
use crate::output::{self, LogLines};
use crate::progress::{CommandProgress, Growth, NOTICEABLE};
use crate::stop::Stop;
use crate::table::counted;
use crate::terminal;
use crate::ui::{LiveCounts, LivePause, LiveState, live_routes};

const LOOK: Duration = Duration::from_millis(500);

pub(super) struct View {
    /// Whether lines on a terminal show more than the log.
    pub(super) has_screen: bool,
    /// `--verbose`: the events of which each message has a line.
    verbose: Option<Mutex<Reader>>,
    events: Option<Events>,
    page: Option<watch::Sender<LiveState>>,
    pub(super) observer: Observer,
    depth: Depth,
}

impl View {
    /// Installs the log too.
    pub(super) fn new(has_screen: bool, is_verbose: bool, has_page: bool) -> Self {
        let events = (is_verbose || has_page).then(Events::default);
        // The lines of the screen show the rest.
        let level = if has_screen { tracing::Level::WARN } else { tracing::Level::INFO };
        init_logging_to(level, move || LogLines(has_screen));
        let observer = Observer::new(events.clone(), !has_screen);
        let page = has_page.then(watch::Sender::default);
        let verbose = events.as_ref().filter(|_| is_verbose);
        let verbose = verbose.map(|events| Mutex::new(events.read_from(0)));
        Self { has_screen, verbose, events, page, observer, depth: Depth::default() }
    }

    pub(super) fn live(&self) -> Option<Router> {
        let (events, page) = (self.events.clone()?, self.page.as_ref()?);
        Some(live_routes(events, page.subscribe()))
    }

    /// Does a step before the first receive. A step of more than a second shows its reason to wait.
    pub(super) async fn waiting<T>(&self, step: &str, work: impl Future<Output = T>) -> T {
        let line = || CommandProgress::shown_after(NOTICEABLE, format!("waiting for {step}"));
        let _line = self.has_screen.then(line);
        let mut work = std::pin::pin!(work);
        if let Ok(ended) = timeout(NOTICEABLE, &mut work).await {
            return ended;
        }
        if !self.has_screen {
            tracing::info!("waiting for {step}");
        }
        work.await
    }

    pub(super) async fn show(&self, started: &Started, stop: &Stop) {
        let asking = async {
            if self.shows_depth() {
                let counts =
                    || (started.worker.progress().not_settled(), self.observer.calls().succeeded);
                self.depth.keep_asking(&started.sqs, &started.queue, counts).await;
            }
        };
        tokio::join!(self.show_messages(started.mode), self.show_state(started, stop), asking);
    }

    /// Whether the depth of the queue is shown while the worker runs. The log does not show it.
    fn shows_depth(&self) -> bool {
        self.has_screen || self.page.is_some()
    }

    /// The last state for the page. The depth of the queue would be an old one.
    pub(super) fn end_state(&self, progress: Progress, mode: Mode, notes: &[String]) {
        if let Some(page) = &self.page {
            page.send_modify(|state| {
                state.counts = Some(LiveCounts::of(&progress, mode));
                (state.waiting, state.rate, state.has_ended) = (None, None, true);
                let closing = closing(&progress, mode);
                state.troubles = iter::once(closing).chain(notes.iter().cloned()).collect();
            });
        }
    }

    /// The messages that the worker leaves in the queue, by the last count of SQS. The log has none.
    pub(super) async fn left(&self, started: &Started) -> Option<u64> {
        if !self.shows_depth() && self.observer.sqs().requests.silence().is_none() {
            let counts = || (0, self.observer.calls().succeeded);
            self.depth.ask(&started.sqs, &started.queue, LAST, counts).await;
        }
        self.depth.waiting(0, self.observer.calls().succeeded).filter(|left| *left > 0)
    }

    /// Messages whose handler succeeded are done, although their batch did not end in time.
    pub(super) fn last(&self, mut progress: Progress) -> Progress {
        let unsettled = self.observer.calls().succeeded.saturating_sub(progress.completed);
        let unsettled = unsettled.min(progress.not_settled());
        progress.completed += unsettled;
        progress.not_deleted += unsettled;
        progress
    }

    /// The last line, and notes below it. In the log, those about `doubts` are warnings.
    pub(super) fn end(&self, progress: Progress, mode: Mode, notes: &[String], doubts: &[String]) {
        if self.has_screen {
            iter::once(&closing(&progress, mode)).chain(notes).for_each(output::note);
            return;
        }
        for note in notes {
            if doubts.contains(note) {
                tracing::warn!("{note}");
            } else {
                tracing::info!("{note}");
            }
        }
    }

    /// `--verbose`: writes a line for each message. It has no end, and can continue later.
    async fn show_messages(&self, mode: Mode) {
        let Some(events) = &self.verbose else { return };
        let mut events = events.lock().await;
        loop {
            let batch = events.next().await;
            if batch.missed > 0 {
                tracing::warn!(events = batch.missed, "too many messages to show each");
            }
            batch.events.iter().for_each(|event| self.show_message(event, mode));
        }
    }

    /// The log has a line for each other message already.
    fn show_message(&self, event: &Event, mode: Mode) {
        if self.has_screen {
            if let Some(line) = message_line(event, mode) {
                // A lost terminal does not end the worker.
                let _ = output::words(&line);
            }
        } else if event.is_done() {
            tracing::info!(
                messageId = event.ids.own,
                originalMessageId = event.ids.original,
                attempt = event.attempt,
                elapsedMs = event.elapsed_ms,
                "done"
            );
        }
    }

    pub(super) fn show_last_messages(&self, mode: Mode) {
        let _ = self.show_messages(mode).now_or_never();
    }

    async fn show_state(&self, started: &Started, stop: &Stop) {
        let mut growth = Growth::within(WINDOW);
        let mut log = TroubleLog::default();
        let mut ending = Ending::of(started.shutdown_timeout);
        let mut ticks = interval(LOOK);
        let is_drawn = self.has_screen && terminal::take();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                // The line shows the signal at once.
                () = stop.told(), if ending.began.is_none() => {
                    ending.began = Some(Instant::now());
                    self.observer.ends();
                }
            }
            let rate = rate(&mut growth, self.observer.calls().ended);
            let pauses = started.worker.pauses();
            let figures = self.figures(started, rate, &pauses);
            let closed = self.observer.downstream().look(&pauses);
            if is_drawn {
                if let Some(time) = closed {
                    output::timed(&format!("circuit closed after {}", seconds(time)));
                }
                self.draw(started, &ending, &figures, &pauses);
            } else {
                ending.log(self.in_hand(started));
                let trouble = self.observer.downstream().trouble();
                log.note_target(&started.target, trouble.as_ref(), self.observer.next_try(&pauses));
                let open = self.observer.downstream().open;
                log.circuit.note(open, self.observer.next_try(&pauses));
                log.note_sqs(self.observer.sqs());
            }
            if let Some(page) = &self.page {
                let ending = ending.text(self.in_hand(started));
                let ending = ending.map(|text| format!("ending: {text}")).into_iter();
                let troubles = ending.chain(self.troubles(started, &pauses)).collect();
                page.send_replace(on_page(started, figures, troubles, stop));
            }
        }
    }

    fn draw(&self, started: &Started, ending: &Ending, figures: &Figures, pauses: &[ScopePause]) {
        let mut lines = figures.lines(terminal::columns());
        let ending = ending.text(self.in_hand(started));
        lines.extend(ending.map(|text| format!("ending: {text}; a second Ctrl-C ends it at once")));
        lines.extend(self.causes(started.mode));
        lines.extend(self.troubles(started, pauses));
        terminal::draw(&lines.join("\n"));
    }

    pub(super) fn causes(&self, mode: Mode) -> impl Iterator<Item = String> {
        let Causes { dead_lettered, retried, left } = self.observer.causes();
        let dead_lettered_as = if mode == Mode::Report { "failed" } else { "dead-lettered" };
        let lines =
            [(dead_lettered_as, dead_lettered), ("retried", retried), ("left to SQS", left)];
        lines.into_iter().filter_map(|(what, reasons)| trouble::of_causes(what, &reasons))
    }

    fn in_hand(&self, started: &Started) -> InHand {
        let running = self.observer.calls().running;
        let unsettled = started.worker.progress().not_settled().saturating_sub(running);
        InHand { running, unsettled }
    }

    fn figures(&self, started: &Started, rate: Option<u64>, pauses: &[ScopePause]) -> Figures {
        let mut progress = started.worker.progress();
        // The worker deletes a message, and counts it only when its batch ends.
        progress.completed = progress.completed.max(self.observer.calls().succeeded);
        let in_hand = progress.not_settled();
        let (downstream, sqs) = (self.observer.downstream(), self.observer.sqs().state());
        Figures {
            queue: started.queue.name().to_owned(),
            waiting: self.depth.waiting(in_hand, self.observer.calls().succeeded),
            hidden: self.depth.hidden(),
            rate,
            progress,
            copies_in_doubt: sqs.copies_in_doubt,
            lost_receives: sqs.lost_receives,
            mode: started.mode,
            running: self.observer.calls().running,
            concurrency: started.concurrency,
            next_due: self.observer.next_due(),
            pauses: LivePause::all(pauses, &downstream),
        }
    }

    fn troubles(&self, started: &Started, pauses: &[ScopePause]) -> Vec<String> {
        let next_try = self.observer.next_try(pauses);
        let is_trying = self.observer.calls().running > 0;
        let target = self.observer.downstream().trouble();
        let target =
            target.map(|lost| trouble::of_target(&started.target, &lost, next_try, is_trying));
        let sqs = self.observer.sqs();
        let silence = sqs.requests.silence();
        let receiving = if let Some(failing) = sqs.trouble() {
            let silent = silence.map(|silence| silence.since);
            Some(trouble::of_receiving(started.queue.name(), &failing, silent))
        } else {
            silence.map(|silence| trouble::of_silence(silence, sqs.state().endpoint.as_deref()))
        };
        let unsettled = sqs.unsettled();
        let unsettled = unsettled.iter().map(trouble::of_unsettled);
        let all = target.into_iter().chain(receiving).chain(unsettled);
        all.map(|line| printable::line(&line).into_owned()).collect()
    }

    pub(super) fn last_troubles(&self, queue: &str) -> Vec<String> {
        let sqs = self.observer.sqs();
        let receiving = sqs.trouble().map(|failing| {
            let ended = ReceivingTrouble { next_try: None, ..failing };
            trouble::of_receiving(queue, &ended, None)
        });
        let unsettled = sqs.unsettled();
        receiving.into_iter().chain(unsettled.iter().map(trouble::of_unsettled)).collect()
    }
}

/// `4 receives: 2 done, 1 to retry, 0 dead-lettered, 1 deferred or released`, or in the mode `report`
/// `4 receives: 2 done, 1 left to SQS, 1 dead`. A message that was received twice counts twice.
fn closing(progress: &Progress, mode: Mode) -> String {
    let Progress { received, completed, requeued, dead_lettered, waiting, not_deleted, .. } =
        *progress;
    let not_deleted = if not_deleted == 0 {
        String::new()
    } else {
        format!("; {not_deleted} not confirmed as deleted")
    };
    let not_settled = match progress.not_settled() {
        0 => String::new(),
        count => format!(", {count} not settled, which SQS delivers again"),
    };
    let others = match mode {
        Mode::Report => format!("{waiting} left to SQS, {dead_lettered} dead"),
        _ => {
            format!(
                "{requeued} to retry, {dead_lettered} dead-lettered, {waiting} deferred or released"
            )
        }
    };
    let received = counted(received, "receive");
    format!("{received}: {completed} done, {others}{not_settled}{not_deleted}")
}
