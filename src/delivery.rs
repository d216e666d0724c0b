//! A delivery: a record decoded into the body as first delivered, the retry state and the number of
//! the attempt. The gate, the policy and settling work with it; the handler sees `message`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use crate::arrivals::{Arrivals, bounded, restart_if_redriven};
use crate::clock::Clock;
use crate::disposition::Strategy;
use crate::failure::{Evidence, Failure, FailureClass};
use crate::policy::Usage;
use crate::producer::MessageLimits;
use crate::queue::{Attribute, Principal, QueueArn, Record};
use crate::sender::{Belief, Senders};
use crate::settings::ProducerLimits;
use crate::state::RetryState;
use crate::trace;
use crate::wire::{self, Origin};

mod said;

use said::Said;

/// After so many copies in a row a message waits by its visibility timeout, unless Lambda allows
/// loops. Lambda's loop detection counts to about 16, by the invocation and not by the message.
/// Source: Lambda developer guide, "Use Lambda recursive loop detection to prevent infinite loops".
pub(crate) const MAX_COPIES_IN_ROW: u32 = 10;

/// The reason for which no handler gets a body with two layers of untrusted retry fields.
const NESTED: &str = "the retry fields of two copies, neither by a trusted sender: REQUEUE_TRUSTED_SENDERS seems to lack the id of a \
                      function or worker that handles this queue";

pub(crate) struct Delivery {
    pub(crate) position: usize,
    pub(crate) message_id: Option<String>,
    /// The receipt handle of this delivery first, then those of further deliveries of the same
    /// message in the same batch.
    pub(crate) receipt_handles: Vec<String>,
    pub(crate) queue: Option<Arc<QueueArn>>,
    /// How it waits for its next attempt.
    pub(crate) strategy: Strategy,
    /// Copies in a row up to this one, as Lambda's loop detection counts them; `None` if that is
    /// switched off.
    pub(crate) copies_in_row: Option<u32>,
    /// Whether it waits by its visibility timeout only because of other messages of its batch.
    waits_for_others: bool,
    /// The receive count by SQS, which goes on when a redrive policy moves a message.
    pub(crate) receive_count: u32,
    /// Receives before it reached this queue, as far as they are known.
    receives_before: u32,
    /// Receives that it uses up by waiting for its time, the first ones in this queue.
    waits: u32,
    /// Receives that it used up behind a message that waited for its time.
    waits_behind: u32,
    /// Attempts before this one, if the table counted them.
    counted: OnceLock<u32>,
    /// Facts that its handler gave to rate limits. Few handlers give any.
    said: OnceLock<Box<Said>>,
    pub(crate) first_sent: SystemTime,
    pub(crate) first_received: SystemTime,
    /// When this copy was sent.
    pub(crate) sent: SystemTime,
    /// When this copy was first received in this queue, if that is known.
    pub(crate) copy_first_received: Option<SystemTime>,
    pub(crate) group_id: Option<String>,
    /// The trace that its sender gave it for X-Ray. That of a copy is none of its producer's.
    pub(crate) trace_header: Option<String>,
    pub(crate) attributes: BTreeMap<String, Attribute>,
    pub(crate) event: Option<Arc<str>>,
    pub(crate) state: RetryState,
    pub(crate) limits: MessageLimits,
    /// Why no handler can get this record.
    pub(crate) defect: Option<Failure>,
    /// Why no handler may get this record, though it is whole.
    pub(crate) refusal: Option<Failure>,
    /// It has our fields, and it is not known yet whether their sender is trusted.
    pub(crate) is_unverified: bool,
    /// A later version of this library wrote the message's state.
    pub(crate) is_of_later_version: bool,
    /// The body as first delivered.
    payload: String,
}

#[derive(Default)]
pub(crate) struct Decoder {
    /// The limit of the count that a producer may claim.
    pub(crate) max_retries: u32,
    /// The same limit for queues that have a policy of their own, by name.
    pub(crate) own_max_retries: HashMap<String, u32>,
    /// How messages of a standard queue wait.
    pub(crate) strategy: Strategy,
    pub(crate) producer_limits: ProducerLimits,
    /// The senders whose fields are trusted; `None` trusts every sender.
    pub(crate) senders: Option<Senders>,
    pub(crate) arrivals: Arrivals,
}

