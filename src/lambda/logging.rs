//! Log lines on the standard output, by Lambda's logging controls, and without messages and
//! credentials. A span is made for every message, and most of them log nothing: its fields are written
//! straight into the text.

use std::fmt;

use lambda_runtime::tracing::subscriber::field::RecordFields;
use lambda_runtime::tracing::subscriber::filter::{EnvFilter, LevelFilter, filter_fn};
use lambda_runtime::tracing::subscriber::fmt::FormattedFields;
use lambda_runtime::tracing::subscriber::fmt::format::{FormatFields, JsonFields, Writer};
use lambda_runtime::tracing::subscriber::layer::SubscriberExt;
use lambda_runtime::tracing::subscriber::util::SubscriberInitExt;
use lambda_runtime::tracing::{Level, Metadata, dispatcher, subscriber};
use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::span;

use crate::config::Host;

/// Crates with these names, or with names that begin so, log events, headers, request bodies and
/// credentials below INFO.
const DISCREET: &str = "\
    aws_config aws_credential_types aws_runtime aws_sdk_ aws_sigv4 aws_smithy_ h2 hyper \
    lambda_runtime reqwest rustls tower";

/// The SDK writes an error if the connection of a response with 500 is closed already.
const NO_TROUBLE: &str = "aws_smithy_runtime::client::http::connection_poisoning";

/// Whether a line or a span may be logged without showing a message or a credential. It removes the
/// lines that the AWS SDK, hyper, the Lambda runtime and similar crates write at DEBUG and TRACE.
/// It also removes the SDK's error about a connection that is closed already.
///
/// [`run`](crate::run) and [`init_logging`] apply this filter at every `RUST_LOG` and
/// `AWS_LAMBDA_LOG_LEVEL`. A subscriber of your own needs it too. Without it, DEBUG and TRACE show
/// bodies, attributes, receipt handles and access key ids:
///
/// ```
/// use tracing_subscriber::filter::{LevelFilter, filter_fn};
/// use tracing_subscriber::prelude::*;
///
/// tracing_subscriber::registry()
///     .with(LevelFilter::TRACE)
///     .with(filter_fn(requeue::may_be_logged))
///     .with(tracing_subscriber::fmt::layer())
///     .init();
/// ```
///
/// The text of panics may quote a message too: see [`log_panics_by_place`].
///
/// The log lines of your handler are your own: Requeue does not filter them.
pub fn may_be_logged(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let is_discreet = || DISCREET.split(' ').any(|name| target.starts_with(name));
    target != NO_TROUBLE && (*metadata.level() <= Level::INFO || !is_discreet())
}

/// Installs a `tracing` subscriber and a panic hook, unless there is a subscriber already. The
/// subscriber writes to the standard output by Lambda's logging controls (`AWS_LAMBDA_LOG_LEVEL`,
/// `AWS_LAMBDA_LOG_FORMAT`). The hook does not log the text of panics.
///
/// Each line in JSON has a `level` and an RFC 3339 `timestamp`. Lambda filters lines by both: it
/// takes a line without a valid `timestamp` for INFO. A subscriber of your own needs both too.
///
/// [`run`](crate::run) calls this by itself; a `main` with a [`Worker`](crate::Worker) calls it
/// first. `default` is the level if none is set. The lines that [`may_be_logged`] removes never
/// appear.
pub fn init_logging(default: tracing::Level) {
    init_logging_to(default, std::io::stdout);
}

/// As [`init_logging`], but with another destination: `writer` makes the writer of each line. A
/// line that cannot be written is lost.
pub fn init_logging_to<W: std::io::Write>(
    default: tracing::Level,
    writer: impl Fn() -> W + Send + Sync + 'static,
) {
    if dispatcher::has_been_set() {
        return;
    }
    let host = Host::from_env();
    let filter = filter(&host, default);
    // Colours, which a crate somewhere may have switched on, are noise in a log.
    let lines = subscriber::fmt()
        .with_writer(writer)
        .with_ansi(false)
        .with_target(false)
        .with_env_filter(filter);
    // If a line cannot be written and the standard error is gone too, a report of that would panic.
    let lines = lines.log_internal_errors(false);
    if host.logs_json {
        // Lambda filters JSON lines by `level`, but takes each line without a valid RFC 3339
        // `timestamp` for INFO. At WARN it would drop every error. Source: Lambda developer guide,
        // "Log-level filtering". The timer of `fmt` writes such a `timestamp`. The innermost span
        // is the last of `spans`.
        lines
            .json()
            .with_current_span(false)
            .fmt_fields(SpanFields)
            .finish()
            .with(filter_fn(may_be_logged))
            .init();
    } else {
        // CloudWatch Logs has the time of each line.
        lines.without_time().finish().with(filter_fn(may_be_logged)).init();
    }
    log_panics_by_place();
}

fn filter(host: &Host, default: tracing::Level) -> EnvFilter {
    let level =
        host.log_level.as_deref().and_then(filter_of).unwrap_or(LevelFilter::from_level(default));
    // A later directive replaces an earlier one of the same crate, or of all.
    let directives = format!("{level},{}", host.rust_log.as_deref().unwrap_or_default());
    let filter = EnvFilter::builder().parse_lossy(directives);
    // That crate logs a line of a thousand characters for each provider without credentials. If
    // none has credentials, the call fails, and Requeue logs that error.
    let is_asked_for = host.log_level.is_some() || host.rust_log.is_some();
    match "aws_config=error".parse() {
        Ok(quiet) if !is_asked_for => filter.add_directive(quiet),
        _ => filter,
    }
}

