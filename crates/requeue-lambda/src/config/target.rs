//! The settings of the HTTP target. The values of headers, the signing secrets, the client's key
//! and the proxy are secret: a problem is reported without them.

use std::collections::BTreeSet;
use std::fmt;

use ::http::Method;
use requeue::policy::MessageKey;
use requeue::queue::{MAX_MAPPING_BATCH, is_attribute_name};

use super::Reader;
use crate::function::{FunctionName, FunctionSettings};
use crate::http::{
    ClientCertificate, HttpSettings, InvalidClientCertificate, SigningSecret, TargetRules,
    TargetUrl,
};
use crate::secrets::{self, SecretArn};

const METHODS: [(&str, Method); 3] =
    [("POST", Method::POST), ("PUT", Method::PUT), ("PATCH", Method::PATCH)];

pub(super) const NOT_FETCHED: &str = "only Config::load fetches secrets";

impl Reader {
    pub(super) fn target_rules(&mut self) -> TargetRules {
        let mut rules = TargetRules::default();
        if self.is_true("ALLOW_HTTP") {
            rules = rules.allow_http();
        }
        if self.is_true("ALLOW_LINK_LOCAL") {
            rules = rules.allow_link_local();
        }
        if let Some(runtime_api) = &self.runtime_api {
            rules = rules.runtime_api(runtime_api);
        }
        rules
    }

    pub(super) fn target(&mut self, rules: TargetRules) -> Option<TargetUrl> {
        match TargetUrl::parse_with(&self.vars.get("TARGET_URL")?, rules) {
            Ok(target) => {
                if let Err(error) = self.proxy.to(&target) {
                    self.vars.problem_elsewhere(error);
                }
                Some(target)
            }
            Err(error) => {
                let remedy = error
                    .allowed_by()
                    .map(|name| format!("; set {name}=true to allow it"))
                    .unwrap_or_default();
                self.vars.problem("TARGET_URL", format_args!("is invalid: {error}{remedy}"));
                None
            }
        }
    }

    pub(super) fn function(&mut self) -> Option<FunctionName> {
        const NAME: &str = "TARGET_FUNCTION";
        let text = self.vars.get(NAME)?;
        if self.vars.get("TARGET_URL").is_some() {
            self.vars.problem(NAME, "is set beside REQUEUE_TARGET_URL; remove one of them");
        }
        let function: Result<FunctionName, _> = text.trim().parse();
        match (&function, &self.own_name) {
            (Err(error), _) => self.vars.problem(NAME, format_args!("is `{text}`: {error}")),
            (Ok(target), Some((name, region))) if target.is(name, region.as_deref()) => {
                self.vars.problem(NAME, "is this function itself: its calls would never end");
            }
            _ => {}
        }
        function.ok()
    }

    pub(super) fn function_settings(&mut self, scope: Option<MessageKey>) -> FunctionSettings {
        let what = format!("a whole number from 1 to {MAX_MAPPING_BATCH}");
        let is_allowed = |count: &usize| (1..=MAX_MAPPING_BATCH).contains(count);
        let most = self.vars.parse("MESSAGES_PER_CALL", is_allowed, &what);
        let messages_per_call = most.unwrap_or(FunctionSettings::default().messages_per_call);
        FunctionSettings { messages_per_call, scope }
    }

    fn is_true(&mut self, name: &str) -> bool {
        self.vars.one_of(name, &[("true", true), ("false", false)]).unwrap_or(false)
    }

