//! Resolves the values of a class: its entry's own, else the global one, else the preset's. It also
//! finds values that contradict each other.

use std::time::Duration;

use super::classes::{Class, class};
use super::delays::Growth;
use super::keys as global;
use super::section::{Given, Section};
use crate::policy::{Backoff, ClassPolicy, Jitter, Preset};

/// The values of the document for all classes.
pub(super) struct Globals {
    preset: Preset,
    max_delay: Option<Given<Duration>>,
    multiplier: Option<f64>,
    growth: Option<Given<Growth>>,
    jitter: Option<Given<Jitter>>,
    total_timeout: Option<Duration>,
    sound: bool,
}

impl Globals {
    pub(super) fn read(
        section: &mut Section<'_>,
        preset: Preset,
        problems: &mut Vec<String>,
    ) -> Self {
        let jitter = section.given(&global::JITTER, problems);
        let percentage = section.given(&global::JITTER_PERCENTAGE, problems);
        if let (Some(jitter), Some(percentage)) = (&jitter, &percentage) {
            problems.push(format!(
                "{} sets the same as {}: remove one of them",
                percentage.path, jitter.path
            ));
        }
        let percentage = percentage
            .map(|Given { value, path }| Given { value: Jitter::Proportional(value), path });
        Self {
            preset,
            max_delay: section.given(&global::MAX_DELAY, problems),
            multiplier: section.read(&global::MULTIPLIER, problems),
            growth: section.given(&global::BACKOFF, problems),
            jitter: jitter.or(percentage),
            total_timeout: section.read(&global::TOTAL_TIMEOUT, problems),
            sound: section.sound,
        }
    }
}

/// The values of the document for one class.
pub(super) struct Entry {
    pub(super) path: String,
    base: Option<Given<Duration>>,
    max_delay: Option<Given<Duration>>,
    multiplier: Option<Given<f64>>,
    growth: Option<Given<Growth>>,
    jitter: Option<Given<Jitter>>,
    max_retries: Option<u32>,
    total_timeout: Option<Duration>,
    sound: bool,
}

impl Default for Entry {
    /// An entry without values.
    fn default() -> Self {
        Self { sound: true, ..Self::unsound(String::new()) }
    }
}

impl Entry {
    pub(super) fn unsound(path: String) -> Self {
        Self {
            path,
            base: None,
            max_delay: None,
            multiplier: None,
            growth: None,
            jitter: None,
            max_retries: None,
            total_timeout: None,
            sound: false,
        }
    }

    pub(super) fn read(
        section: &mut Section<'_>,
        path: String,
        problems: &mut Vec<String>,
    ) -> Self {
        Self {
            path,
            base: section.given(&class::BASE, problems),
            max_delay: section.given(&class::MAX_DELAY, problems),
            multiplier: section.given(&class::MULTIPLIER, problems),
            growth: section.given(&class::BACKOFF, problems),
            jitter: section.given(&class::JITTER, problems),
            max_retries: section.read(&class::MAX_RETRIES, problems),
            total_timeout: section.read(&class::TOTAL_TIMEOUT, problems),
            sound: section.sound,
        }
    }
}

