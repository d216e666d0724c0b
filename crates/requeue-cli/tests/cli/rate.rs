//! `requeue simulate rate`: execution environments keep one limit by a table, and do not without.

use std::fs;

use serde_json::Value;

use crate::run::{requeue, scratch};

const SIZE: [&str; 6] = ["simulate", "rate", "--messages", "1000", "--environments", "20"];

fn figures(options: &[&str]) -> Value {
    let said = requeue(&[&SIZE[..], options, &["--json"]].concat()).succeeded();
    serde_json::from_str(&said).unwrap()
}

#[test]
fn a_table_keeps_one_limit_for_all_environments() {
    let figures = figures(&[]);
    let number = |run: &str, name: &str| figures[run][name].as_f64().unwrap();
    for run in ["withoutLimit", "withoutTable", "withTable"] {
        assert_eq!(number(run, "calls"), 1_000.0, "{run}: {figures}");
    }
    assert!(number("withoutLimit", "callsAboveLimit") > 900.0, "{figures}");
    assert!(number("withoutTable", "callsAboveLimit") > 500.0, "{figures}");
    assert!(number("withTable", "callsAboveLimit") < 0.01, "{figures}");
    assert!(number("withTable", "throughputOfLimit") > 0.94, "{figures}");
    assert!(number("withTable", "deferralsPerMessage") < 2.0, "{figures}");
    assert!(number("withTable", "sqsRequestsPerMessage") < 1.5, "{figures}");
    assert!(number("withTable", "tableRequestsPerMessage") < 0.5, "{figures}");
    let by_second = figures["withTable"]["callsBySecond"].as_array().unwrap();
    assert!((20..=22).contains(&by_second.len()), "{figures}");
    assert!(by_second.iter().all(|calls| calls.as_u64().unwrap() <= 51), "{figures}");
}

#[test]
fn the_limit_holds_with_deaths_and_a_silent_table() {
    let calls_above = |options: &[&str]| {
        let figures = figures(options);
        assert!(figures["withTable"]["calls"].as_u64().unwrap() >= 1_000, "{figures}");
        figures["withTable"]["callsAboveLimit"].as_f64().unwrap()
    };
    // their reservations are lost
    assert!(calls_above(&["--deaths", "5"]) < 0.01);
    // a fifth of the limit of a second more
    assert!(calls_above(&["--table-down", "5-10"]) <= 10.0);
}

#[test]
fn a_flood_of_one_tenant_does_not_delay_the_others() {
    let wait = |messages: &str| {
        let size = ["simulate", "rate", "--messages", messages, "--environments", "30"];
        let options = ["--warm", "--tenants", "500", "--json"];
        let figures = requeue(&[&size[..], &options].concat()).succeeded();
        let figures: Value = serde_json::from_str(&figures).unwrap();
        figures["withTable"]["longestWaitOfOtherTenantsSeconds"].as_f64().unwrap()
    };
    let (alone, with_a_flood) = (wait("1"), wait("2000"));
    assert!(alone > 0.0 && with_a_flood <= alone + 1.0, "{alone} {with_a_flood}");
}

#[test]
fn tenants_with_fair_shares_wait_little_beside_a_flood_in_their_scope() {
    // A policy with `fairBy` needs no --load.
    let policy = r#"{"rateLimit": {"limit": 50, "fairBy": "MessageGroupId"}}"#;
    for options in
        [&["--tenants", "20", "--load", "30"][..], &["--tenants", "3", "--policy", policy]]
    {
        let figures = figures(options);
        let number = |run: &str, name: &str| figures[run][name].as_f64().unwrap();
        for run in ["withTable", "withFairShares"] {
            assert!(number(run, "calls") > 1_200.0, "{run}: {figures}");
            assert!(number(run, "callsAboveLimit") < 0.01, "{run}: {figures}");
            assert!(number(run, "throughputOfLimit") > 0.9, "{run}: {figures}");
        }
        let wait = |run| number(run, "waitOf99PercentOfOtherTenantsSeconds");
        assert!(wait("withTable") > 18.0 && wait("withFairShares") < 6.0, "{figures}");
        assert!(number("withFairShares", "deferralsPerMessageOfBacklog") < 5.0, "{figures}");
    }
}

#[test]
fn tenants_of_a_backlog_get_calls_by_their_weights() {
    let size = ["simulate", "rate", "--messages", "4000", "--environments", "20", "--json"];
    let figures = requeue(&[&size[..], &["--weights", "1,1,2,4"]].concat()).succeeded();
    let figures: Value = serde_json::from_str(&figures).unwrap();
    let shares =
        |run: &str| -> Vec<f64> { serde_json::from_value(figures[run]["shares"].clone()).unwrap() };
    let are = |run, expected: [f64; 4]| {
        let shares = shares(run);
        let off = shares.iter().zip(expected).map(|(share, expected)| (share - expected).abs());
        assert!(off.fold(0.0, f64::max) < 0.03, "{run}: {shares:?}");
    };
    are("withTable", [0.25; 4]);
    are("withFairShares", [0.125, 0.125, 0.25, 0.5]);
}

