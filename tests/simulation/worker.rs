//! The other host: an execution environment is a process with a worker. Now and then the process
//! gets a signal to end, or is killed, and another one starts.

use std::sync::Arc;
use std::time::Duration;

use requeue::embedded::EmbeddedSqs;
use requeue::queue::{Queue, Source};
use requeue::{Handler, Worker, WorkerSettings};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::handler::Script;
use crate::life::Life;
use crate::plan::{Processes, secs, steps};
use crate::system::World;
use crate::witness::Witness;
use requeue_testkit::dice::Dice;

/// Between two looks at a worker. What comes at the very moment of something else would make a
/// history depend on tokio's own dice.
const LOOK: Duration = Duration::from_millis(30_003);

/// No process is needed as long as nothing can be received for more than this.
const IDLE: Duration = secs(120);

pub fn environment<Q: Queue + Source, H: Handler>(
    world: &Arc<World>,
    number: usize,
    connect: fn(&EmbeddedSqs) -> Q,
    handler: fn(Script) -> H,
    processes: &Processes,
) -> JoinHandle<()> {
    tokio::spawn(live(Arc::clone(world), number, connect, handler, processes.clone()))
}

async fn live<Q: Queue + Source, H: Handler>(
    world: Arc<World>,
    number: usize,
    connect: fn(&EmbeddedSqs) -> Q,
    handler: fn(Script) -> H,
    processes: Processes,
) {
    let dice = Dice::of(world.seed, 100 + number as u64);
    while !world.is_over() {
        let killed = world.life(number);
        let worker = start(&world, number, connect, handler, &dice, &processes).await;
        let time = |permille| (!world.is_calm() && dice.happens(permille)).then(|| moment(&dice));
        let (end, death) = (time(processes.ends), time(2 * world.plan.trouble.deaths));
        let has_ended = tokio::select! {
            biased;
            () = killed.cancelled() => false,
            () = sleep(death.unwrap_or_default()), if death.is_some() => false,
            _ = worker.run(told_to_end(&world, number, end)) => true,
        };
        drop(worker);
        if has_ended {
            world.book().has_ended(&world, number);
        } else {
            world.book().was_killed(&world, number);
        }
        sleep(moment(&dice) / 10).await;
        while is_idle(&world, number) && !world.is_over() {
            let due = world.next_due(world.queues(number).0).unwrap_or(secs(900));
            let _ = timeout(due.saturating_sub(IDLE), world.news.notified()).await;
        }
    }
    world.news.notify_waiters();
}

fn is_idle(world: &World, number: usize) -> bool {
    world.next_due(world.queues(number).0).is_none_or(|due| due > IDLE)
}

/// Off the times of everything else.
fn moment(dice: &Dice) -> Duration {
    steps(dice.pick(&[dice.roll(0, 300), dice.roll(0, 20_000)])) + Duration::from_millis(3)
}

async fn start<Q: Queue + Source, H: Handler>(
    world: &Arc<World>,
    number: usize,
    connect: fn(&EmbeddedSqs) -> Q,
    handler: fn(Script) -> H,
    dice: &Dice,
    processes: &Processes,
) -> Worker<H, Witness<Q>> {
    let (clock, settings) = world.settings(number, dice);
    world.book().born(number);
    world.book().lives.insert(number, Life::new());
    let witness = Witness {
        inner: connect(&world.sqs),
        world: Arc::clone(world),
        environment: number,
        clock,
        dice: dice.clone(),
    };
    let script = Script { world: Arc::clone(world), environment: number };
    let mut worker = WorkerSettings::default();
    worker.receivers = Some(world.plan.concurrency);
    worker.shutdown_timeout = processes.shutdown_timeout;
    let queue = world.queues(number).0;
    Worker::start(handler(script), witness, queue, settings, worker)
        .await
        .expect("all is as it should be")
}

/// When its time has come, or there is nothing to do for a while.
async fn told_to_end(world: &World, number: usize, end: Option<Duration>) {
    let looks = async {
        loop {
            sleep(LOOK).await;
            world.book().look_after(number);
            world.check_endless();
            if is_idle(world, number) || world.is_quiet() {
                break;
            }
        }
    };
    // None comes after so long.
    let _ = timeout(end.unwrap_or(secs(30 * 86_400)), looks).await;
    world.book().told_to_end(number);
}
