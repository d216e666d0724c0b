//! The file of an SVG chart. It is opened before the work for the chart begins.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::Error;

pub(crate) struct ChartFile {
    path: PathBuf,
    file: File,
}

impl ChartFile {
    /// An earlier chart stays until the new one is written.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let mut options = OpenOptions::new();
        options.write(true);
        let file = match options.open(path) {
            // A new file never comes to be at the end of a link.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                options.create_new(true).open(path)
            }
            opened => opened,
        };
        let file = file.map_err(|error| unwritable(path, &error))?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(crate) fn write(mut self, chart: &str) -> Result<(), Error> {
        // Devices and pipes have no length.
        let is_regular = self.file.metadata().is_ok_and(|metadata| metadata.is_file());
        let emptied = if is_regular { self.file.set_len(0) } else { Ok(()) };
        let written = emptied.and_then(|()| self.file.write_all(chart.as_bytes()));
        Ok(written.map_err(|error| unwritable(&self.path, &error))?)
    }
}

fn unwritable(path: &Path, error: &io::Error) -> String {
    format!(
        "the chart {} cannot be written: {error}; name a file that you may write, in a directory \
         that exists",
        path.display()
    )
}
