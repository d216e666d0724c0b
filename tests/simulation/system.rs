//! One run: a producer, a queue, an event source mapping, execution environments and an operator,
//! all from one seed, in virtual time.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use requeue::embedded::{EmbeddedSqs, Fault, MessageState, MessageView};
use requeue::queue::{Queue, QueueArn, Source};
use requeue::table::Table;
use requeue::{Clock, DeadLetterMode, Handler, Settings, SharedTable, bulk};
use requeue_testkit::log::{self, Log};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::book::Book;
use crate::handler::Script;
use crate::history::{Event, History};
use crate::plan::{DeadLetters, Host, Plan, secs};
use crate::table::FaultyStore;
use crate::{control, faults, poller, producer, worker};
use requeue_testkit::dice::Dice;

/// A run in which so many invocations call no handler goes round and round. Where many messages are
/// delivered twice, and their copies too, thousands wait for a limit of a call in 10 seconds.
const MOST_WITHOUT_A_CALL: usize = 50_000;
/// The calls of a message end long before. A forged state may let it wait for 12 hours after each of
/// its receives, where a worker that was started anew does not know when the first one was.
const LONGEST_RUN: Duration = secs(14 * 86_400);
/// Once so many messages are in the queue, trouble ends. Copies of a message that wait for a limit
/// return at the same time, so the work grows by the square of their number.
const MOST_IN_TROUBLE: usize = 120;
/// SQS delivers no message twice more often. Each delivery may be sent on, so the copies of one that
/// waits in a line would never end.
const MOST_SHOWN_AGAIN: usize = 100;

/// What all actors share.
pub struct World {
    pub seed: u64,
    pub plan: Plan,
    pub sqs: EmbeddedSqs,
    pub queue: QueueArn,
    pub dead_letters: QueueArn,
    /// The dead letters of an environment that works on dead letters.
    pub buried: QueueArn,
    /// That of SQS.
    pub clock: Clock,
    pub started: Instant,
    /// What was logged since it was last looked at.
    pub log: Log,
    /// Wakes who waits for messages.
    pub news: Notify,
    pub table: Option<Arc<FaultyStore>>,
    book: Mutex<Book>,
    /// Cancelled when an execution environment dies.
    lives: Mutex<Vec<CancellationToken>>,
    /// Whether so many messages are in the queue that trouble has ended.
    is_crowded: Arc<AtomicBool>,
    /// Whether a request is none of the function's.
    is_aside: Arc<AtomicBool>,
    /// Producer and operators, as long as they have something to do.
    actors: AtomicUsize,
}

