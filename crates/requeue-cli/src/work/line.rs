//! The figures of a worker, as a line on a terminal and as the state for the page, and its end.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use requeue::queue::{Description, QueueArn, Source};
use requeue::{DeadLetterMode, Deferral, Mode, Progress};
use tokio::time::{Instant, sleep, timeout};

use super::Started;
use crate::observe::{SqsState, brief, millis};
use crate::progress::Growth;
use crate::stop::Stop;
use crate::table::{counted, duration, messages, thousands};
use crate::ui::{LiveCounts, LivePause, LiveState, MAX_PAUSES};

/// The rate is that of the last seconds.
pub(super) const WINDOW: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Figures {
    pub(super) queue: String,
    /// The messages that wait in the queue; `None` if SQS did not return the number.
    pub(super) waiting: Option<u64>,
    /// Of those, the messages that SQS hides.
    pub(super) hidden: u64,
    /// Calls a second; `None` until there was time for a second one.
    pub(super) rate: Option<u64>,
    pub(super) progress: Progress,
    /// The copies that SQS may have stored without a confirmation.
    pub(super) copies_in_doubt: u64,
    /// The receives that SQS may have carried out without a response.
    pub(super) lost_receives: u64,
    pub(super) mode: Mode,
    pub(super) running: u64,
    pub(super) concurrency: u64,
    /// The time until the first message is due that this worker delayed.
    pub(super) next_due: Option<Duration>,
    pub(super) pauses: Vec<LivePause>,
}

impl Figures {
    /// Parts without room go on below.
    pub(super) fn lines(&self, columns: usize) -> Vec<String> {
        let mut parts = vec![self.queue()];
        parts.extend(self.rate.map(|rate| format!("{}/s", thousands(rate))));
        parts.push(self.counts());
        if self.pauses.is_empty() && self.running > 0 {
            let all = self.are_free().then(|| format!(" of {}", thousands(self.concurrency)));
            let running = thousands(self.running);
            parts.push(format!("{running}{} running", all.unwrap_or_default()));
        }
        parts.extend(self.awaited());
        let mut lines: Vec<String> = Vec::new();
        for part in parts {
            let joined = lines.last().map(|line| format!("{line} │ {part}"));
            match (joined.filter(|line| line.chars().count() <= columns), lines.last_mut()) {
                (Some(joined), Some(line)) => *line = joined,
                _ => lines.push(part),
            }
        }
        lines
    }

    /// Whether messages wait although handlers are free, until a receiver is done with its batch.
    fn are_free(&self) -> bool {
        self.running < self.concurrency && self.waiting > Some(0)
    }

    fn awaited(&self) -> Option<String> {
        if let Some((pause, reason)) = self.hold() {
            return Some(pause + &reason.map(|reason| format!(": {reason}")).unwrap_or_default());
        }
        // Between two batches no handler runs for a moment.
        let is_idle = self.running == 0 && self.rate.unwrap_or_default() == 0;
        let due = self.next_due.filter(|due| !due.is_zero() && is_idle)?;
        Some(format!("next due in {}", seconds(due)))
    }

    fn counts(&self) -> String {
        let Progress { completed, requeued, dead_lettered, waiting, not_deleted, .. } =
            self.progress;
        let others = match self.mode {
            Mode::Report => format!("{} failures left to SQS", thousands(waiting)),
            _ => format!("{} retried", thousands(requeued)),
        };
        let unconfirmed = [
            (not_deleted, "delete"),
            (self.copies_in_doubt, "copy"),
            (self.lost_receives, "receive"),
        ];
        let unconfirmed = unconfirmed.into_iter().filter(|(count, _)| *count > 0);
        let unconfirmed: Vec<_> = unconfirmed.map(|(count, what)| counted(count, what)).collect();
        let unconfirmed = match unconfirmed.join(", ") {
            none if none.is_empty() => none,
            some => format!(" ({some} unconfirmed)"),
        };
        let (done, dead) = (thousands(completed), thousands(dead_lettered));
        format!("{done} done {others} {dead} dead{unconfirmed}")
    }

