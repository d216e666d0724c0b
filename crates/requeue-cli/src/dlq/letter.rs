//! One message of a dead-letter queue: its known facts, the filters that choose it, and its JSON.

use std::collections::BTreeMap;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::builder::PossibleValuesParser;
use jiff::Timestamp;
use requeue::queue::{Attribute, AttributeValue, Outgoing};
use requeue::{DeadLetter, DeadLetterReason, FailureClass, Record};
use serde::Serialize;
use tokio::time::Instant;

/// The word for a missing class or reason.
pub(crate) const UNKNOWN: &str = "unknown";

/// A message that was received.
pub(crate) struct Letter {
    pub(crate) id: String,
    pub(crate) receipt_handle: String,
    pub(crate) body: String,
    pub(crate) record: Record,
    /// The time of the request: SQS has hidden the message since then at the earliest.
    pub(crate) asked: Instant,
}

impl Letter {
    /// `None` if a field is missing that every message of SQS has.
    pub(crate) fn new(mut record: Record, asked: Instant) -> Option<Self> {
        let (id, receipt_handle) = (record.message_id.take()?, record.receipt_handle.take()?);
        Some(Self { id, receipt_handle, body: record.body.take()?, record, asked })
    }

    pub(crate) fn read(&self) -> DeadLetter<'_> {
        DeadLetter::read(&self.body)
    }

    /// The bytes that SQS counts.
    pub(crate) fn size(&self) -> usize {
        let none = BTreeMap::new();
        let attributes = self.record.attributes.as_ref().unwrap_or(&none);
        Outgoing::new(&self.body, attributes).size()
    }

    /// The time of its first send, by its body, or else by SQS.
    pub(crate) fn first_sent(&self, dead: &DeadLetter<'_>) -> Option<SystemTime> {
        dead.first_sent().or(self.record.sent)
    }
}

