//! Requests to a service, and the time for which it has not responded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use requeue::queue::{CallError, CallErrorKind};
use tokio::time::Instant;

/// A response may take this long.
const SILENT: Duration = Duration::from_secs(2);

#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<Mutex<Running>>);

#[derive(Default)]
struct Running {
    requests: BTreeMap<u64, Due>,
    last: u64,
    /// By action, the requests since its last response that ended without one.
    lost: BTreeMap<&'static str, Lost>,
    last_response: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Silence {
    /// The time since the first response was due.
    pub(crate) since: Duration,
    /// The action that has none, if another one had a response meanwhile.
    pub(crate) action: Option<&'static str>,
}

/// When the response to a request was due.
struct Due {
    action: &'static str,
    at: Instant,
    /// The wait that the request asked for.
    wait: Duration,
}

#[derive(Clone, Copy)]
struct Lost {
    /// When the first response was due.
    due: Instant,
    ended: Instant,
}

/// A running request. If it is dropped before its end, there was no response.
pub(crate) struct Request {
    requests: Requests,
    number: u64,
}

impl Requests {
    /// A request for this action begins, to which the service may respond after this wait.
    pub(crate) fn begin(&self, action: &'static str, wait: Duration) -> Request {
        let mut running = self.0.lock();
        running.last += 1;
        let number = running.last;
        running.requests.insert(number, Due { action, at: Instant::now() + wait, wait });
        Request { requests: self.clone(), number }
    }

    /// A request without a response for long. The next try of a request may follow after a pause.
    pub(crate) fn silence(&self) -> Option<Silence> {
        let running = self.0.lock();
        let is_tried = |action| running.requests.values().any(|due| due.action == action);
        let goes_on = |(action, lost): &(&&'static str, &Lost)| {
            is_tried(**action) || lost.ended.elapsed() <= SILENT
        };
        let lost = running.lost.iter().filter(goes_on).map(|(action, lost)| (lost.due, *action));
        let due = running.requests.values().map(|due| (due.at, due.action));
        let (due, action) = due.chain(lost).min()?;
        let (since, other) = (due.elapsed(), running.last_response);
        let action = Some(action).filter(|_| other.is_some_and(|response| response > due));
        (since > SILENT).then_some(Silence { since, action })
    }

    pub(crate) fn has_responded_since(&self, time: Instant) -> bool {
        self.0.lock().last_response.is_some_and(|response| response > time)
    }
}

impl Request {
    pub(crate) fn ended<T>(self, result: Result<T, CallError>) -> Result<T, CallError> {
        let is_lost = |error: &CallError| error.kind == CallErrorKind::Ambiguous;
        if !result.as_ref().is_err_and(is_lost) {
            self.responded();
        }
        result
    }

    pub(crate) fn responded(self) {
        let mut running = self.requests.0.lock();
        let now = Instant::now();
        running.last_response = Some(now);
        let Some(own) = running.requests.remove(&self.number) else { return };
        running.lost.remove(own.action);
        if now.saturating_duration_since(own.at) <= SILENT {
            return;
        }
        running.lost.clear();
        // A service that had stopped begins to wait now.
        for due in running.requests.values_mut().filter(|due| due.at < now && !due.wait.is_zero()) {
            due.at = now + due.wait;
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut running = self.requests.0.lock();
        let now = Instant::now();
        if let Some(Due { action, at, .. }) =
            running.requests.remove(&self.number).filter(|due| due.at < now)
        {
            let due = running.lost.get(action).map_or(at, |lost| lost.due.min(at));
            running.lost.insert(action, Lost { due, ended: now });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(requests: &Requests) -> Option<Duration> {
        requests.silence().map(|silence| silence.since)
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_overdue_after_its_own_wait() {
        let requests = Requests::default();
        let receive = requests.begin("receive", Duration::from_secs(20));
        tokio::time::advance(Duration::from_secs(17)).await;
        let delete = requests.begin("sqs", Duration::ZERO);
        assert_eq!(since(&requests), None);
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(since(&requests), Some(Duration::from_secs(4)));
        delete.responded();
        assert_eq!(since(&requests), None);
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(since(&requests), None, "it may have begun its wait with that response");
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(since(&requests), Some(Duration::from_secs(3)));
        receive.responded();
        assert_eq!(since(&requests), None);
    }

    #[tokio::test(start_paused = true)]
    async fn other_actions_do_not_hide_one_without_a_response() {
        let (requests, long) = (Requests::default(), Duration::from_secs(20));
        for _ in 0..3 {
            let receive = requests.begin("receive", long);
            for _ in 0..6 {
                tokio::time::advance(Duration::from_secs(5)).await;
                requests.begin("describe", Duration::ZERO).responded();
            }
            drop(receive);
        }
        let receive = requests.begin("receive", long);
        let silence = Silence { since: Duration::from_secs(70), action: Some("receive") };
        assert_eq!(requests.silence(), Some(silence));
        receive.responded();
        assert_eq!(since(&requests), None);
        drop(requests.begin("receive", Duration::ZERO));
        tokio::time::advance(Duration::from_secs(5)).await;
        let late = requests.begin("describe", Duration::ZERO);
        drop(requests.begin("describe", Duration::ZERO));
        tokio::time::advance(Duration::from_secs(5)).await;
        late.responded();
        assert_eq!(requests.silence(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_silence_goes_on_through_the_tries_of_a_request() {
        let requests = Requests::default();
        let first = requests.begin("sqs", Duration::ZERO);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(first.ended::<()>(Err(CallError::ambiguous("TimedOut"))).is_err());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(since(&requests), Some(Duration::from_secs(10)));
        let second = requests.begin("sqs", Duration::ZERO);
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(since(&requests), Some(Duration::from_secs(14)));
        drop(second);
        tokio::time::advance(2 * SILENT).await;
        assert_eq!(since(&requests), None, "nothing is asked");
        let refused = requests.begin("sqs", Duration::ZERO);
        assert!(refused.ended::<()>(Err(CallError::responded(403, "AccessDenied"))).is_err());
        let third = requests.begin("sqs", Duration::ZERO);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(since(&requests), Some(Duration::from_secs(3)), "there was a response");
        third.responded();
    }
}
