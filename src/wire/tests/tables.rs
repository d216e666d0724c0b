//! What bodies look like, text against text.

use super::*;

#[test]
fn an_object_keeps_its_bytes_and_gets_our_members_at_its_end() {
    let cases = [
        ("{}", "{MEMBERS}"),
        ("{ \t}", "{ \tMEMBERS}"),
        (r#"{"a":1}"#, r#"{"a":1,MEMBERS}"#),
        (" \r\n{\"a\":1 \n}\n ", " \r\n{\"a\":1 \n,MEMBERS}\n "),
        (
            r#"{"b":1.0,"a":12345678901234567890123,"b":1e999,"c":"\u0061\/\ud800"}"#,
            r#"{"b":1.0,"a":12345678901234567890123,"b":1e999,"c":"\u0061\/\ud800",MEMBERS}"#,
        ),
        (r#"{"a":{"retryState":[]}}"#, r#"{"a":{"retryState":[]},MEMBERS}"#),
        (r#"{"\ud800":"}"}"#, r#"{"\ud800":"}",MEMBERS}"#),
        (r#"{"RetryCount":1,"retrycount ":"é"}"#, r#"{"RetryCount":1,"retrycount ":"é",MEMBERS}"#),
    ];
    for (payload, expected) in cases {
        assert_eq!(stamped(payload), expected.replace("MEMBERS", MEMBERS));
        assert_survives(payload, &[state(), state()]);
    }
}

#[test]
fn a_producers_member_with_our_name_is_replaced_in_place_and_kept() {
    let payload = r#"{"retry\u0043ount": "5" ,"a":1,"retryState":{"v":9}}"#;
    let expected = concat!(
        r#"{"retry\u0043ount": 2 ,"a":1,"retryState":{"v":1,"firstSent":1700000000001,"class":"rate-limit","delay":60,"#,
        r#""counts":{"rate-limit":2},"original":{"retryCount":"\"5\"","retryState":"{\"v\":9}"}},"#,
        r#""originalMessageId":"id-1","retryTimestamp":"2026-11-21T01:02:03.004Z"}"#,
    );
    assert_eq!(stamped(payload), expected);
    assert_survives(payload, &[state(), state(), state()]);
}

#[test]
fn every_arrangement_of_our_names_in_a_payload_survives() {
    let names = ["retryCount", "originalMessageId", "retryTimestamp", "retryState", "a"];
    for first in names {
        for second in names {
            for third in names {
                for value in ["null", "\"\\uffff\\\"\"", "{\"v\":1}"] {
                    let payload = format!(
                        "{{\"{first}\":{value} , \"{second}\" : {value},\n\"{third}\":{value}}}"
                    );
                    assert_survives(&payload, &[state(), state()]);
                }
            }
        }
    }
}

#[test]
fn anything_else_is_wrapped() {
    let cases = [
        ("", r#""""#),
        (" ", r#"" ""#),
        ("plain text", r#""plain text""#),
        ("<a b=\"c\"/>\r\n", r#""<a b=\"c\"/>\r\n""#),
        ("[1, {}]", r#""[1, {}]""#),
        ("5", r#""5""#),
        ("null", r#""null""#),
        ("\"x\"", r#""\"x\"""#),
        ("{\"a\":1", r#""{\"a\":1""#),
        ("{\"a\":1,}", r#""{\"a\":1,}""#),
        ("{\"a\":NaN}", r#""{\"a\":NaN}""#),
        ("{\"a\":1}{}", r#""{\"a\":1}{}""#),
        ("{\"a\":1}\u{a0}", "\"{\\\"a\\\":1}\u{a0}\""),
        ("\u{feff}{\"a\":1}", "\"\u{feff}{\\\"a\\\":1}\""),
        ("{\"a\":\"\\x\"}", r#""{\"a\":\"\\x\"}""#),
        ("{\"a\":\"\n\"}", r#""{\"a\":\"\n\"}""#),
        ("{\"retryCount\":1,\"retryCount\":2}", r#""{\"retryCount\":1,\"retryCount\":2}""#),
        ("{\"retryBody\":1}", r#""{\"retryBody\":1}""#),
        ("{\"retry\\u0042ody\":\"x\"}", r#""{\"retry\\u0042ody\":\"x\"}""#),
        ("\u{0}\u{1f}\u{7f}\u{85}", "\"\\u0000\\u001f\u{7f}\u{85}\""),
        ("\u{FFFE}\u{FFFF}\u{FFFD}😀", "\"\\ufffe\\uffff\u{FFFD}😀\""),
        ("{\"a\":\"\u{FFFF}\"}", r#""{\"a\":\"\uffff\"}""#),
    ];
    for (payload, quoted) in cases {
        assert_eq!(stamped(payload), format!("{{\"retryBody\":{quoted},{MEMBERS}}}"));
        assert_eq!(stamp(payload, &state(), Wrap::Never), None, "{payload:?}");
        assert_survives(payload, &[state(), state()]);
        assert_survives(&stamped(payload), &[state(), state()]);
    }
}

#[test]
fn without_wrapping_an_object_is_stamped_all_the_same() {
    let copy = stamp("{\"retryState\":1}", &state(), Wrap::Never);
    assert_eq!(copy, stamp("{\"retryState\":1}", &state(), Wrap::WhenNeeded));
}

#[test]
fn of_a_producers_members_only_a_plain_count_up_to_the_cap_is_believed() {
    let cases = [
        ("0", 0),
        ("3", 3),
        ("49", 49),
        ("50", 50),
        ("51", 0),
        ("4294967296", 0),
        ("99999999999999999999999", 0),
        ("-0", 0),
        ("-1", 0),
        ("5.0", 0),
        ("1e2", 0),
        ("1e99", 0),
        ("1.5", 0),
        ("\"5\"", 0),
        ("null", 0),
        ("true", 0),
        ("[]", 0),
        ("{}", 0),
    ];
    for (count, believed) in cases {
        assert_fresh(&format!("{{\"retryCount\":{count}}}"), believed);
        assert_fresh(&format!(" {{\"a\":[],\"retry\\u0043ount\" : {count} }}\n"), believed);
    }
    assert_fresh("{\"retryCount\":3,\"retryCount\":3}", 0);
    assert_fresh("[{\"retryCount\":3}]", 0);
    assert_fresh("{\"a\":{\"retryCount\":3}}", 0);
    assert_fresh("{\"retryCount\":3", 0);
}

#[test]
fn a_body_in_the_articles_format_goes_on_counting_and_shows_its_members() {
    let body = r#"{"a":1,"retryCount":3,"originalMessageId":"m","retryTimestamp":"2026-11-21T01:02:03.004Z"}"#;
    assert_fresh(body, 3);
    assert_survives(body, &[state(), state()]);
}

/// Each way to be not quite ours, as a replacement in a body that is.
#[test]
fn a_body_with_a_malformed_member_is_the_producers() {
    let body =
        stamped("{\"a\":1}").replace("\"v\":1,", "\"v\":1,\"original\":{\"retryCount\":\"7\"},");
    assert!(matches!(read(&body, CAP).origin, Origin::Ours(_)));
    let cases = [
        ("\"v\":1,", ""),
        ("\"v\":1,", "\"v\":0,"),
        ("\"v\":1,", "\"v\":-1,"),
        ("\"v\":1,", "\"v\":1.0,"),
        ("\"v\":1,", "\"v\":\"1\","),
        ("\"v\":1,", "\"v\":1,\"\\u0076\":1,"),
        ("\"v\":1,", "\"v\":1,\"deadLetter\":\"x\","),
        ("\"v\":1,", "\"v\":1,\"deadLetter\":null,"),
        ("\"v\":1,", "\"v\":1,\"hops\":-1,"),
        ("\"v\":1,", "\"v\":1,\"hops\":4294967296,"),
        ("\"v\":1,", "\"v\":1,\"deferrals\":null,"),
        ("\"v\":1,", "\"v\":1,\"redrives\":true,"),
        ("\"v\":1,", "\"v\":1,\"alone\":false,"),
        ("\"v\":1,", "\"v\":1,\"notBefore\":\"2026\","),
        ("\"v\":1,", "\"v\":1,\"notBefore\":253402207201000,"),
        ("\"v\":1,", "\"v\":1,\"firstReceived\":1.5,"),
        ("\"v\":1,", "\"v\":1,\"\\ud800\":1,"),
        ("1700000000001", "-1"),
        ("1700000000001", "18446744073709551616"),
        (":60,", ":4294967296,"),
        (":60,", ":0.5,"),
        ("\"class\":\"rate-limit\"", "\"class\":\"RATE_LIMIT\""),
        ("\"class\":\"rate-limit\"", "\"class\":null"),
        ("{\"rate-limit\":2}", "{\"rate-limit\":2,\"rate-limit\":2}"),
        ("{\"rate-limit\":2}", "{\"rate\":2}"),
        ("{\"rate-limit\":2}", "{\"rate-limit\":-2}"),
        ("{\"rate-limit\":2}", "[2]"),
        ("\"7\"", "7"),
        ("\"7\"", "\"\""),
        ("\"7\"", "\" 7\""),
        ("\"7\"", "\"7 \""),
        ("\"7\"", "\"7,\""),
        ("\"7\"", "\"7,\\\"b\\\":8\""),
        ("{\"retryCount\":\"7\"}", "{\"a\":\"7\"}"),
        ("{\"retryCount\":\"7\"}", "{\"retryCount\":\"7\",\"retryCount\":\"7\"}"),
        ("{\"retryCount\":\"7\"}", "null"),
        ("\"id-1\"", "null"),
        ("\"id-1\"", "5"),
        ("\"id-1\"", "\"\\udc00\""),
        ("\"id-1\"", "\"id-1\",\"originalMessageId\":\"id-1\""),
        ("2026-11-21T01:02:03.004Z", ""),
        ("2026-11-21T01:02:03.004Z", "yesterday"),
        ("2026-11-21T01:02:03.004Z", "2026-11-21T01:02:03.004"),
        ("2026-11-21T01:02:03.004Z", "2026-13-21T01:02:03.004Z"),
        ("\"retryTimestamp\"", "\"retrytimestamp\""),
        ("{\"a\":1,", "{\"retryState\":{},"),
        ("{\"a\":1,", "{\"retryBody\":1,"),
        ("{\"a\":1,", "{\"retryBody\":\"\\ud800\","),
        ("{\"a\":1,", "{\"retryBody\":\"a\",\"retryBody\":\"a\","),
    ];
    for (part, replacement) in cases {
        let changed = body.replacen(part, replacement, 1);
        assert_ne!(changed, body, "{part} is not in the body");
        let believed =
            if read(&changed, CAP).origin == (Origin::Fresh { retry_count: 2 }) { 2 } else { 0 };
        assert_fresh(&changed, believed);
        assert_survives(&changed, &[state(), state()]);
    }
}

#[test]
fn a_count_that_is_torn_out_or_garbled_is_counted_anew() {
    for payload in ["{\"a\":1}", "{}", "{\"retryCount\":\"mine\",\"a\":1}", "text"] {
        let body = stamped(payload);
        for garbled in ["", "-1", "2.0", "\"2\"", "null", "4294967296", "{}"] {
            let count = if garbled.is_empty() {
                "\"other\":2".to_owned()
            } else {
                format!("\"retryCount\":{garbled}")
            };
            let torn = body.replacen("\"retryCount\":2", &count, 1);
            let read = read(&torn, CAP);
            let Origin::Ours(state) = read.origin else {
                panic!("{torn}");
            };
            assert_eq!(state.retry_count, 2, "{torn}");
            if !garbled.is_empty() {
                assert_eq!(read.payload, payload);
            }
        }
    }
}

#[test]
fn a_later_version_is_recognised_and_left_alone() {
    for (version, expected) in
        [("2", 2), ("3000000000", 3_000_000_000), ("18446744073709551616", u64::MAX)]
    {
        for payload in ["{\"a\":1}", "text"] {
            let body = stamped(payload)
                .replacen("\"v\":1", &format!("\"v\":{version}"), 1)
                .replacen("\"class\":\"rate-limit\"", "\"class\":[]", 1);
            let read = read(&body, CAP);
            assert_eq!(read.origin, Origin::LaterVersion(expected));
            assert_eq!(read.payload, body);
            assert_survives(&body, &[state(), state()]);
        }
    }
    for version in ["2.0", "-2", "\"2\"", "2e1", "true"] {
        assert_fresh(&stamped("{}").replacen("\"v\":1", &format!("\"v\":{version}"), 1), 2);
    }
    assert_fresh(r#"{"retryCount":2,"retryState":{"v":2}}"#, 2);
}

#[test]
fn our_members_are_found_wherever_someone_else_has_moved_them() {
    let [count, id, time, retry_state] = [
        r#""retryCount" : 2"#,
        r#""originalMessageId": "id-1""#,
        r#""\u0072etryTimestamp": "2026-11-21T02:02:03.004+01:00""#,
        concat!(
            r#""retryState": { "counts": {"rate-limit": 2}, "delay": 60, "class": "rate\u002dlimit","#,
            "\n\"firstSent\":\t1700000000001, \"hops\": 0, \"v\": 1 }",
        ),
    ];
    let cases = [
        (format!("{{ {count} , {id},{time} ,{retry_state} }}"), "{   }"),
        (format!("{{{count}\r\n\t , {id},{time},{retry_state}\n,\n\"a\":1}}"), "{ \n\"a\":1}"),
        (format!("{{{count},{id},{time},{retry_state},\"a\":1}}"), "{\"a\":1}"),
        (
            format!("{{\"a\":1,{count},\"b\":2 ,{id},{time}, \"c\":3,{retry_state}}}"),
            "{\"a\":1,\"b\":2 , \"c\":3}",
        ),
        (
            format!("{{{retry_state},\"a\":1, {time} ,{id}, \"b\":2,{count}\n}}"),
            "{\"a\":1 , \"b\":2\n}",
        ),
        (format!("{{{retry_state},{time},\"retryBody\":\"x\",{id},{count}}}"), "x"),
    ];
    for (body, payload) in cases {
        let read = read(&body, CAP);
        assert_eq!(read.payload, payload, "{body}");
        assert_eq!(read.origin, Origin::Ours(Box::new(state())), "{body}");
    }
}

#[test]
fn every_field_of_the_state_has_its_place() {
    let full = RetryState {
        retry_count: u32::MAX,
        first_received: Some(SystemTime::UNIX_EPOCH),
        class: Some(FailureClass::NonRetryable),
        delay: Some(Duration::ZERO),
        counts: [1, 2, 0, u32::MAX],
        not_before: Some(from_epoch_millis(state_text::max_millis())),
        deferrals: 3,
        hops: 4,
        is_alone: true,
        redrives: 5,
        dead_letter: Some("{ \"class\" :\"quota\"}".to_owned()),
        unknown: vec![
            ("z".to_owned(), "[1 ]".to_owned()),
            ("\u{FFFF}".to_owned(), "1e999".to_owned()),
        ],
        ..state()
    };
    let text =
        stamp("{\"retryCount\":null}", &full, Wrap::Never).map(|copy| copy.as_str().to_owned());
    let expected = concat!(
        r#"{"retryCount":4294967295,"originalMessageId":"id-1","retryTimestamp":"2026-11-21T01:02:03.004Z","#,
        r#""retryState":{"v":1,"firstSent":1700000000001,"firstReceived":0,"class":"non-retryable","delay":0,"#,
        r#""counts":{"rate-limit":1,"quota":2,"non-retryable":4294967295},"notBefore":253402207200999,"#,
        r#""deferrals":3,"hops":4,"alone":true,"redrives":5,"original":{"retryCount":"null"},"#,
        r#""deadLetter":{ "class" :"quota"},"z":[1 ],"\uffff":1e999}}"#,
    );
    assert_eq!(text.as_deref(), Some(expected));
    assert_survives("{\"retryCount\":null}", &[full.clone(), full]);
}

#[test]
fn an_empty_state_is_written_in_full() {
    let text =
        stamp("{}", &RetryState::default(), Wrap::Never).map(|copy| copy.as_str().to_owned());
    let expected = r#"{"retryCount":0,"originalMessageId":"","retryTimestamp":"1970-01-01T00:00:00.000Z","retryState":{"v":1}}"#;
    assert_eq!(text.as_deref(), Some(expected));
    let unsent =
        RetryState { retry_timestamp: Some(SystemTime::UNIX_EPOCH), ..RetryState::default() };
    assert_eq!(read(expected, CAP).origin, Origin::Ours(Box::new(unsent)));
}

#[test]
fn the_time_of_sending_is_set_in_place() {
    let cases = [
        (SystemTime::UNIX_EPOCH + Duration::from_micros(1_999), "1970-01-01T00:00:00.001Z"),
        (SystemTime::UNIX_EPOCH - Duration::from_secs(1), "1970-01-01T00:00:00.000Z"),
        (from_epoch_millis(1_795_222_923_999), "2026-11-21T01:02:03.999Z"),
        (from_epoch_millis(state_text::max_millis() + 1), "9999-12-30T22:00:00.999Z"),
        (from_epoch_millis(u64::MAX), "9999-12-30T22:00:00.999Z"),
    ];
    for payload in ["{}", "text \u{1}", "{\"retryTimestamp\":[\"é\"], \"a\":1}"] {
        let mut copy = stamp(payload, &state(), Wrap::WhenNeeded).expect("wrapping is on");
        let before = copy.as_str().to_owned();
        for (now, expected) in cases {
            copy.set_timestamp(now);
            assert_eq!(copy.as_str(), before.replace("2026-11-21T01:02:03.004Z", expected));
            assert_eq!(read(copy.as_str(), CAP).payload, payload);
        }
    }
}

#[test]
fn times_and_delays_beyond_what_is_read_are_cut_when_written() {
    let far = RetryState {
        retry_timestamp: Some(from_epoch_millis(u64::MAX)),
        first_sent: Some(from_epoch_millis(u64::MAX)),
        delay: Some(Duration::MAX),
        ..state()
    };
    let Origin::Ours(read) =
        read(stamp("{}", &far, Wrap::Never).expect("an object").as_str(), CAP).origin
    else {
        panic!("not recognised");
    };
    assert_eq!(read.first_sent, Some(from_epoch_millis(state_text::max_millis())));
    assert_eq!(read.retry_timestamp, read.first_sent);
    assert_eq!(read.delay, Some(Duration::from_secs(u64::from(u32::MAX))));
}
