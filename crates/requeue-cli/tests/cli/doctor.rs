//! `requeue doctor` where there is nothing to look at. What it finds in deployments,
//! `tests/doctor_test.py` and the tests beside its checks say.

use std::fs::OpenOptions;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use requeue::Clock;
use requeue::embedded::{EmbeddedSqs, Server};
use requeue::queue::QueueArn;

use crate::run::requeue_with;

const KEYS: [(&str, &str); 4] = [
    ("AWS_ACCESS_KEY_ID", "any"),
    ("AWS_SECRET_ACCESS_KEY", "any"),
    ("AWS_REGION", "eu-west-1"),
    ("AWS_EC2_METADATA_DISABLED", "true"),
];

#[test]
fn a_deployment_is_named_by_its_function_or_its_queue_and_not_by_both() {
    for arguments in [&["doctor"][..], &["doctor", "--function", "orders", "--queue", "orders"]] {
        let run = requeue_with(&KEYS, arguments);
        assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{}", run.stderr);
        assert!(run.stderr.contains("--function <NAME>"), "{}", run.stderr);
    }
    let run = requeue_with(&KEYS, &["doctor", "--queue", "orders", "--region", "eu west"]);
    let told = "a region has lower-case letters, digits and hyphens; name it as in eu-west-1";
    assert!(run.status == 2 && run.stderr.contains(told), "{}", run.stderr);
}

#[test]
fn what_keeps_it_from_looking_is_told_with_the_remedy() {
    // No server listens there any more.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = format!("http://{address}");
    let with_endpoint: Vec<_> =
        KEYS.into_iter().chain([("AWS_ENDPOINT_URL", endpoint.as_str())]).collect();
    let refused =
        format!("{endpoint} refuses the connection; AWS_ENDPOINT_URL sets this endpoint: ");
    let function = &["doctor", "--function", "orders"][..];
    let nowhere =
        &["doctor", "--queue-url", "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"][..];
    for (variables, arguments, expected) in [
        (
            &KEYS[2..],
            function,
            "there are no AWS credentials in the environment or in AWS's files; ",
        ),
        (&with_endpoint[..], function, refused.as_str()),
        (&with_endpoint[..], nowhere, refused.as_str()),
        (
            &[KEYS[2], KEYS[3], ("AWS_PROFILE", "nobody")],
            nowhere,
            "there is no AWS profile `nobody` in AWS's files; ",
        ),
        (
            &[KEYS[0], KEYS[1], ("AWS_ENDPOINT_URL", "localhost:4566")],
            nowhere,
            "AWS_ENDPOINT_URL is `localhost:4566`, and an endpoint is a URL; begin it with http://",
        ),
        (&with_endpoint[..], &["doctor", "--queue", "orders"], refused.as_str()),
        (
            &KEYS[2..],
            nowhere,
            "there are no AWS credentials in the environment or in AWS's files; ",
        ),
        (
            &KEYS[..],
            &["doctor", "--function", "f", "--policy", "none.json"],
            "the policy none.json cannot be read: ",
        ),
    ] {
        let run = requeue_with(variables, arguments);
        assert_eq!((run.status, run.stdout.as_str()), (1, ""), "{}", run.stderr);
        let error = run.stderr.lines().find_map(|line| line.strip_prefix("error: "));
        assert!(error.is_some_and(|error| error.starts_with(expected)), "{}", run.stderr);
    }
}

/// A queue without visibility timeout and redrive policy. Nothing else can be looked at.
struct Alone {
    sqs: EmbeddedSqs,
    queue: QueueArn,
    server: Server,
}

impl Alone {
    async fn serve() -> Self {
        let sqs = EmbeddedSqs::new(Clock::system());
        let queue = sqs.create_queue("orders", [("VisibilityTimeout", "0")]).unwrap();
        let server = sqs.serve(0).await.unwrap();
        Self { sqs, queue, server }
    }

    fn doctor(&self, options: &[&str], output: Stdio) -> (i32, String, String) {
        self.doctor_with(&[], options, output)
    }

    fn doctor_with(
        &self,
        variables: &[(&str, &str)],
        options: &[&str],
        output: Stdio,
    ) -> (i32, String, String) {
        // No server listens there any more.
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let run = Command::new(env!("CARGO_BIN_EXE_requeue"))
            .args(["doctor", "--queue", self.queue.name()])
            .args(options)
            .env_clear()
            .envs(KEYS)
            .envs([
                ("AWS_ENDPOINT_URL_SQS", self.server.url()),
                ("AWS_ENDPOINT_URL", format!("http://{nobody}")),
            ])
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(output)
            .output()
            .unwrap();
        let [stdout, stderr] =
            [run.stdout, run.stderr].map(|text| String::from_utf8(text).unwrap());
        (run.status.code().unwrap(), stdout, stderr)
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(target_os = "linux"), ignore = "there is no /dev/full")]
async fn danger_has_a_status_of_its_own_and_no_output_is_no_panic() {
    let alone = Alone::serve().await;
    let doctor = |output| alone.doctor(&[], output);
    let (status, stdout, stderr) = doctor(Stdio::piped());
    assert_eq!((status, stderr.as_str()), (3, ""), "{stdout}");
    assert!(stdout.lines().any(|line| line.starts_with("danger ")), "{stdout}");
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let reason = "error: the standard output cannot be written: No space left on device (os error 28); \
         redirect it to a file or pipe that takes it\n";
    assert_eq!(doctor(full.into()), (1, String::new(), reason.to_owned()));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(doctor(writer.into()), (141, String::new(), String::new()));
}

