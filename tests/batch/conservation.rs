//! Any request may fail in any way, and six things hold. Requeue loses nothing, deletes no message
//! before its copy is confirmed, and keeps every bound. The response names messages of the batch,
//! once each. Payloads stay unchanged, and no log line has a secret.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use aws_sdk_sqs::types::MessageAttributeValue;
use futures_util::future::join_all;
use requeue::embedded::{EmbeddedSqs, EntryFault, EntryOutcome, Fault, MessageState};
use requeue::queue::{Attribute, AttributeValue, QueueArn};
use requeue::{
    Bulk, BulkHandler, DeadLetterMode, Failure, Handler, IntoBulk, InvocationError, Message,
    Strategy, bulk,
};
use serde_json::Value;
use tokio::sync::Notify;

use crate::world::{Act, LIMIT, Log, Script, Seen, World, millis, records, secs};

/// What must never be logged, in every body and attribute.
const CANARY: &str = "CANARY";
/// Invocations with faults; after them everything works again.
const TROUBLED: usize = 4;

struct Scenario {
    fifo: bool,
    bodies: Vec<String>,
    /// What the handler does with the message of this number on its so-many-th call.
    act: fn(usize, usize) -> Act,
    adjust: fn(&mut World),
    /// Whether the first record of the first event lacks its id.
    nameless: bool,
    /// At which request a fault strikes, and whether it goes on striking.
    strikes: &'static [(usize, bool)],
}

const STRIKES: &[(usize, bool)] =
    &[(1, false), (2, false), (3, false), (4, false), (1, true), (2, true), (3, true)];

