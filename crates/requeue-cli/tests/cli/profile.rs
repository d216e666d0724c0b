//! Credentials of a profile: of a program, and of a sign-in with SSO.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use requeue::Clock;
use requeue::embedded::{EmbeddedSqs, Server as SqsServer};
use requeue_testkit::http::Server;
use tokio::task::spawn_blocking;

use crate::run::{Run, requeue_with, scratch};

/// The SHA-1 of `my-sso`, by which the AWS CLI names the file of the token.
const TOKEN_FILE: &str = "0ad374308c5a4e22f723adf10145eafad7c4031c.json";

/// A home directory with profiles, an SQS with a dead-letter queue, and an SSO that counts.
struct Home {
    directory: PathBuf,
    sqs: SqsServer,
    sso: Server,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Home {
    async fn new(name: &str) -> Self {
        let directory = scratch(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(directory.join(".aws/sso/cache")).unwrap();
        let program = directory.join("keys");
        let keys = r#"{"Version":1,"AccessKeyId":"AKIAPROGRAM","SecretAccessKey":"secret"}"#;
        let script = format!("#!/bin/sh\necho ran >> {}/ran\necho '{keys}'\n", directory.display());
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let config = format!(
            "[profile program]\ncredential_process = {}\n\
             [profile broken]\ncredential_process = /bin/false\n\
             [profile login]\nlogin_session = arn:aws:iam::123456789012:user/me\n\
             [profile sso]\nsso_session = my-sso\nsso_account_id = 123456789012\n\
             sso_role_name = Operator\n\
             [sso-session my-sso]\nsso_region = eu-west-1\n\
             sso_start_url = https://example.awsapps.com/start\n\
             [profile old-sso]\nsso_account_id = 123456789012\nsso_role_name = Operator\n\
             sso_region = eu-west-1\nsso_start_url = https://example.awsapps.com/start\n",
            program.display()
        );
        fs::write(directory.join(".aws/config"), config).unwrap();
        let sqs = EmbeddedSqs::new(Clock::system());
        let dead_letters = sqs.create_queue("orders-dlq", []).unwrap();
        let policy = format!(r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":2}}"#);
        sqs.create_queue("orders", [("RedrivePolicy", policy.as_str())]).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let sso = Server::start(move |request: Request<Incoming>| {
            seen.lock().unwrap().push(request.uri().to_string());
            async {
                let body = r#"{"roleCredentials":{"accessKeyId":"ASIASSO","secretAccessKey":"s",
                               "sessionToken":"t","expiration":4102444800000}}"#;
                Response::new(Full::new(Bytes::from(body)))
            }
        })
        .await;
        Self { directory, sqs: sqs.serve(0).await.unwrap(), sso, asked }
    }

    fn sign_in(&self, expires: &str) {
        let token = format!(
            r#"{{"startUrl":"https://example.awsapps.com/start","region":"eu-west-1",
                 "accessToken":"token","expiresAt":"{expires}"}}"#
        );
        fs::write(self.directory.join(".aws/sso/cache").join(TOKEN_FILE), token).unwrap();
    }

    /// `requeue`, with these variables besides.
    async fn run(&self, variables: &[(&'static str, &'static str)], arguments: &[&str]) -> Run {
        let home = self.directory.to_str().unwrap().to_owned();
        let (sqs, sso) = (self.sqs.url(), self.sso.url());
        let variables = variables.to_vec();
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let run = move || {
            let own = [
                ("HOME", home.as_str()),
                ("PATH", "/usr/bin:/bin"),
                ("AWS_ENDPOINT_URL_SQS", &sqs),
                ("AWS_ENDPOINT_URL_SSO", &sso),
                ("AWS_REGION", "us-east-1"),
            ];
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            requeue_with(&[&own[..], &variables].concat(), &arguments)
        };
        spawn_blocking(run).await.unwrap()
    }

    fn runs_of_the_program(&self) -> usize {
        let ran = fs::read_to_string(self.directory.join("ran"));
        ran.map_or(0, |lines| lines.lines().count())
    }
}

const LIST: [&str; 4] = ["dlq", "list", "--queue", "orders-dlq"];
const KEYS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "AKIAOTHER"), ("AWS_SECRET_ACCESS_KEY", "other")];

#[tokio::test]
async fn the_program_of_a_profile_gives_credentials() {
    let home = Home::new("home-program").await;
    let (profile, option) = ([("AWS_PROFILE", "program")], ["--profile", "program"]);
    for (variables, options, runs) in [
        (&profile[..], &[][..], 1),
        (&[], &option, 1),
        // The option comes before keys in the environment, and these before `AWS_PROFILE`.
        (&KEYS, &option, 1),
        (&[&profile[..], &KEYS].concat(), &[], 0),
        (&[&[("AWS_PROFILE", "sso")][..], &KEYS].concat(), &option, 1),
    ] {
        let before = home.runs_of_the_program();
        let run = home.run(variables, &[&LIST, options].concat()).await;
        assert!(run.status == 0 && run.stdout == "orders-dlq: no message\n", "{run:?}");
        assert_eq!(home.runs_of_the_program() - before, runs, "{variables:?} {options:?}");
    }
    let sent = home.run(&[], &["send", "{}", "--queue", "orders", "--profile", "program"]).await;
    assert_eq!((sent.status, sent.stderr.as_str()), (0, ""), "{sent:?}");

    let run = home.run(&[], &[&LIST[..], &["--profile", "broken"]].concat()).await;
    let words = "error: the `credential_process` of the AWS profile `broken` gave no credentials;";
    assert!(run.status == 1 && run.stderr.contains(words), "{run:?}");
    let run = home.run(&[], &[&LIST[..], &["--profile", "login"]].concat()).await;
    let words = "error: the AWS profile `login` has `login_session`, the key of `aws login`, which";
    assert!(run.status == 1 && run.stderr.contains(words), "{run:?}");
    let run = home.run(&KEYS, &[&LIST[..], &["--profile", "absent"]].concat()).await;
    let words = "error: there is no AWS profile `absent` in AWS's files; `aws configure \
                 list-profiles` lists";
    assert!(run.status == 1 && run.stderr.contains(words), "{run:?}");
}

