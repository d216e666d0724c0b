//! The pages of `docs/reference/` agree with the code, row by row.

use std::collections::BTreeSet;
use std::time::Duration;

use requeue::policy::{Backoff, ClassPolicy, Jitter, RetryPolicy};
use requeue_testkit::repository;
use serde_json::Value;

use crate::documents::{code_below, says, text};
use crate::run::{file, requeue, requeue_with};

/// The part of a page below a heading of this level or a lower one.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, section) = page
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("the page lacks {heading}"));
    let level = heading.split(' ').next().unwrap();
    section.split(&format!("\n{level} ")).next().unwrap()
}

/// The rows of the tables in a text whose first cell is code, as cells.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The items of the lists in a text, each on one line.
fn items(text: &str) -> Vec<String> {
    let items = text.split("\n- ").skip(1);
    items.map(|item| item.split("\n\n").next().unwrap().replace("\n  ", " ")).collect()
}

/// The names in a cell.
fn names(cell: &str) -> Vec<String> {
    cell.split(", ").map(plain).collect()
}

/// A cell without its markup: of a link its text, and no backticks.
fn plain(cell: &str) -> String {
    let mut plain = String::new();
    let mut rest = cell;
    while let Some((before, link)) = rest.split_once('[') {
        let Some(((words, _), after)) =
            link.split_once(')').and_then(|(link, after)| Some((link.split_once("](")?, after)))
        else {
            break;
        };
        plain.extend([before, words]);
        rest = after;
    }
    (plain + rest).replace('`', "")
}

/// A number as people read it: `10,000`.
fn grouped(number: f64) -> String {
    let digits = number.to_string();
    let commas = if digits.contains('.') { 0 } else { (digits.len() - 1) / 3 };
    (1..=commas).fold(digits.clone(), |mut text, group| {
        text.insert(digits.len() - 3 * group, ',');
        text
    })
}

#[test]
fn the_settings_are_those_of_the_code() {
    let code = text("crates/requeue-lambda/src/config/mod.rs") + &text("src/config/mod.rs");
    let rows_of = |text: &str| -> BTreeSet<Vec<String>> {
        let rows = rows(text).into_iter().filter(|row| row[0].starts_with("`REQUEUE_"));
        rows.map(|row| row.into_iter().map(plain).collect()).collect()
    };
    let documented: Vec<&str> =
        code.lines().filter_map(|line| line.trim_start().strip_prefix("/// ")).collect();
    let documented = rows_of(&documented.join("\n"));
    let page = text("docs/reference/settings.md");
    let shown = rows_of(&page);
    assert_eq!(shown, documented);
    let count = page.lines().filter(|line| line.starts_with("| `REQUEUE_")).count();
    assert_eq!(count, documented.len(), "a setting has two rows");

    // The command's error for an invalid value.
    let variables: Vec<(&str, &str)> = shown.iter().map(|row| (row[0].as_str(), "?")).collect();
    let refused = requeue_with(&variables, &["invoke", "events/single.json"]).stderr;
    assert!(!refused.contains("is unknown"), "{refused}");
    let mut compared = 0;
    for row in rows(&page).iter().filter(|row| row[0].starts_with("`REQUEUE_")) {
        let (name, unit) = (plain(row[0]), row[2]);
        let words: Vec<&str> = unit.split(", ").map(|word| word.trim_matches('`')).collect();
        let is_words = words.iter().all(|word| unit.contains(&format!("`{word}`")));
        let is_number = unit.split(' ').any(|word| word == "to") && !unit.contains('`');
        let is_text = unit.contains("characters");
        if (is_words || is_number) && !is_text {
            let said = refused.lines().find(|line| line.contains(&format!("{name} is ")));
            let bounds = words.last().unwrap().replace(',', "");
            let allowed = if is_words { words.join(", ") } else { bounds };
            assert!(said.unwrap().ends_with(&allowed), "{name}: {allowed}, not {said:?}");
            compared += 1;
        }
    }
    assert!(compared >= 15, "{compared}");
}

#[test]
fn the_example_of_wrong_settings_is_refused_as_the_page_shows() {
    let wrong =
        [("REQUEUE_CONCURENCY", "4"), ("REQUEUE_WRAP", "maybe"), ("REQUEUE_TIMEOUT_SECONDS", "0")];
    let command = wrong.map(|(name, value)| format!("{name}={value} ")).concat();
    says(&format!("{command}requeue invoke events/single.json"));
    let run = requeue_with(&wrong, &["invoke", "events/single.json"]);
    assert_eq!(run.status, 1);
    run.stderr.lines().for_each(says);
}

