//! The classes of the document, with the keys of the entry of each. The value of a class is its
//! entry's own, else the global one, else the preset's; values must not contradict each other.

use std::time::Duration;

use serde_json::{Map, Value};

use super::delays::{Backoffs, Jitters};
use super::json::{Json, Problems};
use super::object::{KeyTable, keys};
use super::shapes::{AGE, COPIES, DELAY, FACTOR, Given, Maybe, Placed, Shape};
use crate::classify::CLASSES;
use crate::failure::FailureClass;
use crate::policy::{Backoff, ClassPolicy, Jitter, Preset};

/// The words for the classes with an entry, and their older ones. `None` has the entry of the classes
/// without an entry of their own.
pub(super) fn classes() -> impl Iterator<Item = (&'static str, Option<FailureClass>)> {
    let retried = CLASSES.into_iter().filter(|(_, class)| *class != FailureClass::NonRetryable);
    retried.map(|(name, class)| (name, Some(class))).chain([("default", None), ("DEFAULT", None)])
}

fn name(class: Option<FailureClass>) -> &'static str {
    class.map_or("default", FailureClass::as_str)
}

/// The values of the document for one class, or for all.
#[derive(Clone, Default)]
pub(super) struct Entry {
    path: String,
    base: Option<Given<Duration>>,
    pub(super) max_delay: Option<Given<Duration>>,
    pub(super) multiplier: Option<Given<f64>>,
    pub(super) backoff: Option<Given<Backoff>>,
    pub(super) jitter: Option<Given<Jitter>>,
    max_retries: Option<u32>,
    pub(super) total_timeout: Option<Duration>,
    pub(super) is_refused: bool,
}

impl From<&ClassPolicy> for Entry {
    fn from(class: &ClassPolicy) -> Self {
        fn given<T>(value: T) -> Given<T> {
            Given { value, path: String::new() }
        }
        let (base, multiplier) = match class.backoff {
            Backoff::List { .. } => (None, None),
            Backoff::Exponential { base, multiplier } => (Some(base), Some(multiplier)),
            Backoff::Linear { base } | Backoff::Fibonacci { base } | Backoff::Constant { base } => {
                (Some(base), None)
            }
        };
        Self {
            base: base.map(given),
            max_delay: Some(given(class.max_delay)),
            multiplier: multiplier.map(given),
            backoff: Some(given(class.backoff.clone())),
            jitter: Some(given(class.jitter)),
            max_retries: class.max_retries,
            total_timeout: Some(class.total_timeout),
            ..Self::default()
        }
    }
}

pub(super) const CLASS: KeyTable<Entry> = KeyTable {
    required: &[],
    default: Entry::default,
    keys: keys! { Entry:
        "baseDelay", Placed(DELAY) => base;
        "maxDelay", Placed(DELAY) => max_delay;
        "multiplier", Placed(FACTOR) => multiplier;
        "backoff", Placed(Backoffs) => backoff;
        "jitter", Placed(Jitters) => jitter;
        "maxRetries", Maybe(COPIES) => max_retries;
        "totalTimeoutSeconds", Maybe(AGE) => total_timeout;
    },
};

pub(super) struct Entries;

impl Shape for Entries {
    type Value = Vec<(Option<FailureClass>, Entry)>;

    /// A refused entry contradicts no other.
    fn read(&self, json: &Json<'_>) -> Option<Self::Value> {
        let fields = json.fields(&classes().map(|(name, _)| name).collect::<Vec<_>>())?;
        let mut entries: Self::Value = Vec::new();
        for (name, class) in classes() {
            let Some(json) = fields.get(name) else { continue };
            let mut entry = Entry { path: json.path.clone(), ..Entry::default() };
            if let Some((_, earlier)) = entries.iter().find(|(other, _)| *other == class) {
                let (path, earlier) = (&entry.path, &earlier.path);
                json.problems.note(format!(
                    "{path} is a second entry for the class of {earlier}: remove one of them"
                ));
            }
            entry.is_refused = !CLASS.fill(json, &mut entry);
            entries.push((class, entry));
        }
        Some(entries)
    }

    fn write(&self, entries: &Self::Value) -> Option<Value> {
        let written =
            |(class, entry): &(_, Entry)| Some((name(*class).to_owned(), CLASS.write(entry)?));
        Some(Value::Object(entries.iter().filter_map(written).collect::<Map<_, _>>()))
    }
}

/// A class, and all values that may serve it.
pub(super) struct Served<'a> {
    pub(super) class: Option<FailureClass>,
    pub(super) entry: &'a Entry,
    pub(super) globals: &'a Entry,
    pub(super) preset: &'a Preset,
    pub(super) row: &'a ClassPolicy,
}

