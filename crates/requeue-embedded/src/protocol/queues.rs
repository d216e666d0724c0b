//! The operations about queues, and about the tasks that move their messages.

use std::collections::BTreeMap;

use requeue_sqs::epoch_millis;
use serde_json::{Value, json};

use super::{Answer, Context, Fields, queue_url, with};
use crate::engine::error::SqsError;
use crate::engine::{Engine, MoveStatus, MoveTask, check, limits, settings};

/// All attributes that a queue can have. They tell an unknown attribute from one that this queue
/// lacks.
const ATTRIBUTES: &str = "\
    ApproximateNumberOfMessages ApproximateNumberOfMessagesDelayed \
    ApproximateNumberOfMessagesNotVisible ContentBasedDeduplication CreatedTimestamp \
    DeduplicationScope DelaySeconds FifoQueue FifoThroughputLimit KmsDataKeyReusePeriodSeconds \
    KmsMasterKeyId LastModifiedTimestamp MaximumMessageSize MessageRetentionPeriod Policy \
    QueueArn ReceiveMessageWaitTimeSeconds RedriveAllowPolicy RedrivePolicy SqsManagedSseEnabled \
    VisibilityTimeout All";

pub(super) fn create(engine: &mut Engine, mut asked: Fields, context: &Context<'_>) -> Answer {
    let name: String = asked.required("QueueName")?;
    let attributes = asked.optional("Attributes")?.unwrap_or_default();
    // The one field of the model that begins with a small letter.
    let tags = asked.optional("tags")?.unwrap_or_default();
    engine.create_queue(&name, &attributes, tags, context.now)?;
    Ok(json!({ "QueueUrl": queue_url(engine, context, &name) }))
}

pub(super) fn url(engine: &mut Engine, mut asked: Fields, context: &Context<'_>) -> Answer {
    let name: String = asked.required("QueueName")?;
    let owner: Option<String> = asked.optional("QueueOwnerAWSAccountId")?;
    engine.queue(&name, context.now)?;
    match owner {
        Some(owner) if owner != engine.account() => Err(SqsError::no_queue()),
        _ => Ok(json!({ "QueueUrl": queue_url(engine, context, &name) })),
    }
}

pub(super) fn list(engine: &mut Engine, mut asked: Fields, context: &Context<'_>) -> Answer {
    let prefix: String = asked.optional("QueueNamePrefix")?.unwrap_or_default();
    let max_results: Option<i64> = asked.optional("MaxResults")?;
    // The token is the last name of the page before.
    let after: String = asked.optional("NextToken")?.unwrap_or_default();
    let all = &limits::LISTED_QUEUES;
    let limit = check::bounds_or(*all.end(), max_results, "MaxResults", all)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut names: Vec<&str> =
        engine.queue_names(&prefix).filter(|name| *name > &*after).take(limit + 1).collect();
    // Without `MaxResults` there is no token, even if queues were left out. Source: reference,
    // `ListQueues`.
    let more = names.len() > limit;
    names.truncate(limit);
    let next = names.last().filter(|_| more && max_results.is_some());
    let urls: Vec<String> = names.iter().map(|name| queue_url(engine, context, name)).collect();
    Ok(with(json!({ "QueueUrls": urls }), [("NextToken", next.map(|name| json!(name)))]))
}

pub(super) fn dead_letter_sources(
    engine: &mut Engine,
    mut asked: Fields,
    context: &Context<'_>,
) -> Answer {
    let name = asked.queue()?;
    engine.queue(&name, context.now)?;
    let sources = engine.dead_letter_sources(&name);
    let urls: Vec<String> = sources.iter().map(|name| queue_url(engine, context, name)).collect();
    // This field is spelled differently from the one of `ListQueues`.
    Ok(json!({ "queueUrls": urls }))
}

