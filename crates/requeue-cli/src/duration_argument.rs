//! Durations of the command line: `45s`, `10m`, `1h30m`, or a bare number of seconds.

use std::ops::RangeInclusive;
use std::time::Duration;

use requeue::duration_secs;

/// The units of a shown duration, in seconds.
const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

const FORM: &str = "write a duration as in 45s, 10m, 1h30m or 2d; a bare number is seconds";

pub(crate) fn within(
    secs: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let duration = parse(text)?;
        if secs.contains(&duration.as_secs()) {
            return Ok(duration);
        }
        let (least, most) = (shown(*secs.start()), shown(*secs.end()));
        Err(format!("it must be {least} to {most}; {FORM}"))
    }
}

pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let secs = text.parse().ok().or_else(|| duration_secs(text));
    secs.map(Duration::from_secs).ok_or_else(|| FORM.to_owned())
}

/// `1h30m`, in the form that this command line reads.
pub(crate) fn shown(secs: u64) -> String {
    let mut rest = secs;
    let parts = UNITS.into_iter().filter_map(|(unit, length)| {
        let count = rest / length;
        rest %= length;
        (count > 0).then(|| format!("{count}{unit}"))
    });
    let text: String = parts.collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_units_or_is_seconds() {
        for (text, secs) in [
            ("0", Some(0)),
            ("90", Some(90)),
            ("45s", Some(45)),
            ("10m", Some(600)),
            ("1h30m", Some(5_400)),
            ("1h5s", Some(3_605)),
            ("2d", Some(172_800)),
            ("", None),
            ("m", None),
            ("1.5h", None),
            ("-1", None),
            ("30m1h", None),
            ("1m1m", None),
            ("10 m", None),
            ("1h30", None),
            ("5é", None),
            ("99999999999999999999", None),
            ("18446744073709551615m", None),
        ] {
            assert_eq!(parse(text).ok(), secs.map(Duration::from_secs), "{text}");
            let again = secs.map(|secs| parse(&shown(secs)));
            assert_eq!(again.and_then(Result::ok), secs.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn a_bound_and_both_neighbours_are_told_apart() {
        let read = within(1..=900);
        for (text, is_within) in
            [("0", false), ("1s", true), ("899", true), ("15m", true), ("15m1s", false)]
        {
            assert_eq!(read(text).is_ok(), is_within, "{text}");
        }
        assert!(read("20m").expect_err("too long").starts_with("it must be 1s to 15m; write"));
        let days = within(60..=30 * 86_400)("31d").expect_err("too long");
        assert!(days.starts_with("it must be 1m to 30d; write"), "{days}");
        assert_eq!(shown(31 * 86_400 + 3_600), "31d1h");
    }
}
