//! The faults of requests.

use std::time::Duration;

use requeue::embedded::{Call, EntryFault, EntryOutcome, Fault};

use crate::plan::steps;
use requeue_testkit::dice::Dice;

/// One fault, now and then after a while in transit.
pub fn fault(dice: &Dice, call: &Call) -> Fault {
    let then = match dice.roll(0, 19) {
        0 => Fault::refuse(500, "InternalFailure"),
        1 => Fault::refuse(403, "AccessDenied"),
        2 => Fault::refuse(400, "RequestThrottled"),
        3 => Fault::refuse(400, "KmsThrottled"),
        4 => Fault::refuse(400, "BatchRequestTooLong"),
        5 => Fault::LoseRequest,
        6 => Fault::LoseResponse,
        7 => Fault::Hang,
        8 => Fault::RespondAfter(latency(dice)),
        9 => Fault::None,
        _ => Fault::Entries(
            (0..call.entries).filter_map(|position| of_entry(dice, position)).collect(),
        ),
    };
    if dice.happens(300) { Fault::after(latency(dice), then) } else { then }
}

fn latency(dice: &Dice) -> Duration {
    steps(dice.pick(&[dice.roll(1, 50), dice.roll(1, 2_000)]))
}

fn of_entry(dice: &Dice, position: usize) -> Option<EntryFault> {
    let refused =
        |sender_fault| EntryOutcome::Refused { code: "InternalError".to_owned(), sender_fault };
    let outcome = match dice.roll(0, 7) {
        0 => refused(true),
        1 => refused(false),
        2 => EntryOutcome::Ignored,
        3 => EntryOutcome::Unmentioned,
        _ => return None,
    };
    Some(EntryFault::new(position, outcome))
}
