//! The rate of copies: at most so many in a second, also after a long wait for SQS.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::stop::Stop;

/// After so many sends in a row without any confirmation a command ends: each further one would leave
/// more messages in doubt.
pub(crate) const MAX_UNCONFIRMED: usize = 8;

pub(crate) struct CopyPace {
    rate: Option<u16>,
    next: Instant,
}

impl CopyPace {
    /// So many copies in a second, or without a limit, from this time on.
    pub(crate) fn new(rate: Option<u16>, first: Instant) -> Self {
        Self { rate, next: first }
    }

    /// Waits for the time of the next copy, or for the end.
    pub(crate) async fn wait(&self, stop: &Stop) {
        tokio::select! {
            () = sleep_until(self.next) => {}
            () = stop.told() => {}
        }
    }

    /// Notes copies whose request began at this time, also those that SQS did not confirm. Time in
    /// which none was sent is lost, since its copies would come in a burst.
    pub(crate) fn sent(&mut self, began: Instant, count: u64) {
        let Some(rate) = self.rate else { return };
        let time = Duration::from_secs(count) / u32::from(rate);
        self.next = self.next.max(began) + time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_has_more_copies_than_the_rate_whatever_the_waits() {
        let first = Instant::now();
        let after = |millis| first + Duration::from_millis(millis);
        let mut pace = CopyPace::new(Some(5), first);
        // Each request begins at the time of the next copy, or later.
        for (began, count, next) in [
            (0, 1, 200),
            (200, 2, 600),
            (30_000, 1, 30_200),
            (30_200, 1, 30_400),
            (30_500, 10, 32_500),
        ] {
            pace.sent(after(began), count);
            assert_eq!(pace.next, after(next), "{count} at {began} ms");
        }
        let mut unlimited = CopyPace::new(None, first);
        unlimited.sent(after(0), 1_000);
        assert_eq!(unlimited.next, first);
    }
}