pub(crate) fn class(dead: &DeadLetter<'_>) -> &'static str {
    dead.class().map_or(UNKNOWN, FailureClass::as_str)
}

pub(crate) fn reason<'a>(dead: &'a DeadLetter<'_>) -> &'a str {
    dead.reason().unwrap_or(UNKNOWN)
}

/// The source queue that this message claims. The claim is not verified: anybody who may send to
/// this queue, or to one before it, can write it. For a message that SQS itself moved here, only
/// SQS's own data count.
pub(crate) fn claimed_source<'a>(letter: &Letter, dead: &'a DeadLetter<'_>) -> Option<&'a str> {
    dead.source().filter(|_| !letter.record.was_dead_lettered)
}

/// `2026-11-21T01:02:03Z`
pub(crate) fn moment(time: SystemTime) -> Option<String> {
    Timestamp::try_from(time).ok().map(|timestamp| format!("{timestamp:.0}"))
}

fn reasons() -> PossibleValuesParser {
    let known = DeadLetterReason::ALL.iter().map(|reason| reason.as_str());
    known.chain([UNKNOWN]).collect::<Vec<_>>().into()
}

/// The filters. Without any, all messages are chosen.
#[derive(clap::Args)]
pub(crate) struct Filter {
    /// Only messages of this class. May be given several times.
    #[arg(long, value_parser = ["rate-limit", "quota", "temporary", "non-retryable", UNKNOWN])]
    class: Vec<String>,
    /// Only messages given up for this reason, as `list` shows it. May be given several times.
    #[arg(long, value_parser = reasons())]
    reason: Vec<String>,
    /// Only the message with this id, its own or that of its first delivery. May be given several
    /// times.
    #[arg(long)]
    id: Vec<String>,
    /// Only messages of this source queue, by its name or ARN: SQS moved them here from it, or they
    /// claim to come from it. May be given several times.
    #[arg(long, value_name = "QUEUE")]
    source: Vec<String>,
    /// Choose at most this many messages.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
}

impl Filter {
    pub(crate) fn is_set(&self) -> bool {
        let lists = [&self.class, &self.reason, &self.id, &self.source];
        lists.iter().any(|list| !list.is_empty()) || self.limit.is_some()
    }

    /// Whether the filters, apart from the limit, choose a message.
    pub(crate) fn chooses(&self, letter: &Letter, dead: &DeadLetter<'_>) -> bool {
        let named = |wanted: &[String], is: &[&str]| {
            wanted.is_empty() || wanted.iter().any(|one| is.contains(&one.as_str()))
        };
        let ids = [Some(letter.id.as_str()), dead.original_message_id()];
        let ids: Vec<&str> = ids.into_iter().flatten().collect();
        named(&self.class, &[class(dead)])
            && named(&self.reason, &[reason(dead)])
            && named(&self.id, &ids)
            && (self.source.is_empty() || self.names_source_of(letter, dead))
    }

    fn names_source_of(&self, letter: &Letter, dead: &DeadLetter<'_>) -> bool {
        let moved_from = letter.record.dead_letter_source.as_ref().map(ToString::to_string);
        moved_from.as_deref().or(claimed_source(letter, dead)).is_some_and(|arn| {
            let name = arn.rsplit(':').next().unwrap_or_default();
            self.source.iter().any(|wanted| wanted == arn || wanted == name)
        })
    }

    /// In words: ` of class quota, for the reason too-old`.
    pub(crate) fn words(&self) -> String {
        let mut words = Vec::new();
        for (name, values) in [
            ("of class", &self.class),
            ("for the reason", &self.reason),
            ("with the id", &self.id),
            ("from", &self.source),
        ] {
            if !values.is_empty() {
                words.push(format!("{name} {}", values.join(" or ")));
            }
        }
        words.extend(self.limit.map(|limit| format!("{limit} at most")));
        if words.is_empty() { String::new() } else { format!(" {}", words.join(", ")) }
    }
}

/// The known facts of a message, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeadLetterJson<'a> {
    message_id: &'a str,
    original_message_id: &'a str,
    class: &'static str,
    reason: &'a str,
    detail: Option<&'a str>,
    retry_count: Option<u32>,
    failed_at: Option<String>,
    first_sent: Option<String>,
    receive_count: Option<u32>,
    redrives: u32,
    moved_by_redrive_policy: bool,
    /// By SQS's data.
    moved_from: Option<String>,
    claimed_source: Option<&'a str>,
    group_id: Option<&'a str>,
    size_bytes: usize,
}

impl<'a> DeadLetterJson<'a> {
    pub(crate) fn of(letter: &'a Letter, dead: &'a DeadLetter<'_>) -> Self {
        Self {
            message_id: &letter.id,
            original_message_id: dead.original_message_id().unwrap_or(&letter.id),
            class: class(dead),
            reason: reason(dead),
            detail: dead.detail(),
            retry_count: dead.retry_count(),
            failed_at: dead.failed_at().and_then(moment),
            first_sent: letter.first_sent(dead).and_then(moment),
            receive_count: letter.record.receive_count,
            redrives: dead.redrives(),
            moved_by_redrive_policy: letter.record.was_dead_lettered,
            moved_from: letter.record.dead_letter_source.as_ref().map(ToString::to_string),
            claimed_source: claimed_source(letter, dead),
            group_id: letter.record.group_id.as_deref(),
            size_bytes: letter.size(),
        }
    }
}

/// A message attribute in the form of SQS's API and of the AWS CLI.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct AttributeJson<'a> {
    data_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    string_value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary_value: Option<String>,
}

impl<'a> From<&'a Attribute> for AttributeJson<'a> {
    fn from(attribute: &'a Attribute) -> Self {
        let (string_value, binary_value) = match &attribute.value {
            AttributeValue::Text(text) => (Some(text.as_str()), None),
            AttributeValue::Binary(bytes) => (None, Some(BASE64.encode(bytes))),
        };
        Self { data_type: &attribute.data_type, string_value, binary_value }
    }
}
