//! Chats, mails, texts and pushes.

use super::*;

#[test]
fn chats_name_their_delays_in_many_ways() {
    const SLACK: &str = "Slack, Rate limits";
    const DISCORD: &str = "Discord Developer Docs, Rate Limits";
    const TELEGRAM: &str = "Telegram Bot API, ResponseParameters";
    const LIMITED: &str =
        r#"{"message":"You are being rate limited.","retry_after":64.57,"global":false}"#;
    const MISSING: &str = r#"{"message":"Missing Access","code":50001}"#;
    let discord = &[
        ("Retry-After", "65"),
        ("X-RateLimit-Remaining", "0"),
        ("X-RateLimit-Reset-After", "64.57"),
    ];
    let fraction = &[("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "1700000060.123")];
    let parameters = r#"{"ok":false,"error_code":429,"description":"retry after 35","parameters":{"retry_after":35}}"#;
    assert_told(&[
        (
            SLACK,
            429,
            &[("Retry-After", "30")],
            r#"{"ok":false,"error":"ratelimited"}"#,
            RateLimit,
            Some(30_000),
        ),
        (SLACK, 403, &[], r#"{"ok":false,"error":"ratelimited"}"#, RateLimit, None),
        ("Slack, Incoming webhooks: errors", 403, &[], "action_prohibited", NonRetryable, None),
        ("Slack, Incoming webhooks: errors", 410, &[], "channel_is_archived", NonRetryable, None),
        (DISCORD, 429, discord, LIMITED, RateLimit, Some(65_000)),
        (DISCORD, 429, fraction, LIMITED, RateLimit, Some(64_570)),
        (DISCORD, 403, &[("X-RateLimit-Remaining", "4")], MISSING, NonRetryable, None),
        (TELEGRAM, 429, &[], parameters, RateLimit, Some(35_000)),
        (
            "Telegram Bot API, Making requests",
            403,
            &[],
            r#"{"ok":false,"error_code":403}"#,
            NonRetryable,
            None,
        ),
    ]);
}

#[test]
fn mails_texts_and_pushes_say_it_by_status() {
    const TWILIO: &str = "Twilio, Error and Warning Dictionary";
    const SENDGRID: &str = "SendGrid, Rate limits";
    const APNS: &str = "Apple, Handling notification responses from APNs";
    let sendgrid = &[("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "1700000010")];
    let apns = |reason: &str| format!(r#"{{"reason":"{reason}"}}"#);
    assert_told(&[
        (
            TWILIO,
            429,
            &[],
            r#"{"code":20429,"message":"Too Many Requests","status":429}"#,
            RateLimit,
            None,
        ),
        (
            TWILIO,
            400,
            &[],
            r#"{"code":21211,"message":"Invalid 'To' Phone Number: 429","status":400}"#,
            NonRetryable,
            None,
        ),
        (
            SENDGRID,
            429,
            sendgrid,
            r#"{"errors":[{"message":"too many requests"}]}"#,
            RateLimit,
            Some(10_000),
        ),
        (SENDGRID, 401, &[], r#"{"errors":[{"message":"Maximum credits exceeded"}]}"#, Quota, None),
        (APNS, 400, &[], &apns("BadDeviceToken"), NonRetryable, None),
        (APNS, 403, &[], &apns("ExpiredProviderToken"), NonRetryable, None),
        (APNS, 410, &[], &apns("Unregistered"), NonRetryable, None),
        (APNS, 413, &[], &apns("PayloadTooLarge"), NonRetryable, None),
        (APNS, 429, &[], &apns("TooManyRequests"), RateLimit, None),
        (APNS, 500, &[], &apns("InternalServerError"), Temporary, None),
        (APNS, 503, &[], &apns("Shutdown"), Temporary, None),
        (
            "Standard Webhooks, Responding to webhooks",
            410,
            &[("Retry-After", "5")],
            "",
            NonRetryable,
            None,
        ),
        (
            "Standard Webhooks, Responding to webhooks",
            502,
            &[("Retry-After", "5")],
            "",
            Temporary,
            Some(5_000),
        ),
    ]);
}
