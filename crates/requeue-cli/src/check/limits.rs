//! The rate limits of a policy, as `requeue check` shows them.

use std::time::Duration;

use requeue::policy::{FairShares, MessageKey, RateLimit, RetryPolicy};

use crate::table::{counted, span, thousands};

pub(super) fn rate_limits(policy: &RetryPolicy) -> String {
    let line = |each: &str,
                limit: &RateLimit,
                units: Option<&MessageKey>,
                burst: u32,
                more: &str| {
        let RateLimit { limit: calls, period, max_reservation, headers, .. } = *limit;
        let follows = if headers { "; headers of responses lower the limit" } else { "" };
        let what = units.map_or_else(
            || counted(calls, "call"),
            |at| format!("{} of {}", counted(calls, "unit"), place(at)),
        );
        format!(
            "rate limit{each}: {what} in {0}, and a burst of {4}: at most {1}{2} in any {0}; for \
             each scope; without REQUEUE_TABLE, in each execution environment; a copy waits inside \
             the function for at most {3}{follows}{more}\n",
            // A period of 1.1 s must not look like one of 1 s.
            if period > Duration::from_secs(1) && period.subsec_nanos() > 0 {
                format!("{} s", period.as_secs_f64())
            } else {
                span(period)
            },
            thousands(u64::from(calls) + u64::from(burst)),
            if units.is_some() { " and the last call" } else { "" },
            span(max_reservation),
            thousands(burst),
        )
    };
    let total = policy.limit.map(|limit| {
        let adaptive = if limit.adaptive {
            "; refused calls lower the limit, to a tenth at least"
        } else {
            ""
        };
        let shares = policy.fair_shares.as_ref().map_or_else(String::new, shares);
        line("", &limit, policy.units.as_ref(), limit.burst, &format!("{adaptive}{shares}"))
    });
    let keys = policy.key_limits.iter().enumerate().map(|(at, key)| {
        let (each, limit) = (format!(" of each {}", place(&key.key)), &key.limit);
        let later = policy.key_limits[at + 1..].iter().map(|key| &key.limit).chain(&policy.limit);
        let least = limit.together(later).saturating_add(1);
        let more = if least > limit.burst {
            format!("; the burst is {}, since calls wait for other limits too", thousands(least))
        } else {
            String::new()
        };
        line(&each, limit, key.units.as_ref(), limit.burst.max(least), &more)
    });
    total.into_iter().chain(keys).collect()
}

/// `; shared fairly by /tenant, with 2 weights; …`
fn shares(shares: &FairShares) -> String {
    let weights = match shares.weights.len() {
        0 => String::new(),
        count => format!(", with {}", counted(count, "weight")),
    };
    let by = place(&shares.by);
    format!("; shared fairly by {by}{weights}; a function needs REQUEUE_RECURSIVE_LOOP=Allow")
}

fn place(key: &MessageKey) -> String {
    match key {
        MessageKey::Attribute(name) => format!("attribute {name}"),
        key => key.to_string(),
    }
}