    /// `circuit open, probe in 21 s`. After that a message probes, once there is one to receive:
    /// `circuit open, probing`, or `circuit open, next due in 12 s`.
    fn paused(&self, pause: &LivePause) -> String {
        let (what, then) = match pause.why {
            Deferral::Paused => ("paused", ""),
            _ => ("circuit open", ", probe in"),
        };
        match self.next_due {
            _ if !pause.rest.is_zero() => format!("{what}{then} {}", seconds(pause.rest)),
            _ if self.running > 0 => format!("{what}, probing"),
            Some(due) if !due.is_zero() => format!("{what}, next due in {}", seconds(due)),
            _ => format!("{what}, probing with the next message"),
        }
    }

    fn queue(&self) -> String {
        self.waiting.map_or_else(
            || self.queue.clone(),
            |waiting| {
                let hidden = self.hidden.min(waiting);
                // While messages are received and settled, the numbers of SQS are too old to compare.
                let is_idle = self.running == 0 && self.rate.unwrap_or_default() == 0;
                let hidden =
                    (hidden > 0 && is_idle).then(|| format!(" ({} hidden)", thousands(hidden)));
                format!(
                    "{} {} waiting{}",
                    self.queue,
                    thousands(waiting),
                    hidden.unwrap_or_default()
                )
            },
        )
    }

    /// The text about the pauses, and the reason of the only one.
    fn hold(&self) -> Option<(String, Option<String>)> {
        let count = |why| self.pauses.iter().filter(|pause| pause.why == why).count();
        let (open, paused) = (count(Deferral::CircuitOpen), count(Deferral::Paused));
        match (self.pauses.as_slice(), open, paused) {
            ([], ..) => None,
            ([pause], ..) => Some((self.paused(pause), pause.reason.as_deref().map(brief))),
            (_, 0, _) => Some((counted(paused, "pause"), None)),
            (_, _, 0) => Some((format!("{} open", counted(open, "circuit")), None)),
            _ => {
                let (open, paused) = (counted(open, "circuit"), counted(paused, "pause"));
                Some((format!("{open} open, {paused}"), None))
            }
        }
    }
}

pub(super) fn rate(growth: &mut Growth, ended: u64) -> Option<u64> {
    let (calls, time) = growth.note(ended)?;
    Some(calls.saturating_mul(1_000).div_ceil(millis(time)))
}

/// A time in whole seconds, never 0: `21 s`, `2 min 5 s`.
pub(super) fn seconds(time: Duration) -> String {
    duration(Duration::from_secs(millis(time).div_ceil(1_000).max(1)))
}

/// The next step for dead-lettered messages, if SQS has to move them.
fn dead_lettered(mode: &DeadLetterMode, figures: &Figures) -> Option<&'static str> {
    let text = match mode {
        DeadLetterMode::Redrive => {
            "SQS moves a message that was dead-lettered to the dead-letter queue after maxReceiveCount \
             receives. Until then it is in this queue."
        }
        DeadLetterMode::Annotate => {
            "Requeue sends a copy of a dead-lettered message, with the reason. SQS moves this \
             copy to the dead-letter queue after maxReceiveCount receives. Until then it is in this \
             queue."
        }
        _ => return None,
    };
    let is_any = figures.progress.dead_lettered > 0 && figures.mode == Mode::Requeue;
    is_any.then_some(text)
}

pub(super) fn on_page(
    started: &Started,
    figures: Figures,
    troubles: Vec<String>,
    stop: &Stop,
) -> LiveState {
    let dead_lettered = dead_lettered(&started.dead_letter, &figures);
    LiveState {
        source: "worker",
        queue: figures.queue,
        target: Some(started.target.clone()),
        waiting: figures.waiting,
        rate: figures.rate,
        counts: Some(LiveCounts::of(&figures.progress, figures.mode)),
        dead_lettered,
        pauses: Some(figures.pauses.into_iter().take(MAX_PAUSES).collect()),
        troubles,
        is_ending: stop.is_told(),
        ..LiveState::default()
    }
}

