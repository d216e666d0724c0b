//! The growth of a count in the last seconds.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The growth in less time is a guess.
const LEAST: Duration = Duration::from_secs(1);

/// The counts of the last seconds.
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
