//! Names and ARNs of keys and functions.

pub(crate) use requeue::queue::Arn;

/// The ARN of a resource in the account of this role, unless its name is one.
pub(crate) fn own_arn(name: &str, service: &str, region: &str, role: &str, kind: &str) -> String {
    if name.starts_with("arn:") {
        return name.to_owned();
    }
    let Arn { partition, account, .. } = Arn::of(role);
    format!("arn:{partition}:{service}:{region}:{account}:{kind}{name}")
}

/// Whether the name of a KMS key is an alias, or the ARN of one.
pub(crate) fn is_alias(key: &str) -> bool {
    key.starts_with("alias/") || key.contains(":alias/")
}

/// A queue or a secret may name its key by the id alone, but IAM needs the ARN.
pub(crate) fn key_name(key: &str, of: &str) -> String {
    if key.starts_with("arn:") || is_alias(key) {
        return key.to_owned();
    }
    let Arn { partition, region, account, .. } = Arn::of(of);
    format!("arn:{partition}:kms:{region}:{account}:key/{key}")
}

/// The version or alias in the name or ARN of this function.
pub(crate) fn qualifier<'a>(name: &'a str, function: &str) -> Option<&'a str> {
    let (name, qualifier) = without_type(name).rsplit_once(':')?;
    (name.rsplit(':').next() == Some(function)).then_some(qualifier)
}

/// The function's name in this name or ARN, without a version or alias.
pub(crate) fn function_name(name: &str) -> &str {
    without_type(name).split(':').next().unwrap_or_default()
}

fn without_type(name: &str) -> &str {
    let resource = Arn::of(name).resource;
    resource.strip_prefix("function:").unwrap_or(resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_or_alias_follows_the_name_of_the_function() {
        let arn = "arn:aws:lambda:eu-west-1:123456789012:function";
        for (name, function, expected) in [
            ("orders".to_owned(), "orders", None),
            ("orders:live".to_owned(), "orders", Some("live")),
            ("123456789012:function:orders".to_owned(), "orders", None),
            ("123456789012:function:orders:3".to_owned(), "orders", Some("3")),
            (format!("{arn}:orders"), "orders", None),
            (format!("{arn}:orders:live"), "orders", Some("live")),
            // Names that are also words of an ARN.
            (format!("{arn}:aws"), "aws", None),
            (format!("{arn}:function"), "function", None),
            (format!("{arn}:function:live"), "function", Some("live")),
        ] {
            assert_eq!(qualifier(&name, function), expected, "{name}");
        }
    }

    #[test]
    fn a_function_is_known_by_its_name_alone() {
        let arn = "arn:aws:lambda:eu-west-1:123456789012:function:orders";
        for name in ["orders", "orders:live", arn, &format!("{arn}:live")] {
            assert_eq!(function_name(name), "orders", "{name}");
        }
    }

    #[test]
    fn a_key_is_known_by_its_arn_or_its_alias() {
        let queue = "arn:aws-cn:sqs:cn-north-1:123456789012:orders";
        let arn = "arn:aws-cn:kms:cn-north-1:123456789012:key/1a-2b";
        for (key, expected) in [("1a-2b", arn), (arn, arn), ("alias/orders", "alias/orders")] {
            assert_eq!(key_name(key, queue), expected);
        }
    }
}