impl World {
    fn new(seed: u64, plan: Plan) -> Self {
        let clock = Clock::starting_at(SystemTime::UNIX_EPOCH + secs(1_790_000_000));
        let sqs = EmbeddedSqs::seeded(clock.clone(), "us-east-1", "000000000000", seed);
        let suffix = if plan.is_fifo { ".fifo" } else { "" };
        let retention = ("MessageRetentionPeriod", "1209600");
        let visibility = plan.visibility().to_string();
        let redrive = |to: &QueueArn, most| {
            format!(r#"{{"deadLetterTargetArn":"{to}","maxReceiveCount":{most}}}"#)
        };
        let buried = sqs.create_queue(&format!("buried{suffix}"), [retention]).expect("a queue");
        // SQS counts the receives in the source queue too.
        let bury =
            plan.dead_receives.map(|receives| redrive(&buried, plan.max_receive_count + receives));
        let mut attributes = vec![retention, ("VisibilityTimeout", visibility.as_str())];
        attributes.extend(bury.iter().map(|bury| ("RedrivePolicy", bury.as_str())));
        let dead_letters = sqs.create_queue(&format!("dead{suffix}"), attributes).expect("a queue");
        let redrive = redrive(&dead_letters, plan.max_receive_count);
        let attributes = [
            retention,
            ("VisibilityTimeout", visibility.as_str()),
            ("RedrivePolicy", redrive.as_str()),
        ];
        let queue = sqs.create_queue(&format!("orders{suffix}"), attributes).expect("a queue");
        let lives = plan.clocks.iter().map(|_| CancellationToken::new()).collect();
        let table = plan
            .table
            .map(|faults| FaultyStore::new(clock.clone(), Dice::of(seed, 5), faults, plan.calm));
        Self {
            table: table.map(Arc::new),
            log: Log::default(),
            seed,
            plan,
            sqs,
            queue,
            dead_letters,
            buried,
            clock,
            started: Instant::now(),
            news: Notify::new(),
            book: Mutex::new(Book::new()),
            lives: Mutex::new(lives),
            is_aside: Arc::default(),
            is_crowded: Arc::default(),
            actors: AtomicUsize::new(3),
        }
    }

    pub fn book(&self) -> MutexGuard<'_, Book> {
        // Who panics while it is paused is found out when all is over.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether trouble has ended.
    pub fn is_calm(&self) -> bool {
        self.started.elapsed() > self.plan.calm || self.is_crowded.load(Ordering::Relaxed)
    }

    /// A request that meets no fault.
    pub async fn aside<T>(&self, request: impl Future<Output = T>) -> T {
        self.is_aside.store(true, Ordering::Relaxed);
        // Without a fault it is carried out at once.
        let answer = request.await;
        self.is_aside.store(false, Ordering::Relaxed);
        answer
    }

    pub fn end_actor(&self) {
        self.actors.fetch_sub(1, Ordering::Relaxed);
        self.news.notify_waiters();
    }

    /// Whether nothing is left to do, but for what may be under way.
    pub fn is_quiet(&self) -> bool {
        let is_empty = || {
            let worked_on =
                [Some(&self.queue), self.plan.dead_receives.map(|_| &self.dead_letters)];
            worked_on
                .into_iter()
                .flatten()
                .all(|queue| self.sqs.message_count(queue).expect("the queue exists") == 0)
        };
        let has_failed = self.book().history.violation.is_some();
        has_failed || (self.actors.load(Ordering::Relaxed) == 0 && is_empty())
    }

    /// Whether nothing will happen any more.
    pub fn is_over(&self) -> bool {
        let is_idle = || {
            let book = self.book();
            // Who still works on a message that another delivery of it deleted may send it on.
            book.invocations.is_empty() || book.history.violation.is_some()
        };
        is_idle() && self.is_quiet()
    }

    pub fn check_endless(&self) {
        let in_queue = self.sqs.message_count(&self.queue).expect("the queue exists");
        self.is_crowded.fetch_or(in_queue > MOST_IN_TROUBLE, Ordering::Relaxed);
        let mut book = self.book();
        let without_a_call = book.invoked - book.invoked_by_last_call;
        if without_a_call > MOST_WITHOUT_A_CALL || self.started.elapsed() > LONGEST_RUN {
            book.history.violate(None, "messages go round for ever");
        }
    }

    /// SQS delivers at least once: a message that is in flight can be received again at once. Each
    /// delivery may be sent on and shown again, so a queue with many of them gets no more.
    pub async fn show_again(&self, queue: &QueueArn, handle: &str, n: usize) {
        let in_queue = self.sqs.message_count(queue).expect("the queue exists");
        if in_queue > 4 * self.plan.messages
            || self.book().tracks[n].shown_again >= MOST_SHOWN_AGAIN
        {
            return;
        }
        let shown = [(handle, Duration::ZERO)];
        let shown = self.sqs.change_visibility(queue, &shown);
        self.aside(shown).await.expect("the queue exists")[0].as_ref().expect("it is in flight");
        let mut book = self.book();
        book.tracks[n].is_troubled = true;
        book.tracks[n].shown_again += 1;
        book.history.note(Some(n), "can be received twice");
        drop(book);
        self.news.notify_waiters();
    }

    pub fn life(&self, environment: usize) -> CancellationToken {
        let mut lives = self.lives.lock().expect("no panic while it is held");
        if lives[environment].is_cancelled() {
            lives[environment] = CancellationToken::new();
        }
        lives[environment].clone()
    }

    /// An execution environment ends, with all that runs in it.
    pub fn kill(&self, environment: usize) {
        self.lives.lock().expect("no panic while it is held")[environment].cancel();
    }

    /// The queue that an execution environment works on, and that of its dead letters.
    pub fn queues(&self, environment: usize) -> (&QueueArn, &QueueArn) {
        if self.plan.works_on_dead(environment) {
            (&self.dead_letters, &self.buried)
        } else {
            (&self.queue, &self.dead_letters)
        }
    }

    pub fn messages(&self) -> Vec<MessageView> {
        self.sqs.messages(&self.queue).expect("the queue exists")
    }

    pub fn dead(&self) -> Vec<MessageView> {
        self.sqs.messages(&self.dead_letters).expect("the queue exists")
    }

    pub fn buried(&self) -> Vec<MessageView> {
        self.sqs.messages(&self.buried).expect("the queue exists")
    }

    /// All messages of all queues.
    pub fn all(&self) -> impl Iterator<Item = MessageView> {
        self.messages().into_iter().chain(self.dead()).chain(self.buried())
    }

    /// How long it takes until a message of a queue can be received; `None` when there is none.
    pub fn next_due(&self, queue: &QueueArn) -> Option<Duration> {
        let messages = self.sqs.messages(queue).expect("the queue exists");
        let now = self.clock.now();
        let wait = |message: &MessageView| match message.state {
            MessageState::Visible => Duration::ZERO,
            MessageState::DelayedUntil(until) | MessageState::InFlightUntil(until) => {
                until.duration_since(now).unwrap_or_default()
            }
        };
        // While one message of a FIFO group is in flight, SQS holds the others back.
        let mut held = HashMap::new();
        let in_flight = |it: &&MessageView| matches!(it.state, MessageState::InFlightUntil(_));
        for message in messages.iter().filter(|it| self.plan.is_fifo && in_flight(it)) {
            let wait = wait(message);
            held.entry(&message.group_id)
                .and_modify(|all: &mut _| *all = wait.max(*all))
                .or_insert(wait);
        }
        let due = |message: &MessageView| {
            wait(message).max(held.get(&message.group_id).copied().unwrap_or_default())
        };
        messages.iter().map(due).min()
    }

    /// The time by the clock of an environment.
    pub fn time_of(&self, environment: usize) -> SystemTime {
        let by = secs(self.plan.clocks[environment].unsigned_abs());
        if self.plan.clocks[environment] < 0 {
            self.clock.now() - by
        } else {
            self.clock.now() + by
        }
    }

    pub fn settings(&self, environment: usize, dice: &Dice) -> (Clock, Settings) {
        let plan = &self.plan;
        let clock = Clock::starting_at(self.time_of(environment));
        let dead_letter = match plan.dead_letters {
            DeadLetters::Redrive => DeadLetterMode::Redrive,
            DeadLetters::Annotate => DeadLetterMode::Annotate,
            DeadLetters::Direct => {
                DeadLetterMode::Direct(self.queues(environment).1.url().parse().expect("a URL"))
            }
        };
        let mut settings = Settings::default();
        settings.policy = plan.policy.clone();
        settings.limits = plan.limits.clone();
        settings.strategy = plan.strategy;
        settings.recursive_loop = plan.recursive_loop;
        settings.dead_letter = Some(dead_letter);
        settings.mode = plan.mode;
        settings.wrap = plan.wrap;
        settings.shared_table =
            self.table.clone().map(|table| SharedTable::by(table as Arc<dyn Table>));
        settings.clock = Some(clock.clone());
        settings.sampler = plan.sample.map_or_else(
            || requeue::Sampler::seeded(dice.roll(0, u64::MAX)),
            requeue::Sampler::always,
        );
        (clock, settings)
    }
}

/// What became of a run.
pub struct Ended {
    pub events: Vec<Event>,
    /// What should not have happened, to which message.
    pub violation: Option<(Option<usize>, String)>,
    pub plan: String,
}

impl Ended {
    /// All that is to be known of what should not have happened.
    pub fn report(&self, seed: u64) -> Option<String> {
        let (message, what) = self.violation.as_ref()?;
        let history = History::of(&self.events, *message);
        Some(format!("seed {seed}, message {message:?}: {what}\n{}\n{history}", self.plan))
    }
}

/// Lives through the run of a seed, with the queue that `connect` makes for each environment.
pub fn run<Q: Queue + Source>(seed: u64, connect: fn(&EmbeddedSqs) -> Q) -> Ended {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    log::install();
    runtime.block_on(async {
        let world = Arc::new(World::new(seed, Plan::new(seed)));
        let _listening = world.log.listen();
        let (dice, plan, aside) =
            (Dice::of(seed, 3), world.plan.clone(), Arc::clone(&world.is_aside));
        let (started, is_crowded) = (world.started, Arc::clone(&world.is_crowded));
        world.sqs.set_faults(move |call| {
            // The receives of Lambda's poller are its own affair.
            let is_of_worker = plan.processes().is_some() && call.operation == "ReceiveMessage";
            let is_safe = aside.load(Ordering::Relaxed)
                || !(is_of_worker || call.operation.ends_with("Batch"));
            let is_calm = is_crowded.load(Ordering::Relaxed) || started.elapsed() > plan.calm;
            if is_safe || is_calm || !dice.happens(plan.trouble.of_requests) {
                return Fault::None;
            }
            faults::fault(&dice, call)
        });
        let mut actors = vec![
            tokio::spawn(producer::produce(Arc::clone(&world))),
            tokio::spawn(producer::operate(Arc::clone(&world))),
            tokio::spawn(control::control(Arc::clone(&world))),
        ];
        for environment in 0..world.plan.clocks.len() {
            actors.extend(match world.plan.per_call {
                None => start(&world, environment, connect, |script| script),
                Some(_) => start(&world, environment, connect, bulk),
            });
        }
        for actor in actors {
            if let Err(panic) = actor.await {
                world.book().history.violate(None, panic.to_string());
            }
        }
        let mut book = world.book();
        book.finish(&world);
        let (events, violation) =
            (std::mem::take(&mut book.history.events), book.history.violation.take());
        Ended { events, violation, plan: format!("{:?}", world.plan) }
    })
}

/// The actors of an execution environment.
fn start<Q: Queue + Source, H: Handler>(
    world: &Arc<World>,
    environment: usize,
    connect: fn(&EmbeddedSqs) -> Q,
    handler: fn(Script) -> H,
) -> Vec<JoinHandle<()>> {
    match &world.plan.host {
        Host::Mapping => poller::environment(world, environment, connect, handler),
        Host::Worker(processes) => {
            vec![worker::environment(world, environment, connect, handler, processes)]
        }
    }
}
