//! A Lambda whose spans go to OpenTelemetry: that of each message lies within that of its
//! invocation, and is linked to the trace of whoever sent the message, also when it is retried.
//!
//! `opentelemetry-otlp` takes the place of the exporter, which prints here.

use std::collections::HashMap;

use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use opentelemetry_stdout::SpanExporter;
use requeue::{Error, Failure, Message};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;

async fn charge(message: Message<String>) -> Result<(), Failure> {
    link_to_sender(&message);
    match message.body().as_str() {
        "too early" => Err(Failure::temporary("the bank is closed")),
        _ => Ok(()),
    }
}

/// Links the span of the message: a batch has messages of many traces, of which none can be the
/// parent of all.
fn link_to_sender(message: &Message<String>) {
    let Some(traceparent) = message.traceparent() else {
        return;
    };
    let mut carrier = HashMap::from([("traceparent".to_owned(), traceparent.into_owned())]);
    carrier.extend(message.tracestate().map(|state| ("tracestate".to_owned(), state.to_owned())));
    let sender = TraceContextPropagator::new().extract(&carrier);
    tracing::Span::current().add_link(sender.span().span_context().clone());
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Each span goes out as it ends: between invocations the process is frozen, and spans that
    // waited to be exported together would be too.
    let provider =
        SdkTracerProvider::builder().with_simple_exporter(SpanExporter::default()).build();
    let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("orders"));
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).without_time();
    tracing_subscriber::registry().with(LevelFilter::INFO).with(spans).with(lines).init();
    // Lambda sends SIGTERM before it ends an execution environment in which an extension is
    // registered, as this does.
    let flush = async move || drop(provider.shutdown());
    lambda_runtime::spawn_graceful_shutdown_handler(flush).await;
    requeue::run(charge).await
}