pub(super) fn attributes(engine: &mut Engine, mut asked: Fields, context: &Context<'_>) -> Answer {
    let name = asked.queue()?;
    let names: Vec<String> = asked.optional("AttributeNames")?.unwrap_or_default();
    let mut attributes = engine.attributes(&name, context.now)?;
    if let Some(unknown) =
        names.iter().find(|name| !ATTRIBUTES.split(' ').any(|known| known == *name))
    {
        return Err(settings::unknown(unknown));
    }
    if !names.iter().any(|name| name == "All") {
        attributes.retain(|name, _| names.contains(name));
    }
    Ok(json!({ "Attributes": attributes }))
}

pub(super) fn set_attributes(
    engine: &mut Engine,
    mut asked: Fields,
    context: &Context<'_>,
) -> Answer {
    let attributes = asked.required("Attributes")?;
    engine.set_attributes(&asked.queue()?, &attributes, context.now)?;
    Ok(json!({}))
}

pub(super) fn delete(engine: &mut Engine, mut asked: Fields, context: &Context<'_>) -> Answer {
    engine.delete_queue(&asked.queue()?, context.now)?;
    Ok(json!({}))
}

pub(super) fn purge(engine: &mut Engine, mut asked: Fields, context: &Context<'_>) -> Answer {
    engine.queue(&asked.queue()?, context.now)?.purge(context.now)?;
    Ok(json!({}))
}

pub(super) fn tags(engine: &mut Engine, mut asked: Fields, context: &Context<'_>) -> Answer {
    Ok(json!({ "Tags": engine.queue(&asked.queue()?, context.now)?.tags }))
}

pub(super) fn tag(engine: &mut Engine, mut asked: Fields, context: &Context<'_>) -> Answer {
    let tags: BTreeMap<String, String> = asked.required("Tags")?;
    if tags.is_empty() {
        return Err(SqsError::missing("Tags"));
    }
    engine.queue(&asked.queue()?, context.now)?.tags.extend(tags);
    Ok(json!({}))
}

pub(super) fn untag(engine: &mut Engine, mut asked: Fields, context: &Context<'_>) -> Answer {
    let keys: Vec<String> = asked.required("TagKeys")?;
    let queue = engine.queue(&asked.queue()?, context.now)?;
    queue.tags.retain(|key, _| !keys.contains(key));
    Ok(json!({}))
}

pub(super) fn start_move(engine: &mut Engine, mut asked: Fields, context: &Context<'_>) -> Answer {
    let source: String = asked.required("SourceArn")?;
    let target: Option<String> = asked.optional("DestinationArn")?;
    let rate = asked.optional("MaxNumberOfMessagesPerSecond")?;
    let handle = engine.start_move(&source, target.as_deref(), rate, context.now)?;
    Ok(json!({ "TaskHandle": handle }))
}

pub(super) fn moves(engine: &mut Engine, mut asked: Fields, context: &Context<'_>) -> Answer {
    let source: String = asked.required("SourceArn")?;
    let tasks = engine.move_tasks(&source, asked.optional("MaxResults")?, context.now)?;
    Ok(json!({ "Results": tasks.into_iter().map(task).collect::<Vec<Value>>() }))
}

pub(super) fn cancel_move(engine: &mut Engine, mut asked: Fields, context: &Context<'_>) -> Answer {
    let handle: String = asked.required("TaskHandle")?;
    let moved = engine.cancel_move(&handle, context.now)?;
    Ok(json!({ "ApproximateNumberOfMessagesMoved": moved }))
}

fn task(task: &MoveTask) -> Value {
    let running = task.status == MoveStatus::Running;
    let always = json!({
        "Status": task.status,
        "SourceArn": task.source_arn,
        "ApproximateNumberOfMessagesMoved": task.moved,
        "ApproximateNumberOfMessagesToMove": task.to_move,
        "StartedTimestamp": epoch_millis(task.started),
    });
    let sometimes = [
        ("TaskHandle", running.then(|| json!(task.handle))),
        ("DestinationArn", task.destination_arn.as_ref().map(|arn| json!(arn))),
        ("MaxNumberOfMessagesPerSecond", task.rate.map(|rate| json!(rate))),
        ("FailureReason", task.failure.map(|reason| json!(reason))),
    ];
    with(always, sometimes)
}
