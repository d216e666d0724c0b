//! Finds the reply of a mail server in a text. Its numbers look like statuses of HTTP.

/// The first reply in these words: `454 4.7.0 Too many login attempts`, `(550, b'5.1.1 …`. An
/// enhanced code identifies it, and so does the name of SMTP.
pub(super) fn reply<'w>(words: &[&'w str], is_named: bool) -> Option<&'w str> {
    let is_pair = |pair: &&[&str]| {
        is_reply(pair[0]) && is_enhanced(pair[1]) && pair[0].as_bytes()[0] == pair[1].as_bytes()[0]
    };
    let paired = words.windows(2).find(is_pair).map(|pair| pair[0]);
    let is_it = |word: &&&str| is_named && (is_reply(word) || is_enhanced(word));
    paired.or_else(|| words.iter().take(16).find(is_it).copied())
}

/// RFC 5321, 4.2.3, and RFC 4954, 4.7.
fn is_reply(word: &str) -> bool {
    matches!(
        word.parse(),
        Ok(421 | 432 | 450..=455 | 500..=504 | 521 | 523 | 530 | 534 | 535 | 538 | 550..=556)
    )
}

/// RFC 3463: `4.7.0`.
fn is_enhanced(word: &str) -> bool {
    let numbers: Vec<Option<u16>> = word.split('.').map(|number| number.parse().ok()).collect();
    matches!(numbers[..], [Some(4 | 5), Some(_), Some(_)])
}
