//! The downstream service, by the calls of the handler: the reason of the last failure of each
//! scope, and whether it responds at all.

use std::collections::HashMap;
use std::time::Duration;

use requeue::{Failure, Scope};
use tokio::time::Instant;

/// The scopes whose last failure is remembered.
const MAX_SCOPES: usize = 1_000;
/// Calls in a row without a response from which on the service is in trouble. Fewer may be one
/// broken connection.
const TROUBLE: u32 = 3;

#[derive(Default)]
pub(crate) struct Downstream {
    reasons: HashMap<Scope, String>,
    silent: Option<Silent>,
}

/// Calls in a row without a response.
struct Silent {
    calls: u32,
    since: Instant,
    cause: String,
}

/// A service that does not respond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DownstreamTrouble {
    pub(crate) cause: String,
    /// The calls in a row without a response.
    pub(crate) calls: u32,
    pub(crate) lasted: Duration,
}

impl Downstream {
    /// Notes the end of a call.
    pub(super) fn note(&mut self, scope: Scope, ended: Result<(), &Failure>) {
        let Err(failure) = ended else {
            self.silent = None;
            return;
        };
        // The reasons matter only while their scopes are held, so old ones may go.
        if self.reasons.len() >= MAX_SCOPES && !self.reasons.contains_key(&scope) {
            self.reasons.clear();
        }
        self.reasons.insert(scope, failure.reason().to_owned());
        if is_response(failure) {
            self.silent = None;
        } else {
            self.unanswered(failure.reason());
        }
    }

    /// Notes a call without a response.
    pub(super) fn unanswered(&mut self, cause: &str) {
        let (calls, since) =
            self.silent.as_ref().map_or((0, Instant::now()), |silent| (silent.calls, silent.since));
        self.silent =
            Some(Silent { calls: calls.saturating_add(1), since, cause: cause.to_owned() });
    }

    /// The reason of the last failure of a scope, in few words.
    pub(crate) fn reason(&self, scope: Scope) -> Option<&str> {
        self.reasons.get(&scope).map(String::as_str)
    }

    pub(crate) fn trouble(&self) -> Option<DownstreamTrouble> {
        let Silent { calls, since, cause } =
            self.silent.as_ref().filter(|silent| silent.calls >= TROUBLE)?;
        Some(DownstreamTrouble { cause: cause.clone(), calls: *calls, lasted: since.elapsed() })
    }
}

/// Whether the failure was concluded from a response. The reason of each of those begins with the
/// status.
fn is_response(failure: &Failure) -> bool {
    failure.reason().starts_with("status ")
}
