//! The checks, by topic.

#![allow(clippy::too_many_lines, reason = "tables")]

mod batches;
mod fifo;
mod handles;
mod limits;
mod messages;
mod queues;
mod redrive;
mod settling;
mod time;

use crate::bench::Check;

/// All of them, in the order in which they are run.
pub(crate) fn all() -> Vec<Check> {
    let topics = [
        // They take longest, and the others do not wait for them.
        settling::checks(),
        queues::checks(),
        messages::checks(),
        limits::checks(),
        handles::checks(),
        time::checks(),
        batches::checks(),
        redrive::checks(),
        fifo::checks(),
    ];
    topics.into_iter().flatten().collect()
}