/// The bounds that a schema gives a number, or the numbers of a list: `0.001 to 86,400`.
fn bounds(schema: &Value) -> Option<String> {
    let number = |word: &str| Some(grouped(schema[word].as_f64()?));
    let own = || Some(format!("{} to {}", number("minimum")?, number("maximum")?));
    let of_any = || schema["anyOf"].as_array()?.iter().find_map(bounds);
    own().or_else(of_any).or_else(|| schema.get("items").and_then(bounds))
}

/// The words that a schema allows.
fn words(schema: &Value) -> Vec<&str> {
    let own = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let of_any = schema["anyOf"].as_array().into_iter().flatten().flat_map(words);
    own.chain(of_any).collect()
}

#[test]
fn the_page_of_the_policy_has_each_key_of_the_schema_as_it_is_there() {
    let (page, schema) = (text("docs/reference/policy.md"), text("infra/policy.schema.json"));
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let rule = "/properties/rules/items/properties";
    let mut found = 0;
    for (heading, places) in [
        ("## The document", vec!["/properties".to_owned()]),
        ("## A class", vec!["/$defs/class/properties".to_owned()]),
        ("## A rule", vec![rule.to_owned(), format!("{rule}/match/properties")]),
        ("## circuitBreaker", vec!["/properties/circuitBreaker/anyOf/1/properties".to_owned()]),
        (
            "## sqsCalls and receiveCalls",
            vec![
                "/properties/sqsCalls/anyOf/1/properties".to_owned(),
                "/properties/receiveCalls/properties".to_owned(),
            ],
        ),
        ("## rateLimit", vec!["/properties/rateLimit/properties".to_owned()]),
        ("## idempotency", vec!["/properties/idempotency/properties".to_owned()]),
        ("## queues", vec!["/$defs/queue/properties".to_owned()]),
        ("## queueConfig", vec!["/properties/queueConfig/properties".to_owned()]),
    ] {
        let section = section(&page, heading).split("\n### ").next().unwrap();
        let rows = rows(section);
        let mut listed = BTreeSet::new();
        for (nth, (key, value)) in places.iter().enumerate().flat_map(|(nth, place)| {
            let keys = schema.pointer(place).unwrap().as_object().unwrap();
            keys.iter().map(move |key| (nth, key))
        }) {
            // An entry of `queues` has most keys of the document.
            if heading == "## queues" && schema["properties"].get(key).is_some() {
                continue;
            }
            let said = value["description"].as_str().unwrap();
            let (meaning, default) = match said.split_once(" Default: ") {
                Some((meaning, default)) => (meaning, Some(default.trim_end_matches('.'))),
                None => (said, None),
            };
            let is_it = |row: &Vec<&str>| row[0] == format!("`{key}`") && plain(row[1]) == meaning;
            let row = rows
                .iter()
                .position(is_it)
                .unwrap_or_else(|| panic!("{heading} lacks: | `{key}` | {meaning} |"));
            let row = &rows[row];
            listed.insert((row[0], row[1]));
            let bounds = bounds(value).unwrap_or_default();
            assert!(row[2].contains(&bounds), "{heading}: {key} is {bounds}");
            if let Some(default) = default {
                // Two objects with the same keys have a column of defaults each.
                let there = plain(row[3 + usize::from(row.len() > 4 && nth == 1)]);
                let is_said = there == default || there.replace(',', "") == default;
                assert!(is_said, "{heading}: {key} is {default} by default, and not {there}");
            }
            if heading == "## The document" {
                let words = words(value).into_iter().map(|word| format!("`{word}`"));
                words.for_each(|word| assert!(row[2].contains(&word), "{key} may be {word}"));
            }
            found += 1;
        }
        assert_eq!(listed.len(), rows.len(), "{heading}: the schema lacks some of {rows:?}");
    }
    assert!(found > 40, "{found}");
    let classes = schema["properties"]["errorConfigs"]["properties"].as_object().unwrap();
    for class in classes.keys() {
        assert!(section(&page, "## A class").contains(&format!("`{class}`")), "{class}");
    }
}

fn secs(duration: Duration) -> String {
    grouped(duration.as_secs_f64())
}

fn three<T: ToString>(policy: &RetryPolicy, of: impl Fn(&ClassPolicy) -> T) -> String {
    [&policy.rate_limit, &policy.quota, &policy.temporary]
        .map(|class| of(class).to_string())
        .join(" / ")
}

fn base(class: &ClassPolicy) -> (Duration, f64) {
    match class.backoff {
        Backoff::Exponential { base, multiplier } => (base, multiplier),
        _ => panic!("{:?}", class.backoff),
    }
}

