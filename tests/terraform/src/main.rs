//! Prints the resources that a Terraform module makes, for each of several sets of variables.
//!
//! The tests compare them with the resources of the template, which `terraform test` cannot do. It
//! parses the module with a parser of HCL 2, and evaluates every expression. A reference to an attribute
//! in the provider's schema becomes a text such as `<aws_sqs_queue.queue.arn>`. It does not know
//! Terraform's conversions of types and its handling of unknown values. `terraform validate` checks the
//! arguments.

mod counts;
mod functions;
mod module;
mod plan;

use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, schema] = arguments.as_slice() else {
        eprintln!("usage: terraform-shape MODULE SCHEMA <CASES");
        std::process::exit(2);
    };
    match run(Path::new(directory), Path::new(schema)) {
        Ok(output) => println!("{output}"),
        Err(problem) => {
            eprintln!("{directory}: {problem}");
            std::process::exit(1);
        }
    }
}

fn run(directory: &Path, schema: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(schema).map_err(|e| format!("{}: {e}", schema.display()))?;
    let schema: Value = serde_json::from_str(&text).map_err(|e| format!("the schema: {e}"))?;
    let module = module::Module::read(directory)?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|e| format!("the cases: {e}"))?;
    let input: Value = serde_json::from_str(&text).map_err(|e| format!("the cases: {e}"))?;
    let cases = input["cases"].as_array().ok_or("the input has no list `cases`")?;
    let planned: Vec<Value> = cases
        .iter()
        .map(|variables| {
            plan::plan(&module, &schema, &input["data"], variables)
                .unwrap_or_else(|problem| json!({ "problem": problem }))
        })
        .collect();
    Ok(json!({
        "counted": counts::variables_of_counts(&module),
        "cases": planned,
    }))
}
