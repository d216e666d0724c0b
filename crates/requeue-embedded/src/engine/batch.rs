//! Batches: first the batch as a whole, then each entry by itself.

use requeue_sqs::{MAX_BATCH_BYTES, MAX_BATCH_ENTRIES};

use super::error::SqsError;
use super::message::{Draft, Sent};
use super::{Engine, check, limits};
use crate::fault::{EntryFault, EntryOutcome, REFUSED};

pub(crate) enum Entry {
    Send(Draft),
    Delete { handle: String },
    ChangeVisibility { handle: String, secs: i64 },
}

pub(crate) type ReadEntry = (String, Result<Entry, SqsError>);

/// The id of an entry, and its result. Only a send has one.
pub(crate) type EntryResult = (String, Result<Option<Sent>, EntryError>);

pub(crate) enum EntryError {
    Refused {
        code: String,
        message: String,
        sender_fault: bool,
    },
    /// The response does not mention it.
    Unmentioned,
}

impl Engine {
    pub(crate) fn batch(
        &mut self,
        (operation, queue): (&str, &str),
        entries: Vec<ReadEntry>,
        faults: &[EntryFault],
    ) -> Result<Vec<EntryResult>, SqsError> {
        self.queue(queue)?;
        let drafts = entries.iter().filter_map(|(_, entry)| match entry {
            Ok(Entry::Send(draft)) => Some(draft),
            Ok(Entry::Delete { .. } | Entry::ChangeVisibility { .. }) | Err(_) => None,
        });
        let ids: Vec<&str> = entries.iter().map(|(id, _)| id.as_str()).collect();
        check_whole(operation, &ids, drafts.clone().map(Draft::size).sum())?;
        // As seen on AWS, whose code for a batch differs from that for one message.
        check::ids(drafts, &self.queue(queue)?.settings)
            .map_err(|error| SqsError::invalid(error.message))?;
        let one = |(position, (id, entry))| {
            let fault = faults.iter().find(|fault| fault.position == position);
            let result = match fault.map(|fault| &fault.outcome) {
                None => self.entry(queue, entry).map_err(|error| EntryError::Refused {
                    code: error.code.to_owned(),
                    message: error.message,
                    sender_fault: true,
                }),
                Some(EntryOutcome::Refused { code, sender_fault }) => Err(EntryError::Refused {
                    code: code.clone(),
                    message: REFUSED.to_owned(),
                    sender_fault: *sender_fault,
                }),
                Some(EntryOutcome::Ignored) => Err(EntryError::Unmentioned),
                Some(EntryOutcome::Unmentioned) => {
                    let _ = self.entry(queue, entry);
                    Err(EntryError::Unmentioned)
                }
            };
            (id, result)
        };
        Ok(entries.into_iter().enumerate().map(one).collect())
    }

    fn entry(
        &mut self,
        queue: &str,
        entry: Result<Entry, SqsError>,
    ) -> Result<Option<Sent>, SqsError> {
        match entry? {
            Entry::Send(draft) => return self.send(queue, draft).map(Some),
            Entry::Delete { handle } => self.queue(queue)?.delete(&handle)?,
            Entry::ChangeVisibility { handle, secs } => {
                self.queue(queue)?.change_visibility(&handle, secs)?;
            }
        }
        Ok(None)
    }
}

fn check_whole(operation: &str, ids: &[&str], bytes: usize) -> Result<(), SqsError> {
    let count = ids.len();
    let is_legal = |id: &&str| {
        (1..=limits::BATCH_ID_CHARS).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let mut seen = std::collections::HashSet::new();
    let (code, message) = if count == 0 {
        let message =
            format!("There should be at least one {operation}RequestEntry in the request.");
        ("AWS.SimpleQueueService.EmptyBatchRequest", message)
    } else if count > MAX_BATCH_ENTRIES {
        let message = format!(
            "Maximum number of entries per request are {MAX_BATCH_ENTRIES}. You have sent {count}."
        );
        ("AWS.SimpleQueueService.TooManyEntriesInBatchRequest", message)
    } else if !ids.iter().all(is_legal) {
        let message = "A batch entry id can only contain alphanumeric characters, hyphens and \
                       underscores. It can be at most 80 letters long.";
        ("AWS.SimpleQueueService.InvalidBatchEntryId", message.to_owned())
    } else if let Some(id) = ids.iter().find(|id| !seen.insert(**id)) {
        ("AWS.SimpleQueueService.BatchEntryIdsNotDistinct", format!("Id {id} repeated."))
    } else if bytes > MAX_BATCH_BYTES {
        let message = format!(
            "Batch requests cannot be longer than {MAX_BATCH_BYTES} bytes. You have sent {bytes} \
             bytes."
        );
        ("AWS.SimpleQueueService.BatchRequestTooLong", message)
    } else {
        return Ok(());
    };
    Err(SqsError::new(code, message))
}
