//! `requeue schedule`: its three forms say the same, and what the policy itself says.

use std::fs;

use requeue::policy::{Jitter, RetryPolicy};
use serde_json::Value;

use crate::run::{file, requeue, requeue_reading, scratch};

const CLASSES: [&str; 3] = ["rate-limit", "quota", "temporary"];
const LUCKS: [&str; 3] = ["min", "median", "max"];

fn json(document: &str, options: &[&str]) -> Value {
    let arguments = [&["schedule", "-", "--json"], options].concat();
    serde_json::from_str(&requeue_reading(document, &arguments).succeeded()).unwrap()
}

fn secs(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number of seconds"))
}

fn class<'j>(schedule: &'j Value, name: &str) -> &'j Value {
    schedule["classes"].as_array().unwrap().iter().find(|class| class["class"] == name).unwrap()
}

/// The rows of the first table below a line that begins so, as cells.
fn rows(text: &str, head: &str) -> Vec<Vec<String>> {
    let lines = text.lines().skip_while(|line| !line.starts_with(head)).skip(3);
    let rows = lines.take_while(|line| line.starts_with(' '));
    rows.map(|row| {
        row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    })
    .collect()
}

#[test]
fn without_jitter_the_table_shows_the_delays_of_the_standard_policy() {
    let text = requeue_reading(r#"{"jitter": "none"}"#, &["schedule", "-"]).succeeded();
    let expected: [[&str; 7]; 4] = [
        ["1", "60 s", "60 s", "60 s", "60 s", "60 s", "60 s"],
        ["2", "180 s", "180 s", "180 s", "4 min", "4 min", "4 min"],
        ["3", "300 s", "300 s", "300 s", "9 min", "9 min", "9 min"],
        ["4 … 50", "300 s", "300 s", "300 s", "4 h 4 min", "4 h 4 min", "4 h 4 min"],
    ];
    assert_eq!(rows(&text, "rate-limit"), expected);
    assert!(
        text.contains(
            "\n\
                       dead-lettered as retries-exhausted after 50 retries: 4 h 4 min; in the \
                       dead-letter queue 5 visib"
        ),
        "{text}"
    );
}

#[test]
fn the_built_in_policy_is_shown_unless_another_is_named() {
    let built_in = requeue(&["schedule"]).succeeded();
    assert_eq!(built_in, requeue(&["schedule", "--policy", "standard"]).succeeded());
    assert_eq!(
        rows(&built_in, "quota")[2],
        ["3", "300 s", "450 s", "600 s", "9 min", "13 min 30 s", "18 min"]
    );
    let critical = requeue(&["schedule", "--policy", "critical"]).succeeded();
    assert!(critical.contains(
        "rate-limit in the policy critical: exponential backoff, proportional 0.2 \
                       jitter, at most 5 ret"
    ));

    let unknown = requeue(&["schedule", "--policy", "criticl"]);
    let words = "name a file, or a built-in policy: standard, high-volume, critical\n";
    assert!(unknown.status == 1 && unknown.stderr.ends_with(words), "{unknown:?}");
    assert_eq!(critical, requeue(&["schedule", "critical"]).succeeded());
    assert_eq!(requeue(&["schedule", "x.json", "--policy", "critical"]).status, 2);
    assert_eq!(requeue(&["schedule", "--price-per-million", "-1"]).status, 2);
    let bad = file("bad.json", r#"{"maxRetries": -1}"#);
    assert_eq!(requeue(&["schedule", &bad]).stderr, requeue(&["check", &bad]).stderr);
}

#[test]
fn the_delays_are_those_of_the_policy() {
    let policies = [
        ("{}", RetryPolicy::standard()),
        (r#"{"preset": "high-volume"}"#, RetryPolicy::high_volume()),
        (r#"{"preset": "critical"}"#, RetryPolicy::critical()),
    ];
    for (document, policy) in policies {
        let schedule = json(document, &[]);
        for (name, class_policy) in
            CLASSES.into_iter().zip([&policy.rate_limit, &policy.quota, &policy.temporary])
        {
            let retries = class(&schedule, name)["retries"].as_array().unwrap();
            assert_eq!(retries.len(), usize::try_from(policy.max_retries).unwrap());
            for (number, retry) in (0..).zip(retries) {
                assert_eq!(retry["retry"], number + 1);
                for (luck, sample) in LUCKS.into_iter().zip([0.0, 0.5, 1.0_f64.next_down()]) {
                    let delay = class_policy.delay(number, None, sample).as_secs_f64().ceil();
                    let delay = delay.max(1.0);
                    assert_eq!(
                        retry["delaySeconds"][luck].as_f64(),
                        Some(delay),
                        "{document} {name} {number} {luck}"
                    );
                }
            }
        }
    }
    let spread = json(r#"{"jitter": "decorrelated", "baseDelayMultiplier": 2}"#, &[]);
    let mut policy = RetryPolicy::standard().temporary;
    policy.jitter = Jitter::Decorrelated;
    let mut previous = None;
    for (number, retry) in (0..).zip(class(&spread, "temporary")["retries"].as_array().unwrap()) {
        let delay = policy.delay(number, previous, 0.5).as_secs_f64().ceil();
        assert_eq!(
            retry["delaySeconds"]["median"].as_f64(),
            Some(delay),
            "each depends on the one before it"
        );
        previous = Some(std::time::Duration::from_secs_f64(delay));
    }
}

#[test]
fn the_sums_of_the_json_are_right_and_those_of_the_table() {
    let document =
        r#"{"errorConfigs": {"QUOTA": {"backoff": [300, 3600], "totalTimeoutSeconds": 20000}}}"#;
    let schedule = json(document, &[]);
    let text = requeue_reading(document, &["schedule", "-"]).succeeded();
    let costs = rows(&text, "Requests for one message");
    let heads = text.lines().skip_while(|line| !line.starts_with("Requests for one message"));
    let heads: Vec<&str> = heads.skip(1).flat_map(str::split_whitespace).take(4).collect();
    assert_eq!(heads, [&CLASSES[..], &["non-retryable"]].concat());
    for (at, name) in (1..).zip(CLASSES) {
        let class = class(&schedule, name);
        for luck in LUCKS {
            let retries = class["retries"].as_array().unwrap();
            let lived: Vec<&Value> =
                retries.iter().filter(|retry| !retry["delaySeconds"][luck].is_null()).collect();
            let mut age = 0;
            for retry in &lived {
                age += secs(&retry["delaySeconds"][luck]);
                assert_eq!(secs(&retry["ageSeconds"][luck]), age);
            }
            let end = &class["end"][luck];
            assert_eq!(
                (secs(&end["ageSeconds"]), secs(&end["afterRetries"])),
                (age, lived.len() as u64),
                "{name} {luck}"
            );

            let requests = &class["requests"][luck];
            let copies = lived.len() as u64
                + lived.iter().map(|retry| secs(&retry["hops"][luck])).sum::<u64>();
            let count = |what: &str| secs(&requests[what]);
            assert_eq!(
                [count("sends"), count("deletes"), count("receives")],
                [copies + 1, copies, copies + 5]
            );
            assert_eq!(count("handlerCalls"), lived.len() as u64 + 1);
            let sum = f64::from(u32::try_from(4 * copies + 6).unwrap());
            assert_eq!(requests["alone"]["billedRequests"], sum);
            assert!(
                (requests["batched"]["billedRequests"].as_f64().unwrap() * 10.0 - sum).abs() < 1e-9
            );
            assert!(
                (requests["alone"]["usdPerMillionMessages"].as_f64().unwrap() - 0.4 * sum).abs()
                    < 1e-9
            );
        }
        let requests = &class["requests"]["median"];
        let number = |value: &Value, digits: usize| format!("{:.digits$}", value.as_f64().unwrap());
        let mut expected = Vec::new();
        for count in
            ["handlerCalls", "receives", "sends", "deletes", "pollerDeletes", "visibilityChanges"]
        {
            expected.push(requests[count].to_string());
        }
        for (what, digits) in [("billedRequests", 0), ("usdPerMillionMessages", 2)] {
            expected.push(number(&requests["alone"][what], digits));
            expected.push(number(&requests["batched"][what], digits.max(1)));
        }
        let shown: Vec<&String> = costs.iter().map(|line| &line[at]).collect();
        assert_eq!(shown, expected.iter().collect::<Vec<_>>(), "{name}");
    }
}

/// The policy's budgets, and those of the producer.
#[test]
fn a_message_ends_by_whichever_budget_is_used_up_first() {
    let end = |document: &str, options: &[&str]| {
        let schedule = json(document, options);
        let end = &class(&schedule, "temporary")["end"]["max"];
        (
            end["reason"].as_str().unwrap().to_owned(),
            secs(&end["afterRetries"]),
            secs(&end["ageSeconds"]),
        )
    };
    let constant = r#""backoff": "constant", "jitter": "none", "errorConfigs": {"TEMPORARY": {"baseDelay": 60}}"#;
    let table = [
        ("\"maxRetries\": 3", &[][..], ("retries-exhausted", 3, 180)),
        ("\"maxRetries\": 0", &[], ("retries-exhausted", 0, 0)),
        ("\"maxRetries\": 3, \"totalTimeoutSeconds\": 180", &[], ("retries-exhausted", 3, 180)),
        ("\"maxRetries\": 4, \"totalTimeoutSeconds\": 181", &[], ("retries-exhausted", 4, 181)),
        ("\"maxRetries\": 5, \"totalTimeoutSeconds\": 181", &[], ("too-old", 4, 181)),
        ("\"messageTtlSeconds\": 119", &[], ("expired", 2, 120)),
        ("\"messageTtlSeconds\": 120", &[], ("expired", 3, 180)),
        ("\"maxRetries\": 3", &["--max-retries", "2"], ("retries-exhausted", 2, 120)),
        ("\"maxRetries\": 3", &["--max-retries", "0"], ("retries-exhausted", 0, 0)),
        ("\"maxRetries\": 3", &["--max-retries", "4"], ("retries-exhausted", 3, 180)),
        ("\"maxRetries\": 9", &["--ttl-seconds", "119"], ("expired", 2, 120)),
        ("\"messageTtlSeconds\": 120", &["--ttl-seconds", "119"], ("expired", 2, 120)),
        ("\"messageTtlSeconds\": 119", &["--ttl-seconds", "120"], ("expired", 2, 120)),
        (
            "\"maxRetries\": 1",
            &["--ttl-seconds", "60", "--max-retries", "2"],
            ("retries-exhausted", 1, 60),
        ),
    ];
    for (budget, options, (reason, retries, age)) in table {
        let ended = end(&format!("{{{budget}, {constant}}}"), options);
        assert_eq!(ended, (reason.to_owned(), retries, age), "{budget} {options:?}");
    }
}

#[test]
fn hops_payload_and_the_way_to_the_dead_letter_queue_are_counted() {
    let document = r#"{"maxRetries": 3, "jitter": "none", "errorConfigs": {"QUOTA": {"backoff": [900, 901, 3600]}}}"#;
    let quota = |options: &[&str]| class(&json(document, options), "quota").clone();
    let requests = |options: &[&str]| quota(options)["requests"]["median"].clone();

    let hops: Vec<u64> = quota(&[])["retries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|retry| secs(&retry["hops"]["min"]))
        .collect();
    assert_eq!(hops, [0, 1, 3]);
    // receives, sends, deletes, visibility changes, calls, visibility timeouts
    let counts = |options: &[&str]| {
        let of = requests(options);
        let names = ["receives", "sends", "deletes", "visibilityChanges", "handlerCalls"];
        let timeouts = secs(&of["visibilityTimeoutsUntilDeadLetterQueue"]);
        names.map(|name| secs(&of[name])).into_iter().chain([timeouts]).collect::<Vec<u64>>()
    };
    assert_eq!(counts(&["--max-receive-count", "5"]), [12, 8, 7, 0, 4, 5]);
    assert_eq!(counts(&["--dead-letter", "annotate"]), [13, 9, 8, 5, 4, 0]);
    assert_eq!(
        counts(&["--dead-letter", "annotate", "--max-receive-count", "12"]),
        [20, 9, 8, 10, 4, 2]
    );
    assert_eq!(counts(&["--dead-letter", "direct"]), [8, 9, 8, 0, 4, 0]);
    let in_place = |options: &[&str]| counts(&[&["--strategy", "visibility"], options].concat());
    assert_eq!(in_place(&["--max-receive-count", "12"]), [12, 1, 0, 3, 4, 9]);
    assert_eq!(in_place(&["--max-receive-count", "4"]), [4, 1, 0, 3, 4, 1]);
    assert_eq!(in_place(&["--max-receive-count", "3"]), [3, 1, 0, 3, 3, 0]);
    assert_eq!(in_place(&["--dead-letter", "annotate"]), [9, 2, 1, 8, 4, 0]);
    assert_eq!(in_place(&["--dead-letter", "direct"]), [4, 2, 1, 3, 4, 0]);

    let billed = |bytes: &str| {
        let of = requests(&["--message-bytes", bytes]);
        [&of["alone"], &of["batched"]]
            .map(|of| format!("{:.1}", of["billedRequests"].as_f64().unwrap()))
    };
    // 20 requests with the payload, 14 deletes.
    assert_eq!(billed("6553"), ["34.0", "3.4"]);
    assert_eq!(billed("6554"), ["34.0", "5.4"]);
    assert_eq!(billed("65536"), ["34.0", "21.4"]);
    assert_eq!(billed("65537"), ["54.0", "23.4"]);
    assert_eq!(billed("1048576"), ["334.0", "334.0"]);
    let priced = requests(&["--price-per-million", "0.5"]);
    assert_eq!(priced["alone"]["usdPerMillionMessages"], 17.0);
}

#[test]
fn in_its_place_a_message_ends_when_the_queue_allows_no_more_receives() {
    let document = r#"{"maxRetries": 6, "jitter": "none", "backoff": "constant", "errorConfigs": {
        "TEMPORARY": {"baseDelay": 60, "maxRetries": 2}, "QUOTA": {"baseDelay": 50000, "maxDelay": 50000}}}"#;
    // maxReceiveCount, dead-letter mode → why, retries, age, age in the dead-letter queue, calls
    let table = [
        ("temporary", "1", "direct", ("receives-exhausted", 0, 0, 60, 1)),
        ("temporary", "2", "direct", ("receives-exhausted", 1, 60, 120, 2)),
        ("temporary", "3", "direct", ("retries-exhausted", 2, 120, 120, 3)),
        ("temporary", "3", "annotate", ("retries-exhausted", 2, 120, 130, 3)),
        ("temporary", "3", "redrive", ("retries-exhausted", 2, 120, 420, 3)),
        // An environment remembers what it gave up.
        ("temporary", "9", "redrive", ("retries-exhausted", 2, 120, 120 + 7 * 300, 3)),
        // The longest wait.
        ("quota", "2", "redrive", ("receives-exhausted", 1, 41_940, 83_880, 2)),
        ("non-retryable", "1", "redrive", ("non-retryable", 0, 0, 300, 1)),
        ("non-retryable", "9", "redrive", ("non-retryable", 0, 0, 9 * 300, 1)),
        ("non-retryable", "9", "annotate", ("non-retryable", 0, 0, 10, 1)),
        ("non-retryable", "9", "direct", ("non-retryable", 0, 0, 0, 1)),
    ];
    for (name, count, mode, expected) in table {
        let options = ["--max-receive-count", count, "--dead-letter", mode];
        let options =
            [&["--strategy", "visibility", "--visibility-timeout", "300"], &options[..]].concat();
        let schedule = json(document, &options);
        let class = class(&schedule, name);
        let end = &class["end"]["max"];
        let [retries, age, arrival] = ["afterRetries", "ageSeconds", "ageInDeadLetterQueueSeconds"]
            .map(|name| secs(&end[name]));
        let calls = secs(&class["requests"]["max"]["handlerCalls"]);
        let found = (end["reason"].as_str().unwrap(), retries, age, arrival, calls);
        assert_eq!(found, expected, "{name} {options:?}");
    }

    let needed = |options: &[&str]| {
        let schedule = json(document, options);
        ["rate-limit", "temporary", "non-retryable"]
            .map(|name| class(&schedule, name)["neededMaxReceiveCount"].as_u64())
    };
    assert_eq!(needed(&["--strategy", "visibility"]), [Some(7), Some(3), Some(1)]);
    assert_eq!(needed(&[]), [None; 3]);
    let text = |document: &str, count: &str| {
        let options = ["schedule", "-", "--strategy", "visibility", "--max-receive-count", count];
        requeue_reading(document, &options).succeeded()
    };
    let five = "moved by SQS as receives-exhausted after 4 retries: 4 min; in the dead-letter \
                queue 60 s later\n\
                maxReceiveCount 5 allows 4 retries: the policy needs 7\n\
                ";
    assert!(text(document, "5").contains(five), "{}", text(document, "5"));
    assert!(!text(document, "7").contains("the policy needs"));
    let many = "maxReceiveCount 1000 allows 999 retries: the policy needs 1001; SQS allows 1,000 \
                at most\n\
                ";
    assert!(text(r#"{"maxRetries": 1000, "totalTimeoutSeconds": 1000000}"#, "1000").contains(many));
}

#[test]
fn the_chart_is_well_formed_names_everything_and_stays_the_same() {
    let draw = |name: &str, policy: &[&str]| {
        let path = scratch(name);
        let path = path.to_str().unwrap();
        requeue(&[&["schedule", "--svg", path], policy].concat()).succeeded();
        fs::read_to_string(path).unwrap()
    };
    let chart = draw("standard.svg", &[]);
    assert_eq!(chart, draw("again.svg", &["--policy", "standard"]));

    let document = roxmltree::Document::parse(&chart).unwrap();
    assert_eq!(document.root_element().tag_name().name(), "svg");
    let elements = || document.descendants().filter(roxmltree::Node::is_element);
    let texts: Vec<&str> = elements()
        .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "text")))
        .filter_map(|node| node.text())
        .map(str::trim)
        .collect();
    for expected in [
        "Retry schedule: standard",
        "rate-limit",
        "quota",
        "temporary",
        "retry",
        "wait before each retry",
        "time since the first receive",
        "50 retries",
        "age limit 12 h",
        "age limit 48 h",
        "retries-exhausted after 50 retries, 2 h 2 min to 4 h 4 min",
        "median of the jitter",
    ] {
        assert!(texts.contains(&expected), "{expected} is in {texts:?}");
    }
    assert!(chart.contains("<style>@media (prefers-color-scheme:dark)"), "{chart}");
    let in_place =
        draw("visibility.svg", &["--strategy", "visibility", "--max-receive-count", "3"]);
    for expected in [
        "strategy visibility; the message",
        "receives-exhausted after 2 retries",
        "maxReceiveCount 3",
        "50 retries →",
    ] {
        assert!(in_place.contains(expected), "{expected}");
        assert!(!chart.contains(expected), "{expected}");
    }
    // A band of jitter for each class, above and below, and nothing from elsewhere.
    assert_eq!(elements().filter(|node| node.tag_name().name() == "polygon").count(), 6);
    assert!(!chart.contains("href") && !chart.contains("@font-face") && !chart.contains("<script"));

    // Names and numbers that are harder to draw.
    let strange = file(
        "a <b> & \"c\".json",
        r#"{"maxRetries": 10000, "errorConfigs": {"QUOTA": {"maxRetries": 0},
        "RATE_LIMIT": {"backoff": "linear", "baseDelay": 1, "maxDelay": 86400, "totalTimeoutSeconds": 1000000, "jitter": "full"}}}"#,
    );
    let chart = draw("strange.svg", &[&strange]);
    let document = roxmltree::Document::parse(&chart).unwrap();
    let title = document
        .descendants()
        .find(|node| node.text().is_some_and(|text| text.contains("Retry schedule")));
    assert_eq!(
        title.and_then(|title| title.text()).map(str::trim),
        Some("Retry schedule: a <b> & \"c\".json")
    );

    let nowhere = scratch("no-such-directory/chart.svg");
    let failed = requeue(&["schedule", "--svg", nowhere.to_str().unwrap()]);
    assert_eq!((failed.status, failed.stdout.as_str()), (1, ""));
    assert!(failed.stderr.contains("cannot be written: No such file"), "{}", failed.stderr);
    // Before the simulation begins.
    let failed = requeue(&["simulate", "rate", "--svg", "/none/rate.svg"]);
    let told = "error: the chart /none/rate.svg cannot be written: No such file";
    assert!(failed.status == 1 && failed.stderr.starts_with(told), "{failed:?}");
}

#[test]
fn the_queue_is_the_one_that_the_document_names_unless_an_option_names_another() {
    let document = r#"{"queueConfig": {"maxReceiveCount": 8, "visibilityTimeout": 90}}"#;
    for (document, options, expected) in [
        ("{}", &[][..], (5, 360)),
        (document, &[], (8, 90)),
        (document, &["--max-receive-count", "6", "--visibility-timeout", "30"], (6, 30)),
    ] {
        let queue = &json(document, options)["queue"];
        assert_eq!(
            (&queue["maxReceiveCount"], &queue["visibilityTimeoutSeconds"]),
            (&expected.0.into(), &expected.1.into())
        );
    }
}
