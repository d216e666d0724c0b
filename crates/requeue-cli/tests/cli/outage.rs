//! The cost of an outage for a service, with and without protection: runs the command at a fifth of
//! its default size.

use serde_json::Value;

use crate::documents::excerpt;
use crate::run::{file, requeue};

#[test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
fn a_service_that_is_down_is_hardly_called_and_nothing_is_dead_lettered_for_it() {
    let command = ["simulate", "outage", "--messages", "4000", "--rate", "10"];
    let said = requeue(&command).succeeded();
    for shown in excerpt("docs/concepts/protection.md", &command) {
        assert!(said.lines().any(|line| line == shown), "the command does not print: {shown}");
    }

    // The numbers of a row, without the protection and with it; 0 for a dash.
    let row = |name: &str| -> [f64; 2] {
        let line = said.lines().find(|line| line.starts_with(&format!(" {name} "))).expect(name);
        let cells = line[name.len() + 1..].split_whitespace();
        let numbers: Vec<f64> =
            cells.map(|cell| cell.replace(',', "").parse().unwrap_or_default()).collect();
        numbers.try_into().expect(name)
    };
    let [without, with] = row("calls during the outage");
    assert!(with < 0.05 * without, "{said}");
    assert_eq!(row("dead letters")[1], 0.0, "{said}");
    assert!((1.0..=1.7).contains(&row("  as a multiple of the least time")[1]), "{said}");
    let [without, with] = row("retries used");
    assert!(with < 0.1 * without && row("  most for one message")[1] <= 15.0, "{said}");
    let [without, with] = row("  most in one second");
    assert!(with < 0.5 * without, "{said}");
}

#[test]
fn what_is_not_delivered_is_in_no_ratio() {
    let policy = file("outage-without-retries.json", r#"{"maxRetries": 0}"#);
    let run = |json: &[&str]| {
        let arguments = [
            "simulate",
            "outage",
            "--messages",
            "20",
            "--rate",
            "5",
            "--outage",
            "60",
            "--policy",
            &policy,
        ];
        requeue(&[&arguments[..], json].concat()).succeeded()
    };
    let figures: Value = serde_json::from_str(&run(&["--json"])).unwrap();
    let dead = figures["without"]["deadLetters"].as_u64().unwrap();
    assert!(dead > 0 && figures["without"]["ratio"].is_null(), "{figures}");
    let said = run(&[]);
    let ratio = said.lines().find(|line| line.contains("multiple of the least time")).unwrap();
    let shown: Vec<&str> = ratio.split_whitespace().rev().take(2).collect();
    assert!(dead > 0 && shown[1] == "–" && !said.contains("0.00"), "{said}");
}

#[test]
fn a_run_is_shown_side_by_side_and_can_be_repeated() {
    let run = || {
        requeue(&["simulate", "outage", "--messages", "200", "--rate", "5", "--outage", "60"])
            .succeeded()
    };
    let said = run();
    assert_eq!(said, run(), "the same seed gives the same run");
    for line in [
        "200 messages; a service that is down for 60 s",
        " calls during the outage ",
        " dead letters ",
    ] {
        assert!(said.contains(line), "{said}");
    }
    let rows: Vec<&str> = said.lines().skip(4).take(2).collect();
    assert!(rows[0].starts_with(" dead letters ") && rows[1].starts_with(" until "), "{said}");
}

#[test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
fn a_service_that_answers_some_of_its_calls_keeps_its_throughput() {
    // what it answers, the least throughput against none of this, the longest time that a circuit
    // may be open
    for (availability, throughput, longest_open) in
        [("10", 0.2, 300.0), ("50", 0.8, 30.0), ("90", 0.8, 1.5)]
    {
        let size = ["--messages", "6000", "--outage", "120"];
        let options = ["simulate", "outage", "--availability", availability, "--json"];
        let said = requeue(&[&options[..], &size].concat()).succeeded();
        let figures: Value = serde_json::from_str(&said).unwrap();
        let number = |run: &str, name: &str| figures[run][name].as_f64().unwrap();
        let [without, with] = ["without", "with"].map(|run| number(run, "throughputWhileDown"));
        assert!(with >= throughput * without, "{availability} %: {said}");
        assert!(number("with", "longestOpenSeconds") <= longest_open, "{availability} %: {said}");
        assert!(
            number("with", "retries") <= number("without", "retries"),
            "{availability} %: {said}"
        );
        assert_eq!(number("with", "deadLetters"), 0.0, "{availability} %: {said}");
    }
}

#[test]
fn environments_that_share_a_table_keep_the_limit_after_an_outage() {
    let size = ["simulate", "outage", "--messages", "500", "--outage", "20", "--rate", "20"];
    let options = ["--environments", "20", "--limit", "20"];
    let said = requeue(&[&size[..], &options, &["--json"]].concat()).succeeded();
    let figures: Value = serde_json::from_str(&said).unwrap();
    let number = |run: &str, name: &str| figures[run][name].as_f64().unwrap();
    assert_eq!(number("withTable", "refused"), 0.0, "{said}");
    assert!(number("withTable", "peakCallsPerSecond") <= 21.0, "{said}");
    assert!(number("withoutTable", "peakCallsPerSecond") > 21.0, "{said}");
    assert!(number("withTable", "tableRequestsPerMessage") > 0.0, "{said}");
    assert!(figures["withoutTable"]["tableRequestsPerMessage"].is_null(), "{said}");
    for run in ["withTable", "withoutTable"] {
        assert_eq!(number(run, "deadLetters"), 0.0, "{said}");
    }
    let said = requeue(&[&size[..], &options].concat()).succeeded();
    for line in ["20 execution environments, with pause and", " requests to the table for each "] {
        assert!(said.contains(line), "{said}");
    }
}
