//! Several handlers at work on the messages of a batch: who takes which, and what becomes of one that does not end.
//!
//! Handlers have threads of their own. Who is hired to work there takes one message after the other, without waking this side for each;
//! and this side, which no handler can block, keeps the time. Takes no decision about a message.

use std::mem;
use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};
use std::vec;

use tokio::sync::Notify;
use tokio::task::{consume_budget, yield_now};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use tracing::Span;

use super::call::{Handled, reply};
use super::{BatchProcessor, Times, Turn};
use crate::disposition::Disposition;
use crate::gate::{Change, Pass, Reply};
use crate::handler::Handler;
use crate::message::{Body, Delivery};
use crate::queue::Queue;
use crate::settings::Mode;
use crate::settle::Verdict;

/// The clock is looked at no more often for the sake of messages that wait, however short a handler's time is.
const LEAST_BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// A handler that runs for so long is not waited for: others are hired meanwhile, and have their turn on its thread afterwards.
const LONG_RUN: Duration = Duration::from_millis(1);

impl<H, Q, T> BatchProcessor<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// Gate, handle, classify, decide: from deliveries to what is to happen to each of them, in the order in which that is known.
    pub(super) async fn work(&self, deliveries: Vec<Arc<Delivery>>, times: &Times, mut decided: impl FnMut(Verdict)) {
        if deliveries.is_empty() {
            return;
        }
        let hands = self.inner.limits.concurrency.max(1).min(deliveries.len());
        let board = Board {
            undecided: deliveries.len(),
            waiting: deliveries.into_iter(),
            desks: Vec::with_capacity(hands),
            decided: Vec::new(),
            has_waited: false,
        };
        let crew = Crew {
            processor: self.clone(),
            times: times.clone(),
            invocation: Span::current(),
            board: Mutex::new(board),
            news: Notify::new(),
        };
        let mut crew = Hired { crew: Arc::new(crew), tasks: Vec::with_capacity(hands) };
        // One is enough as long as no handler takes its time, and no other thread is woken.
        crew.hire(1);
        let mut to_hire = hands - 1;
        // A message that begins later has no earlier limit.
        let limit = crew.alarm();
        let first = if to_hire > 0 { limit.min(Instant::now() + LONG_RUN) } else { limit };
        let mut alarm = pin!(sleep_until(first));
        let mut cancelled = pin!(times.stop.running.cancelled());
        let mut is_running = true;
        loop {
            let (verdicts, undecided) = crew.decided();
            verdicts.into_iter().for_each(&mut decided);
            if undecided == 0 {
                break;
            }
            tokio::select! {
                biased;
                () = crew.news.notified() => {
                    if crew.board().has_waited {
                        crew.hire(mem::take(&mut to_hire));
                    }
                    continue;
                }
                () = &mut cancelled, if is_running => {
                    is_running = false;
                    crew.close();
                    crew.end_all();
                }
                () = &mut alarm => {
                    let abandoned = crew.end_overdue();
                    crew.hire(abandoned + mem::take(&mut to_hire));
                }
            }
            if Instant::now() >= times.cutoff {
                crew.close();
            }
            alarm.as_mut().reset(crew.alarm());
        }
    }
}

/// Those who work on the messages. They begin with none any more when this is dropped.
struct Hired<H, Q, T> {
    crew: Arc<Crew<H, Q, T>>,
    tasks: Vec<AbortOnDropHandle<()>>,
}

impl<H, Q, T> Hired<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    fn hire(&mut self, count: usize) {
        for _ in 0..count {
            let desk = Desk { crew: Arc::clone(&self.crew), number: self.crew.new_desk() };
            self.tasks.push(AbortOnDropHandle::new(self.crew.processor.inner.handlers.spawn(desk.work())));
        }
    }
}

impl<H, Q, T> Deref for Hired<H, Q, T> {
    type Target = Crew<H, Q, T>;

    fn deref(&self) -> &Self::Target {
        &self.crew
    }
}

impl<H, Q, T> Drop for Hired<H, Q, T> {
    fn drop(&mut self) {
        let mut board = self.crew.board();
        let waiting = mem::take(&mut board.waiting);
        // A blocked handler keeps the board, and must not keep its neighbours' passes.
        let jobs: Vec<_> = board.desks.iter_mut().map(Option::take).collect();
        drop(board);
        drop((waiting, jobs));
    }
}

