//! The recipes of `docs/recipes/`: the responses on each page meet the page's policy, in a handler
//! that classifies them as the HTTP target does.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use requeue::classify::{Response, names_status};
use requeue::{Failure, Sampler};
use requeue_testkit::repository;
use serde_json::Value;

use crate::world::{Act, Script, Seen, World, secs};

/// The pages by their names.
fn pages() -> Vec<(String, String)> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(repository("docs/recipes")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if name != "README" {
            pages.push((name, fs::read_to_string(path).unwrap()));
        }
    }
    pages.sort();
    pages
}

fn page(name: &str) -> String {
    pages().into_iter().find(|page| page.0 == name).unwrap().1
}

/// The blocks of code in one language.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let begin = format!("\n```{language}\n");
    page.split(&begin).skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
}

fn policy(page: &str) -> &str {
    blocks(page, "json")[0]
}

/// The rows of the table whose heading has this cell, without the heading.
fn rows<'p>(page: &'p str, heading: &str) -> Vec<Vec<&'p str>> {
    let table = page.lines().skip_while(|line| !line.contains(heading)).skip(2);
    let cells = |line: &'p str| line.trim_matches('|').split('|').map(str::trim).collect();
    table.take_while(|line| line.starts_with('|')).map(cells).collect()
}

/// A response as a page shows it.
#[derive(Clone)]
struct Shown {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Shown {
    fn parse(block: &str) -> Self {
        let (head, body) = block.split_once("\n\n").unwrap_or((block, ""));
        let mut head = head.lines();
        let status = head.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_owned(), value.to_owned())
        };
        Self { status, headers: head.map(header).collect(), body: body.to_owned() }
    }

    /// The failure by the rules in force, as the HTTP target finds it.
    fn failure(&self, now: std::time::SystemTime) -> Option<Failure> {
        let headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let (status, body) = (self.status, self.body.as_bytes());
        let response = Response { status, headers: &headers, body };
        match status {
            200..300 if names_status(status) => Failure::from_success(&response, now),
            200..300 => None,
            _ => Some(Failure::from_response(&response, now)),
        }
    }
}

