//! The handler as one of several messages, and the invariants of its calls.

use std::collections::BTreeSet;
use std::time::Duration;

use requeue::{Bulk, BulkHandler, Failure, FailureClass, Handler, Message, Mode, Scope, Strategy};
use requeue_testkit::dice::Dice;
use tokio::time::sleep;

use crate::book::{InCall, Member};
use crate::handler::{Act, Call, Script, act};
use crate::plan::{Plan, secs};
use crate::producer::number;
use crate::system::World;

/// The words of a failure without a result.
const NO_RESULT: &str = "the bulk handler returned no result for the message";

/// The end of a call.
enum End {
    /// A result for each message. So many are missing, or too many.
    Each { missing: usize, surplus: usize },
    /// One result for all.
    Whole(Act),
}

/// A message that ends each of its calls in this way.
fn poison(world: &World, n: usize) -> Option<Act> {
    let dice = Dice::of(world.seed, 5_000_000 + n as u64);
    dice.happens(60).then(|| {
        dice.pick(&[
            Act::Panic,
            Act::Hang,
            Act::Doubt,
            Act::Fail(FailureClass::Temporary, None),
            Act::Fail(FailureClass::RateLimit, Some(secs(dice.roll(0, 60)))),
            Act::Fail(FailureClass::NonRetryable, None),
        ])
    })
}

/// The end of a call of messages with these acts, each the so-many-th for its message.
fn end(world: &World, acts: &[(usize, usize, Act)]) -> End {
    if let Some(act) = acts.iter().find_map(|(n, ..)| poison(world, *n)) {
        return End::Whole(act);
    }
    let (n, count, first) = acts[0];
    let voice = if world.plan.in_chorus { 0 } else { n };
    let dice = Dice::of(world.seed, 4_000_000 + (voice * 10_000 + count) as u64);
    let some = || dice.roll(1, acts.len());
    match dice.roll(0, 9) {
        0..=4 => End::Each { missing: 0, surplus: 0 },
        5 => End::Each { missing: some(), surplus: 0 },
        6 => End::Each { missing: 0, surplus: some() },
        _ => End::Whole(first),
    }
}

impl BulkHandler for Script {
    type Error = Failure;

    fn messages_per_call(&self) -> usize {
        self.world.plan.per_call.as_ref().map_or(1, |calls| calls.most)
    }

    fn scope(&self, message: &Message) -> Scope {
        Handler::scope(self, message)
    }

    async fn handle(&self, messages: Vec<Message>) -> Bulk<Failure> {
        let world = &self.world;
        if let Err(what) = check_together(world, &messages) {
            let n = messages.first().and_then(|message| number(message.body()));
            world.book().history.violate(n, what);
        }
        let (size, mut time) = (messages.len(), Duration::ZERO);
        let (mut calls, mut acts) = (Vec::new(), Vec::new());
        for (number, message) in messages.into_iter().enumerate() {
            let (call, begun) = Call::begin(self, message, InCall { number, messages: size });
            calls.push(call);
            let Some((n, count)) = begun else { return Bulk::Done };
            let (its_time, act, _) = act(world, n, count);
            time = time.max(its_time);
            acts.push((n, count, act));
        }
        let end = end(world, &acts);
        sleep(time).await;
        let (missing, surplus) = match end {
            End::Each { missing, surplus } => (missing, surplus),
            End::Whole(act) => {
                let (n, count, _) = acts[0];
                for call in &mut calls {
                    call.ends_for_all(act);
                }
                act.halt().await;
                let failure = act.failure(world, n, count);
                let Some((failure, words)) = failure else { return Bulk::Done };
                for call in &mut calls {
                    call.words.clone_from(&words);
                }
                return Bulk::Unclear(failure);
            }
        };
        let mut results = Vec::new();
        for (call, (n, count, act)) in calls.iter_mut().zip(acts) {
            // The end of one is the end of all.
            let act = match act {
                Act::Panic | Act::Hang => Act::Fail(FailureClass::Temporary, None),
                act => act,
            };
            call.ends(act);
            results.push(match act.failure(world, n, count) {
                None => Ok(()),
                Some((failure, words)) => {
                    call.words = words;
                    Err(failure)
                }
            });
        }
        results.truncate(size - missing);
        for call in &mut calls[size - missing..] {
            call.ends(Act::Fail(FailureClass::Temporary, None));
            call.words = Some(NO_RESULT.to_owned());
        }
        let down = calls.iter().filter(|call| call.is_down()).count();
        for call in &mut calls {
            call.is_mixed = (1..size).contains(&down);
        }
        results.extend((0..surplus).map(|surplus| match surplus {
            0 => Err(Failure::non_retryable("whose?")),
            _ => Ok(()),
        }));
        Bulk::Each(results)
    }
}

/// The messages of a call are few enough, of one scope, of the same values of keys, and all different.
/// No two are of one FIFO group.
fn check_together(world: &World, messages: &[Message]) -> Result<(), String> {
    let plan = &world.plan;
    let most = plan.per_call.as_ref().map_or(1, |calls| calls.most);
    ensure((1..=most).contains(&messages.len()), "a call of too many messages")?;
    let numbers = || messages.iter().filter_map(|message| number(message.body()));
    let scopes: BTreeSet<_> = numbers().map(|n| plan.scope(n)).collect();
    ensure(scopes.len() == 1, "a call of two scopes")?;
    let values: BTreeSet<_> = numbers().map(|n| world.book().values(plan, n)).collect();
    ensure(values.len() == 1 || plan.mode == Mode::Report, "a call of two values of a key")?;
    let ids: BTreeSet<_> = messages.iter().map(Message::original_id).collect();
    ensure(ids.len() == messages.len(), "a message is twice in a call")?;
    let groups = messages.iter().filter_map(Message::group_id);
    let are_alone = !plan.is_fifo || groups.collect::<BTreeSet<_>>().len() == messages.len();
    ensure(are_alone, "two messages of a group in a call")
}

/// A message whose call may have failed by another one shares the next ones with fewer, and none
/// after two, nor do its copies. It shares none either if its next receive would find no retry left.
pub fn check_company(plan: &Plan, message: &Message, member: &Member) -> Result<(), String> {
    // Each environment counts the receives of a moved message from the first that it saw.
    let before = if member.past.is_moved { 0 } else { member.receives - member.arrival.0 };
    let most = match before {
        _ if member.past.is_alone => 1,
        0 => usize::MAX,
        1 => 3,
        _ => 1,
    };
    let messages = member.in_call.messages;
    ensure(messages <= most, "received again, and shares its call with too many")?;
    let counts_receives = plan.is_fifo || plan.strategy == Strategy::Visibility;
    let has_failed = counts_receives || member.past.last.is_some();
    let is_last = has_failed && message.is_last_attempt();
    ensure(messages == 1 || !is_last, "shares the call of its last attempt")
}

fn ensure(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}
