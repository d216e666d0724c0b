//! The pause and the circuit that all execution environments share: the fields of a scope's item,
//! and their changes. It decides by its arguments alone: it reads no clock and calls no table.
//!
//! The rules are those of [`health`](super::health) and [`pause`](super::pause), with these
//! differences:
//!
//! - One message at a time probes, so the three probes of a pause are sequential.
//! - A probe is always reserved for messages that never failed.
//! - Environments do not report each response of a service that works. They report each failure,
//!   and after a failure each result, until 16 responses came in a row.
//! - A service that responds to some calls must also fail for a while, since many environments
//!   produce a long row in a moment.
//! - A [`Recovery`] follows each open circuit, even if the service responded to some calls.

use std::time::{Duration, SystemTime};

use super::call::{Caller, NotPermitted};
use super::pause::{Permits, Recovery, SKEW, first_length, next_length, wait_after_silence};
use crate::disposition::Deferral;
use crate::limit::{epoch_nanos, nanos};
use crate::policy::CircuitBreaker;
use crate::table::{Field, Item, Update};

mod evidence;

use evidence::CallRecord;
pub(crate) use evidence::Results;

/// The end of the pause, in nanoseconds since the epoch as all times here.
const UNTIL: Field = Field::new("heldUntil");
const WHY: Field = Field::new("heldWhy");
const LENGTH: Field = Field::new("holdLength");
/// A number that differs for each pause, and for each time between two pauses.
const GENERATION: Field = Field::new("generation");
/// The end of the probe lock; 0 if no message probes.
const PROBE_UNTIL: Field = Field::new("probeUntil");
/// Probes of this pause that failed: of messages that never failed before, and of those that did.
const PROBED: [Field; 2] = [Field::new("probedNew"), Field::new("probedFailed")];
/// How often in a row all probes failed.
const ROUNDS: Field = Field::new("holdRounds");
/// The end of the last open circuit, or of a pause right after it.
const RECOVERED: Field = Field::new("recoveredAt");

/// The values of `WHY`.
const NOT_PAUSED: u64 = 0;
const PAUSED: u64 = 1;
const OPEN: u64 = 2;

const LONGEST_LOCK: Duration = Duration::from_secs(3_600);
/// The health of a service, as all execution environments share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SharedHealth {
    until: u64,
    why: u64,
    length: u64,
    generation: u64,
    probe_until: u64,
    probed: [u64; 2],
    rounds: u64,
    recovered: u64,
    record: CallRecord,
}

/// The state of the pause for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PauseStanding {
    Free,
    Paused(NotPermitted),
    /// The pause is over, and the message may ask for the probe lock.
    MayProbe(Deferral),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeLock(u64);

impl ProbeLock {
    fn new(now: SystemTime, lasts: Duration) -> Self {
        Self(epoch_nanos(now).saturating_add(nanos(lasts.min(LONGEST_LOCK))))
    }

    pub(crate) fn lasts(self, time: Duration, now: SystemTime) -> bool {
        self.0 >= epoch_nanos(now).saturating_add(nanos(time))
    }
}

