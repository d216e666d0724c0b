//! Tracks the streams of an HTTP/2 connection whose response has begun and not ended. It reads the
//! frames beside h2, which hides interim responses. Decodes no header.

use std::collections::BTreeMap;

use super::watched::Watch;

// Types of frames and their flags, by RFC 9113, section 6.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The length of a frame's head.
const HEAD: usize = 9;
/// The preface that a client writes before its first frame.
const PREFACE: usize = 24;

/// The frames of both directions.
#[derive(Debug)]
pub(super) struct Frames {
    streams: BTreeMap<u32, Progress>,
    read: Frame,
    written: Frame,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The request was written, and no frame of a response came.
    Sent,
    Begun,
    /// These headers end the stream.
    Ending,
}

/// The frame of the next byte.
#[derive(Debug, Default)]
struct Frame {
    head: [u8; HEAD],
    filled: usize,
    /// The missing bytes of the payload.
    rest: usize,
}

/// A position in the bytes of one direction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Payload,
    End,
}

impl Default for Frames {
    fn default() -> Self {
        let preface = Frame { filled: HEAD, rest: PREFACE, ..Frame::default() };
        Self { streams: BTreeMap::new(), read: Frame::default(), written: preface }
    }
}

impl Frames {
    /// Whether a part of a response came, but not all of it.
    pub(super) fn has_begun(&self) -> bool {
        self.streams.values().any(|progress| *progress != Progress::Sent)
    }
}

impl Watch for Frames {
    fn read(&mut self, bytes: &[u8]) {
        let streams = &mut self.streams;
        self.read.feed(bytes, |kind, flags, id, at| match (kind, at) {
            (HEADERS, At::Payload) => {
                let last = if flags & END_STREAM == 0 { Progress::Begun } else { Progress::Ending };
                streams.entry(id).and_modify(|progress| *progress = last);
            }
            (HEADERS | CONTINUATION, At::End)
                if flags & END_HEADERS != 0 && streams.get(&id) == Some(&Progress::Ending) =>
            {
                streams.remove(&id);
            }
            (DATA, At::End) if flags & END_STREAM != 0 => drop(streams.remove(&id)),
            (RST_STREAM, At::End) => drop(streams.remove(&id)),
            _ => {}
        });
    }

    fn written(&mut self, bytes: &[u8]) {
        let streams = &mut self.streams;
        self.written.feed(bytes, |kind, _, id, at| match (kind, at) {
            (HEADERS, At::Payload) => drop(streams.insert(id, Progress::Sent)),
            (RST_STREAM, At::Payload) => drop(streams.remove(&id)),
            _ => {}
        });
    }
}

impl Frame {
    /// Reports the type, flags and stream of each frame, once before its payload and once after it.
    fn feed(&mut self, mut bytes: &[u8], mut note: impl FnMut(u8, u8, u32, At)) {
        while !bytes.is_empty() {
            if self.filled < HEAD {
                self.head[self.filled] = bytes[0];
                self.filled += 1;
                bytes = &bytes[1..];
                if self.filled < HEAD {
                    continue;
                }
                let [a, b, c, ..] = self.head;
                self.rest = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
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

    fn tell(&self, at: At, note: &mut impl FnMut(u8, u8, u32, At)) {
        let [_, _, _, kind, flags, a, b, c, d] = self.head;
        // The first bit is reserved.
        note(kind, flags, u32::from_be_bytes([a & 0x7f, b, c, d]), at);
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
                frames.concat().chunks(size).for_each(|chunk| watch.read(chunk));
                assert_eq!(watch.has_begun(), has_begun, "{frames:?} by {size}");
            }
        }
    }
}