/// The level and the id of each finding.
fn findings(text: &str) -> Vec<(&str, &str)> {
    let words = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.next().filter(|_| !line.starts_with(' ')).zip(words.next())
    });
    words.filter(|(level, _)| ["danger", "warning", "unknown", "ok"].contains(level)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worst_findings_come_first_and_the_good_ones_can_be_left_out() {
    let alone = Alone::serve().await;
    let (_, whole, _) = alone.doctor(&[], Stdio::piped());
    let levels: Vec<&str> = findings(&whole).into_iter().map(|(level, _)| level).collect();
    let mut sorted = levels.clone();
    sorted.sort_by_key(|level| {
        ["danger", "warning", "unknown", "ok"].iter().position(|it| it == level)
    });
    assert_eq!(levels, sorted, "{whole}");
    assert!(levels.contains(&"ok") && levels.contains(&"danger"), "{whole}");

    let (_, problems, _) = alone.doctor(&["--problems-only"], Stdio::piped());
    let bad: Vec<_> = findings(&whole).into_iter().filter(|(level, _)| *level != "ok").collect();
    assert_eq!(findings(&problems), bad);
    assert_eq!(problems.lines().last(), whole.lines().last(), "both count all");
    let (_, json, _) = alone.doctor(&["--problems-only", "--json"], Stdio::piped());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["deployments"][0]["findings"].as_array().unwrap().len(), bad.len());
    assert!(json["summary"]["ok"].as_u64().unwrap() > 0, "{json:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_for_an_emulator_name_its_endpoint() {
    let alone = Alone::serve().await;
    let (_, said, _) = alone.doctor(&[], Stdio::piped());
    let commands: Vec<&str> =
        said.lines().filter_map(|line| line.trim_start().strip_prefix("aws ")).collect();
    let named = format!("--endpoint-url {} sqs ", alone.server.url());
    assert!(commands.iter().any(|command| command.starts_with(&named)), "{said}");
    assert!(commands.iter().all(|command| command.starts_with("--endpoint-url ")), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_variable_is_a_finding_and_hides_no_other() {
    let alone = Alone::serve().await;
    let (_, sound, _) = alone.doctor(&[], Stdio::piped());
    let (status, said, _) =
        alone.doctor_with(&[("REQUEUE_STRATEGY", "visible")], &[], Stdio::piped());
    assert_eq!(status, 3, "{said}");
    let settings = said.lines().find(|line| line.contains("  settings  ")).unwrap();
    assert!(settings.starts_with("danger") && settings.contains("REQUEUE_STRATEGY is `visible`"));
    let others = |text| -> Vec<(String, String)> {
        let all = findings(text).into_iter().filter(|(_, id)| *id != "settings");
        all.map(|(level, id)| (level.to_owned(), id.to_owned())).collect()
    };
    assert_eq!(others(&said), others(&sound), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_queue_gets_no_advice_for_a_queue_of_a_worker() {
    let alone = Alone::serve().await;
    let policy = |target: &QueueArn| {
        format!(r#"{{"deadLetterTargetArn":"{target}","maxReceiveCount":"5"}}"#)
    };
    let sqs = &alone.sqs;
    sqs.create_queue("paid", [("RedrivePolicy", policy(&alone.queue).as_str())]).unwrap();
    let (status, stdout, stderr) = alone.doctor(&[], Stdio::piped());
    let told = "error: orders is the dead-letter queue of paid; check its source queue: `requeue \
                doctor --queue paid`; `requeue dlq list --queue orders` shows the dead letters\n";
    assert_eq!((status, stdout.as_str(), stderr.as_str()), (1, "", told));
    // With a dead-letter queue of its own it may be handled too.
    let last = sqs.create_queue("last", []).unwrap();
    let set = sqs.client().set_queue_attributes().queue_url(alone.queue.url());
    set.attributes("RedrivePolicy".into(), policy(&last)).send().await.unwrap();
    let (_, stdout, stderr) = alone.doctor(&[], Stdio::piped());
    assert!(stdout.contains("ok       redrive-policy"), "{stdout}{stderr}");
}
