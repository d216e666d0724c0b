//! The end of a scan, and the messages that it did not reach, with the reasons.

use std::collections::BTreeMap;
use std::time::Duration;

use requeue::Clock;
use requeue::queue::Description;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::visibility;
use crate::dlq::sqs::Sqs;
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::table::{clock_time, messages};
use crate::{Error, output};

const PAUSE: Duration = Duration::from_millis(500);
/// Reads of the counts, if the counts at the start exceed the seen messages too.
const ASKS: u32 = 3;
/// Reads in all, if new messages arrive in between.
const MAX_ASKS: u32 = 10;
/// The time in which the counts may contradict those at the start. Source: SQS developer guide,
/// "Available CloudWatch metrics for Amazon SQS": consistent a minute after the last change.
const SETTLES: Duration = Duration::from_mins(1);

const GOES_ON_FOR: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanEnd {
    /// There were no more messages, or a bound was reached.
    Done,
    Enough,
    Interrupted,
    /// An error of the scan or of its caller.
    Error,
}

pub(crate) struct ScanResult {
    pub(crate) end: ScanEnd,
    /// Empty if the caller needed no more, or if the scan was interrupted.
    pub(crate) unseen: Unseen,
    pub(crate) looked_at: usize,
    /// The counted messages that were not seen, whatever the end.
    pub(crate) not_seen: u64,
    pub(crate) left_hidden: usize,
    pub(super) error: Option<Error>,
}

impl ScanResult {
    pub(crate) fn into_result(mut self) -> Result<Self, Error> {
        self.error.take().map_or(Ok(self), Err)
    }

    pub(crate) fn is_complete(&self) -> bool {
        match self.end {
            ScanEnd::Enough => true,
            ScanEnd::Done => self.unseen.is_empty(),
            ScanEnd::Interrupted | ScanEnd::Error => false,
        }
    }

    pub(crate) fn is_released(&self) -> bool {
        self.left_hidden == 0
    }

