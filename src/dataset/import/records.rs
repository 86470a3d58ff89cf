//! What the importers of CSV tables share: node ids that must be `0..N`, and rows of edges.

use super::table::Table;
use crate::error::{Error, Result};
use crate::graph::{EdgeList, Graph};
use std::path::Path;

/// The `id` column of a table with one row per node, in any order.
#[derive(Default)]
pub(super) struct Ids {
    ids: Vec<i64>,
    bytes: Vec<u64>,
}

/// A proven permutation of `0..N`: which row declares which node.
pub(super) struct Order {
    ids: Vec<i64>,
    /// Where each row begins in its file.
    bytes: Vec<u64>,
    sorted: bool,
}

impl Ids {
    /// Takes the id of the row in hand.
    #[inline]
    pub(super) fn push(&mut self, table: &Table, column: usize) -> Result<()> {
        self.ids.push(table.integer(column)?);
        self.bytes.push(table.here());
        Ok(())
    }

    /// Proves that the ids are `0..N`; `nodes` is `N` where it is known already.
    pub(super) fn finish(self, table: &Table, nodes: Option<usize>) -> Result<Order> {
        let Ids { ids, bytes } = self;
        let n = nodes.unwrap_or(ids.len());
        if ids.is_empty() {
            return Err(Error::file(table.path(), "there are no rows below the header"));
        }
        if n > u32::MAX as usize {
            return Err(Error::file(table.path(), format!("{n} nodes are more than 2^32 - 1")));
        }
        let sorted = n == ids.len() && ids.iter().enumerate().all(|(k, &id)| id == k as i64);
        if sorted {
            return Ok(Order { ids, bytes, sorted });
        }
        const NONE: usize = usize::MAX;
        let mut row_of = vec![NONE; n];
        for (row, &id) in ids.iter().enumerate() {
            let Some(seen) = usize::try_from(id).ok().and_then(|id| row_of.get_mut(id)) else {
                let message = match nodes {
                    None => format!("node id {id} is outside 0..={} ({n} rows)", n - 1),
                    Some(_) => format!("node id {id} is outside 0..={} of the nodes", n - 1),
                };
                return Err(table.error_at(bytes[row], message));
            };
            if *seen != NONE {
                let first = table.line_at(bytes[*seen])?;
                let message = format!("node id {id} appears twice, first on line {first}");
                return Err(table.error_at(bytes[row], message));
            }
            *seen = row;
        }
        if let Some(absent) = row_of.iter().position(|&row| row == NONE) {
            let message = format!("there is no row for node {absent} of 0..={}", n - 1);
            return Err(Error::file(table.path(), message));
        }
        Ok(Order { ids, bytes, sorted })
    }
}

impl Order {
    pub(super) fn nodes(&self) -> usize {
        self.ids.len()
    }

    /// Brings `width` values per row from the order of the file into the order of the nodes.
    pub(super) fn arrange<T: Copy + Default>(&self, rows: Vec<T>, width: usize) -> Vec<T> {
        if self.sorted {
            return rows;
        }
        let mut nodes = vec![T::default(); rows.len()];
        for (row, &id) in rows.chunks_exact(width).zip(&self.ids) {
            nodes[id as usize * width..][..width].copy_from_slice(row);
        }
        nodes
    }

    /// An isolated node is reported at the row that declares it.
    pub(super) fn check_isolated(&self, graph: &Graph, table: &Table, edges: &Path) -> Result<()> {
        let Some(node) = graph.first_isolated() else { return Ok(()) };
        let row = self.ids.iter().position(|&id| id == node as i64).unwrap_or(node);
        Err(table.error_at(self.bytes[row], isolated(node, edges)))
    }
}

/// The message for a node without an edge.
pub(super) fn isolated(node: impl std::fmt::Display, edges: &Path) -> String {
    format!(
        "node {node} is isolated: no edge of {} reaches it, and a layer is not defined at degree \
         0; remove the node or connect it",
        edges.display()
    )
}

/// Reads the edges of nodes `0..nodes` from the columns `ends` and, where there is one, `weight`.
pub(super) fn read_edges(
    path: &Path,
    ends: [&str; 2],
    weight: Option<&str>,
    nodes: usize,
) -> Result<EdgeList> {
    let mut table = Table::open(path)?;
    let columns = [table.column(ends[0])?, table.column(ends[1])?];
    table.only_columns(&[&ends[..], weight.as_slice()].concat())?;
    let weight = weight.and_then(|name| table.find(name));
    let mut edges = match weight {
        Some(_) => EdgeList::weighted(),
        None => EdgeList::unweighted(),
    };
    while table.next()? {
        let mut pair = [0; 2];
        for (end, column) in pair.iter_mut().zip(columns) {
            let id = table.integer(column)?;
            if !(0..nodes as i64).contains(&id) {
                return Err(table.error(format!(
                    "{} {} is outside the nodes 0..={}",
                    table.header()[column],
                    table.shown(column),
                    nodes - 1
                )));
            }
            *end = id as u32;
        }
        let weight = weight.map_or(Ok(1.0), |column| table.weight(column))?;
        edges.push(pair[0], pair[1], weight);
    }
    if edges.is_empty() {
        return Err(Error::file(path, "there are no edges below the header"));
    }
    Ok(edges)
}
