//! Reads and writes the value of the field `retryState`. `v` comes first. A value that is absent or
//! zero is left out, and fields that this version does not know are kept unchanged.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::json;
use super::object::Name;
use crate::clock::{epoch_millis, from_epoch_millis};
use crate::failure::FailureClass;
use crate::state::RetryState;

/// The version written, and the only one read.
const VERSION: u64 = 1;

/// A `retryState`, read.
pub(super) enum StateText {
    /// The state, its first three fields unset, and the producer's own values of fields with our
    /// names.
    Known(Box<RetryState>, Vec<(Name, String)>),
    /// The version that wrote it.
    Later(u64),
}

/// `None` for a text that neither this version nor a later one has written.
pub(super) fn read(text: &str) -> Option<StateText> {
    let fields = Fields::read(text)?;
    match json::plain_integer(fields.v?)? {
        0 => None,
        VERSION => {
            let originals = fields.original.map_or(Some(Vec::new()), originals)?;
            Some(StateText::Known(Box::new(fields.state()?), originals))
        }
        later => Some(StateText::Later(later)),
    }
}

/// The known fields as text, and the others.
#[derive(Default)]
struct Fields<'a> {
    v: Option<&'a str>,
    first_sent: Option<&'a str>,
    first_received: Option<&'a str>,
    class: Option<&'a str>,
    delay: Option<&'a str>,
    counts: Option<&'a str>,
    not_before: Option<&'a str>,
    start_tag: Option<&'a str>,
    age_from: Option<&'a str>,
    deferrals: Option<&'a str>,
    postponements: Option<&'a str>,
    hops: Option<&'a str>,
    copies_in_row: Option<&'a str>,
    alone: Option<&'a str>,
    redrives: Option<&'a str>,
    original: Option<&'a str>,
    dead_letter: Option<&'a str>,
    source: Option<&'a str>,
    last_dead_letter: Option<&'a str>,
    traceparent: Option<&'a str>,
    unknown: Vec<(String, String)>,
}

impl<'a> Fields<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let mut fields = Self::default();
        json::each_member(text, |key, value| {
            let name = json::string(key)?;
            let Some(field) = fields.known(&name) else {
                fields.unknown.push((name, value.to_owned()));
                return Some(());
            };
            // A known field that occurs twice was not written by us.
            field.replace(value).is_none().then_some(())
        })?;
        Some(fields)
    }

    fn known(&mut self, name: &str) -> Option<&mut Option<&'a str>> {
        Some(match name {
            "v" => &mut self.v,
            "firstSent" => &mut self.first_sent,
            "firstReceived" => &mut self.first_received,
            "class" => &mut self.class,
            "delay" => &mut self.delay,
            "counts" => &mut self.counts,
            "notBefore" => &mut self.not_before,
            "startTag" => &mut self.start_tag,
            "ageFrom" => &mut self.age_from,
            "deferrals" => &mut self.deferrals,
            "postponements" => &mut self.postponements,
            "hops" => &mut self.hops,
            "lineage" => &mut self.copies_in_row,
            "alone" => &mut self.alone,
            "redrives" => &mut self.redrives,
            "original" => &mut self.original,
            "deadLetter" => &mut self.dead_letter,
            "source" => &mut self.source,
            "lastDeadLetter" => &mut self.last_dead_letter,
            "traceparent" => &mut self.traceparent,
            _ => return None,
        })
    }

    fn state(self) -> Option<RetryState> {
        Some(RetryState {
            first_sent: present(self.first_sent, time)?,
            first_received: present(self.first_received, time)?,
            class: present(self.class, class)?,
            delay: present(self.delay, delay)?,
            counts: present(self.counts, counts)?.unwrap_or_default(),
            not_before: present(self.not_before, time)?,
            start_tag: present(self.start_tag, json::plain_integer)?,
            age_from: present(self.age_from, time)?,
            deferrals: present(self.deferrals, super::count)?.unwrap_or_default(),
            postponements: present(self.postponements, super::count)?.unwrap_or_default(),
            hops: present(self.hops, super::count)?.unwrap_or_default(),
            copies_in_row: present(self.copies_in_row, super::count)?.unwrap_or_default(),
            is_alone: present(self.alone, alone)?.unwrap_or_default(),
            redrives: present(self.redrives, super::count)?.unwrap_or_default(),
            dead_letter: present(self.dead_letter, object)?,
            source: present(self.source, json::string)?,
            last_dead_letter: present(self.last_dead_letter, object)?,
            traceparent: present(self.traceparent, json::string)?,
            unknown: self.unknown,
            ..RetryState::default()
        })
    }
}

/// An absent field is fine, a malformed one is not.
#[allow(clippy::option_option, reason = "the outer `None` means malformed, the inner one absent")]
fn present<T>(text: Option<&str>, read: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    match text {
        Some(text) => read(text).map(Some),
        None => Some(None),
    }
}

