//! A delivery: a record decoded into the body as first delivered, the retry state and the number of
//! the attempt. Gate, policy and settling use it; the handler sees `message`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use crate::classify::Allowance;
use crate::clock::Clock;
use crate::disposition::Strategy;
use crate::failure::Failure;
use crate::observer::Event;
use crate::policy::Usage;
use crate::producer::MessageLimits;
use crate::queue::{Attribute, QueueArn, Record};
use crate::state::RetryState;
use crate::trace;

mod decode;

pub(crate) use decode::Decoder;

/// After this many copies in a row, a message waits with its visibility timeout, unless Lambda
/// allows loops. Lambda's loop detection counts to about 16, by the invocation. Source: Lambda
/// developer guide, "Use Lambda recursive loop detection to prevent infinite loops".
pub(crate) const MAX_COPIES_IN_ROW: u32 = 10;

pub(crate) struct Delivery {
    pub(crate) position: usize,
    pub(crate) message_id: Option<String>,
    /// The receipt handle of this delivery first, then those of further deliveries of the same
    /// message in the same batch.
    pub(crate) receipt_handles: Vec<String>,
    pub(crate) queue: Option<Arc<QueueArn>>,
    pub(crate) strategy: Strategy,
    /// Copies in a row up to this one, as Lambda's loop detection counts them; `None` if that is
    /// switched off.
    pub(crate) copies_in_row: Option<u32>,
    /// Whether it waits with its visibility timeout only because of other messages of its batch.
    waits_for_others: bool,
    /// The receive count by SQS, which continues when a redrive policy moves a message.
    pub(crate) receive_count: u32,
    /// Receives before it reached this queue, as far as they are known.
    receives_before: u32,
    /// Receives that were waits for its own time, the first ones in this queue.
    waits: u32,
    /// Receives that were waits for a predecessor's time.
    waits_behind: u32,
    /// Attempts before this one, if the table counted them.
    counted: OnceLock<u32>,
    /// Facts that its handler gave to rate limits. Most handlers give none.
    said: OnceLock<Box<Said>>,
    pub(crate) first_sent: SystemTime,
    pub(crate) first_received: SystemTime,
    pub(crate) sent: SystemTime,
    pub(crate) copy_first_received: Option<SystemTime>,
    pub(crate) group_id: Option<String>,
    /// The sender's trace for X-Ray. That of a copy is not its producer's.
    pub(crate) trace_header: Option<String>,
    pub(crate) attributes: BTreeMap<String, Attribute>,
    pub(crate) event: Option<Arc<str>>,
    pub(crate) state: RetryState,
    pub(crate) limits: MessageLimits,
    /// Why no handler can get this record.
    pub(crate) defect: Option<Failure>,
    /// Why no handler may get this record, although it is complete.
    pub(crate) refusal: Option<Failure>,
    /// It has Requeue's fields, and it is not known yet whether their sender is trusted.
    pub(crate) is_unverified: bool,
    /// A later version of this library wrote the message's state.
    pub(crate) is_of_later_version: bool,
    payload: String,
}

impl Delivery {
    /// Adds a further delivery of the same message. SQS accepts the handle of the latest receive.
    pub(crate) fn join(&mut self, mut other: Self) {
        if other.receive_count > self.receive_count {
            std::mem::swap(self, &mut other);
        }
        self.position = self.position.min(other.position);
        self.receipt_handles.append(&mut other.receipt_handles);
    }

    /// Notes the message before it in its FIFO group.
    pub(crate) fn wait_behind(&mut self, predecessor: &Self) {
        let attempts = predecessor.receives_here().saturating_sub(predecessor.waits());
        let together = self.receives_here().saturating_sub(attempts);
        self.waits_behind = together.min(predecessor.waits());
    }

    /// Notes how many copies in a row led to this invocation: its own copies continue that row.
    pub(crate) fn continue_row(&mut self, copies_in_row: u32) {
        self.copies_in_row = Some(copies_in_row);
        // Requeue can ask SQS to keep a message only by its id.
        if self.ends_its_row() && self.message_id.is_some() && self.strategy == Strategy::Copy {
            self.strategy = Strategy::Visibility;
            self.waits_for_others = self.state.copies_in_row < MAX_COPIES_IN_ROW;
        }
    }

    /// Whether one more copy of it would come close to Lambda's limit.
    pub(crate) fn ends_its_row(&self) -> bool {
        self.copies_in_row.is_some_and(|copies_in_row| copies_in_row >= MAX_COPIES_IN_ROW)
    }

    /// A first delivery of a text, received now: for messages that no queue delivered.
    pub(crate) fn of_text(payload: String) -> Self {
        let record = Record::default();
        let decoded = Self::decode(0, record, Clock::system().now(), &Decoder::default());
        Self { payload, ..decoded }
    }

