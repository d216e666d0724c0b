//! Tracks the streams of an HTTP/2 connection whose response has begun and not ended. It reads the
//! frames in parallel to h2, which hides interim responses and keeps all of them. Limits the frames
//! that the target may send without end. Decodes no header.

use std::collections::BTreeMap;

use super::MAX_INTERIM_BYTES;
use super::watched::{Flooded, Watch};

// Types of frames and their flags, by RFC 9113, section 6.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// The length of a frame's head.
const HEAD: usize = 9;
/// The preface that a client writes before its first frame.
const PREFACE: usize = 24;

/// The interim responses to a request. Each takes memory until the response comes.
const MAX_INTERIM: usize = 64;
/// The largest status line and headers of a response. Over HTTP/1.1 a longer head still counts by
/// its status. Over HTTP/2, h2 does not return it, so the response is a temporary failure.
pub(super) const MAX_HEAD_BYTES: usize = 256 * 1024;
/// The frames that the target may send at the start, and more for each request.
const FRAMES: usize = 4_096;
/// The same in bytes: a head, the beginning of a body, and as much of others.
const BYTES: usize = 2 * MAX_HEAD_BYTES;
/// The frames that the target may send more for each ping, so that a long request may be pinged.
const FRAMES_FOR_PING: usize = 16;

#[derive(Debug)]
pub(super) struct Frames {
    streams: BTreeMap<u32, Response>,
    read: Reader,
    written: Reader,
    left: Left,
}

#[derive(Debug)]
struct Left {
    frames: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Response {
    progress: Progress,
    /// The heads before the last one, which were interim responses, and their bytes.
    interim: usize,
    interim_bytes: usize,
    head_bytes: usize,
}

impl Response {
    const SENT: Self =
        Self { progress: Progress::Sent, interim: 0, interim_bytes: 0, head_bytes: 0 };

