//! The pages of `docs/reference/` agree with the code, row by row.

use std::fs;
use std::time::Duration;

use requeue::policy::{Backoff, ClassPolicy, Jitter, RetryPolicy};
use requeue_testkit::repository;
use serde_json::Value;

use crate::documents::{says, text};
use crate::run::{file, requeue};

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
    let lines = text.lines().filter(|line| line.starts_with("| `"));
    lines
        .map(|line| line.trim_start_matches("| ").trim_end_matches(" |").split(" | ").collect())
        .map(|cells: Vec<&str>| {
            cells.into_iter().map(|cell| cell.trim_end_matches('|').trim()).collect()
        })
        .collect()
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
        ("## queueConfig", vec!["/properties/queueConfig/properties".to_owned()]),
    ] {
        let section = section(&page, heading).split("\n### ").next().unwrap();
        let mut rows = rows(section);
        for (key, value) in
            places.iter().flat_map(|place| schema.pointer(place).unwrap().as_object().unwrap())
        {
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
            let row = rows.remove(row);
            let bounds = bounds(value).unwrap_or_default();
            assert!(row[2].contains(&bounds), "{heading}: {key} is {bounds}");
            if let Some(default) = default {
                let there = plain(row[3]);
                let is_said = there == default || there.replace(',', "") == default;
                assert!(is_said, "{heading}: {key} is {default} by default, and not {there}");
            }
            if heading == "## The document" {
                let words = words(value).into_iter().map(|word| format!("`{word}`"));
                words.for_each(|word| assert!(row[2].contains(&word), "{key} may be {word}"));
            }
            found += 1;
        }
        assert!(rows.is_empty(), "{heading}: the schema lacks {rows:?}");
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

/// The table of commands, and the help of each.
fn help_of_all() -> String {
    let (mut table, mut sections) = (Vec::new(), Vec::new());
    for command in commands_below("") {
        let arguments: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let help = requeue(&arguments).succeeded();
        let (purpose, _) = help.split_once("\n\n").unwrap();
        let (purpose, anchor) = (purpose.replace('\n', " "), command.replace(' ', "-"));
        table.push(format!("| [`requeue {command}`](#requeue-{anchor}) | {purpose} |\n"));
        let help: Vec<&str> = help.lines().map(str::trim_end).collect();
        let help = help.join("\n");
        sections.push(format!("\n## requeue {command}\n\n```text\n{help}\n```\n"));
    }
    let head = "## Commands\n\n| command | purpose |\n|---|---|\n";
    [head, &table.concat(), &sections.concat()].concat()
}

#[test]
fn the_cli_page_has_the_help_of_each_command() {
    const RENEWAL: &str = "REQUEUE_TEST_WRITE_CLI=1 cargo test -p requeue-cli --test cli cli_page";
    let page = text("docs/reference/cli.md");
    let (own, rest) = page.split_once(&format!("{RENEWAL} -->\n\n")).unwrap();
    let help = help_of_all();
    if std::env::var_os("REQUEUE_TEST_WRITE_CLI").is_some() {
        let page = format!("{own}{RENEWAL} -->\n\n{help}");
        fs::write(repository("docs/reference/cli.md"), page).unwrap();
    } else {
        assert_eq!(rest, help, "write it anew: {RENEWAL}");
    }
    assert!(help.matches("\n## requeue ").count() > 12, "{help}");

    let commands = commands_below("");
    for row in
        section(&page, "## Exit status").lines().filter(|line| line.starts_with("| ")).skip(1)
    {
        let cell = row.split(" | ").nth(1).unwrap();
        for command in cell.split(", ").filter(|command| *command != "all") {
            let words = command.trim_matches('`');
            let (name, options) = words.split_once(" --").unwrap_or((words, ""));
            assert!(commands.iter().any(|known| known == name), "there is no {name}");
            let help = requeue(&[&name.split(' ').collect::<Vec<_>>()[..], &["--help"]].concat());
            assert!(help.stdout.contains(&format!("--{options}")), "{name} has no --{options}");
        }
    }
}

#[test]
fn the_exit_statuses_of_the_page_are_those_of_the_commands() {
    let (good, bad) = (file("exit-good.json", "{}"), file("exit-bad.json", "{"));
    for (status, arguments) in [
        (0, &["--help"][..]),
        (0, &["--version"]),
        (0, &["check", &good]),
        (1, &["check", &bad]),
        (1, &["check", "none.json"]),
        (2, &["check"]),
        (2, &["check", "--none", &good]),
        (2, &["none"]),
        (2, &[]),
    ] {
        assert_eq!(requeue(arguments).status, status, "{arguments:?}");
    }
}
