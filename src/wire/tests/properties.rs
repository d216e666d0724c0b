//! Bodies and states of every kind.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use super::*;

const NAMES: [&str; 5] =
    ["retryCount", "originalMessageId", "retryTimestamp", "retryState", "retryBody"];

fn space() -> impl Strategy<Value = String> {
    "[ \t\n\r]{0,2}"
}

fn string_text() -> impl Strategy<Value = String> {
    let escapes = vec![
        "\\n",
        "\\\"",
        "\\\\",
        "\\/",
        "\\b",
        "\\u0000",
        "\\uFFFF",
        "\\ufffe",
        "\\uD83D\\uDE00",
        "\\ud800",
        "\\u0041",
    ];
    let piece = prop_oneof![
        "[^\"\\\\\\p{Cc}\u{FFFE}\u{FFFF}]{1,3}",
        select(escapes).prop_map(str::to_owned),
        select(["{", "}", ",", ":", "]"].as_slice()).prop_map(str::to_owned),
    ];
    vec(piece, 0..5).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

/// One of our names, some of its characters escaped.
fn our_key() -> impl Strategy<Value = String> {
    (select(NAMES.as_slice()), any::<u32>()).prop_map(|(name, escaped)| {
        let escaped = if escaped % 2 == 0 { 0 } else { escaped };
        let letters = name.bytes().enumerate().map(|(at, byte)| match (escaped >> at) & 1 {
            1 => format!("\\u{byte:04x}"),
            _ => char::from(byte).to_string(),
        });
        format!("\"{}\"", letters.collect::<String>())
    })
}

fn number_text() -> impl Strategy<Value = String> {
    let odd = vec![
        "-0",
        "5.0",
        "1e2",
        "1E+400",
        "0.10",
        "12345678901234567890123",
        "-1",
        "4294967296",
        "1700000000000",
    ];
    prop_oneof![select(odd).prop_map(str::to_owned), (0_u32..60).prop_map(|n| n.to_string())]
}

fn joined(open: &str, close: &str, parts: &[String]) -> String {
    format!("{open}{}{close}", parts.join(","))
}

fn spaced<S: Strategy<Value = String>>(text: S) -> impl Strategy<Value = String> {
    (space(), text, space()).prop_map(|(before, text, after)| before + &text + &after)
}

fn object_of<S: Strategy<Value = String>>(
    key: impl Strategy<Value = String>,
    value: S,
) -> impl Strategy<Value = String> {
    let member = (spaced(key), spaced(value)).prop_map(|(key, value)| format!("{key}:{value}"));
    prop_oneof![
        1 => space().prop_map(|space| format!("{{{space}}}")),
        9 => vec(member, 1..6).prop_map(|members| joined("{", "}", &members)),
    ]
}

fn json() -> BoxedStrategy<String> {
    let words = vec!["null", "true", "false"];
    let leaf = prop_oneof![select(words).prop_map(str::to_owned), number_text(), string_text()];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(spaced(inner.clone()), 0..4).prop_map(|values| joined("[", "]", &values)),
            object_of(prop_oneof![string_text(), our_key()], inner),
        ]
    })
    .boxed()
}

/// Objects in which our names abound, with values that often are of the right type.
fn colliding_object() -> BoxedStrategy<String> {
    let value = prop_oneof![
        json(),
        number_text(),
        Just("\"2026-11-21T01:02:03Z\"".to_owned()),
        any_state().prop_map(|state| state_of(&state)),
        (0_u64..4).prop_map(|version| format!("{{\"v\":{version}}}")),
    ];
    spaced(object_of(prop_oneof![1 => string_text(), 3 => our_key()], value)).boxed()
}

/// Boxed, as are its parts, or the parts of parts overflow the stack of a test.
fn payload() -> BoxedStrategy<String> {
    prop_oneof![
        any::<String>(),
        spaced(json()),
        colliding_object(),
        colliding_object(),
        (spaced(json()), any_state()).prop_map(|(payload, state)| stamp_always(&payload, &state)),
        (spaced(json()), any_state(), any::<prop::sample::Index>(), ".{0,3}").prop_map(
            |(payload, state, at, noise)| damaged(&stamp_always(&payload, &state), at, &noise)
        ),
    ]
    .boxed()
}

fn damaged(text: &str, at: prop::sample::Index, noise: &str) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    let at = at.index(characters.len());
    characters.splice(at..=at, noise.chars());
    characters.into_iter().collect()
}

fn any_time() -> impl Strategy<Value = SystemTime> {
    (0..=state_text::max_millis()).prop_map(from_epoch_millis)
}

