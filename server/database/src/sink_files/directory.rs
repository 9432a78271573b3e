//! The directory of a sink: which of its files count.
//!
//! `<prefix>-<number>.<format>` counts; `.<prefix>-<number>.<format>.tmp` is being written, or was committed and is about to
//! get its name. Numbers begin at 0 and have no gaps. Nothing that has its name is ever changed or removed here: it belongs
//! to whoever reads the directory.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};

use millrace_catalog::sink::{FileFormat, FileTarget};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::private;

/// An error of the file system. `what` was to be done: `write`.
pub(crate) fn io_error(what: &str, path: &Path, error: &io::Error) -> SqlError {
    let (state, hint) = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => (
            SqlState::DiskFull,
            "The sink resumes automatically when there is space.",
        ),
        ErrorKind::NotFound => (SqlState::UndefinedFile, ""),
        _ => (SqlState::IoError, ""),
    };
    let message = format!("could not {what} \"{}\": {error}", path.display());
    SqlError::new(state, message).with_hint_opt((!hint.is_empty()).then(|| hint.to_owned()))
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
    prefix: String,
    extension: &'static str,
    /// Whether nobody else may read the files.
    is_private: bool,
}

impl Directory {
    /// Those of a sink that writes files.
    pub fn of(files: &FileTarget) -> Directory {
        Directory {
            path: files.path.clone(),
            prefix: files.prefix.clone(),
            extension: files.format.name(),
            is_private: false,
        }
    }

    /// Files of the data directory, with numbers of their own.
    pub(super) fn at(path: PathBuf, prefix: &str, format: FileFormat) -> Directory {
        Directory {
            path,
            prefix: prefix.to_owned(),
            extension: format.name(),
            is_private: true,
        }
    }

    /// A new file of these.
    ///
    /// # Errors
    /// The file system refuses.
    pub(super) fn create_new(&self, path: &Path) -> io::Result<File> {
        match self.is_private {
            true => private::create_new(path),
            false => File::create_new(path),
        }
    }

    /// Removes the files whose numbers are not to be kept, hidden or not.
    ///
    /// # Errors
    /// The file system refuses.
    pub(crate) fn remove(&self, is_kept: impl Fn(u64) -> bool) -> SqlResult<()> {
        for (number, is_hidden) in self.numbers()? {
            if is_kept(number) && !is_hidden {
                continue;
            }
            let path = match is_hidden {
                true => self.hidden(number),
                false => self.file(number),
            };
            fs::remove_file(&path).map_err(|error| io_error("remove", &path, &error))?;
        }
        Ok(())
    }

    /// A file that counts.
    pub fn file(&self, number: u64) -> PathBuf {
        self.path
            .join(format!("{}-{number:010}.{}", self.prefix, self.extension))
    }

    /// A file that has not got its name.
    pub fn hidden(&self, number: u64) -> PathBuf {
        self.path
            .join(format!(".{}-{number:010}.{}.tmp", self.prefix, self.extension))
    }

    /// Refuses a directory that a new sink cannot write to.
    ///
    /// # Errors
    /// It is not there, is no directory, cannot be written, or has files of a sink of this name.
    pub fn check_new(&self) -> SqlResult<()> {
        let found = fs::metadata(&self.path).map_err(|error| io_error("open", &self.path, &error))?;
        if !found.is_dir() {
            return Err(SqlError::new(
                SqlState::IoError,
                format!("\"{}\" is not a directory", self.path.display()),
            ));
        }
        if !self.path.is_absolute() {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("\"{}\" is not an absolute path", self.path.display()),
            )
            .with_hint("A sink resumes after a restart, which may have another working directory."));
        }
        let files = self.numbers()?;
        if let Some(path) = files.first().map(|(number, is_hidden)| match is_hidden {
            true => self.hidden(*number),
            false => self.file(*number),
        }) {
            return Err(SqlError::new(
                SqlState::DuplicateObject,
                format!("\"{}\" already exists", path.display()),
            )
            .with_detail("A sink of this name would write files with the same names.")
            .with_hint("Move the files elsewhere, or use another directory or name."));
        }
        let probe = self.hidden(0);
        let tried = File::create_new(&probe).and_then(|_| fs::remove_file(&probe));
        tried.map_err(|error| io_error("write", &probe, &error))
    }

    /// Makes the directory as it is to be when the files below `next` count and no others.
    ///
    /// # Errors
    /// A file that counts is there and ought not to be: somebody else writes here.
    pub fn settle(&self, next: u64) -> SqlResult<()> {
        let mut committed = vec![];
        for (number, is_hidden) in self.numbers()? {
            match is_hidden {
                true if number < next => committed.push(number),
                true => {
                    let path = self.hidden(number);
                    fs::remove_file(&path).map_err(|error| io_error("remove", &path, &error))?;
                }
                false if number >= next => {
                    let path = self.file(number);
                    return Err(SqlError::new(
                        SqlState::DataCorrupted,
                        format!("\"{}\" was not written by this sink", path.display()),
                    )
                    .with_detail(
                        "Another server writes to the directory, or this one was restored from a backup.",
                    )
                    .with_hint("Drop the sink and create it again with another directory."));
                }
                false => {}
            }
        }
        for number in committed {
            self.publish(number..number + 1)?;
        }
        Ok(())
    }

    /// Gives committed files their names.
    ///
    /// # Errors
    /// A file of that name is there, or cannot be made.
    pub fn publish(&self, numbers: Range<u64>) -> SqlResult<()> {
        for number in numbers {
            let (from, to) = (self.hidden(number), self.file(number));
            if to.exists() {
                return Err(SqlError::new(
                    SqlState::DuplicateObject,
                    format!("\"{}\" already exists", to.display()),
                )
                .with_hint("Move the file elsewhere; the sink then resumes."));
            }
            fs::rename(&from, &to).map_err(|error| io_error("rename", &from, &error))?;
        }
        self.sync()
    }

    /// Returns when names are on the disk.
    pub fn sync(&self) -> SqlResult<()> {
        let synced = File::open(&self.path).and_then(|directory| directory.sync_all());
        synced.map_err(|error| io_error("sync", &self.path, &error))
    }

    /// The sink's files by their numbers, and whether each is hidden.
    fn numbers(&self) -> SqlResult<Vec<(u64, bool)>> {
        let listed = fs::read_dir(&self.path).map_err(|error| io_error("open", &self.path, &error))?;
        let mut numbers = vec![];
        for entry in listed {
            let entry = entry.map_err(|error| io_error("read", &self.path, &error))?;
            if let Some(number) = entry.file_name().to_str().and_then(|name| self.number(name)) {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn number(&self, name: &str) -> Option<(u64, bool)> {
        let (name, is_hidden) = match name.strip_prefix('.') {
            Some(hidden) => (hidden.strip_suffix(".tmp")?, true),
            None => (name, false),
        };
        let digits = name.strip_prefix(&self.prefix)?.strip_prefix('-')?;
        let digits = digits.strip_suffix(self.extension)?.strip_suffix('.')?;
        let is_number = digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits
            .parse()
            .ok()
            .filter(|_| is_number)
            .map(|number| (number, is_hidden))
    }
}
