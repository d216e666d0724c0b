//! The times of an attempt, the deadlines of its invocation, and the possible ends of its handler.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use super::inner::Inner;
use crate::disposition::{Disposition, ReleaseReason};
use crate::failure::{Evidence, Failure, FailureClass};
use crate::gate::{Change, Noted, Permit, Reply};
use crate::limit::StartTag;
use crate::observer::Event;
use crate::scope::Scope;
use crate::settings::{Limits, Mode};
use crate::settle::Window;

pub(super) enum Handled {
    Done,
    Failed(Failure),
    /// A call of several messages failed, and it is unknown which messages failed.
    Unclear {
        failure: Failure,
        is_leader: bool,
    },
    /// The host shuts down, and the handler was running.
    Interrupted,
    /// The handler blocks its thread. It may still work on the message, so no other handler may.
    Abandoned,
    Uncalled(Uncalled),
}

#[derive(Clone, Copy)]
pub(super) struct Uncalled {
    pub(super) disposition: Disposition,
    /// Its start tag in the waiting list of the rate limit, if the message is in it.
    pub(super) start_tag: Option<StartTag>,
}

impl Uncalled {
    pub(super) fn stopped() -> Self {
        Disposition::Release(ReleaseReason::ShuttingDown).into()
    }
}

impl From<Disposition> for Uncalled {
    fn from(disposition: Disposition) -> Self {
        Self { disposition, start_tag: None }
    }
}

/// The meaning of an attempt's end for its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Done,
    /// No handler works on the event any more.
    Free,
    /// Its handler or its service may still work on it.
    Unknown,
}

impl Handled {
    pub(super) fn timed_out() -> Self {
        let (class, reason) = (FailureClass::Temporary, "the handler ran out of time");
        Self::Failed(Failure::new(class, Evidence::TimeOut, reason))
    }

    pub(super) fn panicked() -> Self {
        Self::Failed(Failure::new(FailureClass::Temporary, Evidence::Panic, "the handler panicked"))
    }

    /// The evidence of an attempt's end about the downstream service. A call that the end of the
    /// invocation cut short is none.
    pub(super) fn reply(&self, had_its_time: bool) -> Reply {
        match self {
            Self::Done => Reply::Alive,
            // A call counts once.
            Self::Failed(failure) | Self::Unclear { failure, is_leader: true }
                if had_its_time || failure.evidence() != Evidence::TimeOut =>
            {
                Reply::of(failure)
            }
            Self::Abandoned if had_its_time => Reply::Down,
            Self::Failed(_) | Self::Unclear { .. } | Self::Abandoned | Self::Interrupted => {
                Reply::Silent
            }
            Self::Uncalled(_) => Reply::Uncalled,
        }
    }

    pub(super) fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) | Self::Unclear { failure, .. } => Some(failure),
            Self::Done | Self::Interrupted | Self::Abandoned | Self::Uncalled(_) => None,
        }
    }

    pub(super) fn end_of_event(&self) -> Ended {
        match self {
            Self::Done => Ended::Done,
            Self::Failed(failure) | Self::Unclear { failure, .. } if failure.is_in_doubt() => {
                Ended::Unknown
            }
            Self::Interrupted | Self::Abandoned => Ended::Unknown,
            Self::Failed(_) | Self::Unclear { .. } | Self::Uncalled(_) => Ended::Free,
        }
    }

    /// The same end, for another message of the call.
    pub(super) fn of_follower(&self) -> Self {
        match self {
            Self::Done => Self::Done,
            Self::Failed(failure) | Self::Unclear { failure, .. } => {
                Self::Unclear { failure: failure.clone(), is_leader: false }
            }
            Self::Interrupted => Self::Interrupted,
            Self::Abandoned => Self::Abandoned,
            Self::Uncalled(uncalled) => Self::Uncalled(*uncalled),
        }
    }
}

pub(super) struct Attempts {
    pub(super) inner: Arc<Inner>,
    pub(super) deadlines: Deadlines,
    pub(super) invocation: Span,
}

impl Attempts {
    pub(super) fn turn(&self) -> Turn {
        let Inner { clock, sampler, .. } = &*self.inner;
        let began = Instant::now();
        let (limit, at) = (self.deadlines.limit(began), clock.now());
        Turn { began, limit, at, sample: sampler.sample() }
    }

    pub(super) fn now(&self) -> SystemTime {
        self.inner.clock.now()
    }

    /// Gives back the permission of a call, and tells the change that it made. Returns the least wait of a
    /// message that is not the cause of its failure.
    pub(super) fn give_back(
        &self,
        permit: Permit,
        reply: Reply,
        at: SystemTime,
        failure: Option<&Failure>,
    ) -> Option<Duration> {
        let scope = permit.scope;
        let Noted { change, rest, least_wait } = permit.give_back(reply, at);
        self.announce(change, (scope, at + rest), false, failure);
        least_wait
    }

    /// Tells the change that an attempt made for the messages of a scope, and the end of its pause.
    pub(super) fn announce(
        &self,
        change: Option<Change>,
        (scope, until): (Scope, SystemTime),
        is_shared: bool,
        failure: Option<&Failure>,
    ) {
        let is_enforced = self.inner.mode == Mode::Requeue;
        let cause = failure.map_or("the handler blocks its thread", Failure::detail);
        let tell = |event| self.invocation.in_scope(|| self.inner.observers.tell(&event));
        match change {
            None => {}
            Some(Change::Opened) => {
                let first_probe = until;
                tell(Event::CircuitOpened { scope, is_shared, is_enforced, cause, first_probe });
            }
            Some(Change::Closed) => tell(Event::CircuitClosed { scope, is_shared }),
            Some(Change::Paused { was_open }) => {
                if was_open {
                    tell(Event::CircuitClosed { scope, is_shared });
                }
                if let (true, Some(class)) = (is_enforced, failure.map(Failure::class)) {
                    tell(Event::Paused { scope, is_shared, class, cause, until });
                }
            }
        }
    }

    /// Whether the host shuts down, so that no handler starts and no request to the table begins.
    pub(super) fn is_stopping(&self) -> bool {
        self.deadlines.stop.starting.is_cancelled()
    }
}

/// Tokens by which a host that shuts down ends its batches. A message without a call is visible
/// again.
#[derive(Clone, Default)]
pub(crate) struct Stop {
    /// No further handler starts.
    pub(crate) starting: CancellationToken,
    pub(crate) running: CancellationToken,
}

/// The deadlines of an invocation, and how many handlers it may run.
#[derive(Clone)]
pub(super) struct Deadlines {
    pub(super) window: Window,
    pub(super) stop: Stop,
    /// No handler starts or runs after this.
    pub(super) cutoff: Instant,
    pub(super) timeout: Duration,
    pub(super) concurrency: usize,
    /// How long a handler that has to end may take to yield.
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

    /// Whether a call that ran to its limit had most of the time that a call can have. If the call
    /// began late and the end of the invocation cut it off, it is no evidence about its service.
    pub(super) fn gives_its_time(&self, turn: &Turn) -> bool {
        let longest = self.timeout.min(self.cutoff.saturating_duration_since(self.window.started));
        turn.limit.saturating_duration_since(turn.began) >= longest / 4 * 3
    }
}
