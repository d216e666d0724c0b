//! GitHub, GitLab, Bitbucket, and the registries of packages and containers.

use super::*;

#[test]
fn github_limits_by_403_and_by_429() {
    const PAGE: &str = "GitHub Docs, Rate limits for the REST API: Exceeding the rate limit";
    const TROUBLE: &str = "GitHub Docs, Troubleshooting the REST API";
    const SECTION: &str = r#"{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
        "documentation_url":"https://docs.github.com/free-pro-team@latest/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}"#;
    const OLDER: &str = r#"{"message":"You have exceeded a secondary rate limit.",
        "documentation_url":"https://docs.github.com/rest/overview/resources-in-the-rest-api#secondary-rate-limits"}"#;
    const OLDEST: &str = r#"{"message":"You have triggered an abuse detection mechanism.",
        "documentation_url":"https://developer.github.com/v3/#abuse-rate-limits"}"#;
    const EXHAUSTED: &str = r#"{"message":"API rate limit exceeded for user ID 1.",
        "documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api"}"#;
    const INTEGRATION: &str = r#"{"message":"Resource not accessible by integration",
        "documentation_url":"https://docs.github.com/rest/issues/issues#create-an-issue"}"#;
    const SAML: &str =
        r#"{"message":"Resource protected by organization SAML enforcement. rate limit exceeded"}"#;
    let left = |left| {
        [
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", left),
            ("x-ratelimit-reset", "1700003000"),
        ]
    };
    let after = &[
        ("x-ratelimit-remaining", "4999"),
        ("x-ratelimit-reset", "1700003000"),
        ("retry-after", "60"),
    ];
    assert_told(&[
        (PAGE, 403, &left("0"), EXHAUSTED, RateLimit, Some(3_000_000)),
        (PAGE, 429, &left("0"), EXHAUSTED, RateLimit, Some(3_000_000)),
        (PAGE, 403, after, SECTION, RateLimit, Some(60_000)),
        (PAGE, 429, after, SECTION, RateLimit, Some(60_000)),
        (PAGE, 403, &left("4999"), SECTION, RateLimit, Some(60_000)),
        (PAGE, 429, &left("4999"), SECTION, RateLimit, Some(60_000)),
        (PAGE, 403, &left("4999"), OLDER, RateLimit, Some(60_000)),
        (PAGE, 403, &left("4999"), OLDEST, RateLimit, Some(60_000)),
        (PAGE, 403, &left("0"), SECTION, RateLimit, Some(3_000_000)),
        (PAGE, 403, &[("retry-after", "soon")], SECTION, RateLimit, Some(60_000)),
        (PAGE, 403, &[("retry-after", "7")], SECTION, RateLimit, Some(7_000)),
        (TROUBLE, 403, &left("4999"), INTEGRATION, NonRetryable, None),
        (TROUBLE, 403, &left("4999"), SAML, NonRetryable, None),
        (TROUBLE, 401, &left("59"), r#"{"message":"Bad credentials"}"#, NonRetryable, None),
        (TROUBLE, 404, &left("0"), r#"{"message":"Not Found"}"#, NonRetryable, None),
        (
            TROUBLE,
            422,
            &left("9"),
            r#"{"message":"Validation Failed","errors":[{"code":"missing_field"}]}"#,
            NonRetryable,
            None,
        ),
        (
            "GitHub Docs, Git database: Get a reference",
            409,
            &left("9"),
            r#"{"message":"Git Repository is empty."}"#,
            NonRetryable,
            None,
        ),
        (TROUBLE, 502, &[], r#"{"message":"Server Error"}"#, Temporary, None),
        (TROUBLE, 504, &[], "<title>Unicorn!</title>", Temporary, None),
    ]);
}

#[test]
fn the_other_hosts_limit_by_429() {
    const GITLAB: &str = "GitLab Docs, User and IP rate limits: Response headers";
    let gitlab = &[
        ("RateLimit-Remaining", "0"),
        ("RateLimit-Reset", "1700000060"),
        ("RateLimit-Name", "throttle_api"),
    ];
    let both =
        &[("RateLimit-Remaining", "0"), ("RateLimit-Reset", "1700000060"), ("Retry-After", "30")];
    let docker = &[
        ("ratelimit-limit", "100;w=21600"),
        ("ratelimit-remaining", "0;w=21600"),
        ("retry-after", "21600"),
    ];
    assert_told(&[
        (GITLAB, 429, gitlab, "Retry later", RateLimit, Some(60_000)),
        (GITLAB, 429, both, "Retry later", RateLimit, Some(30_000)),
        (
            "GitLab Docs, REST API: Status codes",
            409,
            &[],
            r#"{"message":"Conflict"}"#,
            NonRetryable,
            None,
        ),
        (
            "Bitbucket Cloud, API request limits",
            429,
            &[],
            "Rate limit for this resource has been exceeded",
            RateLimit,
            None,
        ),
        (
            "Docker Docs, Pull usage and limits",
            429,
            docker,
            r#"{"errors":[{"code":"TOOMANYREQUESTS"}]}"#,
            RateLimit,
            Some(21_600_000),
        ),
        (
            "crates.io, Data Access Policy",
            403,
            &[],
            "We require that all requests include a User-Agent",
            NonRetryable,
            None,
        ),
    ]);
}

#[test]
#[rustfmt::skip]
fn github_names_a_limit_by_its_text_alone() {
    const TERMS: &str = r#"{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
        "documentation_url":"https://docs.github.com/site-policy/github-terms/github-terms-of-service"}"#;
    assert_told(&[
        ("octokit.net #2466", 403, &[], r#"{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}"#, RateLimit, Some(60_000)),
        ("php-github-api #1070", 403, &[("x-ratelimit-remaining", "4999")], TERMS, RateLimit, Some(60_000)),
        ("GitHub Docs, Rate limits", 403, &[], r#"{"message":"API rate limit exceeded for installation ID 1."}"#, RateLimit, None),
        ("GitHub, older", 403, &[], r#"{"message":"You have triggered an abuse detection mechanism."}"#, RateLimit, Some(60_000)),
        ("cli #4801", 422, &[], r#"{"message":"Validation Failed","errors":[{"resource":"Issue","code":"unprocessable","field":"data","message":"was submitted too quickly"}]}"#, RateLimit, Some(60_000)),
        ("Cloudflare, 1015", 403, &[], "You are being rate limited", RateLimit, None),
        ("Any, a limit of a day", 403, &[], r#"{"message":"API rate limit exceeded: 100 requests per day"}"#, Quota, None),
        ("Any, a card", 422, &[], r#"{"error":{"type":"card_error","message":"API rate limit exceeded"}}"#, NonRetryable, None),
    ]);
}
