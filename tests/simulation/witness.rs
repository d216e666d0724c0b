//! The queue for settling, with a witness: it checks each request before SQS gets it. Now and then
//! the process dies before or after a call.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use requeue::queue::{
    CallError, Confirmation, Description, Outgoing, Queue, QueueArn, ReceiveRequest, Source,
};
use requeue::{Clock, Record};
use tokio::time::Instant;

use crate::producer::number;
use crate::system::World;
use requeue_testkit::dice::Dice;

tokio::task_local! {
    /// The invocation in whose name a call is made. A worker's receivers do not say so: there it
    /// follows from the messages.
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
            self.world
                .book()
                .history
                .note(None, format!("environment {} dies {what}", self.environment));
            self.world.kill(self.environment);
            pending::<()>().await;
        }
    }

    fn request(&self, invocation: usize, bodies: Vec<String>) -> Request {
        let (world, environment) = (Arc::clone(&self.world), self.environment);
        Request {
            world,
            environment,
            invocation,
            bodies,
            began: Instant::now(),
            is_answered: false,
        }
    }

    /// In whose name these messages are deleted or hidden.
    fn by_handle<'a>(
        &self,
        mut handles: impl Iterator<Item = &'a str>,
    ) -> Result<usize, CallError> {
        INVOCATION.try_get().or_else(|_| {
            let handle = handles.next().expect("no request is empty");
            self.world.book().by_handle(self.environment, handle).ok_or_else(foreign)
        })
    }
}

/// A call that is under way.
struct Request {
    world: Arc<World>,
    environment: usize,
    invocation: usize,
    /// The copies that are sent.
    bodies: Vec<String>,
    began: Instant,
    is_answered: bool,
}

impl Request {
    fn answered(mut self, answer: &Result<Vec<Confirmation>, CallError>) {
        let plan = &self.world.plan;
        // Meanwhile a message of a worker may become visible again.
        let is_late = plan
            .processes()
            .is_some_and(|processes| self.began.elapsed() > processes.visibility / 3);
        self.is_answered =
            answer.as_ref().is_ok_and(|all| all.iter().all(Result::is_ok)) && !is_late;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut book = self.world.book();
        book.descendants(&self.world, self.invocation, &self.bodies);
        if !self.is_answered {
            book.trouble(self.invocation, self.environment);
        }
        drop(book);
        self.world.news.notify_waiters();
    }
}

impl<Q: Queue> Queue for Witness<Q> {
    async fn send(
        &self,
        queue: &QueueArn,
        entries: &[Outgoing<'_>],
    ) -> Result<Vec<Confirmation>, CallError> {
        let now = self.clock.now();
        let bodies = entries.iter().map(|entry| entry.body.to_owned()).collect();
        let id = INVOCATION.try_get().or_else(|_| {
            let sender =
                self.world.book().sender(&self.world, self.environment, queue, entries, now);
            sender.ok_or_else(foreign)
        })?;
        self.world.book().sending(&self.world, id, queue, entries, now);
        let request = self.request(id, bodies);
        self.risk("before a send").await;
        let began = Instant::now();
        let answer = self.inner.send(queue, entries).await;
        self.world.book().confirmed(&self.world, id, began, entries, &answer);
        request.answered(&answer);
        self.risk("after a send").await;
        answer
    }

    async fn delete(
        &self,
        queue: &QueueArn,
        receipt_handles: &[&str],
    ) -> Result<Vec<Confirmation>, CallError> {
        let id = self.by_handle(receipt_handles.iter().copied())?;
        self.world.book().deleting(&self.world, id, receipt_handles);
        let request = self.request(id, Vec::new());
        self.risk("before a delete").await;
        let answer = self.inner.delete(queue, receipt_handles).await;
        request.answered(&answer);
        self.world.book().deleted(id, receipt_handles, &answer);
        self.risk("after a delete").await;
        answer
    }

    async fn change_visibility(
        &self,
        queue: &QueueArn,
        entries: &[(&str, Duration)],
    ) -> Result<Vec<Confirmation>, CallError> {
        let id = self.by_handle(entries.iter().map(|(handle, _)| *handle))?;
        self.world.book().hiding(&self.world, id, entries);
        let request = self.request(id, Vec::new());
        self.risk("before a change of visibility").await;
        let answer = self.inner.change_visibility(queue, entries).await;
        request.answered(&answer);
        self.risk("after a change of visibility").await;
        answer
    }
}

impl<Q: Queue + Source> Source for Witness<Q> {
    async fn describe(&self, queue: &QueueArn) -> Result<Description, CallError> {
        self.inner.describe(queue).await
    }

    async fn receive(
        &self,
        queue: &QueueArn,
        ask: ReceiveRequest,
    ) -> Result<Vec<Record>, CallError> {
        self.world.book().asks(&self.world, self.environment);
        let mut asking = Asking {
            world: Arc::clone(&self.world),
            environment: self.environment,
            is_answered: false,
        };
        let answer = self.inner.receive(queue, ask).await;
        asking.is_answered = answer.is_ok();
        drop(asking);
        if let Ok([first, ..]) = answer.as_deref() {
            self.world.book().got(
                &self.world,
                self.environment,
                answer.as_deref().unwrap_or_default(),
            );
            if !self.world.is_calm() && self.dice.happens(self.world.plan.trouble.duplicates) {
                let n =
                    first.body.as_deref().and_then(number).expect("every message bears its mark");
                let handle = first.receipt_handle.as_deref().expect("a handle");
                self.world.show_again(queue, handle, n).await;
            }
            self.risk("after a receive").await;
        }
        answer
    }
}

/// A receive that is under way.
struct Asking {
    world: Arc<World>,
    environment: usize,
    is_answered: bool,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.world.book().asked(&self.world, self.environment, self.is_answered);
    }
}

/// A call about messages that nobody has received.
fn foreign() -> CallError {
    CallError::ambiguous("Foreign")
}
