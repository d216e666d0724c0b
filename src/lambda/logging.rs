//! Log lines on the standard output, as Lambda's logging controls ask for them; and without what must not be in them.

use lambda_runtime::tracing::dispatcher;
use lambda_runtime::tracing::subscriber::filter::{EnvFilter, LevelFilter};
use lambda_runtime::tracing::subscriber::fmt;

use super::fields::SpanFields;
use crate::config::Host;

/// What crates of these names, or of names that begin so, log below INFO may hold events, headers, request bodies and credentials.
/// `RUST_LOG` can still ask for it by name.
const DISCREET: [&str; 8] =
    ["aws_config", "aws_runtime", "aws_sdk_", "aws_sigv4", "aws_smithy_", "h2", "hyper", "lambda_runtime"];

/// Installs a `tracing` subscriber that writes to the standard output as Lambda's logging controls say (`AWS_LAMBDA_LOG_LEVEL`,
/// `AWS_LAMBDA_LOG_FORMAT`), and a panic hook that keeps the text of panics to itself; nothing if there is a subscriber already.
///
/// [`run`](crate::run) does it by itself; a `main` with a [`Worker`](crate::Worker) does it first. `default` counts where no level is
/// set.
///
/// ```
/// requeue::init_logging(tracing::Level::INFO);
/// ```
pub fn init_logging(default: tracing::Level) {
    init_logging_to(default, std::io::stdout);
}

/// As [`init_logging`], but with lines that go elsewhere: `writer` is asked for each of them. A line that cannot be written is lost.
///
/// ```
/// requeue::init_logging_to(tracing::Level::INFO, std::io::stderr);
/// ```
#[allow(clippy::missing_panics_doc, reason = "the directives are our own")]
pub fn init_logging_to<W: std::io::Write>(default: tracing::Level, writer: impl Fn() -> W + Send + Sync + 'static) {
    if dispatcher::has_been_set() {
        return;
    }
    let host = Host::from_env();
    let level = host.log_level.and_then(|level| level.parse().ok()).unwrap_or(LevelFilter::from_level(default));
    let mut filter = EnvFilter::builder().with_default_directive(level.into()).from_env_lossy();
    if level > LevelFilter::INFO {
        for name in DISCREET {
            filter = filter.add_directive(format!("{name}=info").parse().expect("a directive"));
        }
    }
    // Colours, which a crate somewhere may have switched on, are noise in a log.
    let lines = fmt().with_writer(writer).with_ansi(false).with_target(false).without_time().with_env_filter(filter);
    // To say that a line cannot be written, to a standard error that is gone as well, would be a panic.
    let lines = lines.log_internal_errors(false);
    if host.logs_json {
        // The innermost span is the last of `spans`.
        lines.json().with_current_span(false).fmt_fields(SpanFields).init();
    } else {
        lines.init();
    }
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "panic");
    }));
}
