//! Checks a line of metrics against CloudWatch's embedded metric format.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The line, if it is as the specification and its JSON schema ask, with the limits that the text
/// names besides.
///
/// Source: CloudWatch user guide, "Specification: Embedded metric format".
pub fn checked(line: &str) -> Map<String, Value> {
    const UNITS: [&str; 27] = [
        "Seconds",
        "Microseconds",
        "Milliseconds",
        "Bytes",
        "Kilobytes",
        "Megabytes",
        "Gigabytes",
        "Terabytes",
        "Bits",
        "Kilobits",
        "Megabits",
        "Gigabits",
        "Terabits",
        "Percent",
        "Count",
        "Bytes/Second",
        "Kilobytes/Second",
        "Megabytes/Second",
        "Gigabytes/Second",
        "Terabytes/Second",
        "Bits/Second",
        "Kilobits/Second",
        "Megabits/Second",
        "Gigabits/Second",
        "Terabits/Second",
        "Count/Second",
        "None",
    ];
    // A log event of Lambda has at most 256 KiB.
    assert!(line.len() <= 262_144, "{} bytes", line.len());
    let Value::Object(line) = serde_json::from_str(line).expect("JSON and nothing else") else {
        panic!("no object: {line}")
    };
    let metadata = fields(&line["_aws"], &["Timestamp", "CloudWatchMetrics"]);
    assert!(metadata["Timestamp"].is_u64());
    for directive in array(&metadata["CloudWatchMetrics"]) {
        let directive = fields(directive, &["Namespace", "Dimensions", "Metrics"]);
        name(&directive["Namespace"]);
        let sets = array(&directive["Dimensions"]);
        assert!(!sets.is_empty());
        for set in sets {
            let keys = array(set);
            assert!(keys.len() <= 30);
            for key in keys {
                let value = line[name(key)].as_str().expect("the value of a dimension is a text");
                assert!((1..=1_024).contains(&value.len()));
            }
        }
        let metrics = array(&directive["Metrics"]);
        assert!((1..=100).contains(&metrics.len()), "{} metrics", metrics.len());
        let mut names = BTreeSet::new();
        for metric in metrics {
            let metric = fields(metric, &["Name", "Unit"]);
            let unit = metric["Unit"].as_str().expect("a unit");
            assert!(UNITS.contains(&unit), "{unit}");
            let name = name(&metric["Name"]);
            assert!(names.insert(name), "{name} occurs twice");
            match &line[name] {
                Value::Number(_) => {}
                Value::Array(values) => {
                    assert!((1..=100).contains(&values.len()), "{} of {name}", values.len());
                    assert!(values.iter().all(Value::is_number), "{values:?} of {name}");
                }
                other => panic!("{name} is {other}"),
            }
        }
    }
    line
}

/// The object, which has these fields and no others.
fn fields<'a>(value: &'a Value, names: &[&str]) -> &'a Map<String, Value> {
    let object = value.as_object().expect("an object");
    let has: BTreeSet<&str> = object.keys().map(String::as_str).collect();
    assert_eq!(has, names.iter().copied().collect());
    object
}

fn array(value: &Value) -> &Vec<Value> {
    value.as_array().expect("an array")
}

fn name(value: &Value) -> &str {
    let name = value.as_str().expect("a text");
    assert!((1..=255).contains(&name.len()), "{name}");
    name
}
