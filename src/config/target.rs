//! What concerns the HTTP target. The values of headers and the signing secrets are secret: what is wrong with one is said without showing it.

use std::collections::BTreeSet;
use std::fmt;

use ::http::Method;

use super::Vars;
use super::policy::Json;
use crate::http::{CONNECT_TIMEOUT, HttpSettings, TargetUrl};
use crate::queue::is_attribute_name;

const METHODS: [(&str, Method); 3] = [("POST", Method::POST), ("PUT", Method::PUT), ("PATCH", Method::PATCH)];

impl Vars {
    pub(super) fn target(&mut self) -> Option<TargetUrl> {
        let parsers: [(_, fn(&str) -> _); 2] = [("true", TargetUrl::parse_allowing_http), ("false", TargetUrl::parse)];
        let parse = self.one_of("ALLOW_HTTP", &parsers).unwrap_or(TargetUrl::parse);
        match parse(&self.get("TARGET_URL")?) {
            Ok(target) => Some(target),
            Err(error) => {
                self.problem("TARGET_URL", format_args!("is invalid: {error}"));
                None
            }
        }
    }

    /// How to deliver, whatever the target.
    pub(super) fn http(&mut self) -> HttpSettings {
        let mut settings =
            HttpSettings::default().connect_timeout(self.seconds("CONNECT_TIMEOUT_SECONDS", CONNECT_TIMEOUT));
        if let Some(method) = self.one_of("METHOD", &METHODS) {
            settings = settings.method(method);
        }
        if let Some(content_type) = self.get("CONTENT_TYPE") {
            self.change("CONTENT_TYPE", "is no media type", &mut settings, |settings| {
                settings.content_type(&content_type)
            });
        }
        if let Some(key) = self.get("SCOPE") {
            let refused = format!("is `{key}`");
            self.change("SCOPE", refused, &mut settings, |settings| key.trim().parse().map(|key| settings.scope(key)));
        }
        self.headers(&mut settings);
        self.attribute_headers(&mut settings);
        self.signing_secrets(&mut settings);
        settings
    }

    fn headers(&mut self, settings: &mut HttpSettings) {
        const NAME: &str = "HEADERS";
        let Some(text) = self.get(NAME) else { return };
        let members = match Json::parse(&text) {
            Ok(json) => json.members(),
            Err(error) => {
                let (line, column) = (error.line(), error.column());
                self.problem(NAME, format_args!("is no JSON from line {line}, column {column} on"));
                return;
            }
        };
        let Some(members) = members else {
            self.problem(NAME, "is no JSON object");
            return;
        };
        let mut names = BTreeSet::new();
        for (name, value) in members {
            let has = format!("has `{}`", name.escape_debug());
            match value.text() {
                None => self.problem(NAME, format_args!("{has}: its value is no text")),
                Some(_) if !names.insert(name.to_ascii_lowercase()) => {
                    self.problem(NAME, format_args!("{has} twice"));
                }
                Some(value) => self.change(NAME, has, settings, |settings| settings.header(&name, &value)),
            }
        }
    }

    fn attribute_headers(&mut self, settings: &mut HttpSettings) {
        const NAME: &str = "ATTRIBUTE_HEADERS";
        let Some(text) = self.get(NAME) else { return };
        let mut headers = BTreeSet::new();
        for entry in text.split(',').map(str::trim) {
            let has = format!("has `{}`", entry.escape_debug());
            let pair = entry.split_once('=').map(|(attribute, header)| (attribute.trim(), header.trim()));
            match pair.filter(|(attribute, _)| is_attribute_name(attribute)) {
                None => self.problem(NAME, format_args!("{has}: allowed is attribute=header")),
                Some((_, header)) if !headers.insert(header.to_ascii_lowercase()) => {
                    self.problem(NAME, format_args!("{has}: another attribute has this header"));
                }
                Some((attribute, header)) => {
                    self.change(NAME, has, settings, |settings| settings.attribute_header(attribute, header));
                }
            }
        }
    }

    fn signing_secrets(&mut self, settings: &mut HttpSettings) {
        const NAME: &str = "SIGNING_SECRET";
        let Some(text) = self.get(NAME) else { return };
        if text.trim().is_empty() {
            // Blank must not mean unsigned.
            self.problem(NAME, "is blank");
        }
        for (position, secret) in text.split_whitespace().enumerate() {
            let number = format!("number {} is invalid", position + 1);
            self.change(NAME, number, settings, |settings| secret.parse().map(|secret| settings.sign_with(secret)));
        }
    }

    /// Leaves `settings` as they are if the change is refused.
    fn change<E: fmt::Display>(
        &mut self,
        name: &str,
        refused: impl fmt::Display,
        settings: &mut HttpSettings,
        change: impl FnOnce(HttpSettings) -> Result<HttpSettings, E>,
    ) {
        match change(settings.clone()) {
            Ok(changed) => *settings = changed,
            Err(error) => self.problem(name, format_args!("{refused}: {error}")),
        }
    }
}
