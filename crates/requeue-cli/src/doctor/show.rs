//! Prints findings as text and as JSON. Judges nothing.

use std::collections::HashSet;
use std::fmt::Write;
use std::io::stdout;

use requeue::printable;
use serde_json::{Value, json};

use super::diagnosis::{Finding, Level, Remedy};
use super::facts::{Deployment, Function};
use crate::table::{self, is_command};

pub(crate) type Examined = [(Deployment, Vec<Finding>)];

pub(crate) type Counts = [(Level, usize); 4];

const COMMAND: &str = "           ";
const COMMENT: &str = "           # ";

pub(crate) fn counts(levels: &(impl Iterator<Item = Level> + Clone)) -> Counts {
    Level::ALL.map(|level| (level, levels.clone().filter(|other| *other == level).count()))
}

/// A line for each finding; if it is not ok, its reason and remedies follow: the same words only once.
pub(crate) fn text(examined: &Examined, counts: Counts) -> String {
    let (mut text, mut told) = (String::new(), HashSet::new());
    for (deployment, findings) in examined {
        let _ = writeln!(text, "{}", printable::line(&subject(deployment)));
        let width = findings.iter().map(|finding| finding.id.len()).max().unwrap_or_default();
        let several = deployment.paths.len() > 1;
        for Finding { id, why, queue, diagnosis } in findings {
            let queue = queue.as_ref().filter(|_| several);
            let queue = queue.map(|queue| format!("{queue}: ")).unwrap_or_default();
            let found = format!("{queue}{}", diagnosis.found);
            text += &finding(diagnosis.level, &format!("{id:<width$}"), &found);
            if diagnosis.level != Level::Ok {
                let reason = told.insert((*why).to_owned()).then_some(*why);
                let mut is_new = |one: &&Remedy| one.has_command() || told.insert(one.to_string());
                let remedies: Vec<Remedy> =
                    diagnosis.remedies.iter().filter(&mut is_new).cloned().collect();
                text += &below(reason, &remedies);
            }
        }
        let _ = writeln!(text);
    }
    text + &counted(counts)
}

pub(crate) fn counted(counts: Counts) -> String {
    counts.map(|(level, count)| format!("{count} {}", level.shown().0)).join(", ") + "\n"
}

/// A line, which continues below if it is too long.
pub(crate) fn finding(level: Level, id: &str, found: &str) -> String {
    let (level, colour) = level.shown();
    let columns = table::columns(stdout()).unwrap_or(usize::MAX);
    // Names and values come from AWS or from an emulator, so they are escaped.
    let line = table::hanging(&format!("{level:<7}  {id}  "), &printable::line(found), columns);
    // The colour has no width, so it comes last.
    format!("{colour}{level}\x1b[0m{}\n", &line[level.len()..])
}

pub(crate) fn below<'t>(reasons: impl IntoIterator<Item = &'t str>, remedies: &[Remedy]) -> String {
    let columns = table::columns(stdout()).unwrap_or(usize::MAX);
    let told = |reason| table::hanging("         ", &printable::line(reason), columns) + "\n";
    let steps = remedies.iter().map(|remedy| steps(remedy, columns));
    reasons.into_iter().map(told).chain(steps).collect()
}

/// Lines for a shell, which can all be pasted: commands, and all else as comments. A command in a
/// comment can be pasted without the marks.
fn steps(remedy: &Remedy, columns: usize) -> String {
    let mut text = String::new();
    for step in remedy.lines() {
        let head = if is_command(step) { COMMAND } else { COMMENT };
        let columns = columns.saturating_sub(head.len());
        let lines = table::hanging_step(step.trim_start_matches("# "), columns);
        text.extend(lines.lines().map(|line| format!("{head}{line}\n")));
    }
    text
}

fn subject(deployment: &Deployment) -> String {
    let names: Vec<&str> = deployment.paths.iter().map(|path| path.source.arn.name()).collect();
    let is_known = deployment.paths.iter().all(|path| path.source.consumers.is_ok());
    let whose = if is_known && deployment.unlisted.is_none() {
        ", which invokes no function: checked as a worker's (`requeue work`)"
    } else {
        ""
    };
    match &deployment.function {
        Some(function) => format!("function {} in {}", function.qualified(), deployment.region),
        None => format!("queue {} in {}{whose}", names.join(", "), deployment.region),
    }
}

