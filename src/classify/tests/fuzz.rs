//! Any answer, and any words: `tests/fuzz answer words`.

use jiff::civil::DateTime;
use serde_json::Value;

use super::*;
use crate::policy::{History, RetryPolicy};

/// No named delay is longer.
const LONGEST: Duration = retry_after::time::LONGEST;
const HOUR: Duration = Duration::from_hours(1);
/// The relatives of `Retry-After`.
const MILLIS: [&str; 3] = ["x-amz-retry-after", "retry-after-ms", "x-ms-retry-after-ms"];

/// Written as on the wire, but for the first line: `429 1700000000` is the status, and the time in
/// seconds since the epoch.
struct Told {
    status: u16,
    now: SystemTime,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl Told {
    fn read(input: &[u8]) -> Self {
        const YEAR_9000: u64 = 221_845_392_000;
        let mut lines = input.split(|byte| *byte == b'\n');
        let first = String::from_utf8_lossy(lines.next().unwrap_or_default());
        let mut numbers = first.split(' ').map(|word| word.parse::<u64>().ok());
        let status =
            numbers.next().flatten().and_then(|status| u16::try_from(status).ok()).unwrap_or(429);
        let seconds = numbers.next().flatten().unwrap_or(1_700_000_000) % YEAR_9000;
        let headers = lines.by_ref().take_while(|line| !line.is_empty()).map(|line| {
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
            (
                String::from_utf8_lossy(&line[..colon]).into_owned(),
                line.get(colon + 1..).unwrap_or_default().to_vec(),
            )
        });
        let headers = headers.collect();
        let body = lines.collect::<Vec<_>>().join(&b'\n');
        Self { status, now: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds), headers, body }
    }

    fn with_answer<T>(&self, use_it: impl FnOnce(&Response<'_>) -> T) -> T {
        let headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        use_it(&Response { status: self.status, headers: &headers, body: &self.body })
    }

    fn judge(&self) -> Failure {
        self.with_answer(|answer| Failure::from_response(answer, self.now))
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let same = self.headers.iter().filter(move |(other, _)| other.to_ascii_lowercase() == name);
        same.filter_map(|(_, value)| str::from_utf8(value.trim_ascii()).ok())
    }
}

#[test]
fn any_answer_is_classified_and_what_it_names_is_bounded() {
    bolero::check!(name = "answer").with_iterations(1_000).for_each(|input: &[u8]| {
        let told = Told::read(input);
        let failure = told.judge();
        assert!(failure.is_postponed() || failure.evidence() == Evidence::Typed);
        // All reasons stand in our tables: nothing of the answer is repeated but a code of at most
        // 64 characters.
        let is_plain = |c: char| matches!(c, ' '..='~');
        assert!(
            failure.detail().len() <= 192 && failure.detail().chars().all(is_plain),
            "{:?}",
            failure.detail()
        );
        assert_waited(&failure, told.now);
        assert_same_however_written(&told, &failure);
        assert_time_passes(&told);
        told.with_answer(|answer| {
            let named = retry_after::Named::new(answer, told.now);
            let _ = named.in_message(&String::from_utf8_lossy(input));
            let found = named.retry_after();
            let mut millis = MILLIS.iter().flat_map(|name| told.values(name));
            if told.values("retry-after").all(is_plain_form)
                && !millis.any(|value| value.contains([',', '"']))
            {
                assert_eq!(found, slow_retry_after(&told), "{:?}", told.headers);
            }
        });
    });
}

/// The policy bounds what is named, and cuts nothing off it.
fn assert_waited(failure: &Failure, now: SystemTime) {
    for policy in [RetryPolicy::standard(), RetryPolicy::high_volume(), RetryPolicy::critical()] {
        for sample in [0.0, 0.999] {
            let wait = policy.decide(&History::starting(now), failure, now, sample).wait();
            let Some(wait) = wait else { continue };
            assert!(wait.delay().as_secs() <= 900);
            match failure.delay() {
                Some(named) => {
                    let least = named.min(policy.max_retry_after);
                    assert!(
                        (least..=least + Duration::from_secs(61)).contains(&wait.total()),
                        "{named:?} {wait:?}"
                    );
                }
                None => assert!(wait.total() <= Duration::from_mins(10), "{wait:?}"),
            }
        }
    }
}

/// Neither the case of names, nor space around values, nor how its JSON is laid out says anything.
fn assert_same_however_written(told: &Told, failure: &Failure) {
    let body = match serde_json::from_slice::<Value>(&told.body) {
        // This name has a meaning of its own for `Value`.
        Ok(value) if !String::from_utf8_lossy(&told.body).contains("$serde_json::private") => {
            value.to_string().into()
        }
        _ => told.body.clone(),
    };
    let headers = told.headers.iter().map(|(name, value)| {
        let spaced = [b" \t", &**value, b" "].concat();
        (name.to_ascii_uppercase(), spaced)
    });
    let again = Told { headers: headers.collect(), body, ..*told };
    assert_eq!(again.judge(), *failure);
}

/// An hour later the time that an answer names is an hour nearer, or it was too far away or is past
/// by now; and a delay is the same.
fn assert_time_passes(told: &Told) {
    let readers: [fn(&Response<'_>, SystemTime) -> Option<Duration>; 2] = [
        |answer, now| retry_after::Named::new(answer, now).retry_after(),
        |answer, now| retry_after::Named::new(answer, now).reset(),
    ];
    for read in readers {
        let [now, later] =
            [told.now, told.now + HOUR].map(|now| told.with_answer(|answer| read(answer, now)));
        // Another of several headers may be the one that counts.
        let is_one_header = told.headers.len() <= 1;
        match (now, later) {
            (Some(now), Some(later)) if is_one_header => {
                assert!(now <= LONGEST && later <= now);
                assert!(later >= now.saturating_sub(HOUR), "{now:?} {later:?}");
            }
            (Some(now), None) if is_one_header => assert!(now.is_zero(), "{now:?} is gone"),
            (None, Some(later)) if is_one_header => {
                assert!(later > LONGEST.saturating_sub(HOUR * 2), "{later:?}");
            }
            _ => {}
        }
        if let (true, Some(now), Some(later)) =
            (told.values("date").any(|date| slow_date(date).is_some()), now, later)
        {
            assert_eq!(now, later, "the server's clock counts");
        }
    }
}

/// Whether it is one of the forms of RFC 9110, and names neither a time since the epoch by a number
/// nor nothing.
fn is_plain_form(value: &str) -> bool {
    slow_date(value).is_some() || (value.len() < 10 && slow_number(value).is_some())
}

/// The first `Retry-After` that is one, else the first number of milliseconds.
fn slow_retry_after(told: &Told) -> Option<Duration> {
    let reference = told.values("date").find_map(slow_date).unwrap_or(told.now);
    let seconds = |value: &str| {
        let named = if let Some(seconds) = slow_number(value) {
            Duration::from_secs_f64(seconds)
        } else {
            let date = slow_date(value)?;
            let is_near = date + Duration::from_hours(24) >= reference;
            is_near.then(|| date.duration_since(reference).unwrap_or_default())?
        };
        Some(named).filter(|named| *named <= LONGEST)
    };
    let millis = |value: &str| {
        let millis = value.parse::<u128>().ok().filter(|_| slow_number(value).is_some());
        let millis = millis.or_else(|| slow_number(value).map(|_| u128::MAX))?;
        Some(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)))
            .filter(|named| *named <= LONGEST)
    };
    let in_millis = || MILLIS.iter().flat_map(|name| told.values(name)).find_map(millis);
    told.values("retry-after").find_map(seconds).or_else(in_millis)
}

