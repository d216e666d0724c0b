//! The queue as settling calls it, with somebody who looks on: what is asked for is checked before SQS hears of it, and now and then the
//! process dies before or after a call.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use requeue::Clock;
use requeue::queue::{CallError, Confirmation, Outgoing, Queue, QueueArn};
use tokio::time::Instant;

use crate::dice::Dice;
use crate::producer::number;
use crate::system::World;

tokio::task_local! {
    /// The invocation in whose name a call is made.
    pub static INVOCATION: usize;
}

pub struct Witness<Q> {
    pub inner: Q,
    pub world: Arc<World>,
    pub environment: usize,
    pub clock: Clock,
    pub dice: Dice,
}

impl<Q> Witness<Q> {
    /// Now and then the process ends here.
    async fn risk(&self, what: &str) {
        if !self.world.is_calm() && self.dice.happens(self.world.plan.trouble.deaths / 4) {
            self.world.book().history.note(None, format!("environment {} dies {what}", self.environment));
            self.world.kill(self.environment);
            pending::<()>().await;
        }
    }

    fn request(&self, numbers: Vec<usize>) -> Request {
        let (world, environment) = (Arc::clone(&self.world), self.environment);
        Request { world, environment, invocation: INVOCATION.get(), numbers, is_answered: false }
    }
}

/// A call that is under way.
struct Request {
    world: Arc<World>,
    environment: usize,
    invocation: usize,
    /// The messages that are sent.
    numbers: Vec<usize>,
    is_answered: bool,
}

impl Request {
    fn answered(mut self, answer: &Result<Vec<Confirmation>, CallError>) {
        self.is_answered = answer.as_ref().is_ok_and(|all| all.iter().all(Result::is_ok));
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut book = self.world.book();
        book.descendants(&self.world, self.invocation, &self.numbers);
        if !self.is_answered {
            book.trouble(self.invocation, self.environment);
        }
        drop(book);
        self.world.news.notify_waiters();
    }
}

impl<Q: Queue> Queue for Witness<Q> {
    async fn send(&self, queue: &QueueArn, entries: &[Outgoing<'_>]) -> Result<Vec<Confirmation>, CallError> {
        let now = self.clock.now();
        self.world.book().sending(&self.world, INVOCATION.get(), queue, entries, now);
        let numbers: Vec<usize> = entries.iter().filter_map(|entry| number(entry.body)).collect();
        let request = self.request(numbers);
        self.risk("before a send").await;
        let began = Instant::now();
        let answer = self.inner.send(queue, entries).await;
        self.world.book().confirmed(&self.world, INVOCATION.get(), began, entries, &answer);
        request.answered(&answer);
        self.risk("after a send").await;
        answer
    }

    async fn delete(&self, queue: &QueueArn, receipt_handles: &[&str]) -> Result<Vec<Confirmation>, CallError> {
        self.world.book().deleting(INVOCATION.get(), receipt_handles);
        let request = self.request(Vec::new());
        self.risk("before a delete").await;
        let answer = self.inner.delete(queue, receipt_handles).await;
        request.answered(&answer);
        self.risk("after a delete").await;
        answer
    }

    async fn change_visibility(
        &self,
        queue: &QueueArn,
        entries: &[(&str, Duration)],
    ) -> Result<Vec<Confirmation>, CallError> {
        self.world.book().hiding(INVOCATION.get(), entries);
        let request = self.request(Vec::new());
        self.risk("before a change of visibility").await;
        let answer = self.inner.change_visibility(queue, entries).await;
        request.answered(&answer);
        self.risk("after a change of visibility").await;
        answer
    }
}
