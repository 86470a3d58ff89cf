//! Graphs as Matrix Market files (NIST coordinate format): row and column are the ends of an
//! edge, the entry is its weight, the diagonal is dropped.

use super::Imported;
use super::records::isolated;
use super::text::{self, Lines, quoted};
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::graph::EdgeList;
use std::path::{Path, PathBuf};

/// Which files to read, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the dataset.
    pub name: String,
    /// `coordinate`, `real`/`integer`/`pattern`, `symmetric`/`general`. In a general matrix
    /// `(i, j)` and `(j, i)` are the same edge.
    pub matrix: PathBuf,
    /// One value per line, or a Matrix Market `array` of one column; `nan` is unknown.
    pub values: PathBuf,
    /// Take the pattern only: entries may then have any sign.
    pub unweighted: bool,
}

/// Reads the files.
pub fn read(options: &Options) -> Result<Imported> {
    let (n, edges) = read_matrix(&options.matrix, options.unweighted)?;
    let (graph, cleaning) = edges.into_graph(n)?;
    let (y, lines) = read_vector(&options.values, n)?;
    if let Some(node) = graph.first_isolated() {
        let message = isolated(node + 1, &options.matrix);
        return Err(Error::parse(&options.values, lines[node], message));
    }
    Ok(Imported::new(Dataset::new(&options.name, graph, y), cleaning, &options.values))
}

/// What the entries of a matrix are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Pattern,
    Number,
}

/// Checks a `%%MatrixMarket` line for the layout that is expected.
fn read_banner(lines: &Lines, layout: &str) -> Result<Field> {
    let banner = String::from_utf8_lossy(lines.text()).to_ascii_lowercase();
    let words: Vec<&str> = banner.split_ascii_whitespace().collect();
    let [object, found, field, symmetry] = match words[..] {
        ["%%matrixmarket", object, layout, field, symmetry] => [object, layout, field, symmetry],
        _ => {
            return Err(lines.error(format!(
                "expected `%%MatrixMarket matrix {layout} real general`, found {}",
                quoted(lines.text())
            )));
        }
    };
    let refuse = |what: &str, found: &str, valid: &str| {
        Err(lines.error(format!("{what} `{found}`: {valid}")))
    };
    if object != "matrix" {
        return refuse("object", object, "only `matrix` can be read");
    }
    if found != layout {
        return refuse("layout", found, &format!("`{layout}` is needed here"));
    }
    if !matches!(symmetry, "symmetric" | "general") {
        return refuse("symmetry", symmetry, "a graph is `symmetric` or `general`");
    }
    match field {
        "real" | "integer" => Ok(Field::Number),
        "pattern" if layout == "coordinate" => Ok(Field::Pattern),
        _ => refuse("entries", field, "`real`, `integer` or `pattern` can be read"),
    }
}

fn size(lines: &Lines, word: &[u8]) -> Result<usize> {
    let size = lines.located("size", text::integer(word))?;
    usize::try_from(size).map_err(|_| lines.error(format!("size {size} is negative")))
}

fn read_matrix(path: &Path, unweighted: bool) -> Result<(usize, EdgeList)> {
    let mut lines = Lines::open(path)?;
    lines.next_raw()?;
    let field = read_banner(&lines, "coordinate")?;
    if !lines.next()? {
        return Err(lines.error("the size line `rows columns entries` is missing"));
    }
    let [rows, columns, entries] = lines.exactly("rows columns entries")?;
    let (n, columns, entries) =
        (size(&lines, rows)?, size(&lines, columns)?, size(&lines, entries)?);
    if n != columns || n == 0 || n > u32::MAX as usize {
        return Err(lines.error(format!(
            "a {n} x {columns} matrix is no graph: it must be square and not empty"
        )));
    }
    let weighted = field == Field::Number && !unweighted;
    let mut edges = if weighted { EdgeList::weighted() } else { EdgeList::unweighted() };
    while lines.next()? {
        if edges.len() == entries {
            return Err(lines.error(format!("more than the {entries} entries of the size line")));
        }
        let (i, j, entry) = match field {
            Field::Pattern => lines.exactly("row column").map(|[i, j]| (i, j, None))?,
            Field::Number => lines.exactly("row column entry").map(|[i, j, w]| (i, j, Some(w)))?,
        };
        let node = |what: &str, word: &[u8]| {
            let index = lines.located(what, text::integer(word))?;
            if !(1..=n as i64).contains(&index) {
                return Err(lines.error(format!("{what} {index} is outside 1..={n}")));
            }
            Ok((index - 1) as u32)
        };
        let (i, j) = (node("row", i)?, node("column", j)?);
        let weight = match entry {
            // The diagonal is dropped anyway: it may hold what it likes, as in a Laplacian.
            Some(word) if weighted && i != j => lines.located("weight", text::weight(word))?,
            Some(word) => lines.located("entry", text::number(word)).map(|_| 1.0)?,
            None => 1.0,
        };
        edges.push(i, j, weight);
    }
    if edges.len() < entries {
        return Err(lines.error(format!(
            "the file ends after {} of {entries} entries: it is truncated",
            edges.len()
        )));
    }
    if edges.is_empty() {
        return Err(Error::file(path, "the matrix has no entries, so the graph has no edges"));
    }
    Ok((n, edges))
}

/// The values, and the line of each.
fn read_vector(path: &Path, n: usize) -> Result<(Vec<f64>, Vec<u64>)> {
    let mut lines = Lines::open(path)?;
    let mut more = lines.next_raw()?;
    if lines.text().starts_with(b"%%") {
        read_banner(&lines, "array")?;
        if !lines.next()? {
            return Err(lines.error("the size line `rows columns` is missing"));
        }
        let [rows, columns] = lines.exactly("rows columns")?;
        let (rows, columns) = (size(&lines, rows)?, size(&lines, columns)?);
        if (rows, columns) != (n, 1) {
            return Err(
                lines.error(format!("the values are {rows} x {columns}, the matrix needs {n} x 1"))
            );
        }
        more = lines.next()?;
    } else if matches!(lines.text().first(), None | Some(b'#' | b'%')) {
        more = lines.next()?;
    }
    let mut y = Vec::with_capacity(n);
    let mut declared = Vec::with_capacity(n);
    while more {
        if y.len() == n {
            return Err(lines.error(format!("more values than the {n} nodes of the matrix")));
        }
        let [word] = lines.exactly("value")?;
        y.push(lines.located("value", text::value(word))?);
        declared.push(lines.line());
        more = lines.next()?;
    }
    if y.len() < n {
        return Err(Error::file(
            path,
            format!("{} values for the {n} nodes of the matrix", y.len()),
        ));
    }
    Ok((y, declared))
}