    fn head(&mut self, progress: Progress, length: usize) -> Result<(), Flooded> {
        if self.progress != Progress::Sent {
            self.interim += 1;
            self.interim_bytes += self.head_bytes;
        }
        (self.progress, self.head_bytes) = (progress, length);
        let is_flood = self.interim > MAX_INTERIM || self.interim_bytes > MAX_INTERIM_BYTES;
        if is_flood { Err(Flooded) } else { Ok(()) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The request was written, and no frame of a response came.
    Sent,
    Begun,
    /// These headers end the stream.
    Ending,
}

struct Frame {
    kind: u8,
    flags: u8,
    id: u32,
    length: usize,
}

#[derive(Debug, Default)]
struct Reader {
    head: [u8; HEAD],
    filled: usize,
    /// The missing bytes of the payload.
    rest: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Payload,
    End,
}

impl Default for Frames {
    fn default() -> Self {
        let preface = Reader { filled: HEAD, rest: PREFACE, ..Reader::default() };
        let left = Left { frames: FRAMES, bytes: BYTES };
        Self { streams: BTreeMap::new(), read: Reader::default(), written: preface, left }
    }
}

impl Frames {
    pub(super) fn has_begun(&self) -> bool {
        self.streams.values().any(|response| response.progress != Progress::Sent)
    }
}

impl Watch for Frames {
    fn read(&mut self, bytes: &[u8]) -> Result<(), Flooded> {
        let Self { streams, left, read, .. } = self;
        left.bytes = left.bytes.checked_sub(bytes.len()).ok_or(Flooded)?;
        let mut is_flooded = false;
        read.feed(bytes, |Frame { kind, flags, id, length }, at| {
            if at == At::Payload {
                is_flooded |= left.frames == 0;
                left.frames = left.frames.saturating_sub(1);
            }
            match (kind, at) {
                (HEADERS, At::Payload) => {
                    let is_last = flags & END_STREAM != 0;
                    let progress = if is_last { Progress::Ending } else { Progress::Begun };
                    let response = streams.get_mut(&id);
                    is_flooded |= response.is_some_and(|it| it.head(progress, length).is_err());
                }
                (CONTINUATION, At::Payload) => {
                    streams.entry(id).and_modify(|response| response.head_bytes += length);
                }
                (HEADERS | CONTINUATION, At::End)
                    if flags & END_HEADERS != 0
                        && streams.get(&id).is_some_and(|it| it.progress == Progress::Ending) =>
                {
                    streams.remove(&id);
                }
                (DATA, At::End) if flags & END_STREAM != 0 => drop(streams.remove(&id)),
                // The last head was that of the response. Trailers may follow.
                (DATA, At::Payload) => {
                    streams.entry(id).and_modify(|response| response.head_bytes = 0);
                }
                (RST_STREAM, At::End) => drop(streams.remove(&id)),
                _ => {}
            }
        });
        if is_flooded { Err(Flooded) } else { Ok(()) }
    }

    fn written(&mut self, bytes: &[u8]) {
        let Self { streams, left, written, .. } = self;
        written.feed(bytes, |Frame { kind, flags, id, .. }, at| match (kind, at) {
            (HEADERS, At::Payload) => {
                left.frames += FRAMES;
                left.bytes += BYTES;
                streams.insert(id, Response::SENT);
            }
            (PING, At::Payload) if flags & ACK == 0 => left.frames += FRAMES_FOR_PING,
            (RST_STREAM, At::Payload) => drop(streams.remove(&id)),
            _ => {}
        });
    }
}

impl Reader {
    /// Reports the head of each frame, once before its payload and once after it.
    fn feed(&mut self, mut bytes: &[u8], mut note: impl FnMut(Frame, At)) {
        while !bytes.is_empty() {
            if self.filled < HEAD {
                self.head[self.filled] = bytes[0];
                self.filled += 1;
                bytes = &bytes[1..];
                if self.filled < HEAD {
                    continue;
                }
                self.rest = self.length();
                self.tell(At::Payload, &mut note);
            }
            let length = self.rest.min(bytes.len());
            self.rest -= length;
            bytes = &bytes[length..];
            if self.rest == 0 {
                self.tell(At::End, &mut note);
                self.filled = 0;
            }
        }
    }

    fn length(&self) -> usize {
        let [a, b, c, ..] = self.head;
        usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)
    }

    fn tell(&self, at: At, note: &mut impl FnMut(Frame, At)) {
        let [_, _, _, kind, flags, a, b, c, d] = self.head;
        // The first bit is reserved.
        let id = u32::from_be_bytes([a & 0x7f, b, c, d]);
        note(Frame { kind, flags, id, length: self.length() }, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, id: u8, length: u8) -> Vec<u8> {
        let head = [0, 0, length, kind, flags, 0, 0, 0, id];
        head.into_iter().chain((0..length).map(|_| 0xff)).collect()
    }

    #[test]
    fn a_response_has_begun_between_its_first_byte_and_its_last() {
        const SETTINGS: u8 = 4;
        for (frames, has_begun) in [
            (vec![], false),
            (vec![frame(SETTINGS, 0, 0, 6)], false),
            (vec![frame(HEADERS, END_HEADERS, 1, 3)], true),
            (vec![frame(HEADERS, END_HEADERS, 1, 3), frame(HEADERS, END_HEADERS, 1, 3)], true),
            (vec![frame(HEADERS, END_HEADERS, 1, 0)], true),
            (vec![frame(HEADERS, END_HEADERS, 1, 3)[..9].to_vec()], true),
            (vec![frame(HEADERS, END_HEADERS | END_STREAM, 1, 3)[..11].to_vec()], true),
            (vec![frame(HEADERS, END_HEADERS | END_STREAM, 1, 3)], false),
            (vec![frame(HEADERS, END_STREAM, 1, 3), frame(CONTINUATION, 0, 1, 3)], true),
            (vec![frame(HEADERS, END_STREAM, 1, 3), frame(CONTINUATION, END_HEADERS, 1, 3)], false),
            (vec![frame(HEADERS, 0, 1, 3), frame(CONTINUATION, END_HEADERS, 1, 3)], true),
            (vec![frame(HEADERS, END_HEADERS, 1, 3), frame(DATA, 0, 1, 200)], true),
            (vec![frame(HEADERS, END_HEADERS, 1, 3), frame(DATA, END_STREAM, 1, 0)], false),
            (vec![frame(HEADERS, END_HEADERS, 1, 3), frame(DATA, END_STREAM, 3, 0)], true),
            (vec![frame(HEADERS, END_HEADERS, 1, 3), frame(RST_STREAM, 0, 1, 4)], false),
            // A frame of a closed stream, or of one that was never opened.
            (vec![frame(HEADERS, END_HEADERS, 5, 3)], false),
            (vec![frame(HEADERS, END_HEADERS, 7, 3)], false),
        ] {
            let requests = [1, 3, 5].map(|id| frame(HEADERS, END_HEADERS, id, 20)).concat();
            let written = [
                &[b'x'; PREFACE][..],
                &frame(SETTINGS, 0, 0, 6),
                &requests,
                &frame(RST_STREAM, 0, 5, 4),
            ];
            for size in [1, 5, 1_000] {
                let mut watch = Frames::default();
                written.concat().chunks(size).for_each(|chunk| watch.written(chunk));
                frames.concat().chunks(size).for_each(|chunk| watch.read(chunk).expect("few"));
                assert_eq!(watch.has_begun(), has_begun, "{frames:?} by {size}");
            }
        }
    }
    #[test]
    fn frames_that_the_target_repeats_end_the_connection_and_those_of_a_response_do_not() {
        const SETTINGS: u8 = 4;
        let headers = |length| frame(HEADERS, END_HEADERS, 1, length);
        let large = frame(CONTINUATION, 0, 1, 250).repeat(MAX_INTERIM_BYTES / 250);
        for (what, first, again, most) in [
            ("interim responses", vec![], headers(3), MAX_INTERIM + 1),
            ("large ones", [headers(250), large].concat(), headers(3), 0),
            ("continuations", headers(9), frame(CONTINUATION, 0, 1, 250), 2 * BYTES / 259),
            ("empty data", headers(9), frame(DATA, 0, 1, 0), 2 * FRAMES - 1),
            ("pings", vec![], frame(PING, 0, 0, 8), 2 * FRAMES),
            ("settings", vec![], frame(SETTINGS, 0, 0, 6), 2 * FRAMES),
            ("updates of a window", vec![], frame(8, 0, 1, 4), 2 * FRAMES),
            ("unknown frames", vec![], frame(99, 0, 1, 255), 2 * BYTES / 264),
        ] {
            let mut watch = Frames::default();
            watch.written(&[&[b'x'; PREFACE][..], &headers(20)].concat());
            assert!(watch.read(&first).is_ok());
            for count in 0..=2 * most {
                let is_over = count >= most;
                assert_eq!(watch.read(&again).is_err(), is_over, "{what}: {count} of {most}");
                if is_over {
                    break;
                }
            }
        }
        // The next request, on the same connection, has as much again.
        let mut watch = Frames::default();
        watch.written(&[b'x'; PREFACE]);
        for id in 1..=100 {
            watch.written(&frame(HEADERS, END_HEADERS, id, 20));
            let body = frame(DATA, 0, id, 255).repeat(400);
            let whole = [frame(HEADERS, END_HEADERS, id, 200).repeat(2), body].concat();
            assert!(watch.read(&whole).is_ok() && watch.read(&frame(DATA, 1, id, 0)).is_ok());
        }
    }
}
