//! Prints a plan or the steps, as text and as JSON. Judges nothing.

use std::fmt::Write;
use std::io::stdout;

use requeue::printable;
use serde_json::{Value, json};

use super::super::diagnosis::Level;
use super::super::show::{below, finding};
use super::message::TestMessage;
use super::plan::Plan;
use super::step::Step;
use crate::table::{columns, hanging, wrapped};

pub(crate) fn plan(plan: &Plan) -> String {
    let [source, target] = [plan.source.name(), plan.target.as_str()].map(printable::line);
    let mut text = format!("\nfirst hour: five messages to {source}; the target is {target}\n");
    let width = TestMessage::ALL.map(|message| message.id().len()).into_iter().max();
    let width = width.unwrap_or_default();
    let terminal = columns(stdout());
    for message in TestMessage::ALL {
        let expected = format!("expected: {}", message.expected());
        for (id, line) in [(message.id(), message.responses()), ("", &expected)] {
            text += &(hanging(&format!("  {id:<width$}  "), line, terminal.unwrap_or(usize::MAX))
                + "\n");
        }
    }
    let arrival = printable::line(&plan.arrival()).into_owned();
    let _ = writeln!(text, "The dead letter should be {arrival}. It stays there.");
    let _ = writeln!(text, "Nothing was sent. To send the messages, add --send-test-messages.");
    wrapped(&text, terminal) + "\n"
}

pub(crate) fn plan_json(plan: &Plan) -> Value {
    let messages = TestMessage::ALL.map(|message| {
        json!({
            "id": message.id(),
            "responses": message.responses(),
            "expected": message.expected(),
        })
    });
    json!({
        "sent": false,
        "queue": plan.source.name(),
        "target": plan.target,
        "messages": messages,
        "deadLetter": plan.arrival(),
    })
}

/// A line for each step; the expectation below it, and the meaning of a difference.
pub(crate) fn steps(steps: &[Step]) -> String {
    let mut text = String::from("\nfirst hour\n");
    let width = steps.iter().map(|step| step.id.len()).max().unwrap_or_default();
    for Step { id, level, expected, seen, meaning, remedies } in steps {
        text += &finding(*level, &format!("{id:<width$}"), seen);
        let expected = format!("expected: {expected}");
        let reasons = [&*expected, meaning].into_iter().filter(|reason| !reason.is_empty());
        text += &below(reasons, remedies);
    }
    let counted = Level::ALL.map(|level| {
        let count = steps.iter().filter(|step| step.level == level).count();
        format!("{count} {}", level.as_str())
    });
    let _ = writeln!(text, "\n{}", counted.join(", "));
    text
}
