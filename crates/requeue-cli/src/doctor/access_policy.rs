//! Reads the access policy of a queue or a key: the meaning of its statements for one role. The
//! request's facts are few, so a condition on any other fact is undecided.

use serde_json::Value;

use super::arn::Arn;

/// From no to yes, so that `min` means "and", and `max` means "or".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Truth {
    No,
    /// A condition, or a form of the statement, cannot be decided here.
    Maybe,
    Yes,
}

impl Truth {
    fn not(self) -> Self {
        match self {
            Self::No => Self::Yes,
            Self::Maybe => Self::Maybe,
            Self::Yes => Self::No,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'r> {
    pub(crate) role: &'r str,
    pub(crate) action: &'r str,
    pub(crate) resource: &'r str,
    /// The service that makes the request for the role, as in `sqs.eu-west-1.amazonaws.com`.
    pub(crate) via: Option<&'r str>,
}

impl Request<'_> {
    /// The value of a condition key, if it is known. Source: IAM user guide, "AWS global condition
    /// context keys"; KMS developer guide, "AWS KMS condition keys".
    fn fact(&self, key: &str) -> Option<&str> {
        match key.to_ascii_lowercase().as_str() {
            "aws:principalarn" => Some(self.role),
            "aws:principalaccount" | "kms:calleraccount" => Some(Arn::of(self.role).account),
            "aws:principaltype" => Some("AssumedRole"),
            // Lambda and the SDK send no request without TLS.
            "aws:securetransport" => Some("true"),
            "kms:viaservice" => self.via,
            _ => None,
        }
    }
}

pub(crate) struct AccessPolicy(Vec<Value>);

impl AccessPolicy {
    pub(crate) fn empty() -> Self {
        Self(Vec::new())
    }

    /// `None` if it is no policy document.
    pub(crate) fn read(policy: &str) -> Option<Self> {
        match serde_json::from_str::<Value>(policy).ok()?.get_mut("Statement")?.take() {
            Value::Array(statements) => Some(Self(statements)),
            statement @ Value::Object(_) => Some(Self(vec![statement])),
            _ => None,
        }
    }

    pub(crate) fn denies(&self, request: &Request<'_>) -> Truth {
        self.any("Deny", request, |statement| {
            let Some(excepted) = statement.get("NotPrincipal") else {
                let principal = &statement["Principal"];
                let account = names_account(principal, request.role).min(Truth::Maybe);
                return names_role(principal, request.role).max(account);
            };
            let is_excepted = names_role(excepted, request.role);
            // A service may compare the account first. Source: IAM user guide, "NotPrincipal".
            let lacks_account = names_account(excepted, request.role).not().min(Truth::Maybe);
            is_excepted.not().max(is_excepted.min(lacks_account))
        })
    }

    /// Whether a statement allows the request to the role itself, or to everybody.
    pub(crate) fn allows(&self, request: &Request<'_>) -> Truth {
        self.any("Allow", request, |statement| names_role(&statement["Principal"], request.role))
    }

    /// Whether a statement leaves the decision to the policies of the role's account.
    pub(crate) fn delegates(&self, request: &Request<'_>) -> Truth {
        self.any("Allow", request, |statement| names_account(&statement["Principal"], request.role))
    }