pub(crate) fn json(examined: &Examined, counts: Counts) -> Value {
    let deployments = examined.iter().map(|(deployment, findings)| {
        let function = deployment.function.as_ref().map(Function::qualified);
        json!({ "function": function, "region": deployment.region, "findings": findings })
    });
    let summary = counts.map(|(level, count)| (level.shown().0.to_owned(), json!(count)));
    let summary = Value::Object(summary.into_iter().collect());
    json!({ "deployments": deployments.collect::<Vec<_>>(), "summary": summary })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use super::super::checks::tests::changed;
    use super::super::checks::{examine, in_order};
    use super::super::diagnosis::Diagnosis;
    use super::super::facts::FunctionSettings;
    use super::*;

    #[test]
    fn the_same_words_are_told_once_and_each_command_with_its_finding() {
        let finding = |queue: &str| {
            let remedies = ["in words", "aws sqs a-command"].map(Remedy::from).to_vec();
            let diagnosis =
                Diagnosis { level: Level::Danger, found: "it is so".to_owned(), remedies };
            Finding { id: "id", why: "the reason", queue: Some(queue.to_owned()), diagnosis }
        };
        let deployment = crate::doctor::checks::tests::good();
        let examined = [(deployment, vec![finding("a"), finding("b")])];
        let shown = text(&examined, counts(&[Level::Danger].into_iter()));
        let count = |words: &str| shown.matches(words).count();
        let counts = ["it is so", "the reason", "in words", "aws sqs a-command"].map(count);
        assert_eq!(counts, [2, 1, 1, 2], "{shown}");
    }

    #[test]
    fn each_line_of_a_comment_is_one() {
        let remedy = Remedy::from("aws sqs set-queue-attributes --queue-url URL --attributes A=1");
        let told = "           # or:\n           # aws sqs set-queue-attributes \\\n           #   \
                    --queue-url URL \\\n           #   --attributes A=1\n";
        assert_eq!(steps(&remedy.commented("or:"), 43), told);
        let lines = steps(&"# give the function's role a longer permission".into(), 30);
        assert!(lines.lines().count() > 2, "{lines}");
        assert!(lines.lines().all(|line| line.starts_with(COMMENT)), "{lines}");
    }

    #[test]
    fn a_shell_can_read_each_remedy() {
        let mut blocks = BTreeSet::new();
        for deployment in changed() {
            let mut findings = examine(&deployment);
            in_order(&deployment, &mut findings);
            for remedy in findings.into_iter().flat_map(|finding| finding.diagnosis.remedies) {
                blocks.extend([80, usize::MAX].map(|columns| steps(&remedy, columns)));
            }
        }
        assert!(blocks.len() > 100, "{}", blocks.len());
        for block in blocks {
            assert!(!block.contains("or: or") && !block.contains('\u{fffd}'), "{block}");
            let whole = block.replace(" \\\n", "");
            let mut of_variables =
                whole.lines().filter(|it| it.contains("-function-configuration"));
            assert!(of_variables.all(|it| it.contains("--query")), "shows variables: {block}");
            let mut goes_on = false;
            let lines = block.lines().map(|line| {
                let line = line.strip_prefix(COMMAND).expect("a line of a remedy");
                let (is_comment, first) = (line.starts_with("# "), line.split(' ').next());
                let programs = ["aws", "requeue", "install", "rm"].map(Some);
                assert!(goes_on || is_comment || programs.contains(&first), "{block}");
                goes_on = !is_comment && line.ends_with(" \\");
                line
            });
            let script = lines.collect::<Vec<_>>().join("\n");
            let read = Command::new("bash").args(["-n", "-c", &script]).output().expect("bash");
            assert!(read.status.success(), "{block}: {read:?}");
        }
    }

    #[test]
    fn the_first_line_says_that_a_queue_invokes_no_function() {
        let mut deployment = crate::doctor::checks::tests::good();
        assert_eq!(subject(&deployment), "function orders in eu-west-1");
        deployment.function = None;
        let shown = text(&[(deployment, Vec::new())], counts(&[].into_iter()));
        let first = "queue orders in eu-west-1, which invokes no function: checked as a worker's";
        assert!(shown.starts_with(first), "{shown}");
    }

    #[test]
    fn no_value_of_a_deployment_controls_a_terminal() {
        let hostile = "x\n\u{1b}[2J\u{9b}\u{202e}y";
        let diagnosis = Diagnosis {
            level: Level::Danger,
            found: hostile.to_owned(),
            remedies: vec![hostile.into()],
        };
        let finding = Finding { id: "id", why: "why", queue: Some(hostile.to_owned()), diagnosis };
        let region = hostile.to_owned();
        let settings = Ok(FunctionSettings::default());
        let paths = Vec::new();
        let deployment = Deployment {
            region,
            function: None,
            settings,
            sends: Ok(None),
            paths,
            table: None,
            target: None,
            unlisted: None,
            alarms: Ok(Vec::new()),
        };
        let examined = [(deployment, vec![finding])];
        let shown = text(&examined, counts(&[Level::Danger].into_iter()));
        let shown = shown.replace(Level::Danger.shown().1, "").replace("\x1b[0m", "");
        assert!(shown.chars().all(|c| printable::is_printable(c) || c == '\n'), "{shown:?}");
        assert_eq!(shown.lines().count(), 6, "no line is made by a value: {shown}");
    }
}
