//! The service's own words for a failure, which dead letters may keep: scrubbed and cut. Each part
//! that may be a value of the message or a secret is removed, and in doubt too much.

use std::collections::HashSet;

use requeue_sqs::printable::is_printable;

use super::Failure;

/// Whether a dead letter keeps the service's own words in addition to its code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DetailText {
    /// It keeps a code alone.
    #[default]
    Off,
    /// It also keeps up to 256 bytes of the response's error message. Requeue removes quoted parts,
    /// words of the message's body, addresses, numbers of five digits or more, and anything like a
    /// token.
    On,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceText(Box<str>);

impl ServiceText {
    /// The most bytes, also in JSON: none of its characters is escaped.
    pub(crate) const MAX_BYTES: usize = 256;
    /// The part of a text that is read.
    const MAX_READ: usize = 1_024;

    fn new(text: &str) -> Option<Self> {
        let harmless = |c: char| if is_printable(c) { c } else { ' ' };
        let text: String = text.chars().take(Self::MAX_READ).map(harmless).collect();
        // A document begins here.
        let text = text.split(['{', '[', '<']).next().unwrap_or_default();
        let text = unquoted(text);
        let words: Vec<&str> = text.split_whitespace().collect();
        let numbers = long_numbers(&words);
        let kept = words.iter().enumerate().map(|(at, word)| {
            let is_value = at > 0 && names_secret(words[at - 1]);
            if is_value || numbers[at] || may_be_secret(word) { LEFT_OUT } else { word }
        });
        Self::of(kept)
    }

    /// The words in few bytes, unless none is left.
    fn of<'a>(words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut kept = String::new();
        for word in words {
            if word == LEFT_OUT && kept.ends_with(LEFT_OUT) {
                continue;
            }
            if kept.len() + 1 + word.len() > Self::MAX_BYTES {
                break;
            }
            kept.extend([if kept.is_empty() { "" } else { " " }, word]);
        }
        kept.contains(char::is_alphabetic).then(|| Self(kept.into()))
    }

    fn without(&self, texts: &[&str]) -> Option<Self> {
        let decoded = |text: &&str| {
            let value: serde_json::Value = serde_json::from_str(text).ok()?;
            Some(value.to_string())
        };
        let decoded: Vec<String> = texts.iter().filter_map(decoded).collect();
        let texts = texts.iter().copied().chain(decoded.iter().map(String::as_str));
        let known: HashSet<String> = texts.flat_map(parts).map(str::to_lowercase).collect();
        let is_known = |word: &&str| {
            let may_be_value =
                |part: &str| part.chars().count() > 2 || part.starts_with(char::is_uppercase);
            parts(word).any(|part| may_be_value(part) && known.contains(&part.to_lowercase()))
        };
        Self::of(self.0.split(' ').map(|word| if is_known(&word) { LEFT_OUT } else { word }))
    }
}

const LEFT_OUT: &str = "…";

/// Words before a possible secret.
const SECRETS: &str = "\
    bearer basic token key apikey secret password passwd signature credential authorization \
    cookie";

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty())
}

/// The text without its quoted parts. A quote without an end, unless an apostrophe, lasts to the
/// end.
fn unquoted(text: &str) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['"', '`', '\'', '“', '„', '‘', '«', '\\']) {
        let (before, quoted) = rest.split_at(at);
        let open = quoted.chars().next().unwrap_or_default();
        let inner = &quoted[open.len_utf8()..];
        let ends: &[char] = match open {
            '“' | '„' => &['”', '“'],
            '‘' => &['’', '\''],
            '«' => &['»'],
            '\\' => &[],
            _ => &[open],
        };
        kept.push_str(before);
        if open == '\'' && before.ends_with(char::is_alphanumeric) {
            kept.push('’');
            rest = inner;
            continue;
        }
        kept.extend([" ", LEFT_OUT, " "]);
        rest = inner.find(ends).map_or("", |end| {
            let end = &inner[end..];
            &end[end.chars().next().map_or(0, char::len_utf8)..]
        });
    }
    kept + rest
}

/// Whether each word is part of a number of five digits or more, in groups or not.
fn long_numbers(words: &[&str]) -> Vec<bool> {
    let digits = |word: &str| word.bytes().filter(u8::is_ascii_digit).count();
    let is_number = |word: &&str| digits(word) > 0 && !word.contains(char::is_alphabetic);
    words
        .chunk_by(|one, next| is_number(one) && is_number(next))
        .flat_map(|row| {
            let is_long = row.iter().map(|word| digits(word)).sum::<usize>() >= 5;
            std::iter::repeat_n(is_long, row.len())
        })
        .collect()
}

fn names_secret(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric()).to_ascii_lowercase();
    SECRETS.split(' ').any(|name| word.ends_with(name))
}

