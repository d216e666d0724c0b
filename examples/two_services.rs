//! One queue, two services: each message calls one of them, and has the scope of that service. So a
//! limit or an outage of one service holds back no message of the other.

#![allow(
    clippy::disallowed_methods,
    clippy::unused_async,
    clippy::unwrap_used,
    reason = "rules of the library"
)]

use std::time::Duration;

use requeue::{Failure, Message, Scope, scoped};

#[derive(serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum Job {
    Pdf { invoice: u32 },
    Mail { invoice: u32 },
}

async fn work(message: Message<Job>) -> Result<(), Failure> {
    match message.body() {
        Job::Pdf { invoice } => print_pdf(*invoice).await,
        Job::Mail { invoice } if message.attempt().get() == 1 => {
            let quota = Failure::quota(format_args!("no mail for invoice {invoice} now"));
            Err(quota.retry_after(Duration::from_secs(3_600)))
        }
        Job::Mail { .. } => Ok(()),
    }
}

async fn print_pdf(invoice: u32) -> Result<(), Failure> {
    println!("printing invoice {invoice}");
    Ok(())
}

fn scope(message: &Message<Job>) -> Scope {
    match message.body() {
        Job::Pdf { .. } => Scope::of("pdf"),
        Job::Mail { .. } => Scope::of("mail"),
    }
}

#[tokio::main]
async fn main() -> Result<(), requeue::Error> {
    requeue::run(scoped(work, scope)).await
}

#[cfg(test)]
mod tests {
    use requeue::testing::World;
    use requeue::{Disposition, Handler, Settings};

    use super::*;

    /// One at a time, so that each message meets the failure of the one before it.
    fn one_at_a_time(settings: &mut Settings) {
        settings.limits.concurrency = 1;
    }

    /// Whether Requeue defers a PDF behind some mails that fail.
    async fn is_deferred_behind<H: Handler<Job>>(mut world: World<H, Job>, mails: u32) -> bool {
        for invoice in 0..mails {
            world.send(Job::Mail { invoice }).await;
        }
        let pdf = world.send(Job::Pdf { invoice: 9 }).await;
        world.invoke().await;
        matches!(world.outcomes(&pdf)[0].disposition, Disposition::Defer { .. })
    }

    #[tokio::test(start_paused = true)]
    async fn a_scope_for_each_service_lets_the_other_go_on() {
        let world = World::with(scoped(work, scope), "jobs", one_at_a_time);
        assert!(!is_deferred_behind(world, 1).await);
        let world = World::with(work, "jobs", one_at_a_time);
        assert!(is_deferred_behind(world, 1).await, "one scope for all");
    }

    /// A handler that calls both services for each message has one scope for it.
    async fn both(message: Message<Job>, failure: Failure) -> Result<(), Failure> {
        match message.body() {
            Job::Mail { .. } if message.attempt().get() == 1 => Err(failure),
            _ => Ok(()),
        }
    }

    async fn behind(mails: u32, failure: fn() -> Failure, policy: &str) -> bool {
        let handler = move |message: Message<Job>| both(message, failure());
        let world = World::with(handler, "jobs", |settings| {
            one_at_a_time(settings);
            settings.set_policy(policy).unwrap();
        });
        is_deferred_behind(world, mails).await
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    #[tokio::test(start_paused = true)]
    async fn in_one_scope_the_failure_decides_about_the_others() {
        let named = || Failure::quota("no mail").retry_after(HOUR);
        assert!(behind(1, named, "{}").await);
        assert!(!behind(5, || Failure::quota("no mail"), "{}").await);
        assert!(!behind(5, || Failure::postpone(HOUR), "{}").await);
        assert!(!behind(5, named, r#"{"maxPauseSeconds": "off"}"#).await);

        let down = || Failure::temporary("no mail");
        assert!(!behind(4, down, "{}").await);
        assert!(behind(5, down, "{}").await, "five in a row open the circuit");
        assert!(!behind(5, down, r#"{"circuitBreaker": "off"}"#).await);
    }
}
