//! The screen "Policy". The commands `check`, `schedule` and `simulate` do the work.

use std::collections::BTreeMap;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use clap::error::{ContextKind, ContextValue};
use http::StatusCode;
use requeue::policy::RetryPolicy;
use serde::Deserialize;
use serde_json::{Value, json};

use super::job::JobPlace;
use super::server::{self, FailedRequest};
use crate::document::Document;
use crate::schedule::{self, Schedule, chart};
use crate::{Error, bail, check, document, outage, rate};

/// The options that the page may set, with the greatest number of each. Paths are not among them.
type Allowed = &'static [(&'static str, u64)];

const SCHEDULE: Allowed = &[
    ("strategy", u64::MAX),
    ("dead-letter", u64::MAX),
    ("max-receive-count", 1_000),
    ("visibility-timeout", 43_200),
    ("message-bytes", u64::MAX),
    ("price-per-million", u64::MAX),
];
/// The user of a page waits less long than that of a terminal.
const OUTAGE: Allowed = &[
    ("messages", 5_000),
    ("outage", 3_600),
    ("availability", 100),
    ("rate", 1_000),
    ("scopes", 100),
];
const RATE: Allowed = &[
    ("messages", 10_000),
    ("limit", 1_000),
    ("period", 60),
    ("burst", 1_000),
    ("environments", 100),
];

#[derive(Deserialize)]
struct Asked {
    policy: String,
    options: BTreeMap<String, String>,
    /// A second policy, with which the chart shares its axes.
    beside: Option<String>,
}

pub(super) fn routes(job: JobPlace) -> Router {
    let outage = async |State(job): State<JobPlace>, body: Bytes| {
        let (policy, options): (_, outage::Arguments) = asked(&body, OUTAGE)?;
        job.start("outage", move |progress, stop| outage::rows(&options, policy, &progress, &stop))
    };
    let rate = async |State(job): State<JobPlace>, body: Bytes| {
        let (policy, options): (_, rate::Arguments) = asked(&body, RATE)?;
        job.start("rate", move |progress, stop| rate::rows(options, policy, &progress, &stop))
    };
    Router::new()
        .route("/schedule", post(schedule))
        .route("/outage", post(outage))
        .route("/rate", post(rate))
        .route("/job", get(async |State(job): State<JobPlace>| server::json(&job.json())))
        .route("/job/stop", post(async |State(job): State<JobPlace>| job.stop()))
        .with_state(job)
}

async fn schedule(body: Bytes) -> Result<Response, FailedRequest> {
    let schedule = scheduled(&server::parsed(&body)?).map_err(refused)?;
    Ok(server::json(&schedule))
}

fn scheduled(asked: &Asked) -> Result<Value, Error> {
    let problem = |text: &String| {
        let mut problem = json!({ "text": text });
        if let Some((line, column)) = position(&asked.policy, text) {
            (problem["line"], problem["column"]) = (line.into(), column.into());
        }
        problem
    };
    let refused = |problems: &[String]| {
        let problems: Value = problems.iter().map(problem).collect();
        json!({ "problems": problems, "report": "", "schedule": null, "chart": "" })
    };
    let options = match arguments::<schedule::Arguments>(&asked.options, SCHEDULE) {
        Ok(options) => options,
        Err(error) => return Ok(refused(&[error.to_string()])),
    };
    if asked.policy.trim().is_empty() {
        let problem = r#"the document is empty; write a policy such as {"preset": "standard"}"#;
        return Ok(refused(&[problem.to_owned()]));
    }
    let document = match document::parse_text(&asked.policy) {
        Ok(document) => document,
        Err(invalid) => return Ok(refused(invalid.problems())),
    };
    let report = check::report(&document, &asked.policy);
    let of = |Document { policy, queue_config, .. }| {
        Schedule::of_policy(&options, "policy".to_owned(), policy, &queue_config)
    };
    let beside = asked.beside.as_deref().and_then(|text| document::parse_text(text).ok()).map(of);
    let schedule = of(document);
    Ok(json!({
        "problems": [],
        "report": report,
        "schedule": schedule::json(&schedule),
        "chart": chart::svg(&schedule, beside.as_ref())?,
    }))
}

fn asked<T: clap::Args>(body: &Bytes, allowed: Allowed) -> Result<(RetryPolicy, T), FailedRequest> {
    let asked: Asked = server::parsed(body)?;
    let Document { policy, .. } = document::parse_text(&asked.policy).map_err(refused)?;
    Ok((policy, arguments(&asked.options, allowed).map_err(refused)?))
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn refused(error: impl ToString) -> FailedRequest {
    FailedRequest::new(StatusCode::BAD_REQUEST, &error)
}

fn arguments<T: clap::Args>(
    options: &BTreeMap<String, String>,
    allowed: Allowed,
) -> Result<T, Error> {
    let mut words = Vec::new();
    for (name, value) in options {
        let Some((_, most)) = allowed.iter().find(|(known, _)| known == name) else {
            let names: Vec<&str> = allowed.iter().map(|(known, _)| *known).collect();
            bail!("{name} is unknown; use one of {}", names.join(", "));
        };
        let is_within = *most == u64::MAX || value.parse().is_ok_and(|number: u64| number <= *most);
        if !is_within {
            let rule = format!("on this page it is a number of at most {most}");
            bail!("{name} is {value}; {rule}");
        }
        words.push(format!("--{name}={value}"));
    }
    let command = T::augment_args(clap::Command::new("page").no_binary_name(true));
    let matches = command.try_get_matches_from(words).map_err(|error| first_line(&error))?;
    T::from_arg_matches(&matches).map_err(|error| first_line(&error).into())
}

/// The first line of an error, with the name of the page for an option.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return line.to_owned();
    };
    let name = option.trim_start_matches('-').split(' ').next().unwrap_or_default();
    line.replace(&format!("'{option}'"), name)
}

