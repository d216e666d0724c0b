//! Lambda freezes the environment between invocations: here with SIGSTOP, before real servers that
//! close unused connections meanwhile.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use requeue_testkit::tools::tool;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::runtime_api::Ended;
use crate::stage::{Stage, TIMEOUT};

/// Several times as many as are handled at once.
const MESSAGES: usize = 60;

/// Node, whose connections live so many milliseconds unused. Prints its port.
const NODE: &str = r"
const server = require('node:http').createServer((request, response) => {
    request.resume().on('end', () => setTimeout(() => response.end('done'), 10));
});
server.keepAliveTimeout = Number(process.argv[1]);
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
";

/// A server's process. Ends when it is dropped.
pub struct Server {
    process: Child,
    pub url: String,
    /// The permission that it needs.
    directory: Option<PathBuf>,
}

impl Server {
    fn node(program: &str, keeps: Duration) -> Self {
        let mut command = Command::new(program);
        command.args(["-e", NODE, &keeps.as_millis().to_string()]).stdout(Stdio::piped());
        let mut process = command.spawn().expect("Node");
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { process, url: format!("http://127.0.0.1:{}/", port.trim()), directory: None }
    }

    /// nginx over TLS, with HTTP/2 or without.
    pub fn nginx(program: &str, keeps: Duration, http2: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free loopback port");
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("nginx-{port}"));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.to_str().unwrap().to_owned();
        let made =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        fs::write(directory.join("cert.pem"), made.cert.pem()).unwrap();
        fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        let version = if http2 { "http2" } else { "" };
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary: String =
            temporary.map(|name| format!("{name}_temp_path {path}/{name};")).concat();
        let config = format!(
            "daemon off; master_process off; pid {path}/pid; error_log {path}/errors; events {{}}
             http {{
                 access_log off; {temporary} keepalive_timeout {}ms;
                 server {{
                     listen 127.0.0.1:{port} ssl {version}; ssl_certificate {path}/cert.pem; ssl_certificate_key {path}/key.pem;
                     location / {{ return 200 done; }}
                 }}
             }}",
            keeps.as_millis(),
        );
        fs::write(directory.join("nginx.conf"), config).unwrap();
        let mut command = Command::new(program);
        command
            .args(["-p", &path, "-c", "nginx.conf", "-e", &format!("{path}/errors")])
            .stderr(Stdio::null());
        let process = command.spawn().expect("nginx");
        Self { process, url: format!("https://127.0.0.1:{port}/"), directory: Some(directory) }
    }

    pub async fn started(self) -> Self {
        let address = self.url.split('/').nth(2).unwrap().to_owned();
        let begun = Instant::now();
        while tokio::net::TcpStream::connect(&address).await.is_err() {
            assert!(begun.elapsed() < TIMEOUT, "{address} does not start");
            sleep(Duration::from_millis(10)).await;
        }
        self
    }

    /// The file with its certificate, if it has one.
    pub fn root(&self) -> Option<String> {
        self.directory
            .as_ref()
            .map(|directory| directory.join("cert.pem").to_str().unwrap().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

pub fn signal(name: &str, pid: u32) {
    let sent =
        Command::new("kill").args([name, &pid.to_string()]).status().expect("kill is a command");
    assert!(sent.success());
}

/// When the function is frozen.
#[derive(Clone, Copy, Debug)]
enum Freeze {
    Never,
    /// Between two invocations: the event is there when it goes on.
    Before,
    /// So many milliseconds after the invocation began.
    Within(u64),
}

/// Freezes the function again and again, for longer than the server keeps connections. Every
/// message is delivered at first.
async fn freeze(server: Server, freezes: &[Freeze], frozen: Duration, idle_timeout: &str) {
    let server = server.started().await;
    let stage = Stage::new().await;
    let root = server.root();
    let mut settings = vec![
        ("REQUEUE_TARGET_URL", server.url.as_str()),
        ("REQUEUE_IDLE_TIMEOUT_SECONDS", idle_timeout),
    ];
    settings.extend(root.as_deref().map(|root| ("SSL_CERT_FILE", root)));
    let mut function = stage.requeue_lambda(&settings).await;
    let pid = function.pid().unwrap();
    for freeze in [Freeze::Never].iter().chain(freezes) {
        for _ in 0..MESSAGES {
            stage.send("{}").await;
        }
        if let Freeze::Before = freeze {
            signal("-STOP", pid);
            sleep(frozen).await;
        }
        let batch = stage.receive().await;
        assert_eq!(batch.message_ids().len(), MESSAGES);
        let end = function.begin(&batch.event(&stage.queue), TIMEOUT);
        if let Freeze::Within(millis) = freeze {
            sleep(Duration::from_millis(*millis)).await;
            signal("-STOP", pid);
            sleep(frozen).await;
        }
        signal("-CONT", pid);
        let ended = end.await.expect("the function answers");
        assert_eq!(ended, Ended::Response(json!({ "batchItemFailures": [] })));
        stage.acknowledge(&batch, &ended);
        let left = stage.messages();
        assert!(
            left.is_empty(),
            "{} of {MESSAGES} failed, {freeze:?}: {}",
            left.len(),
            function.stop().await
        );
    }
}

/// With the defaults of both sides.
const BY_DEFAULT: [Freeze; 2] = [Freeze::Before, Freeze::Within(20)];
/// If the function keeps connections longer than the server, only the second request succeeds.
const KEPT_TOO_LONG: [Freeze; 5] = [
    Freeze::Before,
    Freeze::Within(15),
    Freeze::Within(25),
    Freeze::Within(35),
    Freeze::Within(45),
];
/// Over HTTP/2, a freeze in the middle of a response fails the other requests of the connection:
/// see [`HttpTarget`](requeue_lambda::HttpTarget).
const HTTP2: [Freeze; 2] = [Freeze::Before, Freeze::Before];

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn what_died_while_the_function_was_frozen_fails_no_message_before_node() {
    let Some(node) = tool("REQUEUE_TEST_NODE") else { return };
    let second = Duration::from_secs(1);
    tokio::join!(
        freeze(Server::node(&node, 5 * second), &BY_DEFAULT, 7 * second, ""),
        freeze(Server::node(&node, second), &KEPT_TOO_LONG, 2 * second, "60"),
    );
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn what_died_while_the_function_was_frozen_fails_no_message_before_nginx() {
    let Some(nginx) = tool("REQUEUE_TEST_NGINX") else { return };
    let second = Duration::from_secs(1);
    tokio::join!(
        freeze(Server::nginx(&nginx, 5 * second, true), &HTTP2, 7 * second, ""),
        freeze(Server::nginx(&nginx, second, true), &HTTP2, 2 * second, "60"),
        freeze(Server::nginx(&nginx, second, false), &KEPT_TOO_LONG, 2 * second, "60"),
    );
}
