//! Reads the rest of an allowance and its renewal from the headers of a response.

use std::time::{Duration, SystemTime};

use super::{Named, REST, Told, decimal, is_allowance, known_reset, outside_quotes, parameter};
use crate::classify::Response;

/// The most allowances of a response that count. Services name one or two for each period.
const MAX_ALLOWANCES: usize = 8;
/// The words in the name of a header whose allowance counts units instead of calls.
const UNITS: [&str; 5] = ["token", "point", "unit", "credit", "cost"];
/// The words that the names of its limit and its reset have instead of `remaining`.
const LIMITS: [&str; 2] = ["limit", "max"];
const RENEWALS: [&str; 3] = ["reset-after", "reset", "resets-in"];

/// The rest of an allowance of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// The whole of it, if the response names it.
    pub(crate) limit: Option<u64>,
    pub(crate) remaining: u64,
    pub(crate) resets_in: Duration,
    /// Whether it counts units, such as tokens, instead of calls.
    pub(crate) counts_units: bool,
}

/// The allowances that a response names with the time at which each is renewed.
pub(crate) fn allowances(response: &Response<'_>, now: SystemTime) -> Box<[Allowance]> {
    let named = Named::new(response, now);
    let of_header = |header: &(&str, &[u8])| {
        let name = header.0.to_ascii_lowercase();
        // `x-ratelimit-remaining` and `x-rate-limit-remaining` have a limit in their names too.
        let is_rest = name.contains(REST) && is_allowance(&name);
        let remaining = is_rest.then(|| least(header.1))??;
        let values = |word: &str| {
            let name = name.replace(REST, word);
            let values = response.values(&name).map(|value| (known_reset(&name), value));
            values.collect::<Vec<_>>()
        };
        let limit = LIMITS.into_iter().flat_map(values).find_map(|(_, value)| least(value));
        let reset = RENEWALS.into_iter().flat_map(values);
        let resets_in = reset.filter_map(|(name, value)| named.longest(name, value)).max()?;
        let counts_units = UNITS.iter().any(|word| name.contains(word));
        Some(Allowance { limit, remaining, resets_in, counts_units })
    };
    let of_field = |field: &[u8]| {
        let items = str::from_utf8(field).map(outside_quotes).unwrap_or_default();
        let find = |name| items.iter().find_map(|item| parameter(item, name));
        let older = (find("limit"), find("remaining"), find("reset"));
        let each = items.iter().map(|item| (None, parameter(item, "r"), parameter(item, "t")));
        let read = |(limit, remaining, reset): (Option<Told>, Option<Told>, Option<Told>)| {
            let remaining = amount(remaining?)?;
            let resets_in = reset?.delay(named.reference)?;
            let limit = limit.and_then(amount);
            Some(Allowance { limit, remaining, resets_in, counts_units: false })
        };
        each.chain([older]).filter_map(read).collect::<Vec<_>>()
    };
    let of_headers = response.headers.iter().filter_map(of_header);
    let of_fields = response.values("ratelimit").flat_map(of_field);
    let is_running = |allowance: &Allowance| !allowance.resets_in.is_zero();
    of_headers.chain(of_fields).filter(is_running).take(MAX_ALLOWANCES).collect()
}

fn amount(told: Told) -> Option<u64> {
    if let Told::In(amount) = told { Some(amount.as_secs()) } else { None }
}

/// The least amount of a list that a proxy may have merged, as in `100;w=60, 5`. A negative one is 0.
fn least(list: &[u8]) -> Option<u64> {
    let amounts = str::from_utf8(list).ok()?.split(',').filter_map(|item| {
        let amount = item.split(';').next()?.trim();
        let debt = amount.strip_prefix('-').and_then(decimal);
        debt.map(|_| 0).or_else(|| Some(decimal(amount)?.as_secs()))
    });
    amounts.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit, the rest and the seconds of each allowance of calls, and of units.
    fn read(headers: &[(&str, &str)]) -> Vec<(bool, Option<u64>, u64, u64)> {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        let response = Response { status: 200, headers: &headers, body: b"" };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let all = allowances(&response, now).into_vec().into_iter();
        all.map(|it| (it.counts_units, it.limit, it.remaining, it.resets_in.as_secs())).collect()
    }

    #[test]
    fn the_headers_of_services_name_what_is_left_until_when() {
        const CALLS: bool = false;
        const UNITS: bool = true;
        // GitHub; Okta and X; Discord.
        for (headers, expected) in [
            (
                vec![
                    ("X-RateLimit-Limit", "5000"),
                    ("X-RateLimit-Remaining", "4999"),
                    ("X-RateLimit-Reset", "1800003600"),
                ],
                vec![(CALLS, Some(5_000), 4_999, 3_600)],
            ),
            (
                vec![("x-rate-limit-remaining", "3"), ("x-rate-limit-reset", "1800000060")],
                vec![(CALLS, None, 3, 60)],
            ),
            (
                vec![("X-RateLimit-Remaining", "4"), ("X-RateLimit-Reset-After", "1.5")],
                vec![(CALLS, None, 4, 1)],
            ),
            // Reddit.
            (
                vec![("X-Ratelimit-Remaining", "595.0"), ("X-Ratelimit-Reset", "60")],
                vec![(CALLS, None, 595, 60)],
            ),
            // OpenAI.
            (
                vec![
                    ("x-ratelimit-limit-requests", "60"),
                    ("x-ratelimit-remaining-requests", "59"),
                    ("x-ratelimit-reset-requests", "1s"),
                    ("x-ratelimit-limit-tokens", "150000"),
                    ("x-ratelimit-remaining-tokens", "149984"),
                    ("x-ratelimit-reset-tokens", "6m0s"),
                ],
                vec![(CALLS, Some(60), 59, 1), (UNITS, Some(150_000), 149_984, 360)],
            ),
            // Anthropic.
            (
                vec![
                    ("anthropic-ratelimit-requests-limit", "50"),
                    ("anthropic-ratelimit-requests-remaining", "49"),
                    ("anthropic-ratelimit-requests-reset", "2027-01-15T08:00:30Z"),
                ],
                vec![(CALLS, Some(50), 49, 30)],
            ),
            (
                vec![("RateLimit", r#""minute";r=50;t=30, "day, of all";r=9;t=7200"#)],
                vec![(CALLS, None, 50, 30), (CALLS, None, 9, 7_200)],
            ),
            (
                vec![("RateLimit", "limit=100, remaining=20, reset=30")],
                vec![(CALLS, Some(100), 20, 30)],
            ),
            (
                vec![
                    ("RateLimit-Limit", "100, 100;w=60"),
                    ("RateLimit-Remaining", "20"),
                    ("RateLimit-Reset", "30"),
                ],
                vec![(CALLS, Some(100), 20, 30)],
            ),
            (
                vec![("x-ratelimit-remaining", "-1"), ("x-ratelimit-reset", "9")],
                vec![(CALLS, None, 0, 9)],
            ),
            // A reset is missing, is over, or names a time that nobody can mean.
            (vec![("X-HubSpot-RateLimit-Remaining", "7")], vec![]),
            (vec![("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", "0")], vec![]),
            (vec![("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", "1000000000")], vec![]),
            (vec![("x-ratelimit-remaining", "many"), ("x-ratelimit-reset", "9")], vec![]),
        ] {
            assert_eq!(read(&headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn a_response_names_a_bounded_number_of_allowances() {
        let headers = [("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", "9")];
        assert_eq!(read(&headers.repeat(100)).len(), MAX_ALLOWANCES);
    }
}