const INTERVAL: Duration = Duration::from_secs(5);
/// Without a response after this time, the last one is too old, and the worker asks again.
const PATIENCE: Duration = Duration::from_secs(5);
pub(super) const LAST: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Depth(Mutex<Option<Known>>);

#[derive(Clone, Copy)]
struct Known {
    /// The number of messages in the queue in any state.
    messages: u64,
    /// Of those, the messages that SQS hides and that this worker did not have in flight.
    hidden: u64,
    /// How many this worker had done by then.
    done: u64,
}

impl Depth {
    pub(super) async fn keep_asking(
        &self,
        source: &impl Source,
        queue: &QueueArn,
        counts: impl Fn() -> (u64, u64),
    ) {
        loop {
            self.ask(source, queue, PATIENCE, &counts).await;
            sleep(INTERVAL).await;
        }
    }

    /// Without the permission, or without a response in time, the depth is unknown. `counts` are
    /// the numbers of messages that this worker has in flight, and has done.
    pub(super) async fn ask(
        &self,
        source: &impl Source,
        queue: &QueueArn,
        patience: Duration,
        counts: impl Fn() -> (u64, u64),
    ) {
        let told = timeout(patience, source.describe(queue)).await;
        let (held, done) = counts();
        let known = |told: Description| {
            let hidden = told.in_flight.saturating_sub(held);
            Known { messages: told.messages, hidden, done }
        };
        *self.0.lock() = told.ok().and_then(Result::ok).map(known);
    }

    /// The messages that SQS hides until their visibility timeout ends, without those here.
    pub(super) fn hidden(&self) -> u64 {
        self.0.lock().map_or(0, |known| known.hidden)
    }

    /// The messages in the queue without those in flight here, or done here since then.
    pub(super) fn waiting(&self, in_hand: u64, done: u64) -> Option<u64> {
        let known = *self.0.lock();
        known.map(|known| known.messages.saturating_sub(in_hand + done.saturating_sub(known.done)))
    }
}

#[derive(Clone, Copy)]
pub(super) struct InHand {
    pub(super) running: u64,
    /// The others: their delete, copy or release is not confirmed yet.
    pub(super) unsettled: u64,
}

/// The time from the first signal to the end of the process.
pub(super) struct Ending {
    limit: Duration,
    pub(super) began: Option<Instant>,
    is_logged: bool,
}

impl Ending {
    pub(super) fn of(limit: Duration) -> Self {
        Self { limit, began: None, is_logged: false }
    }

    /// Logs the end once, where no terminal shows it.
    pub(super) fn log(&mut self, hand: InHand) {
        if let Some(text) = self.text(hand).filter(|_| !self.is_logged) {
            self.is_logged = true;
            tracing::info!("ending: {text}; a second signal ends it at once");
        }
    }

    /// `2 handlers still run, 3 messages to settle, 28 s left`
    pub(super) fn text(&self, hand: InHand) -> Option<String> {
        let rest = self.limit.saturating_sub(self.began?.elapsed());
        Some(format!("{hand}, {} left", seconds(rest)))
    }
}

impl fmt::Display for InHand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.running {
            0 => write!(f, "no handler runs")?,
            1 => write!(f, "1 handler still runs")?,
            running => write!(f, "{running} handlers still run")?,
        }
        match self.unsettled {
            0 => Ok(()),
            count => write!(f, ", {} to settle", messages(count)),
        }
    }
}

/// The notes about messages that may be handled several times.
pub(super) fn doubts(not_deleted: u64, cut_off: u64, sqs: &SqsState) -> Vec<String> {
    let (copies, receives) = (sqs.copies_in_doubt, sqs.lost_receives);
    let were = if cut_off == 1 { "was" } else { "were" };
    let notes = [
        (
            not_deleted,
            format!(
                "note: done or copied, but not confirmed as deleted: {}, which SQS may deliver \
                 again, or move to the dead-letter queue; so they may be handled, or dead-lettered, twice",
                messages(not_deleted)
            ),
        ),
        (
            copies,
            format!(
                "note: SQS did not confirm {}; those that it stored are handled too, so a message \
                 may be handled, and dead-lettered, several times",
                counted(copies, "copy")
            ),
        ),
        (
            cut_off,
            format!(
                "note: {} {were} cut off at the end and may have worked; SQS delivers the messages \
                 again",
                counted(cut_off, "call")
            ),
        ),
        (
            receives,
            format!(
                "note: {} without a response: if SQS carried them out, it counted them for their \
                 messages, which become dead letters after maxReceiveCount receives",
                counted(receives, "receive")
            ),
        ),
    ];
    notes.into_iter().filter(|(count, _)| *count > 0).map(|(_, note)| note).collect()
}

