//! A call of the handler, how it ended, and what that says.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::deadlines::Turn;
use super::executor::{End, Runner, Slot};
use crate::delivery::Delivery;
use crate::disposition::Deferral;
use crate::failure::{Evidence, Failure, FailureClass};
use crate::fleet::{Acquisition, Admitted, Counted, Ticket};
use crate::gate::{Held, Reply, Scope, is_refused};
use crate::limit::Place;
use crate::policy::RateLimit;

/// A call that asks for permission.
pub(super) struct Call<'a, R: Runner> {
    pub(super) delivery: &'a Arc<Delivery>,
    pub(super) turn: &'a Turn,
    pub(super) slot: &'a Slot<R>,
    pub(super) scope: Scope,
    pub(super) limit: Option<&'a RateLimit>,
}

/// Leases, permissions and counts that a message took from the store for its call.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) event: Acquisition,
    /// Its attempt, until the handler is called.
    pub(super) attempt: Option<Counted>,
    pub(super) ticket: Option<Ticket>,
    /// Its service refused the call.
    pub(super) refused: Option<Refused>,
}

/// A call that its service refused, of an adaptive limit.
pub(super) struct Refused {
    pub(super) scope: Scope,
    pub(super) limit: RateLimit,
    /// When it asked for its slot.
    pub(super) asked: SystemTime,
}

impl Refused {
    pub(super) fn of(
        failure: &Failure,
        scope: Scope,
        limit: RateLimit,
        asked: SystemTime,
    ) -> Option<Self> {
        (limit.adaptive && is_refused(failure)).then_some(Self { scope, limit, asked })
    }
}

/// How a call of the handler ended.
pub(super) enum Handled {
    Done,
    Failed(Failure),
    /// A pause or an open circuit prevented the call.
    Held(Held),
    /// So it did, and the message waits in the line of the rate limit until this time.
    HeldInLine(Deferral, Place, SystemTime),
    /// The rate limit has no slot soon enough.
    Limited(Admitted),
    /// The event is done.
    AlreadyDone,
    /// Another attempt may handle the event for so long.
    InProgress(Duration),
    /// The store does not say whether the event is done.
    Unanswered,
    /// The store says that all attempts were made.
    Spent,
    /// Other handlers blocked every thread: this one was not called, and will not be.
    NotStarted,
    /// The host ends, and the handler is not called.
    Stopped,
    /// The host ends, and the handler ran.
    Interrupted,
    /// The handler blocks its thread. It may still work on the message, so no other handler may
    /// yet.
    Abandoned,
}

impl Handled {
    pub(super) fn ended(why: End) -> Self {
        match why {
            End::TimeOut => Self::Failed(Failure::new(
                FailureClass::Temporary,
                Evidence::TimeOut,
                "the handler ran out of time",
            )),
            End::Stop => Self::Interrupted,
            End::Abandoned => Self::Abandoned,
        }
    }

    pub(super) fn panicked() -> Self {
        Self::Failed(Failure::new(FailureClass::Temporary, Evidence::Panic, "the handler panicked"))
    }

    pub(super) fn was_called(&self) -> bool {
        self.evidence(true).is_some()
    }

    /// The evidence that the end of a call gives of the downstream service. A call that the end of
    /// the invocation cut short says nothing.
    pub(super) fn reply(&self, had_its_time: bool) -> Reply {
        self.evidence(had_its_time).unwrap_or(Reply::Silent)
    }

    /// The same; `None` without a call.
    fn evidence(&self, had_its_time: bool) -> Option<Reply> {
        match self {
            Self::Done => Some(Reply::Alive),
            Self::Failed(failure) if had_its_time || failure.evidence() != Evidence::TimeOut => {
                Some(Reply::of(failure))
            }
            Self::Abandoned if had_its_time => Some(Reply::Down),
            Self::Failed(_) | Self::Abandoned | Self::Interrupted => Some(Reply::Silent),
            Self::Held(_)
            | Self::HeldInLine(..)
            | Self::Limited(_)
            | Self::AlreadyDone
            | Self::InProgress(_)
            | Self::Unanswered
            | Self::Spent
            | Self::Stopped
            | Self::NotStarted => None,
        }
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
    /// The meaning of an attempt's end for its event.
    pub(super) fn end_of_event(&self) -> Ended {
        match self {
            Self::Done => Ended::Done,
            Self::Failed(failure) if failure.is_in_doubt() => Ended::Unknown,
            Self::Interrupted | Self::Abandoned => Ended::Unknown,
            Self::Failed(_)
            | Self::Held(_)
            | Self::HeldInLine(..)
            | Self::Limited(_)
            | Self::Stopped
            | Self::NotStarted
            | Self::Spent
            | Self::AlreadyDone
            | Self::InProgress(_)
            | Self::Unanswered => Ended::Free,
        }
    }
}
