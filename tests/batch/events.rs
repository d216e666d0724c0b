//! Every file in `events/` goes through a full run: nothing is lost, and no byte changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use requeue::Failure;
use requeue::embedded::{MessageState, MessageView};
use serde_json::Value;

use crate::world::{Act, Script, Seen, World, attributes, records, secs, state};

const FILES: [&str; 15] = [
    "article-in-flight",
    "attributes",
    "every-class",
    "exhausted",
    "fair-queue",
    "fifo",
    "later-version",
    "malformed",
    "mixed-batch",
    "one-mebibyte",
    "redriven",
    "s3-pointer",
    "single",
    "sns-wrapped",
    "text-bodies",
];

fn directory() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("events")
}

fn read(file: &str) -> Value {
    let text = std::fs::read_to_string(directory().join(file).with_extension("json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn every_file_is_in_the_list() {
    let files = std::fs::read_dir(directory()).unwrap();
    let names: BTreeSet<String> = files
        .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, FILES.map(str::to_owned).into());
}

/// A world a second after the last time that the event speaks of, with its messages in flight.
fn world_of(event: &Value) -> World {
    let times = records(event).iter().flat_map(|record| {
        let attributes = &record["attributes"];
        ["SentTimestamp", "ApproximateFirstReceiveTimestamp"].map(|name| attributes[name].as_str())
    });
    let latest: u64 = times.flatten().map(|millis| millis.parse::<u64>().unwrap()).max().unwrap();
    let queue = records(event)[0]["eventSourceARN"].as_str().unwrap().rsplit(':').next().unwrap();
    let mut world =
        World::at(SystemTime::UNIX_EPOCH + Duration::from_millis(latest + 1_000), queue, &[]);
    world.settings.limits.timeout = secs(10);
    world.place(event);
    world
}

/// What the handler is to see of a record: the body as the producer wrote it.
fn payload(record: &Value) -> String {
    let body = record["body"].as_str().unwrap_or("unreadable");
    match body.find(r#","retryCount""#) {
        Some(end) if body.contains(r#""retryState":{"v":1,"#) => format!("{}}}", &body[..end]),
        _ => body.to_owned(),
    }
}

/// The ids that a record or a message may be known by.
fn original_id(body: &str, id: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let is_ours = body["retryState"]["v"] == 1;
    let original = body["originalMessageId"].as_str().filter(|id| is_ours && !id.is_empty());
    original.unwrap_or(id).to_owned()
}

fn act(seen: &Seen, call: usize) -> Act {
    let retryable = |failure| if call <= 3 { Act::Fail(failure) } else { Act::Done };
    let answer = |name: &str| seen.body.contains(&format!(r#""answer":"{name}""#));
    if answer("ok") {
        Act::Done
    } else if answer("invalid") {
        Act::Fail(Failure::non_retryable("never"))
    } else if answer("rate-limit") {
        retryable(Failure::rate_limit("slowly").retry_after(secs(30)))
    } else if answer("quota") {
        retryable(Failure::quota("tomorrow").retry_after(secs(2_000)))
    } else if answer("hang") && call <= 2 {
        Act::Hang
    } else if answer("reset") && call <= 2 {
        Act::Panic
    } else {
        retryable(Failure::temporary("unavailable"))
    }
}

#[tokio::test(start_paused = true)]
async fn every_message_is_done_or_dead_lettered_and_its_bytes_stay_the_same() {
    for file in FILES {
        let event = read(file);
        let world = world_of(&event);
        let done = std::sync::Arc::new(Mutex::new(BTreeSet::new()));
        let counts: Mutex<BTreeMap<String, usize>> = Mutex::default();
        let noted = std::sync::Arc::clone(&done);
        let script = Script::new(move |seen| {
            let mut counts = counts.lock().unwrap();
            let call = counts.entry(seen.body.clone()).or_default();
            *call += 1;
            let act = act(seen, *call);
            if matches!(act, Act::Done) {
                noted.lock().unwrap().insert(seen.body.clone());
            }
            act
        });
        let processor = world.processor(script.clone());
        world.deliver(&processor, &event).await;
        for message in world.messages() {
            check_bounds(&world, &message);
        }
        world.run(&processor).await;

        let done = done.lock().unwrap();
        let dead: BTreeSet<String> =
            world.dead().iter().map(|message| original_id(&message.body, &message.id)).collect();
        let mut payloads = BTreeMap::new();
        let mut of_nobody = Vec::new();
        let mut carried = BTreeMap::new();
        for record in records(&event) {
            let id = record["messageId"].as_str().unwrap_or_default();
            let id = original_id(record["body"].as_str().unwrap_or_default(), id);
            let payload = payload(record);
            assert!(
                done.contains(&payload) || dead.contains(&id),
                "{file}: {id} is lost: {payload}"
            );
            if id.is_empty() {
                of_nobody.push(payload);
                continue;
            }
            carried.insert(id.clone(), attributes(record));
            payloads.insert(id, payload);
        }
        for seen in script.calls() {
            let Some(original) = seen.original_id.as_ref().filter(|id| payloads.contains_key(*id))
            else {
                assert!(of_nobody.contains(&seen.body), "{file}: {}", seen.body);
                continue;
            };
            let expected = &payloads[original];
            assert_eq!(&seen.body, expected, "{file}, attempt {}", seen.attempt);
            assert_eq!(seen.attributes, carried[original], "{file}, attempt {}", seen.attempt);
        }
    }
}

fn check_bounds(world: &World, message: &MessageView) {
    if let MessageState::DelayedUntil(_) = message.state {
        assert!(world.wait(message) <= secs(900));
    }
    if let Ok(body) = serde_json::from_str::<Value>(&message.body)
        && let Some(count) = body.get("retryCount").filter(|_| body["retryState"]["v"] == 1)
    {
        assert!(count.as_u64().is_some_and(|count| count <= 50), "{count}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_count_in_the_articles_format_goes_on() {
    let event = read("article-in-flight");
    let world = world_of(&event);
    let script = Script::always(Failure::rate_limit("slowly"));
    world.deliver(&world.processor(script.clone()), &event).await;
    let seen = &script.calls()[0];
    assert_eq!(seen.body, records(&event)[0]["body"].as_str().unwrap());
    assert_eq!(seen.attempt, 4);
    let copy = state(&world.only_message());
    assert_eq!(copy["retryCount"], 4);
    // What the article calls the original is the id before the last hop: ours is the first that we
    // saw ourselves.
    assert_eq!(copy["originalMessageId"], records(&event)[0]["messageId"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_a_later_version_wrote_is_released_untouched() {
    let event = read("later-version");
    let world = world_of(&event);
    let script = Script::new(|_| Act::Done);
    let processor = world.processor(script.clone());
    let invocation = world.deliver(&processor, &event).await;
    assert_eq!(invocation.failed(), [records(&event)[0]["messageId"].as_str().unwrap()]);
    assert_eq!(world.only_message().body, records(&event)[0]["body"].as_str().unwrap());
    world.run(&processor).await;
    assert!(script.calls().is_empty());
    assert_eq!(world.all_calls(), (0, 0, 0));
    assert_eq!(world.dead()[0].body, records(&event)[0]["body"].as_str().unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_is_exhausted_is_called_on_its_first_receive_and_not_on_its_second() {
    let event = read("exhausted");
    let world = world_of(&event);
    let script = Script::always(Failure::temporary("no"));
    let processor = world.processor(script.clone());
    let invocation = world.deliver(&processor, &event).await;
    assert_eq!(invocation.failed().len(), 2);
    assert_eq!((script.calls().len(), world.all_calls()), (1, (0, 0, 0)));
    assert!(script.calls()[0].is_last && script.seen()[0].contains("A-1081"));
    world.run(&processor).await;
    assert_eq!((script.calls().len(), world.dead().len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_redriven_message_has_all_its_retries_again() {
    let event = read("redriven");
    let world = world_of(&event);
    let script = Script::always(Failure::rate_limit("slowly"));
    world.deliver(&world.processor(script.clone()), &event).await;
    assert_eq!(script.calls()[0].attempt, 1);
    let copy = state(&world.only_message());
    assert_eq!((&copy["retryCount"], &copy["retryState"]["redrives"]), (&1.into(), &1.into()));
    assert_eq!(copy["originalMessageId"], "e70ca4ad-ccd4-4ca0-b7cf-dabdcaf9c8c1");
}

#[tokio::test(start_paused = true)]
async fn malformed_records_do_not_keep_their_neighbours_from_their_turn() {
    let event = read("malformed");
    let world = world_of(&event);
    let script = Script::new(|_| Act::Done);
    let invocation = world.deliver(&world.processor(script.clone()), &event).await;
    // Two without a body, one with an attribute that cannot be read; one message is there twice.
    let unreadable = ["91edd983", "f7f0bf2b", "342912b9"];
    let failed = invocation.failed();
    assert_eq!(failed.len(), unreadable.len());
    assert!(failed.iter().zip(unreadable).all(|(id, start)| id.starts_with(start)), "{failed:?}");
    assert_eq!(script.calls().len(), 12 - 1 - unreadable.len());
}