/// What those who work on the messages share.
struct Crew<H, Q, T> {
    processor: BatchProcessor<H, Q, T>,
    times: Times,
    invocation: Span,
    board: Mutex<Board>,
    /// There are verdicts for which somebody waits, or others are to be hired.
    news: Notify,
}

/// Where each message is: it waits, or is on one desk, or is decided.
struct Board {
    waiting: vec::IntoIter<Arc<Delivery>>,
    desks: Vec<Option<Job>>,
    decided: Vec<Verdict>,
    undecided: usize,
    /// Whether a handler had to wait while there were messages for others.
    has_waited: bool,
}

/// A message that is worked on.
struct Job {
    delivery: Arc<Delivery>,
    turn: Turn,
    /// For what it calls, while it does.
    pass: Option<Pass>,
    /// Why its handler is to end, once it is.
    end: Option<End>,
    /// When that is looked after next.
    due: Instant,
    /// Who is to be told.
    waker: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    TimeOut,
    Stop,
}

impl Job {
    fn end(&mut self, why: End, due: Instant) {
        (self.end, self.due) = (Some(why), due);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl<H, Q, T> Crew<H, Q, T> {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_desk(&self) -> usize {
        let mut board = self.board();
        board.desks.push(None);
        board.desks.len() - 1
    }

    /// The verdicts that came since this was asked last, and how many are still to come.
    fn decided(&self) -> (Vec<Verdict>, usize) {
        let mut board = self.board();
        (mem::take(&mut board.decided), board.undecided)
    }
}

impl<H, Q, T> Crew<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// When the next handler may have to end, be it of a message that still waits.
    fn alarm(&self) -> Instant {
        let board = self.board();
        let now = Instant::now();
        let begins = (!board.waiting.as_slice().is_empty())
            .then(|| self.times.limit(now).max((now + LEAST_BETWEEN_LOOKS).min(self.times.cutoff)));
        let runs = board.desks.iter().flatten().map(|job| job.due).min();
        begins.into_iter().chain(runs).min().unwrap_or(self.times.window.deadline)
    }

    fn end_all(&self) {
        let due = Instant::now() + self.times.grace;
        for job in self.board().desks.iter_mut().flatten().filter(|job| job.end.is_none()) {
            job.end(End::Stop, due);
        }
    }

    /// Ends the handlers whose time is over. Returns how many did not end when they were to: their threads are blocked.
    fn end_overdue(&self) -> usize {
        let now = Instant::now();
        let mut abandoned = Vec::new();
        for desk in &mut self.board().desks {
            match desk {
                Some(job) if job.due > now => {}
                Some(job) if job.end.is_none() => job.end(End::TimeOut, now + self.times.grace),
                desk => abandoned.extend(desk.take()),
            }
        }
        let count = abandoned.len();
        for job in abandoned {
            let verdict = self.processor.conclude(&job.delivery, &job.turn, Handled::Abandoned);
            let had_its_time = job.end == Some(End::TimeOut) && job.turn.limit < self.times.cutoff;
            let at = verdict.at;
            let change = hear(job.pass, reply(&Handled::Abandoned, had_its_time), at);
            self.post(self.board(), verdict);
            self.say(change);
        }
        count
    }

    /// Nothing begins any more.
    fn close(&self) {
        let waiting = mem::take(&mut self.board().waiting);
        for delivery in waiting {
            let turn = self.processor.turn(&self.times);
            let verdict = self.processor.uncalled(&delivery, &turn, &self.times);
            let verdict = verdict.unwrap_or_else(|| self.processor.conclude(&delivery, &turn, Handled::NotStarted));
            self.post(self.board(), verdict);
        }
    }

    /// Puts a verdict on the board. Nobody is woken for what is done, unless it is deleted at once.
    fn post(&self, mut board: MutexGuard<'_, Board>, verdict: Verdict) {
        board.undecided -= 1;
        let is_done = matches!(verdict.disposition, Disposition::Complete);
        let is_news = !is_done || self.times.deletes_done || board.undecided == 0;
        board.decided.push(verdict);
        drop(board);
        if is_news {
            self.news.notify_one();
        }
    }

    fn say(&self, change: Option<Change>) {
        let is_report = self.processor.inner.mode == Mode::Report;
        match change {
            Some(Change::Opened) if is_report => tracing::warn!(
                parent: &self.invocation,
                "circuit would open: REQUEUE_MODE is report, so every message is still handled"
            ),
            Some(Change::Opened) => tracing::warn!(
                parent: &self.invocation,
                "circuit opened: deferring messages, probing with a few of them"
            ),
            Some(Change::Closed) => tracing::info!(parent: &self.invocation, "circuit closed"),
            None => {}
        }
    }
}

/// The place of one who works on the messages, a task on the handlers' threads.
pub(super) struct Desk<H, Q, T> {
    crew: Arc<Crew<H, Q, T>>,
    number: usize,
}

impl<H, Q, T> Desk<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// Takes message after message, until none is left or this one has been abandoned.
    async fn work(self) {
        let Crew { processor, times, .. } = &*self.crew;
        while let Some((delivery, turn)) = self.take() {
            let (verdict, reply) = if let Some(verdict) = processor.uncalled(&delivery, &turn, times) {
                (verdict, Reply::Silent)
            } else {
                let handled = processor.call(&delivery, &turn, &self).await;
                let reply = reply(&handled, turn.limit < times.cutoff);
                (processor.conclude(&delivery, &turn, handled), reply)
            };
            let is_long = verdict.elapsed.is_some_and(|elapsed| elapsed >= LONG_RUN);
            if !self.hand_in(verdict, reply) {
                break;
            }
            // Who never has to wait would keep all else from this thread.
            if is_long {
                yield_now().await;
            } else {
                consume_budget().await;
            }
        }
    }

