//! The schema of the document. It is made from the tables by which the document is read, and
//! compared with the file that editors use. Only the file has the descriptions of keys.

use std::sync::LazyLock;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::{Map, Value, json};

use super::super::classes::{CLASS, Entries, classes};
use super::super::delays::{Backoffs, CALL, Calls, GROWTHS, JITTERS, Jitters, Presets};
use super::super::keys::{DOCUMENT, DeadLetters, ENTRY, MAX_QUEUES, Pointer, Queues};
use super::super::limits::{
    LIMITED, Limit, LimitList, MAX_LIMITS, MAX_WEIGHTS, Place, WEIGHT, Weights,
};
use super::super::object::KeyTable;
use super::super::rules::{
    CONDITIONS, Code, HUNDREDS, Header, Label, MAX_CHARS, MAX_HEADERS, MAX_LABEL_CHARS, MAX_RULES,
    Matches, Phrases, RULE, RuleList, STATUSES, Status,
};
use super::super::shapes::{
    Count, DELAY, Flag, Ignored, MAX_LISTED, Many, Maybe, Number, OFF, Off, OneOf, Placed, SHARE,
    Schema, Seconds, WholeSeconds,
};
use crate::policy::{MAX_ATTRIBUTE_NAME, Preset};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/infra/policy.schema.json");

pub(super) fn schema() -> Value {
    let mut schema = DOCUMENT.schema();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Retry policy of requeue".into();
    schema["$defs"] = json!({ "class": CLASS.schema(), "queue": ENTRY.schema() });
    schema
}

/// Whether the schema accepts a document.
pub(super) fn allows(document: &Value) -> bool {
    static COMPILED: LazyLock<(Schemas, SchemaIndex)> = LazyLock::new(|| {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource("policy.json", schema()).expect("a URL");
        let index = compiler.compile("policy.json", &mut schemas).expect("a schema");
        (schemas, index)
    });
    let (schemas, index) = &*COMPILED;
    schemas.validate(document, *index).is_ok()
}

#[test]
fn the_schema_file_is_the_one_that_the_keys_make() {
    let file = std::fs::read_to_string(FILE).expect("the file exists");
    let file: Value = serde_json::from_str(&file).expect("the file is JSON");
    let (mut made, mut undescribed) = (schema(), Vec::new());
    describe(&mut made, "", &file, &mut undescribed);
    if std::env::var_os("REQUEUE_TEST_WRITE_SCHEMA").is_some() {
        let text = serde_json::to_string_pretty(&made).expect("a schema is JSON");
        std::fs::write(FILE, text + "\n").expect("the file can be written");
    } else {
        assert_eq!(file, made, "write it anew: REQUEUE_TEST_WRITE_SCHEMA=1 cargo test schema_file");
    }
    assert!(undescribed.is_empty(), "write a `description` at {undescribed:?} of {FILE}");
}

/// Copies the descriptions of keys from the file. A key of several objects is described once: in the
/// document rather than in `queues`, and in `rateLimit` rather than in `limits`.
fn describe(made: &mut Value, path: &str, file: &Value, undescribed: &mut Vec<String>) {
    match made {
        Value::Object(members) => {
            if let Some(text) = members.get_mut("description").filter(|text| **text == "") {
                let first =
                    path.replace("/$defs/queue/", "/").replace("/limits/items/", "/rateLimit/");
                let of_file = |path: &str| file.pointer(path)?.get("description").cloned();
                *text = of_file(&first).or_else(|| of_file(path)).unwrap_or_else(|| text.clone());
                if *text == "" {
                    undescribed.push(path.to_owned());
                }
            }
            for (name, value) in members {
                describe(value, &format!("{path}/{name}"), file, undescribed);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                describe(item, &format!("{path}/{at}"), file, undescribed);
            }
        }
        _ => {}
    }
}

impl Schema for Count {
    fn schema(&self) -> Value {
        json!({ "type": "integer", "minimum": self.min, "maximum": self.max })
    }
}

impl Schema for Number {
    fn schema(&self) -> Value {
        json!({ "type": "number", "minimum": self.min, "maximum": self.max })
    }
}

/// A number of seconds, or a duration as in `12h`, whose bounds no schema has.
fn or_duration(number: &Value) -> Value {
    json!({ "anyOf": [number, { "type": "string", "pattern": "^([0-9]+[dhms])+$" }] })
}

impl Schema for Seconds {
    fn schema(&self) -> Value {
        or_duration(&self.0.schema())
    }
}

impl Schema for WholeSeconds {
    fn schema(&self) -> Value {
        or_duration(&self.0.schema())
    }
}

impl<S: Schema> Schema for Many<S> {
    fn schema(&self) -> Value {
        let list = json!({ "type": "array", "items": self.0.schema(), "minItems": 1, "maxItems": MAX_LISTED });
        json!({ "anyOf": [self.0.schema(), list] })
    }
}

impl<S: Schema> Schema for Maybe<S> {
    fn schema(&self) -> Value {
        self.0.schema()
    }
}

impl<S: Schema> Schema for Placed<S> {
    fn schema(&self) -> Value {
        self.0.schema()
    }
}

