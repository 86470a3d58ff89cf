//! Tables with named columns: CSV files read row by row, every error with file and line.

use super::text::{self, ByteProgress, quoted};
use crate::error::{Error, Result, WithPath};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// A CSV file with one row in hand.
///
/// Rows are remembered by their byte ([`Table::here`]): the line is counted only when an error
/// needs it, since quoted fields and blank lines make a running count unreliable.
pub(super) struct Table {
    path: PathBuf,
    reader: csv::Reader<File>,
    row: csv::ByteRecord,
    header: Vec<String>,
    progress: ByteProgress,
}

impl Table {
    /// Opens a file whose first line names the columns.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let mut table = Table::start(path)?;
        if !table.next_record()? {
            return Err(Error::file(path, "the file is empty"));
        }
        let name = |field: &[u8]| String::from_utf8_lossy(field.trim_ascii()).into_owned();
        table.header = table.row.iter().map(name).collect();
        for (k, name) in table.header.iter().enumerate() {
            if table.header[..k].contains(name) {
                return Err(table.error(format!("column `{name}` appears twice")));
            }
        }
        Ok(table)
    }

    /// Opens a file without a header whose columns are known.
    pub(super) fn without_header(path: &Path, columns: &[&str]) -> Result<Self> {
        let mut table = Table::start(path)?;
        table.header = columns.iter().map(|&c| c.to_owned()).collect();
        Ok(table)
    }

    fn start(path: &Path) -> Result<Self> {
        let file = text::open(path)?;
        let progress = ByteProgress::new(path, &file);
        let reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true) // a wrong number of fields is reported here, with the line
            .buffer_capacity(1 << 16)
            .from_reader(file);
        Ok(Table {
            path: path.into(),
            reader,
            row: csv::ByteRecord::new(),
            header: Vec::new(),
            progress,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn header(&self) -> &[String] {
        &self.header
    }

    /// The index of a column that may be absent.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|h| h == name)
    }

    /// The index of a column that must be there.
    pub(super) fn column(&self, name: &str) -> Result<usize> {
        self.find(name).ok_or_else(|| {
            self.header_error(format!(
                "column `{name}` is missing; the file has {}",
                self.header.join(", ")
            ))
        })
    }

    /// Refuses columns that nobody asked for: they are usually misspelt. `valid` lists the names
    /// that are known; a name that ends in `*` stands for all that begin so.
    pub(super) fn only_columns(&self, valid: &[&str]) -> Result<()> {
        let known = |name: &str| {
            valid.iter().any(|v| match v.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => *v == name,
            })
        };
        match self.header.iter().find(|name| !known(name)) {
            None => Ok(()),
            Some(name) => Err(self.header_error(format!(
                "unknown column `{name}`; valid columns are {}",
                valid.join(", ")
            ))),
        }
    }

    /// Goes to the next row; false at the end.
    #[inline]
    pub(super) fn next(&mut self) -> Result<bool> {
        if !self.next_record()? {
            return Ok(false);
        }
        if self.row.len() != self.header.len() {
            return Err(self.error(format!(
                "{} fields where {} are expected ({})",
                self.row.len(),
                self.header.len(),
                self.header.join(",")
            )));
        }
        Ok(true)
    }

    #[inline]
    fn next_record(&mut self) -> Result<bool> {
        let more = self
            .reader
            .read_byte_record(&mut self.row)
            .map_err(|e| Error::file(&self.path, e.to_string()))?;
        self.progress.at(self.here());
        Ok(more)
    }

    /// Where the row in hand begins; see [`Table::line_at`].
    #[inline]
    pub(super) fn here(&self) -> u64 {
        self.row.position().map_or(0, csv::Position::byte)
    }

    // ---- fields of the row in hand ------------------------------------------------------------

    /// A finite number.
    #[inline]
    pub(super) fn number(&self, column: usize) -> Result<f64> {
        self.parsed(column, text::number)
    }

    /// A number or, where empty or `nan`, NaN.
    #[inline]
    pub(super) fn value(&self, column: usize) -> Result<f64> {
        self.parsed(column, text::value)
    }

    /// A positive number.
    #[inline]
    pub(super) fn weight(&self, column: usize) -> Result<f64> {
        self.parsed(column, text::weight)
    }

    /// A whole number.
    #[inline]
    pub(super) fn integer(&self, column: usize) -> Result<i64> {
        self.parsed(column, text::integer)
    }

    /// `0` or `1`.
    #[inline]
    pub(super) fn flag(&self, column: usize) -> Result<bool> {
        self.parsed(column, text::flag)
    }

    #[inline]
    fn parsed<T>(&self, column: usize, parse: fn(&[u8]) -> Result<T, String>) -> Result<T> {
        parse(&self.row[column]).map_err(|m| self.error(format!("{} {m}", self.header[column])))
    }

    /// The field as it is written, for messages.
    pub(super) fn shown(&self, column: usize) -> String {
        quoted(&self.row[column])
    }

    // ---- errors -------------------------------------------------------------------------------

    /// An error in the row in hand.
    #[cold]
    pub(super) fn error(&self, message: impl Into<String>) -> Error {
        self.error_at(self.here(), message)
    }

    /// An error in the row that begins at a byte.
    #[cold]
    pub(super) fn error_at(&self, byte: u64, message: impl Into<String>) -> Error {
        match self.line_at(byte) {
            Ok(line) => Error::parse(&self.path, line, message),
            Err(error) => error,
        }
    }

    fn header_error(&self, message: String) -> Error {
        Error::parse(&self.path, 1, message)
    }

    /// The line of the row that the reader met at `byte`: blank lines before it are not part of it.
    pub(super) fn line_at(&self, byte: u64) -> Result<u64> {
        let mut file = BufReader::new(File::open(&self.path).with_path(&self.path, "")?);
        let (mut at, mut line) = (0, 1);
        loop {
            let chunk = file.fill_buf().with_path(&self.path, "")?;
            if chunk.is_empty() {
                return Ok(line);
            }
            for &c in chunk {
                if at >= byte && c != b'\n' && c != b'\r' {
                    return Ok(line);
                }
                line += u64::from(c == b'\n');
                at += 1;
            }
            let used = chunk.len();
            file.consume(used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(contents: &str) -> (tempfile::TempDir, Table) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv");
        std::fs::write(&path, contents).unwrap();
        let table = Table::open(&path).unwrap();
        (dir, table)
    }

    #[test]
    fn lines_are_exact_through_blank_lines_and_all_line_ends() {
        for end in ["\n", "\r\n"] {
            let text = ["\u{feff}a,b", "1,2", "", "", "3,\"4", "5\"", "6,x"].join(end);
            let (_dir, mut table) = table(&text);
            assert_eq!(table.header(), ["a", "b"]);
            let mut lines = Vec::new();
            while table.next().unwrap() {
                lines.push(table.line_at(table.here()).unwrap());
            }
            assert_eq!(lines, [2, 5, 7], "{end:?}");
        }
    }

    #[test]
    fn columns_are_found_by_name() {
        let (_dir, mut table) = table("b, a\n1,2\n");
        assert!(table.next().unwrap());
        assert_eq!(table.number(table.column("a").unwrap()).unwrap(), 2.0);
        let missing = table.column("c").unwrap_err().to_string();
        assert!(missing.contains("t.csv:1: column `c` is missing; the file has b, a"), "{missing}");
        assert!(table.only_columns(&["b", "a*"]).is_ok());
        let unknown = table.only_columns(&["a", "c"]).unwrap_err().to_string();
        assert!(unknown.contains("unknown column `b`; valid columns are a, c"), "{unknown}");
    }
}
