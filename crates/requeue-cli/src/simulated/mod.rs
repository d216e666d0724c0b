//! The parts of the simulations: a function with its execution environments, the table that they
//! share, and the progress of a run. All of them run in virtual time.

use tokio::time::{Duration, Instant};

use crate::Error;
use crate::progress::CommandProgress;
use crate::stop::Stop;

mod function;
mod table;

pub(crate) use function::{BATCHING_WINDOW, Handled, SimulatedFunction, requests};
pub(crate) use table::{OwnTable, SimulatedTable};

/// Runs the future in virtual time until its end, or until the stop.
pub(crate) async fn unless_stopped<T>(
    stop: &Stop,
    running: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::select! {
        biased;
        () = stop.told() => Err("stopped before its end".into()),
        ended = running => ended,
    }
}

/// The progress of a run: the virtual time of an outage, and then the messages that left the queue.
pub(crate) struct RunProgress<'a> {
    command: &'a CommandProgress,
    messages: u64,
    began: Instant,
    outage: Duration,
}

impl<'a> RunProgress<'a> {
    pub(crate) fn begin(command: &'a CommandProgress, name: &'static str, messages: u32) -> Self {
        command.step(name);
        let messages = messages.into();
        Self { command, messages, began: Instant::now(), outage: Duration::ZERO }
    }

    /// For a run in which no message is done for so long.
    pub(crate) fn with_outage(self, outage: Duration) -> Self {
        Self { outage, ..self }
    }

    /// Tells how many messages are left.
    pub(crate) fn tell(&self, left: usize) {
        let (time, left) = (self.began.elapsed(), u64::try_from(left).unwrap_or(u64::MAX));
        if time < self.outage {
            self.command.count("virtual s", Some(self.outage.as_secs()));
            self.command.done(time.as_secs());
        } else {
            self.command.count("messages", Some(self.messages));
            self.command.done(self.messages.saturating_sub(left));
        }
    }
}