#[test]
fn the_defaults_of_the_policy_are_those_of_the_presets() {
    let page = text("docs/reference/policy.md");
    for (name, policy) in [
        ("standard", RetryPolicy::standard()),
        ("high-volume", RetryPolicy::high_volume()),
        ("critical", RetryPolicy::critical()),
    ] {
        let jitter = match policy.quota.jitter {
            Jitter::Full => "full".to_owned(),
            Jitter::Equal => "equal".to_owned(),
            Jitter::Proportional(share) => format!("{{\"proportional\": {share}}}"),
            other => panic!("{other:?}"),
        };
        let cells = [
            name.to_owned(),
            grouped(policy.max_retries.into()),
            base(&policy.quota).1.to_string(),
            jitter,
            three(&policy, |class| secs(base(class).0)),
            three(&policy, |class| secs(class.max_delay)),
            three(&policy, |class| secs(class.total_timeout)),
        ];
        let row = rows(section(&page, "### Presets"))
            .into_iter()
            .map(|row| row.into_iter().map(plain).collect::<Vec<_>>())
            .find(|row| row[0] == name);
        assert_eq!(row.as_deref(), Some(&cells[..]));
    }

    let policy = RetryPolicy::standard();
    let breaker = policy.circuit_breaker.clone().unwrap();
    assert_eq!(policy.message_ttl, None);
    let class = &policy.quota;
    assert_eq!((class.jitter, class.max_retries), (Jitter::Equal, None));
    for (heading, defaults) in [
        (
            "## The document",
            &[
                ("maxRetries", grouped(policy.max_retries.into())),
                ("baseDelayMultiplier", base(class).1.to_string()),
                ("maxDelaySeconds", three(&policy, |class| secs(class.max_delay))),
                ("totalTimeoutSeconds", three(&policy, |class| secs(class.total_timeout))),
                ("maxRetryAfterSeconds", secs(policy.max_retry_after)),
                ("maxDeferrals", grouped(policy.max_deferrals.into())),
                ("maxDeferralSeconds", secs(policy.max_deferral)),
                ("maxPostponements", grouped(policy.max_postponements.into())),
                ("maxPauseSeconds", secs(policy.max_pause.unwrap())),
            ][..],
        ),
        ("## A class", &[("baseDelay", three(&policy, |class| secs(base(class).0)))]),
        (
            "## circuitBreaker",
            &[
                ("threshold", breaker.threshold.to_string()),
                ("resetTimeoutSeconds", secs(breaker.reset_timeout)),
            ],
        ),
    ] {
        let rows = rows(section(&page, heading));
        for (key, default) in defaults {
            let row = rows.iter().find(|row| row[0] == format!("`{key}`")).unwrap();
            assert_eq!(row[3], default, "{key}");
        }
    }
}