impl Decoder {
    /// Takes a body apart, and says how far its sender is trusted.
    fn read<'a>(
        &self,
        body: &'a str,
        queue: Option<&QueueArn>,
        sender: Option<Principal>,
    ) -> (wire::ReadBody<'a>, Trust) {
        let own = queue.and_then(|queue| self.own_max_retries.get(queue.name()));
        let max_retries = own.copied().unwrap_or(self.max_retries);
        let read = wire::read(body, max_retries);
        let Some(senders) =
            self.senders.as_ref().filter(|_| !matches!(read.origin, Origin::Fresh { .. }))
        else {
            return (read, Trust::Full);
        };
        match senders.believes(sender) {
            Belief::Believed => (read, Trust::Full),
            Belief::Unknown => (read, Trust::Unknown),
            Belief::NotBelieved => {
                let is_nested =
                    matches!(read.origin, Origin::Ours(_)) && wire::bears_fields(&read.payload);
                senders.warn(sender);
                (
                    wire::read_as_foreign(body, max_retries),
                    if is_nested { Trust::Nested } else { Trust::Full },
                )
            }
        }
    }
}

/// How far the retry fields of a body are trusted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trust {
    Full,
    /// STS has not named this process yet.
    Unknown,
    /// The fields are not trusted, and they surround others that were not trusted either. Each copy
    /// of such a body would be one layer larger.
    Nested,
}

impl Delivery {
    /// Reads a record. `received` is the time of this batch, for a record without times.
    pub(crate) fn decode(
        position: usize,
        mut record: Record,
        received: SystemTime,
        decoder: &Decoder,
    ) -> Self {
        let arrival = decoder.arrivals.of(&record, received);
        let broken = |what| Failure::new(FailureClass::NonRetryable, Evidence::Body, what);
        let mut defect =
            record.attributes.is_none().then(|| broken("a message attribute cannot be read"));
        let body = record.body.take().filter(|body| !body.is_empty()).unwrap_or_else(|| {
            defect = Some(broken("the record has no body"));
            String::new()
        });
        let is_fifo = record.queue.as_ref().is_some_and(|queue| queue.is_fifo());
        let (read, trust) = decoder.read(&body, record.queue.as_deref(), record.sender);
        let is_unverified = trust == Trust::Unknown;
        if trust == Trust::Nested {
            defect = Some(broken(NESTED));
        }
        let is_of_later_version = matches!(read.origin, Origin::LaterVersion(_));
        let is_first = matches!(read.origin, Origin::Fresh { .. });
        let mut state = match read.origin {
            Origin::Fresh { retry_count } => RetryState { retry_count, ..RetryState::default() },
            Origin::Ours(state) => *state,
            Origin::LaterVersion(_) => RetryState::default(),
        };
        if is_fifo {
            // On a FIFO queue such a count is not ours: Requeue counts receives there. So the
            // handler is called before the receives say that the message is dead-lettered.
            state.retry_count = 0;
        }
        let payload = match read.payload {
            Cow::Borrowed(_) => None,
            Cow::Owned(restored) => Some(restored),
        };
        let state = restart_if_redriven(state, &record);
        // The times of SQS are those of the queue from which the message was moved.
        let (sent, copy_first_received) = match &arrival {
            Some(arrival) => (None, Some(arrival.at)),
            None => (record.sent, record.first_received),
        };
        let here = copy_first_received.unwrap_or(received);
        let state = bounded(state, sent.unwrap_or(here), here);
        let receive_count = record.receive_count.unwrap_or(1).max(1);
        let attributes = record.attributes.unwrap_or_default();
        let first_sent = state.first_sent.or(sent).unwrap_or(here);
        let (limits, refusal) = match decoder.producer_limits {
            ProducerLimits::On => MessageLimits::read(&attributes, first_sent).map_or_else(
                |refusal| (MessageLimits::default(), Some(refusal)),
                |limits| (limits, None),
            ),
            ProducerLimits::Off => (MessageLimits::default(), None),
        };
        let message_id = record.message_id.filter(|id| !id.is_empty());
        let strategy = match decoder.strategy {
            // A copy would vouch for the fields, even if they are forged.
            _ if is_unverified => Strategy::Visibility,
            // A copy would lose its place in the order.
            Strategy::Copy if is_fifo => Strategy::Visibility,
            // SQS can be told to keep a message only by its id.
            Strategy::Visibility if message_id.is_none() && !is_fifo => Strategy::Copy,
            strategy @ (Strategy::Copy | Strategy::Visibility) => strategy,
        };
        Self {
            position,
            message_id,
            receipt_handles: record
                .receipt_handle
                .filter(|handle| !handle.is_empty())
                .into_iter()
                .collect(),
            queue: record.queue,
            strategy,
            copies_in_row: None,
            waits_for_others: false,
            receive_count,
            receives_before: arrival.map_or(0, |arrival| arrival.receives_before),
            waits: limits.receives(here),
            waits_behind: 0,
            counted: OnceLock::new(),
            said: OnceLock::new(),
            first_sent,
            first_received: state.first_received.unwrap_or(here),
            sent: sent.unwrap_or(here),
            copy_first_received,
            group_id: record.group_id,
            trace_header: record.trace_header.filter(|_| is_first),
            attributes,
            event: record.event,
            limits,
            refusal,
            payload: payload.unwrap_or(body),
            state,
            defect,
            is_unverified,
            is_of_later_version,
        }
    }

