//! The deadlines of an invocation, and how a host ends its batches earlier.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::settings::Limits;
use crate::settle::Window;

/// Tokens by which a host that ends tells its batches to end too. A message that was not handled is
/// receivable again at once.
#[derive(Clone, Default)]
pub(crate) struct Stop {
    /// No handler starts any more.
    pub(crate) starting: CancellationToken,
    /// The handlers that run are cancelled.
    pub(crate) running: CancellationToken,
}

/// The deadlines of an invocation, and how many handlers it may run.
#[derive(Clone)]
pub(super) struct Deadlines {
    pub(super) window: Window,
    pub(super) stop: Stop,
    /// No handler starts or runs after this.
    pub(super) cutoff: Instant,
    /// Longest run of one handler.
    pub(super) timeout: Duration,
    /// Most handlers at once.
    pub(super) concurrency: usize,
    /// How long a handler that is to end has to yield.
    pub(super) grace: Duration,
    /// Whether finished messages are deleted at once.
    pub(super) deletes_done: bool,
}

/// The times of one attempt, and its random number.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub(super) began: Instant,
    /// The latest end of its handler.
    pub(super) limit: Instant,
    pub(super) at: SystemTime,
    pub(super) sample: f64,
}

impl Deadlines {
    /// The reserve at the end of the invocation is for settling, and a tenth of it for the response
    /// itself.
    pub(super) fn new(started: Instant, deadline: Instant, limits: &Limits, stop: Stop) -> Self {
        let reserve = limits.reserve.min(deadline.saturating_duration_since(started) / 4);
        let window = Window { started, deadline: deadline - reserve / 10 };
        let Limits { timeout, concurrency, .. } = *limits;
        Self {
            window,
            stop,
            cutoff: deadline - reserve,
            timeout,
            concurrency: concurrency.max(1),
            grace: reserve / 2,
            deletes_done: false,
        }
    }

    /// The end of a handler that begins now.
    pub(super) fn limit(&self, began: Instant) -> Instant {
        began.checked_add(self.timeout).map_or(self.cutoff, |own| own.min(self.cutoff))
    }

    /// Whether a call that ran to its limit had most of the time that a call can have. One that began
    /// late, and that the end of the invocation cut off, says nothing about its service.
    pub(super) fn gives_its_time(&self, turn: &Turn) -> bool {
        let longest = self.timeout.min(self.cutoff.saturating_duration_since(self.window.started));
        turn.limit.saturating_duration_since(turn.began) >= longest / 4 * 3
    }
}
