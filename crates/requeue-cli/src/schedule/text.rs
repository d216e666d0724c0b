//! The schedule as tables on a terminal.

use std::time::Duration;

use requeue::Strategy;

use super::timeline::{
    Batching, DeadLettering, JitterRange, Requests, Timeline, TimelineEnd, TimelineRetry,
};
use super::{ClassSchedule, QueueModel, Schedule};
use crate::document::{self, retries};
use crate::table::Head::{Number, Text};
use crate::table::{Rows, decimal, span, thousands};

const COSTS: &str =
    "Requests for one message that never succeeds, until it is in the dead-letter queue:";
/// This many rows with the same delays become one.
const PLATEAU: usize = 4;
/// The greatest one of a redrive policy. Source: SQS API reference, `SetQueueAttributes`.
const MAX_RECEIVE_COUNT: u32 = 1_000;

pub(crate) fn of(schedule: &Schedule) -> String {
    let mut lines = Vec::new();
    for class in &schedule.classes {
        lines.push(head(schedule, class));
        if class.is_retried() {
            lines.push(course(&class.timelines));
        }
        lines.extend([end(class, &schedule.queue), String::new()]);
    }
    lines.extend([COSTS.to_owned(), costs(schedule), premises(schedule), String::new()]);
    lines.join("\n")
}

fn head(schedule: &Schedule, of: &ClassSchedule) -> String {
    let Some(class) = schedule.policy.class(of.class) else {
        return format!("{} in the policy {}: never retried", of.class, schedule.name);
    };
    format!(
        "{} in the policy {}: {} backoff, {} jitter, at most {} and {}",
        of.class,
        schedule.name,
        class.backoff.as_str(),
        class.jitter,
        retries(document::max_retries(&schedule.policy, of.class)),
        span(class.total_timeout),
    )
}

fn course(timelines: &JitterRange<Timeline>) -> String {
    let mut rows = Rows::under([
        Text("retry"),
        Number("wait: min"),
        Number("median"),
        Number("max"),
        Number("since the first receive: min"),
        Number("median"),
        Number("max"),
    ]);
    let longest = timelines.most(|timeline| timeline.retries.len());
    let delays =
        |at: usize| timelines.map(|timeline| timeline.retries.get(at).map(|retry| retry.delay));
    let mut at = 0;
    while at < longest {
        let run = (at..longest).take_while(|next| delays(*next) == delays(at)).count();
        rows.add(row(timelines, at, at));
        if run >= PLATEAU {
            rows.add(row(timelines, at + 1, at + run - 1));
            at += run;
        } else {
            at += 1;
        }
    }
    rows.text()
}

/// A range of retries with the same delays; the ages are those of the last one.
fn row(timelines: &JitterRange<Timeline>, from: usize, to: usize) -> Vec<String> {
    let number =
        if from == to { (from + 1).to_string() } else { format!("{} … {}", from + 1, to + 1) };
    let cells = |value: fn(&TimelineRetry) -> String| {
        timelines
            .each()
            .map(|(_, timeline)| timeline.retries.get(to).map_or_else(|| "–".to_owned(), value))
    };
    let delays = cells(|retry| wait(retry.delay));
    let ages = cells(|retry| span(retry.age));
    [number].into_iter().chain(delays).chain(ages).collect()
}

/// Seconds as in the policy, while they are easy to read.
fn wait(delay: Duration) -> String {
    if delay < Duration::from_hours(1) { format!("{} s", delay.as_secs()) } else { span(delay) }
}