    /// Notes the messages of this queue that were not seen. The page has a list of them instead.
    pub(crate) fn tell(&self, queue: &Description, progress: &CommandProgress) {
        if !progress.tells_notes() {
            return;
        }
        if self.end == ScanEnd::Interrupted {
            // Another note reports those that stay hidden.
            let visible =
                if self.is_released() { "; those in the queue are visible again" } else { "" };
            let seen = messages(self.looked_at);
            output::remark(&format!("interrupted: {seen} looked at{visible}"));
        }
        self.unseen.tell(queue);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Cause {
    /// Earlier messages of its group stay.
    FifoGroup,
    AnotherReader,
    Delayed,
    MaxMessages,
    /// The first messages were about to become visible before it was received.
    TimeUp,
    /// An error ended the command before it was received.
    BrokenOff,
    /// The reason is unknown.
    NotReceived,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Unseen {
    pub(crate) by_cause: BTreeMap<Cause, u64>,
}

impl Unseen {
    /// After an error, the counts at the start apply, since the command does not read them again.
    pub(crate) fn broken_off(count: u64) -> Self {
        let mut unseen = Self::default();
        unseen.add(Cause::BrokenOff, count);
        unseen
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_cause.is_empty()
    }

    pub(crate) fn count(&self) -> u64 {
        self.by_cause.values().sum()
    }

    /// Gives another reason for the messages that SQS would deliver.
    pub(crate) fn because(mut self, cause: Cause) -> Self {
        let visible =
            [Cause::FifoGroup, Cause::NotReceived].map(|cause| self.by_cause.remove(&cause));
        self.add(cause, visible.into_iter().flatten().sum());
        self
    }

    /// Those that SQS delivers to a redrive, as the messages before them leave.
    pub(crate) fn further(&self) -> u64 {
        let further = [Cause::FifoGroup, Cause::NotReceived];
        further.iter().filter_map(|cause| self.by_cause.get(cause)).sum()
    }

    fn add(&mut self, cause: Cause, count: u64) {
        if count > 0 {
            *self.by_cause.entry(cause).or_default() += count;
        }
    }

    /// Notes the number, the reason and the remedy, unless the caller already knows the reason.
    pub(crate) fn tell(&self, queue: &Description) {
        let name = queue.arn.name();
        for (cause, count) in &self.by_cause {
            let Some(words) = cause.words() else { continue };
            let (count, mut until) = (messages(*count), String::new());
            if *cause == Cause::AnotherReader {
                let hidden = visibility(queue, usize::MAX, None);
                let end = clock_time(Clock::system().now() + hidden);
                until = format!(
                    ": until {end} UTC at the latest if it was a dlq command without --rate that was \
                     killed, with --rate until the time that its plan or note named, and 12 h at \
                     most otherwise; run this again then"
                );
            }
            output::remark(&format!("about {count} of {name} not reached: {words}{until}"));
        }
    }
}

impl Cause {
    fn words(self) -> Option<&'static str> {
        Some(match self {
            Self::FifoGroup => {
                "SQS hands out at most the first ten messages of a FIFO group, until these are \
                 redriven, or discarded with --limit 10"
            }
            Self::AnotherReader => "another reader holds them",
            Self::Delayed => "their delay has not ended; run this again after it",
            Self::NotReceived => "SQS's counts are approximate; run this again in a minute",
            Self::MaxMessages => "--max-messages is too small; raise it",
            Self::TimeUp => {
                "the first messages were about to become visible again; run this again for the rest"
            }
            Self::BrokenOff => return None,
        })
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) all: u64,
    pub(crate) here: u64,
    pub(crate) held: u64,
    /// The scan hides as many messages of a FIFO group as SQS delivers.
    pub(crate) has_a_full_group: bool,
}

/// SQS's counts compared with the seen messages. The current ones lag after deletions, and those at
/// the start are wrong at other times, so both are used.
#[derive(Default)]
pub(crate) struct Comparison {
    asks: u32,
    asks_in_all: u32,
    /// The time at which the scan had seen as many messages as there were at the start.
    since: Option<Instant>,
    has_gone_on: bool,
    is_last: bool,
}

impl Comparison {
    /// For counts that are known to exceed the seen messages.
    pub(crate) fn asking_once() -> Self {
        Self { asks: ASKS - 1, ..Self::default() }
    }

    /// For a scan without time for another read.
    pub(crate) fn at_once() -> Self {
        Self { is_last: true, ..Self::default() }
    }

    /// For a scan that has received new messages.
    pub(crate) fn again(&mut self) {
        self.asks = 0;
    }

    /// Whether the counts have settled since the scan had seen as many messages as there were at
    /// the start. A steady arrival of messages must not prolong the scan.
    pub(crate) fn is_overdue(&mut self, before: &Description, seen: Seen) -> bool {
        seen.all >= before.messages
            && self.since.get_or_insert_with(Instant::now).elapsed() >= SETTLES
    }

    /// Whether the scan has seen as many messages as there were for a while, once.
    pub(crate) fn goes_on(&mut self) -> bool {
        let is_late = self.since.is_some_and(|since| since.elapsed() >= GOES_ON_FOR);
        is_late && !std::mem::replace(&mut self.has_gone_on, true)
    }

    /// `None` while the counts may still change. `before` is the queue at the start.
    pub(crate) async fn ask(
        &mut self,
        sqs: &Sqs,
        before: &Description,
        seen: Seen,
    ) -> Result<Option<Unseen>, Error> {
        Ok(self.judge(before, &sqs.describe(&before.arn).await?, seen))
    }

    /// The messages that were not reached, once the counts have settled; `None` after a signal.
    pub(crate) async fn settled(
        mut self,
        sqs: &Sqs,
        before: &Description,
        seen: Seen,
        stop: &Stop,
    ) -> Result<Option<Unseen>, Error> {
        while !stop.is_told() {
            if let Some(unseen) = self.ask(sqs, before, seen).await? {
                return Ok(Some(unseen));
            }
            pause(stop).await;
        }
        Ok(None)
    }

    fn judge(&mut self, before: &Description, now: &Description, seen: Seen) -> Option<Unseen> {
        let more = now.messages.saturating_sub(seen.here);
        if more == 0 {
            return Some(Unseen::default());
        }
        let expected = before.messages.saturating_sub(seen.all);
        let is_settled = if expected > 0 {
            self.asks += 1;
            self.asks_in_all += 1;
            self.asks >= ASKS || self.asks_in_all >= MAX_ASKS
        } else {
            self.is_overdue(before, seen)
        };
        let more = if expected > 0 { more.min(expected) } else { more };
        (is_settled || self.is_last).then(|| unseen(now, seen, more))
    }
}

pub(super) async fn pause(stop: &Stop) {
    tokio::select! {
        () = sleep(PAUSE) => {}
        () = stop.told() => {}
    }
}

fn unseen(now: &Description, seen: Seen, more: u64) -> Unseen {
    let others = now.in_flight.saturating_sub(seen.held).min(more);
    let delayed = now.delayed.min(more - others);
    let is_fifo = now.arn.is_fifo();
    let rest = match () {
        () if is_fifo && seen.has_a_full_group => Cause::FifoGroup,
        // SQS blocks the successors of the reader's messages in their groups.
        () if is_fifo && others > 0 => Cause::AnotherReader,
        () => Cause::NotReceived,
    };
    let mut unseen = Unseen::default();
    unseen.add(Cause::AnotherReader, others);
    unseen.add(Cause::Delayed, delayed);
    unseen.add(rest, more - others - delayed);
    unseen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(name: &str, [visible, in_flight, delayed]: [u64; 3]) -> Description {
        let arn = format!("arn:aws:sqs:eu-west-1:123456789012:{name}").parse().expect("an ARN");
        let mut counts = Description::new(arn, Duration::ZERO);
        (counts.in_flight, counts.delayed) = (in_flight, delayed);
        counts.messages = visible + in_flight + delayed;
        counts
    }

    #[test]
    fn each_cause_is_told_by_the_counts() {
        let causes = |name, before, now, [all, here, held]: [u64; 3]| {
            let (before, now, seen) = (
                counts(name, before),
                counts(name, now),
                Seen { all, here, held, has_a_full_group: held >= 10 },
            );
            let mut comparison = Comparison::asking_once();
            serde_json::to_value(comparison.judge(&before, &now, seen)).expect("JSON").to_string()
        };
        for (name, before, now, seen, expected) in [
            ("a", [5, 0, 0], [0, 5, 0], [5, 5, 5], "{}"),
            ("a", [5, 0, 0], [0, 0, 0], [5, 0, 0], "{}"),
            ("a", [5, 0, 0], [0, 0, 0], [3, 0, 0], "{}"),
            ("a", [5, 2, 1], [0, 7, 1], [5, 5, 5], r#"{"anotherReader":2,"delayed":1}"#),
            ("a", [5, 0, 0], [2, 0, 0], [3, 0, 0], r#"{"notReceived":2}"#),
            ("a.fifo", [12, 0, 0], [2, 10, 0], [10, 10, 10], r#"{"fifoGroup":2}"#),
            ("a.fifo", [5, 0, 0], [2, 3, 0], [3, 3, 3], r#"{"notReceived":2}"#),
            ("a.fifo", [2, 1, 0], [2, 1, 0], [0, 0, 0], r#"{"anotherReader":3}"#),
            ("a.fifo", [5, 0, 0], [2, 0, 0], [3, 0, 0], r#"{"notReceived":2}"#),
            // The current counts lag by the deletions.
            ("a", [5, 2, 0], [0, 7, 0], [5, 0, 0], r#"{"anotherReader":2}"#),
        ] {
            assert_eq!(
                causes(name, before, now, seen),
                expected,
                "{name} {before:?} {now:?} {seen:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn counts_that_contradict_those_of_the_beginning_have_a_minute_to_settle() {
        let (before, late, settled) =
            (counts("a", [5, 0, 0]), counts("a", [2, 0, 0]), counts("a", [0, 0, 0]));
        let all = Seen { all: 5, ..Seen::default() };
        for (end, expected) in [(&settled, 0), (&late, 2)] {
            let mut comparison = Comparison::default();
            for _ in 0..10 {
                assert_eq!(comparison.judge(&before, &late, all), None);
                tokio::time::advance(SETTLES / 10).await;
            }
            assert_eq!(
                comparison.judge(&before, end, all).map(|unseen| unseen.count()),
                Some(expected)
            );
        }
        let mut comparison = Comparison::default();
        assert_eq!(comparison.judge(&before, &late, all), None);
        tokio::time::advance(SETTLES).await;
        comparison.again();
        let newcomers = Seen { all: 90, ..all };
        assert!(comparison.is_overdue(&before, newcomers), "newcomers prolong nothing");
        let at_once = Comparison::at_once().judge(&before, &late, all);
        assert_eq!(at_once.map(|unseen| unseen.count()), Some(2));
        let some = Seen { all: 3, ..all };
        let mut comparison = Comparison::default();
        for _ in 1..MAX_ASKS {
            assert_eq!(comparison.judge(&before, &late, some), None);
            comparison.again();
        }
        assert_eq!(
            comparison.judge(&before, &late, some).map(|unseen| unseen.count()),
            Some(2),
            "nor do those"
        );
        let mut comparison = Comparison::default();
        let asked: Vec<_> = (0..3)
            .map(|_| comparison.judge(&before, &late, some).map(|unseen| unseen.count()))
            .collect();
        assert_eq!(asked, [None, None, Some(2)], "both speak of more");
    }
}