    /// Adds a further delivery of the same message: one message has one outcome. SQS accepts the
    /// receipt handle of the latest receive, so that one comes first.
    pub(crate) fn join(&mut self, mut other: Self) {
        if other.receive_count > self.receive_count {
            std::mem::swap(self, &mut other);
        }
        self.position = self.position.min(other.position);
        self.receipt_handles.append(&mut other.receipt_handles);
    }

    /// Notes the message before it in its FIFO group. As long as that one is not done, both are
    /// received together.
    pub(crate) fn wait_behind(&mut self, predecessor: &Self) {
        let attempts = predecessor.receives_here().saturating_sub(predecessor.waits());
        let together = self.receives_here().saturating_sub(attempts);
        self.waits_behind = together.min(predecessor.waits());
    }

    /// Notes how many copies in a row led to this invocation: its own copies continue that row.
    pub(crate) fn continue_row(&mut self, copies_in_row: u32) {
        self.copies_in_row = Some(copies_in_row);
        // SQS can be told to keep a message only by its id.
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

    /// The trace that the producer gave the message, as W3C Trace Context has it: the attribute, or
    /// else the header for X-Ray, which a copy carries in its state.
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

    /// The id of the first delivery.
    pub(crate) fn original_id(&self) -> Option<&str> {
        self.state.original_message_id.as_deref().or(self.message_id.as_deref())
    }

    pub(crate) fn is_fifo(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.is_fifo())
    }

    /// Retries used before this delivery. For a message that waits by its visibility timeout,
    /// receives count.
    pub(crate) fn retries(&self) -> u32 {
        self.usage().retries()
    }

    /// Receives of this copy in this queue, this one included.
    pub(crate) fn receives_here(&self) -> u32 {
        self.receive_count.saturating_sub(self.receives_before)
    }

    /// Whether it shares no call with other messages, so that nobody else is hurt if it ends every
    /// call: from the third receive of a copy on.
    pub(crate) fn is_alone(&self) -> bool {
        self.state.is_alone || self.receives_here() > 2
    }

    /// Receives that were certainly no attempts.
    fn waits(&self) -> u32 {
        // Any other message waits for its time in a copy, which begins with no receive.
        if self.receives_are_retries() { self.waits.max(self.waits_behind) } else { 0 }
    }

    /// Whether this receive is one of those by which it waits for its time. Later receives take it
    /// for one by the times of SQS alone, so it is one even if the time has come since.
    pub(crate) fn waits_for_its_time(&self) -> bool {
        self.receives_are_retries() && self.receives_here() <= self.waits
    }

    /// Receives of this copy in this queue that may have been attempts, this one included.
    fn receives(&self) -> u32 {
        self.receives_here().saturating_sub(self.waits()).max(1)
    }

    /// Whether its receives count as retries. A message that waits because of others, or for STS,
    /// may otherwise wait in a copy, so its receives prove nothing.
    fn receives_are_retries(&self) -> bool {
        self.strategy == Strategy::Visibility && !self.waits_for_others && !self.is_unverified
    }

    /// Whether the table may count its attempts: it waits by its visibility, and was received before.
    pub(crate) fn may_count_attempts(&self) -> bool {
        // Other deliveries of a message that ends its row are copies.
        let waits_in_place = self.is_fifo() || !self.ends_its_row();
        waits_in_place && self.usage().receives_are_retries && self.receives() > 1
    }

    /// Notes the attempts before this one, as the table counted them from the second receive on. The
    /// first receive counts as one, since a message that succeeds there is to cost no request.
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
            // Before its time no handler was called.
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
}
