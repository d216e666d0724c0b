//! The user's own rules, as the document has them. `classify/` knows their meaning.

use std::ops::RangeInclusive;

#[cfg(test)]
use serde_json::{Value, json};

use super::bounds::RULED;
use super::json::Json;
#[cfg(test)]
use super::key::object;
use super::key::{Key, Listed, names, table};
use super::section::Section;
use super::shapes::{self, Many, Seconds, Shape, read_all, refuse};
use crate::classify::{Effect, Match, Phrase, Rules};
use crate::failure::FailureClass;

/// A list of rules.
pub(super) struct RuleList;

/// An object of conditions, of which there is at least one.
pub(super) struct Matches;

/// A status, or all of a hundred.
pub(super) struct Status;

/// A code.
pub(super) struct Code;

/// A user's name for something.
pub(super) struct Label;

/// Phrases in a row.
pub(super) struct Phrases;

/// An object of headers.
pub(super) struct Header;

/// A lower status comes before the response, and a higher one is not HTTP.
const STATUSES: RangeInclusive<u16> = 200..=999;
const HUNDREDS: [(&str, RangeInclusive<u16>); 4] =
    [("2xx", 200..=299), ("3xx", 300..=399), ("4xx", 400..=499), ("5xx", 500..=599)];
/// A longer text is no code, and no phrase that a person would write down.
const MAX_CHARS: usize = 256;
/// The most characters of a label: it is the heading of a group of dead letters.
const MAX_LABEL_CHARS: usize = 64;
const MAX_HEADERS: usize = 10;
/// The most rules: every failure is compared with every rule.
const MAX_RULES: usize = 100;

/// The classes that a rule may give to a failure.
const OUTCOMES: shapes::OneOf<FailureClass> = shapes::OneOf(&[
    ("RATE_LIMIT", FailureClass::RateLimit),
    ("RATE_LIMIT_EXCEEDED", FailureClass::RateLimit),
    ("QUOTA", FailureClass::Quota),
    ("QUOTA_EXCEEDED", FailureClass::Quota),
    ("TEMPORARY", FailureClass::Temporary),
    ("TEMPORARY_ERROR", FailureClass::Temporary),
    ("NON_RETRYABLE", FailureClass::NonRetryable),
]);

/// The keys of one rule.
pub(super) mod rule {
    use super::{
        FailureClass, Key, Label, Listed, Matches, OUTCOMES, RULED, Seconds, shapes, table,
    };

    table! {
        MATCH, "match", Matches = Matches,
            "The conditions. All of them must hold.";
        CLASS, "class", shapes::OneOf<FailureClass> = OUTCOMES,
            "The class of the failure.";
        DELAY, "delaySeconds", Seconds = RULED,
            "The delay of the message, to which Requeue adds up to a tenth, at most 60 s. It replaces the delay that a response names, and the delay of the class. With RATE_LIMIT and QUOTA it starts a pause. Not allowed with NON_RETRYABLE.";
        REASON, "reason", Label = Label,
            "The name of the failure in logs and dead letters, for example outdated-fare. Default: by rules[0], counted from 0.";
    }
}

/// The keys of the conditions of a rule.
pub(super) mod matching {
    use super::{Code, Header, Key, Listed, Many, Phrases, Status, table};

    table! {
        STATUS, "status", Many<Status> = Many(Status),
            "The status of the response, or one of a list: a number, 2xx, 3xx, 4xx or 5xx. A 2xx is a success unless a rule names it; 200 and 2xx need another condition.";
        CODE, "code", Many<Code> = Many(Code),
            "A code or reason in the JSON of the response, or of an AWS or gRPC error; or one of a list.";
        HEADER, "header", Header = Header,
            "Headers that the response must have: true for any value, or the value, whatever its case.";
        WORDS, "words", Many<Phrases> = Many(Phrases),
            "Whole words in this order, in the body of the response or the message of the error; or one of a list.";
    }
}

impl Shape for RuleList {
    type Value = Rules;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<Rules> {
        match json.items() {
            Some(items) if items.len() <= MAX_RULES => {
                read_all(items, path, problems, rule).map(Rules::matching)
            }
            _ => refuse(json, path, &format!("a list of at most {MAX_RULES} rules"), problems),
        }
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        let mut rule = object(rule::ALL);
        rule["required"] = json!([rule::MATCH.name, rule::CLASS.name]);
        json!({ "type": "array", "items": rule, "maxItems": MAX_RULES })
    }
}

