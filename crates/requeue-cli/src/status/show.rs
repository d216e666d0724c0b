//! The status as tables of at most 80 columns, and as JSON.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::log::Circuit;
use super::{Age, Depth, FunctionStatus, METRICS, Status};
use crate::table::Head::{Breakable, Number, Text};
use crate::table::{Rows, clock_time, counted, moment, span, thousands};

/// Groups of failures in the tables.
const SHOWN: usize = 5;
/// Groups in JSON.
const IN_JSON: usize = 100;

fn time(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

impl Status {
    pub(super) fn text(&self) -> String {
        let mut parts = Vec::new();
        if !self.queues.is_empty() {
            parts.push(queues(&self.queues));
        }
        for function in &self.functions {
            parts.push(function.facts(self.since));
            parts.extend(function.failures());
        }
        let unknown = self.unknown.iter().map(|text| format!("unknown: {text}"));
        let unknown = unknown.collect::<Vec<_>>().join("\n");
        parts.extend(Some(unknown).filter(|text| !text.is_empty()));
        parts.join("\n\n") + "\n"
    }

    pub(super) fn json(&self) -> Value {
        let queue = |depth: &Depth| {
            let count = |of: fn(&super::Counts) -> u64| depth.counts.as_ref().map(of);
            json!({
                "queue": depth.queue.to_string(),
                "deadLetters": depth.is_of_dead_letters,
                "visible": count(|counts| counts.visible),
                "inFlight": count(|counts| counts.in_flight),
                "delayed": count(|counts| counts.delayed),
                "oldestSeconds": match depth.oldest {
                    Age::Of(age) => Some(age.as_secs()),
                    Age::Unknown | Age::Empty => None,
                },
            })
        };
        json!({
            "at": moment(self.now),
            "sinceSeconds": self.since.as_secs(),
            "queues": self.queues.iter().map(queue).collect::<Vec<_>>(),
            "functions": self.functions.iter().map(FunctionStatus::json).collect::<Vec<_>>(),
            "unknown": self.unknown,
        })
    }
}

fn queues(depths: &[Depth]) -> String {
    let mut rows = Rows::under([
        Text("queue"),
        Number("visible"),
        Number("in flight"),
        Number("delayed"),
        Number("oldest"),
    ]);
    for Depth { queue, counts, oldest, .. } in depths {
        let count = |of: fn(&super::Counts) -> u64| {
            counts.as_ref().map_or_else(|| "unknown".to_owned(), |counts| thousands(of(counts)))
        };
        let oldest = match oldest {
            Age::Unknown => "unknown".to_owned(),
            Age::Empty => "none".to_owned(),
            Age::Of(age) => span(*age),
        };
        rows.add([
            queue.name().to_owned(),
            count(|counts| counts.visible),
            count(|counts| counts.in_flight),
            count(|counts| counts.delayed),
            oldest,
        ]);
    }
    rows.text()
}

impl FunctionStatus {
    fn facts(&self, since: Duration) -> String {
        let mut rows = Rows::under([Text("function"), Breakable("")]);
        let mut row = |name: &str, text: String| rows.add([name.to_owned(), text]);
        row("name", self.name.clone());
        row("state", self.state.clone());
        for (queue, state) in &self.mappings {
            row("mapping", format!("{queue}: {state}"));
        }
        row("circuit", self.circuit());
        let counts = self.counts.map(|counts| {
            let each = METRICS.iter().zip(counts);
            let each = each.map(|((word, _), count)| format!("{} {word}", thousands(count)));
            each.collect::<Vec<_>>().join(", ")
        });
        row(&format!("last {}", span(since)), counts.unwrap_or_else(|| "unknown".to_owned()));
        rows.text()
    }

    fn circuit(&self) -> String {
        let Some(log) = &self.log else { return "unknown".to_owned() };
        let at = |millis| format!("{} UTC", clock_time(time(millis)));
        let scopes = if self.has_scopes { "; the log does not name its scope" } else { "" };
        match log.circuit() {
            Circuit::NotOpened => format!("not opened in the last {}", span(self.log_since)),
            Circuit::Closed { at: closed } => format!("closed at {}", at(closed)),
            Circuit::Open { since, environments, cause } => {
                let places = environments.map_or_else(
                    || "all execution environments".to_owned(),
                    |count| counted(count as u64, "execution environment"),
                );
                let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
                format!("open since {} in {places}{cause}{scopes}", at(since))
            }
        }
    }

    /// The last failures, if the log tells of some.
    fn failures(&self) -> Option<String> {
        let failures = self.log.as_ref()?.failures();
        if failures.is_empty() {
            return Some(format!("no failure in the last {}", span(self.log_since)));
        }
        let mut rows = Rows::under([
            Text("last, UTC"),
            Number("messages"),
            Text("result"),
            Text("class"),
            Breakable("failure"),
        ]);
        for one in failures.iter().take(SHOWN) {
            rows.add([
                clock_time(time(one.at)),
                thousands(one.count),
                one.result.to_owned(),
                one.class.to_owned(),
                one.reason.clone(),
            ]);
        }
        let more = failures.len().saturating_sub(SHOWN);
        let more = (more > 0).then(|| {
            let rest = failures[SHOWN..].iter().map(|one| one.count).sum::<u64>();
            format!(
                "\n{} more with {}",
                counted(rest, "message"),
                counted(more as u64, "other failure")
            )
        });
        Some(rows.text() + &more.unwrap_or_default())
    }

    fn json(&self) -> Value {
        let circuit = self.log.as_ref().map(|log| match log.circuit() {
            Circuit::NotOpened => json!({ "state": "not-opened" }),
            Circuit::Closed { at } => json!({ "state": "closed", "since": moment(time(at)) }),
            Circuit::Open { since, environments, cause } => json!({
                "state": "open",
                "since": moment(time(since)),
                "environments": environments,
                "shared": environments.is_none(),
                "cause": cause,
            }),
        });
        let failures = self.log.as_ref().map(|log| {
            let failures = log.failures().into_iter().take(IN_JSON).map(|one| {
                json!({
                    "at": moment(time(one.at)),
                    "messages": one.count,
                    "result": one.result,
                    "class": one.class,
                    "failure": one.reason,
                })
            });
            failures.collect::<Vec<_>>()
        });
        let counts = self.counts.map(|counts| {
            let each = METRICS.iter().zip(counts);
            let each = each.map(|((_, metric), count)| ((*metric).to_owned(), count.into()));
            Value::Object(each.collect())
        });
        let mappings =
            self.mappings.iter().map(|(queue, state)| json!({ "queue": queue, "state": state }));
        json!({
            "function": self.name,
            "state": self.state,
            "mappings": mappings.collect::<Vec<_>>(),
            "circuit": circuit,
            "counts": counts,
            "logSinceSeconds": self.log_since.as_secs(),
            "failures": failures,
        })
    }
}
