//! Attempts that the table counts: each is written before its call, none begins when all were made,
//! and receives without a call count as none.

use requeue::{Message, Mode};

use crate::book::{Book, Member};
use crate::copies;
use crate::idempotency::REST;
use crate::plan::DeadLetters;
use crate::producer::Copies;
use crate::system::World;

/// The attempts at a message in one queue.
#[derive(Default)]
pub struct Counted {
    /// The calls from the second receive on.
    calls: u64,
    /// Those of which the table lost the count.
    lost: u64,
    /// How often the table had lost everything at the last call.
    wiped: u64,
    /// Whether a call may have been one of them: how long its message was to wait is not known.
    is_unsure: bool,
}

impl Book {
    /// A call begins. Checks the number of the attempt.
    pub fn check_attempt(
        &mut self,
        world: &World,
        message: &Message,
        environment: usize,
        member: &Member,
    ) -> Result<(), String> {
        let plan = &world.plan;
        let count = u64::from(message.retry_count());
        let by_receives = copies::retries(plan, member).min(u64::from(u32::MAX));
        let is_known = !member.past.is_moved && !member.may_wait_more;
        let track = &self.tracks[member.n];
        // The dead letter of a message that is too long for a copy may be short enough.
        let is_too_long = track.product.copies == Copies::TooLong;
        let may_be_counted = plan.table.is_some()
            && plan.dead_letters == DeadLetters::Direct
            && plan.mode == Mode::Requeue
            && copies::may_wait_in_place(plan)
            && (is_too_long || !Self::cannot_be_copied(track.product.copies, world));
        if !may_be_counted || by_receives == member.past.count {
            let least = if is_known { by_receives } else { member.past.count };
            return ensure((least..=by_receives).contains(&count), "a wrong attempt");
        }
        // The first receive counts as an attempt.
        let least = if is_known { member.past.count + 1 } else { member.past.count };
        ensure((least..=by_receives).contains(&count), "a wrong attempt")?;
        let is_dead = plan.works_on_dead(environment);
        let id = message.id().unwrap_or_default().to_owned();
        let counted = self.counted.entry((is_dead, id.clone())).or_default();
        counted.is_unsure |= !is_known;
        if !plan.counts_attempts() || counted.is_unsure || is_too_long {
            return Ok(());
        }
        let table = world.table.as_ref().expect("there is one");
        let (is_troubled, most) = (track.is_troubled, member.asked.retries(plan).max(1));
        let written = table.attempts(&world.queues(environment).0.to_string(), &id);
        counted.calls += 1;
        let lost = (counted.calls - counted.lost).saturating_sub(written);
        counted.lost += lost;
        let was_wiped = table.wiped() > std::mem::replace(&mut counted.wiped, table.wiped());
        let may_fail = plan.table != Some(0) && world.started.elapsed() <= plan.calm + REST;
        if may_fail {
            return Ok(());
        }
        ensure(lost == 0 || was_wiped, "called, though the attempt is not written")?;
        // Two that have the message at once see the attempts of each other.
        if is_troubled {
            return Ok(());
        }
        let expected = by_receives.min(member.past.count + written);
        ensure(count == expected, "an attempt that the table does not know")?;
        let is_over = member.past.count + written > u64::from(most) && written > 1;
        ensure(!is_over, "called, though the table says that all attempts were made")?;
        // Without a fault, nothing but calls is counted.
        let is_exact = plan.table == Some(0) && written == counted.calls;
        ensure(plan.table != Some(0) || is_exact, "a receive without a call is an attempt")
    }
}

fn ensure(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}
