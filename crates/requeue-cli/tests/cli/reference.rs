//! The pages of `docs/reference/` agree with the code, row by row.

use std::collections::BTreeSet;
use std::time::Duration;

use requeue::policy::{Backoff, ClassPolicy, Jitter, RetryPolicy};
use serde_json::Value;

use crate::documents::{says, text};
use crate::run::{file, requeue, requeue_with};

/// The part of a page below a heading of this level or a lower one.
pub(crate) fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, section) = page
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("the page lacks {heading}"));
    let level = heading.split(' ').next().unwrap();
    section.split(&format!("\n{level} ")).next().unwrap()
}

/// The rows of the tables in a text whose first cell is code, as cells.
pub(crate) fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The items of the lists in a text, each on one line.
pub(crate) fn items(text: &str) -> Vec<String> {
    let items = text.split("\n- ").skip(1);
    items.map(|item| item.split("\n\n").next().unwrap().replace("\n  ", " ")).collect()
}

/// The names in a cell.
pub(crate) fn names(cell: &str) -> Vec<String> {
    cell.split(", ").map(plain).collect()
}

/// A cell without its markup: of a link its text, and no backticks.
pub(crate) fn plain(cell: &str) -> String {
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
pub(crate) fn grouped(number: f64) -> String {
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
