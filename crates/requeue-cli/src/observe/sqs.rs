//! SQS, by the requests and the log of the worker: whether it responds, whether receiving fails and
//! when the worker tries again, and how many messages it could not settle.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use requeue::aws::{CONNECTION_LOST, UNREADABLE, is_unconnected};
use tokio::time::Instant;

use super::event::short_id;
use crate::failed_call::{is_denied, is_of_credentials};
use crate::silence::Requests;

pub(super) const TROUBLE_LINES: Duration = Duration::from_secs(30);

/// Lines about one failure: the first at once, and then one in 30 s.
#[derive(Default)]
pub(crate) struct RareLines {
    written: Option<Instant>,
}

impl RareLines {
    /// Whether the next line is due, which is then written.
    pub(crate) fn is_due(&mut self) -> bool {
        let is_due = self.written.is_none_or(|written| written.elapsed() >= TROUBLE_LINES);
        if is_due {
            self.written = Some(Instant::now());
        }
        is_due
    }

    /// The failure is over. Returns whether a line reported it.
    pub(crate) fn end(&mut self) -> bool {
        self.written.take().is_some()
    }
}

/// The lines about such messages at once.
const MAX_UNSETTLED: usize = 3;
/// How long messages that were not settled are shown.
const TOLD: Duration = Duration::from_secs(30);

/// The library's codes for a request without a response.
const TIMED_OUT: &str = "TimedOut";
/// The library's code for an entry that a response does not mention.
const UNCONFIRMED: &str = "Unconfirmed";

/// Whether a request that failed with this code of the library may have taken effect: SQS did not
/// respond, or not about each message. A gateway responds without a code of SQS.
pub(super) fn may_be_carried_out(code: &str) -> bool {
    [TIMED_OUT, CONNECTION_LOST, UNREADABLE, UNCONFIRMED].contains(&code)
        || code.starts_with("HTTP 5")
}

pub(super) const RECEIVE: &str = "sqs:ReceiveMessage";
pub(super) const DELETE: &str = "sqs:DeleteMessage";

#[derive(Default)]
pub(crate) struct Sqs {
    state: Mutex<SqsState>,
    pub(crate) requests: Requests,
}

#[derive(Default)]
pub(crate) struct SqsState {
    pub(crate) failing: Option<ReceivingTrouble>,
    /// By action and code, the latest last.
    unsettled: Vec<Unsettled>,
    /// Those that SQS may have stored, although it did not confirm them.
    pub(crate) copies_in_doubt: u64,
    /// Those without a response. If they took effect, SQS counts them for the messages.
    pub(crate) lost_receives: u64,
    request: Option<FailedRequest>,
    /// The endpoint, if SQS responded once.
    pub(crate) endpoint: Option<String>,
    pub(crate) max_receives: Option<u32>,
}

/// Messages whose send or delete SQS did not confirm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsettled {
    /// As in `sqs:DeleteMessage`; `None` if no request has failed.
    pub(crate) action: Option<&'static str>,
    pub(crate) queue: String,
    pub(crate) code: String,
    pub(crate) messages: u64,
    pub(crate) last_id: Option<String>,
    /// Whether they are dead letters: SQS counts each receive, so that its redrive policy moves them.
    pub(crate) are_dead: bool,
    last: Instant,
}

impl Unsettled {
    fn is_told(&self) -> bool {
        self.last.elapsed() < TOLD || is_denied(&self.code)
    }
}

struct FailedRequest {
    action: &'static str,
    queue: String,
    code: String,
    lines: RareLines,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceivingTrouble {
    pub(crate) endpoint: String,
    pub(crate) code: String,
    /// The receives in a row that failed, of all receivers.
    pub(crate) failures: u32,
    pub(crate) last: Instant,
    /// When the last receiver that failed tries again; `None` if none does.
    pub(crate) next_try: Option<Instant>,
}

impl Sqs {
    pub(crate) fn state(&self) -> MutexGuard<'_, SqsState> {
        self.state.lock()
    }

    pub(super) fn failed(&self, endpoint: &str, code: &str, pause: Duration) {
        let mut state = self.state.lock();
        state.lost_receives += u64::from(may_be_carried_out(code));
        let failing = &mut state.failing;
        let failures = failing.as_ref().map_or(0, |failing| failing.failures).saturating_add(1);
        let last = Instant::now();
        *failing = Some(ReceivingTrouble {
            endpoint: endpoint.to_owned(),
            code: code.to_owned(),
            failures,
            last,
            next_try: Some(last + pause),
        });
    }

