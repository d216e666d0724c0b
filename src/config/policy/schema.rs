//! The schema of the document, made from the same tables as it is read by, and held against the
//! file that editors use.

use serde_json::{Value, json};

use super::classes::class;
use super::key::object;
use super::keys;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/infra/policy.schema.json");

pub(super) fn schema() -> Value {
    let mut schema = object(keys::ALL);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Retry policy of requeue".into();
    schema["$defs"] = json!({ "class": object(class::ALL) });
    schema
}

/// The words that say nothing, or nothing about a value of another type.
const OTHERS: [&str; 16] = [
    "$schema",
    "title",
    "description",
    "$defs",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
    "minItems",
    "maxItems",
    "items",
    "required",
    "properties",
    "additionalProperties",
];

/// Whether a document is valid, by the few words of JSON Schema that this schema is made of.
pub(super) fn allows(schema: &Value, document: &Value) -> bool {
    valid(schema, schema, document)
}

fn valid(root: &Value, schema: &Value, document: &Value) -> bool {
    let Value::Object(schema) = schema else {
        panic!("{schema} is no schema");
    };
    schema.iter().all(|(word, rule)| match (word.as_str(), document) {
        ("$ref", _) => {
            let pointer = rule
                .as_str()
                .and_then(|place| place.strip_prefix('#'))
                .expect("a place in this file");
            valid(root, root.pointer(pointer).expect("it exists"), document)
        }
        ("enum", _) => rule.as_array().expect("values").contains(document),
        ("anyOf", _) => {
            rule.as_array().expect("schemas").iter().any(|rule| valid(root, rule, document))
        }
        ("type", _) => is_of_type(rule.as_str().expect("a type"), document),
        ("minimum", Value::Number(number)) => number.as_f64() >= rule.as_f64(),
        ("maximum", Value::Number(number)) => number.as_f64() <= rule.as_f64(),
        ("minLength", Value::String(text)) => {
            text.chars().count() as u64 >= rule.as_u64().expect("a number")
        }
        ("maxLength", Value::String(text)) => {
            text.chars().count() as u64 <= rule.as_u64().expect("a number")
        }
        ("minProperties", Value::Object(members)) => {
            members.len() as u64 >= rule.as_u64().expect("a number")
        }
        ("maxProperties", Value::Object(members)) => {
            members.len() as u64 <= rule.as_u64().expect("a number")
        }
        ("minItems", Value::Array(items)) => items.len() as u64 >= rule.as_u64().expect("a number"),
        ("maxItems", Value::Array(items)) => items.len() as u64 <= rule.as_u64().expect("a number"),
        ("items", Value::Array(items)) => items.iter().all(|item| valid(root, rule, item)),
        ("required", Value::Object(members)) => rule
            .as_array()
            .expect("names")
            .iter()
            .all(|name| members.contains_key(name.as_str().expect("a name"))),
        ("properties", Value::Object(members)) => members
            .iter()
            .all(|(name, member)| rule.get(name).is_none_or(|rule| valid(root, rule, member))),
        ("additionalProperties", Value::Object(members)) => {
            let listed = |name: &str| {
                schema.get("properties").is_some_and(|known| known.get(name).is_some())
            };
            members
                .iter()
                .filter(|(name, _)| !listed(name))
                .all(|(_, member)| *rule != false && valid(root, rule, member))
        }
        (other, _) => OTHERS.contains(&other) || panic!("`{other}` is not in use"),
    })
}

fn is_of_type(name: &str, document: &Value) -> bool {
    match name {
        "object" => document.is_object(),
        "array" => document.is_array(),
        "string" => document.is_string(),
        "number" => document.is_number(),
        "integer" => document.as_f64().is_some_and(|number| number.fract() == 0.0),
        other => panic!("the type {other} is not in use"),
    }
}

#[test]
fn the_schema_file_is_the_one_that_the_keys_make() {
    let file = std::fs::read_to_string(FILE).expect("the file exists");
    let file: Value = serde_json::from_str(&file).expect("the file is JSON");
    assert_eq!(file, schema(), "write it anew: cargo test write_the_schema_file -- --ignored");
}

#[test]
#[ignore = "writes the file; run it after a change of the keys"]
fn write_the_schema_file() {
    let text = serde_json::to_string_pretty(&schema()).expect("a schema is JSON");
    std::fs::write(FILE, text + "\n").expect("the file can be written");
}
