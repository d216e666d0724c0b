//! The metrics, log lines, headers, fields and limits on the reference pages are those of the code.

use std::collections::BTreeSet;

use requeue_testkit::repository;

use crate::documents::{code_below, text};
use crate::reference::{grouped, items, names, plain, rows, section};

/// The texts in quotes of a piece of code, each without its line breaks.
fn quoted(code: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = code;
    while let Some((_, text)) = rest.split_once('"') {
        let end = text
            .match_indices('"')
            .map(|(at, _)| at)
            .find(|&at| !text[..at].ends_with('\\'))
            .unwrap();
        let lines = text[..end].split("\\\n");
        texts.push(lines.map(str::trim_start).collect::<Vec<_>>().concat());
        rest = &text[end + 1..];
    }
    texts
}

/// The body of a function, which ends with a brace in the column where its first line begins.
fn body<'a>(code: &'a str, function: &str) -> &'a str {
    let (before, body) = code.split_once(function).unwrap();
    let line = before.lines().last().unwrap();
    let indent = line.len() - line.trim_start().len();
    body.split_once(&format!("\n{}}}", " ".repeat(indent))).unwrap().0
}

#[test]
fn the_metrics_of_the_page_are_those_of_the_code() {
    let (page, code) = (text("docs/reference/metrics.md"), text("src/telemetry/metrics.rs"));
    let metrics = |function: &str| -> Vec<(String, String)> {
        body(&code, function)
            .lines()
            .filter_map(|line| {
                let (name, rest) = line.trim().strip_prefix("(\"")?.split_once('"')?;
                let unit = rest.split_once("Unit::").map_or("Count", |(_, unit)| unit);
                let unit: String = unit.chars().take_while(|c| c.is_alphabetic()).collect();
                Some((name.to_owned(), unit))
            })
            .collect()
    };
    let all = metrics("fn metrics(self");
    // A class has the first three counts, and the first of the other metrics.
    assert!(body(&code, "fn metrics(self").contains("if is_of_class { (3, 1) }"));
    let first = all.iter().find(|(_, unit)| unit != "Count");
    let by_class: BTreeSet<_> = all[..3].iter().chain(first).cloned().collect();
    let table = section(&page, "## Metrics").split("\n### ").next().unwrap();
    // The meaning of a metric that is no count begins with its unit.
    let said = rows(table).into_iter().flat_map(|row| {
        let first = row[1].split(' ').next().unwrap();
        let unit = if first.to_lowercase().ends_with("seconds") { first } else { "Count" };
        names(row[0]).into_iter().map(|name| (name, unit.to_owned())).collect::<Vec<_>>()
    });
    assert_eq!(said.collect::<BTreeSet<_>>(), all.iter().cloned().collect());
    assert!(by_class.is_subset(&all.iter().cloned().collect()));
    let also: Vec<String> = by_class.iter().map(|(name, _)| format!("`{name}`")).collect();
    let (last, others) = also.split_last().unwrap();
    let also = format!("{} and {last} also have `Class`.", others.join(", "));
    assert!(page.lines().collect::<Vec<_>>().join(" ").contains(&also), "{also}");

    // A class without retries is never requeued.
    let (queue, classes) = (all.len(), 3 * by_class.len() + by_class.len() - 2);
    let counts = format!(
        "A queue has at most {} metrics: {queue} of all messages, and {classes} by class.",
        queue + classes
    );
    assert!(page.contains(&counts), "{counts}");
}

/// The words that the `as_str` of a type gives.
fn as_str(code: &str, name: &str) -> Vec<String> {
    let (_, code) = code.split_once(&format!("\nimpl {name} {{")).unwrap();
    quoted(body(code, "fn as_str("))
}

/// The words of the variants of an enum of the macro `words!`.
fn words_of(code: &str, name: &str) -> Vec<String> {
    let (_, code) = code.split_once(&format!(" enum {name} {{\n")).unwrap();
    let variants = code.split_once("\n    }\n").unwrap().0.lines();
    variants
        .filter_map(|line| Some(line.split_once(" = \"")?.1.split_once('"')?.0.into()))
        .collect()
}

