//! The examples of each command: for its help, its manual page, and the error of a missing argument.

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory};
use unicode_width::UnicodeWidthStr;

use crate::{Arguments, environment};

/// A command's words, and an example of it that a shell can run.
const EXAMPLES: &str = r#"
: requeue demo
: requeue new orders
: requeue dlq list orders-dlq
dlq: requeue dlq list orders-dlq
dlq: requeue dlq redrive orders-dlq --class quota --dry-run
simulate: requeue simulate outage --outage 30m
new: requeue new orders
new: requeue new orders --http
new: requeue new orders --python
demo: requeue demo
demo: requeue demo --messages 1000 --json
demo: requeue demo --rate
invoke: requeue invoke events/every-class.json
invoke: requeue event '{"orderId": 7}' | requeue invoke - --policy critical
invoke: requeue invoke event.json --queue orders --target-url https://api.example.com/orders
invoke: requeue invoke event.json --target -- python3 -m awslambdaric app.handler
limits: requeue limits --function orders
limits: requeue limits set --limit 10 --for 2h --function orders
limits: requeue limits pause --key acme --function orders
work: requeue work --queue orders --target-url https://api.example.com/orders
work: requeue work --queue orders --target-url http://localhost:8080/orders --drain
dlq list: requeue dlq list orders-dlq
dlq list: requeue dlq list --source-queue orders --json
dlq peek: requeue dlq peek orders-dlq --class temporary --limit 1 --bodies
dlq peek: requeue dlq peek orders-dlq --detail timeout --since 2h
dlq export: requeue dlq export dead.jsonl orders-dlq
dlq export: requeue dlq export - orders-dlq --code outdated-fare | jq .body
dlq import: requeue dlq import dead.jsonl --queue orders --dry-run
dlq import: requeue dlq import dead.jsonl --queue orders --rate 20
dlq discard: requeue dlq discard dead.jsonl orders-dlq --class temporary --dry-run
dlq discard: requeue dlq discard dead.jsonl orders-dlq --code outdated-fare
dlq redrive: requeue dlq redrive orders-dlq --class quota --dry-run
dlq redrive: requeue dlq redrive orders-dlq --class quota --rate 50
dlq redrive: requeue dlq redrive orders-dlq --attribute tenant=acme --to acme
check: requeue check policy.json
check: requeue check '{"maxRetries": 3}' --json
check: requeue check --settings --function orders
status: requeue status
status: requeue status orders
status: requeue status --function orders --since 1h
doctor: requeue doctor orders
doctor: requeue doctor --function orders
doctor: requeue doctor --function orders --strict --json
schedule: requeue schedule --policy critical
schedule: requeue schedule policy.json --svg schedule.svg
simulate outage: requeue simulate outage --outage 30m
simulate outage: requeue simulate outage --policy policy.json --environments 20
simulate rate: requeue simulate rate --limit 20 --messages 10000 --svg rate.svg
simulate rate: requeue simulate rate --messages 20000 --tenants 100 --load 30
serve: requeue serve
serve: requeue serve --function target/debug/orders
serve: requeue serve -- cargo run
serve: requeue serve --target -- python3 -m awslambdaric app.handler
send: requeue send '{"orderId": 7}'
send: requeue send @order.json --queue arn:aws:sqs:eu-west-1:123456789012:orders
ui: requeue ui
ui: requeue ui orders-dlq --scope tenant
ui: requeue ui --source-queue orders --allow-redrive
event: requeue event '{"orderId": 7}' | requeue invoke -
generate: requeue generate bash > ~/.local/share/bash-completion/completions/requeue
generate: requeue generate man ~/.local/share/man/man1
"#;

pub(crate) fn first(command: &str) -> Option<&'static str> {
    of(command).next()
}

pub(crate) fn words_given() -> String {
    let mut command = Arguments::command();
    let mut words = Vec::new();
    for argument in environment::arguments().skip(1) {
        let Some(below) = command.find_subcommand(&argument) else { continue };
        command = below.clone();
        words.push(command.get_name().to_owned());
    }
    words.join(" ")
}

/// The command below another one that has this name or alias.
pub(crate) fn below(word: &str) -> Option<String> {
    let all = Arguments::command();
    all.get_subcommands().find_map(|above| {
        let found = above.find_subcommand(word)?;
        Some(format!("requeue {} {}", above.get_name(), found.get_name()))
    })
}

