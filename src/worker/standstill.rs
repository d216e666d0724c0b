//! During a pause or an open circuit of the only scope, a worker receives no more messages than may
//! probe. It could only defer the others, each by a copy.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

use crate::gate::Standstill;
use crate::observer::{Event, Observers};
use crate::queue::QueueArn;
use crate::report::Report;

/// While probes run, the worker checks again after this time.
pub(super) const PROBING: Duration = Duration::from_secs(1);
/// The longest time between two receives if none of the received messages may probe.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The standstill, shared by the receivers of a worker. The receiver of probes keeps it locked
/// until they are settled.
#[derive(Default)]
pub(super) struct Standing {
    is_still: AtomicBool,
    asked: Mutex<Asked>,
}

/// The pause for which a receiver asked last.
#[derive(Default)]
pub(super) struct Asked {
    /// The pause, and how many messages might probe.
    last: Option<(u64, u32)>,
    /// The receives in a row of which no message then probed.
    in_vain: u32,
    /// Whether the messages of the last receive were on their way to the dead-letter queue. SQS
    /// hands out the ones behind them next.
    has_passed: bool,
}

pub(super) type Asking<'a> = MutexGuard<'a, Asked>;

impl Standing {
    /// Waits until this receiver is the only one.
    pub(super) async fn turn(&self) -> Asking<'_> {
        self.asked.lock().await
    }

    pub(super) fn begin(&self, still: &Standstill, queue: &QueueArn, observers: &Observers) {
        if !self.is_still.swap(true, Ordering::Relaxed) {
            let Standstill { why, rest, .. } = *still;
            observers.tell(&Event::ReceivingStopped { queue, reason: why, rest });
        }
    }

    pub(super) fn end(&self, queue: &QueueArn, observers: &Observers) {
        if self.is_still.swap(false, Ordering::Relaxed) {
            observers.tell(&Event::ReceivingResumed { queue });
        }
    }
}

impl Asked {
    /// How many messages to receive: as many as may probe. If received messages did not probe, as
    /// many as possible: SQS delivers the longest-waiting messages first, and the others may be far
    /// behind.
    pub(super) fn most(&self, still: &Standstill) -> usize {
        if self.in_vain > 0 {
            usize::MAX
        } else {
            usize::try_from(still.permits).unwrap_or(usize::MAX)
        }
    }

    /// Notes the messages of the last receive.
    pub(super) fn received(&mut self, report: &Report) {
        self.has_passed = report.outcomes.iter().all(|outcome| outcome.disposition.gives_up());
    }

    /// How long not to receive. `has_paused` says whether the worker has paused since the last
    /// receive.
    pub(super) fn pause(&mut self, still: &Standstill, has_paused: bool) -> Duration {
        let now = Some((still.pause, still.permits));
        match (still.rest, still.permits) {
            (Duration::ZERO, 0) => PROBING,
            (Duration::ZERO, _) if self.last == now && mem::take(&mut self.has_passed) => {
                self.in_vain = self.in_vain.max(1);
                Duration::ZERO
            }
            (Duration::ZERO, _) if self.last == now && !has_paused => {
                let pause = Duration::from_secs(1 << self.in_vain.min(5)).min(LONGEST_PAUSE);
                self.in_vain += 1;
                if still.rest_for_all.is_zero() { pause } else { pause.min(still.rest_for_all) }
            }
            (Duration::ZERO, _) => {
                if self.last != now {
                    *self = Self { last: now, ..Self::default() };
                }
                Duration::ZERO
            }
            (rest, _) => rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disposition::Deferral;

    #[test]
    fn where_nobody_who_came_may_probe_receives_become_rarer() {
        let why = Deferral::Paused;
        let still = |rest, permits, pause| Standstill {
            why,
            rest: Duration::from_secs(rest),
            rest_for_all: Duration::from_secs(rest),
            permits,
            pause,
        };
        let mut asked = Asked::default();
        for (still, has_paused, pause) in [
            (still(30, 3, 1), false, 30),
            (still(0, 3, 1), true, 0),
            (still(0, 2, 1), false, 0),
            (still(0, 2, 1), false, 1),
            (still(0, 2, 1), true, 0),
            (still(0, 2, 1), false, 2),
            (still(0, 2, 1), true, 0),
            (still(0, 2, 1), false, 4),
            (still(0, 2, 1), false, 8),
            (still(0, 2, 1), false, 10),
            (still(0, 0, 1), false, 1),
            (still(9, 1, 2), false, 9),
            (still(0, 1, 2), true, 0),
            (still(0, 1, 2), false, 1),
        ] {
            assert_eq!(
                asked.pause(&still, has_paused),
                Duration::from_secs(pause),
                "{still:?} {has_paused}"
            );
        }
        let soon = Standstill { rest_for_all: Duration::from_millis(1_500), ..still(0, 1, 2) };
        assert_eq!(asked.pause(&soon, false), soon.rest_for_all, "then any message may probe");
    }

    #[test]
    fn messages_on_their_way_to_the_dead_letter_queue_make_no_receive_rarer() {
        let rest = Duration::ZERO;
        let why = Deferral::CircuitOpen;
        let still = Standstill { why, rest, rest_for_all: rest, permits: 2, pause: 1 };
        let mut asked = Asked::default();
        assert_eq!((asked.pause(&still, false), asked.most(&still)), (rest, 2));
        for _ in 0..100 {
            asked.received(&Report::default());
            assert_eq!((asked.pause(&still, false), asked.most(&still)), (rest, usize::MAX));
        }
        assert_eq!(asked.pause(&still, false), Duration::from_secs(2));
    }
}
