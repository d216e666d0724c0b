//! The variables that Terraform must know to plan.

use std::collections::{BTreeMap, BTreeSet};

use hcl::Expression;
use regex_lite::Regex;

use crate::module::{Module, address, attribute};

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