/// A world with the policy of a page, and a handler that gets this response at first.
async fn played(
    policy: &str,
    sample: f64,
    shown: &Shown,
    is_first: fn(&Seen) -> bool,
) -> (World, Script, Option<Failure>) {
    let mut world = World::new();
    // Without the table that it needs.
    let mut document: Value = serde_json::from_str(policy).unwrap();
    document.as_object_mut().unwrap().remove("idempotency");
    world.settings.set_policy(&document.to_string()).unwrap();
    world.settings.sampler = Sampler::always(sample);
    world.send(r#"{"user": "ann", "channel": "C123"}"#).await;
    let (shown, clock) = (shown.clone(), world.clock.clone());
    let found = Arc::new(Mutex::new(None));
    let finds = Arc::clone(&found);
    let script = Script::new(move |seen| {
        let failure = is_first(seen).then(|| shown.failure(clock.now())).flatten();
        if let Some(failure) = &failure {
            *finds.lock().unwrap() = Some(failure.clone());
        }
        failure.map_or(Act::Done, Act::Fail)
    });
    world.run(&world.processor(script.clone())).await;
    let failure = found.lock().unwrap().clone();
    (world, script, failure)
}

/// A time as the pages write it: between the shortest and the longest jitter.
fn span(shortest: Duration, longest: Duration) -> String {
    let (shortest, longest) = (shortest.as_secs(), longest.as_secs());
    let [from, to, unit] = match longest {
        0..180 => [shortest.to_string(), longest.to_string(), "s".to_owned()],
        180..7_200 => [(shortest / 60).to_string(), (longest / 60).to_string(), "min".to_owned()],
        _ => {
            let hours = |time: u64| format!("{}.{}", time / 3_600, time % 3_600 / 360);
            [hours(shortest), hours(longest), "h".to_owned()]
        }
    };
    if from == to { format!("{to} {unit}") } else { format!("{from} to {to} {unit}") }
}

#[tokio::test(start_paused = true)]
async fn each_response_of_a_recipe_has_the_class_and_the_delay_of_its_row() {
    let mut wrong = Vec::new();
    let pages = pages();
    assert!(pages.len() >= 16, "{}", pages.len());
    for (name, page) in &pages {
        let responses: Vec<Shown> = blocks(page, "http").into_iter().map(Shown::parse).collect();
        let rows = rows(page, "| next call after |");
        assert!(!rows.is_empty() && rows.len() == responses.len(), "{name}");
        for (shown, row) in responses.iter().zip(rows) {
            let mut waits = Vec::new();
            let mut told = ["none".to_owned(), String::new(), "none".to_owned()];
            for sample in [0.0, 1.0] {
                let is_first = |seen: &Seen| seen.attempt == 1;
                let (world, script, failure) = played(policy(page), sample, shown, is_first).await;
                let calls = script.calls();
                match (&calls[..], world.dead().len()) {
                    ([_], 1) => "none: dead letter".clone_into(&mut told[1]),
                    ([_], 0) => "none: done".clone_into(&mut told[1]),
                    ([first, second], 0) => waits.push(second.at - first.at),
                    (calls, dead) => panic!("{name}: {} calls, {dead} dead letters", calls.len()),
                }
                if let Some(failure) = failure {
                    told[0] = format!("`{}`", failure.class().as_str());
                    told[2] = format!("`{}`", failure.detail());
                }
            }
            if let [shortest, longest] = waits[..] {
                told[1] = span(shortest, longest);
            }
            if row[1..] != told || !row[0].starts_with(&shown.status.to_string()) {
                wrong.push(format!("{name}: {} | {}", row.join(" | "), told.join(" | ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_poison_message_has_the_retries_of_the_recipe() {
    let page = page("poison-messages");
    let shown = Shown::parse(blocks(&page, "http")[0]);
    let (world, script, _) = played(policy(&page), 1.0, &shown, |_| true).await;
    let calls = script.calls();
    assert_eq!((calls.len(), world.dead().len()), (6, 1));
    assert!(
        page.replace('\n', " ").contains("five `temporary` retries, not 50, in about two minutes")
    );
    let time = calls[5].at - calls[0].at;
    assert!((secs(60)..secs(150)).contains(&time), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn a_used_up_quota_is_asked_for_each_hour_for_fifty_hours() {
    let page = page("nightly-quota");
    let shown = Shown::parse(blocks(&page, "http")[0]);
    let (world, script, _) = played(policy(&page), 1.0, &shown, |_| true).await;
    let calls: Vec<u64> =
        script.calls().iter().map(|seen| (seen.at - script.calls()[0].at).as_secs()).collect();
    assert_eq!(calls, (0..=50).map(|hour| hour * 3_600).collect::<Vec<_>>());
    assert_eq!(world.dead().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_body_of_a_notification_is_the_same_on_each_attempt() {
    let page = page("sns");
    let body = blocks(&page, "text")[0];
    let envelope: Value = serde_json::from_str(body).unwrap();
    for pointer in ["/MessageId", "/MessageAttributes/tenant/Value"] {
        assert!(page.contains(&format!("{pointer}`")) || page.contains(&format!("{pointer}\"")));
        assert!(envelope.pointer(pointer).is_some_and(Value::is_string), "{pointer}");
    }
    let order: Value = serde_json::from_str(envelope["Message"].as_str().unwrap()).unwrap();
    assert_eq!(order["cents"], 500);
    let world = World::new();
    world.send(body).await;
    let script = Script::failing_first(2, Failure::temporary("no"));
    world.run(&world.processor(script.clone())).await;
    assert_eq!(script.seen(), [body; 3]);
}