fn rule(json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<(Match, Effect)> {
    let mut section = Section::open(json, path, &names(rule::ALL), problems)?;
    section.require(&[rule::MATCH.name, rule::CLASS.name], problems);
    let condition = section.read(&rule::MATCH, problems);
    let class = section.read(&rule::CLASS, problems);
    let delay = section.read(&rule::DELAY, problems);
    if let (Some(FailureClass::NonRetryable), Some(delay)) = (class, delay) {
        let [delay_path, class_path] =
            [rule::DELAY.name, rule::CLASS.name].map(|name| section.path_to(name));
        let delay = delay.as_secs_f64();
        problems.push(format!(
            "{delay_path} is {delay}, but {class_path} is NON_RETRYABLE: change one of them"
        ));
    }
    let reason = section.read(&rule::REASON, problems);
    Some((condition?, Effect { place: path.to_owned(), class: class?, delay, reason }))
}

impl Shape for Matches {
    type Value = Match;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<Match> {
        if json.members().is_some_and(|members| members.is_empty()) {
            let allowed =
                format!("an object with at least one of {}", names(matching::ALL).join(", "));
            return refuse(json, path, &allowed, problems);
        }
        let mut section = Section::open(json, path, &names(matching::ALL), problems)?;
        let found = Match {
            statuses: section.read(&matching::STATUS, problems).unwrap_or_default(),
            codes: section.read(&matching::CODE, problems).unwrap_or_default(),
            headers: section.read(&matching::HEADER, problems).unwrap_or_default(),
            words: section.read(&matching::WORDS, problems).unwrap_or_default(),
        };
        let is_alone = json.members().is_some_and(|members| members.len() == 1);
        if is_alone && found.statuses.iter().any(|statuses| statuses.contains(&200)) {
            problems.push(format!(
                "{path} is not enough, since every success is a 200 and would be done again: add a code, words or a header"
            ));
        }
        Some(found)
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        let mut schema = object(matching::ALL);
        schema["minProperties"] = 1.into();
        schema
    }
}

impl Shape for Status {
    type Value = RangeInclusive<u16>;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<Self::Value> {
        let hundred =
            || HUNDREDS.into_iter().find(|(word, _)| json.text().as_deref() == Some(word));
        let number =
            || STATUSES.into_iter().find(|status| json.number() == Some(f64::from(*status)));
        let found =
            hundred().map(|(_, range)| range).or_else(|| number().map(|status| status..=status));
        let words = HUNDREDS.map(|(word, _)| word).join(", ");
        let (min, max) = (STATUSES.start(), STATUSES.end());
        found.or_else(|| {
            refuse(
                json,
                path,
                &format!("a status from {min} to {max}, {words}, or a list"),
                problems,
            )
        })
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        let number =
            json!({ "type": "integer", "minimum": STATUSES.start(), "maximum": STATUSES.end() });
        json!({ "anyOf": [number, { "enum": HUNDREDS.map(|(word, _)| word) }] })
    }
}

impl Shape for Code {
    type Value = String;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<String> {
        let text = json.text().filter(|text| (1..=MAX_CHARS).contains(&text.chars().count()));
        text.or_else(|| {
            refuse(
                json,
                path,
                &format!("a text of 1 to {MAX_CHARS} characters, or a list"),
                problems,
            )
        })
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        json!({ "type": "string", "minLength": 1, "maxLength": MAX_CHARS })
    }
}

impl Shape for Label {
    type Value = String;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<String> {
        let is_label =
            |text: &String| !text.trim().is_empty() && text.chars().count() <= MAX_LABEL_CHARS;
        let allowed = || format!("a text of 1 to {MAX_LABEL_CHARS} characters that is not blank");
        json.text().filter(is_label).or_else(|| refuse(json, path, &allowed(), problems))
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        json!({ "type": "string", "minLength": 1, "maxLength": MAX_LABEL_CHARS })
    }
}

impl Shape for Phrases {
    type Value = Phrase;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<Phrase> {
        let phrase = Phrase::parse(&Code.read(json, path, problems)?);
        if phrase.is_none() {
            problems
                .push(format!("{path} is {json}, but it has no word: write a text with a word"));
        }
        phrase
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        Code.schema()
    }
}

impl Shape for Header {
    type Value = Vec<(String, Option<String>)>;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<Self::Value> {
        let headers = json.members().filter(|headers| (1..=MAX_HEADERS).contains(&headers.len()));
        let Some(headers) = headers else {
            return refuse(
                json,
                path,
                &format!("an object of 1 to {MAX_HEADERS} headers"),
                problems,
            );
        };
        let before = problems.len();
        let mut read: Self::Value = Vec::new();
        for (name, json) in headers {
            let path = format!("{path}.{}", json.shown(&name));
            let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            if name.is_empty() || !name.chars().all(is_token) {
                problems.push(format!("{path} is not allowed, since no header has such a name"));
            }
            if read.iter().any(|(known, _)| known.eq_ignore_ascii_case(&name)) {
                problems.push(format!(
                    "{path} stands more than idempotency, but the case of a name does not count: remove one of them"
                ));
            }
            let value = json.text().filter(|text| text.chars().count() <= MAX_CHARS);
            if value.is_none() && json.flag() != Some(true) {
                let allowed = format!("true, or a text of at most {MAX_CHARS} characters");
                let _: Option<()> = refuse(json, &path, &allowed, problems);
            }
            read.push((name, value));
        }
        (problems.len() == before).then_some(read)
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        let value =
            json!({ "anyOf": [{ "enum": [true] }, { "type": "string", "maxLength": MAX_CHARS }] });
        json!({ "type": "object", "additionalProperties": value, "minProperties": 1, "maxProperties": MAX_HEADERS })
    }
}
