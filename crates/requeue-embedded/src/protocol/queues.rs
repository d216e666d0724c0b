//! The operations about queues.

use std::collections::BTreeMap;

use super::shapes::{
    Attributes, CreateQueue, GetQueueAttributes, GetQueueUrl, ListQueues, Nothing, OfQueue,
    QueueUrl, Queues, SetQueueAttributes, Sources, TagQueue, Tags, UntagQueue,
};
use super::{Context, queue_name, queue_url};
use crate::engine::error::{ErrorCode, SqsError};
use crate::engine::{Engine, limits, settings};

/// All attributes that a queue can have. They tell an unknown attribute from one that this queue
/// lacks.
const ATTRIBUTES: [&str; 22] = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
    "ContentBasedDeduplication",
    "CreatedTimestamp",
    "DeduplicationScope",
    "DelaySeconds",
    "FifoQueue",
    "FifoThroughputLimit",
    "KmsDataKeyReusePeriodSeconds",
    "KmsMasterKeyId",
    "LastModifiedTimestamp",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "Policy",
    "QueueArn",
    "ReceiveMessageWaitTimeSeconds",
    "RedriveAllowPolicy",
    "RedrivePolicy",
    "SqsManagedSseEnabled",
    "VisibilityTimeout",
    "All",
];

pub(super) fn create(
    engine: &mut Engine,
    asked: &CreateQueue,
    context: &Context<'_>,
) -> Result<QueueUrl, SqsError> {
    let none = BTreeMap::new();
    let attributes = asked.attributes.as_ref().unwrap_or(&none);
    let tags = asked.tags.clone().unwrap_or_default();
    engine.create_queue(&asked.queue_name, attributes, tags, context.now)?;
    Ok(QueueUrl { queue_url: queue_url(engine, context, &asked.queue_name) })
}

pub(super) fn url(
    engine: &mut Engine,
    asked: &GetQueueUrl,
    context: &Context<'_>,
) -> Result<QueueUrl, SqsError> {
    engine.queue(&asked.queue_name, context.now)?;
    match &asked.owner {
        Some(owner) if owner != engine.account() => Err(SqsError::no_queue()),
        _ => Ok(QueueUrl { queue_url: queue_url(engine, context, &asked.queue_name) }),
    }
}

pub(super) fn list(
    engine: &mut Engine,
    asked: &ListQueues,
    context: &Context<'_>,
) -> Result<Queues, SqsError> {
    let prefix = asked.queue_name_prefix.as_deref().unwrap_or_default();
    let limit = match asked.max_results {
        None => limits::LISTED_QUEUES,
        Some(max) => usize::try_from(max)
            .ok()
            .filter(|max| (1..=limits::LISTED_QUEUES).contains(max))
            .ok_or_else(|| {
                SqsError::invalid_value(max, "MaxResults", "MaxResults must be >= 1 and <= 1000.")
            })?,
    };
    // The token is the last name of the page before.
    let after = asked.next_token.as_deref().unwrap_or_default();
    let mut names: Vec<&str> =
        engine.queue_names(prefix).filter(|name| *name > after).take(limit + 1).collect();
    // Without `MaxResults` there is no token, even if queues were left out. Source: reference,
    // `ListQueues`.
    let more = names.len() > limit;
    names.truncate(limit);
    let next_token = names.last().filter(|_| more && asked.max_results.is_some());
    Ok(Queues {
        next_token: next_token.map(|name| (*name).to_owned()),
        queue_urls: names.iter().map(|name| queue_url(engine, context, name)).collect(),
    })
}

pub(super) fn dead_letter_sources(
    engine: &mut Engine,
    asked: &OfQueue,
    context: &Context<'_>,
) -> Result<Sources, SqsError> {
    let name = queue_name(&asked.queue_url);
    engine.queue(name, context.now)?;
    let sources = engine.dead_letter_sources(name);
    Ok(Sources {
        queue_urls: sources.iter().map(|name| queue_url(engine, context, name)).collect(),
    })
}

pub(super) fn attributes(
    engine: &mut Engine,
    asked: &GetQueueAttributes,
    context: &Context<'_>,
) -> Result<Attributes, SqsError> {
    let names = asked.attribute_names.as_deref().unwrap_or_default();
    let mut attributes = engine.attributes(queue_name(&asked.queue_url), context.now)?;
    if let Some(unknown) = names.iter().find(|name| !ATTRIBUTES.contains(&name.as_str())) {
        return Err(settings::unknown(unknown));
    }
    if !names.iter().any(|name| name == "All") {
        attributes.retain(|name, _| names.contains(name));
    }
    Ok(Attributes { attributes })
}

pub(super) fn set_attributes(
    engine: &mut Engine,
    asked: &SetQueueAttributes,
    context: &Context<'_>,
) -> Result<Nothing, SqsError> {
    engine.set_attributes(queue_name(&asked.queue_url), &asked.attributes, context.now)?;
    Ok(Nothing {})
}

pub(super) fn delete(
    engine: &mut Engine,
    asked: &OfQueue,
    context: &Context<'_>,
) -> Result<Nothing, SqsError> {
    engine.delete_queue(queue_name(&asked.queue_url), context.now)?;
    Ok(Nothing {})
}

pub(super) fn purge(
    engine: &mut Engine,
    asked: &OfQueue,
    context: &Context<'_>,
) -> Result<Nothing, SqsError> {
    let queue = engine.queue(queue_name(&asked.queue_url), context.now)?;
    queue.purge(context.now)?;
    Ok(Nothing {})
}

pub(super) fn tags(
    engine: &mut Engine,
    asked: &OfQueue,
    context: &Context<'_>,
) -> Result<Tags, SqsError> {
    let queue = engine.queue(queue_name(&asked.queue_url), context.now)?;
    Ok(Tags { tags: queue.tags.clone() })
}

pub(super) fn tag(
    engine: &mut Engine,
    asked: TagQueue,
    context: &Context<'_>,
) -> Result<Nothing, SqsError> {
    if asked.tags.is_empty() {
        return Err(SqsError::new(
            ErrorCode::MissingParameter,
            "The request must contain the parameter Tags.",
        ));
    }
    let queue = engine.queue(queue_name(&asked.queue_url), context.now)?;
    queue.tags.extend(asked.tags);
    Ok(Nothing {})
}

pub(super) fn untag(
    engine: &mut Engine,
    asked: &UntagQueue,
    context: &Context<'_>,
) -> Result<Nothing, SqsError> {
    let queue = engine.queue(queue_name(&asked.queue_url), context.now)?;
    queue.tags.retain(|key, _| !asked.tag_keys.contains(key));
    Ok(Nothing {})
}
