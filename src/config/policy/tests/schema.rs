//! The schema of the document. It is made from the tables by which the document is read, and
//! compared with the file that editors use.

use std::sync::LazyLock;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::{Value, json};

use super::super::classes::CLASS;
use super::super::keys::DOCUMENT;
use super::super::shapes::Shape as _;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/infra/policy.schema.json");

pub(super) fn schema() -> Value {
    let mut schema = DOCUMENT.schema();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Retry policy of requeue".into();
    schema["$defs"] = json!({ "class": CLASS.schema() });
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
    if std::env::var_os("REQUEUE_TEST_WRITE_SCHEMA").is_some() {
        let text = serde_json::to_string_pretty(&schema()).expect("a schema is JSON");
        std::fs::write(FILE, text + "\n").expect("the file can be written");
    }
    let file = std::fs::read_to_string(FILE).expect("the file exists");
    let file: Value = serde_json::from_str(&file).expect("the file is JSON");
    assert_eq!(file, schema(), "write it anew: REQUEUE_TEST_WRITE_SCHEMA=1 cargo test schema_file");
}