/// The filter of a level of Lambda, which has one more than `tracing`.
fn filter_of(level: &str) -> Option<LevelFilter> {
    if level.eq_ignore_ascii_case("FATAL") { Some(LevelFilter::ERROR) } else { level.parse().ok() }
}

/// Installs a panic hook that logs the place of a panic. It does not log the text, which may quote
/// a message. It is for a program with a subscriber of its own; [`init_logging`] installs it by
/// itself.
pub fn log_panics_by_place() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "panic");
    }));
}

/// Writes the same text as [`JsonFields`], which collects values in a map before.
pub(super) struct SpanFields;

impl<'w> FormatFields<'w> for SpanFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut object = JsonObject::default();
        fields.record(&mut object);
        writer.write_str(&object.finish()?)
    }

    /// Adds fields to the text, since some become known later.
    fn add_fields(
        &self,
        current: &'w mut FormattedFields<Self>,
        fields: &span::Record<'_>,
    ) -> fmt::Result {
        let mut merged = FormattedFields::<JsonFields>::new(std::mem::take(&mut current.fields));
        let added = JsonFields::new().add_fields(&mut merged, fields);
        current.fields = merged.fields;
        added
    }
}

/// The text of a JSON object, without its last bracket.
struct JsonObject(Vec<u8>);

impl Default for JsonObject {
    fn default() -> Self {
        // The span of a message takes about 150 bytes.
        Self(Vec::with_capacity(192))
    }
}

impl JsonObject {
    fn member(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        self.json(name);
        self.0.push(b':');
        self.json(value);
    }

    fn json(&mut self, value: &(impl Serialize + ?Sized)) {
        // A text, a number and a vector can always be written.
        let _ = serde_json::to_writer(&mut self.0, value);
    }

    fn finish(mut self) -> Result<String, fmt::Error> {
        if self.0.is_empty() {
            self.0.push(b'{');
        }
        self.0.push(b'}');
        String::from_utf8(self.0).map_err(|_| fmt::Error)
    }
}

macro_rules! members {
    ($($record:ident: $kind:ty),+) => {
        $(fn $record(&mut self, field: &Field, value: $kind) {
            self.member(field.name(), &value);
        })+
    };
}

impl Visit for JsonObject {
    members!(record_f64: f64, record_i64: i64, record_u64: u64, record_bool: bool);
    members!(record_str: &str, record_bytes: &[u8]);

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let name = field.name();
        self.member(name.strip_prefix("r#").unwrap_or(name), &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use lambda_runtime::tracing::dispatcher::{Dispatch, with_default};
    use serde_json::Value;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_level_holds_for_crates_that_rust_log_does_not_name() {
        for (rust_log, shown) in [
            (None, "aws_config=error,info"),
            (Some("warn"), "warn"),
            (Some("hyper=warn"), "hyper=warn,info"),
            (Some("hyper=warn,debug"), "hyper=warn,debug"),
        ] {
            let host = Host { rust_log: rust_log.map(str::to_owned), ..Host::default() };
            assert_eq!(filter(&host, tracing::Level::INFO).to_string(), shown);
        }
    }

    fn lines(log: &Lines) -> Vec<Value> {
        let log = log.0.lock().expect("no panic");
        let lines = log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect()
    }

    fn say() {
        use tracing::field::{Empty, debug};

        let none: Option<&str> = None;
        tracing::info_span!("none").in_scope(|| tracing::info!("1"));
        tracing::info_span!("absent", none).in_scope(|| tracing::info!("2"));
        let span = tracing::info_span!(
            "kinds",
            text = "quotes \" and\nlines, \u{1}, ü",
            r#type = ?("a", 1),
            r#move = 1,
            "a \"name\"" = %"shown",
            signed = -1_i64,
            unsigned = u64::MAX,
            wide = i128::MAX,
            fraction = 0.5,
            no_number = f64::NAN,
            flag = true,
            bytes = &b"bytes"[..],
            later = Empty,
        );
        span.in_scope(|| tracing::info!("3"));
        span.record("later", debug(Some("known")));
        span.in_scope(|| tracing::info!("4"));
        let later = tracing::info_span!("later", later = Empty);
        later.record("later", 5);
        later.in_scope(|| tracing::info!("5"));
    }

    #[test]
    fn spans_are_logged_as_by_the_library() {
        let (ours, theirs) = (Lines::default(), Lines::default());
        let writer = ours.clone();
        let json = subscriber::fmt()
            .json()
            .without_time()
            .with_writer(move || writer.clone())
            .fmt_fields(SpanFields);
        with_default(&Dispatch::new(json.finish()), say);
        let writer = theirs.clone();
        let json = subscriber::fmt().json().without_time().with_writer(move || writer.clone());
        with_default(&Dispatch::new(json.finish()), say);
        assert_eq!(lines(&ours), lines(&theirs));
        assert_eq!(lines(&ours).len(), 5);
    }
}
