//! Whatever the queue answers, and however often: nothing is deleted that was not confirmed, and
//! everything is accounted for once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use proptest::prelude::{
    Just, ProptestConfig, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use proptest::strategy::Strategy as Generated;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::*;
use crate::delay::Wait;
use crate::delivery::Decoder;
use crate::disposition::{DeadLetterReason, Deferral, Disposition, ReleaseReason, Strategy};
use crate::plan::{Planned, Planner};
use crate::policy::RetryPolicy;
use crate::queue::{
    CallError, CallErrorKind, Confirmation, EntryError, MAX_BATCH_BYTES, Outgoing, Record,
};
use crate::settings::{DeadLetterMode, Mode};
use crate::wire::Wrap;

/// What a queue says to one call, whatever was asked.
#[derive(Clone, Debug)]
enum Answer {
    Fails(CallErrorKind),
    Hangs,
    /// To the first entries, and perhaps to more than there are.
    Says(Vec<Confirmation>),
    Confirms,
}

#[derive(Clone, Debug, PartialEq)]
enum Asked {
    Send(Vec<usize>),
    Delete(Vec<usize>),
}

/// A queue that answers as it likes.
struct Oracle {
    answers: Mutex<Vec<Answer>>,
    /// What it was asked, and which of that it confirmed.
    asked: Mutex<Vec<(Asked, BTreeSet<usize>)>>,
}

impl Oracle {
    async fn answer(
        &self,
        of: fn(Vec<usize>) -> Asked,
        asked: Vec<usize>,
    ) -> Result<Vec<Confirmation>, CallError> {
        let answer = self.answers.lock().expect("no panic").pop().unwrap_or(Answer::Confirms);
        let answer = match answer {
            Answer::Fails(kind) => Err(CallError::new("Code", kind)),
            Answer::Says(confirmations) => Ok(confirmations),
            Answer::Confirms => Ok(vec![Ok(()); asked.len()]),
            Answer::Hangs => {
                sleep(Duration::from_secs(3_600)).await;
                Ok(Vec::new())
            }
        };
        let said = answer.as_deref().unwrap_or_default();
        let confirmed =
            asked.iter().zip(said).filter(|(_, said)| said.is_ok()).map(|(n, _)| *n).collect();
        self.asked.lock().expect("no panic").push((of(asked), confirmed));
        answer
    }
}