#[test]
fn the_words_of_the_log_are_those_of_the_code() {
    let page = text("docs/reference/metrics.md");
    let code = text("src/disposition.rs");
    let completed = quoted(body(&text("src/report.rs"), "pub fn reason("));
    let both = section(&page, "## `disposition` and `reason`");
    let rows_of = rows(both);
    let said: BTreeSet<_> = rows_of.iter().map(|row| plain(row[0])).collect();
    assert_eq!(said, as_str(&code, "Disposition").into_iter().collect());
    let complete = rows_of.iter().find(|row| row[0] == "`complete`").unwrap();
    assert!(!completed.is_empty());
    for why in completed {
        assert!(complete[1].contains(&format!("`{why}`")), "{why}");
    }
    for (disposition, why) in
        [("defer", "Deferral"), ("release", "ReleaseReason"), ("dead-letter", "DeadLetterReason")]
    {
        let said = items(section(&page, &format!("### `{disposition}`")))
            .into_iter()
            .flat_map(|item| names(item.split(": ").next().unwrap()));
        assert_eq!(said.collect::<BTreeSet<_>>(), words_of(&code, why).into_iter().collect());
    }

    let said = rows(section(&page, "## `settlement`")).into_iter().map(|row| plain(row[0]));
    let words = as_str(&text("src/report.rs"), "Settlement");
    assert_eq!(said.collect::<Vec<_>>(), words);
}

/// The level, the message and the fields of each log line in a piece of code.
fn log_lines(code: &str) -> Vec<(&'static str, String, BTreeSet<String>)> {
    let mut lines = Vec::new();
    for (level, macros) in [
        ("### Errors", ["error!(", "line!(error"]),
        ("### Warnings", ["warn!(", "line!(warn"]),
        ("### Information", ["info!(", "line!(info"]),
    ] {
        for (at, name) in macros.iter().flat_map(|name| code.match_indices(name)) {
            let (mut depth, mut is_quoted, mut last) = (1, false, ' ');
            let mut arguments = vec![String::new()];
            for c in code[at + name.len()..].chars() {
                match c {
                    '"' if last != '\\' => is_quoted = !is_quoted,
                    '(' | '[' | '{' if !is_quoted => depth += 1,
                    ')' | ']' | '}' if !is_quoted => depth -= 1,
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
                if c == ',' && depth == 1 && !is_quoted {
                    arguments.push(String::new());
                } else {
                    arguments.last_mut().unwrap().push(c);
                }
                last = c;
            }
            let arguments: Vec<&str> = arguments
                .iter()
                .map(|argument| argument.trim())
                .filter(|a| !a.is_empty())
                .collect();
            let [fields @ .., message] = &arguments[..] else { panic!("{name}: {arguments:?}") };
            let fields = fields.iter().filter(|field| !field.starts_with("parent:")).map(|field| {
                field.split('=').next().unwrap().trim().trim_start_matches('%').to_owned()
            });
            lines.push((level, quoted(message).remove(0), fields.collect()));
        }
    }
    lines
}

#[test]
fn the_log_lines_of_the_page_are_those_of_the_code() {
    let page = text("docs/reference/metrics.md");
    let mut lines: Vec<_> = ["src", "crates/requeue-lambda/src", "crates/requeue-cli/src"]
        .iter()
        .flat_map(|directory| log_lines(&code_below(&repository(directory))))
        // Another text each time.
        .filter(|(_, message, _)| message != "{note}")
        .collect();
    // A macro has the fields of these two.
    for (_, message, fields) in &mut lines {
        if ["receiving fails", "receiving failed"].contains(&message.as_str()) {
            let all = ["queue", "endpoint", "code", "attempts", "pauseMs"];
            fields.extend(all.map(str::to_owned));
        }
    }
    assert!(lines.len() > 25, "{lines:?}");

    let telemetry = text("src/telemetry/mod.rs");
    let batch = rows(section(&page, "### Fields of `batch`"))
        .iter()
        .flat_map(|row| names(row[0]))
        .collect();
    let is_batch = |line: &(&str, String, BTreeSet<String>)| line.1 == "batch";
    let at = lines.iter().position(is_batch).unwrap();
    assert_eq!(lines.remove(at).2, batch);
    let message: BTreeSet<String> = rows(section(&page, "### Fields of `message`"))
        .iter()
        .flat_map(|row| names(row[0]))
        .collect();
    let (_, event) = telemetry.split_once("$level,\n").unwrap();
    let (event, _) = event.split_once("\"message\"").unwrap();
    let fields = event.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix(&" ".repeat(16))?.split_once(" =")?;
        (!name.contains(' ')).then(|| name.to_owned())
    });
    assert_eq!(fields.collect::<BTreeSet<_>>(), message);

    for level in ["### Errors", "### Warnings", "### Information"] {
        for item in items(section(&page, level)) {
            let (message, rest) = item.strip_prefix('`').unwrap().split_once('`').unwrap();
            let said = rest.strip_prefix(" (").map_or("", |rest| rest.split(')').next().unwrap());
            let is_it = |line: &(&str, String, BTreeSet<String>)| {
                line.0 == level
                    && match message.strip_suffix('…') {
                        Some(start) => line.1.starts_with(start.trim_end()),
                        None => line.1 == message,
                    }
            };
            let at = lines.iter().position(is_it);
            let (_, message, fields) =
                lines.remove(at.unwrap_or_else(|| panic!("{level}: no log line has: {message}")));
            let said = names(said).into_iter().filter(|field| !field.is_empty());
            assert_eq!(said.collect::<BTreeSet<_>>(), fields, "{message}");
        }
    }
    assert!(lines.is_empty(), "the page lacks {lines:#?}");
}

