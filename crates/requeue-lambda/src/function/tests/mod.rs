//! The target with invokers of the tests, and the invoker against a server on loopback that speaks
//! the Invoke API.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use requeue::Raw;
use requeue_testkit::log::{self, Log};

use super::*;

mod api;
mod through;

/// An invoker that answers as a function of the number of the invocation and its event.
struct Scripted<F>(F, Arc<AtomicUsize>);

impl<F> Scripted<F> {
    fn new(answer: F) -> Self {
        Self(answer, Arc::default())
    }
}

impl<F> Invoke for Scripted<F>
where
    F: Fn(usize, &str) -> Result<&'static str, InvokeError> + Send + Sync + 'static,
{
    async fn invoke(&self, event: Vec<u8>) -> Result<Invoked, InvokeError> {
        let event = String::from_utf8(event).expect("JSON is text");
        let answer = (self.0)(self.1.fetch_add(1, Ordering::SeqCst), &event)?;
        Ok(Invoked { payload: answer.into(), is_error: false })
    }
}

fn messages(count: usize) -> Vec<Message> {
    let message = |n: usize| Message::builder(Raw::from("{}")).id(&format!("m-{n}")).build();
    (0..count).map(message).collect()
}

fn throttled(retry_after: Option<u64>) -> InvokeError {
    let code = "TooManyRequestsException".to_owned();
    InvokeError::Throttled { code, retry_after: retry_after.map(Duration::from_secs) }
}

fn refused(code: &str) -> InvokeError {
    InvokeError::Refused { code: code.to_owned(), remedy: "orders: mend it".to_owned() }
}

fn records(event: &str) -> usize {
    let event: serde_json::Value = serde_json::from_str(event).expect("JSON");
    event["Records"].as_array().expect("records").len()
}

#[tokio::test]
async fn an_event_has_a_record_for_each_message() {
    let invoker = Scripted::new(|_, event: &str| {
        assert_eq!(records(event), 3);
        assert!(event.contains(r#""messageId":"m-2""#));
        Ok("null")
    });
    let target =
        FunctionTarget::new(invoker, FunctionSettings { messages_per_call: 3, scope: None });
    assert_eq!(target.messages_per_call(), 3);
    let bulk = target.handle(messages(3)).await;
    assert!(matches!(bulk, Bulk::Done) || bulk == Bulk::Each(vec![Ok(()); 3]), "{bulk:?}");
}

#[tokio::test]
async fn a_call_that_is_too_large_is_halved_until_it_fits() {
    let sizes: Arc<Mutex<Vec<usize>>> = Arc::default();
    let seen = Arc::clone(&sizes);
    let invoker = Scripted::new(move |_, event: &str| {
        let count = records(event);
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(count);
        match (count, event) {
            (4.., _) => Err(InvokeError::TooLarge),
            (_, event) if event.contains("m-6") => Err(InvokeError::TooLarge),
            _ if event.contains("m-0") => Ok(r#"{"batchItemFailures":[{"itemIdentifier":"m-0"}]}"#),
            _ => Ok("{}"),
        }
    });
    let target = FunctionTarget::new(invoker, FunctionSettings::default());
    let Bulk::Each(results) = target.handle(messages(7)).await else { panic!("each is known") };
    let classes: Vec<_> =
        results.iter().map(|result| result.as_ref().err().map(Failure::class)).collect();
    let (temporary, lasting) = (Some(FailureClass::Temporary), Some(FailureClass::NonRetryable));
    assert_eq!(classes, [temporary, None, None, None, None, None, lasting]);
    let sizes = sizes.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(sizes, [7, 3, 4, 2, 2, 1, 1], "in the order of the messages");
}

#[tokio::test]
async fn a_refused_invocation_refuses_each_message_and_a_lost_one_is_unclear() {
    let lost = InvokeError::Lost { code: "ConnectionLost".to_owned() };
    let rejected = InvokeError::Rejected { code: "InvalidRequestContentException".to_owned() };
    let cases = [
        (throttled(None), Some((FailureClass::RateLimit, 1)), false),
        (throttled(Some(7)), Some((FailureClass::RateLimit, 7)), false),
        (throttled(Some(9_000)), Some((FailureClass::RateLimit, 60)), false),
        (refused("AccessDeniedException"), Some((FailureClass::Temporary, 1)), false),
        (lost, None, true),
        (rejected, None, false),
    ];
    for (error, refusal, is_in_doubt) in cases {
        let answer = error.clone();
        let target = FunctionTarget::new(
            Scripted::new(move |_, _: &str| Err(answer.clone())),
            FunctionSettings::default(),
        );
        match (target.handle(messages(2)).await, refusal) {
            (Bulk::Each(results), Some((class, secs))) => {
                assert_eq!(results.len(), 2);
                for failure in results.into_iter().filter_map(Result::err) {
                    assert!(failure.is_call_refused(), "{error}");
                    assert_eq!(failure.class(), class);
                    assert_eq!(failure.delay(), Some(Duration::from_secs(secs)), "{error}");
                }
            }
            (Bulk::Unclear(failure), None) => {
                assert!(!failure.is_call_refused());
                assert_eq!(failure.class(), FailureClass::Temporary);
                assert_eq!(failure.is_in_doubt(), is_in_doubt, "{error}");
            }
            (bulk, _) => panic!("{error}: {bulk:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pauses_double_from_one_refusal_to_the_next_and_end_with_an_invocation() {
    let mut refusals = Refusals::default();
    let secs = Duration::from_secs;
    for length in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(refusals.begin(None, None), secs(length));
        assert_eq!(refusals.begin(None, None), secs(length), "it began with the one before");
        tokio::time::advance(secs(length)).await;
    }
    refusals.end();
    assert_eq!(refusals.begin(None, None), secs(1));
    assert_eq!(refusals.begin(None, Some(Duration::ZERO)), secs(1), "a pause has a second");
}

#[tokio::test(start_paused = true)]
async fn an_error_to_correct_is_logged_once_in_five_minutes() {
    log::install();
    let log = Log::default();
    let _listening = log.listen();
    let mut refusals = Refusals::default();
    let (denied, missing) =
        (refused("AccessDeniedException"), refused("ResourceNotFoundException"));
    let mut lines = |error: &InvokeError| {
        refusals.begin(Some(error), None);
        log.text().matches("are deferred").count()
    };
    assert_eq!(lines(&denied), 1);
    assert_eq!(lines(&denied), 1);
    assert_eq!(lines(&missing), 2);
    tokio::time::advance(SILENCE).await;
    assert_eq!(lines(&missing), 3);
    assert!(log.text().contains("mend it"), "{}", log.text());
}
