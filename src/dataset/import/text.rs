//! What all text formats share: opening a file with a clear error, numbers, and lines of words.

use crate::error::{Error, Result, WithPath};
use crate::progress::Progress;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

/// Bytes between two looks at the progress bar.
const PROGRESS_STEP: u64 = 1 << 22;

/// Opens a text file, telling apart what users meet: no file, a directory, empty, compressed.
pub(super) fn open(path: &Path) -> Result<File> {
    let mut file = File::open(path).with_path(path, "")?;
    if file.metadata().with_path(path, "")?.is_dir() {
        return Err(Error::file(path, "this is a directory, a text file is expected"));
    }
    let mut magic = Vec::new();
    (&mut file).take(2).read_to_end(&mut magic).with_path(path, "")?;
    match magic[..] {
        [] => Err(Error::file(path, "the file is empty")),
        [0x1f, 0x8b] => Err(Error::file(path, "the file is compressed: run gunzip on it first")),
        _ => {
            file.rewind().with_path(path, "")?;
            Ok(file)
        }
    }
}

/// Follows the bytes of a file as they are read.
pub(super) struct ByteProgress {
    progress: Progress,
    shown: u64,
}

impl ByteProgress {
    pub(super) fn new(path: &Path, file: &File) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let total = file.metadata().map_or(0, |m| m.len());
        ByteProgress { progress: Progress::new(&format!("reading {name}"), total), shown: 0 }
    }

    /// The reader stands at byte `position`.
    #[inline]
    pub(super) fn at(&mut self, position: u64) {
        if position >= self.shown + PROGRESS_STEP {
            self.progress.advance(position - self.shown);
            self.shown = position;
        }
    }
}

/// Text of a field for an error message.
pub(super) fn quoted(field: &[u8]) -> String {
    const LONGEST: usize = 40;
    let text = String::from_utf8_lossy(&field[..field.len().min(LONGEST)]);
    format!("`{text}{}`", if field.len() > LONGEST { "..." } else { "" })
}

// ---- numbers: each parser says what is wrong, the caller knows the file and line --------------

/// A finite number.
pub(super) fn number(field: &[u8]) -> Result<f64, String> {
    match fast_float2::parse::<f64, _>(field.trim_ascii()) {
        Ok(v) if v.is_finite() => Ok(v),
        Ok(_) => Err(format!("{} is not a finite number", quoted(field))),
        Err(_) => Err(format!("{} is not a number", quoted(field))),
    }
}

/// A value that may be unknown: empty or `nan` in any case becomes NaN.
pub(super) fn value(field: &[u8]) -> Result<f64, String> {
    let field = field.trim_ascii();
    if field.is_empty() || field.eq_ignore_ascii_case(b"nan") {
        return Ok(f64::NAN);
    }
    number(field)
}

/// An edge weight: positive and finite.
pub(super) fn weight(field: &[u8]) -> Result<f64, String> {
    match fast_float2::parse::<f64, _>(field.trim_ascii()) {
        Ok(w) if w.is_finite() && w > 0.0 => Ok(w),
        Ok(_) => Err(format!("{} must be a positive, finite number", quoted(field))),
        Err(_) => Err(format!("{} is not a number", quoted(field))),
    }
}

/// A whole number; whether it is in range is for the caller to say.
pub(super) fn integer(field: &[u8]) -> Result<i64, String> {
    let field = field.trim_ascii();
    let digits = field.strip_prefix(b"-").unwrap_or(field);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(format!("{} is not a whole number", quoted(field)));
    }
    let magnitude = digits
        .iter()
        .try_fold(0i64, |sum, digit| sum.checked_mul(10)?.checked_add(i64::from(digit - b'0')));
    match magnitude {
        Some(m) => Ok(if digits.len() < field.len() { -m } else { m }),
        None => Err(format!("{} does not fit 64 bits", quoted(field))),
    }
}

