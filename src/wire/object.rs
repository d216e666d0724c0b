//! A JSON object as text, and the places of our fields in it.

use std::ops::Range;
use std::sync::LazyLock;

use memchr::{memchr, memmem::Finder};

use crate::json::{self, each_member};
use crate::words::words;

words! {
    "The name in a body."
    /// The name of one of the four fields that we add, in their order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Name {
        RetryCount = "retryCount",
        OriginalMessageId = "originalMessageId",
        RetryTimestamp = "retryTimestamp",
        RetryState = "retryState",
    }
}

/// The beginning of the names without which no body has a count or is ours.
static RETRY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("retry"));
/// The beginning of an escape by which such a name may be written.
static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\\u00"));

/// Whether a body may hold a count or a state.
pub(super) fn may_hold_names(body: &str) -> bool {
    let body = body.as_bytes();
    // The search for one byte costs a quarter of that for a text.
    RETRY.find(body).is_some()
        || memchr(b'\\', body).is_some_and(|at| ESCAPE.find(&body[at..]).is_some())
}

/// The field of an envelope that holds the payload.
pub(super) const BODY: &str = "retryBody";

/// A field with one of our names.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: Name,
    pub(super) value: Range<usize>,
    /// The number of fields before it.
    index: usize,
    /// The end of the value before it, if there is one.
    gap: usize,
    key: usize,
}

#[derive(Debug)]
pub(super) struct Object<'a> {
    text: &'a str,
    len: usize,
    /// In the order of the text, each name once.
    members: Vec<Member>,
    body: Option<&'a str>,
    ambiguous: bool,
}

impl<'a> Object<'a> {
    /// `None` unless `text` is one JSON object and, around it, white space.
    pub(super) fn locate(text: &'a str) -> Option<Self> {
        let mut object = Self { text, len: 0, members: Vec::new(), body: None, ambiguous: false };
        let mut gap = 0;
        each_member(text, |key, value| {
            let value_span = object.span(value);
            match OwnKey::of(key) {
                Some(OwnKey::Member(name)) if object.member(name).is_none() => {
                    object.members.push(Member {
                        name,
                        value: value_span.clone(),
                        index: object.len,
                        gap,
                        key: object.span(key).start,
                    });
                }
                Some(OwnKey::Body) if object.body.is_none() => object.body = Some(value),
                Some(OwnKey::Member(_) | OwnKey::Body) => object.ambiguous = true,
                None => {}
            }
            object.len += 1;
            gap = value_span.end;
            Some(())
        })?;
        Some(object)
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether one of our names, or the envelope's, occurs twice.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.ambiguous
    }

    /// The value of the envelope's field.
    pub(super) fn body(&self) -> Option<&'a str> {
        self.body
    }

    /// The fields with our names, in the order of the text.
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(super) fn member(&self, name: Name) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }

    pub(super) fn value(&self, name: Name) -> Option<&'a str> {
        self.member(name).map(|member| &self.text[member.value.clone()])
    }

    pub(super) fn closing_brace(&self) -> usize {
        self.text.rfind('}').expect("an object ends with a brace")
    }

    /// The text without the fields with our names, except that those in `originals` get their old
    /// value back.
    pub(super) fn restored(&self, originals: &[(Name, String)]) -> String {
        let mut restored = String::with_capacity(self.text.len());
        let mut done = 0;
        let mut removed = 0;
        for member in &self.members {
            let original = originals.iter().find(|(name, _)| *name == member.name);
            let (cut, replacement) = if let Some((_, text)) = original {
                (member.value.clone(), text.as_str())
            } else {
                let is_first_left = member.index == removed;
                removed += 1;
                (self.extent(member, is_first_left), "")
            };
            restored.push_str(&self.text[done..cut.start]);
            restored.push_str(replacement);
            done = cut.end;
        }
        restored.push_str(&self.text[done..]);
        restored
    }

    /// The field and the comma before it, which is removed with it. If no field before it is left,
    /// it is the comma after it. White space around it stays: it is the producer's, unless somebody
    /// else has moved our fields.
    fn extent(&self, member: &Member, is_first_left: bool) -> Range<usize> {
        if is_first_left {
            let rest = &self.text[member.value.end..];
            let next = rest.trim_start_matches([' ', '\t', '\n', '\r']).strip_prefix(',');
            let end = next.map_or(member.value.end, |next| self.text.len() - next.len());
            return member.key..end;
        }
        let comma = self.text[member.gap..member.key].find(',');
        member.gap + comma.expect("a comma stands between two members")..member.value.end
    }

    /// Where `part`, which was cut out of the text, lies in it.
    fn span(&self, part: &str) -> Range<usize> {
        let start = part.as_ptr().addr() - self.text.as_ptr().addr();
        start..start + part.len()
    }
}

enum OwnKey {
    Member(Name),
    Body,
}

impl OwnKey {
    /// The longest of our names with every character escaped, and the quotes.
    const MAX_LEN: usize = Name::OriginalMessageId.as_str().len() * "\\u0000".len() + 2;

    /// Reads a key with its quotes and escapes.
    fn of(key: &str) -> Option<Self> {
        if key.len() > Self::MAX_LEN {
            return None;
        }
        if key.contains('\\') {
            Self::from_name(&json::string(key)?)
        } else {
            Self::from_name(key.trim_matches('"'))
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        if name == BODY {
            return Some(Self::Body);
        }
        Name::from_name(name).map(Self::Member)
    }
}
