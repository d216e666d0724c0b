//! Reads the policy document of a command. The library has the rules.

use std::io::Read;
use std::path::Path;

use requeue::classify::Rules;
use requeue::policy::RetryPolicy;

use requeue::{InvalidPolicy, QueueConfig, Settings};

use crate::Error;

/// Reads the file, or the standard input if the path is `-`, with the reader of the Lambda.
pub(crate) fn read(path: &Path) -> Result<(RetryPolicy, Rules), Error> {
    read_all(path).map(|(policy, rules, _)| (policy, rules))
}

/// As [`read`], with the document's `queueConfig`.
pub(crate) fn read_all(path: &Path) -> Result<(RetryPolicy, Rules, QueueConfig), Error> {
    parse(path, &text(path)?)
}

/// The text of the document.
pub(crate) fn text(path: &Path) -> Result<String, Error> {
    let mut text = String::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(path).map(|read| text = read)
    };
    read.map_err(|error| format!("the policy {} cannot be read: {error}", name(path)))?;
    Ok(text)
}

/// As [`read_all`], with the text of the file.
pub(crate) fn parse(path: &Path, text: &str) -> Result<(RetryPolicy, Rules, QueueConfig), Error> {
    let name = name(path);
    if let Some(command) = stored(text.trim()) {
        return Err(format!(
            "the policy {name} is an ARN: this command reads the document itself; print it with:\n  \
             {command}"
        )
        .into());
    }
    let document = || {
        let mut settings = Settings::default();
        settings.set_policy(text)?;
        Ok((settings.policy, settings.rules, text.parse()?))
    };
    Ok(document().map_err(|invalid: InvalidPolicy| {
        let problems = invalid.problems();
        let plural = if problems.len() == 1 { "" } else { "s" };
        format!(
            "the policy {name} has {} problem{plural}:\n  {}",
            problems.len(),
            problems.join("\n  ")
        )
    })?)
}

/// The command that prints the document whose ARN this is.
fn stored(arn: &str) -> Option<String> {
    let mut parts = arn.splitn(6, ':');
    match (parts.next()?, parts.nth(1)?) {
        ("arn", "ssm") => Some(format!(
            "aws ssm get-parameter --with-decryption --name {arn} --query Parameter.Value --output text"
        )),
        ("arn", "secretsmanager") => Some(format!(
            "aws secretsmanager get-secret-value --secret-id {arn} --query SecretString --output text"
        )),
        _ => None,
    }
}

/// The name of the document in a sentence.
pub(crate) fn name(path: &Path) -> String {
    if path.as_os_str() == "-" { "(standard input)".to_owned() } else { path.display().to_string() }
}

/// A built-in policy, by its name in documents.
pub(crate) fn preset(name: &str) -> Result<RetryPolicy, Error> {
    let document = serde_json::json!({ "preset": name }).to_string();
    Ok(document
        .parse::<RetryPolicy>()
        .map_err(|invalid| format!("--{}", invalid.problems().join("\n")))?)
}
