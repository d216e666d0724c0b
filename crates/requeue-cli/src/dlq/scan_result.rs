//! How a look through a queue ended, and what it did not reach.

use super::unseen::{Cause, Unseen};
use super::{messages, note};

/// Why looking ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanEnd {
    /// There was nothing more to see.
    Empty,
    /// Whoever looked had seen enough.
    Enough,
    /// `--max-messages`.
    MaxMessages,
    /// The first messages would have become visible.
    TimeUp,
    Interrupted,
}

/// What looking has come to.
pub(crate) struct ScanResult {
    pub(crate) end: ScanEnd,
    /// Nothing if whoever looked had seen enough, or was interrupted.
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

    /// Says what was not seen of this queue, in which so many messages were looked at; `false` when
    /// there is such.
    pub(crate) fn tell(&self, looked_at: usize, queue: &str) -> bool {
        let seen = messages(looked_at);
        match self.end {
            ScanEnd::MaxMessages if self.unseen.of(Cause::MaxMessages) > 0 => note(&format!(
                "partial: {seen} looked at, about {} more in {queue}; --max-messages raises the \
                 bound",
                self.unseen.of(Cause::MaxMessages)
            )),
            ScanEnd::TimeUp => note(&format!(
                "partial: {seen} looked at, about {} more; run it again for the rest",
                self.unseen.of(Cause::TimeUp)
            )),
            ScanEnd::Interrupted => note(&format!(
                "interrupted: {seen} looked at, and visible again unless brought back"
            )),
            ScanEnd::MaxMessages | ScanEnd::Empty | ScanEnd::Enough => {}
        }
        self.unseen.tell(queue);
        self.is_complete()
    }
}