impl<S: Schema> Schema for Off<S> {
    fn schema(&self) -> Value {
        json!({ "anyOf": [{ "enum": [OFF] }, self.0.schema()] })
    }
}

impl<T> Schema for OneOf<T> {
    fn schema(&self) -> Value {
        json!({ "enum": self.0.iter().map(|(word, _)| *word).collect::<Vec<_>>() })
    }
}

impl Schema for Ignored {
    fn schema(&self) -> Value {
        json!({})
    }
}

impl Schema for Flag {
    fn schema(&self) -> Value {
        json!({ "type": "boolean" })
    }
}

impl<T> Schema for KeyTable<T> {
    fn schema(&self) -> Value {
        let properties: Map<String, Value> =
            self.keys.iter().map(|key| (key.name().to_owned(), key.schema())).collect();
        let mut schema =
            json!({ "type": "object", "properties": properties, "additionalProperties": false });
        if !self.required.is_empty() {
            schema["required"] = json!(self.required);
        }
        schema
    }
}

impl Schema for Entries {
    fn schema(&self) -> Value {
        let class = |(name, _): (&str, _)| (name.to_owned(), json!({ "$ref": "#/$defs/class" }));
        let classes: Map<String, Value> = classes().map(class).collect();
        json!({ "type": "object", "properties": classes, "additionalProperties": false })
    }
}

impl Schema for Queues {
    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "propertyNames": { "pattern": "^([A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\\.fifo)$" },
            "additionalProperties": { "$ref": "#/$defs/queue" },
            "maxProperties": MAX_QUEUES,
        })
    }
}

impl Schema for DeadLetters {
    fn schema(&self) -> Value {
        json!({ "type": "string", "pattern": "^(redrive|annotate|https?://[^/]+/.+)$" })
    }
}

impl Schema for RuleList {
    fn schema(&self) -> Value {
        json!({ "type": "array", "items": RULE.schema(), "maxItems": MAX_RULES })
    }
}

impl Schema for Matches {
    fn schema(&self) -> Value {
        let mut schema = CONDITIONS.schema();
        schema["minProperties"] = 1.into();
        schema
    }
}

impl Schema for Status {
    fn schema(&self) -> Value {
        let number =
            json!({ "type": "integer", "minimum": STATUSES.start(), "maximum": STATUSES.end() });
        json!({ "anyOf": [number, { "enum": HUNDREDS.map(|(word, _)| word) }] })
    }
}

impl Schema for Code {
    fn schema(&self) -> Value {
        json!({ "type": "string", "minLength": 1, "maxLength": MAX_CHARS })
    }
}

impl Schema for Label {
    fn schema(&self) -> Value {
        json!({ "type": "string", "minLength": 1, "maxLength": MAX_LABEL_CHARS })
    }
}

impl Schema for Phrases {
    fn schema(&self) -> Value {
        Code.schema()
    }
}

impl Schema for Header {
    fn schema(&self) -> Value {
        let value =
            json!({ "anyOf": [{ "enum": [true] }, { "type": "string", "maxLength": MAX_CHARS }] });
        json!({ "type": "object", "additionalProperties": value, "minProperties": 1, "maxProperties": MAX_HEADERS })
    }
}

impl Schema for Presets {
    fn schema(&self) -> Value {
        json!({ "enum": Preset::ALL.map(|preset| preset.name) })
    }
}

impl Schema for Backoffs {
    fn schema(&self) -> Value {
        let list = json!({ "type": "array", "items": DELAY.schema(), "minItems": 1, "maxItems": MAX_LISTED });
        json!({ "anyOf": [GROWTHS.schema(), list] })
    }
}

impl Schema for Jitters {
    fn schema(&self) -> Value {
        let share = json!({
            "type": "object",
            "properties": { Jitters::SHARE: SHARE.schema() },
            "required": [Jitters::SHARE],
            "additionalProperties": false,
        });
        json!({ "anyOf": [JITTERS.schema(), share] })
    }
}

impl Schema for Calls {
    fn schema(&self) -> Value {
        match self {
            Self::Settling => json!({ "anyOf": [{ "enum": [OFF] }, CALL.schema()] }),
            Self::Receiving => CALL.schema(),
        }
    }
}

impl Schema for Limit {
    fn schema(&self) -> Value {
        let mut schema = LIMITED.schema();
        schema["dependentRequired"] = json!({ "weights": ["fairBy"] });
        schema
    }
}

impl Schema for LimitList {
    fn schema(&self) -> Value {
        json!({ "type": "array", "items": Limit.schema(), "minItems": 1, "maxItems": MAX_LIMITS })
    }
}

impl Schema for Place {
    fn schema(&self) -> Value {
        let pattern =
            format!("^((/([^/~]|~[01])*){{1,16}}|[A-Za-z0-9_.-]{{1,{MAX_ATTRIBUTE_NAME}}})$");
        json!({ "type": "string", "pattern": pattern, "maxLength": 1024 })
    }
}

impl Schema for Weights {
    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "additionalProperties": WEIGHT.schema(),
            "maxProperties": MAX_WEIGHTS,
        })
    }
}

impl Schema for Pointer {
    fn schema(&self) -> Value {
        json!({ "type": "string", "pattern": "^(/([^/~]|~[01])*){1,16}$", "maxLength": 1024 })
    }
}
