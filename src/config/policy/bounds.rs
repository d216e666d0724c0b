//! The bounds of the document's numbers, each with its reason.

use super::shapes::{Count, Number, Seconds};

/// Every retry and every deferral is a message sent, received and deleted. More of them would cost
/// too much for one message.
const MAX_COPIES: u32 = 10_000;
/// The shortest delay, since a delay of zero is a loop at full speed. On the wire it is rounded up
/// to a whole second.
const MIN_DELAY: f64 = 0.001;
/// The longest delay, since allowances are renewed once a day at the latest. A longer wait is a
/// schedule and no retry.
const MAX_DELAY: f64 = 86_400.0;
/// The shortest age: budgets are counted in whole seconds.
const MIN_AGE: f64 = 1.0;
/// A queue keeps a message for 14 days at most, and the last wait may add 900 s to a message's age.
/// Source: SQS message quotas.
const MAX_AGE: f64 = 14.0 * 86_400.0 - 900.0;
/// Beyond this factor the second delay is the cap in any case.
const MAX_MULTIPLIER: f64 = 100.0;
/// With the default pauses, so many attempts take 20 s. For a longer outage, a message waits in the
/// queue.
const MAX_ATTEMPTS: u32 = 10;
/// A send takes no longer, all its tries included.
const MAX_PAUSE: f64 = 60.0;
/// A rule names no longer delay than a response may by default, which is the longest visibility
/// timeout of SQS.
const MAX_RULED: f64 = 43_200.0;
/// A longer hold would probe a service too late after it works again.
const MAX_HOLD: f64 = 900.0;
/// A higher threshold would open the circuit only after the damage is done.
const MAX_THRESHOLD: u32 = 1_000;

/// More calls in a period are no limit that one downstream service has.
const MAX_CALLS: u32 = 1_000_000;
/// A longer period is a quota, which the service itself counts.
const MAX_PERIOD: f64 = 86_400.0;
/// The shortest period: a hundredth of a second.
const MIN_PERIOD: f64 = 0.01;
/// SQS delays by whole seconds, so a message whose turn has come may be up to a second early.
const MIN_SLOT_WAIT: f64 = 1.0;
/// A longer wait for a call costs more than another delivery.
const MAX_SLOT_WAIT: f64 = 20.0;

/// A shorter time is over before SQS delivers a duplicate.
const MIN_KEEP: f64 = 60.0;
/// A year. A message lives for some weeks, redrives included.
const MAX_KEEP: f64 = 365.0 * 86_400.0;

pub(super) const KEEP: Seconds =
    Seconds(Number { min: MIN_KEEP, max: MAX_KEEP, what: "a number of seconds" });
pub(super) const CALLS: Count = Count { min: 1, max: MAX_CALLS };
pub(super) const PERIOD: Seconds =
    Seconds(Number { min: MIN_PERIOD, max: MAX_PERIOD, what: "a number of seconds" });
pub(super) const SLOT_WAIT: Seconds =
    Seconds(Number { min: MIN_SLOT_WAIT, max: MAX_SLOT_WAIT, what: "a number of seconds" });
pub(super) const COPIES: Count = Count { min: 0, max: MAX_COPIES };
pub(super) const ATTEMPTS: Count = Count { min: 1, max: MAX_ATTEMPTS };
pub(super) const DELAY: Seconds =
    Seconds(Number { min: MIN_DELAY, max: MAX_DELAY, what: "a number of seconds" });
pub(super) const RULED: Seconds =
    Seconds(Number { min: MIN_DELAY, max: MAX_RULED, what: "a number of seconds" });
pub(super) const PAUSE: Seconds =
    Seconds(Number { min: MIN_DELAY, max: MAX_PAUSE, what: "a number of seconds" });
pub(super) const HOLD: Seconds =
    Seconds(Number { min: MIN_DELAY, max: MAX_HOLD, what: "a number of seconds" });
pub(super) const FAILURES: Count = Count { min: 1, max: MAX_THRESHOLD };
pub(super) const AGE: Seconds =
    Seconds(Number { min: MIN_AGE, max: MAX_AGE, what: "a number of seconds" });
pub(super) const FACTOR: Number = Number { min: 1.0, max: MAX_MULTIPLIER, what: "a number" };
pub(super) const SHARE: Number = Number { min: 0.0, max: 1.0, what: "a share" };
