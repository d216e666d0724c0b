//! One copy on its way back into the queue, and what is known of it.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::{Behind, Settled, Verdict};
use crate::disposition::{DeadLetterReason, Deferral, Delay, Disposition, Wait, whole_secs};
use crate::failure::{Failure, FailureClass, Reason};
use crate::message::{ANNOTATION_DELAY, Delivery};
use crate::queue::{MAX_BATCH_BYTES, Outgoing, QueueArn};
use crate::report::Settlement;
use crate::state::RetryState;
use crate::wire::{self, NotWrappable, Stamped, Wrap};

/// A verdict that asks for a copy, and that copy.
pub(super) struct Copy {
    pub(super) verdict: Verdict,
    to_fifo: bool,
    pub(super) fate: Fate,
    /// `None` when the body cannot carry the count.
    body: Option<Stamped>,
    /// Why the original could not be deleted.
    pub(super) not_deleted: Option<String>,
}

/// What is known of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// To be sent, or to be sent again after trouble of this code.
    Pending(Option<String>),
    /// SQS named it as sent.
    Confirmed,
    /// It cannot be sent, or not in time.
    Refused(String),
}

impl Copy {
    /// Builds the whole message to be sent to this queue before anything is done; what cannot be built is never sent.
    pub(super) fn new(verdict: Verdict, to: &QueueArn, wrap: Wrap) -> Self {
        let state = next_state(&verdict);
        let (fate, body) = match wire::stamp(verdict.delivery.payload(), &state, wrap) {
            Ok(body) => (Fate::Pending(None), Some(body)),
            Err(NotWrappable) => (Fate::Refused("NotWrappable".to_owned()), None),
        };
        let mut copy = Self { verdict, to_fifo: to.is_fifo(), fate, body, not_deleted: None };
        if copy.size() > MAX_BATCH_BYTES {
            copy.fate = Fate::Refused("MessageTooLong".to_owned());
        }
        copy
    }

    /// The bytes it takes in a request.
    pub(super) fn size(&self) -> usize {
        if self.is_pending() { self.outgoing().size() } else { 0 }
    }

    pub(super) fn is_pending(&self) -> bool {
        matches!(self.fate, Fate::Pending(_))
    }

    /// Whether it can be sent with as many words of a failure as there may be.
    pub(super) fn has_room_for_words(&self) -> bool {
        self.is_pending() && self.size() + Reason::MAX_BYTES <= MAX_BATCH_BYTES
    }

    /// Whether the rest of its group waits for it.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self.verdict.behind, Behind::Listening(_))
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.fate == Fate::Confirmed
    }

    /// Writes the time of sending into the body.
    pub(super) fn set_timestamp(&mut self, now: SystemTime) {
        if let Some(body) = &mut self.body {
            body.set_timestamp(now);
        }
    }

    pub(super) fn outgoing(&self) -> Outgoing<'_> {
        let delivery = &self.verdict.delivery;
        let id = delivery.message_id.as_deref().filter(|_| self.to_fifo);
        Outgoing {
            body: self.body.as_ref().map_or("", Stamped::as_str),
            delay: match self.verdict.disposition {
                Disposition::Annotate(_) => ANNOTATION_DELAY,
                other => other.wait().map_or(Delay::default(), |wait| wait.delay()),
            },
            attributes: &delivery.attributes,
            group_id: delivery.group_id.as_deref().or(id),
            // The same message is not twice in the dead-letter queue, though it should be sent there twice.
            deduplication_id: id,
        }
    }

    pub(super) fn receipt_handles(&self) -> &[String] {
        &self.verdict.delivery.receipt_handles
    }

    /// How long the original shall stay invisible when no copy can be sent; `None` leaves it to its visibility timeout.
    pub(super) fn fallback(&self) -> Option<Duration> {
        match self.verdict.disposition {
            Disposition::Requeue { fallback, .. } => Some(Duration::from_secs(whole_secs(fallback))),
            Disposition::Defer { wait, .. } => Some(wait.total()),
            Disposition::Complete
            | Disposition::Release(_)
            | Disposition::DeadLetter(_)
            | Disposition::Annotate(_)
            | Disposition::Direct(_) => None,
        }
    }

    pub(super) fn into_settled(self) -> Settled {
        let settlement = match (self.fate, self.not_deleted) {
            (Fate::Confirmed, None) => Settlement::Moved,
            (Fate::Confirmed, Some(code)) => Settlement::MovedNotDeleted { code },
            (Fate::Refused(code) | Fate::Pending(Some(code)), _) => Settlement::Unconfirmed { code },
            (Fate::Pending(None), _) => Settlement::Unconfirmed { code: "NotSent".to_owned() },
        };
        let mut verdict = self.verdict;
        if let (Behind::Listening(moved), false) =
            (std::mem::replace(&mut verdict.behind, Behind::Nobody), settlement.is_kept())
        {
            // Whoever listened may have run out of time.
            let _ = moved.send(());
        }
        Settled { verdict, settlement }
    }
}

