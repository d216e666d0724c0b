//! One message in a queue, its receipt handles, its digests, and the observer of arrivals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use requeue_sqs::{Attribute, message_bytes};

pub(crate) type Attributes = Arc<BTreeMap<String, Attribute>>;

/// The place of a message in its queue: later messages have higher keys.
pub(crate) type Key = u64;

/// A message to be sent, not checked yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    pub(crate) body: String,
    pub(crate) attributes: Attributes,
    /// `None` means the queue's own delay, which differs from zero.
    pub(crate) delay_secs: Option<i64>,
    pub(crate) group: Option<String>,
    pub(crate) deduplication: Option<String>,
    pub(crate) trace: Option<String>,
}

impl Draft {
    pub(crate) fn size(&self) -> usize {
        message_bytes(&self.body, &self.attributes)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) body: String,
    pub(crate) attributes: Attributes,
    pub(crate) sent: SystemTime,
    /// When its retention began: when it was sent, unless it came from an old event file.
    pub(crate) retained_from: SystemTime,
    pub(crate) first_received: Option<SystemTime>,
    pub(crate) receive_count: u32,
    pub(crate) trace: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) deduplication: Option<String>,
    pub(crate) sequence: Option<u64>,
    pub(crate) dead_letter_source: Option<String>,
    pub(crate) state: State,
    /// The number of its latest receive. Older receipt handles are no longer valid.
    pub(crate) receipt: u64,
    /// The sender, if it is known to differ from the sender that every message has.
    pub(crate) sender: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It can be received; the order of receives on a standard queue follows `since`.
    Visible {
        since: SystemTime,
    },
    Delayed {
        until: SystemTime,
    },
    InFlight {
        until: SystemTime,
        received: SystemTime,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) message: Message,
    pub(crate) receipt_handle: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) id: String,
    pub(crate) sequence: Option<u64>,
}

/// Of 20 digits, as in the SQS developer guide. AWS's numbers are not consecutive, these are.
pub(crate) fn sequence_number(sequence: u64) -> String {
    format!("{}", 10_000_000_000_000_000_000_u128 + u128::from(sequence))
}

impl Message {
    pub(crate) fn new(draft: Draft, id: String, now: SystemTime) -> Self {
        Self {
            id,
            body: draft.body,
            attributes: draft.attributes,
            sent: now,
            retained_from: now,
            first_received: None,
            receive_count: 0,
            trace: draft.trace,
            group: draft.group,
            deduplication: draft.deduplication,
            sequence: None,
            dead_letter_source: None,
            state: State::Visible { since: now },
            receipt: 0,
            sender: None,
        }
    }
}

/// The content of a receipt handle, so that no handle must be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) instance: u64,
    pub(crate) key: Key,
    pub(crate) number: u64,
}

impl Receipt {
    pub(crate) fn to_handle(self) -> String {
        STANDARD.encode(format!("requeue {} {} {}", self.instance, self.key, self.number))
    }

    pub(crate) fn from_handle(handle: &str) -> Option<Self> {
        let text = String::from_utf8(STANDARD.decode(handle).ok()?).ok()?;
        let mut words = text.strip_prefix("requeue ")?.split(' ').map(str::parse);
        let mut next = || words.next()?.ok();
        Some(Self { instance: next()?, key: next()?, number: next()? })
    }
}

type Observer = Arc<dyn Fn(&str, &Message) + Send + Sync>;

#[derive(Clone, Default)]
pub(crate) struct Arrivals(pub(crate) Option<Observer>);

impl Arrivals {
    pub(super) fn tell(&self, queue: &str, message: &Message) {
        if let Some(observer) = &self.0 {
            observer(queue, message);
        }
    }
}

requeue_sqs::debug_by_name!(Arrivals);
