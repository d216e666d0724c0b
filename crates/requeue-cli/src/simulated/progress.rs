//! The progress of a run, for a person who waits for it.

use std::io::IsTerminal as _;
use std::time::{Duration, SystemTime};

use requeue::Clock;
use tokio::time::Instant;

use crate::output::errln;
use crate::table::duration;

/// The interval of progress lines on a terminal.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// Prints the progress of a run on the standard error, if that is a terminal. It uses the clock of
/// this machine, and takes no virtual time.
pub(crate) struct RunProgress {
    name: &'static str,
    began: Instant,
    clock: Clock,
    told: SystemTime,
    is_on: bool,
}

impl RunProgress {
    pub(crate) fn new(name: &'static str) -> Self {
        let clock = Clock::system();
        Self {
            name,
            began: Instant::now(),
            told: clock.now(),
            clock,
            is_on: std::io::stderr().is_terminal(),
        }
    }

    /// Tells how many messages are left, if the last line is old enough.
    pub(crate) fn tell(&mut self, left: usize) {
        if !self.is_on {
            return;
        }
        let now = self.clock.now();
        if now.duration_since(self.told).is_ok_and(|time| time < BETWEEN_LINES) {
            return;
        }
        self.told = now;
        errln!("{}: after {}, {left} messages left", self.name, duration(self.began.elapsed()));
    }
}
