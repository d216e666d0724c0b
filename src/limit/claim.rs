//! A claim: the part of a limit that messages which ask together take. Another environment may have
//! changed the state since this one read it, so a claim is a change with conditions. If they are
//! met, each message gets its share.

use std::time::{Duration, SystemTime};

use super::line::{FairQueue, JOINED, StartTag, Tenant};
use super::pace::{LEAST, Pace, WHOLE, longer};
use super::{
    Admission, Ask, Demand, EARLY, FURTHEST_SLOT, KnownLimit, LONGEST_LINE, LimitState, TAT, Time,
    epoch_nanos, from_epoch_nanos, nanos,
};
use crate::policy::tolerance;
use crate::table::Update;

/// If calls are frequent, a message returns this much earlier, so that a late one leaves no gap.
const EARLIER: u64 = 500_000_000;
/// If the gate is idle, it does not wait for messages whose calls take this long in total.
const LATE: u64 = 5 * 1_000_000_000;
/// A state may be older than this. Unused calls of a longer time count only by the gate of now.
const LATELY: u64 = 10 * 1_000_000_000;
/// A message returns at most this much later than at the whole pace, and then asks again.
const LATER: u64 = 300 * 1_000_000_000;
/// The same for the rate of the policy, while an operator's lower rate applies, perhaps for a
/// moment.
const LATER_BY_OVERRIDE: u64 = 20 * 1_000_000_000;

/// The part of a limit that messages which ask together take.
#[derive(Debug)]
pub(crate) struct Claim {
    now: u64,
    /// The time between two calls: now, and at the whole pace.
    interval: u64,
    whole_interval: u64,
    /// The interval by which waiting messages return, and how much later than that they may return.
    returning: (u64, u64),
    pause: Option<Admission>,
    /// The pace that is likely to last.
    lasting_part: u64,
    is_adaptive: bool,
    /// The pace in the table.
    unchanged: Pace,
    /// The whole pace, if the limit is newer than the one in the state.
    restarted: Option<Pace>,
    /// How far reservations may run ahead of the interval.
    ahead: u64,
    /// The end of an allowance of which a service has said that little is left. Until then it gets
    /// no call of the burst.
    no_burst_until: u64,
    /// The interval from then on.
    uncapped: u64,
    seen: LimitState,
    gate: Time,
    /// Calls that were possible since the gate became free, and were not made.
    unused: u64,
    /// Reservations for calls that were made without a claim, before the first one of this claim.
    owed: u64,
    /// Reservations of this claim, with `owed`.
    slots: u64,
    /// The latest state of the gate at which each of these reservations is in time.
    latest: u64,
    /// The waiting list, with the messages that join and leave by this claim.
    line: FairQueue,
    /// A new message passes the waiting list if no more than this many units have joined it.
    longest_line: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// The reservation of this number, from 0.
    Slot(u64),
    /// The message joins this flow, with this start tag unless another message joins first. It
    /// returns at this time at the earliest.
    Joined(usize, StartTag, u64),
    Waits(StartTag),
    Full,
    LineFull,
    Paused,
}

impl Claim {
    /// A claim without shares, by the state as last seen.
    pub(crate) fn new(known: &KnownLimit, mut seen: LimitState, now: SystemTime) -> Self {
        let (of_policy, now) = (known.limit.interval_nanos(), epoch_nanos(now));
        let known = &seen.overrides.in_effect(known, now);
        let limit = &known.limit;
        let restarted = seen.pace.restarted(known, now);
        let unchanged = seen.pace;
        seen.pace = restarted.unwrap_or(seen.pace);
        let part = if limit.adaptive { seen.pace.part_at(limit, now) } else { WHOLE };
        let whole_interval = seen.pace.interval(limit);
        let uncapped = longer(whole_interval, part);
        let interval = seen.cap.slower(uncapped, now);
        // A slower pace must not allow more calls at once.
        let ahead = whole_interval.saturating_mul(u64::from(limit.burst.max(1) - 1));
        let slowest = if limit.adaptive { longer(whole_interval, LEAST) } else { whole_interval };
        let largest = limit.largest().into();
        let furthest = now
            .saturating_add(nanos(FURTHEST_SLOT))
            .saturating_add(ahead)
            .saturating_add(slowest.max(interval).saturating_mul(largest));
        let gate = Time::of(seen.tat, now, furthest);
        let open_since = seen.open_since.max(seen.overrides.open_since());
        let free_from = seen.tat.max(open_since).saturating_add(ahead);
        Self {
            now,
            interval,
            whole_interval,
            returning: if limit.interval_nanos() > of_policy {
                (of_policy, LATER_BY_OVERRIDE)
            } else {
                (whole_interval, LATER)
            },
            no_burst_until: if seen.cap.is_over(now) { 0 } else { seen.cap.ends() },
            uncapped,
            pause: seen.overrides.pause(now),
            lasting_part: if limit.adaptive { seen.pace.lasting_part(limit, now) } else { WHOLE },
            is_adaptive: limit.adaptive,
            unchanged,
            restarted,
            ahead,
            seen,
            gate,
            unused: now.saturating_sub(free_from) / interval,
            owed: 0,
            slots: 0,
            latest: furthest,
            line: seen.line,
            longest_line: u64::MAX,
        }
    }

