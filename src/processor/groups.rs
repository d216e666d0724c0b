//! Decides which messages of a batch are handled together. Messages that may have ended the process
//! before are handled after the others, a few at a time, so that one of them cannot end the
//! attempts of the others for ever. The messages of one FIFO group are handled in sequence.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::calls::SharedCalls;
use super::executor::Order;
use super::turn::Deadlines;
use super::{BatchProcessor, Undone};
use crate::delivery::Delivery;
use crate::disposition::{Disposition, ReleaseReason, Strategy};
use crate::handler::Handler;
use crate::message::Body;
use crate::plan::{Decision, Plan, Planned, Successors};
use crate::queue::Queue;
use crate::settle::{Task, Waiting};

/// From this receive on, a message is a suspect. The receive count of a copy begins at 1, so some
/// invocations ended without a response, or the message is on its way to the dead-letter queue.
pub(super) const SUSPICIOUS_RECEIVES: u32 = 3;
/// The most rounds of suspects. Each takes as long as its slowest message.
const MAX_SUSPECT_ROUNDS: usize = 10;

/// The rounds of a batch: first the messages that are no suspects, then the suspects in at most ten
/// rounds. Odd receives begin at one end, even ones at the other.
pub(super) fn rounds(deliveries: Vec<Delivery>) -> Vec<Vec<Delivery>> {
    let (mut suspects, innocents) = if deliveries.iter().any(is_suspect) {
        deliveries.into_iter().partition(is_suspect)
    } else {
        (Vec::new(), deliveries)
    };
    let mut rounds = vec![innocents];
    suspects.sort_unstable_by(|one, other| one.message_id.cmp(&other.message_id));
    if suspects
        .iter()
        .map(|suspect| suspect.receive_count)
        .max()
        .is_some_and(|receives| receives % 2 == 0)
    {
        suspects.reverse();
    }
    let size = suspects.len().div_ceil(MAX_SUSPECT_ROUNDS).max(1);
    while !suspects.is_empty() {
        let rest = suspects.split_off(size.min(suspects.len()));
        rounds.push(std::mem::replace(&mut suspects, rest));
    }
    rounds.retain(|round| !round.is_empty());
    rounds
}

/// Whether a message may have ended the process. With `visibility`, each attempt is a receive, so
/// receives show nothing. In a dead-letter queue, every message is a suspect at first.
fn is_suspect(delivery: &Delivery) -> bool {
    delivery.strategy == Strategy::Copy && delivery.receive_count >= SUSPICIOUS_RECEIVES
}

/// The deliveries that may be handled in any order, and those of each FIFO group in its order.
pub(super) fn groups(deliveries: Vec<Delivery>) -> (Vec<Arc<Delivery>>, Vec<Vec<Arc<Delivery>>>) {
    // Not collected from the deliveries themselves, since the list would keep their memory.
    let mut unordered = Vec::with_capacity(deliveries.len());
    let mut groups: Vec<Vec<Arc<Delivery>>> = Vec::new();
    let mut numbers = HashMap::new();
    for delivery in deliveries {
        if !delivery.is_fifo() {
            unordered.push(Arc::new(delivery));
            continue;
        }
        let group = (delivery.queue.clone(), delivery.group_id.clone());
        let number = *numbers.entry(group).or_insert(groups.len());
        if number == groups.len() {
            groups.push(Vec::new());
        }
        groups[number].push(Arc::new(delivery));
    }
    (unordered, groups)
}

