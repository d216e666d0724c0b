//! The line of a service that is held: each message that is called up moves behind the hold.

use std::time::{Duration, SystemTime};

use super::{Claim, Time};
use crate::limit::pace::slower;
use crate::limit::{Place, epoch_nanos, nanos};

impl Claim {
    /// The place of a message in line while its service is held, and its turn. A hold lengthens the
    /// line by as many places as it calls up meanwhile. So no two messages move to the same place.
    pub(in crate::limit) fn held(&self, place: Place, until: SystemTime) -> (Place, SystemTime) {
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
    pub(in crate::limit) fn lengthened(&self, longer: Duration) -> Option<u64> {
        let more = slower(nanos(longer), self.part);
        (self.line == Time::Ahead).then(|| self.seen.line_end.saturating_add(more))
    }

    /// A time to come, by the line's clock.
    pub(in crate::limit) fn by_line(&self, time: SystemTime) -> u64 {
        let wait = epoch_nanos(time).saturating_sub(self.now);
        self.line_now.saturating_add(slower(wait, self.part))
    }
}
