//! Durations as people write them.

/// The units, the longest first, in seconds.
const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// The seconds of `45s`, `1h30m` or `2d`: each unit at most once, the longest first.
pub fn duration_secs(text: &str) -> Option<u64> {
    let (mut rest, mut secs, mut units) = (text, 0_u64, &UNITS[..]);
    while !rest.is_empty() {
        let at = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..at].parse().ok()?;
        let unit = rest[at..].chars().next()?;
        let position = units.iter().position(|(name, _)| *name == unit)?;
        secs = secs.checked_add(number.checked_mul(units[position].1)?)?;
        (rest, units) = (&rest[at + 1..], &units[position + 1..]);
    }
    Some(secs).filter(|_| !text.is_empty())
}