#[cfg(test)]
mod tests {
    use requeue::embedded::{EmbeddedSqs, Fault};
    use requeue::queue::SqsQueue;
    use requeue::{Clock, Scope};

    use super::*;

    fn open(secs: u64, reason: &str) -> LivePause {
        let (why, rest) = (Deferral::CircuitOpen, Duration::from_secs(secs));
        LivePause { scope: Scope::default(), why, rest, reason: Some(reason.to_owned()) }
    }

    fn figures() -> Figures {
        let mut progress = Progress::default();
        (progress.completed, progress.requeued, progress.dead_lettered) = (1_310, 96, 4);
        Figures {
            queue: "orders".to_owned(),
            waiting: Some(1_204),
            rate: Some(52),
            progress,
            copies_in_doubt: 0,
            lost_receives: 0,
            mode: Mode::Requeue,
            hidden: 0,
            running: 8,
            concurrency: 8,
            next_due: Some(Duration::from_secs(9)),
            pauses: vec![open(21, "status 503")],
        }
    }

    #[test]
    fn parts_without_room_go_on_below() {
        let whole = "orders 1,204 waiting │ 52/s │ 1,310 done 96 retried 4 dead │ circuit open, probe in 21 s: 503";
        for (columns, line) in [
            (120, whole.to_owned()),
            (93, whole.to_owned()),
            (
                92,
                "orders 1,204 waiting │ 52/s │ 1,310 done 96 retried 4 dead\ncircuit open, probe in 21 s: 503"
                    .to_owned(),
            ),
            (
                57,
                "orders 1,204 waiting │ 52/s\n1,310 done 96 retried 4 dead\ncircuit open, probe in 21 s: 503"
                    .to_owned(),
            ),
            (
                9,
                "orders 1,204 waiting\n52/s\n1,310 done 96 retried 4 dead\ncircuit open, probe in 21 s: 503"
                    .to_owned(),
            ),
        ] {
            assert_eq!(figures().lines(columns).join("\n"), line, "{columns}");
        }
        let mut doubtful = Figures { copies_in_doubt: 10, ..figures() };
        let counts = "1,310 done 96 retried 4 dead (10 copies unconfirmed)";
        assert_eq!(doubtful.lines(60)[1], counts);
        doubtful.progress.not_deleted = 1;
        doubtful.lost_receives = 6;
        let counts = counts.replace("10 copies", "1 delete, 10 copies, 6 receives");
        assert!(doubtful.lines(120)[0].contains(&counts), "{:?}", doubtful.lines(120));
        let free = Figures { pauses: Vec::new(), ..figures() };
        let running = "orders 1,204 waiting │ 52/s │ 1,310 done 96 retried 4 dead │ 8 running";
        assert_eq!(free.lines(80), [running]);
        let slow = Figures { concurrency: 10, rate: None, ..free };
        let running = running.replace("52/s │ ", "").replace("8 running", "8 of 10 running");
        assert_eq!(slow.lines(80)[0], running);
        let busy = Figures { rate: Some(52), running: 0, ..slow };
        assert!(!busy.lines(80)[0].contains("next due"), "it is between two batches");
        let idle = Figures { rate: Some(0), ..busy };
        let due = "orders 1,204 waiting │ 0/s │ 1,310 done 96 retried 4 dead │ next due in 9 s";
        assert_eq!(idle.lines(80), [due]);
        let hidden = Figures { hidden: 1_200, ..idle };
        assert!(hidden.lines(120)[0].starts_with("orders 1,204 waiting (1,200 hidden) │ 0/s"));
        let idle = Figures { hidden: 0, ..hidden };
        let probing = |running, due| {
            let next_due = Some(Duration::from_secs(due));
            let pauses = vec![open(0, "status 503")];
            Figures { running, next_due, pauses, ..figures() }.lines(80).pop()
        };
        for (running, due, text) in [
            (1, 12, "circuit open, probing: 503"),
            (0, 12, "circuit open, next due in 12 s: 503"),
            (0, 0, "circuit open, probing with the next message: 503"),
        ] {
            assert_eq!(probing(running, due).as_deref(), Some(text));
        }
        assert_eq!(idle.lines(60)[1], "next due in 9 s");
        let mut report = Figures { mode: Mode::Report, next_due: None, ..idle };
        report.progress.waiting = 100;
        let left = "orders 1,204 waiting │ 0/s │ 1,310 done 100 failures left to SQS 4 dead";
        assert_eq!(report.lines(80), [left]);
    }

