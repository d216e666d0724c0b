//! The documents agree with the code: times, costs, outputs, and the tests that hold each guarantee.
//! The pages of `docs/reference/` have `reference.rs` and `reference_output.rs`.

use std::fs;
use std::path::Path;

use requeue_testkit::{documents, repository};
use serde_json::Value;

use crate::run::{requeue, requeue_reading};

pub(crate) fn text(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap()
}

#[track_caller]
pub(crate) fn says(line: &str) {
    assert!(documents().lines().any(|said| said == line), "the documents lack: {line}");
}

fn without_numbers(text: &str) -> String {
    let parts = text.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("#")
}

/// The documents show such an output, with other numbers.
#[track_caller]
pub(crate) fn shows(output: &str) {
    let is_shown = without_numbers(&documents()).contains(&without_numbers(output));
    assert!(is_shown, "the documents lack: {output}");
}

/// The lines that a page shows of what a command prints.
#[track_caller]
pub(crate) fn excerpt(page: &str, command: &[&str]) -> Vec<String> {
    let page = text(page);
    let command = format!("\nrequeue {}\n```\n\n```text\n", command.join(" "));
    let (_, after) = page.split_once(&command).expect("the page has the command and a block");
    let (block, _) = after.split_once("```").unwrap();
    let lines: Vec<String> = block.lines().map(str::to_owned).collect();
    assert!(lines.len() > 3, "{block}");
    lines
}

