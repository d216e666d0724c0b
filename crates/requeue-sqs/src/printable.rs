//! Text from messages and services, made safe to show. It does not know the source of a text. It is
//! public only for `requeue-cli`, which shows the same texts.
//!
//! A sender chooses the content of messages. A terminal interprets some characters instead of
//! showing them: they hide text, move the cursor, or write to the standard input. A log viewer
//! interprets others: they reverse text or start a new line.
//!
//! ```
//! use requeue::printable;
//! assert_eq!(printable::line("paid\u{1b}[2K\nrefused"), "paid\u{FFFD}[2K\u{FFFD}refused");
//! assert_eq!(printable::text("two\nlines\u{202e}"), "two\nlines\u{FFFD}");
//! assert_eq!(printable::json("\"\u{202e}\"".to_owned()), r#""\u202e""#);
//! ```

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether this character is shown and does nothing else: no control character (C0, DEL, C1), no
/// bidirectional control, no line or paragraph separator.
///
/// Source of the bidirectional controls: Unicode Standard Annex 9, section 2.
pub fn is_printable(c: char) -> bool {
    let is_bidi_control = matches!(c, '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    let is_separator = matches!(c, '\u{2028}' | '\u{2029}');
    !(c.is_control() || is_bidi_control || is_separator)
}

/// A value as part of one line: every character that is not [printable](is_printable) becomes
/// U+FFFD, tabs and line feeds too.
pub fn line(value: &str) -> Cow<'_, str> {
    replaced(value, is_printable)
}

/// The beginning of a line, at most this many bytes long, [printable](line()). It is for logged
/// texts that somebody else chose.
pub fn start_of_line(text: &str, max_bytes: usize) -> Cow<'_, str> {
    line(&text[..text.floor_char_boundary(max_bytes)])
}

/// The id of a message, if it has the form of those of SQS: a UUID. Another one may be any text that a
/// sender put into a body.
///
/// ```
/// # use requeue::printable::message_id;
/// assert!(message_id("059f36b4-87a3-44ab-83d2-661975830a7d").is_some());
/// assert!(message_id("ann@example.com").is_none());
/// ```
pub fn message_id(id: &str) -> Option<&str> {
    let fits = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    (id.len() == 36 && id.bytes().enumerate().all(fits)).then_some(id)
}

/// A URL without the user and the password before its host.
///
/// ```
/// # use requeue::printable::url;
/// assert_eq!(url("http://user:secret@mq:9324/a@b"), "http://mq:9324/a@b");
/// ```
pub fn url(url: &str) -> String {
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at + "://".len()));
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    [scheme, host, path].concat()
}

/// A whole text: as [`line()`], but tabs and line feeds stay.
pub fn text(text: &str) -> Cow<'_, str> {
    replaced(text, |c| is_printable(c) || matches!(c, '\n' | '\t'))
}

/// JSON with the same values, in which no character needs to be replaced: in strings, `\uXXXX`
/// stands for those that are not printable. Line feeds between values stay.
pub fn json(json: String) -> String {
    // A raw control character below U+0020 cannot be inside a string, so those that are there are
    // white space between values.
    let is_harmful = |c: char| c >= ' ' && !is_printable(c);
    if !json.contains(is_harmful) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if is_harmful(c) {
            // All of them are below U+10000.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

fn replaced(text: &str, is_harmless: impl Fn(char) -> bool) -> Cow<'_, str> {
    // Most texts are ASCII, and bytes take fewer instructions than characters.
    let is_plain = |byte| matches!(byte, b' '..=b'~');
    if text.bytes().all(is_plain) || text.chars().all(&is_harmless) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(
        text.chars()
            .map(|c| if is_harmless(c) { c } else { char::REPLACEMENT_CHARACTER })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn controls_of_terminals_and_of_text_direction_are_not_printable_and_their_neighbours_are() {
        let harmful = [
            '\0'..='\u{1F}',
            '\u{7F}'..='\u{9F}',
            '\u{61C}'..='\u{61C}',
            '\u{200E}'..='\u{200F}',
            '\u{2028}'..='\u{202E}',
            '\u{2066}'..='\u{2069}',
        ];
        for c in '\0'..=char::MAX {
            assert_eq!(is_printable(c), !harmful.iter().any(|range| range.contains(&c)), "{c:?}");
        }
    }

    #[test]
    fn a_json_text_keeps_its_values_and_its_layout() {
        let value =
            serde_json::json!({ "a\u{9b}": ["\u{1b}[31m\u{7f}\u{2028}", "é😀", "\\u202e"] });
        for printed in [value.to_string(), format!("{value:#}")] {
            let escaped = json(printed.clone());
            assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).expect("JSON"), value);
            assert_eq!(escaped.lines().count(), printed.lines().count());
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_shown_holds_a_character_that_is_not_printable(
            value in "(\\PC|\\p{C}|[\u{0}-\u{a0}]|[\u{2020}-\u{2070}]){0,40}"
        ) {
            prop_assert!(line(&value).chars().all(is_printable));
            prop_assert!(text(&value).chars().all(|c| is_printable(c) || c == '\n' || c == '\t'));
            let printed = json(serde_json::to_string(&value).expect("a string"));
            prop_assert!(printed.chars().all(is_printable));
            prop_assert_eq!(serde_json::from_str::<String>(&printed).expect("JSON"), value);
        }
    }
}
