//! The status as tables of at most 80 columns, and as JSON.

use std::time::{Duration, SystemTime};

use requeue::queue::Description;
use serde_json::{Value, json};

use super::log::{Circuit, Failure};
use super::{Age, Depth, FunctionStatus, METRICS, Status};
use crate::observe::epoch_millis;
use crate::table::Head::{Breakable, Number, Text};
use crate::table::{Rows, clock_time, counted, moment, span, thousands};

const SHOWN: usize = 5;
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
            parts.push(function.facts(self.now, self.since));
            parts.extend(function.failures());
        }
        let unknown = self.unknown.iter().map(|text| format!("unknown: {text}"));
        let notes = self.notes().into_iter().map(|text| format!("note: {text}"));
        let rest = unknown.chain(notes).collect::<Vec<_>>().join("\n");
        parts.extend(Some(rest).filter(|text| !text.is_empty()));
        parts.join("\n\n") + "\n"
    }

    /// What may put off the way of messages into an apparently empty dead-letter queue.
    fn notes(&self) -> Vec<String> {
        self.queues.windows(2).filter_map(|pair| self.note(&pair[0], &pair[1])).collect()
    }

    fn note(&self, source: &Depth, dead: &Depth) -> Option<String> {
        let (name, dead_letters) = (source.queue.name(), dead.queue.name());
        let is_pair = dead.is_of_dead_letters && !source.is_of_dead_letters;
        let count = source.counts.as_ref().map(|counts| counts.messages);
        let count = count.filter(|count| is_pair && *count > 0)?;
        let is_of = |function: &&FunctionStatus| function.mappings.iter().any(|(to, _)| to == name);
        let of: Vec<_> = self.functions.iter().filter(is_of).collect();
        let is_open = |function: &&&FunctionStatus| {
            let log = function.log.as_ref();
            log.is_some_and(|log| matches!(log.circuit(), Circuit::Open { .. }))
        };
        let why = match of.iter().find(is_open) {
            Some(function) => {
                format!("the circuit of {} is open, so that takes longer", function.name)
            }
            None if of.is_empty() => {
                "while a circuit is open, a worker receives only messages that may probe, and its \
                 output, and its page with --ui, say until when"
                    .to_owned()
            }
            None => return None,
        };
        Some(format!(
            "of {} in {name}, a dead-lettered one reaches {dead_letters} only when it is received \
             again, unless REQUEUE_DEAD_LETTER is direct; {why}; look again with `requeue dlq list \
             {dead_letters}`",
            counted(count, "message")
        ))
    }

    pub(super) fn json(&self) -> Value {
        let queue = |depth: &Depth| {
            let count = |of: fn(&Description) -> u64| depth.counts.as_ref().map(of);
            json!({
                "queue": depth.queue.to_string(),
                "deadLetters": depth.is_of_dead_letters,
                "visible": count(visible),
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
            "functions": self.functions.iter().map(|one| one.json(self.now)).collect::<Vec<_>>(),
            "unknown": self.unknown,
            "notes": self.notes(),
        })
    }
}

fn visible(counts: &Description) -> u64 {
    counts.messages.saturating_sub(counts.in_flight + counts.delayed)
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
        let count = |of: fn(&Description) -> u64| {
            counts.as_ref().map_or_else(|| "unknown".to_owned(), |counts| thousands(of(counts)))
        };
        let oldest = match oldest {
            Age::Unknown => "unknown".to_owned(),
            Age::Empty => "none".to_owned(),
            Age::Of(age) => span(*age),
        };
        rows.add([
            queue.name().to_owned(),
            count(visible),
            count(|counts| counts.in_flight),
            count(|counts| counts.delayed),
            oldest,
        ]);
    }
    rows.text()
}

impl FunctionStatus {
    fn facts(&self, now: SystemTime, since: Duration) -> String {
        let mut rows = Rows::under([Text("function"), Breakable("")]);
        let mut row = |name: &str, text: String| rows.add([name.to_owned(), text]);
        row("name", self.name.clone());
        row("state", self.state.clone());
        for (queue, state) in &self.mappings {
            row("mapping", format!("{queue}: {state}"));
        }
        row("circuit", self.circuit(now));
        let counts = self.counts.map(|counts| {
            let each = METRICS.iter().zip(counts);
            let each = each.map(|((word, _), count)| format!("{} {word}", thousands(count)));
            each.collect::<Vec<_>>().join(", ")
        });
        row(&format!("last {}", span(since)), counts.unwrap_or_else(|| "unknown".to_owned()));
        rows.text()
    }

    fn circuit(&self, now: SystemTime) -> String {
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
                let due = log.next_due(epoch_millis(now));
                let due = due.map(|due| format!("; a deferred message is due at {}", at(due)));
                let due = due.unwrap_or_default();
                format!("open since {} in {places}{cause}{due}{scopes}", at(since))
            }
        }
    }

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
        for (Failure { result, class, reason }, count, at) in failures.iter().take(SHOWN) {
            let (at, count) = (clock_time(time(*at)), thousands(*count));
            rows.add([at, count, (*result).to_owned(), (*class).to_owned(), reason.clone()]);
        }
        let more = failures.len().saturating_sub(SHOWN);
        let more = (more > 0).then(|| {
            let rest = failures[SHOWN..].iter().map(|(_, count, _)| count).sum::<u64>();
            format!(
                "\n{} more with {}",
                counted(rest, "message"),
                counted(more as u64, "other failure")
            )
        });
        Some(rows.text() + &more.unwrap_or_default())
    }

    fn json(&self, now: SystemTime) -> Value {
        let circuit = self.log.as_ref().map(|log| match log.circuit() {
            Circuit::NotOpened => json!({ "state": "not-opened" }),
            Circuit::Closed { at } => json!({ "state": "closed", "since": moment(time(at)) }),
            Circuit::Open { since, environments, cause } => json!({
                "state": "open",
                "since": moment(time(since)),
                "environments": environments,
                "shared": environments.is_none(),
                "cause": cause,
                "deferredUntil": log.next_due(epoch_millis(now)).and_then(|due| moment(time(due))),
            }),
        });
        let failures = self.log.as_ref().map(|log| {
            let failures = log.failures().into_iter().take(IN_JSON).map(|(one, count, at)| {
                json!({
                    "at": moment(time(at)),
                    "messages": count,
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
