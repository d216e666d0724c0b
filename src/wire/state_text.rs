//! Reads and writes the value of the field `retryState`. `v` is the first field. A value that is
//! absent or zero is omitted, and fields that this version does not know are kept unchanged.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::object::Name;
use crate::clock::{epoch_millis, from_epoch_millis};
use crate::failure::FailureClass;
use crate::json::{self, each_member};
use crate::state::RetryState;

/// The version written, and the only one read.
const VERSION: u64 = 1;

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

/// The known fields in the order in which they are written: for each its name in the text and in the
/// state, how its text is read into the state, and how its value is written if there is one.
macro_rules! fields {
    ($($name:literal $field:ident $(, $read:expr)? => |$it:ident| $written:expr;)+) => {
        /// The known fields as text, and the others.
        #[derive(Default)]
        struct Fields<'a> {
            $($field: Option<&'a str>,)+
            unknown: Vec<(String, String)>,
        }

        impl<'a> Fields<'a> {
            fn known(&mut self, name: &str) -> Option<&mut Option<&'a str>> {
                Some(match name {
                    $($name => &mut self.$field,)+
                    _ => return None,
                })
            }

            fn state(self) -> Option<RetryState> {
                let mut state = RetryState { unknown: self.unknown, ..RetryState::default() };
                $($(if let Some(text) = self.$field {
                    state.$field = $read(text)?.into();
                })?)+
                Some(state)
            }
        }

        impl Serialize for Printed<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                $({
                    let $it = self;
                    if let Some(value) = $written {
                        map.serialize_entry($name, &value)?;
                    }
                })+
                for (name, text) in &self.state.unknown {
                    map.serialize_entry(name, raw(text))?;
                }
                map.end()
            }
        }
    };
}

fields! {
    "v" v => |_it| Some(VERSION);
    "firstSent" first_sent, time => |it| it.state.first_sent.map(millis);
    "firstReceived" first_received, time => |it| it.state.first_received.map(millis);
    "class" class, class => |it| it.state.class.map(FailureClass::as_str);
    "delay" delay, delay => |it| it.state.delay.map(secs);
    "counts" counts, counts => |it| (it.state.counts != [0; 4]).then_some(ClassCounts(it.state));
    "notBefore" not_before, time => |it| it.state.not_before.map(millis);
    "startTag" start_tag, json::plain_integer => |it| it.state.start_tag;
    "ageFrom" age_from, time => |it| it.state.age_from.map(millis);
    "deferrals" deferrals, super::count => |it| non_zero(it.state.deferrals);
    "postponements" postponements, super::count => |it| non_zero(it.state.postponements);
    "hops" hops, super::count => |it| non_zero(it.state.hops);
    "lineage" copies_in_row, super::count => |it| non_zero(it.state.copies_in_row);
    "alone" is_alone, alone => |it| it.state.is_alone.then_some(true);
    "redrives" redrives, super::count => |it| non_zero(it.state.redrives);
    "original" original => |it| (!it.originals.is_empty()).then_some(Originals(it.originals));
    "deadLetter" dead_letter, object => |it| it.state.dead_letter.as_deref().map(raw);
    "source" source, json::string => |it| it.state.source.as_deref();
    "lastDeadLetter" last_dead_letter, object => |it| it.state.last_dead_letter.as_deref().map(raw);
    "traceparent" traceparent, json::string => |it| it.state.traceparent.as_deref();
}

impl<'a> Fields<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let mut fields = Self::default();
        each_member(text, |key, value| {
            let name = json::string(key)?;
            let Some(field) = fields.known(&name) else {
                fields.unknown.push((name, value.to_owned()));
                return Some(());
            };
            // If a known field occurs twice, Requeue did not write it.
            field.replace(value).is_none().then_some(())
        })?;
        Some(fields)
    }
}

fn time(text: &str) -> Option<SystemTime> {
    let millis = json::plain_integer(text).filter(|millis| *millis <= max_millis())?;
    Some(from_epoch_millis(millis))
}

fn class(text: &str) -> Option<FailureClass> {
    FailureClass::from_name(&json::string(text)?)
}

/// A longer delay than 32 bits is not Requeue's, and later steps would add to it and multiply it.
fn delay(text: &str) -> Option<Duration> {
    super::count(text).map(|secs| Duration::from_secs(u64::from(secs)))
}

fn counts(text: &str) -> Option<[u32; 4]> {
    let mut counts = [None; 4];
    each_member(text, |key, value| {
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
    each_member(text, |key, value| {
        let name = Name::from_name(&json::string(key)?)?;
        let original = json::string(value)?;
        let is_one_value = json::raw(&original)?.get().len() == original.len();
        let is_new = originals.iter().all(|(other, _)| *other != name);
        originals.push((name, original));
        (is_one_value && is_new).then_some(())
    })?;
    Some(originals)
}

/// The last instant of RFC 3339 and our arithmetic, at the end of the year 9999.
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
