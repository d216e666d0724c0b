//! The trace of a message, in the form of W3C Trace Context: its own attribute, or else the header
//! that SQS has kept for X-Ray.

use std::fmt::Write;

use crate::queue::Attribute;

/// The attributes and headers in which OpenTelemetry carries the context.
pub(crate) const TRACEPARENT: &str = "traceparent";
pub(crate) const TRACESTATE: &str = "tracestate";

/// The `traceparent` in an attribute, if it is well-formed:
/// `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`.
///
/// Source: W3C Trace Context, "traceparent header field values". A part that a later version
/// appends is kept.
pub(crate) fn of_attribute(attribute: &Attribute) -> Option<&str> {
    attribute.as_text().filter(|text| is_traceparent(text))
}

pub(crate) fn is_traceparent(text: &str) -> bool {
    let mut parts = text.splitn(4, '-');
    let [version, trace, parent, rest] = [(); 4].map(|()| parts.next().unwrap_or_default());
    let Some((flags, more)) = rest.split_at_checked(2) else { return false };
    let ends = match version {
        "00" => more.is_empty(),
        _ => more.is_empty() || more.starts_with('-'),
    };
    let fits = is_hex(version, 2)
        && version != "ff"
        && is_id(trace, 32)
        && is_id(parent, 16)
        && is_hex(flags, 2);
    fits && ends && text.len() <= MAX_LEN
}

/// The longest value that is passed on.
const MAX_LEN: usize = 512;

/// The `traceparent` of X-Ray's header:
/// `Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1`.
///
/// Source: X-Ray developer guide, "Tracing header"; an X-Ray trace id is a W3C trace id with
/// hyphens after its version and its time.
pub(crate) fn of_header(header: &str) -> Option<String> {
    let field = |name: &str| {
        header.split(';').find_map(|field| field.trim().strip_prefix(name)?.strip_prefix('='))
    };
    let (time, unique) = field("Root")?.strip_prefix("1-")?.split_once('-')?;
    let parent = field("Parent")?;
    let mut traceparent = String::with_capacity(55);
    let _ = write!(
        traceparent,
        "00-{time}{unique}-{parent}-0{}",
        u8::from(field("Sampled") == Some("1"))
    );
    (is_hex(time, 8) && is_id(&format!("{time}{unique}"), 32) && is_id(parent, 16))
        .then_some(traceparent)
}

/// The inverse of [`of_header`].
pub(crate) fn to_header(traceparent: &str) -> Option<String> {
    let mut parts = traceparent.splitn(4, '-').skip(1);
    let [trace, parent, flags] = [(); 3].map(|()| parts.next().unwrap_or_default());
    let (time, unique) = trace.split_at_checked(8)?;
    let is_sampled = flags.get(..2).and_then(|flags| u8::from_str_radix(flags, 16).ok())? & 1;
    Some(format!("Root=1-{time}-{unique};Parent={parent};Sampled={is_sampled}"))
}

fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// An id of zeros alone is no id.
fn is_id(text: &str, len: usize) -> bool {
    is_hex(text, len) && text.bytes().any(|byte| byte != b'0')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::AttributeValue;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const PARENT: &str = "b7ad6b7169203331";

    #[test]
    fn an_attribute_is_a_context_if_it_is_well_formed() {
        let own = format!("00-{TRACE}-{PARENT}-01");
        for (text, expected) in [
            (own.clone(), true),
            (format!("00-{TRACE}-{PARENT}-00"), true),
            (format!("cc-{TRACE}-{PARENT}-01-what-comes-later"), true),
            (format!("cc-{TRACE}-{PARENT}-01"), true),
            (format!("cc-{TRACE}-{PARENT}-01{}", "-".repeat(457)), true),
            (format!("cc-{TRACE}-{PARENT}-01{}", "-".repeat(458)), false),
            (format!("cc-{TRACE}-{PARENT}-01x"), false),
            (format!("00-{TRACE}-{PARENT}-01-x"), false),
            (format!("ff-{TRACE}-{PARENT}-01"), false),
            (format!("00-{}-{PARENT}-01", "0".repeat(32)), false),
            (format!("00-{TRACE}-{}-01", "0".repeat(16)), false),
            (format!("00-{}-{PARENT}-01", TRACE.to_uppercase()), false),
            (format!("00-{TRACE}-{PARENT}-0"), false),
            (format!("00-{TRACE}-{PARENT}-é"), false),
            (format!("00-{TRACE}-{PARENT}"), false),
            (format!("{own}\r\nX: y"), false),
            (String::new(), false),
        ] {
            let attribute = Attribute {
                data_type: "String".to_owned(),
                value: AttributeValue::Text(text.clone()),
            };
            assert_eq!(of_attribute(&attribute), expected.then_some(text.as_str()), "{text:?}");
        }
        let binary = AttributeValue::Binary(own.into_bytes());
        assert_eq!(
            of_attribute(&Attribute { data_type: "Binary".to_owned(), value: binary }),
            None
        );
    }

    #[test]
    fn the_header_of_x_ray_is_a_context_if_it_names_trace_and_parent() {
        let root = "Root=1-5759e988-bd862e3fe1be46a994272793";
        let trace = "5759e988bd862e3fe1be46a994272793";
        let sampled = format!("00-{trace}-53995c3f42cd8ad8-01");
        let not_sampled = format!("00-{trace}-53995c3f42cd8ad8-00");
        for (header, expected) in [
            (format!("{root};Parent=53995c3f42cd8ad8;Sampled=1"), Some(&sampled)),
            (format!("Sampled=1; Parent=53995c3f42cd8ad8; {root}"), Some(&sampled)),
            (
                format!("{root};Parent=53995c3f42cd8ad8;Sampled=0;Lineage=25:a87bd80c:1"),
                Some(&not_sampled),
            ),
            (format!("{root};Parent=53995c3f42cd8ad8"), Some(&not_sampled)),
            (format!("{root};Parent=53995c3f42cd8ad8;Sampled=?"), Some(&not_sampled)),
            (format!("{root};Sampled=1"), None),
            (format!("{root};Parent=53995C3F42CD8AD8;Sampled=1"), None),
            (format!("{root};Parent=0000000000000000;Sampled=1"), None),
            ("Root=2-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8".to_owned(), None),
            ("Root=1-5759e988b-d862e3fe1be46a994272793;Parent=53995c3f42cd8ad8".to_owned(), None),
            ("Parent=53995c3f42cd8ad8".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(of_header(&header).as_ref(), expected, "{header:?}");
        }
    }
}
