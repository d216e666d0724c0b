//! The history of a message, from the body that a poller receives. It reads the same as the
//! library, in another way.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::producer::{Maker, Product};

/// If SQS says that a copy was sent so much later than we sent it, an operator did.
const REDRIVE_TOLERANCE_MS: u64 = 120_000;
/// An annotated copy waits for ten seconds; who receives it sooner has it from an operator.
const LEAST_ANNOTATION_DELAY_MS: u64 = 9_000;
const MAX_REDRIVES: u64 = 10;
/// No queue keeps a message for longer: 14 days.
const RETENTION_MS: u64 = 1_209_600_000;

/// Our members.
#[derive(Clone, Debug)]
pub struct Members {
    pub count: u64,
    pub original: String,
    pub sent_at: u64,
    pub state: Value,
}

impl Members {
    pub fn read(body: &str) -> Option<Self> {
        let body: Value = serde_json::from_str(body).ok()?;
        let sent_at: jiff::Timestamp = body["retryTimestamp"].as_str()?.parse().ok()?;
        Some(Self {
            count: body["retryCount"].as_u64()?,
            original: body["originalMessageId"].as_str()?.to_owned(),
            sent_at: u64::try_from(sent_at.as_millisecond()).ok()?,
            state: body.get("retryState").filter(|state| state.is_object())?.clone(),
        })
    }

    pub fn number(&self, name: &str) -> u64 {
        self.state[name].as_u64().unwrap_or(0)
    }

    pub fn time(&self, name: &str) -> Option<u64> {
        self.state[name].as_u64()
    }

    pub fn class(&self) -> Option<&str> {
        self.state["class"].as_str()
    }

    pub fn is_dead_lettered(&self) -> bool {
        self.state["deadLetter"].is_object()
    }

    /// Why the message was dead-lettered, in its own words, though SQS knows best from where it moved
    /// it.
    fn why(&self, moved_from: Option<&Value>) -> Value {
        let source = moved_from.unwrap_or(&self.state["source"]);
        if self.is_dead_lettered() {
            let mut why = self.state["deadLetter"].clone();
            why["source"] = source.clone();
            why
        } else if moved_from.is_some() {
            let count = self.class().map(|_| self.count);
            json!({ "class": self.class(), "retryCount": count, "source": source })
        } else {
            self.state["lastDeadLetter"].clone()
        }
    }

    pub fn counts(&self) -> BTreeMap<String, u64> {
        let all = self.state["counts"].as_object().into_iter().flatten();
        all.filter_map(|(class, count)| Some((class.clone(), count.as_u64()?))).collect()
    }
}

pub fn at(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

/// What a delivery has behind it.
#[derive(Clone, Debug, Default)]
pub struct Past {
    pub count: u64,
    pub counts: BTreeMap<String, u64>,
    /// The class of the last failure, and the delay after it.
    pub last: Option<(String, u64)>,
    pub deferrals: u64,
    pub postponements: u64,
    pub hops: u64,
    /// Whether it shares no call, as it says itself.
    pub is_alone: bool,
    /// Copies in a row that led to it, as it says itself.
    pub row: u64,
    pub first_sent: u64,
    /// The same if it is known: when a moved message arrived only its environment knows.
    pub dated: Option<u64>,
    pub first_received: u64,
    /// Where its age begins, if it waited for a rate limit before its first call.
    pub age_from: Option<u64>,
    /// When this copy was first received.
    pub received_here: u64,
    pub original: String,
    /// Why it was dead-lettered before, as the handler is to see it.
    pub why: Value,
    pub is_dead_lettered: bool,
    /// Whether SQS moved it to the dead-letter queue, so that it starts afresh in each environment
    /// that sees it.
    pub is_moved: bool,
    /// But it was moved so often that it starts afresh no more.
    pub keeps_all: bool,
}

impl Past {
    pub fn of(record: &Value, product: &Product, max_retries: u32) -> Self {
        let body = record["body"].as_str().expect("a body");
        let time = |name: &str| {
            record["attributes"][name].as_str().and_then(|time| time.parse::<u64>().ok())
        };
        let (known, received) =
            (time("SentTimestamp"), time("ApproximateFirstReceiveTimestamp").expect("a time"));
        let sent = known.unwrap_or(received);
        let id = record["messageId"].as_str().expect("an id").to_owned();
        let is_moved = record["attributes"]["DeadLetterQueueSourceArn"].is_string();
        let source = &record["attributes"]["DeadLetterQueueSourceArn"];
        let why = if is_moved { json!({ "source": source }) } else { Value::Null };
        let received_here = received;
        let fresh = Self {
            first_sent: sent,
            dated: (!is_moved).then_some(sent),
            first_received: received,
            received_here,
            original: id,
            why,
            is_moved,
            ..Self::default()
        };
        match product.maker {
            Maker::Successor => return fresh,
            Maker::Producer { count } if body == product.body => {
                let is_believed = count <= max_retries && !is_moved;
                return Self { count: if is_believed { u64::from(count) } else { 0 }, ..fresh };
            }
            Maker::Producer { .. } | Maker::Forger => {}
        }
        let members = Members::read(body).expect("a copy bears our members");
        let was_sent_elsewhere = members.state["source"].is_string();
        // What SQS does not say is no evidence.
        let too_soon = |sent| {
            members.is_dead_lettered() && received.saturating_sub(sent) < LEAST_ANNOTATION_DELAY_MS
        };
        let too_late = |sent: u64| sent.saturating_sub(members.sent_at) > REDRIVE_TOLERANCE_MS;
        let is_redriven = is_moved
            || was_sent_elsewhere
            || known.is_some_and(|sent| too_soon(sent) || too_late(sent));
        if is_redriven && members.number("redrives") < MAX_REDRIVES {
            let why = members.why(is_moved.then_some(source));
            return Self {
                row: members.number("lineage"),
                original: members.original,
                why,
                ..fresh
            };
        }
        Self {
            count: members.count,
            counts: members.counts(),
            last: members
                .class()
                .and_then(|class| Some((class.to_owned(), members.state["delay"].as_u64()?))),
            deferrals: members.number("deferrals"),
            postponements: members.number("postponements"),
            hops: members.number("hops"),
            is_alone: members.state["alone"] == true,
            row: members.number("lineage"),
            // No time of the body is believed beyond those of SQS. Those of a moved message are older.
            first_sent: members.time("firstSent").map_or(sent, |first| first.min(sent)),
            dated: match members.time("firstSent") {
                Some(first) if is_moved => Some(first).filter(|first| *first <= received),
                Some(first) => Some(first.min(sent)),
                None => (!is_moved).then_some(sent),
            },
            first_received: members
                .time("firstReceived")
                .map_or(received, |first| first.min(received)),
            age_from: members.time("ageFrom").map(|from| {
                let due = members.time("notBefore").map(|due| due.min(sent + RETENTION_MS));
                from.min(due.map_or(received, |due| due.max(received)))
            }),
            is_dead_lettered: members.is_dead_lettered(),
            received_here,
            why: members.state["lastDeadLetter"].clone(),
            is_moved,
            keeps_all: is_moved,
            original: members.original,
        }
    }
}