    pub(super) fn http(&mut self) -> HttpSettings {
        let versions = [("auto", false), ("1.1", true)];
        let (vars, defaults) = (&mut self.vars, HttpSettings::default());
        let mut settings = HttpSettings {
            connect_timeout: vars
                .seconds("CONNECT_TIMEOUT_SECONDS")
                .unwrap_or(defaults.connect_timeout),
            idle_timeout: vars.seconds("IDLE_TIMEOUT_SECONDS").unwrap_or(defaults.idle_timeout),
            read_timeout: vars.seconds("READ_TIMEOUT_SECONDS"),
            http1_only: vars.one_of("HTTP_VERSION", &versions).unwrap_or(false),
            method: vars.one_of("METHOD", &METHODS).unwrap_or(Method::POST),
            proxy: self.proxy.clone(),
            ..defaults
        };
        if let Some(content_type) = self.vars.get("CONTENT_TYPE") {
            self.change("CONTENT_TYPE", "is not a media type", &mut settings, |settings| {
                settings.content_type(&content_type)
            });
        }
        if let Some(key) = self.vars.get("SCOPE") {
            let read: Result<MessageKey, _> = key.trim().parse();
            if let Err(error) = &read {
                self.vars.problem("SCOPE", format_args!("is `{key}`: {error}"));
            }
            settings.scope = read.ok();
        }
        self.headers(&mut settings);
        self.attribute_headers(&mut settings);
        self.signing_secrets(&mut settings);
        settings.client_certificate = self.client_certificate();
        settings
    }

    fn headers(&mut self, settings: &mut HttpSettings) {
        const NAME: &str = "HEADERS";
        let Some(members) = self.vars.members(NAME) else { return };
        let mut names = BTreeSet::new();
        for (name, value) in members {
            let has = format!("has `{}`", name.escape_debug());
            match value {
                None => self.vars.problem(NAME, format_args!("{has}: its value is not a text")),
                Some(_) if !names.insert(name.to_ascii_lowercase()) => {
                    self.vars.problem(NAME, format_args!("{has} twice"));
                }
                Some(value) => {
                    if let Some(value) = self.fill_in(NAME, &has, &value) {
                        self.change(NAME, has, settings, |settings| settings.header(&name, &value));
                    }
                }
            }
        }
    }

    fn attribute_headers(&mut self, settings: &mut HttpSettings) {
        const NAME: &str = "ATTRIBUTE_HEADERS";
        let Some(text) = self.vars.get(NAME) else { return };
        let mut headers = BTreeSet::new();
        for entry in text.split(',').map(str::trim) {
            let has = format!("has `{}`", entry.escape_debug());
            let pair =
                entry.split_once('=').map(|(attribute, header)| (attribute.trim(), header.trim()));
            match pair.filter(|(attribute, _)| is_attribute_name(attribute)) {
                None => self
                    .vars
                    .problem(NAME, format_args!("{has}: it must have the form attribute=header")),
                Some((_, header)) if !headers.insert(header.to_ascii_lowercase()) => {
                    self.vars.problem(
                        NAME,
                        format_args!("{has}: another attribute already has this header"),
                    );
                }
                Some((attribute, header)) => {
                    self.change(NAME, has, settings, |settings| {
                        settings.attribute_header(attribute, header)
                    });
                }
            }
        }
    }

    fn signing_secrets(&mut self, settings: &mut HttpSettings) {
        const NAME: &str = "SIGNING_SECRET";
        let Some(text) = self.vars.get(NAME) else { return };
        if text.trim().is_empty() {
            // A blank value must not switch signing off.
            self.vars.problem(NAME, "is blank");
        }
        for (position, word) in text.split_whitespace().enumerate() {
            let number = format!("number {} is invalid", position + 1);
            let Some(secrets) = self.fill_in(NAME, &number, word) else { continue };
            for secret in secrets.split_whitespace() {
                match secret.parse::<SigningSecret>() {
                    Ok(secret) => settings.signing_secrets.push(secret),
                    Err(error) => self.vars.problem(NAME, format_args!("{number}: {error}")),
                }
            }
        }
    }

