//! The order of FIFO queues: the messages of one group go one after the other.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::BatchProcessor;
use super::deadlines::Deadlines;
use crate::delivery::Delivery;
use crate::disposition::{Disposition, ReleaseReason};
use crate::handler::Handler;
use crate::message::Body;
use crate::plan::{Decision, Plan, Planned, Successors};
use crate::queue::Queue;
use crate::settle::{Task, Waiting};

/// The deliveries that may be handled in any order, and those of each FIFO group in its order.
pub(super) fn groups(deliveries: Vec<Delivery>) -> (Vec<Arc<Delivery>>, Vec<Vec<Arc<Delivery>>>) {
    let (fifo, unordered): (Vec<_>, Vec<_>) = deliveries.into_iter().partition(Delivery::is_fifo);
    let mut groups: Vec<Vec<Arc<Delivery>>> = Vec::new();
    // A batch usually has one queue. If it has two, groups of the same name are different groups.
    let mut numbers = HashMap::new();
    for mut delivery in fifo {
        let group = (delivery.queue.clone(), delivery.group_id.clone());
        let number = *numbers.entry(group).or_insert(groups.len());
        if number == groups.len() {
            groups.push(Vec::new());
        }
        if let Some(predecessor) = groups[number].last() {
            delivery.wait_behind(predecessor);
        }
        groups[number].push(Arc::new(delivery));
    }
    (unordered.into_iter().map(Arc::new).collect(), groups)
}

impl<H, Q, T> BatchProcessor<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// Steps 2 to 6, one message after the other: behind a message that is to be handled again, its
    /// successors stay in the queue too.
    pub(super) async fn attempt_in_order(
        &self,
        group: Vec<Arc<Delivery>>,
        deadlines: &Deadlines,
        tasks: &UnboundedSender<Task>,
    ) {
        let mut group = group.into_iter();
        while let Some(delivery) = group.next() {
            let mut planned = None;
            self.attempt(vec![delivery], deadlines, |one| planned = Some(one)).await;
            let Planned { decision, plan, successors } =
                planned.expect("every delivery is decided");
            let settle = |waiting| drop(tasks.send(Task { decision, plan, waiting }));
            match successors {
                Successors::Proceed => settle(Waiting::Nobody),
                _ if group.as_slice().is_empty() => settle(Waiting::Nobody),
                Successors::ProceedOnceMoved => {
                    let (moved, is_moved) = oneshot::channel();
                    settle(Waiting::ForMove(moved));
                    if is_moved.await.is_err() {
                        break;
                    }
                }
                Successors::Wait => {
                    settle(Waiting::ForVisibility(group.as_slice().to_vec()));
                    break;
                }
            }
        }
        for delivery in group {
            let disposition = Disposition::Release(ReleaseReason::BehindFailed);
            let decision = Decision::uncalled(delivery, disposition, self.clock().now(), 0.0);
            drop(tasks.send(Task {
                decision,
                plan: Plan::Keep { unsent: None },
                waiting: Waiting::Nobody,
            }));
        }
    }
}
