//! The part of an attempt that decides: from the end of a handler to the disposition of its message.

use std::sync::Arc;
use std::time::Duration;

use super::attempt::Attempts;
use super::deadlines::Turn;
use super::handled::Handled;
use super::inner::Inner;
use super::policies::QueuePolicy;
use crate::delivery::Delivery;
use crate::disposition::{DeadLetterReason, Deferral, Disposition, ReleaseReason};
use crate::fleet::Admitted;
use crate::gate::Held;
use crate::handler::Handler;
use crate::limit::Admission;
use crate::message::Body;
use crate::plan::Decision;
use crate::policy;
use crate::queue::Queue;

impl<H, Q, T> Attempts<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// Step 5, decide: from the end of a handler to the disposition of its message. `least_wait` is
    /// known of a message whose service serves nobody.
    pub(super) fn decide(
        &self,
        delivery: &Arc<Delivery>,
        turn: &Turn,
        handled: Handled,
        least_wait: Option<Duration>,
    ) -> Decision {
        let Inner { settler, .. } = &*self.processor.inner;
        let QueuePolicy { policy, .. } = self.processor.inner.policy(delivery);
        let Turn { began, sample, .. } = *turn;
        let now = settler.clock.now();
        let elapsed = handled.was_called().then(|| began.elapsed());
        let place = match &handled {
            Handled::Limited(Admitted::By(Admission::InLine(place, _)))
            | Handled::HeldInLine(_, place, _) => Some(*place),
            _ => None,
        };
        let (disposition, failure) = match handled {
            Handled::Held(Held { why, rest }) => (
                policy::hold(
                    policy,
                    &delivery.usage(),
                    why,
                    rest,
                    delivery.deferrals(),
                    now,
                    sample,
                ),
                None,
            ),
            Handled::HeldInLine(why, _, due) => (policy::in_line(why, due, now), None),
            Handled::Limited(admitted) => (self.limited(delivery, admitted, now, sample), None),
            Handled::Done | Handled::AlreadyDone => (Disposition::Complete, None),
            Handled::InProgress(rest) => (policy::in_progress(rest, now), None),
            Handled::Unanswered => (
                policy::defer(policy, Deferral::OnceUnavailable, delivery.deferrals(), now, sample),
                None,
            ),
            Handled::Failed(failure) => {
                let usage = delivery.usage();
                let decided = policy::decide(policy, &usage, &failure, now, sample);
                let decided = match least_wait {
                    Some(least) => policy::unserved(policy, &usage, &failure, decided, least, now),
                    None => decided,
                };
                (decided, Some(failure))
            }
            Handled::Spent => (Disposition::DeadLetter(DeadLetterReason::RetriesExhausted), None),
            Handled::NotStarted => (
                policy::defer(policy, Deferral::NoTimeLeft, delivery.deferrals(), now, sample),
                None,
            ),
            Handled::Stopped | Handled::Interrupted => {
                (Disposition::Release(ReleaseReason::ShuttingDown), None)
            }
            Handled::Abandoned => (Disposition::Release(ReleaseReason::Abandoned), None),
        };
        Decision {
            failure,
            elapsed,
            place,
            ..Decision::uncalled(Arc::clone(delivery), disposition, now, sample)
        }
    }
}
