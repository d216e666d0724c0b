//! One message of a dead-letter queue: its known facts, the filters that choose it, and its JSON.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::builder::PossibleValuesParser;
use requeue::queue::{Arn, Attribute, AttributeValue, Outgoing};
use requeue::{Clock, DeadLetter, DeadLetterReason, FailureClass, Record, rfc3339};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::table::moment;
use crate::{duration_argument, output, send};

pub(crate) const UNKNOWN: &str = "unknown";

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

    pub(super) fn attributes_json(&self) -> BTreeMap<&str, AttributeJson> {
        let attributes = self.record.attributes.iter().flatten();
        attributes.map(|(name, value)| (name.as_str(), AttributeJson::of(value))).collect()
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

/// The source queue that this message claims, unless SQS moved it. Anybody who may send to this
/// queue, or to one before it, can write it.
pub(crate) fn claimed_source<'a>(letter: &Letter, dead: &'a DeadLetter<'_>) -> Option<&'a str> {
    dead.source().filter(|_| !letter.record.was_dead_lettered)
}

/// The filters. Without any, all messages are chosen.
#[derive(Default, clap::Args)]
pub(crate) struct Filter {
    /// Only messages of this class. May be given several times.
    #[arg(long, help_heading = "Which messages", value_parser = ["rate-limit", "quota", "temporary", "non-retryable", UNKNOWN])]
    class: Vec<String>,
    /// Only messages dead-lettered for this reason, as `list` shows it. May be given several times.
    #[arg(long, help_heading = "Which messages", value_parser = reasons())]
    reason: Vec<String>,
    /// Only messages whose failure has this text, as `list` shows it, upper and lower case
    /// included. May be given several times.
    #[arg(long, help_heading = "Which messages", value_name = "TEXT")]
    detail: Vec<String>,
    /// Only messages whose failure has this status or code of the downstream service: 422 or
    /// outdated-fare in `status 422: outdated-fare`. May be given several times.
    #[arg(long, help_heading = "Which messages", value_name = "CODE")]
    code: Vec<String>,
    /// Only messages dead-lettered since then: within the last 2h, or since a time as in
    /// 2026-11-23T06:00:00Z. A message without that time counts by its first send.
    #[arg(long, help_heading = "Which messages", value_name = "DURATION|TIME", value_parser = moment_given)]
    since: Option<SystemTime>,
    /// Only messages with this message attribute. If given several times, all must match.
    #[arg(long, help_heading = "Which messages", value_name = "NAME=VALUE", value_parser = send::attribute)]
    attribute: Vec<(String, String)>,
    /// Only the message with this id, its own or that of its first delivery. May be given several
    /// times.
    #[arg(long, help_heading = "Which messages")]
    id: Vec<String>,
    /// Only messages of this source queue, by its name or ARN: SQS moved them here from it, or they
    /// claim to come from it. May be given several times.
    #[arg(long, help_heading = "Which messages", value_name = "QUEUE")]
    source: Vec<String>,
    /// Choose at most this many messages.
    #[arg(long, help_heading = "Which messages", value_name = "COUNT", value_parser = message_count)]
    pub(crate) limit: Option<u64>,
    /// Exactly these messages, by their own ids.
    #[arg(skip)]
    pub(super) chosen: Option<HashSet<String>>,
    /// Those of `id` that a message had, and whether it was its own id.
    #[arg(skip)]
    found: RefCell<HashMap<String, bool>>,
}

impl Filter {
    /// Chooses exactly these messages, by their own ids. A scan may end after the last of them.
    pub(crate) fn of_ids(ids: HashSet<String>) -> Self {
        let limit = u64::try_from(ids.len()).ok();
        Self { limit, chosen: Some(ids), ..Self::default() }
    }

    pub(crate) fn is_set(&self) -> bool {
        !self.words().is_empty() || self.limit.is_some()
    }

    /// Whether the filters, apart from the limit, choose a message.
    pub(crate) fn chooses(&self, letter: &Letter, dead: &DeadLetter<'_>) -> bool {
        let named = |wanted: &[String], is: &[&str]| {
            wanted.is_empty() || wanted.iter().any(|one| is.contains(&one.as_str()))
        };
        let ids = [Some(letter.id.as_str()), dead.original_message_id()];
        let ids: Vec<&str> = ids.into_iter().flatten().collect();
        self.note_found(&ids);
        let detail = dead.detail().unwrap_or_default();
        // When it was dead-lettered, or else first sent.
        let at = || dead.failed_at().or_else(|| letter.first_sent(dead));
        self.chosen.as_ref().is_none_or(|chosen| chosen.contains(&letter.id))
            && named(&self.class, &[class(dead)])
            && named(&self.reason, &[reason(dead)])
            && named(&self.code, &[status(detail), code(detail)].map(Option::unwrap_or_default))
            && (self.detail.is_empty() || self.detail.iter().any(|text| detail.contains(text)))
            && self.since.is_none_or(|since| at() >= Some(since))
            && self.attribute.iter().all(|attribute| has_attribute(letter, attribute))
            && named(&self.id, &ids)
            && (self.source.is_empty() || self.names_source_of(letter, dead))
    }

    fn names_source_of(&self, letter: &Letter, dead: &DeadLetter<'_>) -> bool {
        let moved_from = letter.record.dead_letter_source.as_ref().map(ToString::to_string);
        moved_from.as_deref().or(claimed_source(letter, dead)).is_some_and(|arn| {
            self.source.iter().any(|wanted| wanted == arn || wanted == Arn::of(arn).name())
        })
    }

    fn note_found(&self, ids: &[&str]) {
        for (at, id) in ids.iter().enumerate() {
            if self.id.iter().any(|wanted| wanted == id) {
                *self.found.borrow_mut().entry((*id).to_owned()).or_default() |= at == 0;
            }
        }
    }

    /// Whether each of the ids was a message's own, so that no message is missing.
    pub(crate) fn has_found_ids(&self) -> bool {
        let found = self.found.borrow();
        !self.id.is_empty() && self.id.iter().all(|id| found.get(id) == Some(&true))
    }

    /// Logs the filters that matched no message, once all were seen. Returns whether it chose a
    /// message, if that is required, and whether one has each of the ids, unless a limit ended the
    /// search.
    pub(crate) fn finds_all(&self, queue: &str, has_chosen_any: bool) -> bool {
        let found = self.found.borrow();
        let missing = self.id.iter().map(String::as_str).filter(|id| !found.contains_key(*id));
        let missing: Vec<&str> = missing.filter(|_| self.limit.is_none()).collect();
        if !has_chosen_any {
            output::remark(&format!("no message{} in {queue}", self.words()));
        } else if !missing.is_empty() {
            output::remark(&format!("no message with the id {} in {queue}", missing.join(" or ")));
        }
        missing.is_empty() && (has_chosen_any || self.words().is_empty())
    }

    /// As [`finds_all`](Self::finds_all), for commands whose result shows that no message was
    /// chosen.
    pub(crate) fn finds_all_if_set(&self, queue: &str, has_chosen_any: bool) -> bool {
        !self.is_set() || self.finds_all(queue, has_chosen_any)
    }

    /// In words, without the limit: ` of class quota, for the reason too-old`.
    pub(crate) fn words(&self) -> String {
        let mut words = Vec::new();
        for (name, values) in [
            ("of class", &self.class),
            ("for the reason", &self.reason),
            ("with the text", &self.detail),
            ("with the code", &self.code),
            ("with the id", &self.id),
            ("from", &self.source),
        ] {
            if !values.is_empty() {
                words.push(format!("{name} {}", values.join(" or ")));
            }
        }
        words.extend(
            self.since.and_then(moment).map(|since| format!("dead-lettered since {since}")),
        );
        let attributes = self.attribute.iter();
        words.extend(attributes.map(|(name, value)| format!("with {name}={value}")));
        if words.is_empty() { String::new() } else { format!(" {}", words.join(", ")) }
    }
}

fn has_attribute(letter: &Letter, (name, value): &(String, String)) -> bool {
    let attribute = letter.record.attributes.as_ref().and_then(|all| all.get(name));
    attribute.is_some_and(|attribute| text_of(attribute) == *value)
}

/// The value of a message attribute, in base64 if it is no text.
pub(super) fn text_of(attribute: &Attribute) -> Cow<'_, str> {
    match &attribute.value {
        AttributeValue::Text(text) => text.into(),
        AttributeValue::Binary(bytes) => BASE64.encode(bytes).into(),
    }
}