#[test]
fn the_example_of_the_policy_is_checked_as_the_page_shows() {
    let page = text("docs/reference/policy.md");
    let (_, example) = page.split_once("```json\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let policy = file("example-policy.json", example);
    let said = requeue(&["check", &policy]).succeeded().replace(&policy, "policy.json");
    said.lines().for_each(|line| says(line.trim_end()));
}

/// The commands below a command, by its help; none of a command that has no others.
fn commands_below(command: &str) -> Vec<String> {
    let arguments: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
    let help = requeue(&arguments).succeeded();
    let Some((_, list)) = help.split_once("\nCommands:\n") else {
        return vec![command.to_owned()];
    };
    let (list, _) = list.split_once("\n\n").unwrap();
    let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names
        .filter(|name| !name.is_empty() && *name != "help")
        .flat_map(|name| commands_below(format!("{command} {name}").trim()))
        .collect()
}

#[test]
fn the_short_help_of_each_command_fits_a_terminal_also_in_a_pipe() {
    let region = [("AWS_REGION", "a-region-with-a-long-name-1")];
    let groups = ["", "dlq", "simulate"].map(str::to_owned);
    for command in commands_below("").into_iter().chain(groups) {
        let arguments: Vec<&str> = command.split_whitespace().chain(["-h"]).collect();
        let help = requeue_with(&region, &arguments).succeeded();
        let widest = help.lines().max_by_key(|line| line.chars().count()).unwrap();
        let size = (widest.chars().count(), help.lines().count());
        assert!(size.0 <= 80 && size.1 <= 40, "{command}: {size:?}: {widest}");
    }
}

/// The help of a command on one line, without the breaks of a terminal.
fn help_of(command: &str) -> String {
    let arguments: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
    requeue(&arguments).succeeded().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn has_option(command: &str, option: &str) -> bool {
    help_of(command).contains(&format!(" {option} "))
}

/// The commands that a cell of the page names: `dlq` stands for all commands below it.
fn commands_of(cell: &str, all: &BTreeSet<String>) -> BTreeSet<String> {
    let named = |cell: &str| -> BTreeSet<String> {
        let mut commands = BTreeSet::new();
        for name in cell.split(", ").map(plain) {
            let below = format!("{name} ");
            let found = all.iter().filter(|known| **known == name || known.starts_with(&below));
            let before = commands.len();
            commands.extend(found.cloned());
            assert!(commands.len() > before, "there is no command {name}");
        }
        commands
    };
    match cell.strip_prefix("all") {
        Some("") => all.clone(),
        Some(rest) => all - &named(rest.strip_prefix(" but ").unwrap()),
        None => named(cell),
    }
}

#[test]
fn the_cli_page_names_each_command_and_a_page_that_shows_it() {
    let page = text("docs/reference/cli.md");
    let rows = rows(section(&page, "## Commands"));
    let mut said: Vec<String> = rows.iter().flat_map(|row| names(row[0])).collect();
    said.sort();
    let all: BTreeSet<String> = commands_below("").into_iter().collect();
    assert_eq!(said, all.into_iter().collect::<Vec<_>>());
    assert!(said.len() > 12, "{said:?}");
    for row in rows {
        let (_, link) = row[1].split_once("](").unwrap();
        let link = link.split([')', '#']).next().unwrap();
        let shows = text(&format!("docs/reference/{link}"));
        for name in names(row[0]) {
            assert!(shows.contains(&format!("requeue {name}")), "{link} lacks {name}");
        }
    }
}

#[test]
fn the_shared_options_of_the_cli_page_are_those_of_the_commands() {
    let page = text("docs/reference/cli.md");
    let all: BTreeSet<String> = commands_below("").into_iter().collect();
    let rows = rows(section(&page, "## Shared options"));
    assert!(rows.len() >= 4, "{rows:?}");
    for (option, commands) in rows
        .iter()
        .flat_map(|row: &Vec<&str>| names(row[0]).into_iter().map(|option| (option, row[1])))
    {
        // Their option of this name is the name of a new queue.
        let others = ["serve", "event"].map(str::to_owned).into_iter().collect();
        let known = if option == "--queue" { &all - &others } else { all.clone() };
        let with_it = known.into_iter().filter(|command| has_option(command, &option));
        assert_eq!(commands_of(commands, &all), with_it.collect(), "{option}");
    }
}

#[test]
fn the_exit_statuses_of_the_cli_page_are_of_commands_and_options_that_exist() {
    let page = text("docs/reference/cli.md");
    let all: BTreeSet<String> = commands_below("").into_iter().collect();
    let statuses = section(&page, "## Exit status");
    let rows: Vec<&str> = statuses
        .lines()
        .filter(|line| line.starts_with("| ") && !line.contains("---"))
        .skip(1)
        .collect();
    assert!(rows.len() > 12, "{rows:?}");
    for row in rows {
        let cell = row.split(" | ").nth(1).unwrap();
        for named in cell.split(", ").map(plain) {
            let (name, option) = named.split_once(" --").unwrap_or((&named, ""));
            let commands = commands_of(name, &all);
            if !option.is_empty() {
                let option = format!("--{option}");
                assert!(commands.iter().all(|one| has_option(one, &option)), "{name} {option}");
            }
        }
    }
}

#[test]
fn the_version_is_that_of_the_command() {
    let version = requeue(&["--version"]);
    assert_eq!(version.stdout, concat!("requeue ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn the_exit_statuses_of_the_page_are_those_of_the_commands() {
    let (good, bad) = (file("exit-good.json", "{}"), file("exit-bad.json", "{"));
    for (status, arguments) in [
        (0, &["--help"][..]),
        (0, &["--version"]),
        (0, &["check", &good]),
        (3, &["check", &bad]),
        (1, &["check", "none.json"]),
        (0, &["check"]),
        (2, &["check", "--none", &good]),
        (2, &["none"]),
        (2, &[]),
    ] {
        assert_eq!(requeue(arguments).status, status, "{arguments:?}");
    }
}

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
    // On one line with other words.
    let by_class: BTreeSet<(String, String)> = metrics("fn of_class(self)")
        .into_iter()
        .chain([("RetryDelay".to_owned(), "Seconds".to_owned())])
        .collect();
    assert!(body(&code, "fn of_class(self)").contains(r#"[("RetryDelay", Unit::Seconds,"#));
    let all = metrics("fn of_queue(self)");
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
    let names: BTreeSet<String> = code
        .split("HeaderName::from_static(\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap().to_owned())
        .chain(quoted(code.split_once("const OF_HTTP").unwrap().1.split_once("];").unwrap().0))
        .chain(quoted(code.split_once("const OURS").unwrap().1.split_once("];").unwrap().0))
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
        ("src/queue/mod.rs", "Duration::from_hours(14 * 24)", "14 days"),
        ("src/delivery.rs", "MAX_COPIES_IN_ROW: u32 = 10;", "`RecursiveLoop=Terminate` | 10 |"),
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
            "noted in a dead-letter queue | 10,000",
        ),
        ("src/processor/memory.rs", "MAX_MESSAGES: usize = 4_096", "messages noted | 4,096"),
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
