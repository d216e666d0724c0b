//! The program of a function: its environment, the errors of its start, and new builds of its file.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use http::Uri;
use jiff::Timestamp;
use requeue::Clock;
use requeue::embedded::loopback::is_loopback;
use requeue::embedded::{DEFAULT_ACCOUNT, DEFAULT_REGION};
use rustix::io::Errno;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::observe::Events;
use crate::output::LineOutput;
use crate::{Error, bail, environment};

/// The AWS variables that the function inherits from the user. All others may have credentials,
/// lead to real queues, or change the endpoint.
const INHERITED: [&str; 2] = ["AWS_LAMBDA_LOG_FORMAT", "AWS_LAMBDA_LOG_LEVEL"];
/// A handler also inherits this one if it leads to an emulator on this machine.
const TABLE_ENDPOINT: &str = "AWS_ENDPOINT_URL_DYNAMODB";

const UNLESS_SET: [(&str, &str); 4] = [
    // As in `template.yaml`.
    ("REQUEUE_DEAD_LETTER", "annotate"),
    // Long metric lines would only disturb here.
    ("REQUEUE_METRICS", "off"),
    // `requeue serve` has no loop detection.
    ("REQUEUE_RECURSIVE_LOOP", "Allow"),
    ("_HANDLER", "bootstrap"),
];

/// Removes the span of `lambda_runtime`, which puts request id and trace before each line.
/// Otherwise as `requeue::run` logs by default.
const LOG_FILTER: &str = "info,lambda_runtime=warn,aws_config=error";
const MEMORY_MIB: &str = "128";

pub(crate) struct Program {
    path: OsString,
    arguments: Vec<OsString>,
    name: String,
    pub(super) kind: ProgramKind,
    pub(super) file: Option<PathBuf>,
    sqs_url: String,
    /// The events of the page, if the page reads the log of the function.
    pub(crate) events: Option<Events>,
    pub(super) lines: LineOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramKind {
    /// It has Requeue in it.
    Handler,
    /// Requeue invokes it.
    Target,
}

impl ProgramKind {
    /// The rule that a program breaks if it asks for no invocation.
    pub(super) fn what_it_must_be(self) -> &'static str {
        match self {
            Self::Handler => "call requeue::run or lambda_runtime::run",
            Self::Target => {
                "be a runtime interface client, as in `-- python3 -m awslambdaric app.handler`"
            }
        }
    }
}

impl Program {
    pub(crate) fn target(
        command: &[OsString],
        sqs_url: String,
        lines: LineOutput,
    ) -> Result<Self, Error> {
        let program = Self::handler(&[], command, sqs_url, None)?;
        Ok(Self { kind: ProgramKind::Target, lines, ..program })
    }

    /// A program with its arguments, or else a command that runs the function, such as `cargo run`.
    pub(crate) fn handler(
        function: &[OsString],
        command: &[OsString],
        sqs_url: String,
        events: Option<Events>,
    ) -> Result<Self, Error> {
        let words = if function.is_empty() { command } else { function };
        let (path, arguments) = words.split_first().expect("one of them is given");
        let (arguments, mut path) = (arguments.to_vec(), path.clone());
        let (name, mut file) = (function_name(function), None);
        if !function.is_empty() {
            check(Path::new(&path))?;
            let absolute = std::path::absolute(&path)?;
            path = absolute.clone().into();
            file = Some(absolute);
        }
        let (kind, lines) = (ProgramKind::Handler, LineOutput::Stdout);
        Ok(Self { path, arguments, name, kind, file, sqs_url, events, lines })
    }

    /// Whether the page reads the log of the function, and the user did not choose its format.
    /// Requeue's lines are then in JSON, and the terminal shows them as text.
    pub(super) fn logs_for_page(&self) -> bool {
        self.events.is_some() && !is_set("AWS_LAMBDA_LOG_FORMAT")
    }

    pub(super) fn arn(&self) -> String {
        format!("arn:aws:lambda:{DEFAULT_REGION}:{DEFAULT_ACCOUNT}:function:{}", self.name)
    }