/// A class of the schedule with which the documents compare strategies and modes.
fn class(strategy: &str, dead_letter: &str, name: &str) -> Value {
    let options = [
        "--max-receive-count",
        "10",
        "--strategy",
        strategy,
        "--dead-letter",
        dead_letter,
        "--json",
    ];
    let schedule =
        requeue(&[&["schedule", "--policy", "critical"], &options[..]].concat()).succeeded();
    let schedule: Value = serde_json::from_str(&schedule).unwrap();
    schedule["classes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|class| class["class"] == name)
        .unwrap()
        .clone()
}

fn requests(class: &Value, company: &str, what: &str) -> f64 {
    class["requests"]["median"][company][what].as_f64().unwrap()
}

#[test]
fn the_costs_of_a_retry_are_those_of_the_schedule() {
    let costs = |company, what, digits: usize| {
        let of = |strategy| {
            let [retried, not] =
                ["rate-limit", "non-retryable"].map(|name| class(strategy, "direct", name));
            (requests(&retried, company, what) - requests(&not, company, what)) / 5.0
        };
        format!("{:.digits$} | {:.digits$}", of("copy"), of("visibility"))
    };
    for (row, company, what, digits) in [
        ("SQS requests for a single retry", "alone", "billedRequests", 0),
        ("SQS requests for each of ten retries in a batch", "batched", "billedRequests", 1),
        ("$ for a million single retries", "alone", "usdPerMillionMessages", 2),
        ("$ for a million retries, ten in a batch", "batched", "usdPerMillionMessages", 2),
    ] {
        says(&format!("| {row} | {} |", costs(company, what, digits)));
    }
}

#[test]
fn the_costs_of_a_final_failure_are_those_of_the_schedule() {
    const MODES: [&str; 3] = ["redrive", "annotate", "direct"];
    let row = |strategy, cell: &dyn Fn(&Value) -> String| {
        MODES.map(|mode| cell(&class(strategy, mode, "non-retryable"))).join(" | ")
    };
    let calls = |class: &Value| class["requests"]["median"]["handlerCalls"].to_string();
    assert_eq!(row("copy", &calls), row("visibility", &calls));
    says(&format!(
        "| calls of the handler by one execution environment | {} |",
        row("copy", &calls)
    ));

    for strategy in ["copy", "visibility"] {
        let arrival =
            |class: &Value| class["end"]["median"]["ageInDeadLetterQueueSeconds"].to_string();
        assert_eq!(row(strategy, &arrival), "3600 | 10 | 0");
        for (label, company, what, digits) in [
            ("SQS requests for a message that fails alone", "alone", "billedRequests", 0),
            (
                "SQS requests for each of ten messages that fail together",
                "batched",
                "billedRequests",
                1,
            ),
            ("$ for a million messages that fail alone", "alone", "usdPerMillionMessages", 2),
            (
                "$ for a million messages that fail ten at a time",
                "batched",
                "usdPerMillionMessages",
                2,
            ),
        ] {
            let cell = |class: &Value| format!("{:.digits$}", requests(class, company, what));
            says(&format!("| {label} | {} |", row(strategy, &cell)));
        }
    }
    says(
        "| in the dead-letter queue | after 10 visibility timeouts (1 h) | after 10 s | at once |",
    );
}

#[test]
fn the_schedules_are_those_of_the_command() {
    for options in [&[][..], &["--strategy", "visibility"]] {
        let said = requeue(&[&["schedule"], options].concat()).succeeded();
        let (rate_limit, _) = said.split_once("\n\n").unwrap();
        // With another strategy only the end is another.
        let lines = rate_limit.lines().skip(if options.is_empty() { 0 } else { 7 });
        lines.for_each(|line| says(line.trim_end()));
    }
}

#[test]
fn the_policies_and_their_summaries_are_those_of_the_command() {
    for preset in ["standard", "high-volume", "critical"] {
        let document = format!(r#"{{"preset": "{preset}"}}"#);
        let said = requeue_reading(&document, &["check", "-"]).succeeded();
        let rows = said.lines().skip_while(|line| !line.starts_with('─')).skip(1).take(3);
        for row in rows {
            let cells: Vec<&str> =
                row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
            let [class, rest @ ..] = &cells[..] else { panic!("{said}") };
            says(&format!("| `{preset}` | `{class}` | {} |", rest.join(" | ")));
        }
    }
    let said = requeue_reading(r#"{"maxRetrys": 3}"#, &["check", "-"]).stderr;
    said.lines().for_each(|line| says(line.trim_end()));
}

#[test]
fn the_tables_of_a_first_try_are_those_of_the_commands() {
    let invoked = requeue(&["invoke", "events/every-class.json", "--sample", "0.5"]);
    for said in [requeue(&["demo"]).stdout, invoked.stderr, invoked.stdout] {
        said.lines().for_each(|line| says(line.trim_end()));
    }
}

#[test]
fn the_pages_name_the_oldest_rust_of_the_manifest() {
    let manifest = text("Cargo.toml");
    let (_, version) = manifest.split_once("rust-version = \"").unwrap();
    let (version, _) = version.split_once('"').unwrap();
    let page = text("docs/project/versioning.md").replace('\n', " ");
    assert!(page.contains(&format!("the oldest Rust that compiles Requeue: {version} now.")));
    for name in ["README.md", "docs/start/rust-handler.md", "docs/start/http-target.md"] {
        assert!(text(name).contains(&format!("Rust {version}")), "{name}");
    }
}

#[test]
fn the_summary_has_each_page_by_its_heading() {
    let summary = text("docs/SUMMARY.md");
    let mut pages = 0;
    for room in ["start", "concepts", "recipes", "operate", "reference", "project"] {
        for entry in fs::read_dir(repository("docs").join(room)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let page = text(&format!("docs/{room}/{name}"));
            let heading = page.lines().next().unwrap().strip_prefix("# ").unwrap();
            let line = format!("- [{heading}]({room}/{name})");
            assert!(summary.lines().any(|said| said == line), "docs/SUMMARY.md lacks: {line}");
            pages += 1;
        }
    }
    assert_eq!(summary.lines().filter(|line| line.starts_with("- ")).count(), pages);
}

/// The page on dead letters, whose list is compared with the command's, has the first of them.
#[test]
fn each_list_of_dead_letters_has_the_same_headings() {
    let documents = documents();
    let lists = documents.lines().filter(|line| line.starts_with(" messages   class "));
    let headings: Vec<Vec<&str>> = lists
        .map(|line| line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect())
        .collect();
    assert!(headings.len() > 2, "{headings:?}");
    assert!(headings.iter().all(|one| *one == headings[0]), "{headings:?}");
}

#[test]
fn the_pages_of_guarantees_and_testing_name_tests_that_exist() {
    let page = text("docs/project/guarantees.md") + &text("TESTING.md");
    let root = repository("");
    let words = page.split('`').skip(1).step_by(2).flat_map(str::split_whitespace);
    let paths: Vec<&str> = words
        .filter(|word| ["tests/", "src/", "crates/"].iter().any(|room| word.starts_with(room)))
        .collect();
    assert!(paths.len() > 20, "{paths:?}");
    for path in paths {
        assert!(root.join(path).exists(), "{path} is not there");
    }
}

/// Each patch says at its head what it breaks, and which tests notice. The page has some of them, by
/// the suites and modules of these tests.
#[test]
fn the_page_of_testing_shows_deliberate_bugs_and_where_they_are_caught() {
    let page = text("TESTING.md");
    let mut rows = Vec::new();
    for entry in fs::read_dir(repository("tests/sabotage")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "patch") {
            continue;
        }
        let said = fs::read_to_string(&path).unwrap();
        let head: Vec<&str> = said.lines().take_while(|line| !line.starts_with("diff ")).collect();
        let tests = head.iter().filter_map(|line| line.strip_prefix("caught by "));
        let (simulated, named): (Vec<&str>, Vec<&str>) =
            tests.partition(|test| test.starts_with("simulation "));
        let simulation = match simulated[..] {
            [] => None,
            [only] if only.contains("_through_the_client_") => {
                Some("simulation through the SDK client")
            }
            _ => Some("simulation"),
        };
        let mut places: Vec<String> =
            named.iter().map(|test| format!("`{}`", test.split("::").next().unwrap())).collect();
        places.dedup();
        places.extend(simulation.map(str::to_owned));
        assert!(!places.is_empty(), "{}", path.display());
        rows.push(format!("| {} | {} |", head[0], places.join(", ")));
    }
    let (_, table) = page.split_once("\n| bug | caught by |\n|---|---|\n").unwrap();
    let table = table.split("\n\n").next().unwrap().trim_end();
    let stale: Vec<&str> = table.lines().filter(|row| !rows.iter().any(|one| one == row)).collect();
    assert!(stale.is_empty(), "no patch says: {stale:#?}");
    assert!(table.lines().count() >= 10, "{table}");
    assert!(rows.len() >= 40, "{} patches", rows.len());
}

/// The code of a directory without its tests.
pub(crate) fn code_below(directory: &Path) -> String {
    let mut code = String::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap();
        if path.is_dir() && name != "tests" {
            code += &code_below(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests" {
            let file = fs::read_to_string(&path).unwrap();
            code += file.split("#[cfg(test)]\nmod tests {").next().unwrap();
        }
    }
    code
}

#[test]
fn the_symptoms_are_in_the_words_of_the_code() {
    /// AWS's words, and a text with a name in it.
    const NOT_IN_CODE: [&str; 5] = [
        "AccessDenied…",
        "CouldNotDetermineMessageSource",
        "KMS.…",
        "SQS refuses StartMessageMoveTask",
        "start-message-move-task",
    ];
    let code: String =
        ["src", "crates/requeue-lambda/src", "crates/requeue-cli/src", "crates/requeue-aws/src"]
            .map(|directory| code_below(&repository(directory)))
            .concat();
    let page = text("docs/operate/runbook.md");
    let (_, symptoms) = page.split_once("## Symptoms\n").unwrap();
    let (symptoms, _) = symptoms.split_once("\n## ").unwrap();
    let symptoms: Vec<&str> = symptoms
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(|word| word.split([':', '=']).next_back().unwrap_or(word).trim())
        .filter(|word| !NOT_IN_CODE.contains(word))
        .collect();
    assert!(symptoms.len() > 20, "{symptoms:?}");
    for symptom in symptoms {
        assert!(code.contains(symptom), "the code has no: {symptom}");
    }
}

/// The queries of CloudWatch Logs Insights, and the filters of the log.
#[test]
fn the_queries_of_the_log_name_fields_that_it_has() {
    let metrics = text("docs/reference/metrics.md");
    let pages = ["first-hour", "monitoring", "runbook"]
        .map(|page| text(&format!("docs/operate/{page}.md")));
    let named: Vec<&str> = pages
        .iter()
        .flat_map(|page| page.split("fields.").skip(1))
        .map(|after| after.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap())
        .filter(|field| !field.is_empty())
        .collect();
    assert!(named.len() > 5, "{named:?}");
    for field in named {
        let is_there = field == "message" || metrics.contains(&format!("`{field}`"));
        assert!(is_there, "the log has no field {field}");
    }
}

#[test]
fn the_calls_with_scopes_in_an_outage_are_those_of_the_command() {
    let calls = |scopes: &str, company: &str| {
        let size = ["simulate", "outage", "--messages", "60", "--rate", "50", "--outage", "40"];
        let said = requeue(&[&size[..], &["--scopes", scopes, "--json"]].concat()).succeeded();
        let said: Value = serde_json::from_str(&said).unwrap();
        said[company]["callsWhileDown"].to_string()
    };
    let page = text("docs/concepts/protection.md");
    for (row, scopes, company) in
        [("no protection", "1", "without"), ("one scope", "1", "with"), ("20 scopes", "20", "with")]
    {
        let row = format!("| {row} | {} |", calls(scopes, company));
        assert!(page.contains(&row), "the page lacks: {row}");
    }
}

#[test]
fn the_calls_of_few_messages_in_an_outage_are_those_of_the_command() {
    let page = text("docs/concepts/protection.md");
    let (_, table) = page.split_once("| messages | 10 min |").unwrap();
    for messages in ["1", "2", "5", "20"] {
        let calls_in = |outage| {
            let size = ["simulate", "outage", "--rate", "10", "--outage", outage, "--json"];
            let said = requeue(&[&size[..], &["--messages", messages]].concat()).succeeded();
            let said: Value = serde_json::from_str(&said).unwrap();
            assert_eq!(said["with"]["deadLetters"], 0, "{messages} messages, {outage}");
            said["with"]["callsWhileDown"].to_string()
        };
        let cells = ["10m", "37m", "2h", "8h"].map(calls_in).join(" | ");
        let row = format!("\n| {messages} | {cells} |\n");
        assert!(table.contains(&row), "the page lacks: {row}");
    }
}

#[test]
fn the_picture_of_a_rate_limit_and_its_guide_are_those_of_the_command() {
    let command = ["simulate", "rate", "--messages", "3000", "--environments", "20"];
    let said = requeue(&command).succeeded();
    for line in excerpt("docs/concepts/rate-limits.md", &command) {
        let is_line = said.lines().any(|said| without_numbers(said) == without_numbers(&line));
        assert!(is_line, "the command does not print: {line}");
    }

    let figures = requeue(&[&command[..], &["--json"]].concat()).succeeded();
    let figures: Value = serde_json::from_str(&figures).unwrap();
    let path = "docs/pictures/shared_rate_limit.json";
    if std::env::var_os("REQUEUE_TEST_WRITE_PICTURES").is_some() {
        let calls = |run: &str| figures[run]["callsBySecond"].to_string();
        let [alone, shared] = ["withoutTable", "withTable"].map(calls);
        let written = format!("{{\n  \"withoutTable\": {alone},\n  \"withTable\": {shared}\n}}\n");
        fs::write(repository(path), written).unwrap();
    }
    // Small changes of the rules move single calls.
    let drawn: Value = serde_json::from_str(&text(path)).unwrap();
    for run in ["withoutTable", "withTable"] {
        let [drawn, played] = [&drawn[run], &figures[run]["callsBySecond"]].map(|calls| {
            let calls = calls.as_array().unwrap();
            calls.iter().map(|calls| calls.as_f64().unwrap()).collect::<Vec<_>>()
        });
        let [most, most_played] =
            [&drawn, &played].map(|calls| calls.iter().copied().fold(0.0, f64::max));
        assert_eq!(drawn.iter().sum::<f64>(), 3_000.0, "{run}");
        assert!(drawn.len().abs_diff(played.len()) <= 1, "{run}: {drawn:?} {played:?}");
        assert!((most - most_played).abs() <= 0.2 * most, "{run}: {drawn:?} {played:?}");
    }
}

#[test]
fn the_figures_of_a_flood_are_those_of_the_command() {
    let size = ["simulate", "rate", "--messages", "3000", "--environments", "20", "--json"];
    let figures = requeue(&[&size[..], &["--tenants", "100", "--load", "30"]].concat()).succeeded();
    let figures: Value = serde_json::from_str(&figures).unwrap();
    for (row, name, factor, digits, unit) in [
        ("longest wait of another tenant", "longestWaitOfOtherTenantsSeconds", 1.0, 1, " s"),
        (
            "longest wait of another tenant, without the slowest 1 %",
            "waitOf99PercentOfOtherTenantsSeconds",
            1.0,
            1,
            " s",
        ),
        ("deferrals for each message of the backlog", "deferralsPerMessageOfBacklog", 1.0, 2, ""),
        ("throughput, in % of the limit", "throughputOfLimit", 100.0, 1, ""),
        ("requests to SQS for each message", "sqsRequestsPerMessage", 1.0, 2, ""),
        ("requests to the table for each message", "tableRequestsPerMessage", 1.0, 2, ""),
    ] {
        let cells = ["withTable", "withFairShares"]
            .map(|run| format!("{:.digits$}{unit}", figures[run][name].as_f64().unwrap() * factor));
        says(&format!("| {row} | {} |", cells.join(" | ")));
    }
}
