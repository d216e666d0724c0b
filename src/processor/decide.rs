//! Decides about a delivery where no user's code runs: before the handler (gate) and after it
//! (decide). It has the deadlines of the invocation, and how a host ends its batches earlier.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use super::inner::{Inner, QueuePolicy};
use crate::delivery::Delivery;
use crate::disposition::{Deferral, Disposition, ReleaseReason};
use crate::failure::{Evidence, Failure, FailureClass};
use crate::gate::{Change, Reply, TimeLeft, gate};
use crate::limit::StartTag;
use crate::observer::Event;
use crate::plan::Decision;
use crate::policy;
use crate::settings::{DeadLetterMode, Limits, Mode};
use crate::settle::Window;

pub(super) enum Handled {
    Done,
    Failed(Failure),
    /// A call of several messages failed, and nobody knows which of them did.
    Unclear {
        failure: Failure,
        is_leader: bool,
    },
    /// The host ends, and the handler ran.
    Interrupted,
    /// The handler blocks its thread. It may still work on the message, so no other handler may
    /// yet.
    Abandoned,
    Uncalled(Uncalled),
}

/// What happens to a message whose handler is not called.
#[derive(Clone, Copy)]
pub(super) struct Uncalled {
    pub(super) disposition: Disposition,
    /// Its start tag in the line of the rate limit, if it waits there.
    pub(super) start_tag: Option<StartTag>,
}

impl Uncalled {
    /// The host ends.
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
    /// Nothing works on the event any more.
    Free,
    /// Something may still work on it, in the handler's thread or beyond.
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