/// The line and the column that a problem names, counted from 1, or that of the key with which it begins: `a.b[1].c is …`.
fn position(document: &str, problem: &str) -> Option<(usize, usize)> {
    named(problem).or_else(|| of_key(document, problem.split(' ').next()?))
}

/// `… at line 2 column 13`, as for a document that is not JSON. A document that ends too early may
/// have the column 0, after the last line feed.
fn named(problem: &str) -> Option<(usize, usize)> {
    let (line, column) = problem.rsplit_once(" at line ")?.1.split_once(" column ")?;
    Some((line.parse().ok()?, column.parse().ok().filter(|column| *column > 0)?))
}

/// The position of the last key of a path. The search for each key begins after the one before it,
/// which finds it unless an earlier value has the same name.
fn of_key(document: &str, path: &str) -> Option<(usize, usize)> {
    let mut at = None;
    let mut from = 0;
    let is_number = |key: &str| key.bytes().all(|byte| byte.is_ascii_digit());
    for key in path.split(['.', '[', ']']).filter(|key| !is_number(key)) {
        let quoted = format!("\"{key}\"");
        let Some(found) = document[from..].find(&quoted) else { break };
        at = Some(from + found);
        from += found + quoted.len();
    }
    let before = &document[..at?];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Some((line, column))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers on the axes.
    fn marks(policy: &str, beside: Option<&str>) -> Vec<String> {
        let (policy, beside) = (policy.to_owned(), beside.map(str::to_owned));
        let asked = Asked { policy, options: BTreeMap::new(), beside };
        let scheduled = scheduled(&asked).expect("a chart");
        let chart = scheduled["chart"].as_str().expect("a chart");
        let chart = roxmltree::Document::parse(chart).expect("XML");
        let texts = chart.descendants().filter(|node| node.has_tag_name("text"));
        let texts = texts.filter_map(|node| node.text()).map(|text| text.trim().to_owned());
        texts.filter(|text| text.len() <= 6).collect()
    }

    #[test]
    fn two_policies_have_the_same_axes() {
        let (fast, slow) = (
            r#"{"maxRetries": 3, "errorConfigs": {"default": {"baseDelay": 1, "maxDelay": 2}}}"#,
            r#"{"maxRetries": 90, "errorConfigs": {"default": {"baseDelay": 60, "maxDelay": 900}}}"#,
        );
        assert!(!marks(fast, None).is_empty());
        assert_ne!(marks(fast, None), marks(slow, None));
        assert_eq!(marks(fast, Some(slow)), marks(slow, Some(fast)));
        assert_eq!(marks(fast, Some("{")), marks(fast, None));
        assert_eq!(marks(fast, Some(r#"{"maxRetries": 0}"#)), marks(fast, None));
    }

    #[test]
    fn the_page_sets_no_path_and_no_size_beyond_its_bounds() {
        for (name, value, error) in [
            ("messages", "5000", ""),
            ("messages", "5001", "messages is 5001; on this page it is a number of at most 5000"),
            ("outage", "1d", "outage is 1d; on this page it is a number of at most 3600"),
            ("messages", "0", "invalid value '0' for messages: 0 is not in 1..=100000"),
            (
                "policy",
                "/etc/passwd",
                "policy is unknown; use one of messages, outage, availability, rate, scopes",
            ),
            (
                "messages=1 --policy",
                "x",
                "messages=1 --policy is unknown; use one of messages, outage, availability, rate, scopes",
            ),
        ] {
            let options = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            let read = arguments::<outage::Arguments>(&options, OUTAGE);
            assert_eq!(read.err().map_or(String::new(), |error| error.to_string()), error);
        }
        for (allowed, forbidden) in
            [(SCHEDULE, "svg"), (SCHEDULE, "file"), (RATE, "svg"), (RATE, "policy")]
        {
            assert!(!allowed.iter().any(|(name, _)| *name == forbidden), "{forbidden}");
        }
    }

    #[test]
    fn a_problem_is_found_at_its_key_or_at_the_line_that_it_names() {
        let document = "{\n  \"preset\": \"x\",\n  \"errorConfigs\": [ { \"retryCount\": -1 } ]\n}";
        for (problem, position) in [
            ("preset is `\"x\"`: must be standard", Some((2, 3))),
            ("errorConfigs[0].retryCount is -1: must be 0", Some((3, 23))),
            ("errorConfigs[0].class is missing", Some((3, 3))),
            ("is not JSON: key must be a string at line 2 column 13", Some((2, 13))),
            ("is not JSON: EOF while parsing a value at line 1 column 0", None),
            ("rules is missing", None),
        ] {
            assert_eq!(super::position(document, problem), position, "{problem}");
        }
    }
}