fn slow_number(value: &str) -> Option<f64> {
    value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok())?
}

/// The three forms of RFC 9110, the last one also with a zero, as jiff reads them and then prints
/// them again: it reads others as well.
fn slow_date(value: &str) -> Option<SystemTime> {
    let value = value.trim();
    let zoned = ["UTC", "+0000"].iter().find_map(|zone| value.strip_suffix(zone));
    let zoned = zoned.map(|date| format!("{date}GMT"));
    let value = zoned.as_deref().unwrap_or(value);
    let two_digits =
        value.get(..value.len().checked_sub(15)?)?.split_once('-').map(|_| value.len() - 15);
    let with_century = two_digits.and_then(|at| {
        let (head, tail) = (value.get(..at)?, value.get(at..)?);
        let (year, time) = (tail.get(..2)?, tail.get(3..)?);
        // What stands between year and time is not looked at by httpdate.
        Some(format!("{head}{}{year} {time}", if year.parse::<u32>().ok()? < 70 { 20 } else { 19 }))
    });
    let forms = [
        (Some(value), "%a, %d %b %Y %H:%M:%S GMT"),
        (with_century.as_deref(), "%A, %d-%b-%Y %H:%M:%S GMT"),
        (Some(value), "%a %b %e %H:%M:%S %Y"),
        (Some(value), "%a %b %d %H:%M:%S %Y"),
    ];
    let date = forms.into_iter().find_map(|(text, form)| {
        let date = DateTime::strptime(form, text?).ok()?;
        (date.strftime(form).to_string() == text? && date.year() >= 1970).then_some(date)
    })?;
    let since_epoch = date.duration_since(jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0));
    Some(SystemTime::UNIX_EPOCH + Duration::try_from(since_epoch).ok()?)
}

#[test]
fn any_words_are_found_in_any_text_where_they_stand_whole() {
    bolero::check!(name = "words").with_iterations(1_000).for_each(|input: &[u8]| {
        let text = String::from_utf8_lossy(input);
        let (phrase, body) = text.split_once('\n').unwrap_or(("not found yet", &text));
        let (wanted, words) = (slow_words(phrase), slow_words(body));
        assert_eq!(text::phrase(phrase), wanted.join(" "));
        if !wanted.is_empty() && body.len() <= 16 * 1024 {
            let found = text::Words::of_body(body.as_bytes()).hold(&wanted.join(" "));
            assert_eq!(
                found,
                words.windows(wanted.len()).any(|window| window == wanted),
                "{wanted:?} {words:?}"
            );
        }
        let failure = Failure::classified(&Wrapped(body.to_owned(), None));
        let is_plain = |c: char| matches!(c, ' '..='~');
        assert!(
            failure.evidence() != Evidence::Text || failure.detail().chars().all(is_plain),
            "{failure:?}"
        );
        // Nothing that follows what is read, and no address, says anything.
        let longer = format!("{body} https://example.com/{}", "too many requests ".repeat(200));
        if body.chars().count() > 2_048 {
            assert_eq!(Failure::classified(&Wrapped(longer, None)), failure);
        }
    });
}

/// Runs of letters and digits, and of points and commas between two digits, in lower case.
fn slow_words(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let is_digit =
        |at: Option<usize>| at.and_then(|at| chars.get(at)).is_some_and(char::is_ascii_digit);
    let mut words = vec![String::new()];
    for (at, c) in chars.iter().enumerate() {
        let within_number =
            matches!(c, '.' | ',') && is_digit(at.checked_sub(1)) && is_digit(Some(at + 1));
        match words.last_mut() {
            Some(word) if c.is_alphanumeric() || within_number => word.push(*c),
            _ => words.push(String::new()),
        }
    }
    words.into_iter().filter(|word| !word.is_empty()).map(|word| word.to_lowercase()).collect()
}