fn body(n: usize) -> String {
    format!(r#"{{"mark":"<{n}>","secret":"{CANARY}"}}"#)
}

fn scenario(bodies: Vec<String>, act: fn(usize, usize) -> Act) -> Scenario {
    Scenario { fifo: false, bodies, act, adjust: |_| {}, nameless: false, strikes: STRIKES }
}

fn failing_twice(_: usize, call: usize) -> Act {
    match call {
        1 | 2 => Act::Fail(Failure::temporary("no").retry_after(secs(30))),
        _ => Act::Done,
    }
}

fn all_fail() -> Scenario {
    scenario((0..6).map(body).collect(), failing_twice)
}

fn mixed() -> Scenario {
    let mut bodies: Vec<String> = (0..7).map(body).collect();
    bodies.push(format!("text <7> {CANARY}"));
    scenario(bodies, |n, call| match (n, call) {
        (0, _) => Act::Done,
        (1, 1) => Act::Panic,
        (2, 1) => Act::Hang,
        (3, _) => Act::Fail(Failure::non_retryable("never")),
        (4, 1) => Act::Fail(Failure::quota("later").retry_after(secs(2_000))),
        (5, 1) => Act::Fail(Failure::postpone(secs(5))),
        (_, 1) => Act::Fail(Failure::temporary("no")),
        _ => Act::Done,
    })
}

fn large() -> Scenario {
    let fill = |n: usize, len: usize| {
        let body = body(n);
        let padding = "x".repeat(len - body.len() - r#","x":"""#.len());
        format!(r#"{},"x":"{padding}"}}"#, &body[..body.len() - 1])
    };
    // The second cannot be sent again.
    let bodies = vec![body(0), fill(1, LIMIT - 100), body(2)];
    Scenario {
        strikes: &[(1, false), (1, true)],
        ..scenario(bodies, |_, call| match call {
            1 => Act::Fail(Failure::temporary("no")),
            _ => Act::Done,
        })
    }
}

fn fifo() -> Scenario {
    Scenario {
        fifo: true,
        ..scenario((0..6).map(body).collect(), |n, call| match (n, call) {
            (2 | 3, 1) => Act::Fail(Failure::temporary("no")),
            _ => Act::Done,
        })
    }
}

fn direct(world: &mut World) {
    world.settings.policy.max_retries = 2;
    world.settings.dead_letter =
        Some(DeadLetterMode::Direct(world.dead_letters.url().parse().unwrap()));
}

/// What is dead-lettered finally or at the end of its retries goes to the dead-letter queue directly.
fn dead_lettered() -> Scenario {
    Scenario {
        adjust: direct,
        ..scenario((0..6).map(body).collect(), |n, call| match (n, call) {
            (0 | 1, _) => Act::Fail(Failure::non_retryable("never")),
            (2 | 3, _) | (4, 1) => Act::Fail(Failure::temporary("no")),
            _ => Act::Done,
        })
    }
}

fn fifo_dead_lettered() -> Scenario {
    Scenario { fifo: true, ..dead_lettered() }
}

fn in_place() -> Scenario {
    Scenario {
        adjust: |world| {
            world.settings.strategy = Strategy::Visibility;
            world.settings.policy.max_retries = 3;
        },
        ..mixed()
    }
}

fn never_started() -> Scenario {
    Scenario {
        adjust: |world| world.settings.limits.concurrency = 1,
        ..scenario((0..4).map(body).collect(), |n, call| match (n, call) {
            (0, 1) => Act::Hang,
            _ => Act::Done,
        })
    }
}

fn nameless() -> Scenario {
    Scenario {
        nameless: true,
        ..scenario((0..4).map(body).collect(), |n, call| match (n, call) {
            (0 | 2, 1) => Act::Fail(Failure::temporary("no")),
            _ => Act::Done,
        })
    }
}

fn unclear() -> Scenario {
    mixed()
}

/// The script as a handler of whole calls: if one message fails, nobody knows which.
struct Whole(Script);

impl BulkHandler for Whole {
    type Error = Failure;

    async fn handle(&self, messages: Vec<Message>) -> Bulk<Failure> {
        let results = join_all(messages.into_iter().map(|message| self.0.handle(message))).await;
        results.into_iter().collect::<Result<(), _>>().into_bulk()
    }
}

fn of_entries(outcome: &EntryOutcome) -> Fault {
    let faults = [0, 2].map(|position| EntryFault::new(position, outcome.clone()));
    Fault::Entries(faults.into())
}

fn faults() -> Vec<Fault> {
    let refused =
        |sender_fault| EntryOutcome::Refused { code: "InternalError".to_owned(), sender_fault };
    vec![
        Fault::refuse(500, "InternalFailure"),
        Fault::refuse(403, "AccessDenied"),
        Fault::refuse(400, "BatchRequestTooLong"),
        Fault::refuse(400, "RequestThrottled"),
        Fault::LoseRequest,
        Fault::LoseResponse,
        Fault::RespondAfter(secs(3)),
        Fault::RespondAfter(secs(15)),
        Fault::Hang,
        of_entries(&refused(true)),
        of_entries(&refused(false)),
        of_entries(&EntryOutcome::Ignored),
        of_entries(&EntryOutcome::Unmentioned),
    ]
}

/// What is known of the messages of a run.
#[derive(Clone)]
struct Ledger {
    sqs: EmbeddedSqs,
    queues: [QueueArn; 2],
    bodies: Arc<Vec<String>>,
    /// By number: calls of the handler, and whether one of them was done.
    calls: Arc<Mutex<BTreeMap<usize, (usize, bool)>>>,
}

impl Ledger {
    fn number(&self, text: &str) -> usize {
        // It stands at the beginning, also of an envelope; the rest may be long.
        let start = &text[..text.len().min(64)];
        let marks = (0..self.bodies.len()).find(|n| start.contains(&format!("<{n}>")));
        marks.expect("every message bears its mark")
    }

    fn act(&self, seen: &Seen, act: fn(usize, usize) -> Act) -> Act {
        let n = self.number(&seen.body);
        assert!(
            seen.body == self.bodies[n],
            "message {n} has changed on the way to attempt {}",
            seen.attempt
        );
        assert_eq!(seen.attributes, attributes(), "of message {n}");
        let mut calls = self.calls.lock().unwrap();
        let (count, done) = calls.entry(n).or_default();
        *count += 1;
        let act = act(n, *count);
        *done |= matches!(act, Act::Done);
        act
    }

    /// Each message is done or in one of the queues, and what is there is within its bounds.
    fn check(&self, world_now: std::time::SystemTime) {
        let calls = self.calls.lock().unwrap().clone();
        let mut found = vec![false; self.bodies.len()];
        for message in self.queues.iter().flat_map(|queue| self.sqs.messages(queue).unwrap()) {
            let n = self.number(&message.body);
            found[n] = true;
            assert_eq!(*message.attributes, attributes(), "of message {n}");
            if let MessageState::DelayedUntil(due) = message.state {
                assert!(
                    due.duration_since(world_now).unwrap_or_default() <= secs(900),
                    "message {n}"
                );
            }
            // On a FIFO queue the receives are counted, also those behind a message that failed.
            let counted =
                message.body.rsplit_once(r#""retryCount":"#).filter(|_| !self.queues[0].is_fifo());
            if let Some((_, members)) = counted {
                let failures = calls.get(&n).map_or(0, |(calls, _)| *calls);
                let count = members.split_once(',').and_then(|(count, _)| count.parse().ok());
                let count: usize = count.expect("a plain integer");
                assert!(
                    count <= failures,
                    "message {n} counts {count} retries after {failures} calls"
                );
            }
        }
        for (n, found) in found.into_iter().enumerate() {
            let is_done = calls.get(&n).is_some_and(|(_, done)| *done);
            assert!(found || is_done, "message {n} is neither done nor in a queue");
        }
    }
}

fn attributes() -> BTreeMap<String, Attribute> {
    let attribute = Attribute {
        data_type: "String".to_owned(),
        value: AttributeValue::Text(format!("{CANARY} of an attribute")),
    };
    BTreeMap::from([("tenant".to_owned(), attribute)])
}

struct Run {
    world: World,
    ledger: Ledger,
    script: Script,
    log: Log,
    handles: Vec<String>,
}

impl Run {
    async fn new(scenario: &Scenario) -> Self {
        let mut world = if scenario.fifo {
            World::with_queue("orders.fifo", &[("ContentBasedDeduplication", "true")])
        } else {
            World::new()
        };
        world.function_timeout = secs(40);
        (scenario.adjust)(&mut world);
        for (n, body) in scenario.bodies.iter().enumerate() {
            let value = MessageAttributeValue::builder().data_type("String");
            let value = value.string_value(format!("{CANARY} of an attribute")).build().unwrap();
            let group = scenario.fifo.then(|| format!("group-{}", n % 2));
            let with = |message: aws_sdk_sqs::operation::send_message::builders::SendMessageFluentBuilder| {
                message.message_attributes("tenant", value).set_message_group_id(group)
            };
            world.send_as(body, with).await;
        }
        let ledger = Ledger {
            sqs: world.sqs.clone(),
            queues: [world.queue.clone(), world.dead_letters.clone()],
            bodies: Arc::new(scenario.bodies.clone()),
            calls: Arc::default(),
        };
        let (noted, act) = (ledger.clone(), scenario.act);
        Self {
            world,
            ledger,
            script: Script::new(move |seen| noted.act(seen, act)),
            log: Log::default(),
            handles: Vec::new(),
        }
    }

    /// Lets these requests, counted from 1, meet a fault; looks at the queues before each request.
    fn faults(&self, fault: impl Fn(usize) -> Fault + Send + Sync + 'static) {
        let (ledger, clock) = (self.ledger.clone(), self.world.clock.clone());
        let number = AtomicUsize::new(0);
        self.world.faults(move |_| {
            ledger.check(clock.now());
            fault(number.fetch_add(1, Ordering::Relaxed) + 1)
        });
    }

    async fn event(&self, nameless: bool) -> Value {
        let mut event = self.world.receive().await;
        if nameless {
            event["Records"][0]["messageId"] = Value::Null;
        }
        event
    }

    fn remember(&mut self, event: &Value) {
        let handles = records(event).iter().filter_map(|record| record["receiptHandle"].as_str());
        self.handles.extend(handles.map(str::to_owned));
    }

    /// Some invocations in trouble, and then as many as it takes without.
    async fn finish<H: Handler>(
        &mut self,
        scenario: &Scenario,
        handler: fn(Script) -> H,
        mut is_first: bool,
    ) {
        let processor = self.world.processor(handler(self.script.clone()));
        let _listening = self.log.listen();
        for _ in 0..TROUBLED {
            if !self.world.sleep_until_due().await {
                break;
            }
            if is_first {
                let event = self.event(scenario.nameless).await;
                self.remember(&event);
                let invocation = self.world.deliver(&processor, &event).await;
                let unreportable = Err(InvocationError::Unreportable);
                let answered = invocation.answer.as_ref().map(drop).map_err(|error| *error);
                assert!(answered == Ok(()) || (scenario.nameless && answered == unreportable));
                assert!(invocation.elapsed < self.world.function_timeout);
            } else if let Some(invocation) = self.world.invoke(&processor).await {
                self.handles.extend(invocation.receipt_handles.iter().cloned());
                assert!(invocation.answer.is_ok());
                assert!(invocation.elapsed < self.world.function_timeout);
            }
            is_first = false;
            self.ledger.check(self.world.clock.now());
        }
        self.faults(|_| Fault::None);
        self.world.run(&processor).await;
        self.ledger.check(self.world.clock.now());
        assert!(self.world.messages().is_empty());
        self.check_secrecy();
    }

    fn check_secrecy(&self) {
        let log = self.log.text();
        assert!(log.contains("requeue"), "the log was listened to");
        assert!(!log.contains(CANARY), "{log}");
        for handle in &self.handles {
            assert!(!log.contains(handle.as_str()), "a receipt handle is logged");
        }
    }
}

/// Every fault at each of the first requests, once and from then on.
async fn survives<H: Handler>(scenario: &Scenario, handler: fn(Script) -> H) {
    for fault in faults() {
        for &(at, is_lasting) in scenario.strikes {
            let mut run = Run::new(scenario).await;
            let fault = fault.clone();
            run.faults(move |number| {
                let strikes = number == at || (is_lasting && number > at);
                if strikes { fault.clone() } else { Fault::None }
            });
            run.finish(scenario, handler, true).await;
        }
    }
}

/// The function dies at each of its first requests: before it is carried out, or after it was.
async fn survives_death<H: Handler>(scenario: &Scenario, handler: fn(Script) -> H) {
    for at in 1..=6 {
        for is_carried_out in [false, true] {
            let mut run = Run::new(scenario).await;
            let death = Arc::new(Notify::new());
            let bell = Arc::clone(&death);
            run.faults(move |number| {
                if number != at {
                    return Fault::None;
                }
                bell.notify_one();
                if is_carried_out { Fault::RespondAfter(secs(1)) } else { Fault::Hang }
            });
            let processor = run.world.processor(handler(run.script.clone()));
            let event = run.event(scenario.nameless).await;
            run.remember(&event);
            let died = async {
                death.notified().await;
                tokio::time::sleep(millis(1)).await;
            };
            let listening = run.log.listen();
            tokio::select! {
                _ = run.world.invoke_with(&processor, &event) => {}
                () = died => {}
            }
            drop(listening);
            run.ledger.check(run.world.clock.now());
            run.faults(|_| Fault::None);
            run.finish(scenario, handler, false).await;
        }
    }
}

macro_rules! scenarios {
    ($handler:expr; $($name:ident)*) => {$(
        mod $name {
            #[tokio::test(start_paused = true)]
            async fn survives_every_fault_at_every_request() {
                super::survives(&super::$name(), $handler).await;
            }

            #[tokio::test(start_paused = true)]
            async fn survives_the_death_of_the_function_at_every_request() {
                super::survives_death(&super::$name(), $handler).await;
            }
        }
    )*};
}

scenarios!(|script| script; all_fail mixed large fifo dead_lettered fifo_dead_lettered in_place never_started nameless);
scenarios!(|script| super::bulk(super::Whole(script)); unclear);
