//! The memory of the local page has a bound, whatever it looks at and however often.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use requeue::Clock;
use requeue::embedded::EmbeddedSqs;
use requeue::queue::Outgoing;
use serde_json::Value;

const MIB: usize = 1024 * 1024;

/// A page whose queue has more messages than it may keep.
struct Page {
    child: Child,
    port: u16,
    token: String,
}

impl Page {
    fn open(endpoint: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_requeue"))
            .args(["ui", "--queue", "orders-dlq", "--port", "0"])
            .env_clear()
            .envs([("AWS_ACCESS_KEY_ID", "any"), ("AWS_SECRET_ACCESS_KEY", "any")])
            .envs([("AWS_ENDPOINT_URL_SQS", endpoint), ("AWS_REGION", "us-east-1")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let (_, url) = line.trim().split_once("http://127.0.0.1:").unwrap();
        let (port, token) = url.split_once("/?token=").unwrap();
        Self { port: port.parse().unwrap(), token: token.to_owned(), child }
    }

    /// A connection on which this request is sent.
    fn begin(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let Self { port, token, .. } = self;
        let mut stream = TcpStream::connect(("127.0.0.1", *port)).unwrap();
        let host = format!("127.0.0.1:{port}");
        write!(
            stream,
            "{method} /api/dead-letters/0{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
             Cookie: requeue-ui-{port}={token}\r\nOrigin: http://{host}\r\nX-Requeue-Ui: 1\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        stream
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Value {
        let mut response = String::new();
        self.begin(method, path, body).read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {response}");
        serde_json::from_str(body).unwrap()
    }

    /// Looks at the queue, and returns the number of the look and its messages.
    fn look(&self) -> (u64, u64) {
        self.request("POST", "/look", "{}");
        while self.request("GET", "/job", "")["isRunning"] == true {
            sleep(Duration::from_millis(50));
        }
        let snapshot = &self.request("GET", "", "")["snapshot"];
        assert_eq!(snapshot["isComplete"], false, "{snapshot}");
        let beyond = snapshot["notReached"]["brokenOff"].as_u64().unwrap();
        let count = snapshot["count"].as_u64().unwrap();
        assert_eq!(count + beyond, 300, "{snapshot}");
        (snapshot["number"].as_u64().unwrap(), count)
    }

    /// An export whose reader stops after the head.
    fn stopped_export(&self, look: u64) -> TcpStream {
        let chosen = format!(r#"{{"snapshot":{look},"groups":[0],"messages":[]}}"#);
        let selection = &self.request("POST", "/selections", &chosen)["selection"];
        let mut export = self.begin("GET", &format!("/selections/{selection}/export"), "");
        export.read_exact(&mut [0; 1_024]).unwrap();
        export
    }

    /// The most resident memory so far.
    fn peak(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1_024
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn looks_and_exports_of_more_than_the_bound_keep_the_memory_within_it() {
    let sqs = EmbeddedSqs::new(Clock::system());
    let dead_letters = sqs.create_queue("orders-dlq", []).unwrap();
    let policy = format!(r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":2}}"#);
    sqs.create_queue("orders", [("RedrivePolicy", policy.as_str())]).unwrap();
    let (body, attributes) = ("x".repeat(MIB), std::collections::BTreeMap::new());
    for _ in 0..300 {
        sqs.put(&dead_letters, &Outgoing::new(&body, &attributes)).unwrap();
    }
    let server = sqs.serve(0).await.unwrap();
    let endpoint = server.url();
    let measured = tokio::task::spawn_blocking(move || {
        let page = Page::open(&endpoint);
        let mut exports = Vec::new();
        for _ in 0..5 {
            let (look, count) = page.look();
            assert!((200..256).contains(&count), "{count}");
            exports.push(page.stopped_export(look));
            println!("after look {look}: {} MiB", page.peak() / MIB);
        }
        page.peak()
    });
    let peak = measured.await.unwrap();
    assert!(peak < 400 * MIB, "{} MiB", peak / MIB);
}