fn of(command: &str) -> impl Iterator<Item = &'static str> {
    let examples = EXAMPLES.lines().filter_map(|line| line.split_once(": "));
    examples.filter(move |(name, _)| *name == command).map(|(_, example)| example)
}

/// Puts the examples of each command before its other texts, or makes the help short for `-h`.
pub(crate) fn shown_in(command: Command, words: &str) -> Command {
    if words.is_empty() && environment::arguments().any(|word| word == "-h") {
        return short(command);
    }
    let lines: String = of(words).flat_map(|example| ["  ", example, "\n"]).collect();
    let command = command.mut_subcommands(|command| {
        let words = [words, command.get_name()].join(" ");
        shown_in(command, words.trim_start())
    });
    if lines.is_empty() {
        return command;
    }
    let rest = command.get_after_help().map(|rest| format!("\n{}", rest.ansi()));
    let text = format!("Examples:\n{lines}{}", rest.unwrap_or_default());
    command.after_help(StyledStr::from(text.trim_end().to_owned()))
}

/// Options that hardly anybody needs. `--help` has them.
const RARE: [&str; 5] = ["deaths", "price-per-million", "sample", "seed", "table-down"];

const COLUMNS: usize = 80;

/// For `-h`, on one screen: a line for each option but the rare ones, and no text below them.
fn short(command: Command) -> Command {
    let has_name = command.get_positionals().any(|arg| *arg.get_id() == "dead_letter_queue");
    let is_rare = |arg: &Arg| {
        let long = arg.get_long().unwrap_or_default();
        RARE.contains(&long) || (has_name && long == "queue")
    };
    let options = command.get_arguments().filter(|arg| !is_rare(arg));
    let options = options.map(|arg| "  -h, ".len() + width(arg));
    let names = command.get_subcommands().map(|below| "  ".len() + below.get_name().width());
    let [options, names] = [options.max(), names.max()]
        .map(|widest| COLUMNS.saturating_sub(widest.unwrap_or_default() + "  ".len()));
    let line = |text: Option<&StyledStr>, room| {
        StyledStr::from(clause(&text.map(ToString::to_string).unwrap_or_default(), room))
    };
    let command = command.mut_args(|arg| {
        let (help, is_rare) = (line(arg.get_help(), options), is_rare(&arg));
        let takes_values = arg.get_action().takes_values();
        let arg = arg.help(help).hide(is_rare).hide_default_value(takes_values);
        let arg = arg.hide_possible_values(takes_values);
        // A heading for one option alone.
        if arg.get_help_heading() == Some("Output") { arg.help_heading(None) } else { arg }
    });
    let command = command.mut_subcommands(|below| {
        let about = line(below.get_about(), names);
        short(below).about(about)
    });
    command.after_help("`--help` has all options, in full, and examples.")
}

/// The columns of an option with its value, as in `--queue <QUEUE>`, or of an argument.
fn width(arg: &Arg) -> usize {
    let names = arg.get_value_names().unwrap_or_default();
    let names = names.iter().map(|name| name.len() + " <>".len()).sum::<usize>();
    let value = if names == 0 { arg.get_id().as_str().len() + " <>".len() } else { names };
    let value = if arg.get_action().takes_values() { value + "...".len() } else { 0 };
    arg.get_long().map_or(0, |long| "--".len() + long.len()) + value
}

