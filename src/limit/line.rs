//! The waiting list of a limit, by fair queueing: flows with start and finish tags in virtual time.
//!
//! Each tenant has a flow. A message that joins gets the finish tag of its flow as its start tag,
//! and advances the finish tag by its units, divided by the weight of the tenant. Virtual time
//! advances with the calls: it is the level up to which each flow was served. So it needs no clock,
//! and no pause changes it. A limit that is not fair has one flow, first in, first out.

use sha2::{Digest, Sha256};

use crate::table::{Field, Item, Update};

/// The flows of a waiting list. If more tenants wait at a time, some of them share a flow.
pub(crate) const FLOWS: usize = 32;
/// Virtual time for each unit of a tenant with the weight 1.
const UNIT: u64 = 256;
/// A flow is one number: its owner, its weight, and its finish tag.
const TAG_BITS: u32 = 40;
const LAST_TAG: u64 = (1 << TAG_BITS) - 1;
/// A tenant without a flow of its own joins the shortest of this many flows.
const CHOICES: usize = 3;

pub(super) const JOINED: Field = Field::new("joined");
const LEFT: Field = Field::new("left");
const FLOW: [Field; FLOWS] = Field::each([
    "f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9", "f10", "f11", "f12", "f13", "f14",
    "f15", "f16", "f17", "f18", "f19", "f20", "f21", "f22", "f23", "f24", "f25", "f26", "f27",
    "f28", "f29", "f30", "f31",
]);

/// A tenant of a fair limit, or several tenants that share a flow of its waiting list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantStatus {
    /// Its value, if the policy gives it a weight.
    pub name: Option<String>,
    /// The digits 5 to 8 of the SHA-256 of `text acme` or `number 7`. The value itself is not in the
    /// table.
    pub hash: u16,
    /// Its weight.
    pub weight: u8,
    /// The units of its messages in the waiting list.
    pub waiting: u64,
}

/// Whose messages share a flow: a hash of the tenant, and its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenant {
    pub(crate) hash: u32,
    pub(crate) weight: u8,
}

impl Tenant {
    /// The tenant of all messages of a limit that is not fair.
    pub(crate) const ALL: Self = Self { hash: 0, weight: 1 };

    /// The tenant of the values with this name.
    pub(crate) fn of(name: &str, weight: u8) -> Self {
        let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(name));
        Self { hash: u32::from_le_bytes([a, b, c, d]), weight }
    }

    /// The part of the hash in an item.
    pub(crate) fn owner(self) -> u16 {
        u16::try_from(self.hash >> 16).unwrap_or_default()
    }

    fn home(self) -> usize {
        self.hash as usize % FLOWS
    }
}

/// A message's start tag: the virtual time from which it may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StartTag(pub(crate) u64);

impl StartTag {
    /// The form in which a message carries it, with the number of its limit.
    pub(crate) fn of_limit(self, number: usize) -> Self {
        Self(self.0 & LAST_TAG | (number as u64) << TAG_BITS)
    }

    /// The number of the limit, and its start tag there.
    pub(crate) fn split(self) -> (usize, Self) {
        (usize::try_from(self.0 >> TAG_BITS).unwrap_or(usize::MAX), Self(self.0 & LAST_TAG))
    }
}