fn time(text: &str) -> Option<SystemTime> {
    let millis = json::plain_integer(text).filter(|millis| *millis <= max_millis())?;
    Some(from_epoch_millis(millis))
}

fn class(text: &str) -> Option<FailureClass> {
    FailureClass::from_name(&json::string(text)?)
}

/// A delay that exceeds 32 bits is not ours, and later steps would add to it and multiply it.
fn delay(text: &str) -> Option<Duration> {
    super::count(text).map(|secs| Duration::from_secs(u64::from(secs)))
}

fn counts(text: &str) -> Option<[u32; 4]> {
    let mut counts = [None; 4];
    json::each_member(text, |key, value| {
        let slot = &mut counts[class(key)? as usize];
        slot.replace(super::count(value)?).is_none().then_some(())
    })?;
    Some(counts.map(Option::unwrap_or_default))
}

/// It is written only if it is true.
fn alone(text: &str) -> Option<bool> {
    (text == "true").then_some(true)
}

fn object(text: &str) -> Option<String> {
    text.starts_with('{').then(|| text.to_owned())
}

fn originals(text: &str) -> Option<Vec<(Name, String)>> {
    let mut originals: Vec<(Name, String)> = Vec::new();
    json::each_member(text, |key, value| {
        let name = Name::from_name(&json::string(key)?)?;
        let original = json::string(value)?;
        let is_one_value = json::raw(&original)?.get().len() == original.len();
        let is_new = originals.iter().all(|(other, _)| *other != name);
        originals.push((name, original));
        (is_one_value && is_new).then_some(())
    })?;
    Some(originals)
}

/// The last instant that RFC 3339 and our arithmetic can both represent, at the end of the year
/// 9999.
pub(super) fn max_millis() -> u64 {
    Timestamp::MAX.as_millisecond().unsigned_abs()
}

/// Appends the text of `state` to `out`, with the producer's own values of fields with our names.
pub(super) fn push(out: &mut String, state: &RetryState, originals: &[(Name, &str)]) {
    json::push(out, &Printed { state, originals });
}

struct Printed<'a> {
    state: &'a RetryState,
    originals: &'a [(Name, &'a str)],
}

impl Serialize for Printed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let state = self.state;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("v", &VERSION)?;
        entry(&mut map, "firstSent", state.first_sent.map(millis))?;
        entry(&mut map, "firstReceived", state.first_received.map(millis))?;
        entry(&mut map, "class", state.class.map(FailureClass::as_str))?;
        entry(&mut map, "delay", state.delay.map(secs))?;
        entry(&mut map, "counts", (state.counts != [0; 4]).then_some(ClassCounts(state)))?;
        entry(&mut map, "notBefore", state.not_before.map(millis))?;
        entry(&mut map, "startTag", state.start_tag)?;
        entry(&mut map, "ageFrom", state.age_from.map(millis))?;
        entry(&mut map, "deferrals", non_zero(state.deferrals))?;
        entry(&mut map, "postponements", non_zero(state.postponements))?;
        entry(&mut map, "hops", non_zero(state.hops))?;
        entry(&mut map, "lineage", non_zero(state.copies_in_row))?;
        entry(&mut map, "alone", state.is_alone.then_some(true))?;
        entry(&mut map, "redrives", non_zero(state.redrives))?;
        entry(
            &mut map,
            "original",
            (!self.originals.is_empty()).then_some(Originals(self.originals)),
        )?;
        entry(&mut map, "deadLetter", state.dead_letter.as_deref().map(raw))?;
        entry(&mut map, "source", state.source.as_deref())?;
        entry(&mut map, "lastDeadLetter", state.last_dead_letter.as_deref().map(raw))?;
        entry(&mut map, "traceparent", state.traceparent.as_deref())?;
        for (name, text) in &state.unknown {
            map.serialize_entry(name, raw(text))?;
        }
        map.end()
    }
}

fn entry<M: SerializeMap>(
    map: &mut M,
    name: &str,
    value: Option<impl Serialize>,
) -> Result<(), M::Error> {
    match value {
        Some(value) => map.serialize_entry(name, &value),
        None => Ok(()),
    }
}

struct ClassCounts<'a>(&'a RetryState);

impl Serialize for ClassCounts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let counts = FailureClass::ALL.map(|class| (class.as_str(), self.0.count(class)));
        serializer.collect_map(counts.into_iter().filter(|(_, count)| *count > 0))
    }
}

struct Originals<'a>(&'a [(Name, &'a str)]);

impl Serialize for Originals<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, text)| (name.as_str(), text)))
    }
}

fn millis(time: SystemTime) -> u64 {
    epoch_millis(time).min(max_millis())
}

fn secs(delay: Duration) -> u32 {
    u32::try_from(delay.as_secs()).unwrap_or(u32::MAX)
}

fn non_zero(count: u32) -> Option<u32> {
    (count > 0).then_some(count)
}

fn raw(text: &str) -> &serde_json::value::RawValue {
    json::raw(text).expect("the state keeps foreign members as JSON text")
}
