//! `requeue completions` and `requeue man`: the command line for shells and for `man`.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap_complete::generate;
use clap_complete::shells::{Bash, Fish, Zsh};

use crate::{Error, command_line, output};

/// The name under which people run this program.
const NAME: &str = "requeue";

#[derive(clap::Args)]
pub(crate) struct CompletionsArguments {
    /// The shell.
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

#[derive(clap::Args)]
pub(crate) struct ManArguments {
    /// The directory for the pages, such as ~/.local/share/man/man1. The command creates it.
    directory: PathBuf,
}

pub(crate) fn completions(arguments: &CompletionsArguments) -> Result<ExitCode, Error> {
    let (mut command, mut script) = (command_line(), Vec::new());
    match arguments.shell.as_str() {
        "zsh" => generate(Zsh, &mut command, NAME, &mut script),
        "fish" => generate(Fish, &mut command, NAME, &mut script),
        _ => generate(Bash, &mut command, NAME, &mut script),
    }
    output::write(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(arguments: &ManArguments) -> Result<ExitCode, Error> {
    let directory = &arguments.directory;
    let unwritable = |error: io::Error| {
        format!(
            "the pages cannot be written to {}: {error}; name another directory",
            directory.display()
        )
    };
    fs::create_dir_all(directory).map_err(unwritable)?;
    clap_mangen::generate_to(command_line(), directory).map_err(unwritable)?;
    output::note(format_args!(
        "note: the pages are in {}; read one with `man {}/requeue.1`",
        directory.display(),
        directory.display()
    ));
    Ok(ExitCode::SUCCESS)
}