impl Queue for Oracle {
    async fn send(
        &self,
        _: &QueueArn,
        entries: &[Outgoing<'_>],
    ) -> Result<Vec<Confirmation>, CallError> {
        assert!((1..=MAX_BATCH_ENTRIES).contains(&entries.len()));
        assert!(entries.iter().map(Outgoing::size).sum::<usize>() <= MAX_BATCH_BYTES);
        assert!(entries.iter().all(|entry| entry.delay.as_secs() <= 900));
        let number = |entry: &Outgoing<'_>| {
            let (_, rest) = entry.body.split_once(r#""n":"#).expect("our own body");
            rest[..rest.find([',', '}']).expect("an end")].parse().expect("a number")
        };
        self.answer(Asked::Send, entries.iter().map(number).collect()).await
    }

    async fn delete(
        &self,
        _: &QueueArn,
        receipt_handles: &[&str],
    ) -> Result<Vec<Confirmation>, CallError> {
        assert!((1..=MAX_BATCH_ENTRIES).contains(&receipt_handles.len()));
        self.answer(
            Asked::Delete,
            receipt_handles.iter().map(|handle| handle.parse().expect("ours")).collect(),
        )
        .await
    }

    async fn change_visibility(
        &self,
        _: &QueueArn,
        entries: &[(&str, Duration)],
    ) -> Result<Vec<Confirmation>, CallError> {
        assert!((1..=MAX_BATCH_ENTRIES).contains(&entries.len()));
        assert!(entries.iter().all(|(_, wait)| *wait <= crate::queue::MAX_VISIBILITY));
        self.answer(|_| Asked::Send(Vec::new()), entries.iter().map(|_| usize::MAX).collect()).await
    }
}

fn answers() -> impl Generated<Value = Vec<Answer>> {
    let kind = prop::sample::select(vec![
        CallErrorKind::Refused,
        CallErrorKind::Malformed,
        CallErrorKind::Unavailable,
        CallErrorKind::Ambiguous,
    ]);
    let confirmation = prop_oneof![
        3 => Just(Ok(())),
        1 => any::<bool>().prop_map(|fault| Err(EntryError::responded("Entry", fault))),
        1 => Just(Err(EntryError::unconfirmed())),
    ];
    let answer = prop_oneof![
        2 => kind.prop_map(Answer::Fails),
        1 => Just(Answer::Hangs),
        3 => prop::collection::vec(confirmation, 0..14).prop_map(Answer::Says),
        2 => Just(Answer::Confirms),
    ];
    prop::collection::vec(answer, 0..30)
}

fn dispositions() -> impl Generated<Value = Disposition> {
    let wait = || {
        (0_u64..50_000)
            .prop_map(|secs| Wait::from(Duration::from_secs(secs), SystemTime::UNIX_EPOCH))
    };
    prop_oneof![
        2 => Just(Disposition::Complete),
        4 => wait().prop_map(|wait| Disposition::Requeue { wait, hidden_if_unsent: wait.total() }),
        1 => wait().prop_map(|wait| Disposition::Defer { reason: Deferral::Paused, wait }),
        1 => Just(Disposition::Release(ReleaseReason::NotRetried)),
        3 => Just(Disposition::DeadLetter(DeadLetterReason::NonRetryable)),
    ]
}

fn delivery(n: usize, body_len: usize, strategy: Strategy) -> Arc<Delivery> {
    let queue = "arn:aws:sqs:eu-west-1:123456789012:orders".parse().expect("an ARN");
    let mut record = Record::default();
    record.message_id = Some(format!("id-{n}"));
    record.receipt_handle = Some(n.to_string());
    record.body = Some(format!(r#"{{"n":{n},"x":"{}"}}"#, "x".repeat(body_len)));
    record.queue = Some(Arc::new(queue));
    let decoder = Decoder { max_retries: 50, strategy, ..Decoder::default() };
    Arc::new(Delivery::decode(n, record, SystemTime::UNIX_EPOCH, &decoder))
}

fn settler(queue: &Arc<Oracle>) -> Settler<Oracle> {
    Settler {
        queue: Arc::clone(queue),
        clock: Clock::starting_at(SystemTime::UNIX_EPOCH),
        sampler: Sampler::always(0.5),
        calls: CallPolicy::default(),
        pause: SendPause::default(),
        lengths: MaxLengths::default(),
    }
}

/// The three ways to the dead-letter queue.
fn dead_letter_modes() -> impl Generated<Value = DeadLetterMode> {
    let url = "https://sqs.eu-west-1.amazonaws.com/123456789012/dead".parse().expect("a URL");
    prop::sample::select(vec![
        DeadLetterMode::Redrive,
        DeadLetterMode::Annotate,
        DeadLetterMode::Direct(url),
    ])
}

/// Settles them; returns what became of each, and what the queue was asked.
fn settle(
    wanted: &[(Disposition, usize, bool, DeadLetterMode)],
    answers: Vec<Answer>,
) -> (Vec<Settled>, Vec<(Asked, BTreeSet<usize>)>) {
    let queue = Arc::new(Oracle { answers: Mutex::new(answers), asked: Mutex::default() });
    let settler = settler(&queue);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let settled = runtime.expect("a runtime").block_on(async {
        let started = Instant::now();
        let window = Window { started, deadline: started + Duration::from_secs(55) };
        let (sender, tasks) = mpsc::unbounded_channel();
        let policy = RetryPolicy::default();
        for (n, (disposition, body_len, in_place, dead_letter)) in wanted.iter().enumerate() {
            let strategy = if *in_place { Strategy::Visibility } else { Strategy::Copy };
            let delivery = delivery(n, *body_len, strategy);
            let decision = Decision::uncalled(delivery, *disposition, SystemTime::UNIX_EPOCH, 0.5);
            let planner = Planner {
                policy: &policy,
                mode: Mode::Requeue,
                dead_letter,
                wrap: Wrap::WhenNeeded,
                max_bytes: &|_| MAX_BATCH_BYTES,
            };
            let Planned { decision, plan, .. } = planner.plan(decision, false);
            assert!(sender.send(Task { decision, plan, waiting: Waiting::Nobody }).is_ok());
        }
        drop(sender);
        let mut settled = Vec::new();
        settler.settle(tasks, |task| task, window, |one| settled.push(one)).await;
        assert!(Instant::now() <= window.deadline);
        settled
    });
    let asked = queue.asked.lock().expect("no panic").clone();
    (settled, asked)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn nothing_is_deleted_unconfirmed_and_everything_is_accounted_for_once(
        wanted in prop::collection::vec(
            (dispositions(), prop_oneof![9 => 0_usize..500, 1 => 0_usize..1_100_000], any::<bool>(), dead_letter_modes()),
            0..35,
        ),
        answers in answers(),
    ) {
        let (settled, asked) = settle(&wanted, answers);
        let mut positions: Vec<usize> = settled.iter().map(|one| one.decision.delivery.position).collect();
        positions.sort_unstable();
        prop_assert_eq!(positions, (0..wanted.len()).collect::<Vec<_>>());

        let (mut sent, mut deleted): (BTreeSet<usize>, BTreeSet<usize>) = Default::default();
        for (asked, confirmed) in &asked {
            match asked {
                Asked::Send(numbers) => {
                    prop_assert!(numbers.iter().all(|n| !sent.contains(n)), "sent again though it was confirmed");
                    sent.extend(confirmed);
                }
                Asked::Delete(numbers) => {
                    prop_assert!(numbers.iter().all(|n| sent.contains(n)), "deleted though no copy was confirmed");
                    deleted.extend(confirmed);
                }
            }
        }
        for one in &settled {
            let n = one.decision.delivery.position;
            match &one.settlement {
                Settlement::Moved => prop_assert!(sent.contains(&n) && deleted.contains(&n)),
                Settlement::MovedNotDeleted { .. } => prop_assert!(sent.contains(&n)),
                Settlement::Unconfirmed { .. } | Settlement::Kept | Settlement::KeptNotDelayed { .. } => {
                    prop_assert!(!sent.contains(&n), "{n} is reported though its copy is in the queue");
                }
                Settlement::Done => prop_assert_eq!(one.decision.disposition, Disposition::Complete),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_deleted_is_counted_however_many_requests_are_under_way() {
    const DONE: usize = 2 * MAX_CHUNKS_IN_FLIGHT * MAX_BATCH_ENTRIES;
    let refused = vec![Answer::Fails(CallErrorKind::Refused); DONE];
    let queue = Arc::new(Oracle { answers: Mutex::new(refused), asked: Mutex::default() });
    let done = futures_util::stream::iter((0..DONE).map(|n| delivery(n, 0, Strategy::Copy)));
    let deadline = Instant::now() + Duration::from_secs(55);
    assert_eq!(settler(&queue).delete_done(done, deadline, |_| ()).await.failed, DONE);
}