    /// The process of an execution environment. Source: Lambda developer guide, "Defined runtime
    /// environment variables".
    pub(super) fn command(&self, runtime_api: SocketAddr, environment: u64) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments);
        for (name, _) in std::env::vars_os() {
            if is_of_aws(&name) {
                command.env_remove(name);
            }
        }
        let is_here =
            |url: &String| url.parse().is_ok_and(|url: Uri| url.host().is_some_and(is_loopback));
        let table = environment::value(TABLE_ENDPOINT).filter(is_here);
        if let Some(url) = table.filter(|_| self.kind == ProgramKind::Handler) {
            command.env(TABLE_ENDPOINT, url);
        }
        for (name, value) in UNLESS_SET {
            if self.kind == ProgramKind::Handler && !is_set(name) {
                command.env(name, value);
            }
        }
        // As in Lambda, where it is the command of an image.
        let handler = self.arguments.last().filter(|_| self.kind == ProgramKind::Target);
        if let Some(handler) = handler.filter(|_| !is_set("_HANDLER")) {
            command.env("_HANDLER", handler);
        }
        if !is_set("RUST_LOG") && !is_set("AWS_LAMBDA_LOG_LEVEL") {
            command.env("RUST_LOG", LOG_FILTER);
        }
        if self.logs_for_page() {
            command.env("AWS_LAMBDA_LOG_FORMAT", "JSON");
        }
        let directory = self.file.as_deref().and_then(Path::parent).map(Path::to_owned);
        let directory = directory.or_else(|| std::env::current_dir().ok());
        let date =
            Timestamp::try_from(Clock::system().now()).unwrap_or_default().strftime("%Y/%m/%d");
        command
            .env("AWS_LAMBDA_RUNTIME_API", runtime_api.to_string())
            .env("AWS_LAMBDA_FUNCTION_NAME", &self.name)
            .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", MEMORY_MIB)
            .env("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand")
            .env("AWS_LAMBDA_LOG_GROUP_NAME", format!("/aws/lambda/{}", self.name))
            .env("AWS_LAMBDA_LOG_STREAM_NAME", format!("{date}/[$LATEST]{environment:032x}"))
            .env("LAMBDA_TASK_ROOT", directory.unwrap_or_else(|| ".".into()))
            .env("AWS_REGION", DEFAULT_REGION)
            .env("AWS_DEFAULT_REGION", DEFAULT_REGION)
            .env("AWS_ENDPOINT_URL_SQS", &self.sqs_url)
            .env("AWS_ACCESS_KEY_ID", "example")
            .env("AWS_SECRET_ACCESS_KEY", "example")
            .env("AWS_SESSION_TOKEN", "example")
            // The function uses neither the files in the home directory nor the machine's role.
            .env("AWS_CONFIG_FILE", "/dev/null")
            .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }

    pub(super) fn refused(&self, error: &io::Error) -> String {
        let program = Path::new(&self.path).display();
        match error.kind() {
            ErrorKind::NotFound if self.file.as_deref().is_some_and(|file| !file.exists()) => {
                format!("{program} no longer exists; build it again")
            }
            ErrorKind::NotFound if self.file.is_some() => format!(
                "{program} cannot be started: its interpreter or loader does not exist on this \
                 machine; correct its first line, or build it for this machine"
            ),
            ErrorKind::NotFound => {
                format!("the command {program} does not exist; check its name and PATH")
            }
            _ if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => format!(
                "{program} is built for another architecture, and this machine is {}; build it \
                 without --target and --arm64, or begin a script with #!",
                std::env::consts::ARCH
            ),
            _ => format!("{program} cannot be started: {error}"),
        }
    }
}

fn is_of_aws(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    let is_of_aws = bytes.starts_with(b"AWS_") || bytes.starts_with(b"_X_AMZN_");
    is_of_aws && !INHERITED.iter().any(|inherited| name == *inherited)
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some()
}

fn check(path: &Path) -> Result<(), Error> {
    let shown = path.display();
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!(
            "--function {shown} does not exist; build it first, or let a command build and run it, as \
             in `requeue serve -- cargo run`"
        ),
        _ => format!("--function {shown} cannot be read: {error}"),
    })?;
    if metadata.is_dir() {
        bail!(
            "--function {shown} is a directory; name the program itself, as in --function \
             target/debug/NAME"
        );
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        bail!(
            "--function {shown} is not executable; name the program that the build writes, or run \
             `chmod +x {shown}`"
        );
    }
    Ok(())
}

/// The file's name, with the characters that Lambda allows in a function's name. A command has none.
pub(crate) fn function_name(function: &[OsString]) -> String {
    let Some(path) = function.first() else { return "function".to_owned() };
    let stem = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
    let legal = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' };
    stem.chars().map(legal).take(64).collect()
}

/// The interval of checks. A file counts as complete if two checks find the same.
const LOOK: Duration = Duration::from_millis(250);

/// Identifies a build. `None` while the file is missing, as during linking.
fn stamp(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let file = fs::metadata(path).ok()?;
    Some((file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
}

/// A counter of new builds of this file. Without a file it never changes.
pub(super) fn builds(file: Option<PathBuf>) -> watch::Receiver<()> {
    let (sender, builds) = watch::channel(());
    tokio::spawn(async move {
        let Some(path) = file else {
            // Keeps the sender alive, so that the receiver sees no end.
            return sender.closed().await;
        };
        let mut running = stamp(&path);
        let mut last = running;
        while !sender.is_closed() {
            sleep(LOOK).await;
            let found = stamp(&path);
            if found.is_some() && found != running && found == last {
                running = found;
                sender.send_replace(());
            }
            last = found;
        }
    });
    builds
}