impl<H, Q, T> BatchProcessor<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// Steps 2 to 6, in sequence. If a message is to be handled again, its successors stay too.
    pub(super) async fn attempt_in_order(
        &self,
        group: Vec<Arc<Delivery>>,
        calls: Option<&Arc<SharedCalls<T>>>,
        deadlines: &Deadlines,
        tasks: &UnboundedSender<Undone>,
    ) {
        let settle = |decision, plan, waiting| {
            let task = Box::new(Task { decision, plan, waiting });
            drop(tasks.send(Undone::Planned(task)));
        };
        let mut left = group;
        while !left.is_empty() {
            let mut last = None;
            let decided = |decision| {
                let Planned { decision, plan, successors } = self.inner.plan(decision);
                match successors {
                    Successors::Proceed => settle(decision, plan, Waiting::Nobody),
                    _ => last = Some((decision, plan, successors)),
                }
            };
            left = self.attempt(Order::Given, left, calls, deadlines, decided).await;
            let Some((decision, plan, successors)) = last else { continue };
            if left.is_empty() {
                settle(decision, plan, Waiting::Nobody);
            } else if successors == Successors::ProceedOnceMoved {
                let (moved, is_moved) = oneshot::channel();
                settle(decision, plan, Waiting::ForMove(moved));
                if is_moved.await.is_err() {
                    break;
                }
            } else {
                settle(decision, plan, Waiting::ForVisibility(left.clone()));
                break;
            }
        }
        if let Some(calls) = calls {
            calls.leave();
        }
        for delivery in left {
            let disposition = Disposition::Release(ReleaseReason::BehindFailed);
            let decision = Decision::uncalled(delivery, disposition, self.clock().now(), 0.0);
            settle(decision, Plan::Keep { unsent: None }, Waiting::Nobody);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::delivery::Decoder;
    use crate::queue::Record;

    fn delivery(position: usize, receive_count: u32, strategy: Strategy) -> Delivery {
        let mut record = Record::default();
        record.message_id = Some(format!("id-{position:04}"));
        record.receive_count = Some(receive_count);
        let decoder = Decoder { max_retries: 50, strategy, ..Decoder::default() };
        Delivery::decode(position, record, SystemTime::UNIX_EPOCH, &decoder)
    }

    fn positions(receives: &[u32], strategy: Strategy) -> Vec<Vec<usize>> {
        let deliveries =
            receives.iter().enumerate().map(|(at, receives)| delivery(at, *receives, strategy));
        let rounds = rounds(deliveries.collect());
        rounds
            .iter()
            .map(|round| round.iter().map(|delivery| delivery.position).collect())
            .collect()
    }

    #[test]
    fn suspects_come_after_the_others_each_alone_and_the_other_way_round_the_next_time() {
        let none: Vec<Vec<usize>> = Vec::new();
        for (receives, expected) in [
            (&[][..], none),
            (&[1, 2, 1], vec![vec![0, 1, 2]]),
            (&[3, 1, 3, 2], vec![vec![1, 3], vec![0], vec![2]]),
            (&[4, 1, 3, 2], vec![vec![1, 3], vec![2], vec![0]]),
            (&[5, 5], vec![vec![0], vec![1]]),
        ] {
            assert_eq!(positions(receives, Strategy::Copy), expected, "{receives:?}");
        }
        assert_eq!(positions(&[3, 1, 3], Strategy::Visibility), [[0, 1, 2]]);
    }

    /// A batch may have 10,000 messages, whose deliveries and decisions are kept to its end.
    #[test]
    fn a_batch_keeps_little_of_each_message() {
        let deliveries = (0..100).map(|at| delivery(at, 1, Strategy::Copy)).collect();
        let (unordered, groups) = groups(deliveries);
        assert_eq!((unordered.len(), unordered.capacity(), groups.len()), (100, 100, 0));
        assert!(size_of::<Delivery>() <= 736, "{}", size_of::<Delivery>());
        assert!(size_of::<Decision>() <= 176, "{}", size_of::<Decision>());
    }

    #[test]
    fn there_are_at_most_ten_rounds_of_suspects() {
        for (suspects, expected) in [(9, 9), (10, 10), (11, 6), (20, 10), (1_000, 10)] {
            let rounds = positions(&vec![3; suspects], Strategy::Copy);
            assert_eq!(rounds.len(), expected, "{suspects}");
            assert_eq!(rounds.concat(), (0..suspects).collect::<Vec<_>>());
        }
    }
}
