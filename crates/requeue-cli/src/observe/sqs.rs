//! SQS, by the log of the worker: whether receiving fails and when the worker tries again, and how
//! many messages it could not settle.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long messages that were not settled are told.
const TOLD: Duration = Duration::from_secs(30);

/// The state of SQS; its clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Sqs(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    failing: Option<Failing>,
    unsettled: Option<Unsettled>,
}

/// Messages whose send or delete SQS did not confirm.
struct Unsettled {
    code: String,
    messages: u64,
    last: Instant,
}

/// Receives that failed in a row.
struct Failing {
    endpoint: String,
    code: String,
    failures: u32,
    next_try: Instant,
}

/// SQS that does not give messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceivingTrouble {
    pub(crate) endpoint: String,
    pub(crate) code: String,
    /// The receives in a row that failed, of all receivers.
    pub(crate) failures: u32,
    /// The time until the last receiver that failed tries again.
    pub(crate) next_try: Duration,
}

impl Sqs {
    pub(super) fn failed(&self, endpoint: &str, code: &str, pause: Duration) {
        let failing = &mut self.lock().failing;
        let failures = failing.as_ref().map_or(0, |failing| failing.failures).saturating_add(1);
        *failing = Some(Failing {
            endpoint: endpoint.to_owned(),
            code: code.to_owned(),
            failures,
            next_try: Instant::now() + pause,
        });
    }

    pub(super) fn works(&self) {
        self.lock().failing = None;
    }

    pub(super) fn not_settled(&self, code: &str) {
        let unsettled = &mut self.lock().unsettled;
        let before = unsettled.as_ref().filter(|before| before.last.elapsed() < TOLD);
        let messages = before.map_or(0, |before| before.messages).saturating_add(1);
        *unsettled = Some(Unsettled { code: code.to_owned(), messages, last: Instant::now() });
    }

    /// The code and the number of messages that were not settled lately.
    pub(crate) fn unsettled(&self) -> Option<(String, u64)> {
        let state = self.lock();
        let unsettled = state.unsettled.as_ref()?;
        (unsettled.last.elapsed() < TOLD).then(|| (unsettled.code.clone(), unsettled.messages))
    }

    pub(crate) fn trouble(&self) -> Option<ReceivingTrouble> {
        let state = self.lock();
        let Failing { endpoint, code, failures, next_try } = state.failing.as_ref()?;
        Some(ReceivingTrouble {
            endpoint: endpoint.clone(),
            code: code.clone(),
            failures: *failures,
            next_try: next_try.saturating_duration_since(Instant::now()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
