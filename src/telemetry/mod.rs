//! The two observers of every host: log lines and metrics. Those of a batch are computed from its
//! report alone.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use requeue_sqs::printable;
use tracing::{Level, Span, error, event, field, info, info_span, warn};

use crate::delay::whole_secs;
use crate::delivery::Delivery;
use crate::disposition::{Deferral, Disposition};
use crate::observer::{Event, Observer, Observers};
use crate::queue::QueueArn;
use crate::report::{Outcome, Report, Settlement, millis};
use crate::settings::Settings;

mod metrics;

use metrics::Counts;

/// Completes the observers of a processor with those of the host: metrics, and the log lines.
pub(crate) fn completed(settings: Settings) -> Settings {
    let Settings { metrics, observers, .. } = settings;
    let observers = metrics.into_iter().fold(observers, Observers::with).with_log(LogLines);
    Settings { metrics: None, observers, ..settings }
}

/// The observer that writes the log lines, by `tracing`. It writes one for each message that did
/// not simply complete, for each batch, and for each other event except [`Event::Received`] and
/// [`Event::Called`]. It has no fields, so write it as a literal.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogLines;

impl Observer for LogLines {
    fn observe(&self, event: &Event<'_>) {
        match *event {
            Event::Received { .. } | Event::Called { .. } => {}
            Event::Settled(outcome) if outcome.simply_completed() => {}
            Event::Settled(outcome) => log_message(outcome),
            Event::BatchSettled { report, untold, .. } => log_batch(report, untold),
            Event::CircuitOpened { is_enforced: false, scope, cause, .. } => warn!(
                %scope,
                cause,
                "circuit would open: REQUEUE_MODE is report, so every message is still handled"
            ),
            Event::CircuitOpened { scope, is_shared, cause, first_probe, .. } => warn!(
                event = "circuit-opened",
                %scope,
                isShared = is_shared,
                cause,
                firstProbe = %rfc3339(first_probe),
                "circuit opened: messages wait, and a few of them probe"
            ),
            Event::CircuitClosed { scope, is_shared } => {
                info!(event = "circuit-closed", %scope, isShared = is_shared, "circuit closed");
            }
            Event::Paused { scope, is_shared, class, cause, until } => info!(
                %scope,
                isShared = is_shared,
                class = class.as_str(),
                cause,
                until = %rfc3339(until),
                "paused: a failure named a delay, so messages wait"
            ),
            Event::TableThrottled => warn!(
                "the table of REQUEUE_TABLE is throttled: its messages are deferred, and use no retry"
            ),
            Event::TableUnavailable { code } => warn!(
                code,
                "the table of REQUEUE_TABLE does not respond: each execution environment makes no \
                 more calls than in the last 30 s"
            ),
            Event::DoneNotRecorded => warn!(
                "the table of REQUEUE_TABLE did not confirm that a message is done: a duplicate of \
                 it would be handled again"
            ),
            Event::AttemptNotCounted => warn!(
                "the table of REQUEUE_TABLE did not count an attempt: each receive of its message \
                 counts as a retry for now"
            ),
            Event::ReceivingFailed { queue, endpoint, code, attempts, pause, is_lasting } => {
                macro_rules! line {
                    ($level:ident, $text:literal) => {
                        $level!(%queue, endpoint, code, attempts, pauseMs = millis(pause), $text)
                    };
                }
                if is_lasting {
                    line!(error, "receiving fails");
                } else {
                    line!(warn, "receiving failed");
                }
            }
            Event::ReceivingWorks { queue, trouble } => {
                info!(%queue, troubleSeconds = trouble.as_secs(), "receiving works again");
            }
            Event::ReceivingStopped { queue, reason, rest } => info!(
                queue = queue.name(),
                reason = reason.as_str(),
                delaySeconds = whole_secs(rest),
                "receiving stopped: messages could only be deferred"
            ),
            Event::ReceivingResumed { queue } => info!(queue = queue.name(), "receiving resumed"),
            Event::NotExtended { queue, code, messages } => warn!(
                queue = queue.name(),
                code, messages, "the visibility of messages in flight was not extended"
            ),
            Event::NotDeleted { queue, messages } => warn!(
                queue = queue.name(),
                messages, "done or copied, but not deleted: SQS may deliver them again"
            ),
        }
    }
}

fn log_batch(report: &Report, untold: usize) {
    if untold > 0 {
        warn!(messages = untold, "no time to log every message");
    }
    let stuck = report.outcomes.iter().filter(|outcome| outcome.is_stuck);
    if let Some(receive_count) = stuck.clone().map(|outcome| outcome.receive_count).max() {
        warn!(
            messages = stuck.count(),
            receiveCount = receive_count,
            "high receive count: the queue seems to have no redrive policy, so SQS deletes a message that is dead-lettered when its \
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
    let mut counts = Counts::default();
    report.outcomes.iter().for_each(|outcome| counts.add(outcome));
    info!(
        queue = report.queue().map(QueueArn::name),
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

fn rfc3339(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or(Timestamp::MAX)
}

/// Whether a batch had time, and none of its handlers could start.
fn has_no_thread(report: &Report) -> bool {
    /// Many times the time in which a free thread starts a handler.
    const HAD_TIME: Duration = Duration::from_secs(1);
    let not_started = |outcome: &Outcome| {
        matches!(outcome.disposition, Disposition::Defer { reason: Deferral::NoTimeLeft, .. })
    };
    report.elapsed >= HAD_TIME
        && !report.outcomes.is_empty()
        && report.outcomes.iter().all(not_started)
}

/// The span in which the handler of a message runs, for the handler's own log lines.
pub(crate) fn span(invocation: &Span, delivery: &Delivery) -> Span {
    info_span!(
        parent: invocation,
        "message",
        queue = delivery.queue.as_deref().map(QueueArn::name),
        messageId = delivery.message_id.as_deref().map(bounded).as_deref(),
        originalMessageId = delivery.original_id().and_then(printable::message_id),
        retryCount = delivery.retries(),
        receiveCount = delivery.receive_count
    )
}

/// Corrects the count in the span of a message, which is the current one.
pub(crate) fn correct_count(delivery: &Delivery) {
    Span::current().record("retryCount", delivery.retries());
}

fn log_message(outcome: &Outcome) {
    macro_rules! line {
        ($level:expr) => {
            event!(
                $level,
                queue = outcome.queue.as_deref().map(QueueArn::name),
                messageId = outcome.message_id.as_deref().map(bounded).as_deref(),
                originalMessageId =
                    outcome.original_message_id.as_deref().and_then(printable::message_id),
                retryCount = outcome.retry_count,
                hops = outcome.hops,
                receiveCount = outcome.receive_count,
                class = outcome.class.map(|class| class.as_str()),
                disposition = outcome.disposition.as_str(),
                reason = outcome.reason(),
                limitKey = outcome.limit_key,
                retryProgress = outcome.retry.map(|retry| field::display(retry)),
                delaySeconds = outcome.disposition.wait().map(|wait| wait.total().as_secs()),
                delayBeforeJitterSeconds =
                    outcome.retry.map(|retry| retry.delay_before_jitter.as_secs_f64()),
                detail = outcome.detail,
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

/// An id of SQS has at most 100 characters, all of them printable. An event that no queue made may have
/// more, and others. Source: SQS developer guide, "Identifiers".
fn bounded(id: &str) -> Cow<'_, str> {
    const MAX_LEN: usize = 100;
    printable::start_of_line(id, MAX_LEN)
}

#[cfg(test)]
mod tests;