/// The first sentence, or as much of it as has room: its first clause, or else some words.
fn clause(text: &str, room: usize) -> String {
    let sentence = text.split(". ").next().unwrap_or_default().trim_end_matches('.');
    if sentence.width() <= room {
        return sentence.to_owned();
    }
    let fits = |at: &usize| sentence[..*at].width() < room;
    let clauses = [": ", "; ", " (", " ["].into_iter().filter_map(|end| sentence.find(end));
    if let Some(at) = clauses.filter(fits).min() {
        return sentence[..at].to_owned();
    }
    let words = sentence.match_indices(' ').map(|(at, _)| at);
    format!("{}…", &sentence[..words.filter(fits).max().unwrap_or_default()])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands of a shell's line, each as its words, without its redirection.
    fn commands(example: &str) -> Vec<Vec<String>> {
        let mut commands = vec![vec![String::new()]];
        let (mut is_quoted, mut is_redirected) = (false, false);
        for character in example.chars() {
            let command = commands.last_mut().expect("one");
            match character {
                '\'' => is_quoted = !is_quoted,
                ' ' if !is_quoted => command.push(String::new()),
                '|' if !is_quoted => {
                    is_redirected = false;
                    commands.push(vec![String::new()]);
                }
                '>' if !is_quoted => is_redirected = true,
                _ if is_redirected => {}
                other => command.last_mut().expect("one").push(other),
            }
        }
        for words in &mut commands {
            words.retain(|word| !word.is_empty());
        }
        commands
    }

    #[test]
    fn each_example_is_a_valid_command_of_its_name() {
        for line in EXAMPLES.trim().lines() {
            let (name, example) = line.split_once(": ").expect(line);
            let mut is_of_name = false;
            for words in commands(example) {
                if words[0] != "requeue" {
                    continue;
                }
                let parsed = Arguments::command().try_get_matches_from(&words);
                assert!(parsed.is_ok(), "{example}: {:?}", parsed.err());
                is_of_name |= words[1..].join(" ").starts_with(name);
            }
            assert!(is_of_name, "{example} is no example of {name}");
        }
    }

    #[test]
    fn a_word_for_a_command_below_another_names_it() {
        for (word, command) in [
            ("redrive", Some("requeue dlq redrive")),
            ("replay", Some("requeue dlq redrive")),
            ("delete", Some("requeue dlq discard")),
            ("purge", Some("requeue dlq discard")),
            ("outage", Some("requeue simulate outage")),
            ("orders", None),
        ] {
            assert_eq!(below(word).as_deref(), command, "{word}");
        }
    }

    #[test]
    fn a_queue_is_named_by_its_place_or_by_an_option() {
        for (line, is_valid) in [
            ("dlq list orders-dlq", true),
            ("dlq list --queue orders-dlq", true),
            ("dlq list --source-queue orders", true),
            ("dlq list", false),
            ("dlq list orders-dlq --queue orders-dlq", false),
            ("dlq list orders-dlq --source-queue orders", false),
            ("dlq export dead.jsonl orders-dlq", true),
            ("dlq export dead.jsonl --queue orders-dlq", true),
            ("dlq export dead.jsonl", false),
            ("dlq purge dead.jsonl orders-dlq", true),
            ("dlq replay orders-dlq", true),
            ("doctor orders", true),
            ("doctor --queue orders", true),
            ("doctor orders --function orders", false),
            ("doctor", false),
            ("ui orders-dlq", true),
            ("ui", true),
        ] {
            let words = ["requeue"].into_iter().chain(line.split(' '));
            let parsed = Arguments::command().try_get_matches_from(words);
            assert_eq!(parsed.is_ok(), is_valid, "{line}: {:?}", parsed.err());
        }
    }

    #[test]
    fn each_short_help_fits_on_one_screen() {
        fn check(mut command: Command, large: &mut Vec<String>) {
            let help = command.render_help().to_string();
            let widest = help.lines().map(UnicodeWidthStr::width).max().unwrap_or_default();
            assert!(RARE.iter().all(|rare| !help.contains(&format!("--{rare} "))), "{help}");
            if help.lines().count() > 40 || widest > COLUMNS {
                large.push(help);
            }
            command.get_subcommands().for_each(|below| check(below.clone(), large));
        }
        let mut all = short(Arguments::command()).term_width(COLUMNS);
        all.build();
        let mut large = Vec::new();
        check(all, &mut large);
        assert!(large.is_empty(), "{}", large.join("\n\n"));
    }

    #[test]
    fn a_help_ends_with_a_clause_that_has_room() {
        for (text, room, line) in [
            ("The queue: its name. Or its URL.", 30, "The queue: its name"),
            ("The queue: its name, URL or ARN, or both", 30, "The queue"),
            ("Only messages dead-lettered for this reason", 30, "Only messages dead-lettered…"),
            ("Short.", 30, "Short"),
        ] {
            assert_eq!(clause(text, room), line);
        }
    }

    #[test]
    fn each_command_has_an_example() {
        fn check(command: &Command, words: &str) {
            let below: Vec<_> = command.get_subcommands().collect();
            assert!(!below.is_empty() || of(words).next().is_some(), "{words} has no example");
            for command in below {
                check(command, [words, command.get_name()].join(" ").trim_start());
            }
        }
        check(&Arguments::command(), "");
    }
}
