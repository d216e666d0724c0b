//! The user's own rules, as the document has them. `classify/` knows their meaning.

use std::ops::RangeInclusive;

use super::json::Json;
use super::object::{KeyTable, keys};
use super::shapes::{Many, Maybe, OneOf, RULED, Shape, read_all};
use crate::classify::{CLASSES, Effect, Match, Phrase, Rules};
use crate::failure::FailureClass;

pub(super) struct RuleList;

/// An object of conditions, of which there is at least one.
pub(super) struct Matches;

pub(super) struct Status;

pub(super) struct Code;

pub(super) struct Label;

pub(super) struct Phrases;

pub(super) struct Header;

/// A lower status comes before the response, and a higher one is not HTTP.
pub(super) const STATUSES: RangeInclusive<u16> = 200..=999;
pub(super) const HUNDREDS: [(&str, RangeInclusive<u16>); 4] =
    [("2xx", 200..=299), ("3xx", 300..=399), ("4xx", 400..=499), ("5xx", 500..=599)];
/// A longer text is no code, and no phrase that a person would write down.
pub(super) const MAX_CHARS: usize = 256;
/// The most characters of a label: it is the heading of a group of dead letters.
pub(super) const MAX_LABEL_CHARS: usize = 64;
pub(super) const MAX_HEADERS: usize = 10;
/// The most rules: every failure is compared with every rule.
pub(super) const MAX_RULES: usize = 100;

const OUTCOMES: OneOf<FailureClass> = OneOf(&CLASSES);

#[derive(Clone)]
pub(super) struct RuleEntry {
    condition: Match,
    effect: Effect,
}

pub(super) const RULE: KeyTable<RuleEntry> = KeyTable {
    required: &["match", "class"],
    default: || {
        let (place, class) = (String::new(), FailureClass::Temporary);
        RuleEntry {
            condition: Match::default(),
            effect: Effect { place, class, delay: None, reason: None },
        }
    },
    keys: keys! { RuleEntry:
        "match", Matches => condition;
        "class", OUTCOMES => effect.class;
        "delaySeconds", Maybe(RULED) => effect.delay;
        "reason", Maybe(Label) => effect.reason;
    },
};

pub(super) const CONDITIONS: KeyTable<Match> = KeyTable {
    required: &[],
    default: Match::default,
    keys: keys! { Match:
        "status", Many(Status) => statuses;
        "code", Many(Code) => codes;
        "header", Header => headers;
        "words", Many(Phrases) => words;
    },
};

impl Shape for RuleList {
    type Value = Rules;

    fn read(&self, json: &Json<'_>) -> Option<Rules> {
        match json.items() {
            Some(items) if items.len() <= MAX_RULES => read_all(&items, rule).map(Rules::matching),
            _ => json.refuse(&format!("a list of at most {MAX_RULES} rules")),
        }
    }
}

fn rule(json: &Json<'_>) -> Option<(Match, Effect)> {
    let mut rule = (RULE.default)();
    let is_sound = RULE.fill(json, &mut rule);
    let RuleEntry { condition, mut effect } = rule;
    if let (FailureClass::NonRetryable, Some(delay)) = (effect.class, effect.delay) {
        let (delay, at) = (delay.as_secs_f64(), json.path_to("delaySeconds"));
        let class = json.path_to("class");
        json.problems
            .note(format!("{at} is {delay}, but {class} is non-retryable: change one of them"));
    }
    effect.place.clone_from(&json.path);
    is_sound.then_some((condition, effect))
}

impl Shape for Matches {
    type Value = Match;

    fn read(&self, json: &Json<'_>) -> Option<Match> {
        let count = json.members().map(|members| members.len());
        if count == Some(0) {
            let names = CONDITIONS.names().join(", ");
            return json.refuse(&format!("an object with at least one of {names}"));
        }
        let found = CONDITIONS.read(json)?;
        if count == Some(1) && found.statuses.iter().any(|statuses| statuses.contains(&200)) {
            json.problems.note(format!(
                "{} is not enough, since every success is a 200 and would be done again: add a code, words or a header",
                json.path
            ));
        }
        Some(found)
    }
}

impl Shape for Status {
    type Value = RangeInclusive<u16>;

    fn read(&self, json: &Json<'_>) -> Option<Self::Value> {
        let hundred =
            || HUNDREDS.into_iter().find(|(word, _)| json.text().as_deref() == Some(word));
        let number =
            || STATUSES.into_iter().find(|status| json.number() == Some(f64::from(*status)));
        let found =
            hundred().map(|(_, range)| range).or_else(|| number().map(|status| status..=status));
        let words = HUNDREDS.map(|(word, _)| word).join(", ");
        let (min, max) = (STATUSES.start(), STATUSES.end());
        found.or_else(|| json.refuse(&format!("a status from {min} to {max}, {words}, or a list")))
    }
}

impl Shape for Code {
    type Value = String;

    fn read(&self, json: &Json<'_>) -> Option<String> {
        let text = json.text().filter(|text| (1..=MAX_CHARS).contains(&text.chars().count()));
        text.or_else(|| json.refuse(&format!("a text of 1 to {MAX_CHARS} characters, or a list")))
    }
}

impl Shape for Label {
    type Value = String;

    fn read(&self, json: &Json<'_>) -> Option<String> {
        let is_label =
            |text: &String| !text.trim().is_empty() && text.chars().count() <= MAX_LABEL_CHARS;
        let allowed = || format!("a text of 1 to {MAX_LABEL_CHARS} characters that is not blank");
        json.text().filter(is_label).or_else(|| json.refuse(&allowed()))
    }
}

impl Shape for Phrases {
    type Value = Phrase;

    fn read(&self, json: &Json<'_>) -> Option<Phrase> {
        let phrase = Phrase::parse(&Code.read(json)?);
        if phrase.is_none() {
            let path = &json.path;
            json.problems
                .note(format!("{path} is {json}, but it has no word: write a text with a word"));
        }
        phrase
    }
}

impl Shape for Header {
    type Value = Vec<(String, Option<String>)>;

    fn read(&self, json: &Json<'_>) -> Option<Self::Value> {
        let headers = json.members().filter(|headers| (1..=MAX_HEADERS).contains(&headers.len()));
        let Some(headers) = headers else {
            return json.refuse(&format!("an object of 1 to {MAX_HEADERS} headers"));
        };
        let problems = json.problems;
        let before = problems.count();
        let mut read: Self::Value = Vec::new();
        for (name, mut header) in headers {
            header.path = json.path_to(&json.shown(&name));
            let path = &header.path;
            let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            if name.is_empty() || !name.chars().all(is_token) {
                problems.note(format!("{path} is not allowed, since no header has such a name"));
            }
            if read.iter().any(|(known, _)| known.eq_ignore_ascii_case(&name)) {
                problems.note(format!(
                    "{path} stands more than once, but the case of a name does not count: remove one of them"
                ));
            }
            let value = header.text().filter(|text| text.chars().count() <= MAX_CHARS);
            if value.is_none() && header.flag() != Some(true) {
                let allowed = format!("true, or a text of at most {MAX_CHARS} characters");
                let _: Option<()> = header.refuse(&allowed);
            }
            read.push((name, value));
        }
        (problems.count() == before).then_some(read)
    }
}
