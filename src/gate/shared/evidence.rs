//! The results of calls that execution environments share, and whether they open a circuit.

use std::time::Duration;

use super::super::health::{self, FailureRow};
use super::super::pause::SKEW;
use crate::limit::nanos;
use crate::policy::CircuitBreaker;
use crate::table::{Field, Item, Update};

/// Results of calls since the service last counted as working: with a response, and failed.
const ANSWERED: Field = Field::new("answered");
const FAILED: Field = Field::new("failed");
/// Calls that failed since the last response, and the time of that response.
const ROW: Field = Field::new("failedRow");
const ROW_SINCE: Field = Field::new("rowSince");
/// Calls that got a response since the last one that failed.
const STREAK: Field = Field::new("answeredRow");
/// The time of the last failure for each number. Different numbers mean different messages.
const MESSAGES: [Field; 16] = Field::each([
    "failed0", "failed1", "failed2", "failed3", "failed4", "failed5", "failed6", "failed7",
    "failed8", "failed9", "failed10", "failed11", "failed12", "failed13", "failed14", "failed15",
]);

const WINDOW: u64 = health::WINDOW as u64;
const RECOVERED: u64 = health::RECOVERED as u64;
/// The most different messages that these numbers distinguish without many more failures.
const MOST_MESSAGES: u32 = 8;
/// The least time of a row of failures, if the service responds to some calls.
const LEAST_ROW: Duration = Duration::from_millis(200);

/// The results in an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallRecord {
    answered: u64,
    failed: u64,
    row: u64,
    row_since: u64,
    streak: u64,
    messages: [u64; MESSAGES.len()],
}

/// Results that an environment has not reported yet, in their order.
#[derive(Debug, Default)]
pub(crate) struct Results {
    answered: u64,
    failed: u64,
    /// Failures after the last response, and responses after the last failure.
    row: u64,
    streak: u64,
    messages: [bool; MESSAGES.len()],
}

impl Results {
    pub(crate) fn answer(&mut self) {
        self.answered += 1;
        self.streak += 1;
        (self.row, self.messages) = Default::default();
    }

    pub(crate) fn fail(&mut self, message: u64) {
        self.failed += 1;
        self.row += 1;
        self.streak = 0;
        self.messages[number(message)] = true;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.answered + self.failed == 0
    }

    pub(crate) fn has_failures(&self) -> bool {
        self.failed > 0
    }
}

impl CallRecord {
    pub(super) fn of(item: &Item) -> Self {
        Self {
            answered: item.get(ANSWERED),
            failed: item.get(FAILED),
            row: item.get(ROW),
            row_since: item.get(ROW_SINCE),
            streak: item.get(STREAK),
            messages: MESSAGES.map(|field| item.get(field)),
        }
    }

    pub(super) fn is_clean(&self) -> bool {
        self.failed == 0
    }

    /// The current row. Calls without a report got a response.
    pub(super) fn as_row(&self) -> FailureRow {
        let failed = self.failed.saturating_sub(self.row);
        let known = self.answered.saturating_add(failed);
        let answered = if known <= WINDOW {
            WINDOW - failed
        } else {
            self.answered.saturating_mul(WINDOW) / known
        };
        let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
        FailureRow { length: number(self.row), answered: number(answered) }
    }

    pub(super) fn opens(&self, breaker: &CircuitBreaker, now: u64) -> bool {
        let row = self.as_row();
        // A row that begins later is an error of a clock.
        let since =
            if self.row_since > now.saturating_add(nanos(SKEW)) { 0 } else { self.row_since };
        let messages = self.messages.iter().filter(|at| **at > 0 && **at >= since).count();
        let is_long =
            row.answered == health::WINDOW || now.saturating_sub(since) >= nanos(LEAST_ROW);
        let different = usize::try_from(breaker.threshold.clamp(1, MOST_MESSAGES));
        row.length >= row.least(breaker)
            && is_long
            && different.is_ok_and(|least| messages >= least)
    }

    /// Adds results. If the record has changed, the update may be refused.
    pub(super) fn add(&self, update: Update, evidence: &Results, now: u64) -> Update {
        let Results { answered, failed, row, streak, messages } = evidence;
        if *failed == 0 && self.streak.saturating_add(*answered) >= RECOVERED {
            let least = RECOVERED.saturating_sub(*answered);
            return Self::begin(update.when(STREAK, least..=u64::MAX), [0, 0], 0, now);
        }
        let mut update = if self.answered.saturating_add(self.failed) >= WINDOW * 2 {
            update
                .when(ANSWERED, self.answered..=self.answered)
                .when(FAILED, self.failed..=self.failed)
                .set(ANSWERED, self.answered / 2 + answered)
                .set(FAILED, self.failed / 2 + failed)
        } else {
            update.add(ANSWERED, *answered).add(FAILED, *failed)
        };
        update = if *answered > 0 {
            update.set(ROW, *row).set(ROW_SINCE, now)
        } else {
            update.add(ROW, *failed)
        };
        update =
            if *failed > 0 { update.set(STREAK, *streak) } else { update.add(STREAK, *answered) };
        let failing = MESSAGES.iter().zip(messages).filter(|(_, is_failing)| **is_failing);
        failing.fold(update, |update, (field, _)| update.set(*field, now))
    }

    /// Adds a response to another change.
    pub(super) fn answer_once(&self, update: Update, now: u64) -> Update {
        let update = update.set(ROW, 0).set(ROW_SINCE, now);
        if self.is_clean() { update } else { update.add(ANSWERED, 1).add(STREAK, 1) }
    }

    /// Adds a failure to another change.
    pub(super) fn fail_once(update: Update, message: u64, now: u64) -> Update {
        update.add(FAILED, 1).add(ROW, 1).set(STREAK, 0).set(MESSAGES[number(message)], now)
    }

    /// The record after an outage. The calls before say nothing about the time after it.
    pub(super) fn begin_anew(update: Update, now: u64) -> Update {
        Self::begin(update, [1, WINDOW - 1], 1, now)
    }

    fn begin(update: Update, counts: [u64; 2], streak: u64, now: u64) -> Update {
        let [answered, failed] = counts;
        update
            .set(ANSWERED, answered)
            .set(FAILED, failed)
            .set(ROW, 0)
            .set(ROW_SINCE, now)
            .set(STREAK, streak)
    }
}

fn number(message: u64) -> usize {
    usize::try_from(message % MESSAGES.len() as u64).unwrap_or_default()
}