fn reasons() -> PossibleValuesParser {
    let known = DeadLetterReason::WORDS.iter().map(|(word, _)| *word);
    known.chain([UNKNOWN]).collect::<Vec<_>>().into()
}

fn message_count(text: &str) -> Result<u64, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "give a number of messages, at least 1".to_owned())
}

/// SQS keeps a message for 14 days, and an export may be older.
const LONGEST_AGO: Duration = Duration::from_hours(366 * 24);

/// Reads `2h`, or a time as in `2026-11-23T06:00:00Z`.
fn moment_given(text: &str) -> Result<SystemTime, String> {
    if let Ok(ago) = duration_argument::parse(text) {
        // A Unix time would choose all messages.
        let since = Some(ago).filter(|ago| *ago <= LONGEST_AGO);
        let since = since.and_then(|ago| Clock::system().now().checked_sub(ago));
        let form = "it is a duration of over a year; write a time as in 2026-11-23T06:00:00Z";
        return since.ok_or_else(|| form.to_owned());
    }
    rfc3339(text).ok_or_else(|| {
        "write a duration as in 45s, 10m or 1h30m, or a time as in 2026-11-23T06:00:00Z".to_owned()
    })
}

/// The status of the downstream service in the text of a failure: `422` in `status 422: no-seat`.
fn status(detail: &str) -> Option<&str> {
    detail.strip_prefix("status ")?.split([':', ',']).next()
}

