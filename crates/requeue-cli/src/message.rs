//! The message that `requeue send` and `requeue event` are given.

use std::collections::BTreeMap;
use std::io::Read;

use requeue::queue::{Attribute, AttributeValue};

use crate::Error;

#[derive(clap::Args)]
pub(crate) struct GivenMessage {
    /// The body; `@FILE` reads it from a file, and `-` from the standard input.
    body: String,
    /// A message attribute of the type String; may be given several times.
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,
    /// The message group: FIFO queues keep the order within it, fair queues share out among tenants
    /// by it.
    #[arg(long, value_name = "ID")]
    pub(crate) group: Option<String>,
    /// How many such messages.
    #[arg(long, value_name = "MESSAGES", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) count: u16,
}

fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("an attribute has a name and a value, as in tenant=acme".to_owned()),
    }
}

impl GivenMessage {
    pub(crate) fn body(&self) -> Result<String, Error> {
        let mut text = String::new();
        if self.body == "-" {
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| format!("the standard input cannot be read: {error}"))?;
        } else if let Some(path) = self.body.strip_prefix('@') {
            text = std::fs::read_to_string(path)
                .map_err(|error| format!("the body {path} cannot be read: {error}"))?;
        } else {
            text.clone_from(&self.body);
        }
        Ok(text)
    }

    pub(crate) fn attributes(&self) -> BTreeMap<String, Attribute> {
        let typed = |(name, value): &(String, String)| {
            let value = AttributeValue::Text(value.clone());
            (name.clone(), Attribute { data_type: "String".to_owned(), value })
        };
        self.attributes.iter().map(typed).collect()
    }
}
