//! The checks, by topic.

#![allow(clippy::too_many_lines, reason = "tables")]

mod batches;
mod fifo;
mod handles;
mod limits;
mod messages;
mod queues;
mod redrive;
mod time;

use crate::bench::Check;

/// All of them, in the order in which they are run.
pub(crate) fn all() -> Vec<Check> {
    let topics = [
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
