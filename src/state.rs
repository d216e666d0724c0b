//! The retry state of a message: the values of Requeue's fields in its body, and how each
//! disposition changes them. `wire/` knows their place in the body.

use std::time::{Duration, SystemTime};

use crate::failure::FailureClass;

/// If SQS's send time of a copy is this much later than Requeue's, somebody else sent it: an
/// operator's redrive.
pub(crate) const REDRIVE_TOLERANCE: Duration = Duration::from_secs(120);

/// The values of Requeue's fields in a body. See `docs/reference/wire-format.md`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RetryState {
    /// Copies sent so far for failures.
    pub(crate) retry_count: u32,
    /// The id of the first delivery; `None` until the first copy.
    pub(crate) original_message_id: Option<String>,
    /// When this copy was sent.
    pub(crate) retry_timestamp: Option<SystemTime>,
    pub(crate) first_sent: Option<SystemTime>,
    pub(crate) first_received: Option<SystemTime>,
    pub(crate) class: Option<FailureClass>,
    /// The delay after the last failure, in whole seconds.
    pub(crate) delay: Option<Duration>,
    /// Retries used per class, in the order of [`FailureClass::ALL`].
    pub(crate) counts: [u32; 4],
    /// The handler must not get the message earlier.
    pub(crate) not_before: Option<SystemTime>,
    /// The start tag in the waiting list of a rate limit.
    pub(crate) start_tag: Option<u64>,
    /// The beginning of the age of a message that waited for a rate limit.
    pub(crate) age_from: Option<SystemTime>,
    /// Copies sent since the last call for deferrals.
    pub(crate) deferrals: u32,
    /// Copies sent since the last failure, because the handler asked for a later time.
    pub(crate) postponements: u32,
    /// Copies sent on the way to a `not_before`.
    pub(crate) hops: u32,
    /// Copies in a row, as Lambda's loop detection counts them, if that is switched on.
    pub(crate) copies_in_row: u32,
    /// Whether it shares no call with other messages.
    pub(crate) is_alone: bool,
    /// How often an operator redrove the message from the dead-letter queue.
    pub(crate) redrives: u32,
    /// Why the message was dead-lettered, as JSON text.
    pub(crate) dead_letter: Option<String>,
    /// The queue from which the message was sent to the dead-letter queue directly.
    pub(crate) source: Option<String>,
    /// Why and where the message was dead-lettered before it was redriven or handled in a dead-letter
    /// queue, as JSON text. Only the handler reads it.
    pub(crate) last_dead_letter: Option<String>,
    /// The trace of the first delivery, if SQS kept one for X-Ray. On a copy SQS keeps that of the
    /// function, which is none of the producer's.
    pub(crate) traceparent: Option<String>,
    /// Fields that this version does not know, name and JSON text, in their order.
    pub(crate) unknown: Vec<(String, String)>,
}

impl RetryState {
    pub(crate) fn count(&self, class: FailureClass) -> u32 {
        self.counts[class as usize]
    }

    /// The message starts again, with all its retries and all its time. Only its first id, its
    /// trace, its redrives and the reason why it was dead-lettered remain.
    pub(crate) fn restarted(&self, last_dead_letter: Option<String>) -> Self {
        Self {
            original_message_id: self.original_message_id.clone(),
            redrives: self.redrives.saturating_add(1),
            last_dead_letter,
            traceparent: self.traceparent.clone(),
            unknown: self.unknown.clone(),
            ..Self::default()
        }
    }

    /// The message failed and is tried again. It had used `retries` before.
    pub(crate) fn note_retry(&mut self, retries: u32, class: Option<FailureClass>, wait: Duration) {
        self.retry_count = retries.saturating_add(1);
        self.note_failure(class, wait);
        if let Some(class) = class {
            let count = &mut self.counts[class as usize];
            *count = count.saturating_add(1);
        }
    }

    /// The message failed. If its service serves no message, it uses no retry.
    pub(crate) fn note_failure(&mut self, class: Option<FailureClass>, wait: Duration) {
        self.deferrals = 0;
        self.postponements = 0;
        self.start_tag = None;
        self.delay = Some(wait);
        self.class = class;
    }

    /// The message was deferred without a call.
    pub(crate) fn note_deferral(&mut self) {
        self.deferrals = self.deferrals.saturating_add(1);
    }

    /// The message waits for its rate limit until `end`, in the waiting list if it has a start tag.
    /// Time before its first call is no part of its age.
    pub(crate) fn note_rate_limit(&mut self, start_tag: Option<u64>, end: Option<SystemTime>) {
        match start_tag {
            Some(_) => {
                self.start_tag = start_tag;
                self.note_hop();
            }
            None => self.note_deferral(),
        }
        self.note_wait(end);
    }

    /// The message stays in the waiting list until `end`, since its service is paused.
    pub(crate) fn note_paused_in_line(&mut self, start_tag: u64, end: Option<SystemTime>) {
        self.start_tag = Some(start_tag);
        self.note_wait(end);
    }

    /// The table did not decide about the rate limit. The message keeps its start tag.
    pub(crate) fn note_deferred(&mut self, end: Option<SystemTime>) {
        self.note_hop();
        self.note_wait(end);
    }

    fn note_wait(&mut self, end: Option<SystemTime>) {
        if !self.was_called() {
            self.age_from = end;
        }
    }

    /// Whether a copy shows an earlier call.
    pub(crate) fn was_called(&self) -> bool {
        // A producer may set a count of its own, without a class.
        self.class.is_some() || self.postponements > 0
    }

    /// The message waits for its time.
    pub(crate) fn note_hop(&mut self) {
        self.hops = self.hops.saturating_add(1);
    }

    pub(crate) fn note_postponement(&mut self) {
        self.deferrals = 0;
        self.start_tag = None;
        self.postponements = self.postponements.saturating_add(1);
    }
}
