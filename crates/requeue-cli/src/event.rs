//! `requeue event`. The embedded queue makes the event, so its ids, digests and times are valid.

use std::process::ExitCode;
use std::time::Duration;

use requeue::Clock;
use requeue::embedded::{EmbeddedSqs, EventSourceMapping};
use requeue::queue::Outgoing;
use uuid::Uuid;

use crate::send::GivenMessage;
use crate::{Error, output};

#[derive(clap::Args)]
#[command(after_help = "The receipt handles belong to no real queue. If your function deletes or \
                        sends messages, use `requeue serve --function`, which gives it a queue.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    message: GivenMessage,
    /// The queue's name in the event. With a name that ends in .fifo, messages have the attributes
    /// of a FIFO queue.
    #[arg(long, value_name = "NAME", default_value = "orders")]
    queue: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(event(arguments))
}

async fn event(arguments: &Arguments) -> Result<ExitCode, Error> {
    let Arguments { message, queue: name } = arguments;
    let sqs = EmbeddedSqs::new(Clock::system());
    let queue = sqs.create_queue(name, []).map_err(|error| format!("--queue {name}: {error}"))?;
    let is_fifo = name.strip_suffix(".fifo").is_some();
    // Every message of a FIFO queue has a group.
    let group = message.group.as_deref().or(is_fifo.then_some("group"));
    let (body, attributes) = (message.body()?, message.attributes());
    for _ in 0..message.count {
        let id = is_fifo.then(|| Uuid::new_v4().to_string());
        let mut entry = Outgoing::new(&body, &attributes);
        (entry.group_id, entry.deduplication_id) = (group, id.as_deref());
        sqs.put(&queue, &entry).map_err(|error| format!("the message is invalid: {error}"))?;
    }
    let mapping = EventSourceMapping::new(sqs, queue.clone(), message.count.into());
    let batch = mapping.poll(Duration::ZERO).await?.ok_or("the queue is empty")?;
    output::json(&batch.event(&queue))?;
    Ok(ExitCode::SUCCESS)
}
