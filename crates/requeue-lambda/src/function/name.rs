//! The name of a function, as the Invoke API takes it.

use std::fmt;
use std::str::FromStr;

/// A function: its name or ARN, and perhaps a version or an alias.
///
/// ```
/// use requeue_lambda::FunctionName;
///
/// let name: FunctionName = "orders:live".parse()?;
/// assert_eq!(name.to_string(), "orders:live");
/// assert!("orders live".parse::<FunctionName>().is_err());
/// # Ok::<(), requeue_lambda::InvalidFunctionName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionName {
    function: String,
    qualifier: Option<String>,
    pub(super) region: Option<String>,
}

impl FunctionName {
    /// Whether it may name this function. It may also be one of another account.
    pub(crate) fn is(&self, name: &str, region: Option<&str>) -> bool {
        let own = self.function.rsplit(':').next();
        own == Some(name) && (self.region.is_none() || self.region.as_deref() == region)
    }

    pub(super) fn path(&self, resource: &str) -> String {
        let function = self.function.replace(':', "%3A");
        let qualifier = self.qualifier.as_deref().map(|qualifier| qualifier.replace('$', "%24"));
        let query = qualifier.map(|qualifier| format!("?Qualifier={qualifier}"));
        format!("/2015-03-31/functions/{function}/{resource}{}", query.unwrap_or_default())
    }
}

/// Source: Lambda API reference, `Invoke`, the patterns of `FunctionName` and `Qualifier`.
impl FromStr for FunctionName {
    type Err = InvalidFunctionName;

    fn from_str(text: &str) -> Result<Self, InvalidFunctionName> {
        const LONGEST: usize = 256;
        let is_name = |name: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            (1..=64).contains(&name.len()) && name.bytes().all(fits)
        };
        let is_qualifier =
            |text: &str| ["$LATEST", "$LATEST.PUBLISHED"].contains(&text) || is_name(text);
        let parts: Vec<&str> = text.split(':').collect();
        let (count, region) = match parts.as_slice() {
            ["arn", partition, "lambda", region, account, "function", _, ..]
                if partition.starts_with("aws") && is_name(region) && is_account(account) =>
            {
                (7, Some((*region).to_owned()))
            }
            [account, "function", _, ..] if is_account(account) => (3, None),
            _ => (1, None),
        };
        let name = parts.get(count - 1).copied().unwrap_or_default();
        let qualifier = match &parts[count.min(parts.len())..] {
            [] => None,
            [qualifier] if is_qualifier(qualifier) => Some((*qualifier).to_owned()),
            _ => return Err(InvalidFunctionName),
        };
        if text.len() > LONGEST || !is_name(name) {
            return Err(InvalidFunctionName);
        }
        Ok(Self { function: parts[..count].join(":"), qualifier, region })
    }
}

fn is_account(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())
}

impl fmt::Display for FunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.function)?;
        self.qualifier.iter().try_for_each(|qualifier| write!(f, ":{qualifier}"))
    }
}

/// The text names no function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be the name of a function, name:alias, name:version or an ARN")]
#[non_exhaustive]
pub struct InvalidFunctionName;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_a_path_and_a_qualifier() {
        let arn = "arn:aws:lambda:eu-west-1:123456789012:function:orders";
        let path = "arn%3Aaws%3Alambda%3Aeu-west-1%3A123456789012%3Afunction%3Aorders";
        for (text, function, qualifier, region) in [
            ("orders", "orders", "", None),
            ("orders_1-a:live", "orders_1-a", "?Qualifier=live", None),
            ("orders:7", "orders", "?Qualifier=7", None),
            ("orders:$LATEST", "orders", "?Qualifier=%24LATEST", None),
            ("orders:$LATEST.PUBLISHED", "orders", "?Qualifier=%24LATEST.PUBLISHED", None),
            ("123456789012:function:orders", "123456789012%3Afunction%3Aorders", "", None),
            (arn, path, "", Some("eu-west-1")),
            (&format!("{arn}:live"), path, "?Qualifier=live", Some("eu-west-1")),
        ] {
            let name: FunctionName = text.parse().expect(text);
            assert_eq!(name.to_string(), text);
            assert_eq!(
                name.path("invocations"),
                format!("/2015-03-31/functions/{function}/invocations{qualifier}")
            );
            assert_eq!(name.region.as_deref(), region);
        }
    }

    #[test]
    fn what_the_api_would_refuse_is_no_name() {
        let long = "x".repeat(65);
        for text in [
            "",
            ":",
            "orders:",
            ":live",
            "orders live",
            "orders/live",
            "orders?Qualifier=live",
            "../orders",
            "orders:live:again",
            "orders:$OLDEST",
            "arn:aws:sqs:eu-west-1:123456789012:orders",
            "arn:aws:lambda:eu-west-1:123456789012:function",
            "arn:aws:lambda:eu-west-1:12345678901:function:orders",
            "arn:aws:lambda:eu-west-1:123456789012:layer:orders",
            "größe",
            &long,
        ] {
            assert_eq!(text.parse::<FunctionName>(), Err(InvalidFunctionName), "{text}");
        }
    }
}
