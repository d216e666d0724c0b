//! Any text as an address, of a target or of a queue: `tests/fuzz address`.

use requeue::queue::{QueueArn, QueueUrl};

use super::*;

#[test]
fn any_address_is_refused_or_says_where_it_leads_and_no_more() {
    bolero::check!(name = "address").with_iterations(1_000).for_each(|input: &[u8]| {
        let text = String::from_utf8_lossy(input);
        if let Ok(url) = TargetUrl::parse_with(&text, TargetRules::default().allow_http()) {
            assert_shown_without_secrets(&url, &text);
        }
        if let Ok(arn) = text.parse::<QueueArn>() {
            assert_eq!(arn.to_string(), text);
            assert_eq!(arn.is_fifo(), text.ends_with(".fifo"));
            assert!(arn.url().starts_with(&format!("https://sqs.{}.", arn.region())));
            // A region has neither points nor upper case.
            let is_region = |byte: u8| byte.is_ascii_lowercase() || b"-0123456789".contains(&byte);
            if let Ok(url) = arn.url().parse::<QueueUrl>()
                && arn.region().bytes().all(is_region)
            {
                let read = url.arn("elsewhere", "elsewhere");
                assert_eq!((read.region(), read.url_at("")), (arn.region(), arn.url_at("")));
                assert!(url.is_at_aws());
            }
        }
        if let Ok(url) = text.parse::<QueueUrl>() {
            let arn = url.arn("aws", "eu-west-1");
            let path = arn.url_at("");
            let text = text.strip_suffix('/').unwrap_or(&text);
            assert!(text.ends_with(&path) && path.matches('/').count() == 2, "{text:?}");
        }
    });
}

fn assert_shown_without_secrets(url: &TargetUrl, text: &str) {
    let shown = url.to_string();
    let (_, rest) = shown.split_once("://").expect("a scheme");
    let (authority, path) = rest.split_once('/').expect("a path");
    assert!(path.is_empty() || path == "…", "{shown}");
    assert!(authority.starts_with(url.host()) && !authority.contains('@'), "{shown}");
    assert!(url.port() > 0);
    assert_eq!(format!("{url:?}"), format!("TargetUrl({shown})"));
    let is_here = |host: &str| {
        host.eq_ignore_ascii_case("localhost") || host.starts_with("127.") || host.starts_with('[')
    };
    let is_number = url.host().bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    assert!(
        !is_number || url.host().split('.').count() == 4 && !url.host().starts_with("169.254."),
        "{shown}"
    );
    match TargetUrl::parse(text) {
        Ok(strict) => assert!(
            strict.to_string() == shown && (url.is_https() || is_here(url.host())),
            "{shown}"
        ),
        Err(error) => assert!(error == TargetUrlError::Insecure && !url.is_https(), "{shown}"),
    }
}