#[test]
fn the_headers_of_the_http_page_are_those_of_the_code() {
    let page = text("docs/reference/http.md").to_lowercase();
    let code = code_below(&repository("crates/requeue-lambda/src/http"));
    let reserved =
        code.split_once("const RESERVED: &str = \"").unwrap().1.split_once("\";").unwrap().0;
    let ours = |rest: &str| format!("x-requeue-{}", rest.split('"').next().unwrap());
    let names: BTreeSet<String> = code
        .split("HeaderName::from_static(\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap().to_owned())
        .chain(code.split("\"x-requeue-").skip(1).map(ours))
        .filter(|name| !name.ends_with('-'))
        .chain(reserved.split_whitespace().filter(|word| *word != "\\").map(str::to_owned))
        .collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "the page lacks {name}");
    }
}

#[test]
fn the_fields_of_the_wire_format_are_those_of_the_code() {
    let page = text("docs/reference/wire-format.md");
    let fields = |heading: &str| -> BTreeSet<String> {
        let rows = rows(section(&page, heading).split("\n### ").next().unwrap());
        rows.iter().flat_map(|row| row[0].split(", ")).map(plain).collect()
    };
    let body: BTreeSet<String> =
        words_of(&text("src/wire/object.rs"), "Name").into_iter().collect();
    assert_eq!(fields("## Fields of the body"), body);
    let state = text("src/wire/state_text.rs");
    let known = state.split_once("\nfields! {\n").unwrap().1.split_once("\n}\n").unwrap().0;
    assert_eq!(fields("## Fields of `retryState`"), quoted(known).into_iter().collect());
    let producer = text("src/producer.rs");
    let (constants, _) = producer.split_once("pub(crate) struct").unwrap();
    let attributes = quoted(constants).into_iter().filter(|name| name.starts_with("requeue."));
    assert_eq!(fields("## Limits of one message"), attributes.collect());
}

