//! A claim: the part of a limit that messages take which ask together. The state may have changed
//! since it was seen, so a claim is a change and its conditions: while they are met, each message
//! gets its share.

use std::time::{Duration, SystemTime};

use super::pace::{LEAST, Pace, WHOLE, longer, slower};
use super::{
    Admission, Ask, EARLY, FURTHEST_SLOT, HELD_BACK, KnownLimit, LINE_END, LONGEST_LINE,
    LimitState, MOVES_BY, Place, TAT, Time, epoch_nanos, from_epoch_nanos, nanos,
};
use crate::table::Update;

/// The longest time by which a message is called later than at the whole pace, before it asks again.
const LATER: u64 = 300 * 1_000_000_000;
/// A message whose turn was longer ago is late. It returns after longer waits than the others, so
/// that these keep their order.
const ON_TIME: Duration = Duration::from_secs(3);

/// The part of a limit that messages take which ask together.
#[derive(Debug)]
pub(crate) struct Claim {
    now: u64,
    /// The time by the line's clock.
    line_now: u64,
    /// The time between two calls, and that between two places of the line by its clock.
    interval: u64,
    place_interval: u64,
    /// The pace now, and the one that is likely to last.
    part: u64,
    lasting_part: u64,
    is_adaptive: bool,
    /// The pace in the table.
    unchanged: Pace,
    /// The pace of a limit that is newer than that in the state.
    restarted: Option<Pace>,
    /// How far the gate lets calls run ahead of the interval.
    ahead: u64,
    seen: LimitState,
    gate: Time,
    line: Time,
    /// Slots of calls that were made without a claim, before the first one of this claim.
    owed: u64,
    /// Slots taken, with these.
    slots: u64,
    /// The gate may be this far, so that each of these slots comes in time.
    latest: u64,
    /// Whether a message takes a slot since the line has called it.
    is_called: bool,
    /// Places by which the line moves back.
    displaced: u64,
    /// Places taken at the end of the line.
    joined: u64,
    /// The first place of a new line.
    begins: u64,
    /// Time without a place at the end of a line that ends before a pause.
    gap: u64,
    /// A pause ends then, so nobody who joins returns earlier.
    not_before: u64,
}

/// The share of one message in a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// The slot of this number, from 0.
    Slot(u64),
    /// The place of this number at the end of the line, from 0.
    Joined(u64),
    /// It keeps its place, whose turn is at this time.
    Waits(Place, u64),
    Full,
    LineFull,
}

impl Claim {
    /// A claim of nothing, by the state as it was last seen.
    pub(crate) fn new(known: &KnownLimit, mut seen: LimitState, now: SystemTime) -> Self {
        let (limit, now) = (&known.limit, epoch_nanos(now));
        let restarted = seen.pace.restarted(known, now);
        let unchanged = seen.pace;
        seen.pace = restarted.unwrap_or(seen.pace);
        let line_now = now.saturating_sub(seen.pace.behind_at(limit, now));
        let part = if limit.adaptive { seen.pace.part_at(limit, now) } else { WHOLE };
        let place_interval = seen.pace.interval(limit);
        let interval = longer(place_interval, part);
        // A slower pace must not let more calls through at once.
        let ahead = place_interval.saturating_mul(u64::from(limit.burst.max(1) - 1));
        let slowest = if limit.adaptive { longer(place_interval, LEAST) } else { interval };
        let furthest =
            now.saturating_add(nanos(FURTHEST_SLOT)).saturating_add(ahead).saturating_add(slowest);
        let furthest_end = furthest.saturating_add(nanos(LONGEST_LINE));
        Self {
            now,
            line_now,
            interval,
            place_interval,
            part,
            lasting_part: if limit.adaptive { seen.pace.lasting_part(limit, now) } else { WHOLE },
            is_adaptive: limit.adaptive,
            unchanged,
            restarted,
            ahead,
            seen,
            gate: Time::of(seen.tat, now, furthest),
            line: Time::of(seen.line_end, line_now, furthest_end),
            owed: 0,
            slots: 0,
            latest: furthest,
            is_called: false,
            displaced: 0,
            joined: 0,
            begins: 0,
            gap: 0,
            not_before: 0,
        }
    }

