//! The operations of AWS's services that the doctor calls, and the fields of their responses that it
//! reads. Names as in the services' API references.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use requeue_aws::CallError;

pub(crate) mod cloudwatch;
pub(crate) mod dynamodb;
pub(crate) mod ec2;
pub(crate) mod iam;
pub(crate) mod kms;
pub(crate) mod lambda;
pub(crate) mod logs;
pub(crate) mod secrets;

/// The items of all pages. `page` gets the token of a page, and returns its items and the next token.
async fn pages<T>(
    mut page: impl AsyncFnMut(Option<String>) -> Result<(Vec<T>, Option<String>), CallError>,
) -> Result<Vec<T>, CallError> {
    let (mut all, mut token) = (Vec::new(), None);
    for _ in 0..MOST_PAGES {
        let (items, next) = page(token.take()).await?;
        all.extend(items);
        token = next.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(all);
        }
    }
    Err(CallError::construction_failure(TooManyPages))
}

/// The error for a longer list.
#[derive(Debug, thiserror::Error)]
#[error("the list has more than {MOST_PAGES} pages")]
pub(crate) struct TooManyPages;

/// Longest list that the doctor reads. Most services have pages of 100.
pub(crate) const MOST_PAGES: u32 = 50;

/// Source: RFC 3986, unreserved characters.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn encoded(text: &str) -> impl std::fmt::Display {
    utf8_percent_encode(text, RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_arns_fit_into_paths_and_forms() {
        let arn = "arn:aws:lambda:eu-west-1:123456789012:function:orders_1-a.b~c";
        assert_eq!(
            encoded(arn).to_string(),
            "arn%3Aaws%3Alambda%3Aeu-west-1%3A123456789012%3Afunction%3Aorders_1-a.b~c"
        );
    }
}
