//! The processor at work: messages that wait in flight, and messages that it sends to the
//! dead-letter queue itself.

use std::time::Duration;

use aws_sdk_sqs::types::MessageSystemAttributeName;
use requeue::policy::{Backoff, Jitter};
use requeue::{DeadLetterMode, Failure, Sampler, Settings, Strategy};
use tokio::time::timeout;

use crate::bench::{Bench, Check, Observed, check, redrive_policy, system, verdict};
use crate::function::{Call, Function, state};

/// Several times what any of these takes.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) fn checks() -> Vec<Check> {
    vec![
        check(
            "the head of a FIFO group waits for its own delay, its followers for it, and other groups for nobody",
            "first a1 b1 b2, then a1 a2 a3, in time, the same messages; asked for wait 2 s, wait 0 s+0 s",
            head_waits,
        ),
        check(
            "what is final leaves a FIFO group for the dead-letter queue, and the group goes on at once",
            "first a1 a2 a3 b1, then nobody; asked for send 1, delete 1; \
             dead a1 of group a, its id, non-retryable, its queue",
            head_is_moved,
        ),
        check(
            "a message waits in its place, is counted by its receives, and moved as it was sent",
            "attempts 1 2 3 on receives 1 2 3, in time, in time, the same message; asked for wait 3 s, wait 3 s; \
             dead: the same message",
            waits_in_its_place,
        ),
    ]
}

async fn head_waits(bench: Bench) -> Observed {
    let function = Function::new(bench.fifo(&[]).await?, settings(), |call| {
        match (call.body.as_str(), call.attempt) {
            ("a1", 1) => Err(Failure::rate_limit("later").retry_after(Duration::from_secs(2))),
            _ => Ok(()),
        }
    })
    .await?;
    let sent = send_groups(&function, &["a1", "b1", "a2", "b2", "a3"]).await?;
    function.invoke().await?;
    let first = function.take_calls();
    let then = finish(&function).await?;
    let head = |calls: &[Call]| calls.iter().find(|call| call.body == "a1").map(|call| call.at);
    let waited = head(&then)
        .zip(head(&first))
        .map(|(then, first)| then - first)
        .ok_or("it did not come back")?;
    let same = first.iter().chain(&then).all(|call| sent.contains(&call.id));
    Ok(format!(
        "first {}, then {}, {}, {}; asked for {}",
        by_group(&first),
        by_group(&then),
        verdict(waited, 2.0),
        if same { "the same messages" } else { "others" },
        function.requests(),
    ))
}

async fn head_is_moved(bench: Bench) -> Observed {
    let dead = bench.fifo(&[]).await?;
    let url = dead.url.parse().map_err(|_| format!("{} is no queue URL", dead.url))?;
    let mut settings = settings();
    settings.dead_letter = Some(DeadLetterMode::Direct(url));
    let function =
        Function::new(bench.fifo(&[]).await?, settings, |call| match call.body.as_str() {
            "a1" => Err(Failure::non_retryable("never")),
            _ => Ok(()),
        })
        .await?;
    let sent = send_groups(&function, &["a1", "b1", "a2", "a3"]).await?;
    function.invoke().await?;
    let first = function.take_calls();
    let then = finish(&function).await?;
    let found = dead.next().await?;
    let body = state(&found)?;
    let id = system(&found, MessageSystemAttributeName::MessageDeduplicationId);
    Ok(format!(
        "first {}, then {}; asked for {}; dead {} of group {}, {}, {}, {}",
        by_group(&first),
        by_group(&then),
        function.requests(),
        body["retryBody"].as_str().unwrap_or_default(),
        system(&found, MessageSystemAttributeName::MessageGroupId),
        if id == sent[0] { "its id" } else { "another id" },
        body["retryState"]["deadLetter"]["reason"].as_str().unwrap_or_default(),
        if body["retryState"]["source"] == function.arn.as_str() {
            "its queue"
        } else {
            "another queue"
        },
    ))
}

async fn waits_in_its_place(bench: Bench) -> Observed {
    const BODY: &str = "text, as it was sent ";
    let dead = bench.queue(&[]).await?;
    let policy = redrive_policy(&dead.arn().await?, 3);
    // Shorter than the delay: what comes back in time has waited for the delay.
    let queue = bench.queue(&[("VisibilityTimeout", "2"), ("RedrivePolicy", &policy)]).await?;
    let mut settings = settings();
    settings.strategy = Strategy::Visibility;
    settings.policy.max_retries = 2;
    settings.policy.temporary.backoff = Backoff::Constant { base: Duration::from_secs(3) };
    settings.policy.temporary.jitter = Jitter::None;
    let function = Function::new(queue, settings, |_| Err(Failure::temporary("no"))).await?;
    let id = function.queue.send(BODY).await?.message_id.unwrap_or_default();
    let calls = finish(&function).await?;
    let found = dead.next().await?;
    let numbers =
        |number: fn(&Call) -> u32| words(calls.iter().map(|call| number(call).to_string()));
    let waited = calls.windows(2).map(|pair| verdict(pair[1].at - pair[0].at, 3.0));
    let same =
        calls.iter().all(|call| (call.id.as_str(), call.body.as_str()) == (id.as_str(), BODY));
    let same_dead = (found.message_id(), found.body()) == (Some(id.as_str()), Some(BODY));
    let word = |same| if same { "the same message" } else { "another" };
    Ok(format!(
        "attempts {} on receives {}, {}, {}; asked for {}; dead: {}",
        numbers(|call| call.attempt),
        numbers(|call| call.receive_count),
        waited.collect::<Vec<_>>().join(", "),
        word(same),
        function.requests(),
        word(same_dead),
    ))
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    // Nothing is added to a delay that was named, and nobody waits for a neighbour's sake.
    settings.sampler = Sampler::always(0.0);
    settings.policy.max_pause = None;
    settings
}

/// Each to the group that its first letter names; the ids.
async fn send_groups(function: &Function, bodies: &[&str]) -> Result<Vec<String>, String> {
    let mut ids = Vec::new();
    for body in bodies {
        ids.push(
            function.queue.send_to_group(&body[..1], body).await?.message_id.unwrap_or_default(),
        );
    }
    Ok(ids)
}

/// Invokes the function until its queue is empty; the calls.
async fn finish(function: &Function) -> Result<Vec<Call>, String> {
    let finished = timeout(PATIENCE, async {
        while function.queue.counts().await? != "0 visible, 0 delayed, 0 in flight" {
            function.invoke().await?;
        }
        Ok(function.take_calls())
    });
    finished.await.unwrap_or_else(|_| Err("a story without end".to_owned()))
}

/// The bodies, in the order of the groups and in that of the calls within each.
fn by_group(calls: &[Call]) -> String {
    let mut bodies: Vec<&str> = calls.iter().map(|call| call.body.as_str()).collect();
    bodies.sort_by_key(|body| body.chars().next());
    words(bodies)
}

fn words<T: Into<String>>(words: impl IntoIterator<Item = T>) -> String {
    let words: Vec<String> = words.into_iter().map(Into::into).collect();
    if words.is_empty() { "nobody".to_owned() } else { words.join(" ") }
}