fn any_state() -> BoxedStrategy<RetryState> {
    let outer = (
        any::<u32>(),
        option::of(".{1,9}"),
        any_time(),
        option::of(any_time()),
        option::of(any_time()),
    );
    let inner = (
        option::of(select(FailureClass::ALL.as_slice())),
        option::of(any::<u32>()),
        prop::array::uniform4(prop_oneof![Just(0), any::<u32>()]),
        prop::array::uniform3(option::of(any_time())),
        prop::array::uniform5(prop_oneof![Just(0), any::<u32>()]),
    );
    let object = option::of(object_of(string_text(), json())).boxed();
    let foreign = (
        object.clone(),
        option::of(".{0,9}"),
        vec(("u.{0,3}", json()), 0..3).boxed(),
        object,
        option::of(".{0,60}"),
    );
    (outer, inner, foreign)
        .prop_map(|(outer, inner, foreign)| RetryState {
            retry_count: outer.0,
            original_message_id: outer.1,
            retry_timestamp: Some(outer.2),
            first_sent: outer.3,
            first_received: outer.4,
            class: inner.0,
            delay: inner.1.map(|secs| Duration::from_secs(u64::from(secs))),
            counts: inner.2,
            not_before: inner.3[0],
            start_tag: inner.2.first().map(|count| u64::from(*count) << 20),
            age_from: inner.3[2],
            deferrals: inner.4[0],
            hops: inner.4[1],
            is_alone: inner.4[2] % 2 == 1,
            redrives: inner.4[2],
            copies_in_row: inner.4[3],
            postponements: inner.4[4],
            dead_letter: foreign.0,
            source: foreign.1,
            unknown: foreign.2,
            last_dead_letter: foreign.3,
            traceparent: foreign.4,
        })
        .boxed()
}

fn stamp_always(payload: &str, state: &RetryState) -> String {
    let copy = stamp(payload, state, Wrap::WhenNeeded).expect("wrapping is on");
    copy.as_str().to_owned()
}

fn state_of(state: &RetryState) -> String {
    let mut text = String::new();
    state_text::push(&mut text, state, &[]);
    text
}

/// The members of an object as `serde_json` reads them; of several with one name the last.
fn values(text: &str) -> Option<serde_json::Map<String, Value>> {
    serde_json::from_str(text).ok()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_payload_survives_every_attempt(payload in payload(), states in vec(any_state(), 1..4)) {
        assert_survives(&payload, &states);
    }

    #[test]
    fn a_body_that_is_not_ours_is_handed_on_as_it_is(body in payload()) {
        let read = read(&body, CAP);
        if !matches!(read.origin, Origin::Ours(_)) {
            prop_assert!(matches!(read.payload, Cow::Borrowed(payload) if payload == body));
        }
    }

    #[test]
    fn outside_our_members_nothing_changes(payload in spaced(object_of(string_text(), json())), state in any_state()) {
        let text = stamp_always(&payload, &state);
        let (before, after) = payload.split_at(payload.rfind('}').expect("an object"));
        prop_assert!(text.starts_with(before) && text.ends_with(after));
        let ours = &text[before.len()..text.len() - after.len()];
        let alone = values(&format!("{{{}}}", ours.trim_start_matches(',')));
        if let (Some(alone), Some(mut expected)) = (alone, values(&payload)) {
            prop_assert_eq!(alone.len(), 4);
            expected.extend(alone);
            prop_assert_eq!(values(&text), Some(expected));
        }
    }

    #[test]
    fn a_producers_values_are_kept_as_text(payload in colliding_object(), state in any_state()) {
        let text = stamp_always(&payload, &state);
        if let (Some(expected), Some(mut found)) = (values(&payload), values(&text)) {
            if found.contains_key("retryBody") {
                prop_assert_eq!(&found["retryBody"], &Value::String(payload));
            } else {
                let state = found["retryState"].take();
                for (name, value) in &expected {
                    let kept = state["original"].get(name).and_then(Value::as_str).filter(|_| NAMES.contains(&name.as_str()));
                    let now = kept.map_or(found[name].clone(), |kept| serde_json::from_str(kept).expect("JSON"));
                    prop_assert_eq!(&now, value);
                }
            }
        }
    }

    #[test]
    fn a_state_of_any_text_is_read_or_left(text in prop_oneof![any::<String>(), json()], payload in payload()) {
        for body in [
            format!("{{\"retryCount\":1,\"originalMessageId\":\"a\",\"retryTimestamp\":\"2026-11-21T01:02:03Z\",\"retryState\":{text}}}"),
            format!("{{\"v\":1,{MEMBERS},\"a\":{text}}}"),
            format!("{{\"retryBody\":{text},{MEMBERS}}}"),
            stamped(&payload).replacen("\"v\":1", &format!("\"v\":{text}"), 1),
            stamped(&payload).replacen("\"v\":1", &format!("\"v\":1,{text}"), 1),
            stamped(&payload).replacen("\"v\":1", &format!("\"v\":1,\"original\":{text}"), 1),
            stamped(&payload).replacen("\"v\":1", &format!("\"v\":1,\"x\":{text}"), 1),
        ] {
            let payload = read(&body, CAP).payload;
            assert_survives(&payload, &[state()]);
        }
    }

    #[test]
    fn the_version_decides(version: u64, payload in spaced(json())) {
        let body = stamped(&payload);
        let (head, tail) = body.rsplit_once("\"v\":1,").expect("a version");
        for version in [version, version % 4] {
            let origin = read(&format!("{head}\"v\":{version},{tail}"), CAP).origin;
            match version {
                0 => prop_assert_eq!(origin, Origin::Fresh { retry_count: 2 }),
                1 => prop_assert!(matches!(origin, Origin::Ours(_))),
                later => prop_assert_eq!(origin, Origin::LaterVersion(later)),
            }
        }
    }
}
