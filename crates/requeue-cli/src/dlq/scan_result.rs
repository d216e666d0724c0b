//! The end of a scan, and the messages that it did not reach.

use super::unseen::{Cause, Unseen};
use super::{messages, note};
use crate::table::thousands;

/// The reason for the end of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanEnd {
    /// There were no more messages.
    Empty,
    /// The caller had seen enough.
    Enough,
    /// `--max-messages`.
    MaxMessages,
    /// The first messages were about to become visible.
    TimeUp,
    Interrupted,
}

/// The result of a scan.
pub(crate) struct ScanResult {
    pub(crate) end: ScanEnd,
    /// Empty if the caller had seen enough, or if the scan was interrupted.
    pub(crate) unseen: Unseen,
}

impl ScanResult {
    pub(crate) fn is_complete(&self) -> bool {
        match self.end {
            ScanEnd::Enough => true,
            ScanEnd::Empty | ScanEnd::MaxMessages => self.unseen.is_empty(),
            ScanEnd::TimeUp | ScanEnd::Interrupted => false,
        }
    }

    /// Notes the messages of this queue that were not seen.
    pub(crate) fn tell(&self, looked_at: usize, queue: &str, leaves_hidden: bool) {
        let seen = messages(looked_at);
        match self.end {
            ScanEnd::MaxMessages if self.unseen.of(Cause::MaxMessages) > 0 => note(&format!(
                "partial: {seen} looked at, about {} more in {queue}; raise --max-messages",
                thousands(self.unseen.of(Cause::MaxMessages))
            )),
            ScanEnd::TimeUp => note(&format!(
                "partial: {seen} looked at, about {} more; run it again for the rest",
                thousands(self.unseen.of(Cause::TimeUp))
            )),
            ScanEnd::Interrupted => {
                // Another note tells of those that stay hidden.
                let visible =
                    if leaves_hidden { "" } else { "; those in the queue are visible again" };
                note(&format!("interrupted: {seen} looked at{visible}"));
            }
            ScanEnd::MaxMessages | ScanEnd::Empty | ScanEnd::Enough => {}
        }
        self.unseen.tell(queue);
    }
}