#[tokio::test]
async fn a_sign_in_with_sso_gives_credentials_until_it_ends() {
    let home = Home::new("home-sso").await;
    let in_profile = [&LIST[..], &["--profile", "sso"]].concat();
    let signed_out = "error: the sign-in of the AWS profile `sso` is missing or has expired; run \
                      `aws sso login --profile sso`, and then this command again";
    let run = home.run(&[], &in_profile).await;
    assert!(run.status == 1 && run.stderr.contains(signed_out), "no token: {run:?}");
    home.sign_in("2020-01-01T00:00:00Z");
    let run = home.run(&[], &in_profile).await;
    assert!(run.status == 1 && run.stderr.contains(signed_out), "an old token: {run:?}");
    let run = home.run(&[("AWS_PROFILE", "old-sso")], &LIST).await;
    let of_old = signed_out.replace("`sso`", "`old-sso`").replace("profile sso", "profile old-sso");
    assert!(run.status == 1 && run.stderr.contains(&of_old), "no token: {run:?}");
    assert!(home.asked.lock().unwrap().is_empty());

    home.sign_in("2099-01-01T00:00:00Z");
    for (variables, arguments) in [(&[][..], &in_profile[..]), (&[("AWS_PROFILE", "sso")], &LIST)] {
        let run = home.run(variables, arguments).await;
        assert!(run.status == 0 && run.stdout == "orders-dlq: no message\n", "{run:?}");
        let asked = home.asked.lock().unwrap().pop().unwrap();
        assert_eq!(asked, "/federation/credentials?role_name=Operator&account_id=123456789012");
    }
}

#[tokio::test]
async fn a_provider_that_gives_no_credentials_is_named_and_not_sqs() {
    let home = Home::new("home-provider").await;
    let throttled = Server::start(async |_: Request<Incoming>| {
        let body = Full::new(Bytes::from(r#"{"code":"Throttled"}"#));
        Response::builder().status(429).body(body).unwrap()
    })
    .await;
    let endpoint: &'static str = format!("{}/keys", throttled.url()).leak();
    let (container, token) = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_WEB_IDENTITY_TOKEN_FILE");
    let role = ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/absent");
    for (variables, told) in [
        (
            &[(container, endpoint)][..],
            "error: the container's credentials endpoint gives no AWS credentials, or not in time; \
             look at the container's credentials endpoint (AWS_CONTAINER_CREDENTIALS_FULL_URI), \
             and try again in a minute\n",
        ),
        (
            &[(token, "/absent"), role],
            "error: STS gives no AWS credentials, or not in time; look at the role \
             and the token file (AWS_WEB_IDENTITY_TOKEN_FILE), and try again in a minute\n",
        ),
    ] {
        let run = home.run(variables, &LIST).await;
        assert_eq!((run.status, run.stderr.as_str()), (1, told));
    }
}

#[tokio::test]
async fn no_setting_makes_the_sdk_panic() {
    let home = Home::new("home-settings").await;
    let sqs: &'static str = home.sqs.url().leak();
    for variables in [
        &[("AWS_RETRY_MODE", "legacy")][..],
        &[("AWS_RETRY_MODE", "")],
        &[("AWS_MAX_ATTEMPTS", "0")],
        &[("AWS_MAX_ATTEMPTS", "")],
        &[("AWS_ENDPOINT_URL", "")],
        &[("AWS_ENDPOINT_URL_SQS", ""), ("AWS_ENDPOINT_URL", sqs)],
    ] {
        let run = home.run(&[&KEYS[..], variables].concat(), &LIST).await;
        assert_eq!((run.status, run.stdout.as_str()), (0, "orders-dlq: no message\n"), "{run:?}");
    }
    let wrong = [("AWS_ACCESS_KEY_ID", "AKIAOTHER\r"), KEYS[1]];
    let run = home.run(&wrong, &LIST).await;
    let told = "error: the access key id in AWS_ACCESS_KEY_ID has a space, a line end or another \
                character that no key has; write it again without\n";
    assert_eq!((run.status, run.stderr.as_str()), (1, told));
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_named_with_its_line() {
    let home = Home::new("home-unreadable").await;
    fs::write(home.directory.join(".aws/credentials"), "[default]\n[other\n").unwrap();
    let run = home.run(&[], &LIST).await;
    let has = |words: &str| run.stderr.contains(words);
    assert!(run.status == 1 && has("AWS's files cannot be read: "), "{run:?}");
    assert!(
        has("credentials on line 2") && has("; correct that line, or set AWS_ACCESS"),
        "{run:?}"
    );
}