/// The flows of the messages that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FairQueue {
    /// Units that joined and left so far.
    joined: u64,
    left: u64,
    flows: [Flow; FLOWS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flow(u64);

impl Flow {
    fn new(tenant: Tenant, finish: u64) -> Self {
        let owner = u64::from(tenant.owner()) << 8 | u64::from(tenant.weight);
        Self(owner << TAG_BITS | finish.min(LAST_TAG))
    }

    fn is_of(self, tenant: Tenant) -> bool {
        self.0 >> (TAG_BITS + 8) == u64::from(tenant.owner()) && self.weight() > 0
    }

    /// 0 before the first message of the flow.
    fn weight(self) -> u64 {
        self.0 >> TAG_BITS & 0xff
    }

    fn finish(self) -> u64 {
        self.0 & LAST_TAG
    }

    fn with_finish(self, finish: u64) -> Self {
        Self(self.0 - self.finish() + finish)
    }

    /// By how much the flow grew, if it continued since the virtual time `time`.
    fn growth(self, next: Self, time: u64) -> Option<u64> {
        let goes_on = self.0 >> TAG_BITS == next.0 >> TAG_BITS && self.finish() >= time;
        next.0.checked_sub(self.0).filter(|more| goes_on || *more == 0)
    }

    /// Its work between two virtual times.
    fn work(self, from: u64, to: u64) -> u64 {
        self.weight().saturating_mul(self.finish().min(to).saturating_sub(from))
    }
}

impl FairQueue {
    pub(super) fn of(item: &Item) -> Self {
        let flows = FLOW.map(|field| Flow(item.get(field)));
        Self { joined: item.get(JOINED), left: item.get(LEFT), flows }
    }

    pub(super) fn backlog(&self) -> u64 {
        self.joined.saturating_sub(self.left)
    }

    /// The virtual time now. The units of all flows beyond it are the units that wait.
    fn time(&self) -> u64 {
        let waits = self.backlog().saturating_mul(UNIT);
        if waits == 0 {
            return self.flows.iter().map(|flow| flow.finish()).max().unwrap_or_default();
        }
        let mut flows = self.flows;
        flows.sort_unstable_by_key(|flow| std::cmp::Reverse(flow.finish()));
        let mut time = flows[0].finish();
        let (mut weights, mut work) = (0, 0);
        for flow in flows {
            let more = u64::saturating_mul(weights, time - flow.finish());
            if work + more >= waits {
                break;
            }
            (time, work, weights) = (flow.finish(), work + more, weights + flow.weight());
        }
        time.saturating_sub((waits - work).checked_div(weights).unwrap_or(0))
    }

    /// Units that are called before a message with this start tag.
    pub(super) fn before(&self, StartTag(tag): StartTag) -> u64 {
        let time = self.time();
        let work: u64 = self.flows.iter().map(|flow| flow.work(time, tag)).sum();
        (work / UNIT).min(self.backlog())
    }

    /// Units of the tenant that wait.
    pub(super) fn backlog_of(&self, tenant: Tenant) -> u64 {
        self.flows[self.place(tenant)].work(self.time(), LAST_TAG) / UNIT
    }

    /// The flows with units that wait.
    pub(super) fn tenants(&self) -> Vec<TenantStatus> {
        let time = self.time();
        let of = |flow: &Flow| TenantStatus {
            name: None,
            hash: u16::try_from(flow.0 >> (TAG_BITS + 8)).unwrap_or_default().swap_bytes(),
            weight: u8::try_from(flow.weight()).unwrap_or(u8::MAX),
            waiting: flow.work(time, LAST_TAG) / UNIT,
        };
        self.flows.iter().map(of).filter(|tenant| tenant.waiting > 0).collect()
    }

    pub(super) fn next_tag(&self, tenant: Tenant) -> StartTag {
        StartTag(self.flows[self.place(tenant)].finish().max(self.time()))
    }

    /// Whether the waiting list has given such a tag.
    pub(super) fn knows(&self, StartTag(tag): StartTag) -> bool {
        self.flows.iter().any(|flow| tag < flow.finish())
    }

    /// Adds a message of a tenant. Returns its flow.
    pub(super) fn join(&mut self, tenant: Tenant, units: u64) -> usize {
        if self.backlog() == 0 && self.time() > LAST_TAG / 2 {
            self.flows = Default::default();
        }
        let (time, at) = (self.time(), self.place(tenant));
        let flow = &mut self.flows[at];
        let goes_on = flow.finish() > time || flow.is_of(tenant) && flow.finish() == time;
        let weight = if goes_on { flow.weight() } else { tenant.weight.into() };
        let more = (units.saturating_mul(UNIT) / weight.max(1)).max(1);
        let finish = flow.finish().max(time).saturating_add(more).min(LAST_TAG);
        *flow = if goes_on { flow.with_finish(finish) } else { Flow::new(tenant, finish) };
        self.joined = self.joined.max(self.left).saturating_add(units);
        at
    }

    /// Notes calls. Their units are at most those that have joined.
    pub(super) fn leave(&mut self, units: u64) {
        self.left = self.left.saturating_add(units).min(self.joined.max(self.left));
    }

    /// Notes a message that still waits although the waiting list had counted its call.
    pub(super) fn wait_longer(&mut self, units: u64) {
        self.joined = self.joined.saturating_add(units);
    }

    /// The flow of a tenant: its own, one that is free, or a short one.
    fn place(&self, tenant: Tenant) -> usize {
        let ours = self.flows.iter().position(|flow| flow.is_of(tenant));
        ours.unwrap_or_else(|| {
            let time = self.time();
            let order = (0..FLOWS).map(|step| (tenant.home() + step) % FLOWS);
            let mut free = order.clone().filter(|at| self.flows[*at].finish() <= time);
            let shortest =
                || order.step_by(FLOWS / CHOICES).min_by_key(|at| self.flows[*at].finish());
            free.next().or_else(shortest).unwrap_or_default()
        })
    }

    /// The changes from this waiting list to `next`. If others lengthen an existing flow meanwhile,
    /// it grows by both; a new flow must be unchanged.
    pub(super) fn update(&self, next: &Self, mut update: Update) -> Update {
        let time = self.time();
        for (field, (seen, next)) in FLOW.into_iter().zip(self.flows.iter().zip(next.flows)) {
            update = match seen.growth(next, time) {
                Some(0) => update,
                Some(more) => {
                    let longest = (seen.0 | LAST_TAG) - more;
                    update.when(field, seen.0..=longest.max(seen.0)).add(field, more)
                }
                None => update.when(field, seen.0..=seen.0).set(field, next.0),
            };
        }
        for (field, seen, next) in
            [(JOINED, self.joined, next.joined), (LEFT, self.left, next.left)]
        {
            if next > seen {
                update = update.add(field, next - seen);
            }
        }
        update
    }

    /// `joined` after this many more units.
    pub(super) fn longer_by(&self, units: u64) -> u64 {
        self.joined.saturating_add(units)
    }

    pub(super) fn with(mut self, seen: &Self, next: &Self) -> Self {
        let time = seen.time();
        for (flow, (seen, next)) in self.flows.iter_mut().zip(seen.flows.iter().zip(next.flows)) {
            *flow = seen.growth(next, time).map_or(next, |more| Flow(flow.0 + more));
        }
        self.joined = self.joined.saturating_add(next.joined - seen.joined);
        self.left = self.left.saturating_add(next.left - seen.left);
        self
    }

    pub(super) fn finish(&self, at: usize) -> u64 {
        self.flows[at].finish()
    }
}
