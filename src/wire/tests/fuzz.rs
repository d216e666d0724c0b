//! Any text as a body: `tests/fuzz wire`. Held against `serde_json`, which parses into values what
//! is only edited here.

use serde_json::{Map, Value};

use super::*;

#[test]
fn any_text_survives_every_attempt() {
    bolero::check!(name = "wire").with_iterations(500).for_each(|input: &[u8]| {
        let body = String::from_utf8_lossy(input);
        assert_taken_apart(&body);
        let read = read(&body, CAP);
        let mut states =
            vec![state(), RetryState { original_message_id: None, counts: [0; 4], ..state() }];
        if let Origin::Ours(carried) = &read.origin
            && !json::is_refused(&body)
        {
            states
                .push(RetryState { retry_timestamp: state().retry_timestamp, ..*carried.clone() });
        }
        for payload in [&body, &read.payload] {
            assert_survives(payload, &states);
            let once = states
                .iter()
                .map(|state| assert_stamped(payload, state))
                .next_back()
                .expect("a state");
            assert_survives(&once, &states);
        }
    });
}

/// Of what is ours, nothing but our members is taken away; all else is left alone.
fn assert_taken_apart(body: &str) {
    let read = read(body, CAP);
    let object = values(body);
    let state = match &read.origin {
        Origin::Fresh { retry_count } => {
            assert!(*retry_count <= CAP);
            if let (true, Some(object)) = (*retry_count > 0, &object) {
                assert_eq!(object["retryCount"], *retry_count, "{body:?}");
            }
            assert_eq!(read.payload, body);
            return;
        }
        Origin::LaterVersion(_) => return assert_eq!(read.payload, body),
        Origin::Ours(state) => state,
    };
    let Some(mut object) = object else { return };
    let found = object["retryState"].take();
    assert_eq!(found["v"], 1);
    assert_eq!(state.first_sent, found["firstSent"].as_u64().map(from_epoch_millis), "{body:?}");
    assert_eq!(state.delay.map(|delay| delay.as_secs()), found["delay"].as_u64(), "{body:?}");
    assert_eq!(state.class.map(FailureClass::as_str), found["class"].as_str(), "{body:?}");
    for class in FailureClass::ALL {
        let count = found["counts"][class.as_str()].as_u64().unwrap_or_default();
        assert_eq!(u64::from(state.count(class)), count, "{body:?}");
    }
    if let Some(wrapped) = object.get("retryBody") {
        assert_eq!(wrapped.as_str(), Some(&*read.payload), "{body:?}");
        return;
    }
    for &(name, _) in Name::WORDS {
        // One that was torn out does not come back.
        if object.remove(name).is_some()
            && let Some(original) = found["original"][name].as_str()
        {
            // JSON that is no value of serde_json's, as a number that is too large.
            let Ok(original) = serde_json::from_str(original) else { return };
            object.insert(name.to_owned(), original);
        }
    }
    assert_eq!(values(&read.payload), Some(object), "{body:?}");
}

/// The text of a copy, in which all that the payload says is still there.
fn assert_stamped(payload: &str, state: &RetryState) -> String {
    let mut copy = stamp(payload, state, Wrap::WhenNeeded).expect("wrapping is on");
    let text = copy.as_str().to_owned();
    if let Some(unwrapped) = stamp(payload, state, Wrap::Never) {
        assert_eq!(unwrapped, copy);
    } else if let Some(envelope) = values(&text) {
        assert_eq!(envelope["retryBody"], payload);
        assert_eq!(envelope.len(), 5);
    }
    if let (false, Some(before), Some(after)) =
        (text.starts_with("{\"retryBody\":"), values(payload), values(&text))
    {
        let ours: Vec<&str> = Name::WORDS.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            after.len(),
            before.len() + ours.iter().filter(|name| !before.contains_key(**name)).count()
        );
        for (name, value) in &before {
            if ours.contains(&name.as_str()) {
                let kept = after["retryState"]["original"][name].as_str().expect("it is kept");
                assert_eq!(
                    serde_json::from_str::<Value>(kept).expect("JSON"),
                    *value,
                    "{payload:?}"
                );
            } else {
                assert_eq!(after[name], *value, "{payload:?}");
            }
        }
    }
    let later = from_epoch_millis(1_800_000_000_123);
    copy.set_timestamp(later);
    assert_eq!(copy.as_str().len(), text.len());
    let Origin::Ours(sent) = read(copy.as_str(), CAP).origin else {
        panic!("not recognised: {copy:?}")
    };
    assert_eq!(*sent, RetryState { retry_timestamp: Some(later), ..state.clone() });
    text
}

/// The members of a JSON object, none if it is too deep for `serde_json` or has numbers that are
/// too large.
fn values(text: &str) -> Option<Map<String, Value>> {
    // This name has a meaning of its own for it.
    if text.contains("$serde_json::private") { None } else { serde_json::from_str(text).ok() }
}
