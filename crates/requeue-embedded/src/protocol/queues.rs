//! The operations about queues, and about the tasks that move their messages.

use std::collections::BTreeMap;

use requeue_sqs::epoch_millis;
use serde_json::{Value, json};

use super::{Answer, Context, Fields, queue_url, with};
use crate::engine::error::SqsError;
use crate::engine::{Engine, MoveStatus, MoveTask, check, limits, settings};

/// An unknown attribute differs from one that this queue lacks.
const ATTRIBUTES: &str = "\
    ApproximateNumberOfMessages ApproximateNumberOfMessagesDelayed \
    ApproximateNumberOfMessagesNotVisible ContentBasedDeduplication CreatedTimestamp \
    DeduplicationScope DelaySeconds FifoQueue FifoThroughputLimit KmsDataKeyReusePeriodSeconds \
    KmsMasterKeyId LastModifiedTimestamp MaximumMessageSize MessageRetentionPeriod Policy \
    QueueArn ReceiveMessageWaitTimeSeconds RedriveAllowPolicy RedrivePolicy SqsManagedSseEnabled \
    VisibilityTimeout All";

/// `None` for an operation about messages.
pub(super) fn perform(
    operation: &str,
    engine: &mut Engine,
    asked: &mut Fields,
    context: &Context<'_>,
) -> Result<Option<Value>, SqsError> {
    Ok(Some(match operation {
        "CreateQueue" => {
            let name: String = asked.required("QueueName")?;
            let attributes = asked.optional("Attributes")?.unwrap_or_default();
            // The one field of the model that begins with a small letter.
            let tags = asked.optional("tags")?.unwrap_or_default();
            engine.create_queue(&name, &attributes, tags)?;
            json!({ "QueueUrl": queue_url(engine, context, &name) })
        }
        "GetQueueUrl" => {
            let name: String = asked.required("QueueName")?;
            let owner: Option<String> = asked.optional("QueueOwnerAWSAccountId")?;
            engine.queue(&name)?;
            if owner.is_some_and(|owner| owner != engine.account) {
                return Err(SqsError::no_queue());
            }
            json!({ "QueueUrl": queue_url(engine, context, &name) })
        }
        "ListQueues" => list(engine, asked, context)?,
        "ListDeadLetterSourceQueues" => {
            let name = asked.queue()?;
            engine.queue(&name)?;
            let sources = engine.dead_letter_sources(&name).into_iter();
            let urls: Vec<String> = sources.map(|name| queue_url(engine, context, name)).collect();
            // This field is spelled differently from the one of `ListQueues`.
            json!({ "queueUrls": urls })
        }
        "GetQueueAttributes" => attributes(engine, asked)?,
        "ListQueueTags" => json!({ "Tags": engine.queue(&asked.queue()?)?.tags }),
        "StartMessageMoveTask" => {
            let source: String = asked.required("SourceArn")?;
            let target: Option<String> = asked.optional("DestinationArn")?;
            let rate = asked.optional("MaxNumberOfMessagesPerSecond")?;
            json!({ "TaskHandle": engine.start_move(&source, target.as_deref(), rate)? })
        }
        "ListMessageMoveTasks" => {
            let source: String = asked.required("SourceArn")?;
            let tasks = engine.move_tasks(&source, asked.optional("MaxResults")?)?;
            json!({ "Results": tasks.into_iter().map(task).collect::<Vec<Value>>() })
        }
        "CancelMessageMoveTask" => {
            let handle: String = asked.required("TaskHandle")?;
            json!({ "ApproximateNumberOfMessagesMoved": engine.cancel_move(&handle)? })
        }
        _ => return change(operation, engine, asked),
    }))
}

/// The operations whose responses are empty.
fn change(
    operation: &str,
    engine: &mut Engine,
    asked: &mut Fields,
) -> Result<Option<Value>, SqsError> {
    match operation {
        "SetQueueAttributes" => {
            let attributes = asked.required("Attributes")?;
            engine.set_attributes(&asked.queue()?, &attributes)?;
        }
        "DeleteQueue" => engine.delete_queue(&asked.queue()?)?,
        "PurgeQueue" => engine.queue(&asked.queue()?)?.purge()?,
        "TagQueue" => {
            let tags: BTreeMap<String, String> = asked.required("Tags")?;
            if tags.is_empty() {
                return Err(SqsError::missing("Tags"));
            }
            engine.queue(&asked.queue()?)?.tags.extend(tags);
        }
        "UntagQueue" => {
            let keys: Vec<String> = asked.required("TagKeys")?;
            engine.queue(&asked.queue()?)?.tags.retain(|key, _| !keys.contains(key));
        }
        _ => return Ok(None),
    }
    Ok(Some(json!({})))
}

fn list(engine: &Engine, asked: &mut Fields, context: &Context<'_>) -> Answer {
    let prefix: String = asked.optional("QueueNamePrefix")?.unwrap_or_default();
    let max_results: Option<i64> = asked.optional("MaxResults")?;
    // The token is the last name of the page before.
    let after: String = asked.optional("NextToken")?.unwrap_or_default();
    let all = &limits::LISTED_QUEUES;
    let limit = check::bounds_or(*all.end(), max_results, "MaxResults", all)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut names: Vec<&str> =
        engine.queue_names(&prefix).filter(|name| *name > &*after).take(limit + 1).collect();
    // Without `MaxResults` there is no token. Source: reference, `ListQueues`.
    let more = names.len() > limit;
    names.truncate(limit);
    let next = names.last().filter(|_| more && max_results.is_some());
    let urls: Vec<String> = names.iter().map(|name| queue_url(engine, context, name)).collect();
    Ok(with(json!({ "QueueUrls": urls }), [("NextToken", next.map(|name| json!(name)))]))
}

fn attributes(engine: &mut Engine, asked: &mut Fields) -> Answer {
    let name = asked.queue()?;
    let names: Vec<String> = asked.optional("AttributeNames")?.unwrap_or_default();
    let mut attributes = engine.attributes(&name)?;
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