    fn any(
        &self,
        effect: &str,
        request: &Request<'_>,
        concerns: impl Fn(&Value) -> Truth,
    ) -> Truth {
        let statements = self.0.iter().filter(|statement| statement["Effect"] == effect);
        let truths = statements.map(|statement| {
            let actions = |names: &Value| {
                patterns(names, request.action, |pattern, action| {
                    like(&pattern.to_ascii_lowercase(), &action.to_ascii_lowercase())
                })
            };
            let resources = |names: &Value| patterns(names, request.resource, like);
            concerns(statement)
                .min(either(statement, ["Action", "NotAction"], actions))
                .min(either(statement, ["Resource", "NotResource"], resources))
                .min(conditions(&statement["Condition"], request))
        });
        truths.max().unwrap_or(Truth::No)
    }
}

/// By the first element, or else by the opposite of the second. Without both, everything.
fn either(statement: &Value, names: [&str; 2], truth: impl Fn(&Value) -> Truth) -> Truth {
    let [is, is_not] = names.map(|name| statement.get(name));
    match (is, is_not) {
        (Some(is), _) => truth(is),
        (None, Some(is_not)) => truth(is_not).not(),
        (None, None) => Truth::Yes,
    }
}

fn list(value: &Value) -> &[Value] {
    match value {
        Value::Null => &[],
        Value::Array(values) => values,
        value => std::slice::from_ref(value),
    }
}

fn principals(principal: &Value) -> &[Value] {
    match principal {
        Value::Object(kinds) => kinds.get("AWS").map_or(&[], list),
        principal => list(principal),
    }
}

fn names_role(principal: &Value, role: &str) -> Truth {
    let name = Arn::of(role).name();
    let session = format!(":sts::{}:assumed-role/{name}/", Arn::of(role).account);
    let truths = principals(principal).iter().map(|principal| match principal.as_str() {
        Some(principal) if principal == "*" || principal == role => Truth::Yes,
        // One session of the role, by a name that Lambda chooses.
        Some(principal) if principal.contains(&session) => Truth::Maybe,
        Some(_) => Truth::No,
        None => Truth::Maybe,
    });
    truths.max().unwrap_or(Truth::No)
}

fn names_account(principal: &Value, role: &str) -> Truth {
    let account = Arn::of(role).account;
    let root = format!(":iam::{account}:root");
    let names = principals(principal).iter().filter_map(Value::as_str);
    let mut names = names.filter(|name| *name == account || name.ends_with(&root));
    names.next().map_or(Truth::No, |_| Truth::Yes)
}

/// Whether one of the patterns fits the text.
fn patterns(patterns: &Value, text: &str, fits: fn(&str, &str) -> bool) -> Truth {
    let truths = list(patterns).iter().map(|pattern| match pattern.as_str() {
        // A variable of the policy.
        Some(pattern) if pattern.contains("${") => Truth::Maybe,
        Some(pattern) if fits(pattern, text) => Truth::Yes,
        Some(_) => Truth::No,
        None => Truth::Maybe,
    });
    truths.max().unwrap_or(Truth::No)
}

/// Whether all conditions are met.
fn conditions(conditions: &Value, request: &Request<'_>) -> Truth {
    let operators = match conditions {
        Value::Null => return Truth::Yes,
        Value::Object(operators) => operators,
        _ => return Truth::Maybe,
    };
    let truths = operators.iter().flat_map(|(operator, keys)| {
        let keys = keys.as_object().into_iter().flatten();
        keys.map(|(key, values)| condition(operator, request.fact(key), values))
    });
    truths.min().unwrap_or(Truth::Yes)
}

fn condition(operator: &str, fact: Option<&str>, values: &Value) -> Truth {
    let Some(fact) = fact else { return Truth::Maybe };
    let operator = operator.strip_suffix("IfExists").unwrap_or(operator);
    let values = match values {
        Value::Bool(value) => &Value::String(value.to_string()),
        values => values,
    };
    let equal: fn(&str, &str) -> bool = |pattern, text| pattern == text;
    let fits = match operator.replacen("Not", "", 1).as_str() {
        "StringEquals" => equal,
        "StringEqualsIgnoreCase" | "Bool" => str::eq_ignore_ascii_case,
        "StringLike" => like,
        "ArnEquals" | "ArnLike" => like_arn,
        _ => return Truth::Maybe,
    };
    let truth = patterns(values, fact, fits);
    if operator.contains("Not") { truth.not() } else { truth }
}

/// The six parts of an ARN, each for itself.
fn like_arn(pattern: &str, arn: &str) -> bool {
    let (patterns, parts) = (pattern.splitn(6, ':'), arn.splitn(6, ':'));
    pattern == "*"
        || (patterns.clone().count() == 6
            && patterns.zip(parts).all(|(pattern, part)| like(pattern, part)))
}

/// With `*` for any text, and `?` for any character.
fn like(pattern: &str, text: &str) -> bool {
    let text = text.as_bytes();
    // Whether the pattern so far fits the first bytes, by their number.
    let mut fits = vec![false; text.len() + 1];
    fits[0] = true;
    for byte in pattern.bytes() {
        if byte == b'*' {
            let least = fits.iter().position(|fits| *fits).unwrap_or(fits.len());
            fits[least..].fill(true);
            continue;
        }
        for at in (0..text.len()).rev() {
            fits[at + 1] = fits[at] && (byte == b'?' || byte == text[at]);
        }
        fits[0] = false;
    }
    fits[text.len()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Truth::{Maybe, No, Yes};
    use super::*;

    const ROLE: &str = "arn:aws:iam::123456789012:role/service/orders-Role";

    fn request(action: &str) -> Request<'_> {
        let resource = "arn:aws:sqs:eu-west-1:123456789012:orders";
        Request { role: ROLE, action, resource, via: Some("sqs.eu-west-1.amazonaws.com") }
    }

    fn policy(statement: &Value) -> AccessPolicy {
        AccessPolicy::read(&json!({ "Statement": statement }).to_string()).expect("a policy")
    }

    #[test]
    fn a_deny_counts_if_it_concerns_the_role() {
        let everybody = json!("*");
        let root = "arn:aws:iam::123456789012:root";
        for (principal, expected) in [
            (json!({ "Principal": everybody }), Yes),
            (json!({ "Principal": { "AWS": "*" } }), Yes),
            (json!({ "Principal": { "AWS": [ROLE, "999999999999"] } }), Yes),
            (json!({ "Principal": { "AWS": "arn:aws:iam::123456789012:role/other" } }), No),
            (json!({ "Principal": { "Service": "sns.amazonaws.com" } }), No),
            (json!({ "Principal": { "AWS": root } }), Maybe),
            (json!({ "Principal": { "AWS": "123456789012" } }), Maybe),
            (json!({ "Principal": { "AWS": "arn:aws:iam::999999999999:root" } }), No),
            (
                json!({ "Principal": { "AWS":
                    "arn:aws:sts::123456789012:assumed-role/orders-Role/orders" } }),
                Maybe,
            ),
            (json!({ "NotPrincipal": { "AWS": "arn:aws:iam::123456789012:user/bob" } }), Yes),
            (json!({ "NotPrincipal": { "AWS": ROLE } }), Maybe),
            (json!({ "NotPrincipal": { "AWS": [ROLE, root] } }), No),
        ] {
            let mut statement = json!({ "Effect": "Deny", "Action": "sqs:*", "Resource": "*" });
            for (name, value) in principal.as_object().into_iter().flatten() {
                statement[name] = value.clone();
            }
            let found = policy(&statement).denies(&request("sqs:SendMessage"));
            assert_eq!(found, expected, "{statement}");
        }
    }

    #[test]
    fn a_deny_counts_for_its_actions_and_resources() {
        let other = "arn:aws:sqs:eu-west-1:123456789012:invoices";
        for (part, value, expected) in [
            ("Action", json!("*"), Yes),
            ("Action", json!("SQS:sendmessage"), Yes),
            ("Action", json!(["sqs:ReceiveMessage", "sqs:Send*"]), Yes),
            ("Action", json!("sqs:ReceiveMessage"), No),
            ("NotAction", json!("sqs:ReceiveMessage"), Yes),
            ("NotAction", json!("sqs:Send??ssage"), No),
            ("Resource", json!("arn:aws:sqs:*:123456789012:ord*"), Yes),
            ("Resource", json!(other), No),
            ("NotResource", json!(other), Yes),
            ("Resource", json!("arn:aws:sqs:*:*:${aws:PrincipalTag/queue}"), Maybe),
        ] {
            let statement = json!({ "Effect": "Deny", "Principal": "*", part: value });
            let found = policy(&statement).denies(&request("sqs:SendMessage"));
            assert_eq!(found, expected, "{statement}");
        }
    }

    #[test]
    fn conditions_exclude_the_role_or_not_or_cannot_be_decided() {
        for (condition, expected) in [
            (json!({ "Bool": { "aws:SecureTransport": "false" } }), No),
            (json!({ "Bool": { "aws:SecureTransport": false } }), No),
            (json!({ "BoolIfExists": { "aws:SecureTransport": "true" } }), Yes),
            (json!({ "ArnNotEquals": { "aws:PrincipalArn": ROLE } }), No),
            (
                json!({ "ArnNotLike": { "AWS:principalARN": ["arn:aws:iam::*:role/service/*"] } }),
                No,
            ),
            (json!({ "ArnNotLike": { "aws:PrincipalArn": "arn:aws:iam::*:role/other" } }), Yes),
            (json!({ "StringLike": { "aws:PrincipalArn": "*/orders-Role" } }), Yes),
            (json!({ "StringNotEquals": { "aws:PrincipalAccount": "123456789012" } }), No),
            (json!({ "StringEquals": { "kms:ViaService": "s3.eu-west-1.amazonaws.com" } }), No),
            (json!({ "StringNotEquals": { "aws:SourceVpce": "vpce-1" } }), Maybe),
            (json!({ "IpAddress": { "aws:SourceIp": "10.0.0.0/8" } }), Maybe),
            (json!({ "StringEquals": { "aws:PrincipalArn": "${aws:userid}" } }), Maybe),
            // All of them have to hold.
            (
                json!({
                    "StringEquals": { "aws:PrincipalAccount": "999999999999" },
                    "IpAddress": { "aws:SourceIp": "10.0.0.0/8" }
                }),
                No,
            ),
        ] {
            let statement = json!({ "Effect": "Deny", "Principal": "*", "Condition": condition });
            let found = policy(&statement).denies(&request("sqs:SendMessage"));
            assert_eq!(found, expected, "{statement}");
        }
    }

    #[test]
    fn an_allow_is_for_the_role_or_for_its_account() {
        let allow = |principal: Value| {
            let statement = json!({ "Effect": "Allow", "Principal": principal, "Action": "kms:*" });
            let (policy, decrypt) = (policy(&statement), request("kms:Decrypt"));
            (policy.allows(&decrypt), policy.delegates(&decrypt), policy.denies(&decrypt))
        };
        assert_eq!(allow(json!({ "AWS": ROLE })), (Yes, No, No));
        assert_eq!(allow(json!({ "AWS": "arn:aws:iam::123456789012:root" })), (No, Yes, No));
        assert_eq!(allow(json!({ "AWS": "arn:aws:iam::123456789012:user/bob" })), (No, No, No));
    }

    #[test]
    fn a_text_that_is_no_policy_is_not_read() {
        for text in ["", "[]", "{}", r#"{"Statement": "Allow"}"#] {
            assert!(AccessPolicy::read(text).is_none(), "{text}");
        }
    }
}
