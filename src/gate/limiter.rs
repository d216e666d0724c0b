//! The rate limits of the scopes. All batches of an execution environment share them. It decides by
//! its arguments alone and reads no clock.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::scope::Scope;
use crate::limit::{Admission, Ask, KnownLimit, LimitState};
use crate::policy::RateLimit;

/// The most scopes with a limit of their own. If so many are in use, further ones share one limit.
const MAX_SCOPES: usize = 10_000;

/// The limits of all scopes.
#[derive(Default)]
pub(crate) struct Limiter {
    scopes: Mutex<Scopes>,
}

#[derive(Default)]
struct Scopes {
    own: HashMap<Scope, LimitState>,
    others: LimitState,
}

impl Limiter {
    /// Admits one message, which can wait for its slot as long as `longest`.
    pub(crate) fn admit(
        &self,
        scope: Scope,
        limit: &RateLimit,
        ask: Ask,
        longest: Duration,
        now: SystemTime,
    ) -> Admission {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        scopes.of(scope, now).admit(limit, ask, longest, now)
    }

    /// Notes that the service refused a call.
    pub(crate) fn refused(
        &self,
        scope: Scope,
        limit: &RateLimit,
        asked: SystemTime,
        now: SystemTime,
    ) {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        let state = scopes.of(scope, now);
        *state = state.refused(&KnownLimit::own(limit), asked, now).unwrap_or(*state);
    }
}

impl Scopes {
    fn of(&mut self, scope: Scope, now: SystemTime) -> &mut LimitState {
        if self.own.len() >= MAX_SCOPES && !self.own.contains_key(&scope) {
            self.own.retain(|_, state| !state.is_idle(now));
            if self.own.len() >= MAX_SCOPES {
                return &mut self.others;
            }
        }
        self.own.entry(scope).or_default()
    }
}
