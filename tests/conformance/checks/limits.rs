//! Limits of a message.

use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::MessageAttributeValue;

use super::messages::{text, with_trace};
use crate::bench::{Bench, Check, Observed, check, outcome};

pub(crate) fn checks() -> Vec<Check> {
    vec![
        check("an empty body is refused", "MissingParameter", |b| async move {
            Ok(outcome(b.queue(&[]).await?.send("").await))
        }),
        check(
            "a body holds the characters of XML and no others",
            "tab, line and emoji: ok, 0001: InvalidMessageContents, FFFE: InvalidMessageContents, DEL: ok",
            |b| async move {
                let queue = b.queue(&[]).await?;
                Ok(format!(
                    "tab, line and emoji: {}, 0001: {}, FFFE: {}, DEL: {}",
                    outcome(queue.send("\t\r\n😀\u{fffd}").await),
                    outcome(queue.send("\u{1}").await),
                    outcome(queue.send("\u{fffe}").await),
                    outcome(queue.send("\u{7f}").await),
                ))
            },
        ),
        check(
            "a message has at most 1 MiB",
            "1048576: ok, 1048577: InvalidParameterValue",
            |b| async move {
                let queue = b.queue(&[]).await?;
                Ok(format!(
                    "1048576: {}, 1048577: {}",
                    outcome(queue.send(&"x".repeat(1_048_576)).await),
                    outcome(queue.send(&"x".repeat(1_048_577)).await)
                ))
            },
        ),
        check(
            "names, types and values of attributes count",
            "1024: ok, 1025: InvalidParameterValue",
            |b| async move {
                let queue = b.queue(&[("MaximumMessageSize", "1024")]).await?;
                // One byte of name, six of type, and three of value.
                let send = async |bytes: usize| {
                    let body = "x".repeat(bytes - 10);
                    outcome(
                        queue
                            .send_with(&body, |m| m.message_attributes("a", text("String", "abc")))
                            .await,
                    )
                };
                Ok(format!("1024: {}, 1025: {}", send(1_024).await, send(1_025).await))
            },
        ),
        check("a trace header counts nothing", "ok", |b| async move {
            let queue = b.queue(&[("MaximumMessageSize", "1024")]).await?;
            Ok(outcome(with_trace(&queue, &"x".repeat(1_024), "Root=1-5-a").await))
        }),
        check(
            "a message has at most ten attributes",
            "10: ok, 11: InvalidParameterValue",
            |b| async move {
                let queue = b.queue(&[]).await?;
                let send = async |count: usize| {
                    let attributes =
                        (0..count).map(|n| (format!("a{n}"), text("String", "x"))).collect();
                    outcome(
                        queue.send_with("x", |m| m.set_message_attributes(Some(attributes))).await,
                    )
                };
                Ok(format!("10: {}, 11: {}", send(10).await, send(11).await))
            },
        ),
        check(
            "a number is a number",
            "12: ok, -1.5e3: ok, abc: InvalidParameterValue, 39 digits: InvalidParameterValue",
            |b| async move {
                let mut seen = Vec::new();
                let many = "1".repeat(39);
                for (what, value) in [
                    ("12", "12"),
                    ("-1.5e3", "-1.5e3"),
                    ("abc", "abc"),
                    ("39 digits", many.as_str()),
                ] {
                    seen.push(format!(
                        "{what}: {}",
                        with_attribute(&b, "n", text("Number", value)).await?
                    ));
                }
                Ok(seen.join(", "))
            },
        ),
        check(
            "a value is not empty",
            "String: InvalidParameterValue, Number: InvalidParameterValue, Binary: InvalidParameterValue",
            |b| async move {
                let binary = MessageAttributeValue::builder()
                    .data_type("Binary")
                    .binary_value(Blob::new([]));
                Ok(format!(
                    "String: {}, Number: {}, Binary: {}",
                    with_attribute(&b, "a", text("String", "")).await?,
                    with_attribute(&b, "a", text("Number", "")).await?,
                    with_attribute(&b, "a", binary.build().expect("a type")).await?,
                ))
            },
        ),
        check(
            "the name of an attribute follows the rules",
            "AWS.x: InvalidParameterValue, amazon.x: InvalidParameterValue, .a: InvalidParameterValue, a.: InvalidParameterValue, a..b: InvalidParameterValue, a b: InvalidParameterValue, a-b_c.d: ok, 256: ok, 257: InvalidParameterValue",
            |b| async move {
                let mut seen = Vec::new();
                let long = "x".repeat(257);
                let names = ["AWS.x", "amazon.x", ".a", "a.", "a..b", "a b", "a-b_c.d"]
                    .map(|name| (name, name));
                for (what, name) in
                    names.into_iter().chain([("256", &long[..256]), ("257", &long[..257])])
                {
                    seen.push(format!(
                        "{what}: {}",
                        with_attribute(&b, name, text("String", "x")).await?
                    ));
                }
                Ok(seen.join(", "))
            },
        ),
        check(
            "a type is String, Number or Binary",
            "Text: InvalidParameterValue, none: InvalidParameterValue",
            |b| async move {
                Ok(format!(
                    "Text: {}, none: {}",
                    with_attribute(&b, "a", text("Text", "x")).await?,
                    with_attribute(&b, "a", text("", "x")).await?,
                ))
            },
        ),
        check(
            "a value holds the characters of XML and no others",
            "InvalidMessageContents",
            |b| async move { with_attribute(&b, "a", text("String", "\u{1}")).await },
        ),
        check(
            "a delay is 0 to 900 seconds",
            "-1: InvalidParameterValue, 0: ok, 900: ok, 901: InvalidParameterValue",
            |b| async move {
                let queue = b.queue(&[]).await?;
                let mut seen = Vec::new();
                for secs in [-1, 0, 900, 901] {
                    seen.push(format!(
                        "{secs}: {}",
                        outcome(queue.send_with("x", |m| m.delay_seconds(secs)).await)
                    ));
                }
                Ok(seen.join(", "))
            },
        ),
    ]
}

async fn with_attribute(bench: &Bench, name: &str, value: MessageAttributeValue) -> Observed {
    let queue = bench.queue(&[]).await?;
    Ok(outcome(queue.send_with("x", |m| m.message_attributes(name, value)).await))
}
