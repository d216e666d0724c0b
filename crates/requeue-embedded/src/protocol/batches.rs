//! The three batch operations: first the batch as a whole, then each entry by itself.

use super::messages::{Digests, draft};
use super::shapes::{
    Batch, BatchAnswer, DeleteEntry, Done, Failed, SendEntry, SentShape, VisibilityEntry,
};
use super::{Context, queue_name};
use crate::engine::Engine;
use crate::engine::check::LackingIds;
use crate::engine::error::SqsError;
use crate::engine::message::Draft;
use crate::fault::EntryOutcome;

pub(super) fn send(
    engine: &mut Engine,
    asked: Batch<SendEntry>,
    context: &Context<'_>,
) -> Result<BatchAnswer<SentShape>, SqsError> {
    let name = queue_name(&asked.queue_url).to_owned();
    engine.queue(&name, context.now)?;
    let entries: Vec<(String, Result<Draft, SqsError>)> =
        asked.entries.into_iter().map(|entry| (entry.id, draft(entry.message, context))).collect();
    let bytes = entries.iter().filter_map(|(_, draft)| draft.as_ref().ok()).map(Draft::size).sum();
    let ids = entries.iter().map(|(id, _)| id.as_str());
    Engine::check_batch("SendMessageBatchRequestEntry", ids, bytes)?;
    let drafts = entries.iter().filter_map(|(_, draft)| draft.as_ref().ok());
    let ids = drafts.map(|draft| (draft.group.as_deref(), draft.deduplication.as_deref()));
    engine.queue(&name, context.now)?.check_batch(LackingIds::of(ids))?;
    Ok(each(context, entries, |id, draft| {
        let draft = draft?;
        let digests = Digests::of(&draft, context);
        let sent = engine.send(&name, draft, context.now)?;
        Ok(digests.into_answer(Some(id), sent))
    }))
}

pub(super) fn delete(
    engine: &mut Engine,
    asked: Batch<DeleteEntry>,
    context: &Context<'_>,
) -> Result<BatchAnswer<Done>, SqsError> {
    let queue = engine.queue(queue_name(&asked.queue_url), context.now)?;
    let entries = asked.entries.into_iter().map(|entry| (entry.id, entry.receipt_handle));
    let entries: Vec<(String, String)> = entries.collect();
    let ids = entries.iter().map(|(id, _)| id.as_str());
    Engine::check_batch("DeleteMessageBatchRequestEntry", ids, 0)?;
    Ok(each(context, entries, |id, handle| {
        queue.delete(&handle)?;
        Ok(Done { id })
    }))
}

pub(super) fn change_visibility(
    engine: &mut Engine,
    asked: Batch<VisibilityEntry>,
    context: &Context<'_>,
) -> Result<BatchAnswer<Done>, SqsError> {
    let queue = engine.queue(queue_name(&asked.queue_url), context.now)?;
    let entries: Vec<(String, VisibilityEntry)> =
        asked.entries.into_iter().map(|entry| (entry.id.clone(), entry)).collect();
    let ids = entries.iter().map(|(id, _)| id.as_str());
    Engine::check_batch("ChangeMessageVisibilityBatchRequestEntry", ids, 0)?;
    Ok(each(context, entries, |id, entry| {
        let secs =
            entry.visibility_timeout.ok_or_else(|| SqsError::missing("VisibilityTimeout"))?;
        queue.change_visibility(&entry.receipt_handle, secs, context.now)?;
        Ok(Done { id })
    }))
}

/// Carries out each entry, or applies the fault that a caller has chosen for it.
fn each<E, T>(
    context: &Context<'_>,
    entries: Vec<(String, E)>,
    mut carry_out: impl FnMut(String, E) -> Result<T, SqsError>,
) -> BatchAnswer<T> {
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for (position, (id, entry)) in entries.into_iter().enumerate() {
        match context.entry_faults.of(position) {
            None => match carry_out(id.clone(), entry) {
                Ok(done) => successful.push(done),
                Err(error) => failed.push(Failed {
                    id,
                    sender_fault: true,
                    code: error.code.query().to_owned(),
                    message: error.message,
                }),
            },
            Some(EntryOutcome::Refused { code, sender_fault }) => failed.push(Failed {
                id,
                sender_fault: *sender_fault,
                code: code.clone(),
                message: "refused by a fault".to_owned(),
            }),
            Some(EntryOutcome::Ignored) => {}
            Some(EntryOutcome::Unmentioned) => {
                let _ = carry_out(id, entry);
            }
        }
    }
    BatchAnswer { successful, failed }
}