/// The code of the downstream service in the text of a failure: `no-seat` in `status 422: no-seat,
/// by rules[0]`. A text of one word is a code itself.
pub(crate) fn code(detail: &str) -> Option<&str> {
    let own = match detail.strip_prefix("status ") {
        Some(rest) => rest.split_once(": ")?.1.split(", ").next()?,
        None => detail,
    };
    (!own.is_empty() && !own.contains(' ')).then_some(own)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeadLetterJson<'a> {
    message_id: &'a str,
    original_message_id: &'a str,
    class: &'static str,
    reason: &'a str,
    detail: Option<&'a str>,
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) attribute_names: Option<Vec<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message_attributes: Option<BTreeMap<&'a str, AttributeJson>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) body: Option<&'a str>,
}

impl<'a> DeadLetterJson<'a> {
    pub(crate) fn of(letter: &'a Letter, dead: &'a DeadLetter<'_>) -> Self {
        Self {
            message_id: &letter.id,
            original_message_id: dead.original_message_id().unwrap_or(&letter.id),
            class: class(dead),
            reason: reason(dead),
            detail: dead.detail(),
            code: dead.detail().and_then(code),
            text: dead.text(),
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
            attribute_names: None,
            message_attributes: None,
            body: None,
        }
    }
}

/// A message attribute in the form of SQS's API and of the AWS CLI.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct AttributeJson {
    data_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    string_value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary_value: Option<String>,
}

impl AttributeJson {
    pub(super) fn of(attribute: &Attribute) -> Self {
        let (string_value, binary_value) = match &attribute.value {
            AttributeValue::Text(text) => (Some(text.clone()), None),
            AttributeValue::Binary(bytes) => (None, Some(BASE64.encode(bytes))),
        };
        Self { data_type: attribute.data_type.clone(), string_value, binary_value }
    }

    /// `None` without exactly one value.
    pub(super) fn read(self) -> Option<Attribute> {
        let value = match (self.string_value, self.binary_value) {
            (Some(text), None) => AttributeValue::Text(text),
            (None, Some(bytes)) => AttributeValue::Binary(BASE64.decode(bytes).ok()?),
            _ => return None,
        };
        Some(Attribute { data_type: self.data_type, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_a_failure_is_one_word_of_the_downstream_service() {
        for (detail, expected) in [
            ("status 422: outdated-fare", Some("outdated-fare")),
            ("status 422: no-seat, by rules[0]", Some("no-seat")),
            ("status 503", None),
            ("status 429: too many calls", None),
            ("v1-outdated", Some("v1-outdated")),
            ("order 7 timed out", None),
            ("", None),
        ] {
            assert_eq!(code(detail), expected, "{detail}");
            let its = detail.strip_prefix("status ").and_then(|rest| rest.get(..3));
            assert_eq!(status(detail), its, "{detail}");
        }
    }

    #[test]
    fn a_time_is_a_duration_before_now_or_a_moment() {
        for (text, is_read) in [
            ("2h", true),
            ("90", true),
            ("2026-11-23T06:00:00Z", true),
            ("2026-11-23T06:00:00+01:00", true),
            ("2026-11-23T06:00:00.1234567890Z", true),
            ("2026-11-23T06:00:00+25:00", false),
            ("2026-11-23", false),
            ("yesterday", false),
            ("99999999999d", false),
        ] {
            assert_eq!(moment_given(text).is_ok(), is_read, "{text}");
        }
    }
}