    pub(crate) fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval)
    }

    /// A call may be this much later than its reservation.
    pub(crate) fn tolerance(&self) -> Duration {
        tolerance(Duration::from_nanos(self.whole_interval))
    }

    /// With the first reservation, this many more are taken, for calls that were made without one.
    pub(crate) fn owing(self, owed: u64) -> Self {
        Self { owed, ..self }
    }

    /// Takes the share of one message. If the limit is not fair, messages have no tenant.
    pub(crate) fn take(&mut self, demand: Demand) -> Share {
        let Demand { ask, tenant, longest, .. } = demand;
        let units = demand.units.into();
        // A reservation that is further away would count as lost.
        let mut longest = nanos(longest.min(FURTHEST_SLOT));
        let of = tenant.unwrap_or(Tenant::ALL);
        match (ask, self.pause) {
            (Ask::Joins(until), _) => return self.join(of, units, epoch_nanos(until)),
            (_, Some(_)) => return Share::Paused,
            (_, None) => {}
        }
        if tenant.is_some() && self.lasts(self.line.backlog_of(of)) > nanos(EARLY) {
            // The rest is for tenants that wait only a little.
            longest /= 2;
        }
        match ask {
            Ask::Waited(tag) if self.line.knows(tag) => {
                let before = self.line.before(tag);
                // If the gate is idle, the messages before this one are late.
                let is_free = self.gate == Time::Over
                    && self.slots == 0
                    && before <= self.unused + (LATE / self.interval).max(1);
                if !is_free && self.lasts(before) > nanos(EARLY) {
                    return Share::Waits(tag);
                }
                match self.pass(longest, units) {
                    Share::Full => {
                        if before == 0 {
                            self.line.wait_longer(units);
                        }
                        Share::Waits(tag)
                    }
                    slot => {
                        self.line.leave(units);
                        slot
                    }
                }
            }
            Ask::Retry if tenant.is_none() => self.pass(longest, units),
            Ask::Returned => match self.pass(longest, units) {
                // The message does not know its start tag.
                Share::Full => self.join(of, units, self.now),
                slot => {
                    self.line.leave(units);
                    slot
                }
            },
            _ => {
                let waits = match tenant {
                    Some(_) => self.lasts(self.line.before(self.line.next_tag(of))) > nanos(EARLY),
                    None => self.line.backlog() > 0,
                };
                if waits {
                    return self.join(of, units, self.now);
                }
                match self.pass(longest, units) {
                    Share::Full => self.join(of, units, self.now),
                    slot => {
                        let others =
                            if tenant.is_some() { nanos(EARLY) / self.interval } else { 0 };
                        self.longest_line = self.seen.line.longer_by(others);
                        // If no message waits, no scheduled time depends on it.
                        if self.line.backlog() > 0 {
                            self.line.join(of, units);
                            self.line.leave(units);
                        }
                        slot
                    }
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots == 0 && self.line == self.seen.line
    }

    pub(crate) fn slots(&self) -> u64 {
        self.slots
    }

    pub(crate) fn admission(&self, share: Share, before: &LimitState) -> Admission {
        match share {
            Share::Slot(number) => {
                let slot = self.slot(before.tat, number);
                Admission::Slot(Duration::from_nanos(slot - self.now))
            }
            Share::Joined(flow, StartTag(tag), earliest) => {
                let next = self.next(before);
                let moved = next.line.finish(flow).saturating_sub(self.line.finish(flow));
                let tag = StartTag(tag.saturating_add(moved));
                Admission::InLine(tag, self.turn(&next, tag, earliest))
            }
            Share::Waits(tag) => {
                let earliest = self.now.saturating_add(nanos(EARLY));
                let turn = self.turn(&self.next(before), tag, self.now);
                Admission::InLine(tag, turn.max(from_epoch_nanos(earliest)))
            }
            Share::Full => Admission::Full,
            Share::LineFull => Admission::LineFull,
            Share::Paused => self.pause.unwrap_or(Admission::Full),
        }
    }

    pub(crate) fn next(&self, before: &LimitState) -> LimitState {
        let mut next = *before;
        next.pace = self.restarted.unwrap_or(before.pace);
        if self.slots > 0 {
            next.tat = self.free_from(before.tat).saturating_add(self.places(self.slots));
        }
        next.line = before.line.with(&self.seen.line, &self.line);
        next
    }

    /// The same change as an update of the table, with its conditions.
    pub(crate) fn update(&self) -> Update {
        let mut update = self.seen.overrides.unchanged(Update::new());
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
        if self.longest_line < u64::MAX {
            update = update.when(JOINED, 0..=self.longest_line);
        }
        self.seen.line.update(&self.line, update)
    }

    /// From this time on, the state equals a new one.
    pub(crate) fn in_use_until(&self) -> SystemTime {
        let next = self.next(&self.seen);
        let tat = if matches!(self.gate, Time::Lost { .. }) { self.now } else { next.tat };
        let waits = longer(self.whole_interval.saturating_mul(next.line.backlog()), LEAST);
        let waits = waits.min(nanos(LONGEST_LINE));
        let busy = tat.max(self.now).saturating_add(waits);
        from_epoch_nanos(busy.max(self.seen.overrides.ends(self.now)).max(self.seen.cap.ends()))
    }

    fn places(&self, number: u64) -> u64 {
        let capped = self.no_burst_until.saturating_sub(self.now);
        let after = self.uncapped.saturating_mul(number);
        self.interval.saturating_mul(number).min(capped.saturating_add(after))
    }

    /// The interval without a cap.
    pub(super) fn uncapped(&self) -> u64 {
        self.uncapped
    }

    /// The time of a call whose reservation begins then.
    pub(super) fn due(&self, at: u64) -> u64 {
        at.min(at.saturating_sub(self.ahead).max(self.no_burst_until))
    }

    /// How long this many calls take. The pace may grow meanwhile, so a message returns earlier
    /// than the current pace says.
    fn lasts(&self, calls: u64) -> u64 {
        let (interval, later) = self.returning;
        let least = interval.saturating_mul(calls);
        let now = longer(self.whole_interval.saturating_mul(calls), self.lasting_part);
        least.saturating_add(now.saturating_sub(least).min(later))
    }

    /// The scheduled time of a message with this start tag: shortly before the calls before it end,
    /// which begin with the next free reservation.
    fn turn(&self, state: &LimitState, tag: StartTag, earliest: u64) -> SystemTime {
        let is_lost = self.slots == 0 && matches!(self.gate, Time::Lost { .. });
        let gate = if is_lost { 0 } else { self.due(state.tat) };
        let waits = self.lasts(state.line.before(tag));
        let earlier = if self.interval < 2 * EARLIER { EARLIER } else { 0 };
        let at = gate.max(self.now).saturating_add(waits).saturating_sub(earlier);
        from_epoch_nanos(at.max(earliest.saturating_add(waits)))
    }

    pub(super) fn paused(&self, tag: StartTag, until: SystemTime) -> SystemTime {
        self.turn(&self.seen, tag, epoch_nanos(until))
    }

    /// The time from which the gate has reservations.
    fn free_from(&self, tat: u64) -> u64 {
        match self.gate {
            Time::Ahead => tat.max(self.now),
            Time::Over | Time::Lost { .. } => self.now,
        }
    }

    /// The time of the reservation of this number.
    fn slot(&self, tat: u64, number: u64) -> u64 {
        let at = self.free_from(tat).saturating_add(self.places(number));
        self.due(at).max(self.now)
    }

    fn next_number(&self) -> u64 {
        self.slots.max(self.owed)
    }

    /// Makes a reservation, if its first unit comes soon enough. A condition on its last unit would
    /// refuse a heavy call for ever.
    fn pass(&mut self, longest: u64, units: u64) -> Share {
        let number = self.next_number();
        if self.slot(self.seen.tat, number) - self.now > longest {
            return Share::Full;
        }
        let latest = self.now.saturating_add(longest);
        let ahead = if latest < self.no_burst_until { 0 } else { self.ahead };
        let latest = latest.saturating_add(ahead);
        self.latest = self.latest.min(latest.saturating_sub(self.places(number)));
        let is_old = self.unused > LATELY / self.interval;
        if self.gate == Time::Over && is_old && self.line.backlog() > 0 {
            // Others may have made all these calls since this state was seen.
            self.latest = self.latest.min(self.seen.tat);
        }
        if self.slots == 0 && self.gate == Time::Over {
            // The messages that were to make these calls are late, or never return.
            self.line.leave(self.unused.min(self.line.backlog()));
        }
        self.slots = number + units;
        Share::Slot(number)
    }

    /// Joins the waiting list, to return at `earliest` or later.
    fn join(&mut self, tenant: Tenant, units: u64, earliest: u64) -> Share {
        let tag = self.line.next_tag(tenant);
        if self.lasts(self.line.before(tag)) >= nanos(LONGEST_LINE) {
            return Share::LineFull;
        }
        Share::Joined(self.line.join(tenant, units), tag, earliest)
    }
}