    fn client_certificate(&mut self) -> Option<ClientCertificate> {
        const CERTIFICATE: &str = "CLIENT_CERTIFICATE";
        const KEY: &str = "CLIENT_KEY";
        let (certificate, key) = match (self.vars.get(CERTIFICATE), self.vars.get(KEY)) {
            (Some(certificate), Some(key)) => (certificate, key),
            (None, None) => return None,
            (certificate, _) => {
                let (name, other, what) = match certificate {
                    Some(_) => (KEY, CERTIFICATE, "private key"),
                    None => (CERTIFICATE, KEY, "certificate"),
                };
                let problem = format_args!("is missing: REQUEUE_{other} needs its {what}");
                self.vars.problem(name, problem);
                return None;
            }
        };
        let certificate = self.fill_in(CERTIFICATE, "is invalid", &certificate);
        let key = self.fill_in(KEY, "is invalid", &key);
        match ClientCertificate::from_pem(&certificate?, &key?) {
            Ok(certificate) => Some(certificate),
            Err(error) => {
                let is_of_key = error != InvalidClientCertificate::Certificate;
                let name = if is_of_key { KEY } else { CERTIFICATE };
                self.vars.problem(name, format_args!("is invalid: {error}"));
                None
            }
        }
    }

    /// The same variables, with the texts stored at their ARNs.
    pub(super) async fn with_secrets(self) -> Self {
        let mut first = Self::new(self.vars.clone());
        // The second reading reports the same problems, except for missing texts.
        first.stored_policy();
        first.http();
        Self { texts: secrets::fetch(first.wanted).await, ..self }
    }

    /// Replaces the ARN of a stored policy document by the document.
    pub(super) fn stored_policy(&mut self) {
        const NAME: &str = "POLICY";
        let Some(value) = self.vars.get(NAME) else { return };
        let arn = value.trim();
        if !arn.starts_with("arn:") {
            return;
        }
        let document = match self.secret(arn) {
            Ok(None) => return,
            Ok(Some(document)) if document.starts_with('{') => Ok(document),
            Ok(Some(_)) => {
                let problem = "the stored text is not a JSON object; store the policy document";
                Err(Some(format!("{arn}: {problem}")))
            }
            Err(problem) => Err(problem),
        };
        if let Err(Some(problem)) = &document {
            self.vars.problem(NAME, format_args!("cannot be read: {problem}"));
        }
        self.vars.set_stored(NAME, document.unwrap_or_default());
    }

    /// `text`, with each ARN of a secret replaced by the secret, which is not searched for ARNs.
    fn fill_in(&mut self, name: &str, place: &str, text: &str) -> Option<String> {
        let mut filled = String::new();
        let mut is_whole = true;
        for piece in text.split_inclusive(char::is_whitespace) {
            let (word, space) = piece.split_at(piece.trim_end().len());
            match self.secret(word) {
                Ok(secret) => filled.extend([secret.as_deref().unwrap_or(word), space]),
                Err(problem) => {
                    is_whole = false;
                    if let Some(problem) = problem {
                        self.vars.problem(name, format_args!("{place}: {problem}"));
                    }
                }
            }
        }
        is_whole.then_some(filled)
    }

    /// `None` for a word that is no such ARN. A skipped secret is an error without a problem.
    fn secret(&mut self, word: &str) -> Result<Option<String>, Option<String>> {
        let Some(at) = word.find("arn:") else { return Ok(None) };
        let arn = match SecretArn::parse(&word[at..]) {
            None => return Ok(None),
            Some(_) if at > 0 => {
                return Err(Some("the ARN of a secret must have spaces around it".to_owned()));
            }
            Some(arn) => arn.map_err(|error| Some(error.to_owned()))?,
        };
        let fetched = match self.texts.get(&arn.stored) {
            Some(Ok(text)) => arn.pick(text),
            Some(Err(error)) => Err(error.clone()),
            None => {
                self.wanted.insert(arn.stored.clone());
                if self.skips_secrets {
                    return Err(None);
                }
                Err(NOT_FETCHED.to_owned())
            }
        };
        fetched.map(Some).map_err(|problem| Some(format!("{arn}: {problem}")))
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
            Err(error) => self.vars.problem(name, format_args!("{refused}: {error}")),
        }
    }
}
