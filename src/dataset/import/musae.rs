//! The Wikipedia graphs of MUSAE (Rozemberczki, Allen, Sarkar 2021): `chameleon`, `squirrel`.
//!
//! As in the paper (appendix E): edges are made undirected and cleaned, and
//! `y = ln(average monthly traffic)`. All nodes are observed; the paper hides half of them.

use super::Imported;
use super::records::{Ids, read_edges};
use super::table::Table;
use crate::dataset::Dataset;
use crate::error::Result;
use std::path::PathBuf;

/// Which files to read.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the dataset.
    pub name: String,
    /// `id1,id2`, as in `chameleon_edges.csv`.
    pub edges: PathBuf,
    /// `id,target`, as in `chameleon_target.csv`.
    pub target: PathBuf,
}

/// Reads the raw files.
pub fn read(options: &Options) -> Result<Imported> {
    let mut table = Table::open(&options.target)?;
    table.only_columns(&["id", "target"])?;
    let (id, target) = (table.column("id")?, table.column("target")?);
    let mut ids = Ids::default();
    let mut y = Vec::new();
    while table.next()? {
        ids.push(&table, id)?;
        let traffic = table.number(target)?;
        if traffic <= 0.0 {
            return Err(table.error(format!("target {traffic} has no logarithm")));
        }
        y.push(traffic.ln());
    }
    let order = ids.finish(&table, None)?;
    let edges = read_edges(&options.edges, ["id1", "id2"], None, order.nodes())?;
    let (graph, cleaning) = edges.into_graph(order.nodes())?;
    order.check_isolated(&graph, &table, &options.edges)?;
    let data = Dataset::new(&options.name, graph, order.arrange(y, 1));
    Ok(Imported::new(data, cleaning, &options.target))
}