    fn take(&self) -> Option<(Arc<Delivery>, Turn)> {
        let mut board = self.crew.board();
        let delivery = board.waiting.next()?;
        let turn = self.crew.processor.turn(&self.crew.times);
        let due = turn.limit;
        let job = Job { delivery: Arc::clone(&delivery), turn, pass: None, end: None, due, waker: None };
        board.desks[self.number] = Some(job);
        Some((delivery, turn))
    }

    /// Whether there is another message to take: not if this one has been given up meanwhile. Then the task ends with its last verdict,
    /// and outlives no batch.
    fn hand_in(&self, verdict: Verdict, reply: Reply) -> bool {
        let mut board = self.crew.board();
        let Some(job) = board.desks[self.number].take() else { return false };
        let goes_on = !board.waiting.as_slice().is_empty();
        // Before anybody can see the verdict: the next message goes by it.
        let change = hear(job.pass, reply, verdict.at);
        self.crew.post(board, verdict);
        self.crew.say(change);
        goes_on
    }

    /// In whose span its log lines belong.
    pub(super) fn invocation(&self) -> &Span {
        &self.crew.invocation
    }

    /// From now on the message's handler calls what the pass is for; `false` if it is to end before it does.
    pub(super) fn note(&self, pass: Pass) -> bool {
        match &mut self.crew.board().desks[self.number] {
            Some(job @ Job { end: None, .. }) => job.pass = Some(pass),
            _ => return false,
        }
        true
    }

    /// Whether the handler, which has to wait, is to end instead.
    pub(super) fn poll_end(&self, context: &Context<'_>) -> Poll<Handled> {
        let mut board = self.crew.board();
        match &mut board.desks[self.number] {
            None => return Poll::Ready(Handled::Abandoned),
            Some(Job { end: Some(End::TimeOut), .. }) => return Poll::Ready(Handled::out_of_time()),
            Some(Job { end: Some(End::Stop), .. }) => return Poll::Ready(Handled::Interrupted),
            Some(job) => match &job.waker {
                Some(waker) if waker.will_wake(context.waker()) => {}
                _ => job.waker = Some(context.waker().clone()),
            },
        }
        if !board.has_waited && !board.waiting.as_slice().is_empty() {
            board.has_waited = true;
            drop(board);
            self.crew.news.notify_one();
        }
        Poll::Pending
    }
}

/// Notes what a call that ended says about its callee.
fn hear(pass: Option<Pass>, reply: Reply, at: SystemTime) -> Option<Change> {
    pass.and_then(|pass| pass.give_back(reply, at))
}
