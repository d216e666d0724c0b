//! Requeue keeps a producer's limits, a dead letter says why it is one, and its handler sees that.

use std::time::{Duration, SystemTime};

use requeue::queue::QueueArn;
use requeue::{DeadLetterInfo, FailureClass, Message};
use serde_json::{Value, json};

use crate::book::{Ended, Invocation, Member};
use crate::copies::{Checked, expect, retries};
use crate::producer::{Maker, Product};
use crate::system::World;
use crate::wire::{Members, at};

/// Times are written in whole milliseconds.
const SLACK: Duration = Duration::from_millis(1);

/// How old a message is, if that is known.
fn age(member: &Member, now: SystemTime) -> Option<Duration> {
    member.past.dated.map(|sent| now.duration_since(at(sent)).unwrap_or_default())
}

/// Whether a message in the hands of an environment is too old for a call. The age of a moved
/// message begins when that environment sees it, and its first arrival was no later.
pub fn has_expired(world: &World, environment: usize, member: &Member) -> bool {
    let since_arrival = || world.clock.now().duration_since(member.arrival.1).unwrap_or_default();
    let age = age(member, world.time_of(environment)).unwrap_or_else(since_arrival);
    member.asked.ttl(&world.plan).is_some_and(|ttl| age > ttl)
}

/// The handler is called: it may be, and is told why the message was dead-lettered before.
pub fn check_call(
    world: &World,
    invocation: &Invocation,
    product: &Product,
    member: &Member,
    message: &Message,
) -> Checked {
    let (plan, asked, now) = (&world.plan, &product.asked, world.time_of(invocation.environment));
    expect(asked.unreadable.is_none(), || {
        "called though one of its limits cannot be read".to_owned()
    })?;
    let latest = now.max(at(member.past.received_here));
    expect(asked.not_before.is_none_or(|due| latest + SLACK >= due), || {
        "called before its producer allows".to_owned()
    })?;
    let is_expired =
        asked.ttl(plan).zip(age(member, now)).is_some_and(|(ttl, age)| age > ttl + SLACK);
    expect(!is_expired, || "called though it has expired".to_owned())?;
    let is_last = u64::from(message.retry_count()) >= u64::from(asked.retries(plan));
    expect(message.is_last_attempt() == is_last, || {
        format!("the last attempt: {is_last}, as others reckon")
    })?;
    if matches!(product.maker, Maker::Producer { .. }) {
        let (seen, why) = (message.dead_letter(), &member.past.why);
        expect(is_same(seen.as_ref(), why), || {
            format!("dead-lettered because of {why}, but seen is {seen:?}")
        })?;
    }
    Ok(())
}

fn is_same(seen: Option<&DeadLetterInfo>, why: &Value) -> bool {
    let Some(seen) = seen else { return why.is_null() };
    let class = seen.class().map(FailureClass::as_str);
    let seen = [
        json!(class),
        json!(seen.reason()),
        json!(seen.detail()),
        json!(seen.retry_count()),
        json!(seen.source()),
    ];
    let names = ["class", "reason", "detail", "retryCount", "source"];
    why.is_object() && names.iter().zip(&seen).all(|(name, seen)| why[name] == *seen)
}

/// A copy says that its message is dead-lettered, and `from` is where it was if it goes elsewhere.
pub fn check(
    world: &World,
    invocation: &Invocation,
    members: &Members,
    member: &Member,
    from: Option<&QueueArn>,
    now: SystemTime,
) -> Checked {
    let source = from.map(ToString::to_string);
    expect(members.state["source"] == json!(source), || format!("of {}", members.state["source"]))?;
    if member.past.is_dead_lettered {
        return Ok(());
    }
    let why = &members.state["deadLetter"];
    let wrong = |what: &str| Err(format!("{what}, but the dead letter says {why}"));
    let text = |name: &str| why[name].as_str();
    let count = why["retryCount"].as_u64();
    if count.is_none_or(|count| count < member.past.count || count > retries(&world.plan, member)) {
        return wrong("other retries");
    }
    let (ttl, unreadable) = (member.asked.ttl(&world.plan), member.asked.unreadable);
    match member.ended {
        Some(Ended::Final) if text("reason") != Some("non-retryable") => {
            wrong("it failed for good")
        }
        Some(Ended::Failed(class, _)) if text("class") != Some(class.as_str()) => {
            wrong("it failed otherwise")
        }
        Some(Ended::Failed(..) | Ended::Final)
            if member.words.is_some() && text("detail") != member.words.as_deref() =>
        {
            wrong(&format!("the words are {:?}", member.words))
        }
        Some(_) => Ok(()),
        None => {
            let is_older = |now| ttl.zip(age(member, now)).map(|(ttl, age)| age > ttl);
            // It is decided some time after the batch has come.
            let began = now - invocation.started.elapsed();
            match text("reason") {
                Some("expired") if ttl.is_some() && is_older(now) != Some(false) => Ok(()),
                Some("expired") => wrong("not expired"),
                // It was given up on an earlier receive, and that copy was not confirmed.
                Some(_) if member.receives > member.arrival.0 => Ok(()),
                _ if is_older(began) == Some(true) => wrong("expired"),
                Some("non-retryable") if unreadable.is_some() => {
                    let names_it = text("detail")
                        .zip(unreadable)
                        .is_some_and(|(detail, name)| detail.contains(name));
                    if names_it { Ok(()) } else { wrong("no limit is named") }
                }
                Some("non-retryable") => wrong("not called"),
                _ => Ok(()),
            }
        }
    }
}
