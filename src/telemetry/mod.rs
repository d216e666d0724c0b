//! Log lines and metrics of a batch, computed from its report alone.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tracing::{Level, Span, error, event, field, info, info_span, warn};

use crate::delivery::Delivery;
use crate::disposition::{Deferral, Disposition};
use crate::printable;
use crate::report::{Outcome, Report, Settlement, millis};
use crate::settings::Metrics;

mod metrics;
mod counts;
mod emf;

use counts::Counts;

/// The metrics of the batch, one line for each message that did not simply complete, and one line
/// for the batch. At `until` the lines of messages end, since a response that is late because of
/// its log is useless.
pub(crate) fn observe(report: &Report, metrics: Option<&Metrics>, now: SystemTime, until: Instant) {
    if let Some(settings) = metrics {
        metrics::emit(report, settings, now);
    }
    let mut counts = Counts::default();
    let mut unsaid = 0_usize;
    for outcome in &report.outcomes {
        counts.add(outcome);
        let is_complete = matches!(
            (&outcome.disposition, &outcome.settlement),
            (Disposition::Complete, Settlement::Done)
        );
        if is_complete && !outcome.once.is_already_done {
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
            "high receive count: the queue seems to have no redrive policy, so SQS deletes a message that is given up when its \
             retention ends; check the queue's redrive policy"
        );
    }
    if has_no_thread(report) {
        error!(
            messages = report.outcomes.len(),
            "no handler could start: handlers that block their threads have taken all of them. Only a new execution environment \
             has threads again; give a call that blocks a timeout and tokio::task::spawn_blocking"
        );
    }
    info!(
        received = counts.received,
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

/// Whether a batch had time, and none of its handlers could start.
fn has_no_thread(report: &Report) -> bool {
    /// Many times the time in which a free thread starts a handler.
    const HAD_TIME: Duration = Duration::from_secs(1);
    let not_started = |outcome: &Outcome| {
        matches!(outcome.disposition, Disposition::Defer { why: Deferral::NoTimeLeft, .. })
    };
    report.elapsed >= HAD_TIME
        && !report.outcomes.is_empty()
        && report.outcomes.iter().all(not_started)
}

/// The span in which the handler of a message runs. It puts the ids of the message and of the
/// invocation into the handler's own log lines.
pub(crate) fn span(invocation: &Span, delivery: &Delivery) -> Span {
    info_span!(
        parent: invocation,
        "message",
        messageId = delivery.message_id.as_deref().map(bounded).as_deref(),
        originalMessageId = delivery.original_id().map(bounded).as_deref(),
        retryCount = delivery.retries(),
        receiveCount = delivery.receive_count
    )
}

/// Corrects the count in the span of a message, which is the current one.
pub(crate) fn correct_count(delivery: &Delivery) {
    Span::current().record("retryCount", delivery.retries());
}

fn observe_message(outcome: &Outcome) {
    macro_rules! line {
        ($level:expr) => {
            event!(
                $level,
                messageId = outcome.message_id.as_deref().map(bounded).as_deref(),
                originalMessageId = outcome.original_message_id.as_deref().map(bounded).as_deref(),
                retryCount = outcome.retry_count,
                hops = outcome.hops,
                receiveCount = outcome.receive_count,
                class = outcome.class.map(|class| class.as_str()),
                disposition = outcome.disposition.as_str(),
                why = outcome.why(),
                retryProgress = outcome.retry.map(|retry| field::display(retry)),
                delaySeconds = outcome.disposition.wait().map(|wait| wait.total().as_secs()),
                delayBeforeJitterSeconds =
                    outcome.retry.map(|retry| retry.delay_before_jitter.as_secs_f64()),
                reason = outcome.reason,
                settlement = outcome.settlement.as_str(),
                code = outcome.settlement.code(),
                elapsedMs = outcome.elapsed.map(millis),
                "message"
            )
        };
    }
    match &outcome.settlement {
        Settlement::Unconfirmed { .. }
        | Settlement::KeptNotDelayed { .. }
        | Settlement::MovedNotDeleted { .. } => {
            line!(Level::WARN);
        }
        Settlement::Done | Settlement::Kept | Settlement::Moved => line!(Level::INFO),
    }
}

/// An id of SQS has at most 100 characters, all of them printable. An id that a producer forged may
/// have more, and others. Source: SQS developer guide, "Identifiers".
fn bounded(id: &str) -> Cow<'_, str> {
    const MAX_LEN: usize = 100;
    printable::start_of_line(id, MAX_LEN)
}

#[cfg(test)]
mod tests;
