//! Lambda: an event source mapping polls the queue, invokes execution environments, and treats
//! their responses as Lambda does.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use lambda_runtime::{Context, LambdaEvent};
use requeue::embedded::{Batch, EmbeddedSqs, EventSourceMapping, InvocationResult};
use requeue::queue::{Queue, QueueArn};
use requeue::{BatchProcessor, Clock, Handler, InvocationError, SqsBatchResponse, SqsEvent};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::handler::Script;
use crate::plan::{secs, steps};
use crate::system::World;
use crate::witness::{INVOCATION, Witness};
use requeue_testkit::dice::Dice;

/// Lambda refuses to invoke a function after so many of its own messages in a row.
const LONGEST_ROW: u32 = 16;

type Processor<Q, H> = BatchProcessor<H, Witness<Q>>;

/// One execution environment. When it dies the next one takes its place.
struct Environment<Q, H> {
    world: Arc<World>,
    number: usize,
    connect: fn(&EmbeddedSqs) -> Q,
    handler: fn(Script) -> H,
    dice: Dice,
    alive: Mutex<(CancellationToken, Processor<Q, H>, Clock)>,
}

/// How an invocation ended.
enum End {
    Answered(Result<SqsBatchResponse, InvocationError>),
    Died,
    Late,
}

/// The actors of an execution environment: one for each batch that it may work on at once.
pub fn environment<Q: Queue, H: Handler>(
    world: &Arc<World>,
    number: usize,
    connect: fn(&EmbeddedSqs) -> Q,
    handler: fn(Script) -> H,
) -> Vec<JoinHandle<()>> {
    let dice = Dice::of(world.seed, 100 + number as u64);
    let alive = Mutex::new(begin(world, number, connect, handler, &dice));
    let environment =
        Arc::new(Environment { world: Arc::clone(world), number, connect, handler, dice, alive });
    (0..world.plan.concurrency).map(|_| tokio::spawn(poll(Arc::clone(&environment)))).collect()
}

fn begin<Q: Queue, H: Handler>(
    world: &Arc<World>,
    environment: usize,
    connect: fn(&EmbeddedSqs) -> Q,
    handler: fn(Script) -> H,
    dice: &Dice,
) -> (CancellationToken, Processor<Q, H>, Clock) {
    let (clock, settings) = world.settings(environment, dice);
    world.book().born(environment);
    let witness = Witness {
        inner: connect(&world.sqs),
        world: Arc::clone(world),
        environment,
        clock: clock.clone(),
        dice: dice.clone(),
    };
    let script = Script { world: Arc::clone(world), environment };
    (world.life(environment), BatchProcessor::new(handler(script), witness, settings), clock)
}

async fn poll<Q: Queue, H: Handler>(environment: Arc<Environment<Q, H>>) {
    let world = &environment.world;
    while !world.is_over() {
        let news = world.news.notified();
        let batches = environment.receive().await;
        if batches.is_empty() {
            let due = world
                .next_due(environment.queue())
                .unwrap_or(secs(900))
                .max(Duration::from_millis(1));
            let _ = timeout(due, news).await;
            continue;
        }
        environment.deliver(&batches).await;
        world.check_endless();
    }
    world.news.notify_waiters();
}

impl<Q: Queue, H: Handler> Environment<Q, H> {
    fn queue(&self) -> &QueueArn {
        self.world.queues(self.number).0
    }

    fn mapping(&self) -> EventSourceMapping {
        EventSourceMapping::new(
            self.world.sqs.clone(),
            self.queue().clone(),
            self.world.plan.batch_size,
        )
    }

    /// What is in the queue now and, if there is a batching window, a little later. Now and then a
    /// message comes twice.
    async fn receive(&self) -> Vec<Batch> {
        let mapping = self.mapping();
        let poll = async || mapping.poll(Duration::ZERO).await.expect("the queue exists");
        let mut batches: Vec<Batch> = poll().await.into_iter().collect();
        if batches.is_empty() {
            return batches;
        }
        if self.is_troubled(self.world.plan.trouble.duplicates) {
            self.show_again(&batches[0]).await;
        }
        if !self.world.plan.window.is_zero() {
            sleep(self.world.plan.window).await;
            batches.extend(poll().await);
        }
        batches
    }

    fn is_troubled(&self, permille: u64) -> bool {
        !self.world.is_calm() && self.dice.happens(permille)
    }

    async fn show_again(&self, batch: &Batch) {
        let event = batch.event(self.queue());
        let record = &event["Records"][0];
        let handle = record["receiptHandle"].as_str().expect("a handle");
        let n = crate::producer::number(record["body"].as_str().expect("a body"))
            .expect("every message bears its mark");
        self.world.show_again(self.queue(), handle, n).await;
    }

