//! The message in the options of `requeue send` and `requeue event`.

use std::collections::BTreeMap;
use std::path::Path;

use requeue::queue::{Attribute, MAX_BATCH_BYTES};

use crate::{Error, input};

#[derive(clap::Args)]
pub(crate) struct GivenMessage {
    /// The body; `@FILE` reads it from a file, and `-` from the standard input.
    body: String,
    /// A message attribute of the type String. May be given several times.
    #[arg(long = "attribute", help_heading = "Message", value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,
    /// The message group. FIFO queues keep the order within it; fair queues share capacity between
    /// groups.
    #[arg(long, help_heading = "Message", value_name = "ID")]
    pub(crate) group: Option<String>,
    /// The number of such messages.
    #[arg(long, help_heading = "Message", value_name = "MESSAGES", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) count: u16,
}

/// Reads `NAME=VALUE`.
pub(crate) fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("a message attribute must have a name and a value; write it as in tenant=acme"
            .to_owned()),
    }
}

impl GivenMessage {
    pub(crate) fn body(&self) -> Result<String, Error> {
        let (name, path) = if self.body == "-" {
            ("the standard input".to_owned(), "-")
        } else if let Some(path) = self.body.strip_prefix('@') {
            (format!("the body {path}"), path)
        } else {
            return Ok(self.body.clone());
        };
        let allowed = format!(
            "the {MAX_BATCH_BYTES} bytes that SQS accepts; store it elsewhere, and send its address"
        );
        let text = input::read(Path::new(path), MAX_BATCH_BYTES, &allowed);
        text.map_err(|error| format!("{name} cannot be read: {error}").into())
    }

    pub(crate) fn attributes(&self) -> BTreeMap<String, Attribute> {
        let typed = |(name, value): &(String, String)| (name.clone(), Attribute::text(value));
        self.attributes.iter().map(typed).collect()
    }
}
