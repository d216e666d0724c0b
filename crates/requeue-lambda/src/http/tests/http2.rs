//! HTTP/2 to the letter: a server that writes frames as a body asks for it, the first time that it
//! comes.

use std::collections::BTreeSet;

use tokio::io::DuplexStream;
use tokio::task::JoinSet;

use super::in_memory::{InMemory, Target as _, localhost};
use super::*;

/// Types of frames, and flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:status: 200`, compressed.
const OK: &[u8] = &[0x88];
/// `:status: 103`, not compressed.
const EARLY_HINTS: &[u8] = b"\x08\x03103";

/// Bodies that have come.
type Known = Arc<Mutex<BTreeSet<String>>>;

async fn write(stream: &mut DuplexStream, kind: u8, flags: u8, id: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(id.to_be_bytes());
    frame.extend(payload);
    let _ = stream.write_all(&frame).await;
}

async fn read(stream: &mut DuplexStream) -> Option<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
    stream.read_exact(&mut payload).await.ok()?;
    Some((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
}

/// Serves one connection. A body that begins with `each` is served so each time, others are only
/// the first time.
pub(super) async fn serve(mut stream: DuplexStream, max_streams: Option<u8>, known: Known) {
    let mut preface = [0; 24];
    if stream.read_exact(&mut preface).await.is_err() {
        return;
    }
    let settings = max_streams.map(|max| [0, 3, 0, 0, 0, max]);
    write(&mut stream, SETTINGS, 0, 0, settings.as_ref().map_or(&[], |settings| &settings[..]))
        .await;
    while let Some((kind, flags, id, payload)) = read(&mut stream).await {
        if kind == PING && flags & ACK == 0 {
            write(&mut stream, PING, ACK, 0, &payload).await;
        }
        if kind == SETTINGS && flags & ACK == 0 {
            write(&mut stream, SETTINGS, ACK, 0, &[]).await;
        }
        if kind != DATA || flags & END_STREAM == 0 {
            continue;
        }
        let body = String::from_utf8(payload).expect("text");
        let is_new = known.lock().expect("no test panicked").insert(body.clone());
        let what = body
            .split(' ')
            .next()
            .filter(|_| is_new || body.starts_with("each"))
            .unwrap_or_default();
        match what.trim_start_matches("each-") {
            "hang" => {}
            "refuse" => write(&mut stream, RST_STREAM, 0, id, &[0, 0, 0, 7]).await,
            "reset" => write(&mut stream, RST_STREAM, 0, id, &[0, 0, 0, 2]).await,
            "http1" => write(&mut stream, RST_STREAM, 0, id, &[0, 0, 0, 0xd]).await,
            "leave" => {
                let last = (id - 2).to_be_bytes();
                write(&mut stream, GOAWAY, 0, 0, &[last, [0; 4]].concat()).await;
            }
            "take-leave" => {
                let internal_error = [0, 0, 0, 2];
                write(&mut stream, GOAWAY, 0, 0, &[id.to_be_bytes(), internal_error].concat())
                    .await;
                return;
            }
            "close" => return,
            "hint" => {
                write(&mut stream, HEADERS, END_HEADERS, id, EARLY_HINTS).await;
                return;
            }
            // The frame's own head, and nothing of what it announces.
            "begin" => {
                let _ = stream.write_all(&[0, 0, 1, HEADERS, END_HEADERS | END_STREAM]).await;
                let _ = stream.write_all(&id.to_be_bytes()).await;
                return;
            }
            // An index into an empty table.
            "break" => {
                write(&mut stream, HEADERS, END_HEADERS | END_STREAM, id, &[0xff, 0xff, 0x03])
                    .await;
            }
            // A header field that HTTP/2 does not allow.
            "malform" => {
                let head = [OK, b"\x00\x0aconnection\x05close"].concat();
                write(&mut stream, HEADERS, END_HEADERS | END_STREAM, id, &head).await;
            }
            "stall" => write(&mut stream, HEADERS, END_HEADERS, id, OK).await,
            _ => write(&mut stream, HEADERS, END_HEADERS | END_STREAM, id, OK).await,
        }
    }
}

/// The server, and how many connections it has.
fn server(max_streams: Option<u8>) -> (InMemory, Arc<AtomicUsize>) {
    let (opened, known) = (Arc::new(AtomicUsize::new(0)), Known::default());
    let count = Arc::clone(&opened);
    let server = InMemory::raw(move |stream| {
        count.fetch_add(1, Ordering::SeqCst);
        serve(stream, max_streams, Arc::clone(&known))
    });
    (server.over_http2(), opened)
}

/// Delivers all at once over a connection that works, and returns what failed: the body, and the
/// evidence.
async fn deliver_all(
    target: &HttpTarget<InMemory>,
    bodies: &[String],
) -> Vec<(String, Evidence, String)> {
    target.deliver(Delivery::new("first", "first")).await.expect("it is accepted");
    let mut all = JoinSet::new();
    for body in bodies {
        let (target, body) = (target.clone(), body.clone());
        all.spawn(async move {
            let ended = target.deliver(Delivery::new(&body, body.clone())).await;
            ended.err().map(|failed| (body, failed.evidence(), failed.detail().to_owned()))
        });
    }
    let mut failed: Vec<_> = all.join_all().await.into_iter().flatten().collect();
    failed.sort_by(|one, other| one.0.cmp(&other.0));
    failed
}

fn numbered(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

#[tokio::test(start_paused = true)]
async fn what_befalls_one_request_or_their_connection_fails_no_other() {
    let typed = |reason| Some((Evidence::Typed, reason));
    for (what, failed) in [
        ("nothing", None),
        ("refuse", None),
        (
            "each-refuse",
            typed(
                "HTTP/2 stream ended by the other side: refused stream before processing any application logic",
            ),
        ),
        ("leave", None),
        ("close", None),
        ("each-close", typed("connection closed")),
        (
            "each-malform",
            Some((Evidence::Connection, "head of the response too large or malformed")),
        ),
        (
            "reset",
            typed("HTTP/2 stream ended by the other side: unexpected internal error encountered"),
        ),
        ("stall", None),
    ] {
        let (server, _) = server(None);
        let target = server.target();
        let mut bodies = numbered("ordinary", 9);
        bodies.insert(4, format!("{what} 0"));
        let expected =
            failed.map(|(evidence, reason)| (format!("{what} 0"), evidence, reason.to_owned()));
        assert_eq!(deliver_all(&target, &bodies).await, Vec::from_iter(expected), "{what}");
        target.deliver(Delivery::new("last", "last")).await.expect("it is accepted");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_sent_again_if_not_processed_or_with_a_key_if_no_response_began() {
    for (what, without_key, with_key) in [
        ("refuse", true, true),
        ("leave", true, true),
        ("take-leave", false, true),
        ("close", false, true),
        ("reset", false, false),
        ("break", false, false),
        ("malform", false, false),
        ("hint", false, false),
        ("begin", false, false),
    ] {
        for (key, is_sent_again) in [("", without_key), ("id-1", with_key)] {
            let (server, _) = server(None);
            let target = server.target();
            target.deliver(Delivery::new("first", "first")).await.expect("it is accepted");
            let ended = target.deliver(Delivery::new(key, what)).await;
            assert_eq!(ended.is_ok(), is_sent_again, "{what}, key `{key}`: {ended:?}");
            // The first request may be with the target still.
            assert!(ended.err().is_none_or(|failed| failed.is_in_doubt()), "{what}, key `{key}`");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_allows_few_streams_gets_more_connections() {
    for (max_streams, most) in [(Some(1), 46), (Some(5), 46), (None, 46)] {
        let (server, opened) = server(max_streams);
        let target = server.target();
        let hanging = tokio::spawn({
            let target = target.clone();
            async move {
                target.deliver(Delivery::new("first", "first")).await.expect("it is accepted");
                target.deliver(Delivery::new("hang", "hang")).await
            }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let begun = Instant::now();
        assert_eq!(deliver_all(&target, &numbered("ordinary", 45)).await, [], "{max_streams:?}");
        assert!(begun.elapsed() < Duration::from_secs(1), "{max_streams:?}: {:?}", begun.elapsed());
        assert!(opened.load(Ordering::SeqCst) <= most, "{max_streams:?}: {opened:?}");
        if max_streams.is_none() {
            assert_eq!(opened.load(Ordering::SeqCst), 1, "there is room");
        }
        hanging.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_wants_http_1_1_gets_it_from_then_on() {
    let (over_http2, _) = server(None);
    let plain = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&plain);
    let over_http1 = InMemory::raw(move |stream| {
        count.fetch_add(1, Ordering::SeqCst);
        super::serve(stream, ok, Seen::default())
    });
    let connectors = Connectors { best: over_http2.clone(), http1: Some(over_http1) };
    let target = HttpTarget::with_connectors(localhost(), HttpSettings::default(), connectors);
    for body in ["first", "http1", "third", "fourth"] {
        target.deliver(Delivery::new(body, body)).await.expect("it is accepted");
    }
    assert_eq!(plain.load(Ordering::SeqCst), 1);
    let without_choice = over_http2.target();
    let failed = without_choice
        .deliver(Delivery::new("each-http1", "each-http1"))
        .await
        .expect_err("it is refused");
    assert_eq!(
        failed.detail(),
        "HTTP/2 stream ended by the other side: endpoint requires HTTP/1.1"
    );
}