    /// Invokes the function, unless it cannot be, and acknowledges.
    async fn deliver(&self, batches: &[Batch]) {
        let world = &self.world;
        let records =
            batches.iter().flat_map(|batch| match &mut batch.event(self.queue())["Records"] {
                Value::Array(records) => std::mem::take(records),
                _ => Vec::new(),
            });
        let records = records.map(|record| self.garbled(record));
        let event = json!({ "Records": records.collect::<Vec<_>>() });
        let number = world.book().begin(world, self.number, &event);
        if self.is_refused(number) {
            world.book().close(number);
            return;
        }
        let end = self.invoke(number, &event).await;
        let answer = match &end {
            End::Answered(Ok(response)) => {
                InvocationResult::Response(serde_json::to_vec(response).expect("JSON"))
            }
            End::Answered(Err(_)) | End::Died | End::Late => InvocationResult::FunctionError,
        };
        let is_lost = self.is_troubled(world.plan.trouble.errors);
        let mut book = world.book();
        match end {
            End::Answered(answer) => book.answered(world, number, answer),
            End::Died => book.died(number),
            End::Late => {
                book.history.violate(None, format!("invocation {number} did not answer in time"));
            }
        }
        if is_lost {
            book.excuse(number, "the answer is lost");
        } else {
            for batch in batches {
                let mapping = self.mapping();
                mapping.acknowledge(batch, &part(&answer, batch)).expect("the queue exists");
            }
        }
        book.conserve(world);
        book.secrecy(world);
        book.close(number);
        drop(book);
        world.news.notify_waiters();
    }

    /// Of some messages nobody can read when they were sent, which says nothing about them.
    fn garbled(&self, mut record: Value) -> Value {
        let n = record["body"]
            .as_str()
            .and_then(crate::producer::number)
            .expect("every message bears its mark");
        let dice = Dice::of(self.world.seed, 2_000_000 + n as u64);
        if dice.happens(self.world.plan.trouble.unreadable) {
            record["attributes"]["SentTimestamp"] =
                dice.pick(&[json!(null), json!("soon"), json!("-1")]);
        }
        record
    }

    /// Whether Lambda does not invoke the function: throttled, or because it takes its messages for
    /// a runaway loop.
    fn is_refused(&self, number: usize) -> bool {
        let world = &self.world;
        let mut book = world.book();
        let row = book.invocations[&number].row;
        book.longest_row = book.longest_row.max(row);
        if world.plan.cuts_loops && row >= LONGEST_ROW {
            if world.plan.recursive_loop == requeue::RecursiveLoop::Terminate {
                book.history.violate(None, format!("{row} invocations in a row led to {number}"));
            }
            book.excuse(number, "refused as a loop");
            return true;
        }
        let is_throttled = self.is_troubled(world.plan.trouble.throttles);
        if is_throttled {
            book.excuse(number, "throttled");
        }
        is_throttled
    }

    async fn invoke(&self, number: usize, event: &Value) -> End {
        let (life, processor, clock) = {
            let mut alive = self.alive.lock().expect("no panic while it is held");
            if alive.0.is_cancelled() {
                *alive = begin(&self.world, self.number, self.connect, self.handler, &self.dice);
            }
            alive.clone()
        };
        let limit = self.world.plan.function_timeout;
        let payload: SqsEvent = serde_json::from_value(event.clone()).expect("lenient");
        let mut context = Context::default();
        let deadline =
            (clock.now() + limit).duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        context.deadline = u64::try_from(deadline.as_millis()).expect("a year we live to see");
        // Killed from outside, as by a time-out that it was not told of.
        let dies = self.is_troubled(self.world.plan.trouble.deaths);
        let death = steps(self.dice.roll(0, u64::try_from(limit.as_millis()).expect("small") / 7));
        let invocation =
            INVOCATION.scope(number, processor.invoke(LambdaEvent::new(payload, context)));
        let mut invocation = Box::pin(invocation);
        tokio::select! {
            biased;
            () = life.cancelled() => End::Died,
            () = sleep(death), if dies => {
                self.world.kill(self.number);
                End::Died
            }
            answer = &mut invocation => End::Answered(answer),
            () = sleep(limit) => End::Late,
        }
    }
}

/// The answer to one of several receives that were handed over together: an id that is in none of
/// them is for each to see.
fn part(answer: &InvocationResult, batch: &Batch) -> InvocationResult {
    let InvocationResult::Response(bytes) = answer else {
        return InvocationResult::FunctionError;
    };
    let mut response: SqsBatchResponse = serde_json::from_slice(bytes).expect("our own answer");
    let ids = batch.message_ids();
    response.batch_item_failures.retain(|item| ids.contains(&item.item_identifier.as_str()));
    InvocationResult::Response(serde_json::to_vec(&response).expect("JSON"))
}