/// The state that the copy carries.
fn next_state(verdict: &Verdict) -> RetryState {
    let Verdict { delivery, disposition, failure, at, .. } = verdict;
    let class = failure.as_ref().map(Failure::class);
    let mut state = delivery.state.clone();
    state.original_message_id = delivery.original_id().map(str::to_owned);
    state.first_sent = Some(delivery.first_sent);
    state.first_received = Some(delivery.first_received);
    state.lineage = delivery.lineage.map_or(0, |lineage| lineage.saturating_add(1));
    state.not_before = disposition.wait().and_then(|wait: Wait| wait.not_before());
    match disposition {
        Disposition::Requeue { wait, .. } => {
            state.retry_count = delivery.retries().saturating_add(1);
            state.deferrals = 0;
            state.postponements = 0;
            state.delay = Some(wait.total());
            state.class = class;
            if let Some(class) = class {
                let count = &mut state.counts[class as usize];
                *count = count.saturating_add(1);
            }
        }
        Disposition::Defer { why: Deferral::NotDue, .. } => state.hops = state.hops.saturating_add(1),
        Disposition::Defer {
            why:
                Deferral::Paused
                | Deferral::CircuitOpen
                | Deferral::NoTimeLeft
                | Deferral::Unreportable
                | Deferral::SenderUnknown,
            ..
        } => {
            state.deferrals = state.deferrals.saturating_add(1);
        }
        Disposition::Defer { why: Deferral::Postponed, .. } => {
            state.deferrals = 0;
            state.postponements = state.postponements.saturating_add(1);
        }
        Disposition::Complete | Disposition::Release(_) | Disposition::DeadLetter(_) => {}
        Disposition::Annotate(reason) => state.dead_letter = Some(annotation(delivery, *reason, failure.as_ref(), *at)),
        Disposition::Direct(reason) => {
            // What was given up long ago says why already.
            state.dead_letter.get_or_insert_with(|| annotation(delivery, *reason, failure.as_ref(), *at));
            // SQS notes it only for what it moves itself.
            state.source = delivery.queue.as_ref().map(ToString::to_string);
        }
    }
    state
}

/// Why a message was given up, as the reader of the dead-letter queue finds it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Annotation<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
    reason: &'static str,
    /// The failure's own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    retry_count: u32,
    failed_at: String,
}

fn annotation(delivery: &Delivery, reason: DeadLetterReason, failure: Option<&Failure>, at: SystemTime) -> String {
    let class = failure.map(Failure::class).or(delivery.state.class).map(FailureClass::as_str);
    let annotation = Annotation {
        class,
        reason: reason.as_str(),
        detail: failure.map(Failure::reason),
        retry_count: delivery.retries(),
        failed_at: wire::timestamp_text(at),
    };
    serde_json::to_string(&annotation).expect("texts and a number are JSON")
}
