//! The rules that a message must obey to be accepted. Pure.

use super::error::SqsError;
use super::limits;
use super::message::Draft;
use super::settings::Settings;
use requeue_sqs::{Attribute, AttributeValue};

pub(crate) fn draft(draft: &Draft, settings: &Settings) -> Result<(), SqsError> {
    if draft.body.is_empty() {
        return Err(SqsError::missing("MessageBody"));
    }
    characters(&draft.body)?;
    attributes(draft)?;
    let limit = settings.number("MaximumMessageSize");
    if draft.size() as u64 > limit {
        return Err(SqsError::invalid(format!(
            "One or more parameters are invalid. Reason: Message must be shorter than {limit} \
             bytes."
        )));
    }
    if let Some(group) = &draft.group {
        identifier(group, "MessageGroupId")?;
    }
    if let Some(id) = &draft.deduplication {
        identifier(id, "MessageDeduplicationId")?;
    }
    if settings.is_fifo() { fifo_rules(draft, settings) } else { standard_rules(draft) }
}

/// Whether each of these messages, one or a batch, has the ids that a FIFO queue needs.
pub(crate) fn ids<'d>(
    drafts: impl Iterator<Item = &'d Draft> + Clone,
    settings: &Settings,
) -> Result<(), SqsError> {
    if !settings.is_fifo() {
        return Ok(());
    }
    if drafts.clone().any(|draft| draft.group.is_none()) {
        return Err(SqsError::missing("MessageGroupId"));
    }
    let lacks_deduplication = drafts.into_iter().any(|draft| draft.deduplication.is_none());
    if lacks_deduplication && settings.is("ContentBasedDeduplication", "false") {
        return Err(SqsError::invalid(
            "The queue should either have ContentBasedDeduplication enabled or \
             MessageDeduplicationId provided explicitly",
        ));
    }
    Ok(())
}

/// Whether a number of a request is within its bounds.
pub(crate) fn bounds(
    value: i64,
    parameter: &str,
    range: &std::ops::RangeInclusive<u64>,
) -> Result<u64, SqsError> {
    u64::try_from(value).ok().filter(|value| range.contains(value)).ok_or_else(|| {
        let (low, high) = (range.start(), range.end());
        SqsError::invalid_value(
            value,
            parameter,
            format!("{parameter} must be >= {low} and <= {high}."),
        )
    })
}

/// The same for a number that a request may leave out.
pub(crate) fn bounds_or(
    default: u64,
    value: Option<i64>,
    parameter: &str,
    range: &std::ops::RangeInclusive<u64>,
) -> Result<u64, SqsError> {
    value.map_or(Ok(default), |value| bounds(value, parameter, range))
}

/// The characters that XML 1.0 can hold. Source: reference, `SendMessage`.
fn characters(text: &str) -> Result<(), SqsError> {
    let legal = |c: char| {
        let is_space = matches!(c, '\u{9}' | '\u{A}' | '\u{D}');
        is_space || (c >= ' ' && !matches!(c, '\u{FFFE}' | '\u{FFFF}'))
    };
    if text.chars().all(legal) {
        return Ok(());
    }
    Err(SqsError::new(
        "InvalidMessageContents",
        "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | \
         #xE000 to #xFFFD | #x10000 to #x10FFFF.",
    ))
}

fn attributes(draft: &Draft) -> Result<(), SqsError> {
    let count = draft.attributes.len();
    if count > limits::ATTRIBUTES {
        return Err(SqsError::invalid(format!(
            "Number of message attributes [{count}] exceeds the allowed maximum [{}].",
            limits::ATTRIBUTES
        )));
    }
    draft.attributes.iter().try_for_each(|(name, attribute)| {
        attribute_name(name).and_then(|()| attribute_value(name, attribute))
    })
}

