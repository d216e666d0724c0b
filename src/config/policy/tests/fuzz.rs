//! Any text as a policy document: `tests/fuzz policy`. Held against the schema, and against the
//! same document written in another way.

use std::time::SystemTime;

use serde_json::Value;
use serde_json::value::RawValue;

use super::properties::{assert_bounded, is_between_values};
use super::read_all as read;
use super::schema::allows;
use crate::classify::{Response, Rules};
use crate::failure::Failure;
use crate::policy::RetryPolicy;
use crate::settings::Settings;

const ANSWERS: [Response<'static>; 3] = [
    Response {
        status: 404,
        headers: &[("x-maintenance", b"Sunday")],
        body: br#"{"code":"a","message":"not found yet"}"#,
    },
    Response { status: 503, headers: &[("Retry-After", b"7")], body: b"\xff a, b" },
    Response { status: 302, headers: &[], body: b"" },
];

#[test]
fn any_document_is_refused_with_reasons_or_means_the_same_however_it_is_written() {
    bolero::check!(name = "policy").with_iterations(500).for_each(|input: &[u8]| {
        let text = String::from_utf8_lossy(input);
        let judged = read(&text);
        match &judged {
            Ok((policy, rules)) => {
                assert_bounded(policy);
                let parsed = text.parse::<RetryPolicy>();
                let mut settings = Settings::default();
                assert_eq!(settings.set_policy(&text), Ok(()));
                let is_whole = rules.is_empty() && settings.queues.is_empty();
                assert_eq!(parsed.ok().as_ref(), Some(policy).filter(|_| is_whole));
                settings.queues.values().for_each(|own| assert_bounded(&own.policy));
                assert_eq!((&settings.policy, settings.rules.len()), (policy, rules.len()));
                assert!(rules.len() <= 100);
            }
            Err(problems) => {
                assert!(!problems.is_empty(), "{text:?}");
                let is_harmless = |problem: &String| {
                    !problem.chars().any(char::is_control) && problem.len() < 1_000
                };
                // What is no JSON is serde_json's to say.
                assert!(problems.iter().all(is_harmless), "{problems:?}");
            }
        }
        let document = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let Some(written_anew) = rewritten(document) else { return };
        let again = read(&written_anew);
        // Of two members of one name only the first is looked at.
        let twice = |problem: &String| problem.contains(" stands more than once");
        let twice = judged.as_ref().is_err_and(|problems| problems.iter().any(twice));
        let told = |problems: &Vec<String>| if twice { 1 } else { problems.len() };
        assert_eq!(
            judged.as_ref().map(|read| &read.0).map_err(told),
            again.as_ref().map(|read| &read.0).map_err(told),
            "{text:?}",
        );
        if let (Ok((_, rules)), Ok((_, same_rules))) = (&judged, &again) {
            assert_eq!(verdicts(rules), verdicts(same_rules));
        }
        // A value forgets the first of two members of one name, and one name has a meaning of its
        // own for it.
        if let (false, false, Ok(value)) =
            (twice, text.contains("$serde_json::private"), serde_json::from_str::<Value>(document))
        {
            let between = judged
                .as_ref()
                .err()
                .is_none_or(|problems| problems.iter().all(|it| is_between_values(it)));
            assert_eq!(allows(&value), between, "{text:?} {judged:?}");
        }
    });
}

/// What the rules make of some answers.
fn verdicts(rules: &Rules) -> [Failure; 3] {
    ANSWERS.map(|answer| rules.within(|| Failure::from_response(&answer, SystemTime::UNIX_EPOCH)))
}

/// The same document without white space, the members of every object in the opposite order;
/// numbers and strings as they are. `None` if it is no JSON, or very deep.
fn rewritten(text: &str) -> Option<String> {
    if text.matches(['{', '[']).count() > 100 {
        return None;
    }
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    serde_json::from_str::<&RawValue>(text).ok()?;
    Some(match text.as_bytes().first()? {
        b'{' => {
            let mut members = Vec::new();
            crate::json::each_member(text, |name, value| {
                members.push(format!("{name}:{}", rewritten(value)?));
                Some(())
            })?;
            members.reverse();
            format!("{{{}}}", members.join(","))
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            let items: Vec<String> =
                items.iter().map(|item| rewritten(item.get())).collect::<Option<_>>()?;
            format!("[{}]", items.join(","))
        }
        _ => text.to_owned(),
    })
}
