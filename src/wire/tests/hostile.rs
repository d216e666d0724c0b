//! Bodies made to hurt.

use super::*;

const DEEP: usize = 100_000;

#[test]
fn nesting_of_any_depth_costs_no_stack() {
    let array = format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP));
    let object = format!("{}0{}", "{\"a\":".repeat(DEEP), "}".repeat(DEEP));
    let open = "{\"a\":[".repeat(DEEP);
    let mixed = format!("{{\"retryState\":{array},\"b\":{object}}}");
    for payload in [&array, &object, &open, &mixed] {
        assert_fresh(payload, 0);
        assert_survives(payload, &[state(), state()]);
    }
    for part in [
        format!("\"x\":{array}"),
        format!("\"deadLetter\":{object}"),
        format!("\"original\":{{\"retryCount\":\"{array}\"}}"),
    ] {
        let body = stamped("{}").replacen("\"v\":1", &format!("\"v\":1,{part}"), 1);
        assert!(matches!(read(&body, CAP).origin, Origin::Ours(_)));
    }
    for (part, value) in [
        ("60", &array),
        ("{\"rate-limit\":2}", &object),
        ("\"rate-limit\"", &array),
        ("\"id-1\"", &object),
    ] {
        assert_fresh(&stamped("{}").replacen(part, value, 1), 2);
    }
}

#[test]
fn a_crowd_of_members_is_read_in_one_go() {
    let crowd = |member: &str| vec![member; DEEP].join(",");
    assert_fresh(&format!("{{{}}}", crowd("\"retryCount\":3")), 0);
    assert_survives(&format!("{{{}}}", crowd("\"retryState\":{\"v\":1}")), &[state()]);
    assert_survives(&format!("{{{}}}", crowd("\"a\\u0062\":3")), &[state()]);
    let body = stamped("{}").replacen("\"v\":1", &format!("\"v\":1,{}", crowd("\"x\":[]")), 1);
    let read = read(&body, CAP);
    assert!(matches!(&read.origin, Origin::Ours(state) if state.unknown.len() == DEEP));
    assert_eq!(read.payload, "{}");
    assert_fresh(&stamped("{}").replacen("\"v\":1", &crowd("\"v\":1"), 1), 2);
}

#[test]
fn only_one_envelope_is_opened() {
    for payload in ["text", "{\"a\":1}", "{\"retryBody\":\"x\"}"] {
        let once = stamped(&stamped(payload));
        assert_eq!(read(&once, CAP).payload, stamped(payload));
    }
}

#[test]
fn what_escapes_say_in_an_envelope_stays_escaped_on_the_wire() {
    let forged = [
        r#""{\"a\":\"\uFFFF\u0001\"}""#,
        r#""{\"retryCount\":\"\uFFFF\"}""#,
        r#""\uFFFE\u0000""#,
        r#""{\"retryBody\":\"\uFFFF\"}""#,
    ];
    for body in forged {
        let envelope = format!("{{\"retryBody\":{body},{MEMBERS}}}");
        let payload = read(&envelope, CAP).payload;
        assert_eq!(payload, serde_json::from_str::<String>(body).expect("a string"));
        assert_survives(&payload, &[state(), state()]);
    }
}

#[test]
fn what_escapes_say_in_a_kept_value_stays_escaped_on_the_wire() {
    let original = r#""v":1,"original":{"retryCount":"\"\uFFFF\""},"x":"\uFFFF","\uFFFE":"#
        .to_owned()
        + "\"\\uffff\"";
    let body = stamped("{}").replacen("\"v\":1", &original, 1);
    let read = read(&body, CAP);
    assert_eq!(read.payload, "{\"retryCount\":\"\u{FFFF}\"}");
    let Origin::Ours(state) = read.origin else { panic!("not recognised") };
    assert_survives(&read.payload, &[*state.clone(), *state]);
}

#[test]
fn a_nonmember_that_looks_like_ours_is_none() {
    for key in [
        "retryCount\\u0000",
        "\\u0000retryCount",
        "retryCount\\\"",
        "\\\"retryCount",
        "retry\u{200b}Count",
        "\\\\u0072etryCount",
    ] {
        assert_fresh(&format!("{{\"{key}\":3}}"), 0);
        assert!(
            stamped(&format!("{{\"{key}\":3}}"))
                .starts_with(&format!("{{\"{key}\":3,\"retryCount\":2,"))
        );
    }
    let letters = "originalMessageId".bytes();
    let longest = letters.fold(String::new(), |key, byte| format!("{key}\\u{byte:04X}"));
    let body = stamped("{}").replace("originalMessageId", &longest);
    assert_eq!(read(&body, CAP).origin, Origin::Ours(Box::new(state())));
}

/// `serde_json` gives this name a meaning of its own, in other types than the one used here.
#[test]
fn the_private_name_of_raw_values_is_a_name_like_any_other() {
    for payload in [
        "{\"$serde_json::private::RawValue\":\"1\"}",
        "{\"a\":{\"$serde_json::private::RawValue\":\"}\"}}",
        "{\"retryState\":{\"$serde_json::private::Number\":\"1\"}}",
    ] {
        assert_fresh(payload, 0);
        assert_survives(payload, &[state(), state()]);
    }
}
