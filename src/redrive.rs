//! Whether a message was redriven from a dead-letter queue, or is handled in one, so that it starts
//! afresh. It decides by the record and its retry state, and reads no clock.

use std::time::{Duration, SystemTime};

use crate::queue::Record;
use crate::settings::DeadLetterMode;
use crate::state::{REDRIVE_TOLERANCE, RetryState};
use crate::wire::{DeadLetter, DeadLetterInfo};

/// The state of a message that starts afresh if it was redriven, otherwise the unchanged state. A
/// time that SQS does not give is no evidence, so no message restarts because of it. A message that
/// SQS itself moved is in a dead-letter queue. Its consumer handles it anew and gets the reason for
/// which it is there.
pub(crate) fn restart_if_redriven(state: RetryState, record: &Record) -> RetryState {
    let Record { sent, first_received, was_dead_lettered, ref dead_letter_source, .. } = *record;
    let since = |from: Option<SystemTime>, to: Option<SystemTime>| to?.duration_since(from?).ok();
    let enqueued_later =
        since(state.retry_timestamp, sent).is_some_and(|later| later > REDRIVE_TOLERANCE);
    // An annotated copy that was received before its delay was over was sent by somebody else.
    // Within the tolerance, the clock alone cannot tell that. The limit is a second less, since SQS
    // does not promise a delay to the millisecond.
    let least = Duration::from_secs(u64::from(DeadLetterMode::ANNOTATION_DELAY.as_secs()) - 1);
    let received_too_soon =
        state.dead_letter.is_some() && since(sent, first_received).is_some_and(|time| time < least);
    let was_sent_elsewhere = state.source.is_some();
    let redriven = enqueued_later || received_too_soon || was_sent_elsewhere || was_dead_lettered;
    if !redriven || state.redrives >= DeadLetter::MAX_REDRIVES {
        return state;
    }
    let last_dead_letter = DeadLetterInfo::to_remember(
        &state,
        was_dead_lettered,
        dead_letter_source.as_ref().map(ToString::to_string),
    );
    // No documentation says that a redrive ends the row of copies.
    RetryState { copies_in_row: state.copies_in_row, ..state.restarted(last_dead_letter) }
}