#[test]
fn limits_of_all_and_of_each_tenant_hold_with_calls_that_weigh_differently() {
    let size = ["simulate", "rate", "--messages", "300", "--environments", "20", "--json"];
    let total = r#"{"limit": 60, "units": "/tokens"}"#;
    for (total, key) in [
        (total, r#"{"key": "/customer/id", "limit": 5, "burst": 11}"#),
        ("", r#"{"key": "MessageGroupId", "limit": 15, "units": "tokens"}"#),
        ("", r#"{"key": "/a", "limit": 5}, {"key": "/b", "limit": 90, "periodSeconds": 20}"#),
    ] {
        let comma = if total.is_empty() { "" } else { ", " };
        let policy = format!(r#"{{"limits": [{total}{comma}{key}]}}"#);
        let options = ["--policy", &policy, "--tenants", "20"];
        let figures = requeue(&[&size[..], &options].concat()).succeeded();
        let figures: Value = serde_json::from_str(&figures).unwrap();
        assert_eq!(figures["withFairShares"].is_null(), total.is_empty());
        for run in ["withTable", "withFairShares"].iter().filter_map(|run| figures.get(run)) {
            let number = |of: &Value, name: &str| of[name].as_f64().unwrap();
            let keys = run["keys"].as_array().unwrap();
            let all = keys.iter().chain((!total.is_empty()).then_some(run));
            for limit in all {
                assert_eq!(number(limit, "callsAboveLimitAllowed"), 0.0, "{limit}");
                assert!(number(limit, "callsAboveLimit") < 0.3, "{limit}");
                for window in limit["windows"].as_array().unwrap() {
                    assert!(window["mostCalls"].as_u64() <= window["allowed"].as_u64(), "{limit}");
                }
            }
            assert!(number(run, "calls") >= 300.0, "{run}");
            assert_eq!(run["callsAboveLimit"].is_null(), total.is_empty(), "{run}");
            let used = keys.iter().map(|limit| number(limit, "throughputOfLimit"));
            assert!(used.fold(0.0, f64::max) > 0.85, "{run}");
        }
        let alone = &figures["withoutTable"]["keys"][0]["callsAboveLimit"];
        assert!(alone.as_f64().unwrap() > 10.0, "{figures}");
    }
}

#[test]
fn a_change_by_an_operator_counts_at_once_for_all_environments_and_is_drawn() {
    let chart = scratch("changed.svg");
    let path = chart.to_str().unwrap();
    let mut drawn = Vec::new();
    for (change, allowed) in [("pause@10-40", 0), ("set=10@10-40", 281), ("set=80@5-10", 241)] {
        let figures = figures(&["--change", change, "--svg", path]);
        let run = &figures["withTable"];
        assert_eq!(run["callsInChangeAllowed"], allowed, "{run}");
        assert!(run["callsInChange"].as_u64().unwrap() <= allowed, "{run}");
        assert!(run["callsAboveLimit"].as_f64() <= run["callsAboveLimitAllowed"].as_f64(), "{run}");
        assert!(run["throughputOfLimit"].as_f64().unwrap() > 0.8, "{change}: {run}");
        drawn.push(fs::read_to_string(path).unwrap());
    }
    // A limit of one tenant.
    let policy = r#"{"limits": [{"key": "/tenant", "limit": 50}]}"#;
    let figures = figures(&["--policy", policy, "--change", "pause@5-20", "--tenants", "3"]);
    let key = &figures["withTable"]["keys"][0];
    assert_eq!((&key["callsInChange"], &key["callsInChangeAllowed"]), (&0.into(), &0.into()));
    assert!(key["seconds"].as_f64().unwrap() > 30.0, "{key}");
    drawn.dedup();
    assert_eq!(drawn.len(), 3);
}

#[test]
fn a_run_is_repeated_and_drawn() {
    let chart = scratch("rate.svg");
    let path = chart.to_str().unwrap();
    let size = ["simulate", "rate", "--messages", "200", "--limit", "20", "--environments", "5"];
    let run = || requeue(&[&size[..], &["--svg", path]].concat()).succeeded();
    let said = run();
    let drawn = fs::read_to_string(path).unwrap();
    assert_eq!((said.clone(), drawn.clone()), (run(), fs::read_to_string(path).unwrap()));
    for line in [
        "200 messages at once; a service that takes 20 calls in 1 s",
        "without a rate limit",
        "limit without a table",
        "limit with a table",
        " throughput, in % of the limit ",
        " requests to the table for each message ",
    ] {
        assert!(said.contains(line), "{said}");
    }
    let document = roxmltree::Document::parse(&drawn).unwrap();
    let polygons = document.descendants().filter(|node| node.tag_name().name() == "polygon");
    assert_eq!(polygons.count(), 3, "a panel for each run");
    assert!(drawn.contains("limit with a table: at most 20 calls in a second"), "{drawn}");
}

#[test]
fn a_time_without_an_answer_has_a_beginning_and_an_end() {
    for wrong in ["60", "60-60", "x-70"] {
        let run = requeue(&["simulate", "rate", "--table-down", wrong]);
        assert_eq!(run.status, 2, "{wrong}");
        assert!(run.stderr.contains("the earlier one first, as in 60-120"), "{}", run.stderr);
    }
    for wrong in ["pause", "pause@60", "pause=1@60-70", "set@60-70", "set=0@60-70", "reset@60-70"] {
        let run = requeue(&["simulate", "rate", "--change", wrong]);
        assert_eq!(run.status, 2, "{wrong}");
        assert!(run.stderr.contains("as in pause@1m-6m or set=10@60-120"), "{}", run.stderr);
    }
}