    /// The time between two calls now.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval)
    }

    /// If a message takes a slot, so many are taken besides, for calls that were made without.
    pub(crate) fn owing(self, owed: u64) -> Self {
        Self { owed, ..self }
    }

    /// Takes the share of one message, which can wait for its slot as long as `longest`.
    pub(crate) fn take(&mut self, ask: Ask, longest: Duration) -> Share {
        // A slot that is further away would count as lost.
        let longest = nanos(longest.min(FURTHEST_SLOT));
        let has_line = self.line == Time::Ahead;
        match ask {
            Ask::Waited(place)
                if has_line && self.real_wait(self.called_at(place)) >= nanos(EARLY) =>
            {
                Share::Waits(place, self.called_at(place))
            }
            Ask::Waited(place) => match self.pass(longest) {
                Share::Full if has_line => {
                    // The gate is behind the line.
                    self.displaced += 1;
                    let at = self.called_at(place);
                    let is_late = at.saturating_add(nanos(ON_TIME)) < self.line_now;
                    // It asks again soon. By then the line may have moved back, and it waits in it.
                    if is_late { Share::Full } else { Share::Waits(place, at) }
                }
                share => {
                    self.is_called |= has_line;
                    share
                }
            },
            Ask::Retry => {
                let share = self.pass(longest);
                self.displaced += u64::from(has_line && share != Share::Full);
                share
            }
            Ask::Paused(until) => self.join(epoch_nanos(until)),
            Ask::Newcomer if has_line || self.joined > 0 => self.join(self.now),
            Ask::Newcomer | Ask::Returned => match self.pass(longest) {
                Share::Full => self.join(self.now),
                slot => slot,
            },
        }
    }

    /// Whether it changes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots + self.displaced + self.joined == 0
    }

    /// The slots that it takes.
    pub(crate) fn slots(&self) -> u64 {
        self.slots
    }

    /// The admission of a message by its share, if the state was this before.
    pub(crate) fn admission(&self, share: Share, before: LimitState) -> Admission {
        match share {
            Share::Slot(number) => {
                let slot = self.slot(before.tat, number);
                Admission::Slot(Duration::from_nanos(slot - self.now))
            }
            Share::Joined(number) => {
                let (first, held_back) = match self.line {
                    Time::Ahead => (
                        before
                            .line_end
                            .saturating_add(self.line_places(self.displaced))
                            .saturating_add(self.gap),
                        before.held_back.saturating_add(self.line_places(self.displaced)),
                    ),
                    Time::Over | Time::Lost { .. } => (self.begins, 0),
                };
                let at = first.saturating_add(self.line_places(number));
                let turn = self.turn(at).max(from_epoch_nanos(self.not_before));
                Admission::InLine(Place(at.saturating_sub(held_back)), turn)
            }
            Share::Waits(place, at) => {
                let earliest = self.now.saturating_add(nanos(EARLY));
                Admission::InLine(place, self.turn(at).max(from_epoch_nanos(earliest)))
            }
            Share::Full => Admission::Full,
            Share::LineFull => Admission::LineFull,
        }
    }

    /// The state afterwards, if it was this before.
    pub(crate) fn next(&self, before: LimitState) -> LimitState {
        let mut next = before;
        next.pace = self.restarted.unwrap_or(before.pace);
        if self.slots > 0 {
            next.tat = self.free_from(before.tat).saturating_add(self.places(self.slots));
        }
        match self.line {
            Time::Ahead => {
                let (held_back, more) = self.line_grows();
                next.held_back = next.held_back.saturating_add(held_back);
                next.line_end = next.line_end.saturating_add(more);
            }
            Time::Over | Time::Lost { .. } if self.joined > 0 => {
                (next.line_end, next.held_back, next.moves_by) = (self.new_line_end(), 0, 0);
            }
            Time::Over | Time::Lost { .. } => {}
        }
        next
    }

    /// The same change in a table, and its conditions.
    pub(crate) fn update(&self) -> Update {
        let mut update = Update::new();
        if self.is_adaptive {
            update = self.unchanged.unchanged(update);
        }
        if let Some(pace) = &self.restarted {
            update = pace.written(update);
        }
        if self.slots > 0 {
            let slots = self.places(self.slots);
            update = update.when(TAT, self.gate.range(self.now, self.latest));
            update = match self.gate {
                Time::Ahead => update.add(TAT, slots),
                Time::Over | Time::Lost { .. } => update.set(TAT, self.now.saturating_add(slots)),
            };
        }
        let (held_back, more) = self.line_grows();
        let longest = self.line_now.saturating_add(nanos(LONGEST_LINE));
        let furthest = match self.joined {
            0 => u64::MAX,
            _ => longest.saturating_add(self.place_interval),
        };
        // A retry may have moved the line back after the last one joined. The gap depends on the end
        // that was seen.
        let latest = furthest.saturating_sub(more).max(self.seen.line_end);
        let latest = if self.gap > 0 { latest.min(self.seen.line_end) } else { latest };
        update = update.when(LINE_END, self.line.range(self.line_now, latest));
        if self.is_called {
            // If others moved the line back since, it may not have called the message yet.
            let latest = self.seen.held_back.saturating_add(nanos(EARLY));
            update = update.when(HELD_BACK, 0..=latest);
        }
        match self.line {
            Time::Ahead if more > 0 => update.add(LINE_END, more).add(HELD_BACK, held_back),
            Time::Over | Time::Lost { .. } if self.joined > 0 => {
                // The length of the line before says nothing about this one.
                update.set(LINE_END, self.new_line_end()).set(HELD_BACK, 0).set(MOVES_BY, 0)
            }
            Time::Ahead | Time::Over | Time::Lost { .. } => update,
        }
    }

    /// The state says no more than a new one from then on.
    pub(crate) fn in_use_until(&self) -> SystemTime {
        let LimitState { tat, line_end, .. } = self.next(self.seen);
        let kept = |time: Time, end| if matches!(time, Time::Lost { .. }) { self.now } else { end };
        let line_end = self.now.saturating_add(self.real_wait(line_end));
        let end = kept(self.gate, tat).max(kept(self.line, line_end));
        from_epoch_nanos(end.max(self.now))
    }

    fn places(&self, number: u64) -> u64 {
        self.interval.saturating_mul(number)
    }

    fn line_places(&self, number: u64) -> u64 {
        self.place_interval.saturating_mul(number)
    }

    /// The wait until a time of the line's clock, at the pace of now.
    fn real_wait(&self, at: u64) -> u64 {
        longer(at.saturating_sub(self.line_now), self.part)
    }

    /// When a message returns whose turn is at a time of the line's clock. The pace may grow
    /// meanwhile, so it may return earlier than by the pace of now.
    fn turn(&self, at: u64) -> SystemTime {
        let wait = at.saturating_sub(self.line_now);
        let later = (longer(wait, self.lasting_part) - wait).min(LATER);
        from_epoch_nanos(self.now.saturating_add(wait).saturating_add(later))
    }

    fn called_at(&self, Place(place): Place) -> u64 {
        let held_back = self.seen.held_back.saturating_add(self.line_places(self.displaced));
        let line_end = self.seen.line_end.saturating_add(self.line_places(self.displaced));
        // A forged place, or one of another line, is at most the last.
        place.saturating_add(held_back).min(line_end)
    }

    /// The time from which the gate has slots.
    fn free_from(&self, tat: u64) -> u64 {
        match self.gate {
            Time::Ahead => tat.max(self.now),
            Time::Over | Time::Lost { .. } => self.now,
        }
    }

    /// The time of the slot of this number.
    fn slot(&self, tat: u64, number: u64) -> u64 {
        let at = self.free_from(tat).saturating_add(self.places(number));
        at.saturating_sub(self.ahead).max(self.now)
    }

    /// Takes a slot of the gate, if it has one soon enough.
    fn pass(&mut self, longest: u64) -> Share {
        let number = self.slots.max(self.owed);
        if self.slot(self.seen.tat, number) - self.now > longest {
            return Share::Full;
        }
        let latest = self.now.saturating_add(longest).saturating_add(self.ahead);
        self.latest = self.latest.min(latest.saturating_sub(self.places(number)));
        self.slots = number + 1;
        Share::Slot(number)
    }

    /// Joins the line at its end, for a turn at `earliest` or later. A new line begins where the
    /// gate has its next slot.
    fn join(&mut self, earliest: u64) -> Share {
        let number = self.joined;
        self.not_before = self.not_before.max(earliest);
        let earliest = self.by_line(from_epoch_nanos(earliest));
        let first = match self.line {
            Time::Ahead => {
                let end = self.seen.line_end.saturating_add(self.line_places(self.displaced));
                self.gap = self.gap.max(earliest.saturating_sub(end));
                end.saturating_add(self.gap)
            }
            Time::Over | Time::Lost { .. } => {
                if number == 0 {
                    let wait = self.slot(self.seen.tat, self.slots) - self.now;
                    self.begins = self.line_now.saturating_add(slower(wait, self.part));
                }
                self.begins = self.begins.max(earliest);
                self.begins
            }
        };
        let longest = self.line_now.saturating_add(nanos(LONGEST_LINE));
        if first.saturating_add(self.line_places(number)) > longest {
            return Share::LineFull;
        }
        self.joined += 1;
        Share::Joined(number)
    }

    /// The times by which a line is held back and becomes longer.
    fn line_grows(&self) -> (u64, u64) {
        let held_back = self.line_places(self.displaced);
        let joined = self.line_places(self.joined).saturating_add(self.gap);
        (held_back, held_back.saturating_add(joined))
    }

    fn new_line_end(&self) -> u64 {
        self.begins.saturating_add(self.line_places(self.joined))
    }

    /// The place of a message in line while its service is paused, and its turn. A pause lengthens the
    /// line by as many places as it calls up meanwhile. So no two messages move to the same place.
    pub(super) fn held(&self, place: Place, until: SystemTime) -> (Place, SystemTime) {
        let end = self.by_line(until);
        let mut at = place.0.saturating_add(self.seen.held_back);
        if at < end {
            let length = if self.line == Time::Ahead { self.seen.moves_by } else { 0 };
            let rounds = (end - at).div_ceil(length.max(1));
            at = at.saturating_add(length.saturating_mul(rounds)).max(end);
        }
        (Place(at.saturating_sub(self.seen.held_back)), self.turn(at).max(until))
    }

    /// The end of a line that becomes longer, if somebody waits in it.
    pub(super) fn lengthened(&self, longer: Duration) -> Option<u64> {
        let more = slower(nanos(longer), self.part);
        (self.line == Time::Ahead).then(|| self.seen.line_end.saturating_add(more))
    }

    /// A time to come, by the line's clock.
    pub(super) fn by_line(&self, time: SystemTime) -> u64 {
        let wait = epoch_nanos(time).saturating_sub(self.now);
        self.line_now.saturating_add(slower(wait, self.part))
    }
}