fn attribute_name(name: &str) -> Result<(), SqsError> {
    let lower = name.to_ascii_lowercase();
    // AWS was seen to accept letters beyond ASCII, which its documents do not name.
    let refused = if !(1..=limits::ATTRIBUTE_NAME_CHARS).contains(&name.chars().count()) {
        Some("Message (user) attribute name must be between 1 and 256 characters long.")
    } else if lower.starts_with("aws.") || lower.starts_with("amazon.") {
        Some(
            "Message (user) attribute names starting with 'AWS.' or 'Amazon.' are reserved for use \
             by Amazon.",
        )
    } else if name.starts_with('.') || name.ends_with('.') || name.contains("..") {
        Some("Message (user) attribute name can not start or end with '.', or hold successive '.'.")
    } else if !name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.')) {
        Some(
            "Message (user) attribute name can only contain A-Z, a-z, 0-9, underscore (_), hyphen \
             (-), and period (.).",
        )
    } else {
        None
    };
    refused.map_or(Ok(()), |reason| Err(SqsError::invalid(reason)))
}

fn attribute_value(name: &str, attribute: &Attribute) -> Result<(), SqsError> {
    let data_type = attribute.data_type.as_str();
    let kind = data_type.split('.').next().unwrap_or_default();
    if data_type.chars().count() > limits::ATTRIBUTE_NAME_CHARS {
        return Err(SqsError::invalid(
            "Message (user) attribute type must be at most 256 characters long.",
        ));
    }
    match (kind, &attribute.value) {
        ("String" | "Number", AttributeValue::Text(text)) if text.is_empty() => {
            Err(empty(name, kind))
        }
        ("Binary", AttributeValue::Binary(bytes)) if bytes.is_empty() => Err(empty(name, kind)),
        ("String", AttributeValue::Text(text)) => characters(text),
        ("Number", AttributeValue::Text(text)) if is_number(text) => Ok(()),
        ("Number", AttributeValue::Text(_)) => Err(SqsError::invalid(format!(
            "Can't cast the value of message (user) attribute '{name}' to a number."
        ))),
        ("Binary", AttributeValue::Binary(_)) => Ok(()),
        ("String" | "Number" | "Binary", _) => Err(SqsError::invalid(format!(
            "The message (user) attribute '{name}' with type '{kind}' must use the field that \
             belongs to its type."
        ))),
        _ => Err(SqsError::invalid(format!(
            "The type of message (user) attribute '{name}' is invalid. You must use only the \
             following supported type prefixes: Binary, Number, String."
        ))),
    }
}

fn empty(name: &str, kind: &str) -> SqsError {
    SqsError::invalid(format!(
        "Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'."
    ))
}

/// Digits with an optional sign, fraction and exponent, of at most 38 significant digits.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => {
            (mantissa, exponent.strip_prefix(['+', '-']).unwrap_or(exponent))
        }
        None => (unsigned, "0"),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let significant = format!("{whole}{fraction}");
    let significant = significant.trim_matches('0');
    let is_empty = exponent.is_empty() || whole.is_empty() && fraction.is_empty();
    !is_empty
        && digits(whole)
        && digits(fraction)
        && digits(exponent)
        && significant.len() <= limits::NUMBER_DIGITS
}

/// Letters, digits and punctuation of ASCII. Source: reference, `SendMessage`.
fn identifier(id: &str, parameter: &str) -> Result<(), SqsError> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b.is_ascii_punctuation();
    if (1..=limits::GROUP_ID_CHARS).contains(&id.len()) && id.bytes().all(legal) {
        return Ok(());
    }
    Err(SqsError::invalid_value(
        id,
        parameter,
        format!(
            "{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in \
             length."
        ),
    ))
}

fn standard_rules(draft: &Draft) -> Result<(), SqsError> {
    if let Some(delay) = draft.delay_secs {
        bounds(delay, "DelaySeconds", &limits::DELAY_SECS)?;
    }
    match &draft.deduplication {
        Some(id) => Err(SqsError::invalid_value(id, "MessageDeduplicationId", WRONG_TYPE)),
        None => Ok(()),
    }
}

fn fifo_rules(draft: &Draft, settings: &Settings) -> Result<(), SqsError> {
    ids(std::iter::once(draft), settings)?;
    // Zero is accepted and means nothing: the queue's own delay applies.
    match draft.delay_secs.filter(|delay| *delay != 0) {
        Some(delay) => Err(SqsError::invalid_value(delay, "DelaySeconds", WRONG_TYPE)),
        None => Ok(()),
    }
}

const WRONG_TYPE: &str = "The request include parameter that is not valid for this queue type.";
