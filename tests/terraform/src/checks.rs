//! Checks that need no values.

use std::collections::{BTreeMap, BTreeSet};

use hcl::{Body, Expression};
use regex_lite::Regex;
use serde_json::Value;

use crate::module::{Module, address, attribute, nested};

/// Arguments and blocks that Terraform itself reads.
const META: [&str; 6] = ["count", "for_each", "depends_on", "provider", "lifecycle", "dynamic"];

/// Names that the provider's schema does not have, and required ones that are missing.
pub fn problems(module: &Module, schema: &Value) -> Vec<String> {
    let mut problems = vec![];
    for resource in &module.resources {
        let address = address(resource);
        let of = &schema[resource.identifier()][resource.labels()[0].as_str()];
        if of.is_null() {
            problems.push(format!("{address} has a type that the schema does not have"));
        } else {
            check(&address, &resource.body, of, true, &mut problems);
        }
    }
    problems.extend(cycle(module));
    problems
}

/// Resources and locals that refer to each other in a circle. Terraform cannot order them.
fn cycle(module: &Module) -> Option<String> {
    let pattern = Regex::new(r"\b(?:data\.)?(?:local|aws_\w+)\.\w+").expect("the pattern is valid");
    let named =
        |text: &str| pattern.find_iter(text).map(|found| found.as_str().to_owned()).collect();
    let resources =
        module.resources.iter().map(|block| (address(block), hcl::to_string(&block.body)));
    let locals =
        module.locals.iter().map(|(name, value)| (format!("local.{name}"), Ok(value.to_string())));
    let mut left: BTreeMap<String, BTreeSet<String>> = resources
        .chain(locals)
        .map(|(name, text)| (name, named(&text.unwrap_or_default())))
        .collect();
    // A resource that refers to none of those that are left has its place in the order.
    loop {
        let remaining: BTreeSet<String> = left.keys().cloned().collect();
        left.retain(|_, references| !references.is_disjoint(&remaining));
        if left.is_empty() {
            return None;
        }
        if left.len() == remaining.len() {
            return Some(format!(
                "a circle of references: {}",
                Vec::from_iter(remaining).join(", ")
            ));
        }
    }
}

fn check(path: &str, body: &Body, schema: &Value, top: bool, problems: &mut Vec<String>) {
    let mut given = BTreeSet::new();
    for attribute in body.attributes() {
        let name = attribute.key();
        given.insert(name);
        if schema["arguments"][name].is_null() && !(top && META.contains(&name)) {
            problems.push(format!("{path} has the argument {name}, and the schema has none"));
        }
    }
    for block in body.blocks() {
        let mut name = block.identifier();
        if top && name == "lifecycle" {
            continue;
        }
        let mut inner = &block.body;
        if name == "dynamic" {
            name = block.labels().first().map_or("", |label| label.as_str());
            let Some(content) = nested(inner, "content").next() else {
                problems.push(format!("{path} has a dynamic block {name} without content"));
                continue;
            };
            inner = content;
        }
        given.insert(name);
        match &schema["blocks"][name] {
            Value::Null => {
                problems.push(format!("{path} has the block {name}, and the schema has none"))
            }
            of => check(&format!("{path}.{name}"), inner, of, false, problems),
        }
    }
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !given.contains(required) {
            problems.push(format!("{path} has no {required}, and the schema requires it"));
        }
    }
}

/// The variables that decide how many instances of a resource exist. Terraform must know their values
/// when it plans.
pub fn variables_of_counts(module: &Module) -> BTreeMap<String, BTreeSet<String>> {
    let deciding = |body| attribute(body, "count").or(attribute(body, "for_each"));
    let resources = module.resources.iter();
    resources
        .filter_map(|resource| {
            let mut found = BTreeSet::new();
            references(module, deciding(&resource.body)?, &mut found);
            Some((address(resource), found))
        })
        .collect()
}

fn references(module: &Module, expression: &Expression, found: &mut BTreeSet<String>) {
    let pattern = Regex::new(r"\b(var|local)\.(\w+)").expect("the pattern is valid");
    let text = expression.to_string();
    // A comprehension has the keys of its collection, and only its condition decides on them.
    let text = match (text.find(" if "), expression) {
        (Some(at), Expression::ForExpr(_)) => &text[at..],
        _ => text.as_str(),
    };
    for one in pattern.captures_iter(text) {
        if &one[1] == "var" {
            found.insert(one[2].to_owned());
        } else if let Some((_, local)) = module.locals.iter().find(|(name, _)| *name == one[2]) {
            references(module, local, found);
        }
    }
}