impl SharedHealth {
    pub(crate) fn of(item: &Item) -> Self {
        Self {
            until: item.get(UNTIL),
            why: item.get(WHY),
            length: item.get(LENGTH),
            generation: item.get(GENERATION),
            probe_until: item.get(PROBE_UNTIL),
            probed: PROBED.map(|field| item.get(field)),
            rounds: item.get(ROUNDS),
            recovered: item.get(RECOVERED),
            record: CallRecord::of(item),
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether responses to calls are no new information.
    pub(crate) fn is_clean(&self, now: SystemTime) -> bool {
        !self.is_paused(epoch_nanos(now)) && self.record.is_clean()
    }

    /// Whether the pause lasts, even if another environment made a change since.
    pub(crate) fn lasts(&self, now: SystemTime) -> bool {
        !self.rest(epoch_nanos(now)).is_zero()
    }

    /// The end of the pause; now if it is over.
    pub(crate) fn end(&self, now: SystemTime) -> SystemTime {
        now + self.rest(epoch_nanos(now))
    }

    /// The time since which calls are possible, even a probe's, in nanoseconds.
    pub(crate) fn open_since(&self) -> u64 {
        // The next generation begins with the end of a pause.
        if self.why == NOT_PAUSED { self.generation } else { self.until }
    }

    pub(crate) fn paused(&self, now: SystemTime) -> Option<NotPermitted> {
        let now = epoch_nanos(now);
        self.is_paused(now).then(|| NotPermitted { why: self.why(), rest: self.rest(now) })
    }

    pub(crate) fn recovery(&self, now: SystemTime) -> Option<Recovery> {
        Recovery::since(self.recovered, epoch_nanos(now))
    }

    pub(crate) fn standing(
        &self,
        caller: Caller,
        breaker: Option<&CircuitBreaker>,
        now: SystemTime,
    ) -> PauseStanding {
        let now = epoch_nanos(now);
        if !self.is_paused(now) {
            return PauseStanding::Free;
        }
        let why = self.why();
        let paused = |rest| PauseStanding::Paused(NotPermitted { why, rest });
        let rest = self.rest(now);
        if !rest.is_zero() {
            return paused(rest);
        }
        if self.is_probed(now) {
            return paused(Duration::ZERO);
        }
        let kind = usize::from(caller.has_failed());
        let Permits { shares, .. } = self.permits(breaker);
        let timeout = self.until.saturating_add(self.length);
        if self.probed[kind] >= shares[kind].into() && now < timeout {
            return paused(Duration::from_nanos(timeout - now));
        }
        PauseStanding::MayProbe(why)
    }

    /// Takes the probe lock, if it is free.
    pub(crate) fn probe(&self, now: SystemTime, lasts: Duration) -> (Update, ProbeLock) {
        let lock = ProbeLock::new(now, lasts);
        let now = epoch_nanos(now);
        let free = if self.is_probed(now) { 0..=now } else { self.probe_until..=self.probe_until };
        (self.unchanged().when(PROBE_UNTIL, free).set(PROBE_UNTIL, lock.0), lock)
    }

    /// Extends a lock, if no other message has taken it since.
    pub(crate) fn lengthen(
        &self,
        lock: ProbeLock,
        now: SystemTime,
        lasts: Duration,
    ) -> (Update, ProbeLock) {
        let longer = ProbeLock::new(now, lasts);
        let update = self.unchanged().when(PROBE_UNTIL, lock.0..=lock.0);
        (update.set(PROBE_UNTIL, longer.0), longer)
    }

    /// Keeps the lock for a while, since the probe was no evidence.
    pub(crate) fn note_silence(&self, lock: ProbeLock, now: SystemTime) -> Update {
        let wait = nanos(wait_after_silence(Duration::from_nanos(self.length)));
        let update = self.unchanged().when(PROBE_UNTIL, lock.0..=lock.0);
        update.set(PROBE_UNTIL, epoch_nanos(now).saturating_add(wait))
    }

    /// Releases the lock of a probe that was not made.
    pub(crate) fn release(&self, lock: ProbeLock) -> Update {
        self.unchanged().when(PROBE_UNTIL, lock.0..=lock.0).set(PROBE_UNTIL, 0)
    }

    /// A pause of this length. `None` if the service is paused for about as long already.
    pub(crate) fn pause(
        &self,
        lock: Option<ProbeLock>,
        length: Duration,
        now: SystemTime,
    ) -> Option<Update> {
        let (at, length) = (epoch_nanos(now), nanos(length));
        let until = at.saturating_add(length);
        let update = match lock {
            Some(_) => self.unchanged(),
            None if self.until.saturating_add(length / 10) >= until && self.lasts(now) => {
                return None;
            }
            None => Update::new().when(UNTIL, self.until..=self.until),
        };
        let update = self.begin(update, PAUSED, until, length, 0, at);
        Some(self.record.answer_once(update, at))
    }

    pub(crate) fn opens(&self, breaker: &CircuitBreaker, now: SystemTime) -> bool {
        let now = epoch_nanos(now);
        !self.is_paused(now) && self.record.opens(breaker, now)
    }

    pub(crate) fn open(&self, breaker: &CircuitBreaker, now: SystemTime) -> Update {
        let (at, length) = (epoch_nanos(now), nanos(first_length(breaker)));
        let until = at.saturating_add(length);
        self.begin(self.unchanged(), OPEN, until, length, 0, at)
    }

    pub(crate) fn close(&self, now: SystemTime) -> Update {
        let at = epoch_nanos(now);
        let update = self.begin(self.unchanged(), NOT_PAUSED, 0, 0, 0, at);
        if self.why == OPEN && self.record.as_row().is_outage() {
            CallRecord::begin_anew(update, at)
        } else {
            self.record.answer_once(update, at)
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.why == OPEN
    }

    /// Notes a probe that failed. After the last one of its pause, the pause becomes longer.
    pub(crate) fn fail(
        &self,
        lock: ProbeLock,
        caller: Caller,
        breaker: &CircuitBreaker,
        now: SystemTime,
    ) -> Update {
        let at = epoch_nanos(now);
        let update = if self.why == PAUSED {
            self.begin(self.unchanged(), NOT_PAUSED, 0, 0, 0, at)
        } else if self.probed.iter().sum::<u64>() + 1 >= self.permits(Some(breaker)).all.into() {
            let length = Duration::from_nanos(self.length);
            let length = nanos(next_length(length, breaker, self.record.as_row().is_outage()));
            let until = at.saturating_add(length);
            self.begin(self.unchanged(), OPEN, until, length, self.rounds.saturating_add(1), at)
        } else {
            // A late result must not release the lock of another message.
            self.release(lock).add(PROBED[usize::from(caller.has_failed())], 1)
        };
        CallRecord::fail_once(update, caller.message, at)
    }

    /// Notes results of calls that began while the service was not paused.
    pub(crate) fn evidence(&self, evidence: &Results, now: SystemTime) -> Update {
        self.record.add(self.unchanged(), evidence, epoch_nanos(now))
    }

    /// A change on the condition that the service is not paused, now or meanwhile.
    pub(crate) fn unless_paused(&self, update: Update, now: SystemTime) -> Option<Update> {
        let generation = self.generation..=self.generation;
        (!self.is_paused(epoch_nanos(now))).then(|| update.when(GENERATION, generation))
    }

    fn unchanged(&self) -> Update {
        Update::new().when(GENERATION, self.generation..=self.generation)
    }

    /// The next generation: a pause, or the time after one.
    fn begin(
        &self,
        update: Update,
        why: u64,
        until: u64,
        length: u64,
        rounds: u64,
        now: u64,
    ) -> Update {
        let is_over = self.why == OPEN && why != OPEN;
        let update = if is_over { update.set(RECOVERED, until.max(now)) } else { update };
        update
            // A new item must not have a generation of an earlier one either.
            .set(GENERATION, self.generation.saturating_add(1).max(now))
            .set(WHY, why)
            .set(UNTIL, until)
            .set(LENGTH, length)
            .set(PROBE_UNTIL, 0)
            .set(PROBED[0], 0)
            .set(PROBED[1], 0)
            .set(ROUNDS, rounds)
    }

    fn why(&self) -> Deferral {
        if self.why == PAUSED { Deferral::Paused } else { Deferral::CircuitOpen }
    }

    fn is_paused(&self, now: u64) -> bool {
        match self.why {
            NOT_PAUSED => false,
            PAUSED => !self.has_lapsed(now),
            _ => true,
        }
    }

    fn rest(&self, now: u64) -> Duration {
        let rest = if self.is_wrong(now) { 0 } else { self.until.saturating_sub(now) };
        Duration::from_nanos(rest.min(self.length))
    }

    /// Whether the pause would last longer than intended.
    fn is_wrong(&self, now: u64) -> bool {
        self.until > now.saturating_add(self.length).saturating_add(nanos(SKEW))
    }

    fn is_probed(&self, now: u64) -> bool {
        let latest = now.saturating_add(nanos(LONGEST_LOCK + SKEW));
        now < self.probe_until && self.probe_until <= latest
    }

    /// As for the pause of one execution environment.
    fn has_lapsed(&self, now: u64) -> bool {
        self.probe_until == 0
            && self.probed == [0, 0]
            && now >= self.until.saturating_add(self.length)
    }

    fn permits(&self, breaker: Option<&CircuitBreaker>) -> Permits {
        let length = Duration::from_nanos(self.length);
        match breaker {
            _ if self.why == PAUSED => Permits::PAUSE,
            Some(breaker) => {
                Permits::after(self.rounds, length, breaker, self.record.as_row().is_outage())
            }
            None => Permits::OPEN,
        }
    }
}
