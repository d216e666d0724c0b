//! A worker in a container, with metrics for OpenTelemetry. Lambda has CloudWatch's embedded metrics
//! instead (`REQUEUE_METRICS`).
//!
//! The exporter here prints every minute. In your worker, use that of `opentelemetry-otlp` or
//! `opentelemetry-prometheus` instead.

#![allow(
    clippy::disallowed_methods,
    clippy::unused_async,
    clippy::unwrap_used,
    reason = "rules of the library"
)]

use std::env;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, MeterProvider, UpDownCounter};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_stdout::MetricExporter;
use requeue::queue::{QueueUrl, SqsQueue};
use requeue::{
    Event, Failure, Message, Observer, Observers, Settings, Worker, WorkerSettings, init_logging,
};
use tokio::signal::unix::{SignalKind, signal};

struct Metrics {
    /// Settled messages, by disposition, class and settlement.
    messages: Counter<u64>,
    handler_seconds: Histogram<f64>,
    open_circuits: UpDownCounter<i64>,
    failed_receives: Counter<u64>,
}

impl Metrics {
    fn of(meter: &Meter) -> Self {
        Self {
            messages: meter.u64_counter("requeue.messages").build(),
            handler_seconds: meter.f64_histogram("requeue.handler.duration").build(),
            open_circuits: meter.i64_up_down_counter("requeue.circuits.open").build(),
            failed_receives: meter.u64_counter("requeue.receives.failed").build(),
        }
    }
}

impl Observer for Metrics {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Settled(outcome) => {
                let class = outcome.class.map_or("none", |class| class.as_str());
                let attributes = [
                    KeyValue::new("disposition", outcome.disposition.as_str()),
                    KeyValue::new("class", class),
                    KeyValue::new("settlement", outcome.settlement.as_str()),
                ];
                self.messages.add(1, &attributes);
                if let Some(elapsed) = outcome.elapsed {
                    self.handler_seconds.record(elapsed.as_secs_f64(), &attributes[..2]);
                }
            }
            Event::CircuitOpened { .. } => self.open_circuits.add(1, &[]),
            Event::CircuitClosed { .. } => self.open_circuits.add(-1, &[]),
            Event::ReceivingFailed { code, .. } => {
                self.failed_receives.add(1, &[KeyValue::new("code", (*code).to_owned())]);
            }
            _ => {}
        }
    }
}

async fn charge(message: Message<String>) -> Result<(), Failure> {
    println!("charging {}", message.body());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut terminate = signal(SignalKind::terminate())?;
    init_logging(tracing::Level::INFO);
    let provider =
        SdkMeterProvider::builder().with_periodic_exporter(MetricExporter::default()).build();
    let metrics = Metrics::of(&provider.meter("requeue"));
    let mut settings = Settings::from_env()?;
    settings.observers = Observers::default().with(metrics);
    let queue: QueueUrl = env::var("QUEUE_URL")?.parse()?;
    let queue = queue.arn("aws", &env::var("AWS_REGION")?);
    let (source, worker) = (SqsQueue::from_env(), WorkerSettings::default());
    let worker = tokio::select! {
        started = Worker::start(charge, source, &queue, settings, worker) => started?,
        _ = terminate.recv() => return Ok(()),
    };
    let shutdown = async {
        terminate.recv().await;
    };
    worker.run(shutdown).await;
    provider.shutdown()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use opentelemetry_sdk::metrics::InMemoryMetricExporter;
    use requeue::testing::World;

    use super::*;

    async fn fail_once(message: Message) -> Result<(), Failure> {
        if message.retry_count() == 0 { Err(Failure::temporary("later")) } else { Ok(()) }
    }

    #[tokio::test(start_paused = true)]
    async fn each_settled_message_is_counted() {
        let exporter = InMemoryMetricExporter::default();
        let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
        let metrics = Metrics::of(&provider.meter("requeue"));
        let mut world = World::with(fail_once, "orders", |settings| {
            settings.observers = Observers::default().with(metrics);
        });
        world.send_text("{}").await;
        world.run_until_empty().await;
        provider.force_flush().unwrap();
        let counted = format!("{:?}", exporter.get_finished_metrics().unwrap());
        for disposition in ["requeue", "complete"] {
            assert!(counted.contains(disposition), "{counted}");
        }
        assert!(counted.contains("requeue.handler.duration"), "{counted}");
    }
}