    #[test]
    fn parts_without_a_value_are_left_out_and_several_holds_are_counted() {
        let counts = "0 done 0 retried 0 dead";
        let with =
            |pauses| Figures { queue: "q".to_owned(), pauses, ..Figures::default() }.lines(80);
        let pause = |secs| LivePause { why: Deferral::Paused, ..open(secs, "status 429") };
        for (pauses, line) in [
            (vec![], format!("q │ {counts}")),
            (vec![pause(90)], format!("q │ {counts} │ paused 90 s: 429")),
            (
                vec![open(0, "status 503")],
                format!("q │ {counts} │ circuit open, probing with the next message: 503"),
            ),
            (
                vec![open(1, ""), open(2, ""), open(3, "")],
                format!("q │ {counts} │ 3 circuits open"),
            ),
            (vec![pause(1), pause(2)], format!("q │ {counts} │ 2 pauses")),
            (vec![open(1, ""), pause(2)], format!("q │ {counts} │ 1 circuit open, 1 pause")),
        ] {
            assert_eq!(with(pauses).join("\n"), line);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_is_that_of_the_last_seconds() {
        let mut growth = Growth::within(WINDOW);
        let mut rates = Vec::new();
        for count in [0, 10, 20, 30, 30, 30, 30, 30, 30, 30] {
            rates.push(rate(&mut growth, count));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let some = [10, 10, 10, 8, 6, 4, 2, 0, 0].map(Some);
        assert_eq!((rates[0], &rates[1..]), (None, &some[..]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_response_is_asked_for_again() {
        let sqs = EmbeddedSqs::new(Clock::system());
        let queue = sqs.create_queue("orders", []).expect("a name");
        let send = sqs.client().send_message().queue_url(queue.url()).message_body("{}");
        send.send().await.expect("sent");
        sqs.set_faults(|call| match (call.operation.as_str(), call.of_operation) {
            ("GetQueueAttributes", 1) => Fault::Hang,
            _ => Fault::None,
        });
        let (depth, source) = (Depth::default(), SqsQueue::new(&sqs.client()));
        let asking = depth.keep_asking(&source, &queue, || (0, 0));
        let _ = timeout(PATIENCE + INTERVAL + LAST, asking).await;
        assert_eq!(depth.waiting(0, 0), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_signal_the_handlers_and_the_time_left_are_shown() {
        let mut ending = Ending::of(Duration::from_secs(30));
        let hand = |running, unsettled| InHand { running, unsettled };
        assert_eq!(ending.text(hand(2, 0)), None);
        ending.began = Some(Instant::now());
        tokio::time::advance(Duration::from_secs(2)).await;
        for (hand, running) in [
            (hand(2, 0), "2 handlers still run"),
            (hand(1, 1), "1 handler still runs, 1 message to settle"),
            (hand(0, 3), "no handler runs, 3 messages to settle"),
        ] {
            assert_eq!(ending.text(hand), Some(format!("{running}, 28 s left")));
        }
    }
}
