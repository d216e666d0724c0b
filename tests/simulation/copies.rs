//! The expected copy, computed from the delivered message, the result of the call and the policy,
//! in another way than the library does it.

use std::time::{Duration, SystemTime};

use requeue::policy::{Backoff, ClassPolicy, Jitter};
use requeue::queue::{Outgoing, QueueArn};
use requeue::{FailureClass, Mode, RecursiveLoop, Strategy, Wrap};

use crate::book::{Ended, Invocation, Member, Track};
use crate::letters;
use crate::plan::{DeadLetters, Plan, secs};
use crate::producer::{Copies, Maker};
use crate::system::World;
use crate::wire::{Members, at};

/// From the decision to the last try of a send.
const SETTLING_SECS: u64 = 62;

/// Times are written in whole milliseconds.
const SLACK: Duration = Duration::from_millis(1);

pub type Checked = Result<(), String>;

pub fn expect(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

pub fn waits_in_place(plan: &Plan) -> bool {
    plan.is_fifo || plan.strategy == Strategy::Visibility || plan.mode == Mode::Report
}

/// Whether a message may wait in its place, be it for the sake of others that were sent again and
/// again.
pub fn may_wait_in_place(plan: &Plan) -> bool {
    waits_in_place(plan) || plan.recursive_loop == RecursiveLoop::Terminate
}

/// Copies in a row after which a message waits in its place, where Lambda cuts loops.
const LONGEST_ROW: u64 = 10;

/// Receives count as retries only of what certainly waited in its place.
fn unnoted(plan: &Plan, member: &Member) -> u64 {
    let ends_its_row =
        plan.recursive_loop == RecursiveLoop::Terminate && member.past.row >= LONGEST_ROW;
    if !waits_in_place(plan) && !ends_its_row {
        return 0;
    }
    (member.receives - member.arrival.0).saturating_sub(member.waits)
}

/// At most; a moved message has fewer in an environment that did not see it arrive.
pub fn retries(plan: &Plan, member: &Member) -> u64 {
    member.past.count + unnoted(plan, member)
}

/// Whether a copy says itself that an earlier receive of it found no retry left.
pub fn is_spent(plan: &Plan, member: &Member) -> bool {
    let past = &member.past;
    let is_used_up = |(class, _): &(String, u64)| {
        let classes = [FailureClass::RateLimit, FailureClass::Quota, FailureClass::Temporary];
        let budget = classes
            .into_iter()
            .find(|known| known.as_str() == class)
            .and_then(|class| plan.policy.class(class));
        let begin = past.age_from.unwrap_or(past.first_received);
        let age = Duration::from_millis(past.received_here.saturating_sub(begin));
        budget.is_some_and(|budget| {
            let is_counted_out =
                budget.max_retries.is_some_and(|most| past.counts.get(class) >= Some(&most.into()));
            is_counted_out || age + secs(1) > budget.total_timeout
        })
    };
    let has_none_left = || retries(plan, member) >= u64::from(member.asked.retries(plan));
    member.receives > member.arrival.0
        && (has_none_left() || past.last.as_ref().is_some_and(is_used_up))
}

/// Checks what is about to be sent. `now` is the time of the environment that sends.
pub fn check(
    world: &World,
    invocation: &Invocation,
    track: &Track,
    n: usize,
    queue: &QueueArn,
    copy: &Outgoing<'_>,
    now: SystemTime,
) -> Checked {
    let plan = &world.plan;
    let (home, dead) = world.queues(invocation.environment);
    let is_dead = queue == dead;
    expect(is_dead || queue == home, || format!("sent to {queue}"))?;
    expect(*copy.attributes == track.product.attributes, || {
        "the attributes of the copy differ".to_owned()
    })?;
    let group = copy.group_id.map(str::to_owned);
    expect(group == track.product.group, || format!("the group of the copy is {group:?}"))?;
    expect(copy.delay.as_secs() <= 900, || format!("delay {}", copy.delay))?;
    let members = Members::read(copy.body).ok_or("the copy does not bear our members")?;
    expect(members.is_dead_lettered() || !is_dead, || "a dead letter does not say why".to_owned())?;
    let is_to_be_dead = if is_dead { DeadLetters::Direct } else { DeadLetters::Annotate };
    if members.is_dead_lettered() {
        expect(plan.dead_letters == is_to_be_dead, || {
            format!("dead-lettered in another way than {:?}", plan.dead_letters)
        })?;
        expect(is_dead || !plan.is_fifo, || "an annotated copy on a FIFO queue".to_owned())?;
    } else {
        let may_copy = !plan.is_fifo && plan.strategy == Strategy::Copy;
        expect(may_copy, || "a copy though messages wait in their place".to_owned())?;
    }
    expect(plan.mode == Mode::Requeue, || "a copy though nothing is to be sent".to_owned())?;
    let is_wrapped = track.product.copies == Copies::Wrapped;
    expect(!is_wrapped || plan.wrap == Wrap::WhenNeeded, || {
        "wrapped though that is forbidden".to_owned()
    })?;
    expect(track.product.maker != Maker::Successor, || {
        "a copy of a later version's message".to_owned()
    })?;
    let mut all = invocation
        .of(n)
        .map(|member| check_of(world, invocation, member, &members, is_dead, copy, now));
    let first = all
        .next()
        .unwrap_or_else(|| Err("a copy of a message that is not in the batch".to_owned()));
    // One that was sent or received again may be in the batch with its copies.
    all.fold(first, Result::or)
}

/// Whether this is the copy of this very message.
fn check_of(
    world: &World,
    invocation: &Invocation,
    member: &Member,
    members: &Members,
    is_dead: bool,
    copy: &Outgoing<'_>,
    now: SystemTime,
) -> Checked {
    let (plan, home) = (&world.plan, world.queues(invocation.environment).0);
    expect(!member.is_called || member.ended.is_some(), || {
        "a copy while the handler runs".to_owned()
    })?;
    let member = &afresh(plan, members, member, now)?;
    history(members, member)?;
    expect(!member.is_unclear, || "a copy, though nobody knows whether it is done".to_owned())?;
    if members.is_dead_lettered() {
        let count = members.count;
        letters::check(world, invocation, members, member, is_dead.then_some(home), now)?;
        return expect(count == member.past.count, || {
            format!("{count} retries, dead-lettered after {}", member.past.count)
        });
    }
    match member.ended {
        None => deferred(plan, members, member),
        Some(Ended::Done) => Err("a copy of what is done".to_owned()),
        Some(Ended::Final) => Err("a copy of what failed for good".to_owned()),
        Some(Ended::Postponed(delay)) => postponed(plan, members, member, delay, copy),
        Some(Ended::Failed(class, _)) if is_unserved(members, member) => {
            unserved(plan, members, member, class, now)
        }
        Some(Ended::Cut) if is_unserved(members, member) => {
            unserved(plan, members, member, FailureClass::Temporary, now)
        }
        Some(Ended::Failed(class, named)) => failed(plan, members, member, class, named, now, copy),
        Some(Ended::Cut) => failed(plan, members, member, FailureClass::Temporary, None, now, copy),
    }
}

/// Whether a copy of a message that failed uses no retry.
pub fn is_unserved(members: &Members, member: &Member) -> bool {
    matches!(member.ended, Some(Ended::Failed(..) | Ended::Cut))
        && !members.is_dead_lettered()
        && members.count == member.past.count
}

/// A failure uses no retry if it speaks of the service, after as many others as open a circuit: in
/// this environment, or of this message. A producer's limit counts calls, and the age ends it.
fn unserved(
    plan: &Plan,
    members: &Members,
    member: &Member,
    class: FailureClass,
    now: SystemTime,
) -> Checked {
    let threshold = plan.policy.circuit_breaker.as_ref().map(|breaker| breaker.threshold.max(1));
    let before = member.spoke_of_service.max(member.past.count + 1);
    expect(threshold.is_some_and(|threshold| before >= u64::from(threshold)), || {
        format!("no retry used after {before} failures")
    })?;
    expect(member.speaks_of_service(), || "no retry used by a failure of the message".to_owned())?;
    expect(member.asked.max_retries.is_none(), || "a call beyond a producer's limit".to_owned())?;
    let name = class.as_str();
    expect(members.class() == Some(name), || format!("of class {:?}", members.class()))?;
    expect(members.counts() == member.past.counts, || format!("counts {:?}", members.counts()))?;
    let budget = plan.policy.class(class).expect("a class that is tried again");
    let first_received = at(member.past.age_from.unwrap_or(member.past.first_received))
        .max(member.asked.not_before.unwrap_or(SystemTime::UNIX_EPOCH));
    let age = now.duration_since(first_received).unwrap_or_default();
    let left = budget.total_timeout.saturating_sub(age).as_secs();
    let delay = members.number("delay");
    expect(delay <= left + SETTLING_SECS, || format!("delay {delay} with {left} s left"))
}

/// A moved message starts afresh when an environment sees it, as the copy notes.
fn afresh(
    plan: &Plan,
    members: &Members,
    member: &Member,
    now: SystemTime,
) -> Result<Member, String> {
    if !member.past.is_moved {
        return Ok(member.clone());
    }
    let times = (members.time("firstSent"), members.time("firstReceived"));
    let skew = Duration::from_secs(plan.skew());
    let (Some(sent), Some(received)) = times else {
        return Err(format!("first sent and received {times:?}"));
    };
    let is_right =
        sent == received && at(received) + skew + SLACK >= member.arrival.1 && at(received) <= now;
    expect(is_right || member.past.keeps_all, || {
        format!("first sent and received here {times:?}")
    })?;
    let mut member = member.clone();
    (member.past.first_sent, member.past.first_received) = (sent, received);
    Ok(member)
}

/// What is written once stays.
fn history(members: &Members, member: &Member) -> Checked {
    let past = &member.past;
    let times = (members.time("firstSent"), members.time("firstReceived"));
    expect(times == (Some(past.first_sent), Some(past.first_received)), || {
        format!("first sent and received {times:?}")
    })?;
    expect(members.original == past.original, || {
        format!("the original id became {}", members.original)
    })?;
    let receives = member.receives - member.arrival.0 + 1;
    let is_alone = past.is_alone || receives > 2 && !members.is_dead_lettered();
    // Of a message that SQS moved, each environment knows only the receives that it saw.
    expect((members.state["alone"] == true) == is_alone || past.is_moved, || {
        format!("whether it is alone, after {receives} receives")
    })
}

fn deferred(plan: &Plan, members: &Members, member: &Member) -> Checked {
    let past = &member.past;
    let steps = (members.number("deferrals") - past.deferrals.min(members.number("deferrals")))
        + (members.number("hops") - past.hops.min(members.number("hops")));
    expect(steps == 1, || format!("{steps} deferrals or hops at once"))?;
    let (count, deferrals) = (members.count, members.number("deferrals"));
    expect(count == past.count, || {
        format!("{count} retries without a call, after {}", past.count)
    })?;
    // A rate limit holds back every call, also of a message that was deferred often.
    let most = past.deferrals.max(u64::from(plan.policy.max_deferrals));
    let is_bounded = plan.limits().is_empty();
    expect(deferrals <= most || !is_bounded, || format!("{deferrals} deferrals"))
}

fn postponed(
    plan: &Plan,
    members: &Members,
    member: &Member,
    delay: Duration,
    copy: &Outgoing<'_>,
) -> Checked {
    let past = &member.past;
    expect(members.count == past.count, || {
        format!("{} retries by a postponement, after {}", members.count, past.count)
    })?;
    let postponements = members.number("postponements");
    expect(postponements == past.postponements + 1, || format!("{postponements} postponements"))?;
    expect(postponements <= u64::from(plan.policy.max_postponements), || {
        format!("{postponements} postponements")
    })?;
    let least = delay.min(plan.policy.max_retry_after).as_secs().min(900);
    expect(u64::from(copy.delay.as_secs()) >= least, || {
        format!("postponed for only {}", copy.delay)
    })
}

fn failed(
    plan: &Plan,
    members: &Members,
    member: &Member,
    class: FailureClass,
    named: Option<Duration>,
    now: SystemTime,
    copy: &Outgoing<'_>,
) -> Checked {
    let past = &member.past;
    let (count, before) = (members.count, retries(plan, member));
    expect(count == before + 1, || format!("{count} retries after {before}"))?;
    expect(count <= u64::from(member.asked.retries(plan)), || format!("{count} retries"))?;
    let name = class.as_str();
    expect(members.class() == Some(name), || format!("of class {:?}", members.class()))?;
    let mut counts = past.counts.clone();
    let of_class = counts.entry(name.to_owned()).or_default();
    *of_class = (*of_class + 1).min(u64::from(u32::MAX));
    expect(members.counts() == counts, || format!("counts {:?}", members.counts()))?;
    let budget = plan.policy.class(class).expect("a class that is tried again");
    let most = budget.max_retries.map_or(u64::MAX, u64::from);
    expect(counts[name] + unnoted(plan, member) <= most, || format!("counts {counts:?}"))?;

    let delay = members.number("delay");
    expect(u64::from(copy.delay.as_secs()) == delay.min(900), || {
        format!("delay {} of {delay}", copy.delay)
    })?;
    // Before its time nobody has tried anything.
    let first_received = at(past.age_from.unwrap_or(past.first_received))
        .max(member.asked.not_before.unwrap_or(SystemTime::UNIX_EPOCH));
    let age = now.duration_since(first_received).unwrap_or_default();
    let left = budget.total_timeout.saturating_sub(age).as_secs();
    expect(delay <= left + SETTLING_SECS, || format!("delay {delay} with {left} s left"))?;
    if let Some(named) = named {
        let least = named.min(plan.policy.max_retry_after).as_secs();
        expect(delay >= least, || format!("delay {delay}, named were {least}"))?;
    } else {
        expect(delay <= budget.max_delay.as_secs(), || format!("delay {delay} beyond the cap"))?;
    }
    let Some(sample) = plan.sample else { return Ok(()) };
    let retries = counts[name] - 1 + unnoted(plan, member);
    let curve = spread(budget, retries, previous(plan, member, budget, name), sample);
    let named = named.map(|named| {
        let named = named.min(plan.policy.max_retry_after).as_secs_f64();
        named + (named / 10.0).min(60.0) * sample
    });
    let wanted = match named {
        Some(named) if retries == 0 => named,
        Some(named) => named.max(curve),
        None => curve,
    };
    let wanted = whole(wanted);
    let is_right = if wanted <= left { delay == wanted } else { delay <= wanted };
    expect(is_right, || format!("delay {delay} instead of {wanted}"))
}

fn previous(plan: &Plan, member: &Member, budget: &ClassPolicy, class: &str) -> Option<f64> {
    let receives = unnoted(plan, member);
    if receives > 0 {
        let count = member.past.counts.get(class).copied().unwrap_or(0) + receives - 1;
        return Some(curve(&budget.backoff, count).min(budget.max_delay.as_secs_f64()));
    }
    #[expect(clippy::cast_precision_loss, reason = "at most a day")]
    let last = |(name, delay): &(String, u64)| (name == class).then_some(*delay as f64);
    member.past.last.as_ref().and_then(last)
}

/// The delay before jitter and cap.
fn curve(backoff: &Backoff, retries: u64) -> f64 {
    let n = i32::try_from(retries.min(1_000)).expect("small");
    let base = backoff.base().as_secs_f64();
    match backoff {
        Backoff::Exponential { multiplier, .. } => base * multiplier.powi(n),
        Backoff::Linear { .. } => base * f64::from(n + 1),
        Backoff::Fibonacci { .. } => {
            let (mut one, mut two) = (base, base);
            for _ in 0..n {
                (one, two) = (two, one + two);
            }
            one
        }
        Backoff::Constant { .. } => base,
        Backoff::List { then, .. } => {
            let at = usize::try_from(n).expect("small");
            if at == 0 { base } else { then[(at - 1).min(then.len() - 1)].as_secs_f64() }
        }
        other => unreachable!("a plan has no {other:?}"),
    }
}

/// First the cap, then jitter.
fn spread(budget: &ClassPolicy, retries: u64, previous: Option<f64>, sample: f64) -> f64 {
    let cap = budget.max_delay.as_secs_f64();
    let delay = curve(&budget.backoff, retries).min(cap);
    let base = budget.backoff.base().as_secs_f64().min(cap);
    let (from, to) = match budget.jitter {
        Jitter::Full => (0.0, delay),
        Jitter::Equal => (delay / 2.0, delay),
        Jitter::Proportional(share) => (delay * (1.0 - share), delay),
        Jitter::Decorrelated => (base, (3.0 * previous.unwrap_or(base)).min(cap).max(base)),
        Jitter::None => (delay, delay),
        other => unreachable!("a plan has no {other}"),
    };
    from + (to - from) * sample
}

/// Whole seconds, rounded up, but for what is owed to the inexactness of numbers.
fn whole(secs: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a few days at most"
    )]
    let secs = (secs - 1e-6).ceil().max(0.0) as u64;
    secs
}
