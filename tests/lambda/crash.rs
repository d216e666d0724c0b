//! The process is killed at each queue call of a batch in turn, before the call takes effect and after it.

use std::process::Command;
use std::sync::{Arc, Mutex};

use requeue::embedded::Fault;

use crate::runtime_api::Ended;
use crate::stage::{Stage, TIMEOUT};

/// Twelve that fail, so two sends and two deletes, and three that succeed.
const FAILING: usize = 12;
const SUCCEEDING: usize = 3;

struct Run {
    stage: Stage,
    ended: Ended,
    sent: Vec<String>,
    /// Operation and number of entries of the calls that took effect.
    calls: Arc<Mutex<Vec<(String, usize)>>>,
}

/// One batch; at the call with this number the process is killed.
async fn run(kill: Option<(u64, Fault)>) -> Run {
    let stage = Stage::new().await;
    let mut function = stage.requeue_lambda(&[]).await;
    let mut sent = Vec::new();
    for n in 0..FAILING + SUCCEEDING {
        let answer = if n < FAILING { "unavailable" } else { "ok" };
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
                let killed = Command::new("kill").args(["-KILL", &pid]).status().expect("kill is a command");
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
    Run { stage, ended, sent, calls }
}

#[tokio::test]
async fn a_kill_at_any_queue_call_loses_nothing_and_doubles_only_what_was_sent_and_not_deleted() {
    let whole = run(None).await;
    assert!(matches!(whole.ended, Ended::Response(_)));
    let calls = whole.calls.lock().unwrap().len();
    assert_eq!(calls, 4, "two sends, two deletes");

    for at in 1..=u64::try_from(calls).unwrap() {
        for fault in [Fault::LoseRequest, Fault::LoseAnswer] {
            let what = format!("killed at call {at} of {calls}, {fault:?}");
            let run = run(Some((at, fault))).await;
            assert_eq!(run.ended, Ended::Crashed, "{what}");
            let ids = run.stage.ids();
            for (n, id) in run.sent.iter().enumerate() {
                let originals = ids.iter().filter(|(now, _)| now == id).count();
                let copies = ids.iter().filter(|(_, first)| first.as_ref() == Some(id)).count();
                assert!(originals + copies >= 1, "{what}: message {n} is lost");
                assert!(copies <= 1, "{what}: message {n} was copied {copies} times");
                if n >= FAILING {
                    assert_eq!(
                        (originals, copies),
                        (1, 0),
                        "{what}: what succeeded comes back, for nobody acknowledged it"
                    );
                }
            }
            let doubled = run.sent.iter().filter(|id| {
                ids.iter().any(|(now, _)| now == *id) && ids.iter().any(|(_, first)| first.as_ref() == Some(id))
            });
            let calls = run.calls.lock().unwrap();
            let entries =
                |name| calls.iter().filter(|(call, _)| call == name).map(|(_, entries)| entries).sum::<usize>();
            let sent_and_not_deleted = entries("SendMessageBatch") - entries("DeleteMessageBatch");
            assert_eq!(doubled.count(), sent_and_not_deleted, "{what}");
        }
    }
}