#[test]
fn the_limits_are_those_of_the_code() {
    let page = text("docs/reference/limits.md");
    for (file, constant, said) in [
        (
            "crates/requeue-sqs/src/limits.rs",
            "MAX_BATCH_BYTES: usize = 1_048_576",
            "1,048,576 bytes",
        ),
        (
            "crates/requeue-sqs/src/limits.rs",
            "MAX_BATCH_ENTRIES: usize = 10;",
            "one batch request | 10 |",
        ),
        ("crates/requeue-sqs/src/limits.rs", "Duration::from_secs(43_200)", "43,200 s"),
        ("crates/requeue-sqs/src/limits.rs", "MAX: Self = Self(900)", "one copy | 900 s"),
        ("src/queue/mod.rs", "from_secs(300 + 60)", "less 1,260 s"),
        ("src/queue/mod.rs", "RECEIVED_BEFORE.as_secs() - 15 * 60)", "41,940 s"),
        (
            "crates/requeue-sqs/src/limits.rs",
            "MAX_RETENTION: Duration = Duration::from_secs(1_209_600)",
            "14 days",
        ),
        (
            "src/delivery.rs",
            "MAX_COPIES_IN_ROW: u32 = 10;",
            "`REQUEUE_RECURSIVE_LOOP=Terminate` | 10, hops",
        ),
        (
            "src/lambda/mod.rs",
            "const LONGEST_RUN: Duration = Duration::from_secs(5_400)",
            "5,400 s on Lambda Managed Instances",
        ),
        ("src/wire/dead_letter.rs", "MAX_REDRIVES: u32 = 10;", "a message afresh | 10 |"),
        (
            "src/config/policy/shapes.rs",
            "HANDLERS: Count = Count { min: 1, max: 1_000 }",
            "10 by default, 1,000 at most",
        ),
        (
            "src/config/policy/keys.rs",
            "MAX_QUEUES: usize = 100",
            "queues with a policy of their own | 100 |",
        ),
        (
            "src/config/policy/shapes.rs",
            "MAX_COPIES: u32 = 10_000",
            "50 by default, 10,000 at most",
        ),
        ("src/gate/protection.rs", "MAX_SCOPES: usize = 10_000", "10,000 for each execution"),
        (
            "src/arrivals.rs",
            "MAX_ARRIVALS: usize = 10_000",
            "first receive Requeue remembers | 10,000",
        ),
        ("src/processor/memory.rs", "MAX_MESSAGES: usize = 4_096", "Requeue remembers | 4,096"),
        (
            "crates/requeue-lambda/src/http/request_headers.rs",
            "MAX_ID_BYTES: usize = 100;",
            "| 100 bytes",
        ),
        (
            "crates/requeue-lambda/src/http/request_headers.rs",
            "MAX_VALUE_BYTES: usize = 4 * 1024",
            "| 4,096 bytes",
        ),
        (
            "crates/requeue-lambda/src/http/request_headers.rs",
            "MAX_CONTENT_BYTES: usize = 8 * 1024",
            "| 8,192 bytes",
        ),
        (
            "crates/requeue-lambda/src/http/request_headers.rs",
            "MAX_TRACESTATE_BYTES: usize = 512",
            "| 512 bytes",
        ),
        (
            "crates/requeue-lambda/src/http/frames.rs",
            "MAX_HEAD_BYTES: usize = 256 * 1024",
            "256 KiB",
        ),
        (
            "crates/requeue-lambda/src/http/connection.rs",
            "MAX_HEADERS: usize = 1_000",
            "1,000 headers",
        ),
        ("crates/requeue-lambda/src/http/mod.rs", "MAX_BODY_BYTES: usize = 16 * 1024", "16 KiB"),
        (
            "crates/requeue-lambda/src/http/mod.rs",
            "BODY_TIMEOUT: Duration = Duration::from_secs(2)",
            "2 s after the head",
        ),
    ] {
        assert!(text(file).contains(constant), "{file} lacks {constant}");
        assert!(page.contains(said), "the page lacks: {said}");
    }
}

/// The value of a constant as people read it: `2.5 s`, `1,024`.
fn value_of(file: &str, constant: &str) -> String {
    let code = text(file);
    let (_, rest) = code
        .split_once(&format!("const {constant}: "))
        .unwrap_or_else(|| panic!("{file} lacks {constant}"));
    let (_, value) = rest.split_once(';').unwrap().0.split_once(" = ").unwrap();
    let number = |text: &str| text.replace('_', "").parse::<f64>().unwrap();
    let within = |start: &str| value.strip_prefix(start)?.strip_suffix(')');
    if let Some(secs) = within("Duration::from_secs(") {
        format!("{} s", grouped(number(secs)))
    } else if let Some(millis) = within("Duration::from_millis(") {
        format!("{} s", grouped(number(millis) / 1000.0))
    } else {
        grouped(number(value))
    }
}

#[test]
fn the_bounds_of_the_security_model_are_the_constants_of_the_code() {
    let page = text("docs/project/security-model.md");
    let table = section(&page, "## Bounds");
    let mut found = 0;
    for row in table.lines().filter(|line| line.ends_with("` |")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [_, values, constants] = cells[..] else { panic!("{row}") };
        let (names, file) = constants.split_once(" in ").unwrap();
        let said = names.split(", ").map(|name| value_of(&plain(file), &plain(name)));
        assert_eq!(values, said.collect::<Vec<_>>().join("; "), "{row}");
        found += 1;
    }
    assert!(found > 12, "{found}");
}
