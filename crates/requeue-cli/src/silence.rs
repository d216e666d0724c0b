//! Requests to a service, and the time for which it has not responded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A response may take so long.
const SILENT: Duration = Duration::from_secs(2);

/// The requests that run; its clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<Mutex<Running>>);

#[derive(Default)]
struct Running {
    /// When the response to each request was due.
    due: BTreeMap<u64, Instant>,
    last: u64,
}

/// A running request. The service has responded if it is dropped.
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
        running.due.insert(number, Instant::now() + wait);
        Request { requests: self.clone(), number }
    }

    /// The time since the first response was due, if it is long.
    pub(crate) fn silence(&self) -> Option<Duration> {
        let since = self.lock().due.values().min()?.elapsed();
        (since > SILENT).then_some(since)
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.requests.lock().due.remove(&self.number);
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
        drop(delete);
        assert_eq!(requests.silence(), None);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(requests.silence(), Some(Duration::from_secs(10)));
        drop(receive);
        assert_eq!(requests.silence(), None);
    }
}
