//! The process is killed at each queue call of a batch in turn, before the call takes effect and
//! after it.

use std::process::Command;
use std::sync::{Arc, Mutex};

use requeue::embedded::Fault;

use crate::runtime_api::Ended;
use crate::stage::{Stage, TIMEOUT, UNPROTECTED};

/// A batch whose first messages fail by their response, while the others succeed.
struct Case {
    name: &'static str,
    is_fifo: bool,
    settings: fn(&Stage) -> Vec<(&'static str, String)>,
    answer: &'static str,
    failing: usize,
    /// The operations that settle it, in as few requests as they can be.
    calls: &'static [&'static str],
}

const SUCCEEDING: usize = 3;
const SEND: &str = "SendMessageBatch";
const DELETE: &str = "DeleteMessageBatch";
const WAIT: &str = "ChangeMessageVisibilityBatch";

const CASES: [Case; 5] = [
    Case {
        name: "copies",
        is_fifo: false,
        settings: |_| Vec::new(),
        answer: "unavailable",
        failing: 12,
        calls: &[SEND, SEND, DELETE, DELETE],
    },
    Case {
        name: "sent to the dead-letter queue",
        is_fifo: false,
        settings: direct,
        answer: "invalid",
        failing: 12,
        calls: &[SEND, SEND, DELETE, DELETE],
    },
    Case {
        name: "waiting in flight",
        is_fifo: false,
        settings: |_| vec![("REQUEUE_STRATEGY", "visibility".to_owned())],
        answer: "unavailable",
        failing: 12,
        calls: &[WAIT, WAIT],
    },
    Case {
        name: "the head of a FIFO group, and then its followers",
        is_fifo: true,
        settings: |_| Vec::new(),
        answer: "unavailable",
        failing: 2,
        calls: &[WAIT, WAIT],
    },
    Case {
        name: "one after the other to a FIFO dead-letter queue",
        is_fifo: true,
        settings: direct,
        answer: "invalid",
        failing: 2,
        calls: &[SEND, DELETE, SEND, DELETE],
    },
];

fn direct(stage: &Stage) -> Vec<(&'static str, String)> {
    vec![
        ("REQUEUE_DEAD_LETTER", "direct".to_owned()),
        ("REQUEUE_DEAD_LETTER_QUEUE_URL", stage.dead_letter_url()),
    ]
}

struct Run {
    stage: Stage,
    ended: Ended,
    sent: Vec<String>,
    /// Operation and number of entries of the calls that took effect.
    calls: Vec<(String, usize)>,
}

/// One batch; at the call with this number the process is killed.
async fn run(case: &Case, kill: Option<(u64, Fault)>) -> Run {
    let stage = if case.is_fifo { Stage::fifo().await } else { Stage::new().await };
    let settings = (case.settings)(&stage);
    let mut settings: Vec<(&str, &str)> =
        settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    settings.push(UNPROTECTED);
    let mut function = stage.requeue_lambda(&settings).await;
    let mut sent = Vec::new();
    for n in 0..case.failing + SUCCEEDING {
        let answer = if n < case.failing { case.answer } else { "ok" };
        sent.push(stage.send(&format!(r#"{{"answer":"{answer}","n":{n}}}"#)).await);
    }
    let batch = stage.receive().await;
    let pid = function.pid().expect("it runs").to_string();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&calls);
    let first = stage.sqs.call_count("SendMessage");
    stage.sqs.set_faults(move |call| {
        let fault = match &kill {
            Some((at, fault)) if call.number - first == *at => {
                let killed =
                    Command::new("kill").args(["-KILL", &pid]).status().expect("kill is a command");
                assert!(killed.success());
                fault.clone()
            }
            _ => Fault::None,
        };
        if fault != Fault::LoseRequest {
            log.lock().unwrap().push((call.operation.clone(), call.entries));
        }
        fault
    });
    let ended = function.invoke(&batch.event(&stage.queue), TIMEOUT).await;
    stage.acknowledge(&batch, &ended);
    stage.sqs.clear_faults();
    let calls = calls.lock().unwrap().clone();
    Run { stage, ended, sent, calls }
}

#[tokio::test]
async fn a_kill_at_any_queue_call_loses_nothing_and_doubles_only_what_was_sent_and_not_deleted() {
    for case in CASES {
        let whole = run(&case, None).await;
        assert!(matches!(whole.ended, Ended::Response(_)), "{}", case.name);
        let mut operations: Vec<&str> =
            whole.calls.iter().map(|(operation, _)| operation.as_str()).collect();
        let mut expected = case.calls.to_vec();
        // Requests about different messages are under way at the same time, and on a busy machine
        // an entry that comes late leaves in a request of its own.
        if !case.is_fifo {
            operations.sort_unstable_by_key(|operation| *operation != SEND);
            assert!(operations.len() >= expected.len(), "{}: {operations:?}", case.name);
            operations.dedup();
            expected.dedup();
        }
        assert_eq!(operations, expected, "{}", case.name);
        for at in 1..=u64::try_from(case.calls.len()).unwrap() {
            for fault in [Fault::LoseRequest, Fault::LoseResponse] {
                let what = format!(
                    "{}, killed at call {at} of {}, {fault:?}",
                    case.name,
                    case.calls.len()
                );
                judge(&case, &run(&case, Some((at, fault))).await, &what);
            }
        }
    }
}

fn judge(case: &Case, run: &Run, what: &str) {
    assert_eq!(run.ended, Ended::Crashed, "{what}");
    let ids = run.stage.ids();
    let mut doubled = 0;
    for (n, id) in run.sent.iter().enumerate() {
        let originals = ids.iter().filter(|(now, _)| now == id).count();
        let copies = ids.iter().filter(|(_, first)| first.as_ref() == Some(id)).count();
        assert!(originals + copies >= 1, "{what}: message {n} is lost");
        assert!(copies <= 1, "{what}: message {n} was copied {copies} times");
        if n >= case.failing {
            assert_eq!(
                (originals, copies),
                (1, 0),
                "{what}: what succeeded comes back, for nobody acknowledged it"
            );
        }
        doubled += usize::from(originals + copies > 1);
    }
    let entries = |name| {
        run.calls.iter().filter(|(call, _)| call == name).map(|(_, entries)| entries).sum::<usize>()
    };
    assert_eq!(doubled, entries(SEND) - entries(DELETE), "{what}");
}
