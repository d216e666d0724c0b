//! One object of the document: its known names, and their values.

use super::json::{Json, shortened};
use super::key::Key;
use super::shapes::{Shape, refuse};

/// How alike two names must be for one to be suggested for the other.
const ALIKE: f64 = 0.85;

/// An object, and where it stands.
pub(super) struct Section<'d> {
    path: String,
    members: Vec<(String, Json<'d>)>,
    /// No name in it is unknown or stands twice, and no value read so far was refused.
    pub(super) sound: bool,
}

/// A value of the document, and where it stands.
#[derive(Clone)]
pub(super) struct Given<T> {
    pub(super) value: T,
    pub(super) path: String,
}

impl<'d> Section<'d> {
    /// Refuses a value that is no object, and every name that is unknown or stands twice.
    pub(super) fn open(
        json: Json<'d>,
        path: &str,
        known: &[&str],
        problems: &mut Vec<String>,
    ) -> Option<Self> {
        let Some(members) = json.members() else {
            return refuse(json, path, "an object", problems);
        };
        let mut section = Self { path: path.to_owned(), members, sound: true };
        let before = problems.len();
        for (at, (name, _)) in section.members.iter().enumerate() {
            let earlier =
                section.members[..at].iter().filter(|(earlier, _)| earlier == name).count();
            if !known.contains(&name.as_str()) {
                let (shown, hint) = match nearest(name, known) {
                    // Such a name is no secret.
                    Some(known) => (shortened(name), format!("; did you mean {known}?")),
                    None => (json.shown(name), format!(": use one of {}", known.join(", "))),
                };
                problems.push(format!("{} is unknown{hint}", section.path_to(&shown)));
            } else if earlier == 1 {
                let path = section.path_to(name);
                problems.push(format!("{path} stands more than idempotency: keep one of them"));
            }
        }
        section.sound = problems.len() == before;
        Some(section)
    }

    /// The value at a key, read; `None` when there is none or when it is refused.
    pub(super) fn read<S: Shape>(
        &mut self,
        key: &Key<S>,
        problems: &mut Vec<String>,
    ) -> Option<S::Value> {
        let json = self.json(key.name)?;
        let value = key.shape.read(json, &self.path_to(key.name), problems);
        self.sound &= value.is_some();
        value
    }

    /// As [`read`](Self::read), with the place where the value stands.
    pub(super) fn given<S: Shape>(
        &mut self,
        key: &Key<S>,
        problems: &mut Vec<String>,
    ) -> Option<Given<S::Value>> {
        let value = self.read(key, problems)?;
        let path = self.path_to(key.name);
        Some(Given { value, path })
    }

    /// Reports each of these names that has no value.
    pub(super) fn require(&self, names: &[&str], problems: &mut Vec<String>) {
        for name in names.iter().filter(|name| self.json(name).is_none()) {
            problems.push(format!("{} is missing", self.path_to(name)));
        }
    }

    /// The value of this name, as it was written.
    pub(super) fn json(&self, name: &str) -> Option<Json<'d>> {
        let found = self.members.iter().find(|(known, _)| known == name);
        found.map(|(_, json)| *json)
    }

    /// A name with all those above it.
    pub(super) fn path_to(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

/// The known name that is meant.
fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let name = name.to_lowercase();
    let like = |known: &str| strsim::jaro_winkler(&name, &known.to_lowercase());
    let nearest = known.iter().max_by(|one, other| like(one).total_cmp(&like(other)));
    nearest.filter(|known| like(known) > ALIKE).copied()
}
