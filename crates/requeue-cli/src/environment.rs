//! The arguments and variables of this process, for the parts of the command line that are no
//! settings.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// All arguments, the program's name first.
pub(crate) fn arguments() -> impl Iterator<Item = OsString> {
    env::args_os()
}

/// The variables whose names begin with this prefix. Empty variables count as unset.
pub(crate) fn variables(prefix: &str) -> impl Iterator<Item = (String, String)> {
    env::vars_os().filter_map(move |(name, value)| {
        let name = name.into_string().ok().filter(|name| name.starts_with(prefix))?;
        let value = value.to_string_lossy().into_owned();
        (!value.is_empty()).then_some((name, value))
    })
}

/// The directory in which the command was started.
pub(crate) fn directory() -> io::Result<PathBuf> {
    env::current_dir()
}

/// The value of a variable. An empty one counts as unset.
pub(crate) fn value(name: &str) -> Option<String> {
    let value = env::var_os(name)?.to_string_lossy().into_owned();
    Some(value).filter(|value| !value.is_empty())
}

/// Replaces this process by the same program with the same arguments, with one variable set and
/// these removed. Returns only the error.
pub(crate) fn begin_anew((name, value): (&str, &str), removed: &[&str]) -> io::Error {
    let program = match env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let mut arguments = arguments();
    let mut anew = Command::new(program);
    if let Some(shown) = arguments.next() {
        anew.arg0(shown);
    }
    anew.args(arguments).env(name, value);
    for name in removed {
        anew.env_remove(name);
    }
    anew.exec()
}