/// `0`, `1`, `true` or `false`.
pub(super) fn flag(field: &[u8]) -> Result<bool, String> {
    match field.trim_ascii() {
        b"1" => Ok(true),
        b"0" => Ok(false),
        t if t.eq_ignore_ascii_case(b"true") => Ok(true),
        t if t.eq_ignore_ascii_case(b"false") => Ok(false),
        other => Err(format!("{} is neither 0 nor 1", quoted(other))),
    }
}

// ---- lines of words ---------------------------------------------------------------------------

/// Lines of words between blanks, tabs or commas; blank lines are skipped, lines are counted.
pub(super) struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    buffer: Vec<u8>,
    line: u64,
    position: u64,
    progress: ByteProgress,
}

impl Lines {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = open(path)?;
        let progress = ByteProgress::new(path, &file);
        let reader = BufReader::with_capacity(1 << 16, file);
        Ok(Lines { path: path.into(), reader, buffer: Vec::new(), line: 0, position: 0, progress })
    }

    /// Goes to the next line that is neither blank nor a comment (`#` or `%`); false at the end.
    pub(super) fn next(&mut self) -> Result<bool> {
        while self.next_raw()? {
            if !matches!(self.text().first(), None | Some(b'#' | b'%')) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Goes to the next line, whatever it holds; false at the end.
    pub(super) fn next_raw(&mut self) -> Result<bool> {
        self.buffer.clear();
        let read = self.reader.read_until(b'\n', &mut self.buffer).with_path(&self.path, "")?;
        self.line += u64::from(read > 0);
        self.position += read as u64;
        self.progress.at(self.position);
        Ok(read > 0)
    }

    /// The line without blanks at its ends (and without a byte order mark).
    pub(super) fn text(&self) -> &[u8] {
        let text = self.buffer.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&self.buffer);
        text.trim_ascii()
    }

    /// The words of the line.
    pub(super) fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.text().split(|c| c.is_ascii_whitespace() || *c == b',').filter(|word| !word.is_empty())
    }

    /// The words of a line that must have exactly `K`; `shape` shows what it should look like.
    pub(super) fn exactly<const K: usize>(&self, shape: &str) -> Result<[&[u8]; K]> {
        let mut words = self.words();
        let mut taken = [&b""[..]; K];
        for slot in &mut taken {
            *slot = words.next().ok_or_else(|| self.misshapen(shape))?;
        }
        match words.next() {
            None => Ok(taken),
            Some(_) => Err(self.misshapen(shape)),
        }
    }

    fn misshapen(&self, shape: &str) -> Error {
        self.error(format!("expected `{shape}`, found {}", quoted(self.text())))
    }

    /// Number of the line in hand, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Puts file and line before what a number parser says of `what`.
    pub(super) fn located<T>(&self, what: &str, parsed: Result<T, String>) -> Result<T> {
        parsed.map_err(|message| self.error(format!("{what} {message}")))
    }

    /// An error at the line in hand.
    pub(super) fn error(&self, message: impl Into<String>) -> Error {
        Error::parse(&self.path, self.line, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(number(b" 1.5e3\t"), Ok(1500.0));
        assert!(number(b"nan").is_err() && number(b"inf").is_err() && number(b"1,5").is_err());
        assert!(value(b"").unwrap().is_nan() && value(b"NaN").unwrap().is_nan());
        assert!(value(b"inf").is_err() && value(b"x").is_err());
        assert_eq!(weight(b"2"), Ok(2.0));
        for bad in ["0", "-1", "nan", "inf", "w", ""] {
            assert!(weight(bad.as_bytes()).is_err(), "{bad}");
        }
        assert_eq!(integer(b"-12"), Ok(-12));
        assert_eq!(integer(b"9223372036854775807"), Ok(i64::MAX));
        for bad in ["", "-", "1.0", "9223372036854775808", "1e3", "+1"] {
            assert!(integer(bad.as_bytes()).is_err(), "{bad}");
        }
        assert_eq!((flag(b"1"), flag(b"False")), (Ok(true), Ok(false)));
        assert!(flag(b"2").is_err());
    }
}
