use std::time::{Duration, SystemTime};

use super::*;
use crate::clock::from_epoch_millis;
use crate::failure::FailureClass;

mod fuzz;
mod hostile;
mod properties;
mod tables;

const CAP: u32 = 50;

/// The text of the members that [`state`] gives, without `original`.
const MEMBERS: &str = concat!(
    r#""retryCount":2,"originalMessageId":"id-1","retryTimestamp":"2026-11-21T01:02:03.004Z","#,
    r#""retryState":{"v":1,"firstSent":1700000000001,"class":"rate-limit","delay":60,"counts":{"rate-limit":2}}"#,
);

fn state() -> RetryState {
    RetryState {
        retry_count: 2,
        original_message_id: Some("id-1".to_owned()),
        retry_timestamp: Some(from_epoch_millis(1_795_222_923_004)),
        first_sent: Some(from_epoch_millis(1_700_000_000_001)),
        class: Some(FailureClass::RateLimit),
        delay: Some(Duration::from_mins(1)),
        counts: [2, 0, 0, 0],
        ..RetryState::default()
    }
}

fn stamped(payload: &str) -> String {
    let copy = stamp(payload, &state(), Wrap::WhenNeeded).expect("wrapping is on");
    copy.as_str().to_owned()
}

fn assert_fresh(body: &str, retry_count: u32) {
    let read = read(body, CAP);
    assert_eq!(read.origin, Origin::Fresh { retry_count }, "{body:?}");
    assert!(matches!(read.payload, Cow::Borrowed(payload) if payload == body), "{body:?}");
}

/// Stamps `payload` with one state after the other, as the attempts of a message do.
fn assert_survives(payload: &str, states: &[RetryState]) {
    let mut delivered = payload.to_owned();
    for state in states {
        let copy = stamp(&delivered, state, Wrap::WhenNeeded).expect("wrapping is on");
        assert_legal(copy.as_str());
        let body = read(copy.as_str(), CAP);
        assert_eq!(body.payload, payload, "{copy:?}");
        assert_eq!(body.origin, Origin::Ours(Box::new(state.clone())), "{copy:?}");
        delivered = body.payload.into_owned();
    }
}

/// The characters that SQS takes, from the reference of `SendMessage`.
fn assert_legal(text: &str) {
    let legal = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..='\u{10FFFF}');
    assert_eq!(text.chars().find(|c| !legal(*c)), None, "{text:?}");
}