    /// Notes a request of settling that failed. Returns whether a line about it is due.
    pub(crate) fn refused(&self, action: &'static str, queue: &str, code: &str) -> bool {
        let mut state = self.state.lock();
        let is_same = |before: &FailedRequest| before.action == action && before.code == code;
        let before = state.request.take().filter(is_same);
        let mut lines = before.map(|before| before.lines).unwrap_or_default();
        let is_due = lines.is_due();
        let (queue, code) = (queue.to_owned(), code.to_owned());
        state.request = Some(FailedRequest { action, queue, code, lines });
        is_due
    }

    /// Notes messages that were not settled. Without a code, they were not deleted.
    pub(crate) fn not_settled(&self, code: Option<&str>, id: Option<&str>, messages: u64) {
        self.stays(code, id, messages, false);
    }

    /// Notes a dead letter that was not sent. Unlike another original, it is not hidden.
    pub(crate) fn not_dead_lettered(&self, code: &str, id: Option<&str>) {
        self.stays(Some(code), id, 1, true);
    }

    fn stays(&self, code: Option<&str>, id: Option<&str>, messages: u64, are_dead: bool) {
        let mut state = self.state.lock();
        let is_cause = |request: &&FailedRequest| {
            code.map_or(request.action == DELETE, |code| code == request.code.as_str())
        };
        let request = state.request.as_ref().filter(is_cause);
        let action = request.map(|request| request.action);
        let queue = request.map(|request| request.queue.clone()).unwrap_or_default();
        let code = code.or(request.map(|request| request.code.as_str()));
        let code = code.unwrap_or("no confirmation").to_owned();
        let is_same =
            |one: &Unsettled| (one.action, &one.code, one.are_dead) == (action, &code, are_dead);
        state.unsettled.retain(Unsettled::is_told);
        let before = state.unsettled.iter().position(is_same);
        let before = before.map_or(0, |at| state.unsettled.remove(at).messages);
        let messages = messages.saturating_add(before);
        let (last_id, last) = (id.map(short_id), Instant::now());
        if state.unsettled.len() >= MAX_UNSETTLED {
            state.unsettled.remove(0);
        }
        state.unsettled.push(Unsettled { action, queue, code, messages, last_id, are_dead, last });
    }

    /// Requests for this action work. A missing permission is shown until then, and so are refused
    /// credentials; an earlier failure no longer causes later ones.
    pub(crate) fn carried_out(&self, action: &'static str) {
        let mut state = self.state.lock();
        let is_over = |one: &Unsettled| {
            is_of_credentials(&one.code) || one.action == Some(action) && is_denied(&one.code)
        };
        state.unsettled.retain(|one| !is_over(one));
        state.request.take_if(|request| request.action == action);
    }

    /// Notes copies that SQS may have stored. Another send of the same messages may succeed.
    pub(super) fn may_have_stored(&self, copies: usize) {
        self.state.lock().copies_in_doubt += u64::try_from(copies).unwrap_or(u64::MAX);
    }

    pub(crate) fn unsettled(&self) -> Vec<Unsettled> {
        let state = self.state.lock();
        state.unsettled.iter().filter(|one| one.is_told()).cloned().collect()
    }

    /// The failure of receiving. Since the next receive may wait for messages, the failure is also
    /// over if receives had no response, and another request had one since.
    pub(crate) fn trouble(&self) -> Option<ReceivingTrouble> {
        let state = self.state.lock();
        let trouble = state.failing.as_ref()?;
        let code = trouble.code.as_str();
        let is_silence = [CONNECTION_LOST, TIMED_OUT].contains(&code) || is_unconnected(code);
        let is_back = is_silence && self.requests.has_responded_since(trouble.last);
        (!is_back).then(|| trouble.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_CONNECTION: &str = "NoConnection: connection refused";

    #[tokio::test(start_paused = true)]
    async fn receives_without_a_response_are_no_trouble_after_another_response() {
        for (code, is_over) in [
            (NO_CONNECTION, true),
            (CONNECTION_LOST, true),
            ("TimedOut", true),
            ("AccessDenied", false),
        ] {
            let sqs = Sqs::default();
            sqs.requests.begin("describe", Duration::ZERO).responded();
            tokio::time::advance(Duration::from_secs(1)).await;
            sqs.failed("http://mq:1", code, Duration::from_secs(1));
            assert!(sqs.trouble().is_some());
            let request = sqs.requests.begin("describe", Duration::ZERO);
            tokio::time::advance(Duration::from_secs(1)).await;
            request.responded();
            assert_eq!(sqs.trouble().is_none(), is_over, "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_receives_that_reached_sqs_may_be_lost() {
        for (code, is_lost) in [(NO_CONNECTION, false), (CONNECTION_LOST, true), ("HTTP 503", true)]
        {
            let sqs = Sqs::default();
            sqs.failed("http://mq:1", code, Duration::from_secs(1));
            assert_eq!(sqs.state().lost_receives, u64::from(is_lost), "{code}");
        }
    }
}