impl Served<'_> {
    pub(super) fn resolve(&self, problems: &Problems) -> ClassPolicy {
        let Self { entry, globals, row, .. } = self;
        // A key that was refused has no value. Another value could contradict values that
        // were never meant together.
        if !entry.is_refused {
            self.contradictions(problems);
        }
        let growth = nearest(entry.backoff.as_ref(), globals.backoff.as_ref());
        let multiplier = nearest(entry.multiplier.as_ref(), globals.multiplier.as_ref())
            .unwrap_or(self.preset.multiplier);
        let max_delay = match &growth {
            // A list names its own longest delay.
            Some(list @ Backoff::List { .. }) => {
                nearest(entry.max_delay.as_ref(), None).unwrap_or(longest(list))
            }
            _ => nearest(entry.max_delay.as_ref(), globals.max_delay.as_ref())
                .unwrap_or(row.max_delay),
        };
        let base = nearest(entry.base.as_ref(), None).unwrap_or(row.backoff.base().min(max_delay));
        let total_timeout = entry.total_timeout.or(globals.total_timeout);
        ClassPolicy {
            backoff: match growth {
                None | Some(Backoff::Exponential { .. }) => {
                    Backoff::Exponential { base, multiplier }
                }
                Some(Backoff::Linear { .. }) => Backoff::Linear { base },
                Some(Backoff::Fibonacci { .. }) => Backoff::Fibonacci { base },
                Some(Backoff::Constant { .. }) => Backoff::Constant { base },
                Some(list @ Backoff::List { .. }) => list,
            },
            max_delay,
            jitter: nearest(entry.jitter.as_ref(), globals.jitter.as_ref()).unwrap_or(row.jitter),
            max_retries: entry.max_retries.or(row.max_retries),
            total_timeout: total_timeout.unwrap_or(row.total_timeout),
        }
    }

    /// Notes values that exclude each other, or would have no effect.
    fn contradictions(&self, problems: &Problems) {
        let Self { entry, globals, .. } = self;
        let Some(Given { value: growth, path }) =
            entry.backoff.as_ref().or(globals.backoff.as_ref())
        else {
            return self.first_above_longest(problems);
        };
        if !matches!(growth, Backoff::Exponential { .. }) {
            if let Some(Given { value, path: place }) = &entry.multiplier {
                problems.note(format!(
                    "{place} is {value}, but {path} is not exponential: remove one of them"
                ));
            }
            let jitter = entry.jitter.as_ref().or(globals.jitter.as_ref());
            if let Some(Given { value: Jitter::Decorrelated, path: place }) = jitter {
                problems.note(format!(
                    "{place} is decorrelated, but {path} is not exponential: change one of them"
                ));
            }
        }
        if !matches!(growth, Backoff::List { .. }) {
            return self.first_above_longest(problems);
        }
        if let Some(Given { value, path: place }) = &entry.base {
            let base = value.as_secs_f64();
            problems.note(format!(
                "{place} is {base}, but {path} is a list of delays: remove one of them"
            ));
        }
        let longest = longest(growth);
        if let Some(cap) = entry.max_delay.as_ref().filter(|cap| cap.value < longest) {
            let (longest, most, place) =
                (longest.as_secs_f64(), cap.value.as_secs_f64(), &cap.path);
            problems.note(format!(
                "{path} has a delay of {longest}: must be at most {most}, by {place}"
            ));
        }
    }

    /// Only a first delay of the document can be too long: the preset's is cut.
    fn first_above_longest(&self, problems: &Problems) {
        let Self { entry, globals, .. } = self;
        let Some(Given { value: first, path }) = &entry.base else { return };
        let cap = entry.max_delay.as_ref().or(globals.max_delay.as_ref());
        let longest = cap.map_or(self.row.max_delay, |given| given.value);
        if *first <= longest || (entry.max_delay.is_none() && globals.is_refused) {
            return;
        }
        let place = cap.map_or_else(
            || format!("the preset {} for {}", self.preset.name, name(self.class)),
            |given| given.path.clone(),
        );
        let (first, longest) = (first.as_secs_f64(), longest.as_secs_f64());
        problems.note(format!("{path} is {first}: must be at most {longest}, by {place}"));
    }
}

fn nearest<T: Clone>(own: Option<&Given<T>>, global: Option<&Given<T>>) -> Option<T> {
    own.or(global).map(|given| given.value.clone())
}

fn longest(list: &Backoff) -> Duration {
    match list {
        Backoff::List { first, then } => then.iter().copied().fold(*first, Duration::max),
        _ => Duration::ZERO,
    }
}
