//! The arguments, variables and input of this process, for all that is no setting.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

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

/// The value of a variable. An empty one counts as unset.
pub(crate) fn value(name: &str) -> Option<String> {
    let value = env::var_os(name)?.to_string_lossy().into_owned();
    Some(value).filter(|value| !value.is_empty())
}

/// Replaces this process by itself, with one variable set and these removed. Returns the error.
pub(crate) fn begin_anew((name, value): (&str, &str), removed: &[&str]) -> io::Error {
    let program = match env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let mut anew = Command::new(program);
    anew.args(arguments().skip(1)).env(name, value);
    for name in removed {
        anew.env_remove(name);
    }
    anew.exec()
}

/// The text of a file, or of the standard input if its name is `-`. `allowed` describes the limit
/// in an error: some files have no end.
pub(crate) fn read(path: &Path, max_bytes: usize, allowed: &str) -> io::Result<String> {
    if path.as_os_str() == "-" {
        return text(io::stdin(), max_bytes, allowed);
    }
    text(File::open(path)?, max_bytes, allowed)
}

fn text(source: impl Read, max_bytes: usize, allowed: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    source.take(max_bytes as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max_bytes {
        return Err(io::Error::other(format!("it is larger than {allowed}")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}

/// The variables of a route to AWS that Requeue does not use, as a remark.
pub(crate) fn unused_route() -> String {
    let is_set = |names: &[&'static str]| names.iter().copied().find(|name| value(name).is_some());
    let proxy = is_set(&["HTTPS_PROXY", "https_proxy"]).map(|name| {
        format!("; Requeue reaches AWS without the proxy of {name}: use a network that has a route")
    });
    let certificates = is_set(&["AWS_CA_BUNDLE"]).map(|name| {
        format!("; Requeue does not read {name}: name the certificates with SSL_CERT_FILE")
    });
    proxy.into_iter().chain(certificates).collect()
}

pub(crate) fn endpoint_variable_of(service: &str) -> String {
    format!("AWS_ENDPOINT_URL_{}", service.to_ascii_uppercase().replace(' ', "_"))
}

/// The variable that sets the endpoint of a service, as the SDK finds it, and its value.
pub(crate) fn endpoint_variable(service: &str) -> Option<(String, String)> {
    [endpoint_variable_of(service), "AWS_ENDPOINT_URL".to_owned()]
        .into_iter()
        .find_map(|name| value(&name).map(|value| (name, value)))
}
