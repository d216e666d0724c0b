//! Requests to a service, and the time for which it has not responded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use requeue::queue::{CallError, CallErrorKind};
use tokio::time::Instant;

/// A response may take so long.
const SILENT: Duration = Duration::from_secs(2);

/// The requests that run; its clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<Mutex<Running>>);

#[derive(Default)]
struct Running {
    /// When the response to each request was due, and the wait that it asked for.
    due: BTreeMap<u64, (Instant, Duration)>,
    last: u64,
    /// The requests since the last response that ended without one.
    lost: Option<Lost>,
    last_response: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Lost {
    /// When the first response was due.
    due: Instant,
    /// When the last of them ended.
    ended: Instant,
}

/// A running request. If it is dropped before its end, there was no response.
pub(crate) struct Request {
    requests: Requests,
    number: u64,
}

impl Requests {
    /// A request begins, to which the service may respond after this wait.
    pub(crate) fn begin(&self, wait: Duration) -> Request {
        let mut running = self.lock();
        running.last += 1;
        let number = running.last;
        running.due.insert(number, (Instant::now() + wait, wait));
        Request { requests: self.clone(), number }
    }

    /// The time since the first response was due after the last one, if it is long. The next try of
    /// a request may follow after a pause.
    pub(crate) fn silence(&self) -> Option<Duration> {
        let running = self.lock();
        let is_over = |lost: &Lost| running.due.is_empty() && lost.ended.elapsed() > SILENT;
        let lost = running.lost.filter(|lost| !is_over(lost)).map(|lost| lost.due);
        let due = running.due.values().map(|(due, _)| *due);
        let since = due.chain(lost).min()?.elapsed();
        (since > SILENT).then_some(since)
    }

    /// Whether the service has responded to any request since then.
    pub(crate) fn has_responded_since(&self, time: Instant) -> bool {
        self.lock().last_response.is_some_and(|response| response > time)
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Request {
    /// The request has this result.
    pub(crate) fn ended<T>(self, result: Result<T, CallError>) -> Result<T, CallError> {
        let is_lost = |error: &CallError| error.kind == CallErrorKind::Ambiguous;
        if !result.as_ref().is_err_and(is_lost) {
            self.responded();
        }
        result
    }

    /// The service has responded.
    pub(crate) fn responded(self) {
        let mut running = self.requests.lock();
        running.due.remove(&self.number);
        // A service that stood still begins to wait now.
        let now = Instant::now();
        (running.lost, running.last_response) = (None, Some(now));
        for (due, wait) in
            running.due.values_mut().filter(|(due, wait)| *due < now && !wait.is_zero())
        {
            *due = now + *wait;
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut running = self.requests.lock();
        let now = Instant::now();
        if let Some((due, _)) = running.due.remove(&self.number).filter(|(due, _)| *due < now) {
            let due = running.lost.map_or(due, |lost| lost.due.min(due));
            running.lost = Some(Lost { due, ended: now });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_is_overdue_after_its_own_wait() {
        let requests = Requests::default();
        let receive = requests.begin(Duration::from_secs(20));
        tokio::time::advance(Duration::from_secs(17)).await;
        let delete = requests.begin(Duration::ZERO);
        assert_eq!(requests.silence(), None);
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(requests.silence(), Some(Duration::from_secs(4)));
        delete.responded();
        assert_eq!(requests.silence(), None);
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(requests.silence(), None, "it may have begun its wait with that response");
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(requests.silence(), Some(Duration::from_secs(3)));
        receive.responded();
        assert_eq!(requests.silence(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_silence_goes_on_through_the_tries_of_a_request() {
        let requests = Requests::default();
        let first = requests.begin(Duration::ZERO);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(first.ended::<()>(Err(CallError::ambiguous("TimedOut"))).is_err());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(requests.silence(), Some(Duration::from_secs(10)));
        let second = requests.begin(Duration::ZERO);
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(requests.silence(), Some(Duration::from_secs(14)));
        drop(second);
        tokio::time::advance(2 * SILENT).await;
        assert_eq!(requests.silence(), None, "nothing is asked");
        let refused = requests.begin(Duration::ZERO);
        assert!(refused.ended::<()>(Err(CallError::answered(403, "AccessDenied"))).is_err());
        let third = requests.begin(Duration::ZERO);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(requests.silence(), Some(Duration::from_secs(3)), "there was a response");
        third.responded();
    }
}
