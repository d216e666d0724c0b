//! The handler as a worker, in a container. A `Dockerfile`, a task definition for ECS and a
//! Deployment for Kubernetes are beside this file.
//!
//! `QUEUE_URL` and `AWS_REGION` name the queue. The role needs `sqs:ReceiveMessage`,
//! `sqs:DeleteMessage`, `sqs:ChangeMessageVisibility`, `sqs:GetQueueAttributes` and
//! `sqs:SendMessage` on it.

#![allow(
    clippy::disallowed_methods,
    clippy::unused_async,
    clippy::unwrap_used,
    reason = "rules of the library"
)]

use std::env;

use requeue::queue::{QueueUrl, SqsQueue};
use requeue::{Failure, Message, Settings, Worker, WorkerSettings, init_logging};
use tokio::signal::unix::{Signal, SignalKind, signal};

async fn charge(message: Message<String>) -> Result<(), Failure> {
    println!("charging {}", message.body());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), requeue::Error> {
    // At the start, since the first process of a container ignores a signal without a handler.
    let mut terminate = signal(SignalKind::terminate())?;
    init_logging(tracing::Level::INFO);
    let queue: QueueUrl = env::var("QUEUE_URL")?.parse()?;
    let queue = queue.arn("aws", &env::var("AWS_REGION")?);
    let (source, worker) = (SqsQueue::from_env(), WorkerSettings::default());
    let worker = tokio::select! {
        started = Worker::start(charge, source, &queue, Settings::from_env()?, worker) => started?,
        () = received(&mut terminate) => return Ok(()),
    };
    worker.run(received(&mut terminate)).await;
    Ok(())
}

async fn received(signal: &mut Signal) {
    signal.recv().await;
}

#[cfg(test)]
mod tests {
    use requeue::Until;
    use requeue::testing::World;
    use serde_json::Value;

    use super::*;

    /// Both files set the time of a container between SIGTERM and SIGKILL.
    #[test]
    fn the_platforms_wait_longer_than_the_worker_needs() {
        let needed = WorkerSettings::default().shutdown_timeout.as_secs();
        let task: Value = serde_json::from_str(include_str!("task-definition.json")).unwrap();
        let deployment = include_str!("deployment.yaml");
        let (_, kubernetes) = deployment.split_once("terminationGracePeriodSeconds: ").unwrap();
        let kubernetes: u64 = kubernetes.split_whitespace().next().unwrap().parse().unwrap();
        for grace in [task["containerDefinitions"][0]["stopTimeout"].as_u64().unwrap(), kubernetes]
        {
            assert_eq!(grace, needed + 10);
        }
        // Fargate allows at most 120 s.
        assert!(needed + 10 <= 120);
    }

    /// A shell would be the first process, and would not pass the signal on.
    #[test]
    fn the_worker_is_the_first_process_of_its_container() {
        let image = include_str!("Dockerfile");
        assert!(image.lines().any(|line| line == r#"ENTRYPOINT ["/worker"]"#), "{image}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_empties_its_queue() {
        let world = World::new(charge);
        world.send_text("order 1").await;
        let mut settings = WorkerSettings::default();
        settings.until = Until::Empty;
        let worker = Worker::start(
            charge,
            world.sqs().clone(),
            world.queue(),
            Settings::default(),
            settings,
        );
        let progress = worker.await.unwrap().run(std::future::pending()).await;
        assert_eq!(progress.completed, 1);
    }
}