/// The reason, the time and the destination: one line, or one for each draw if they end
/// differently. The last line has the `maxReceiveCount` that the policy needs.
fn end(of: &ClassSchedule, queue: &QueueModel) -> String {
    let mut lines = Vec::new();
    let ends = of.timelines.map(|timeline| (timeline.end.as_str(), timeline.count()));
    if ends.min == ends.median && ends.median == ends.max {
        let JitterRange { min, median, max } =
            of.timelines.map(Timeline::age).map(|age| span(*age));
        let when = match ends.median.1 {
            0 => "at the first failure".to_owned(),
            count if min == max => format!("after {}: {median}", retries(count)),
            count => format!("after {}: {min} to {max}, median {median}", retries(count)),
        };
        let later = arrival(&of.dead_lettering.min, &of.dead_lettering.max);
        lines.push(format!(
            "{} {when}; in the dead-letter queue {later}",
            end_words(of.timelines.median.end)
        ));
    } else {
        let each = of.timelines.with(&of.dead_lettering, |timeline, own| {
            let (count, age) = (retries(timeline.count()), span(timeline.age()));
            format!(
                "{} after {count}, {age}; in the dead-letter queue {}",
                end_words(timeline.end),
                arrival(own, own)
            )
        });
        lines.extend(each.each().map(|(draw, line)| format!("{draw}: {line}")));
    }
    if let Some(needed) = of.needed.filter(|needed| *needed > queue.max_receives()) {
        let allowed = queue.max_receives();
        let most = if needed > MAX_RECEIVE_COUNT { "; SQS allows 1,000 at most" } else { "" };
        lines.push(format!(
            "maxReceiveCount {allowed} allows {}: the policy needs {needed}{most}",
            retries(allowed - 1)
        ));
    }
    lines.join("\n")
}

fn end_words(end: TimelineEnd) -> String {
    let by = match end {
        TimelineEnd::DeadLettered(_) => "dead-lettered",
        TimelineEnd::ReceivesExhausted { .. } => "moved by SQS",
    };
    format!("{by} as {}", end.as_str())
}

/// The time until it arrives there, with the smallest and with the greatest draws.
fn arrival(min: &DeadLettering, max: &DeadLettering) -> String {
    let (least, most) = (span(min.time), span(max.time));
    let time = if least == most { most } else { format!("{least} to {most}") };
    match max.visibility_timeouts {
        0 if max.time.is_zero() => "at once".to_owned(),
        0 => format!("{time} later"),
        1 => format!("a visibility timeout later ({time})"),
        timeouts => format!("{timeouts} visibility timeouts later ({time})"),
    }
}

type CostLine<'a> = (&'static str, &'a dyn Fn(&Requests) -> String);

/// A column for each class, so that the table fits into a narrow terminal.
fn costs(schedule: &Schedule) -> String {
    let queue = &schedule.queue;
    let [alone, full] = [Batching::Alone, Batching::Full];
    let lines: [CostLine<'_>; 10] = [
        ("calls of the handler", &|requests| thousands(requests.calls)),
        ("receives", &|requests| thousands(requests.receives)),
        ("sends", &|requests| thousands(requests.sends)),
        ("deletes", &|requests| thousands(requests.deletes)),
        ("deletes by Lambda", &|requests| thousands(requests.poller_deletes)),
        ("changes of visibility", &|requests| thousands(requests.visibility_changes)),
        ("billed requests", &|requests| decimal(requests.billed(queue, alone), 0)),
        ("  batched", &|requests| decimal(requests.billed(queue, full), 1)),
        ("$ per million messages", &|requests| decimal(requests.million(queue, alone), 2)),
        ("  batched", &|requests| decimal(requests.million(queue, full), 2)),
    ];
    let heads = schedule.classes.iter().map(|class| Number(class.class.as_str()));
    let mut rows = Rows::under([Text("")].into_iter().chain(heads));
    for (name, value) in lines {
        let values = schedule.classes.iter().map(|class| value(&class.requests.median));
        rows.add([name.to_owned()].into_iter().chain(values));
    }
    rows.text()
}

fn premises(schedule: &Schedule) -> String {
    let queue = &schedule.queue;
    let counted = match queue.strategy {
        Strategy::Copy => "Hops are counted; empty receives and Lambda itself are not.",
        _ => "Empty receives and Lambda itself are not counted.",
    };
    let rules =
        if schedule.has_rules { "\nThe delays of the policy's rules are not shown." } else { "" };
    let outage = if schedule.policy.circuit_breaker.is_some() {
        "\nIn an outage, a 503, a timeout and their like use no retry: only its age ends a message \
         that waits in copies."
    } else {
        ""
    };
    format!(
        "Strategy {}, dead-letter mode {}, maxReceiveCount {}, visibility timeout {}, \
         messages of {} bytes,\n\
         ${:.2} per million SQS requests; one message in each request, or as many as fit, at most \
         ten (batched).\n\
         {counted}{rules}{outage}",
        queue.strategy.as_str(),
        queue.dead_letter.word(),
        queue.max_receives(),
        span(queue.visibility()),
        queue.message_bytes,
        queue.price_per_million,
    )
}
