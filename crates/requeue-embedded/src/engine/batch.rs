//! Batches: first the batch as a whole, then each entry by itself.

use std::time::SystemTime;

use super::error::{SqsError, code};
use super::message::{Draft, Sent};
use super::{Engine, check, limits};
use crate::exchange::REFUSED;
use crate::fault::{EntryFault, EntryOutcome};

/// What an entry asks for.
pub(crate) enum Entry {
    Send(Draft),
    Delete { handle: String },
    ChangeVisibility { handle: String, secs: i64 },
}

/// The id of an entry, and the entry if it could be read.
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
    /// Carries out each entry, or applies the fault that a caller has chosen for it.
    pub(crate) fn batch(
        &mut self,
        (operation, queue): (&str, &str),
        entries: Vec<ReadEntry>,
        faults: &[EntryFault],
        now: SystemTime,
    ) -> Result<Vec<EntryResult>, SqsError> {
        self.queue(queue, now)?;
        let drafts = entries.iter().filter_map(|(_, entry)| match entry {
            Ok(Entry::Send(draft)) => Some(draft),
            Ok(Entry::Delete { .. } | Entry::ChangeVisibility { .. }) | Err(_) => None,
        });
        let ids: Vec<&str> = entries.iter().map(|(id, _)| id.as_str()).collect();
        check_whole(operation, &ids, drafts.clone().map(Draft::size).sum())?;
        // As seen on AWS, whose code for a batch differs from that for one message.
        check::ids(drafts, &self.queue(queue, now)?.settings)
            .map_err(|error| SqsError::invalid(error.message))?;
        let one = |(position, (id, entry))| {
            let fault = faults.iter().find(|fault| fault.position == position);
            let result = match fault.map(|fault| &fault.outcome) {
                None => self.entry(queue, entry, now).map_err(|error| EntryError::Refused {
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
                    let _ = self.entry(queue, entry, now);
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
        now: SystemTime,
    ) -> Result<Option<Sent>, SqsError> {
        match entry? {
            Entry::Send(draft) => return self.send(queue, draft, now).map(Some),
            Entry::Delete { handle } => self.queue(queue, now)?.delete(&handle)?,
            Entry::ChangeVisibility { handle, secs } => {
                self.queue(queue, now)?.change_visibility(&handle, secs, now)?;
            }
        }
        Ok(None)
    }
}

/// Whether a batch with these ids and so many bytes of messages is accepted as a whole.
fn check_whole(operation: &str, ids: &[&str], bytes: usize) -> Result<(), SqsError> {
    let count = ids.len();
    let mut seen = std::collections::HashSet::new();
    let (code, message) = if count == 0 {
        let message =
            format!("There should be at least one {operation}RequestEntry in the request.");
        (code::EMPTY_BATCH_REQUEST, message)
    } else if count > limits::BATCH_ENTRIES {
        let most = limits::BATCH_ENTRIES;
        let message =
            format!("Maximum number of entries per request are {most}. You have sent {count}.");
        (code::TOO_MANY_ENTRIES_IN_BATCH_REQUEST, message)
    } else if !ids.iter().all(|id| is_batch_id(id)) {
        let message = "A batch entry id can only contain alphanumeric characters, hyphens and \
                       underscores. It can be at most 80 letters long.";
        (code::INVALID_BATCH_ENTRY_ID, message.to_owned())
    } else if let Some(id) = ids.iter().find(|id| !seen.insert(**id)) {
        (code::BATCH_ENTRY_IDS_NOT_DISTINCT, format!("Id {id} repeated."))
    } else if bytes > limits::BATCH_BYTES {
        let most = limits::BATCH_BYTES;
        let message = format!(
            "Batch requests cannot be longer than {most} bytes. You have sent {bytes} bytes."
        );
        (code::BATCH_REQUEST_TOO_LONG, message)
    } else {
        return Ok(());
    };
    Err(SqsError::new(code, message))
}

fn is_batch_id(id: &str) -> bool {
    (1..=limits::BATCH_ID_CHARS).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}
