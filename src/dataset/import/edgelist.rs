//! Edge lists as the Stanford network collection (SNAP) publishes them, with a file of values.
//!
//! Node ids are any whole numbers; nodes are numbered `0..N` by ascending id, and
//! [`read`] returns the ids in that order.

use super::Imported;
use super::records::isolated;
use super::text::{self, Lines};
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::graph::EdgeList;
use rayon::prelude::*;
use std::path::{Path, PathBuf};

/// Which files to read, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the dataset.
    pub name: String,
    /// `a b` or `a b weight` per line, between blanks, tabs or commas; `#` and `%` are comments.
    pub edges: PathBuf,
    /// `id value` per line, or a CSV with the header `id,value` or `id,y`. Nodes that are not
    /// listed, or listed as `nan`, have no value.
    pub values: PathBuf,
    /// Ignore a third column of `edges` (a weight, or a time stamp).
    pub unweighted: bool,
}

/// Reads the files; also returns the id of every node.
pub fn read(options: &Options) -> Result<(Imported, Vec<i64>)> {
    let (pairs, weights) = read_edges(&options.edges, options.unweighted)?;
    let mut ids: Vec<i64> = pairs.as_flattened().to_vec();
    ids.par_sort_unstable();
    ids.dedup();
    ids.shrink_to_fit();
    if ids.len() > u32::MAX as usize {
        return Err(Error::file(&options.edges, format!("{} nodes are too many", ids.len())));
    }
    let mut edges = match weights {
        Some(_) => EdgeList::weighted(),
        None => EdgeList::unweighted(),
    };
    // Every id of an edge is in `ids`, so the position where it would be inserted is its own.
    let node = |id: i64| ids.partition_point(|&other| other < id) as u32;
    for (k, &[a, b]) in pairs.iter().enumerate() {
        edges.push(node(a), node(b), weights.as_ref().map_or(1.0, |w| w[k]));
    }
    drop((pairs, weights));
    let (graph, cleaning) = edges.into_graph(ids.len())?;
    let (y, lines) = read_values(&options.values, &ids, &options.edges)?;
    if let Some(node) = graph.first_isolated() {
        // Only self-loops named it.
        let message = isolated(ids[node], &options.edges);
        return Err(match lines[node] {
            0 => Error::file(&options.edges, message),
            line => Error::parse(&options.values, line, message),
        });
    }
    let mut imported =
        Imported::new(Dataset::new(&options.name, graph, y), cleaning, &options.values);
    let (first, last) = (ids[0], ids[ids.len() - 1]);
    if (first, last) != (0, ids.len() as i64 - 1) {
        imported.notes.push(format!(
            "node ids {first}..={last} are now 0..={}, in ascending order",
            ids.len() - 1
        ));
    }
    Ok((imported, ids))
}

type Edges = (Vec<[i64; 2]>, Option<Vec<f64>>);

/// The first line decides whether there are weights.
fn read_edges(path: &Path, unweighted: bool) -> Result<Edges> {
    let mut lines = Lines::open(path)?;
    let mut pairs = Vec::new();
    let mut weights: Option<Vec<f64>> = None;
    while lines.next()? {
        let count = lines.words().count();
        if pairs.is_empty() && count == 3 && !unweighted {
            weights = Some(Vec::new());
        }
        let (a, b, weight) = match (&weights, count) {
            (None, 3) if unweighted => {
                let [a, b, _] = lines.exactly("a b weight")?;
                (a, b, None)
            }
            (None, _) => {
                let [a, b] = lines.exactly("a b")?;
                (a, b, None)
            }
            (Some(_), _) => {
                let [a, b, weight] = lines.exactly("a b weight")?;
                (a, b, Some(weight))
            }
        };
        let id = |word| lines.located("node id", text::integer(word));
        pairs.push([id(a)?, id(b)?]);
        if let (Some(weights), Some(word)) = (&mut weights, weight) {
            weights.push(lines.located("weight", text::weight(word))?);
        }
    }
    if pairs.is_empty() {
        return Err(Error::file(path, "there are no edges, only comments"));
    }
    Ok((pairs, weights))
}

/// Values by node, and the line of each (0 where there is none).
fn read_values(path: &Path, ids: &[i64], edges: &Path) -> Result<(Vec<f64>, Vec<u64>)> {
    let mut lines = Lines::open(path)?;
    let mut y = vec![f64::NAN; ids.len()];
    let mut declared = vec![0; ids.len()];
    let mut first = true;
    while lines.next()? {
        if std::mem::take(&mut first) && is_header(&lines)? {
            continue;
        }
        // `7,` is how a CSV says that the value of node 7 is unknown.
        let [id, value] = match lines.text().strip_suffix(b",") {
            Some(id) => [id, b""],
            None => lines.exactly("id value")?,
        };
        let id = lines.located("node id", text::integer(id))?;
        let value = lines.located("value", text::value(value))?;
        let Ok(node) = ids.binary_search(&id) else {
            return Err(lines.error(isolated(id, edges)));
        };
        if declared[node] != 0 {
            return Err(lines
                .error(format!("node id {id} appears twice, first on line {}", declared[node])));
        }
        declared[node] = lines.line();
        y[node] = value;
    }
    if declared.iter().all(|&line| line == 0) {
        return Err(Error::file(path, "there are no values, only comments or a header"));
    }
    Ok((y, declared))
}

/// Whether the line in hand names the columns; other names than the known ones are an error.
fn is_header(lines: &Lines) -> Result<bool> {
    if lines.words().next().is_some_and(|word| text::integer(word).is_ok()) {
        return Ok(false);
    }
    let header: Vec<&[u8]> = lines.words().collect();
    match header[..] {
        [b"id", b"value" | b"y"] => Ok(true),
        _ => Err(lines.error(format!(
            "expected `id value` or the header id,value or id,y, found {}",
            text::quoted(lines.text())
        ))),
    }
}
