//! What a batch looks like from outside: log lines, computed from its report alone.

use tokio::time::Instant;
use tracing::{Level, event, info, warn};

use crate::disposition::Disposition;
use crate::report::{Outcome, Report, Settlement};

/// One line for each message that did not simply complete, and one for the batch. When `until` has come the lines of messages end:
/// an answer that is late for the sake of its log would be worth nothing.
pub(crate) fn observe(report: &Report, until: Instant) {
    let mut counts = Counts::default();
    let mut unsaid = 0_usize;
    for outcome in &report.outcomes {
        counts.add(outcome);
        if matches!((&outcome.disposition, &outcome.settlement), (Disposition::Complete, Settlement::Done)) {
            continue;
        }
        if Instant::now() < until {
            observe_message(outcome);
        } else {
            unsaid += 1;
        }
    }
    if unsaid > 0 {
        warn!(messages = unsaid, "no time to log every message");
    }
    let stuck = report.outcomes.iter().filter(|outcome| outcome.is_stuck);
    if let Some(receive_count) = stuck.clone().map(|outcome| outcome.receive_count).max() {
        warn!(
            messages = stuck.count(),
            receiveCount = receive_count,
            "received so often and still not moved: the queue seems to have no redrive policy, and what is given up there vanishes \
             when its retention ends"
        );
    }
    info!(
        received = report.outcomes.len(),
        completed = counts.completed,
        requeued = counts.requeued,
        deferred = counts.deferred,
        released = counts.released,
        deadLettered = counts.dead_lettered,
        sendUnconfirmed = counts.send_unconfirmed,
        deleteFailed = counts.delete_failed,
        elapsedMs = millis(report.elapsed),
        "batch"
    );
}

fn observe_message(outcome: &Outcome) {
    macro_rules! line {
        ($level:expr) => {
            event!(
                $level,
                messageId = outcome.message_id,
                originalMessageId = outcome.original_message_id.as_deref().map(bounded),
                retryCount = outcome.retry_count,
                hops = outcome.hops,
                receiveCount = outcome.receive_count,
                class = outcome.class.map(|class| class.as_str()),
                disposition = outcome.disposition.as_str(),
                why = outcome.disposition.why(),
                delaySeconds = outcome.disposition.wait().map(|wait| wait.total().as_secs()),
                reason = outcome.reason,
                settlement = outcome.settlement.as_str(),
                code = outcome.settlement.code(),
                elapsedMs = outcome.elapsed.map(millis),
                "message"
            )
        };
    }
    match &outcome.settlement {
        Settlement::Unconfirmed { .. } | Settlement::KeptNotDelayed { .. } | Settlement::MovedNotDeleted { .. } => {
            line!(Level::WARN);
        }
        Settlement::Done | Settlement::Kept | Settlement::Moved => line!(Level::INFO),
    }
}

/// An id of SQS has at most 100 characters; what a producer forged may have more. Source: SQS developer guide, "Identifiers".
fn bounded(id: &str) -> &str {
    const MAX_LEN: usize = 100;
    &id[..id.floor_char_boundary(MAX_LEN)]
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Default)]
struct Counts {
    completed: usize,
    requeued: usize,
    deferred: usize,
    released: usize,
    dead_lettered: usize,
    send_unconfirmed: usize,
    delete_failed: usize,
}

impl Counts {
    fn add(&mut self, outcome: &Outcome) {
        match outcome.disposition {
            Disposition::Complete => self.completed += 1,
            Disposition::Requeue { .. } => self.requeued += 1,
            Disposition::Defer { .. } => self.deferred += 1,
            Disposition::Release(_) => self.released += 1,
            Disposition::DeadLetter(_) | Disposition::Annotate(_) | Disposition::Direct(_) => self.dead_lettered += 1,
        }
        match outcome.settlement {
            Settlement::Unconfirmed { .. } => self.send_unconfirmed += 1,
            Settlement::MovedNotDeleted { .. } => self.delete_failed += 1,
            Settlement::Done | Settlement::Kept | Settlement::KeptNotDelayed { .. } | Settlement::Moved => {}
        }
    }
}
