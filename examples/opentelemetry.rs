//! A Lambda that sends its spans to OpenTelemetry. The span of a message lies within the span of
//! its invocation. On every attempt it is linked to the trace of the sender.
//!
//! The exporter here prints. In your function, use that of `opentelemetry-otlp` instead.

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

/// Links the span of the message to the sender's trace. It cannot be a child of that trace, since
/// the messages of one batch belong to many traces.
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
    // Export each span when it ends. Between invocations Lambda freezes the process, and spans that
    // wait for a joint export with it.
    let provider =
        SdkTracerProvider::builder().with_simple_exporter(SpanExporter::default()).build();
    let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("orders"));
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).without_time();
    tracing_subscriber::registry().with(LevelFilter::INFO).with(spans).with(lines).init();
    // Lambda sends SIGTERM before it ends an execution environment, but only if an extension is
    // registered. This handler registers one.
    let flush = async move || drop(provider.shutdown());
    lambda_runtime::spawn_graceful_shutdown_handler(flush).await;
    requeue::run(charge).await
}
