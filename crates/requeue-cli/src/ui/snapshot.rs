//! The dead letters of one look, in memory, in groups. It makes no request.

use std::collections::{BTreeMap, HashMap};

use requeue::queue::AttributeValue;
use requeue::{DeadLetter, FailureClass, JsonPointer};
use serde::Serialize;
use serde_json::{Value, json};

use super::server;
use crate::dlq::letter::{DeadLetterJson, Letter};
use crate::dlq::list::{DeadLetterGroups, GroupKey};
use crate::dlq::scan::Unseen;
use crate::table::moment;

const MAX_SHOWN_BYTES: usize = 64 * 1024;
const PER_RESPONSE: usize = 100;
/// Tenants with groups of their own. The others share one, so that the page stays readable.
const MAX_TENANTS: usize = 200;
const OTHER_TENANTS: &str = "…";

pub(super) struct Snapshot {
    pub(super) look: Look,
    pub(super) letters: Vec<Letter>,
    groups: Vec<Group>,
    by_tenant: BTreeMap<Option<String>, DeadLetterGroups>,
    group_of: Vec<usize>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Look {
    pub(super) number: u64,
    pub(super) taken: Option<String>,
    pub(super) is_complete: bool,
    pub(super) is_stopped: bool,
    pub(super) is_released: bool,
    pub(super) not_reached: Unseen,
}

struct Group {
    key: GroupKey,
    tenant: Option<String>,
    members: Vec<usize>,
}

/// How the page finds the tenant of a message: by a message attribute or by a JSON pointer into the
/// body, as `REQUEUE_SCOPE` does, or else by its message group.
pub(super) fn tenant(
    scope: Option<&str>,
    letter: &Letter,
    dead: &DeadLetter<'_>,
) -> Option<String> {
    let Some(scope) = scope else { return letter.record.group_id.clone() };
    if scope.starts_with('/') {
        let found = scope.parse::<JsonPointer>().ok()?.find(dead.payload())?;
        if found.starts_with(['{', '[']) {
            return None;
        }
        return match serde_json::from_str(found).ok()? {
            Value::String(text) => Some(text),
            value @ (Value::Number(_) | Value::Bool(_)) => Some(value.to_string()),
            _ => None,
        };
    }
    match letter.record.attributes.as_ref()?.get(scope).map(|attribute| &attribute.value) {
        Some(AttributeValue::Text(text)) => Some(text.clone()),
        Some(AttributeValue::Binary(_)) => None,
        None => letter.record.group_id.clone().filter(|_| scope == "MessageGroupId"),
    }
}

impl Snapshot {
    pub(super) fn new(look: Look, letters: Vec<Letter>, scope: Option<&str>) -> Self {
        let mut by_tenant: BTreeMap<Option<String>, DeadLetterGroups> = BTreeMap::new();
        let mut at: HashMap<(Option<String>, GroupKey), usize> = HashMap::new();
        let mut groups: Vec<Group> = Vec::new();
        let mut group_of = Vec::with_capacity(letters.len());
        for (number, letter) in letters.iter().enumerate() {
            let dead = letter.read();
            let mut own = tenant(scope, letter, &dead);
            if by_tenant.len() >= MAX_TENANTS && !by_tenant.contains_key(&own) {
                own = Some(OTHER_TENANTS.to_owned());
            }
            let key = by_tenant.entry(own.clone()).or_default().add(letter, &dead);
            let group = *at.entry((own.clone(), key.clone())).or_insert_with(|| {
                groups.push(Group { key, tenant: own, members: Vec::new() });
                groups.len() - 1
            });
            groups[group].members.push(number);
            group_of.push(group);
        }
        Self { look, letters, groups, by_tenant, group_of }
    }

    pub(super) fn json(&self) -> Value {
        let group = |Group { key, tenant, members }: &Group| {
            let of = &self.by_tenant[tenant].by_key[key];
            json!({
                "class": key.0,
                "reason": key.1,
                "code": key.2,
                "tenant": tenant,
                "oldest": of.oldest.and_then(moment),
                "first": of.dead_lettered.and_then(|(first, _)| moment(first)),
                "last": of.dead_lettered.and_then(|(_, last)| moment(last)),
                "count": members.len(),
            })
        };
        let mut json = json!(self.look);
        json["count"] = self.letters.len().into();
        json["groups"] = self.groups.iter().map(group).collect();
        json
    }

    pub(super) fn kind(&self, at: usize) -> (&'static str, Option<&str>) {
        let (class, _, code) = &self.groups[self.group_of[at]].key;
        (class, code.as_deref())
    }

    pub(super) fn rows(&self, group: usize, from: usize) -> Option<Value> {
        let members = self.groups.get(group)?.members.iter().skip(from).take(PER_RESPONSE);
        let row = |at: &usize| {
            let letter = &self.letters[*at];
            let dead = letter.read();
            json!({
                "at": at,
                "messageId": letter.id,
                "firstSent": letter.first_sent(&dead).and_then(moment),
                "retryCount": dead.retry_count(),
                "receiveCount": letter.record.receive_count,
                "sizeBytes": letter.size(),
            })
        };
        Some(members.map(row).collect())
    }

    /// The messages of whole groups and single ones, in their order and each once.
    pub(super) fn chosen(&self, groups: &[usize], messages: &[usize]) -> Vec<usize> {
        let is_chosen = |at: &usize| groups.contains(&self.group_of[*at]) || messages.contains(at);
        (0..self.letters.len()).filter(is_chosen).collect()
    }
}

pub(super) fn message(letter: &Letter) -> Value {
    let dead = letter.read();
    let names = letter.record.attributes.iter().flatten().map(|(name, _)| name.as_str());
    let retries = FailureClass::ALL.map(|class| (class.as_str(), dead.retries_of(class)));
    let retries = retries.into_iter().filter(|(_, count)| *count > 0);
    let mut message = json!(DeadLetterJson::of(letter, &dead));
    message["attributeNames"] = names.collect();
    message["retries"] = json!(retries.collect::<Vec<_>>());
    message["firstReceived"] = json!(dead.first_received().and_then(moment));
    message["lastDelaySeconds"] = json!(dead.last_delay().map(|delay| delay.as_secs()));
    message["deferrals"] = json!(dead.deferrals());
    message["isOfLaterVersion"] = json!(dead.is_of_later_version());
    message
}

/// The body as first delivered. `hasHidden`: names such as `[U+202E]` stand for control characters.
pub(super) fn body(letter: &Letter) -> Value {
    let dead = letter.read();
    let whole = dead.payload();
    let text = &whole[..whole.floor_char_boundary(MAX_SHOWN_BYTES)];
    json!({
        "text": text,
        "bytes": whole.len(),
        "isCut": text.len() < whole.len(),
        "hasHidden": server::visible(text) != text,
    })
}

#[cfg(test)]
mod tests {
    use requeue::queue::Record;
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn the_message_group_is_a_tenant_if_the_scope_names_it() {
        let mut record = Record::default();
        record.message_id = Some("m-1".to_owned());
        record.receipt_handle = Some("handle".to_owned());
        record.body = Some(r#"{"account":7}"#.to_owned());
        record.attributes = Some(BTreeMap::new());
        record.group_id = Some("acme".to_owned());
        let letter = Letter::new(record, Instant::now()).expect("whole");
        let dead = letter.read();
        for (scope, expected) in [
            (None, Some("acme")),
            (Some("MessageGroupId"), Some("acme")),
            (Some("/account"), Some("7")),
            (Some("tenant"), None),
        ] {
            assert_eq!(tenant(scope, &letter, &dead).as_deref(), expected, "{scope:?}");
        }
    }
}