    /// The producer's trace, in the form of W3C Trace Context: the attribute, or else the header
    /// for X-Ray, which a copy carries in its state.
    pub(crate) fn traceparent(&self) -> Option<Cow<'_, str>> {
        let kept = || {
            let carried = self.state.traceparent.as_deref().map(Cow::Borrowed);
            carried.or_else(|| trace::of_header(self.trace_header.as_deref()?).map(Cow::Owned))
        };
        self.own_traceparent().map(Cow::Borrowed).or_else(kept)
    }

    pub(crate) fn own_traceparent(&self) -> Option<&str> {
        self.attributes.get(trace::TRACEPARENT).and_then(trace::of_attribute)
    }

    pub(crate) fn payload(&self) -> &str {
        &self.payload
    }

    pub(crate) fn original_id(&self) -> Option<&str> {
        self.state.original_message_id.as_deref().or(self.message_id.as_deref())
    }

    pub(crate) fn is_fifo(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.is_fifo())
    }

    /// Retries used before this delivery. With `visibility`, receives count.
    pub(crate) fn retries(&self) -> u32 {
        self.usage().retries()
    }

    /// Receives of this copy in this queue, this one included.
    pub(crate) fn receives_here(&self) -> u32 {
        self.receive_count.saturating_sub(self.receives_before)
    }

    /// Whether it shares no call with other messages, so that it ends no call of theirs: from the
    /// third receive of a copy on.
    pub(crate) fn is_alone(&self) -> bool {
        self.state.is_alone || self.receives_here() > 2
    }

    /// Receives that were certainly no attempts.
    fn waits(&self) -> u32 {
        // Any other message waits for its time in a copy, whose receives begin later.
        if self.receives_are_retries() { self.waits.max(self.waits_behind) } else { 0 }
    }

    /// Whether this receive is one of those in which it waits for its time. Later receives decide
    /// by the times of SQS alone, so it is one even if the time has come since.
    pub(crate) fn waits_for_its_time(&self) -> bool {
        self.receives_are_retries() && self.receives_here() <= self.waits
    }

    /// Receives of this copy in this queue that may have been attempts, this one included.
    fn receives(&self) -> u32 {
        self.receives_here().saturating_sub(self.waits()).max(1)
    }

    /// Whether its receives count as retries. If a message waits because of others, or for STS, its
    /// next wait may be in a copy, so its receives prove nothing.
    fn receives_are_retries(&self) -> bool {
        self.strategy == Strategy::Visibility && !self.waits_for_others && !self.is_unverified
    }

    /// Whether the table may count its attempts: with `visibility`, from the second receive on.
    pub(crate) fn may_count_attempts(&self) -> bool {
        // Other deliveries of a message that ends its row are copies.
        let waits_in_place = self.is_fifo() || !self.ends_its_row();
        waits_in_place && self.usage().receives_are_retries && self.receives() > 1
    }

    /// Notes the attempts before this one, as the table counted them from the second receive on.
    pub(crate) fn note_counted(&self, later: u32) {
        // A message has at most one attempt for each receive.
        let before = later.saturating_add(1).min(self.receives() - 1);
        // A delivery has one attempt.
        let _ = self.counted.set(before);
    }

    pub(crate) fn deferrals(&self) -> u32 {
        self.usage().deferrals()
    }

    pub(crate) fn usage(&self) -> Usage<'_> {
        let first_received = self.state.age_from.unwrap_or(self.first_received);
        Usage {
            state: &self.state,
            // Before its time, no handler was called.
            first_received: self
                .limits
                .not_before
                .map_or(first_received, |due| due.max(first_received)),
            max_retries: self.limits.max_retries.unwrap_or(u32::MAX),
            receive_count: self.receives(),
            counted: self.counted.get().copied(),
            strategy: self.strategy,
            receives_are_retries: self.receives_are_retries(),
        }
    }

    pub(crate) fn called(&self) -> Event<'_> {
        Event::Called {
            message_id: self.message_id.as_deref(),
            original_message_id: self.original_id(),
            attempt: self.retries().saturating_add(1),
            receive_count: self.receive_count,
        }
    }

    /// Notes the units that its call used. The first number counts.
    pub(crate) fn note_used(&self, units: u32) {
        let _ = self.said.get_or_init(Box::default).used.set(units);
    }

    pub(crate) fn used(&self) -> Option<u32> {
        self.said.get()?.used.get().copied()
    }

    /// Notes the allowances that a response to its call names. The first response counts.
    pub(crate) fn note_allowances(&self, allowances: Box<[Allowance]>) {
        let _ = self.said.get_or_init(Box::default).allowances.set(allowances);
    }

    pub(crate) fn allowances(&self) -> &[Allowance] {
        self.said.get().and_then(|said| said.allowances.get()).map_or(&[], |it| it)
    }
}

/// Facts that the handler of a message gave to rate limits.
#[derive(Default)]
struct Said {
    used: OnceLock<u32>,
    /// The rest of the service's allowances, by the response to its call.
    allowances: OnceLock<Box<[Allowance]>>,
}
