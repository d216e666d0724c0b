//! The text of the document, parsed only as far as needed. Names and values stay as they were
//! written, so that a problem can show them and a repeated name is found.

use std::cell::{Cell, RefCell};
use std::{fmt, mem};

use serde_json::value::RawValue;

use crate::config::duration_secs;
use crate::json::each_member;

/// Most characters of a name or a value that a problem shows.
const MAX_SHOWN: usize = 40;
/// How alike two names must be for one to be suggested for the other.
const ALIKE: f64 = 0.85;

pub(in crate::config) struct Problems {
    found: RefCell<Vec<String>>,
    /// Whether one of them explains durations.
    tells_durations: Cell<bool>,
    values: InProblems,
}

/// Whether problems show the written value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum InProblems {
    Shown,
    /// The document is stored as a secret, and problems are logged.
    Hidden,
}

impl Problems {
    pub(in crate::config) fn new(values: InProblems) -> Self {
        Self { found: RefCell::default(), tells_durations: Cell::default(), values }
    }

    /// Notes a problem once: a key that serves two classes has it twice.
    pub(super) fn note(&self, problem: String) {
        let mut found = self.found.borrow_mut();
        if !found.iter().any(|known| known.starts_with(&problem)) {
            found.push(problem);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.found.borrow().len()
    }

    pub(super) fn into_found(self) -> Vec<String> {
        self.found.into_inner()
    }
}

/// A value, as it was written, and where it stands.
#[derive(Clone)]
pub(in crate::config) struct Json<'d> {
    raw: &'d str,
    pub(super) path: String,
    pub(super) problems: &'d Problems,
}

const AS_DURATION: &str = ", or a duration as in 12h";

const MAX_NAMES: usize = 10;
const ALL_KEYS: &str = ": remove it, or use a key of docs/reference/policy.md";

/// Keys with another name before the first release, and the new one.
const RENAMED: [(&str, &str); 2] =
    [("once", "idempotency"), ("maxSlotWaitSeconds", "maxReservationSeconds")];

pub(super) struct Section<'d> {
    fields: Vec<(String, Json<'d>)>,
    /// No name is unknown or stands twice.
    pub(super) sound: bool,
}

impl<'d> Section<'d> {
    pub(super) fn get(&self, name: &str) -> Option<&Json<'d>> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, json)| json)
    }
}

impl<'d> Json<'d> {
    /// Checks the whole text. The error names line and column.
    pub(in crate::config) fn parse(
        text: &'d str,
        problems: &'d Problems,
    ) -> Result<Self, serde_json::Error> {
        let raw: &RawValue = serde_json::from_str(text)?;
        Ok(Self { raw: raw.get(), path: String::new(), problems })
    }

    pub(super) fn refuse<T>(&self, allowed: &str) -> Option<T> {
        let place = if self.path.is_empty() { String::new() } else { format!("{} ", self.path) };
        self.problems.note(format!("{place}is {self}: must be {allowed}"));
        None
    }

    /// Refuses a duration. The first such problem shows how to write one.
    pub(super) fn refuse_duration<T>(&self, allowed: &str) -> Option<T> {
        let is_told = self.problems.tells_durations.replace(true);
        self.refuse(&format!("{allowed}{}", if is_told { "" } else { AS_DURATION }))
    }

    /// Refuses a value that is no object, and every name that is unknown or occurs twice.
    pub(super) fn fields(&self, known: &[&str]) -> Option<Section<'d>> {
        let Some(mut fields) = self.members() else { return self.refuse("an object") };
        for (name, _) in &mut fields {
            let renamed = RENAMED.iter().find(|(old, new)| old == name && known.contains(new));
            *name = renamed.map_or_else(|| mem::take(name), |(_, new)| (*new).to_owned());
        }
        let before = self.problems.count();
        for (at, (name, json)) in fields.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let (shown, hint) = match meant(name, known) {
                    // Such a name is no secret.
                    Some(meant) => (shortened(name), format!("; did you mean {meant}?")),
                    None if known.len() <= MAX_NAMES => {
                        (self.shown(name), format!(": use one of {}", known.join(", ")))
                    }
                    None => (self.shown(name), ALL_KEYS.to_owned()),
                };
                self.problems.note(format!("{} is unknown{hint}", self.path_to(&shown)));
            } else if fields[..at].iter().any(|(earlier, _)| earlier == name) {
                let path = &json.path;
                self.problems.note(format!("{path} stands more than once: keep one of them"));
            }
        }
        let sound = self.problems.count() == before;
        Some(Section { fields, sound })
    }

    pub(super) fn path_to(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// A name or a value within it, as a problem shows it.
    pub(super) fn shown(&self, text: &str) -> String {
        match self.problems.values {
            InProblems::Shown => shortened(text),
            InProblems::Hidden => "…".to_owned(),
        }
    }

    /// The number. One that is too large becomes infinite.
    pub(super) fn number(&self) -> Option<f64> {
        let text = self.raw;
        let looks_so = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        looks_so.then(|| text.parse().ok()).flatten()
    }

    /// The number of seconds, or that of a duration as in `12h`.
    pub(super) fn seconds(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a duration beyond any bound")]
        let secs = || Some(duration_secs(&self.text()?)? as f64);
        self.number().or_else(secs)
    }

    pub(in crate::config) fn text(&self) -> Option<String> {
        serde_json::from_str(self.raw).ok()
    }

    pub(super) fn flag(&self) -> Option<bool> {
        self.raw.parse().ok()
    }

    pub(super) fn items(&self) -> Option<Vec<Self>> {
        let items: Vec<&RawValue> = serde_json::from_str(self.raw).ok()?;
        let item = |(at, raw): (usize, &'d RawValue)| {
            self.inner(raw.get(), format!("{}[{at}]", self.path))
        };
        Some(items.into_iter().enumerate().map(item).collect())
    }

    pub(in crate::config) fn members(&self) -> Option<Vec<(String, Self)>> {
        let mut members = Vec::new();
        each_member(self.raw, |name, raw| {
            let name: String = serde_json::from_str(name).ok()?;
            let path = self.path_to(&name);
            members.push((name, self.inner(raw, path)));
            Some(())
        })?;
        Some(members)
    }

    fn inner(&self, raw: &'d str, path: String) -> Self {
        Self { raw, path, problems: self.problems }
    }
}

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.shown(self.raw))
    }
}

fn meant<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let plain = |name: &str| name.to_lowercase().replace('_', "-");
    let name = plain(name);
    let like = |known: &str| strsim::jaro_winkler(&name, &plain(known));
    // Older names come last.
    let nearest = known.iter().rev().max_by(|one, other| like(one).total_cmp(&like(other)));
    nearest.copied().filter(|known| like(known) > ALIKE)
}

/// The text in one line, harmless in a terminal, and cut.
pub(super) fn shortened(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_SHOWN) {
        None => line,
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}
