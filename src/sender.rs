//! The senders of messages, as SQS names them, and whether their retry fields in a body are
//! trusted. This module knows no field.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use crate::aws;
use crate::lock::lock;
use crate::queue::{Principal, Record};
use crate::wire;

/// Longest time to ask STS who this process is. A batch that ends soon waits for a quarter of its
/// time.
const ASK_TIMEOUT: Duration = Duration::from_secs(3);
/// The time before STS is asked again after it gave no response.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// The senders whose retry fields in a body are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrustedSenders {
    /// Whether the principal of this process is one of them. STS is asked for it
    /// (`GetCallerIdentity`) when it is first needed.
    pub own: bool,
    /// The others. If [`own`](Self::own) is `false`, one of them must be this process's own
    /// principal. Otherwise its own copies are not trusted, and a message is dead-lettered after two
    /// copies.
    pub ids: Vec<Principal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belief {
    Believed,
    NotBelieved,
    /// STS has not named this process yet.
    Unknown,
}

/// The senders that are known in one execution environment.
pub(crate) struct Senders {
    trusted: TrustedSenders,
    own: OnceCell<Principal>,
    failed: Mutex<Option<Instant>>,
    has_warned: AtomicBool,
}

impl Senders {
    pub(crate) fn new(trusted: TrustedSenders) -> Self {
        Self {
            trusted,
            own: OnceCell::new(),
            failed: Mutex::default(),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Asks STS for this process's principal, if one of these records needs it.
    pub(crate) async fn identify(&self, records: &[Record], deadline: Instant) {
        self.identify_by(records, deadline, own).await;
    }

    async fn identify_by(
        &self,
        records: &[Record],
        deadline: Instant,
        own: impl AsyncFnOnce() -> Option<Principal>,
    ) {
        let is_asked = |record: &Record| {
            let may_be_ours = record.body.as_deref().is_some_and(wire::may_be_ours);
            may_be_ours && self.believes(record.sender) == Belief::Unknown
        };
        if self.rests() || !records.iter().any(is_asked) {
            return;
        }
        let now = Instant::now();
        let until = now + ASK_TIMEOUT.min(deadline.saturating_duration_since(now) / 4);
        let ask = async || {
            // Another batch may have asked without success while this one waited.
            if self.rests() {
                return Err(());
            }
            let answer = timeout_at(until, own()).await.ok().flatten();
            if answer.is_none() {
                *lock(&self.failed) = Some(Instant::now());
                tracing::warn!(
                    "STS did not say who this process is: messages that bear retry fields wait in the queue meanwhile"
                );
            }
            answer.ok_or(())
        };
        // Another batch may have more time to ask.
        let _ = timeout_at(until, self.own.get_or_try_init(ask)).await;
    }

    /// Whether STS gave no response lately.
    fn rests(&self) -> bool {
        let failed = *lock(&self.failed);
        failed.is_some_and(|failed| failed.elapsed() < ASK_AGAIN)
    }

    pub(crate) fn believes(&self, sender: Option<Principal>) -> Belief {
        let Some(sender) = sender else { return Belief::NotBelieved };
        match self.own.get() {
            _ if self.trusted.ids.contains(&sender) => Belief::Believed,
            Some(own) if self.trusted.own && *own == sender => Belief::Believed,
            None if self.trusted.own => Belief::Unknown,
            _ => Belief::NotBelieved,
        }
    }

    pub(crate) fn warn(&self, sender: Option<Principal>) {
        if self.has_warned.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::warn!(
            senderId = sender.map(tracing::field::display),
            "a body bears the retry fields of a sender that is not trusted: they are taken for its producer's own; if the sender is yours, \
             add its id to REQUEUE_TRUSTED_SENDERS (said once)"
        );
    }
}

/// Asks STS who this process is. Needs no permission.
async fn own() -> Option<Principal> {
    let client = aws_sdk_sts::Client::new(&aws::config().await);
    client.get_caller_identity().send().await.ok()?.user_id()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::time::sleep;

    use super::*;

    fn principal(text: &str) -> Principal {
        text.parse().expect("an id")
    }

    /// A copy of our own, as far as anybody can tell before STS does.
    fn copy() -> Record {
        record("AROAEXAMPLEREQUEUE001:f", "retryState")
    }

    fn later(secs: u64) -> Instant {
        Instant::now() + Duration::from_secs(secs)
    }

    fn record(sender: &str, body: &str) -> Record {
        let mut record = Record::default();
        (record.sender, record.body) = (sender.parse().ok(), Some(body.to_owned()));
        record
    }

    #[tokio::test(start_paused = true)]
    async fn sts_is_asked_once_when_a_record_needs_it_and_again_a_while_after_it_failed() {
        const OURS: &str = r#"{"retryState":{}}"#;
        let own = principal("AROAEXAMPLEREQUEUE001");
        let listed = principal("AROAEXAMPLEOPERATOR01");
        let senders = Senders::new(TrustedSenders { own: true, ids: vec![listed] });
        let asked = AtomicUsize::new(0);
        let identify = async |record: Record, answer: Option<Principal>| {
            let ask = async || {
                asked.fetch_add(1, Ordering::Relaxed);
                answer
            };
            senders.identify_by(&[record], later(60), ask).await;
            asked.load(Ordering::Relaxed)
        };
        assert_eq!(
            identify(record("AROAEXAMPLEREQUEUE001:f", "{}"), Some(own)).await,
            0,
            "nothing of ours"
        );
        assert_eq!(
            identify(record("AROAEXAMPLEOPERATOR01:me", OURS), Some(own)).await,
            0,
            "it is listed"
        );
        assert_eq!(identify(record("", OURS), Some(own)).await, 0, "nobody sent it");
        assert_eq!(identify(record("AROAEXAMPLEREQUEUE001:f", OURS), None).await, 1);
        assert_eq!(senders.believes(Some(own)), Belief::Unknown);
        assert_eq!(
            identify(record("AROAEXAMPLEREQUEUE001:f", OURS), Some(own)).await,
            1,
            "too soon"
        );
        tokio::time::advance(ASK_AGAIN).await;
        assert_eq!(identify(record("AROAEXAMPLEREQUEUE001:f", OURS), Some(own)).await, 2);
        assert_eq!(
            identify(record("AIDAEXAMPLEPRODUCER01", OURS), None).await,
            2,
            "once is enough"
        );
        for (sender, belief) in [
            (Some(own), Belief::Believed),
            (Some(listed), Belief::Believed),
            (Some(principal("AIDAEXAMPLEPRODUCER01")), Belief::NotBelieved),
            (None, Belief::NotBelieved),
        ] {
            assert_eq!(senders.believes(sender), belief, "{sender:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sts_that_does_not_answer_is_waited_for_a_quarter_of_the_batchs_time_and_three_seconds_at_most()
     {
        for (left, waited) in [(0, 0), (4, 1), (12, 3), (16, 3), (900, 3)] {
            let senders = Senders::new(TrustedSenders { own: true, ids: Vec::new() });
            let begun = Instant::now();
            senders.identify_by(&[copy()], later(left), std::future::pending).await;
            assert_eq!(begun.elapsed(), Duration::from_secs(waited), "{left} s left");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_batches_side_by_side_one_asks_and_the_others_learn_what_it_learned() {
        let own = principal("AROAEXAMPLEREQUEUE001");
        let second = Duration::from_secs(1);
        for answer in [Some(own), None] {
            let senders = Senders::new(TrustedSenders { own: true, ids: Vec::new() });
            let asked = AtomicUsize::new(0);
            let ask = async || {
                asked.fetch_add(1, Ordering::Relaxed);
                sleep(second).await;
                answer
            };
            let batch = async |begins: Duration| {
                sleep(begins).await;
                let begun = Instant::now();
                senders.identify_by(&[copy()], later(60), ask).await;
                begun.elapsed()
            };
            let took = tokio::join!(batch(Duration::ZERO), batch(second / 2), batch(second / 2));
            assert_eq!(took, (second, second / 2, second / 2), "{answer:?}");
            assert_eq!(asked.into_inner(), 1, "{answer:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_waits_no_longer_for_the_question_of_another_than_for_its_own() {
        let senders = Senders::new(TrustedSenders { own: true, ids: Vec::new() });
        let batch = async |left| {
            let begun = Instant::now();
            senders.identify_by(&[copy()], later(left), std::future::pending).await;
            begun.elapsed().as_secs()
        };
        assert_eq!(tokio::join!(batch(60), batch(4), batch(60)), (3, 1, 3));
    }
}