    /// The evidence that the end of an attempt gives of the downstream service. A call that the end
    /// of the invocation cut short says nothing.
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
            Self::Failed(_)
            | Self::Unclear { .. }
            | Self::Abandoned
            | Self::Interrupted
            | Self::Uncalled(_) => Reply::Silent,
        }
    }

    pub(super) fn cause(&self) -> &str {
        match self {
            Self::Failed(failure) | Self::Unclear { failure, .. } => failure.detail(),
            Self::Abandoned => "the handler blocks its thread",
            Self::Done | Self::Interrupted | Self::Uncalled(_) => "",
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

    /// The same end for another message of the call.
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

/// The attempts of one batch.
pub(super) struct Attempts {
    pub(super) inner: Arc<Inner>,
    pub(super) deadlines: Deadlines,
    /// The span of the log lines.
    pub(super) invocation: Span,
}

impl Attempts {
    /// The turn of a delivery, now.
    pub(super) fn turn(&self) -> Turn {
        let Inner { clock, sampler, .. } = &*self.inner;
        let began = Instant::now();
        let (limit, at) = (self.deadlines.limit(began), clock.now());
        Turn { began, limit, at, sample: sampler.sample() }
    }

    pub(super) fn now(&self) -> SystemTime {
        self.inner.clock.now()
    }

    /// The decision about a delivery that no slot could take in time.
    pub(super) fn not_started(&self, delivery: &Arc<Delivery>) -> Decision {
        let turn = &self.turn();
        self.gate(delivery, turn).unwrap_or_else(|| {
            let late = self.deferred(delivery, Deferral::NoTimeLeft, turn.sample);
            self.decide(delivery, turn, Handled::Uncalled(late), None)
        })
    }

    /// The decision about a delivery whose handler blocks its thread, and the evidence of the
    /// downstream service.
    pub(super) fn abandoned(
        &self,
        delivery: &Arc<Delivery>,
        turn: &Turn,
        had_its_time: bool,
    ) -> (Decision, Reply) {
        let handled = Handled::Abandoned;
        let reply = handled.reply(had_its_time);
        (self.decide(delivery, turn, handled, None), reply)
    }

    /// Tells the change that an attempt made for others.
    pub(super) fn announce(&self, change: Change, cause: &str) {
        let is_enforced = self.inner.mode == Mode::Requeue;
        let event = match change {
            Change::Opened => Event::CircuitOpened { is_shared: false, is_enforced, cause },
            Change::OpenedForAll => {
                Event::CircuitOpened { is_shared: true, is_enforced: true, cause }
            }
            Change::Closed => Event::CircuitClosed { is_shared: false },
            Change::ClosedForAll => Event::CircuitClosed { is_shared: true },
        };
        self.invocation.in_scope(|| self.inner.observers.tell(&event));
    }

    /// Whether the host ends, so that no handler starts and no request to the table begins.
    pub(super) fn is_stopping(&self) -> bool {
        self.deadlines.stop.starting.is_cancelled()
    }

    /// Step 2, gate: the decision about a message that is settled without a call of its handler.
    pub(super) fn gate(&self, delivery: &Arc<Delivery>, turn: &Turn) -> Option<Decision> {
        let inner = &*self.inner;
        let QueuePolicy { policy, .. } = inner.policy(delivery);
        let Turn { began, at: now, sample, .. } = *turn;
        let decision =
            |disposition| Some(Decision::uncalled(Arc::clone(delivery), disposition, now, sample));
        if inner.has_lapsed(delivery) {
            return decision(Disposition::Release(ReleaseReason::Lapsed));
        }
        if inner.not_deleted.find(delivery, now).is_some() {
            return decision(Disposition::Complete);
        }
        if self.is_stopping() {
            return decision(Disposition::Release(ReleaseReason::ShuttingDown));
        }
        let time_left =
            if began < self.deadlines.cutoff { TimeLeft::Enough } else { TimeLeft::TooLittle };
        let dead_letter = inner.planner(delivery).dead_letter_mode(delivery, now);
        let dead_lettered = inner.dead_lettered.find(delivery, now);
        let reason = dead_lettered.as_ref().map(|dead_lettered| dead_lettered.reason);
        if let Some(disposition) =
            gate(policy, dead_letter, delivery, reason, now, time_left, sample)
        {
            let is_sent = matches!(disposition, Disposition::DeadLetter(_))
                && *dead_letter != DeadLetterMode::Redrive;
            let failure =
                dead_lettered.and_then(|dead_lettered| dead_lettered.failure).filter(|_| is_sent);
            return decision(disposition).map(|decision| Decision { failure, ..decision });
        }
        let objection = delivery.defect.as_ref().or(delivery.refusal.as_ref())?.clone();
        let decision = self.decide(delivery, turn, Handled::Failed(objection), None);
        Some(Decision { elapsed: None, ..decision })
    }

    /// Step 5, decide: from the end of a handler to the disposition of its message. `least_wait` is
    /// known of a message whose service serves nobody.
    pub(super) fn decide(
        &self,
        delivery: &Arc<Delivery>,
        turn: &Turn,
        handled: Handled,
        least_wait: Option<Duration>,
    ) -> Decision {
        let QueuePolicy { policy, .. } = self.inner.policy(delivery);
        let Turn { began, sample, .. } = *turn;
        let now = self.now();
        let decided = |disposition| Decision {
            elapsed: Some(began.elapsed()),
            ..Decision::uncalled(Arc::clone(delivery), disposition, now, sample)
        };
        match handled {
            Handled::Done => decided(Disposition::Complete),
            Handled::Failed(failure) => {
                let usage = delivery.usage();
                let mut disposition = policy::decide(policy, &usage, &failure, now, sample);
                if let Some(least) = least_wait {
                    disposition =
                        policy::unserved(policy, &usage, &failure, disposition, least, now);
                }
                Decision { failure: Some(failure), ..decided(disposition) }
            }
            Handled::Unclear { failure, .. } => {
                let (failure, disposition) = policy::unclear(policy, failure, now, sample);
                Decision { failure: Some(failure), ..decided(disposition) }
            }
            Handled::Interrupted => decided(Disposition::Release(ReleaseReason::ShuttingDown)),
            Handled::Abandoned => decided(Disposition::Release(ReleaseReason::Abandoned)),
            Handled::Uncalled(Uncalled { disposition, start_tag }) => {
                Decision { elapsed: None, start_tag, ..decided(disposition) }
            }
        }
    }

    /// Defers a message whose handler could not be called.
    pub(super) fn deferred(&self, delivery: &Delivery, why: Deferral, sample: f64) -> Uncalled {
        let QueuePolicy { policy, .. } = self.inner.policy(delivery);
        policy::defer(policy, why, delivery.deferrals(), self.now(), sample).into()
    }
}

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
