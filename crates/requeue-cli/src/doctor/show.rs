//! Prints findings as text and as JSON. Judges nothing.

use std::fmt::Write;

use requeue::printable;
use serde_json::{Value, json};

use super::diagnosis::{Finding, Level};
use super::facts::{Deployment, Function};

/// A line for each finding; if it is not ok, its reason and remedies follow.
pub(crate) fn text(examined: &[(Deployment, Vec<Finding>)]) -> String {
    let mut text = String::new();
    for (deployment, findings) in examined {
        let _ = writeln!(text, "{}", printable::line(&subject(deployment)));
        let several = deployment.paths.len() > 1;
        let width = findings.iter().map(|finding| finding.id.len()).max().unwrap_or_default();
        for Finding { id, why, queue, diagnosis } in findings {
            let (colour, level) = (colour(diagnosis.level), diagnosis.level.as_str());
            let queue = queue
                .as_ref()
                .filter(|_| several)
                .map(|queue| format!("{queue}: "))
                .unwrap_or_default();
            // Names and values come from AWS or from an emulator, so they are escaped.
            let found = format!("{queue}{}", diagnosis.found);
            let _ = writeln!(
                text,
                "{colour}{level:<7}\x1b[0m  {id:<width$}  {}",
                printable::line(&found)
            );
            if diagnosis.level == Level::Ok {
                continue;
            }
            let _ = writeln!(text, "         {why}");
            for remedy in &diagnosis.remedies {
                let _ = writeln!(text, "         > {}", printable::line(remedy));
            }
        }
        let _ = writeln!(text);
    }
    let counted = Level::ALL.map(|level| format!("{} {}", count(examined, level), level.as_str()));
    let _ = writeln!(text, "{}", counted.join(", "));
    text
}

fn subject(deployment: &Deployment) -> String {
    let names: Vec<&str> = deployment.paths.iter().map(|path| path.source.arn.name()).collect();
    match &deployment.function {
        Some(function) => format!("function {} in {}", function.qualified(), deployment.region),
        None => format!("queue {} in {}", names.join(", "), deployment.region),
    }
}

/// The colour's escape sequence. `anstream` removes it where no colour is wanted.
pub(crate) fn colour(level: Level) -> &'static str {
    match level {
        Level::Ok => "\x1b[32m",
        Level::Unknown => "\x1b[36m",
        Level::Warning => "\x1b[33m",
        Level::Danger => "\x1b[1;31m",
    }
}

pub(crate) fn json(examined: &[(Deployment, Vec<Finding>)]) -> Value {
    let deployments = examined.iter().map(|(deployment, findings)| {
        let findings = findings.iter().map(|Finding { id, why, queue, diagnosis }| {
            json!({
                "id": id,
                "level": diagnosis.level.as_str(),
                "queue": queue,
                "found": diagnosis.found,
                "why": why,
                "remedies": diagnosis.remedies,
            })
        });
        json!({
            "function": deployment.function.as_ref().map(Function::qualified),
            "region": deployment.region,
            "findings": findings.collect::<Vec<_>>(),
        })
    });
    let summary =
        Level::ALL.map(|level| (level.as_str().to_owned(), json!(count(examined, level))));
    json!({
        "deployments": deployments.collect::<Vec<_>>(),
        "summary": Value::Object(summary.into_iter().collect()),
    })
}

fn count(examined: &[(Deployment, Vec<Finding>)], level: Level) -> usize {
    examined
        .iter()
        .flat_map(|(_, findings)| findings)
        .filter(|finding| finding.diagnosis.level == level)
        .count()
}

#[cfg(test)]
mod tests {
    use super::super::diagnosis::Diagnosis;
    use super::super::facts::FunctionSettings;
    use super::*;

    #[test]
    fn no_value_of_a_deployment_controls_a_terminal() {
        let hostile = "x\n\u{1b}[2J\u{9b}\u{202e}y";
        let diagnosis = Diagnosis::danger(hostile, [hostile]);
        let finding = Finding { id: "id", why: "why", queue: Some(hostile.to_owned()), diagnosis };
        let region = hostile.to_owned();
        let settings = FunctionSettings::Valid(Box::default());
        let (paths, queue_config) = (Vec::new(), requeue::QueueConfig::default());
        let deployment = Deployment {
            region,
            function: None,
            settings,
            queue_config,
            paths,
            table: None,
            unlisted: None,
            alarms: Ok(Vec::new()),
        };
        let examined = [(deployment, vec![finding])];
        let shown = text(&examined).replace(colour(Level::Danger), "").replace("\x1b[0m", "");
        assert!(shown.chars().all(|c| printable::is_printable(c) || c == '\n'), "{shown:?}");
        assert_eq!(shown.lines().count(), 6, "no line is made by a value: {shown}");
    }
}