/// The policy of a class that `entry` serves. `row` is the preset's.
pub(super) fn resolve(
    name: Class,
    entry: &Entry,
    globals: &Globals,
    row: &ClassPolicy,
    problems: &mut Vec<String>,
) -> ClassPolicy {
    // A key that was refused has no value. Another value could contradict values that
    // were never meant together.
    if entry.sound {
        for problem in contradictions(name, entry, globals, row) {
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
    }
    let growth = nearest(entry.growth.as_ref(), globals.growth.as_ref());
    let multiplier = nearest(entry.multiplier.as_ref(), None).or(globals.multiplier);
    let cap = match &growth {
        // A list names its own longest delay.
        Some(list @ Growth::List { .. }) => {
            nearest(entry.max_delay.as_ref(), None).unwrap_or(longest(list))
        }
        _ => nearest(entry.max_delay.as_ref(), globals.max_delay.as_ref()).unwrap_or(row.max_delay),
    };
    let base = nearest(entry.base.as_ref(), None).unwrap_or(row.backoff.base().min(cap));
    let total_timeout = entry.total_timeout.or(globals.total_timeout);
    ClassPolicy {
        backoff: match growth {
            None | Some(Growth::Exponential) => Backoff::Exponential {
                base,
                multiplier: multiplier.unwrap_or(globals.preset.multiplier),
            },
            Some(Growth::Linear) => Backoff::Linear { base },
            Some(Growth::Fibonacci) => Backoff::Fibonacci { base },
            Some(Growth::Constant) => Backoff::Constant { base },
            Some(Growth::List { first, then }) => Backoff::List { first, then },
        },
        max_delay: cap,
        jitter: nearest(entry.jitter.as_ref(), globals.jitter.as_ref()).unwrap_or(row.jitter),
        max_retries: entry.max_retries.or(row.max_retries),
        total_timeout: total_timeout.unwrap_or(row.total_timeout),
    }
}

fn nearest<T: Clone>(own: Option<&Given<T>>, global: Option<&Given<T>>) -> Option<T> {
    own.or(global).map(|given| given.value.clone())
}

/// The contradictions of an entry: values that exclude each other, or would have no effect.
fn contradictions(name: Class, entry: &Entry, globals: &Globals, row: &ClassPolicy) -> Vec<String> {
    let mut problems = Vec::new();
    let Some(Given { value: growth, path }) = entry.growth.as_ref().or(globals.growth.as_ref())
    else {
        return first_above_longest(name, entry, globals, row).into_iter().collect();
    };
    if *growth != Growth::Exponential {
        if let Some(multiplier) = &entry.multiplier {
            let Given { value, path: place } = multiplier;
            problems.push(format!(
                "{place} is {value}, but {path} is not exponential: remove one of them"
            ));
        }
        let jitter = entry.jitter.as_ref().or(globals.jitter.as_ref());
        if let Some(jitter) = jitter.filter(|jitter| jitter.value == Jitter::Decorrelated) {
            let place = &jitter.path;
            problems.push(format!(
                "{place} is decorrelated, but {path} is not exponential: change one of them"
            ));
        }
    }
    if matches!(growth, Growth::List { .. }) {
        if let Some(Given { value, path: place }) = &entry.base {
            let base = value.as_secs_f64();
            problems.push(format!(
                "{place} is {base}, but {path} is a list of delays: remove one of them"
            ));
        }
        if let Some(cap) = entry.max_delay.as_ref().filter(|cap| cap.value < longest(growth)) {
            let (longest, cap, place) =
                (longest(growth).as_secs_f64(), cap.value.as_secs_f64(), &cap.path);
            problems.push(format!(
                "{path} has a delay of {longest}: must be at most {cap}, by {place}"
            ));
        }
    } else {
        problems.extend(first_above_longest(name, entry, globals, row));
    }
    problems
}

/// Only a first delay of the document can be too long: the preset's is cut.
fn first_above_longest(
    name: Class,
    entry: &Entry,
    globals: &Globals,
    row: &ClassPolicy,
) -> Option<String> {
    let Given { value: first, path } = entry.base.as_ref()?;
    let cap = entry.max_delay.as_ref().or(globals.max_delay.as_ref());
    let longest = cap.map_or(row.max_delay, |given| given.value);
    if *first <= longest || !(entry.max_delay.is_some() || globals.sound) {
        return None;
    }
    let place = cap.map_or_else(
        || format!("the preset {} for {}", globals.preset.name, name.name()),
        |given| given.path.clone(),
    );
    Some(format!(
        "{path} is {}: must be at most {}, by {place}",
        first.as_secs_f64(),
        longest.as_secs_f64()
    ))
}

fn longest(growth: &Growth) -> Duration {
    match growth {
        Growth::List { first, then } => then.iter().copied().fold(*first, Duration::max),
        Growth::Exponential | Growth::Linear | Growth::Fibonacci | Growth::Constant => {
            Duration::ZERO
        }
    }
}
