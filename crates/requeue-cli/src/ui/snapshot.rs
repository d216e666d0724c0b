//! The dead letters of one look, in memory: their groups, and the parts that the page shows of
//! each. It makes no request.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use requeue::queue::AttributeValue;
use requeue::{DeadLetter, FailureClass, JsonPointer};
use serde::Serialize;

use super::server;
use crate::dlq::letter::{DeadLetterJson, Letter};
use crate::dlq::list::{DeadLetterGroups, GroupKey};
use crate::dlq::scan::Unseen;
use crate::table::moment;

/// Characters of a body that the page shows.
const MAX_SHOWN_BYTES: usize = 64 * 1024;
/// Messages in one response.
const PER_RESPONSE: usize = 100;
/// Tenants with groups of their own. The others share one, so that the page stays readable.
const MAX_TENANTS: usize = 200;
/// The tenant of the others.
const OTHER_TENANTS: &str = "…";

/// The messages of one look at the queue.
pub(super) struct Snapshot {
    pub(super) number: u64,
    pub(super) taken: SystemTime,
    pub(super) letters: Vec<Letter>,
    groups: Vec<Group>,
    /// The group of each message.
    group_of: Vec<usize>,
    pub(super) is_complete: bool,
    /// Whether somebody stopped the look.
    pub(super) is_stopped: bool,
    /// Whether all messages are visible again.
    pub(super) is_released: bool,
    pub(super) not_reached: Unseen,
}

struct Group {
    class: &'static str,
    reason: String,
    code: Option<String>,
    tenant: Option<String>,
    oldest: Option<SystemTime>,
    members: Vec<usize>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SnapshotJson<'a> {
    number: u64,
    taken: Option<String>,
    count: usize,
    is_complete: bool,
    is_stopped: bool,
    is_released: bool,
    not_reached: &'a Unseen,
    groups: Vec<GroupJson<'a>>,
}

#[derive(Serialize)]
struct GroupJson<'a> {
    class: &'static str,
    reason: &'a str,
    code: Option<&'a str>,
    tenant: Option<&'a str>,
    oldest: Option<String>,
    count: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RowJson<'a> {
    at: usize,
    message_id: &'a str,
    first_sent: Option<String>,
    retry_count: Option<u32>,
    receive_count: Option<u32>,
    size_bytes: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MessageJson<'a> {
    #[serde(flatten)]
    known: DeadLetterJson<'a>,
    attribute_names: Vec<&'a str>,
    retries: Vec<(&'static str, u32)>,
    first_received: Option<String>,
    last_delay_seconds: Option<u64>,
    deferrals: u32,
    is_of_later_version: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BodyJson<'a> {
    text: &'a str,
    bytes: usize,
    is_cut: bool,
    /// Whether names such as `[U+202E]` stand for control characters.
    has_hidden: bool,
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
            serde_json::Value::String(text) => Some(text),
            value @ (serde_json::Value::Number(_) | serde_json::Value::Bool(_)) => {
                Some(value.to_string())
            }
            _ => None,
        };
    }
    match &letter.record.attributes.as_ref()?.get(scope)?.value {
        AttributeValue::Text(text) => Some(text.clone()),
        AttributeValue::Binary(_) => None,
    }
}

impl Snapshot {
    pub(super) fn new(
        number: u64,
        taken: SystemTime,
        letters: Vec<Letter>,
        scope: Option<&str>,
    ) -> Self {
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
            let (class, reason, code) = key.clone();
            let group = *at.entry((own.clone(), key)).or_insert_with(|| {
                let (oldest, members) = (None, Vec::new());
                groups.push(Group { class, reason, code, tenant: own, oldest, members });
                groups.len() - 1
            });
            let of = &mut groups[group];
            of.oldest = [of.oldest, letter.first_sent(&dead)].into_iter().flatten().min();
            of.members.push(number);
            group_of.push(group);
        }
        Self {
            number,
            taken,
            letters,
            groups,
            group_of,
            is_complete: false,
            is_stopped: false,
            is_released: false,
            not_reached: Unseen::default(),
        }
    }

    pub(super) fn json(&self) -> SnapshotJson<'_> {
        let groups = self.groups.iter().map(|group| GroupJson {
            class: group.class,
            reason: &group.reason,
            code: group.code.as_deref(),
            tenant: group.tenant.as_deref(),
            oldest: group.oldest.and_then(moment),
            count: group.members.len(),
        });
        SnapshotJson {
            number: self.number,
            taken: moment(self.taken),
            count: self.letters.len(),
            is_complete: self.is_complete,
            is_stopped: self.is_stopped,
            is_released: self.is_released,
            not_reached: &self.not_reached,
            groups: groups.collect(),
        }
    }

    /// The class and the failure of a message.
    pub(super) fn kind(&self, at: usize) -> (&'static str, Option<&str>) {
        let group = &self.groups[self.group_of[at]];
        (group.class, group.code.as_deref())
    }

    /// The messages of a group, from this position on.
    pub(super) fn rows(&self, group: usize, from: usize) -> Option<Vec<RowJson<'_>>> {
        let members = self.groups.get(group)?.members.iter().skip(from).take(PER_RESPONSE);
        Some(members.map(|at| self.row(*at)).collect())
    }

    fn row(&self, at: usize) -> RowJson<'_> {
        let letter = &self.letters[at];
        let dead = letter.read();
        RowJson {
            at,
            message_id: &letter.id,
            first_sent: letter.first_sent(&dead).and_then(moment),
            retry_count: dead.retry_count(),
            receive_count: letter.record.receive_count,
            size_bytes: letter.size(),
        }
    }

    /// The messages of whole groups and single ones, in their order and each once.
    pub(super) fn chosen(&self, groups: &[usize], messages: &[usize]) -> Vec<usize> {
        let is_chosen = |at: &usize| groups.contains(&self.group_of[*at]) || messages.contains(at);
        (0..self.letters.len()).filter(is_chosen).collect()
    }
}

impl<'a> MessageJson<'a> {
    pub(super) fn of(letter: &'a Letter, dead: &'a DeadLetter<'_>) -> Self {
        let names = letter.record.attributes.iter().flatten().map(|(name, _)| name.as_str());
        let retries = FailureClass::ALL.map(|class| (class.as_str(), dead.retries_of(class)));
        Self {
            known: DeadLetterJson::of(letter, dead),
            attribute_names: names.collect(),
            retries: retries.into_iter().filter(|(_, count)| *count > 0).collect(),
            first_received: dead.first_received().and_then(moment),
            last_delay_seconds: dead.last_delay().map(|delay| delay.as_secs()),
            deferrals: dead.deferrals(),
            is_of_later_version: dead.is_of_later_version(),
        }
    }
}

impl<'a> BodyJson<'a> {
    /// The body as first delivered.
    pub(super) fn of(dead: &'a DeadLetter<'_>) -> Self {
        let whole = dead.payload();
        let text = &whole[..whole.floor_char_boundary(MAX_SHOWN_BYTES)];
        let has_hidden = server::visible(text) != text;
        Self { text, bytes: whole.len(), is_cut: text.len() < whole.len(), has_hidden }
    }
}
