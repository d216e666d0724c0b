//! A call of the downstream service: its message, and its evidence about the service.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime};

use crate::delivery::Delivery;
use crate::disposition::Deferral;
use crate::failure::{Evidence, Failure, FailureClass};

fn hash(key: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The same for all copies of one message.
    pub(crate) message: u64,
    pub(crate) failures: u32,
    pub(crate) since: SystemTime,
}

impl Caller {
    pub(crate) fn of(delivery: &Delivery) -> Self {
        Self {
            message: hash(&delivery.original_id()),
            failures: delivery.retries(),
            since: delivery.first_received,
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failures > 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotPermitted {
    pub(crate) why: Deferral,
    /// The rest of the pause, or the time until the circuit lets a message through. Zero while a
    /// probe runs.
    pub(crate) rest: Duration,
}

/// The evidence of a call about the downstream service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The service works.
    Alive,
    /// The service works, and asks for a pause.
    Paused(Duration),
    /// The service works, and takes no more calls for now.
    Refused,
    /// The service does not work, whatever the message.
    Unavailable,
    /// The service does not work, at least for this message.
    Down,
    /// The call is no evidence about the service.
    Silent,
    Uncalled,
}

/// A change that a call made for the messages of its scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Opened,
    Closed,
    /// A pause began, which also closed the circuit if that was open.
    Paused {
        was_open: bool,
    },
}

/// The effect of a call's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) change: Option<Change>,
    /// The time until messages of the scope may probe.
    pub(crate) rest: Duration,
    /// The least wait of the message, if the service serves no message. In that case its failure is
    /// no evidence about the message, and uses no retry.
    pub(crate) least_wait: Option<Duration>,
}

impl Reply {
    pub(crate) fn of(failure: &Failure) -> Self {
        if failure.is_call_refused() {
            return failure.delay().map_or(Self::Refused, Self::Paused);
        }
        match (failure.class(), failure.evidence(), failure.delay()) {
            // The message was not sent, or its result is unknown.
            (
                _,
                Evidence::Panic | Evidence::Unrecognised | Evidence::Body | Evidence::Connection,
                _,
            ) => Self::Silent,
            (FailureClass::NonRetryable, _, _) => Self::Alive,
            _ if failure.is_postponed() => Self::Alive,
            (FailureClass::RateLimit | FailureClass::Quota, _, Some(delay)) => Self::Paused(delay),
            (FailureClass::RateLimit | FailureClass::Quota, _, None) => Self::Refused,
            (FailureClass::Temporary, _, _) if failure.is_service_up() => Self::Alive,
            (FailureClass::Temporary, Evidence::TimeOut, _) => Self::Unavailable,
            (FailureClass::Temporary, _, _) if failure.is_service_down() => Self::Unavailable,
            (FailureClass::Temporary, _, _) => Self::Down,
        }
    }

    /// Whether the failure is evidence about the service: most likely any message would have
    /// failed.
    pub(crate) fn speaks_of_service(self) -> bool {
        match self {
            Self::Paused(_) | Self::Refused | Self::Unavailable => true,
            Self::Alive | Self::Down | Self::Silent | Self::Uncalled => false,
        }
    }
}

/// Whether the service refused a call because it accepts no more for now.
pub(crate) fn is_refused(failure: &Failure) -> bool {
    let is_said = match failure.evidence() {
        Evidence::Handler | Evidence::Rule | Evidence::Typed | Evidence::Text => true,
        Evidence::Unrecognised
        | Evidence::Body
        | Evidence::Connection
        | Evidence::Panic
        | Evidence::TimeOut => false,
    };
    is_said && failure.class() == FailureClass::RateLimit && !failure.is_postponed()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::classify::{Response, Rules};

    #[test]
    fn a_response_below_500_does_not_open_the_circuit() {
        let rule = |status| format!(r#"{{"match": {{"status": {status}}}, "class": "temporary"}}"#);
        let rules = format!(r#"{{"rules": [{}, {}]}}"#, rule(404), rule(500));
        let rules: Rules = rules.parse().expect("sound rules");
        let headers = [("retry-after", &b"3"[..])];
        for (status, reply) in [
            (0, Reply::Down),
            (399, Reply::Alive),
            (400, Reply::Alive),
            (404, Reply::Alive),
            (408, Reply::Alive),
            (409, Reply::Alive),
            (413, Reply::Alive),
            (425, Reply::Alive),
            (429, Reply::Paused(Duration::from_secs(3))),
            (500, Reply::Down),
            (501, Reply::Alive),
            (502, Reply::Unavailable),
            (503, Reply::Unavailable),
            (504, Reply::Unavailable),
            (520, Reply::Down),
            (522, Reply::Unavailable),
        ] {
            let response = Response { status, headers: &headers, body: b"" };
            let failure =
                rules.within(|| Failure::from_response(&response, SystemTime::UNIX_EPOCH));
            assert_eq!(Reply::of(&failure), reply, "{status}");
        }
    }
}