/// Whether the word may be an address, a token, or a value with its name.
fn may_be_secret(word: &str) -> bool {
    let core = word.trim_matches(|c: char| !c.is_alphanumeric());
    let count = |is_it: fn(&char) -> bool| core.chars().filter(is_it).count();
    let (letters, digits) = (count(|c| c.is_alphabetic()), count(|c| c.is_numeric()));
    let is_mixed = letters > 0 && digits > 0 && letters + digits >= 8;
    let pairs = core.bytes().zip(core.bytes().skip(1));
    let humps = pairs.filter(|(one, next)| one.is_ascii_lowercase() && next.is_ascii_uppercase());
    core.contains(['@', '=', '?', '%', '+', '~'])
        || core.contains("//")
        || core.matches('/').count() > 1
        || core.matches('.').count() > 1
        || core.len() >= 24
        || is_mixed
        || humps.count() > 2
}

impl Failure {
    pub(crate) fn saying(self, text: Option<&str>) -> Self {
        Self { said: text.and_then(ServiceText::new).map(Box::new), ..self }
    }

    /// The service's own words without those of these texts, if they are to be kept.
    pub(crate) fn said_besides(&self, texts: &[&str]) -> Option<String> {
        Some(self.said.as_ref()?.without(texts)?.0.into_string())
    }

    pub(crate) const MAX_SAID: usize = ServiceText::MAX_BYTES;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Option<String> {
        ServiceText::new(text).map(|said| said.0.into_string())
    }

    #[test]
    fn a_text_keeps_its_words_and_loses_all_that_may_be_a_value_or_a_secret() {
        for (text, kept) in [
            ("Your card has insufficient funds.", "Your card has insufficient funds."),
            ("The customer doesn't exist", "The customer doesn’t exist"),
            ("Limit 100 of 250 is used", "Limit 100 of 250 is used"),
            ("mail ann@example.com bounced", "mail … bounced"),
            ("see https://x.example/a?token=1 now", "see … now"),
            ("at x.example/a?t=1 now", "at … now"),
            ("no route to 10.1.2.3 from here", "no route to … from here"),
            ("call +49 30 123 45 back", "call … back"),
            ("card 4242 4242 4242 4242 declined", "card … declined"),
            ("order 20261129 is unknown", "order … is unknown"),
            ("id 6f1c7a9e-11d2 is gone", "id … is gone"),
            ("Invalid API key sk_live_abc given", "Invalid API key … given"),
            ("Bearer abc is expired", "Bearer … is expired"),
            ("wrong password: hunter for it", "wrong password: … for it"),
            ("secret=abc is wrong", "… is wrong"),
            ("got aBcDeFgHiJkL here", "got … here"),
            ("got abcdefghijklmnopqrstuvwxyz here", "got … here"),
            ("field \"Ann Miller\" is too long", "field … is too long"),
            ("field 'Ann' and `Bob` clash", "field … and … clash"),
            ("name “Ann” is taken", "name … is taken"),
            ("value \"Ann is cut", "value …"),
            ("cannot parse {\"name\":\"Ann\"}", "cannot parse"),
            ("a\u{1b}[31mb", "a"),
            ("one\r\n\ttwo\u{202e}three", "one two three"),
        ] {
            assert_eq!(said(text).as_deref(), Some(kept), "{text}");
        }
        for nothing in ["", "…", "12345", "ann@example.com", "{\"a\":1}", "<html>no</html>"] {
            assert_eq!(said(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_text_has_at_most_256_bytes_and_no_character_that_json_escapes() {
        for text in ["é ".repeat(2_000), "word ".repeat(2_000), "a\\b \" ".repeat(900)] {
            let kept = said(&text).expect("some words");
            assert!(kept.len() <= ServiceText::MAX_BYTES, "{kept}");
            assert_eq!(serde_json::to_string(&kept).expect("a text").len(), kept.len() + 2);
        }
    }

    #[test]
    fn words_of_the_message_are_left_out_however_its_body_writes_them() {
        let body = r#"{"customer":"Zoë Li","note":"Caf\u00e9 Noir","amount":77}"#;
        for (text, kept) in [
            ("customer Zoë Li has no credit", Some("… has no credit")),
            ("ZOË has no credit", Some("… has no credit")),
            ("no table at Café Noir, sorry", Some("no table at … sorry")),
            ("li is no name of ours", Some("li is no name of ours")),
            ("Zoë Li", None),
        ] {
            let failure = Failure::temporary("x").saying(Some(text));
            assert_eq!(failure.said_besides(&[body, "attribute"]).as_deref(), kept, "{text}");
        }
        assert_eq!(Failure::temporary("x").said_besides(&[body]), None);
    }
}
