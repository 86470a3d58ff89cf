//! The project's own tables: `nodes.csv`, `edges.csv` and, for generated data, `truth.csv`.
//!
//! Columns stand in any order and are found by their names; unknown columns are errors.

use super::Imported;
use super::records::{Ids, read_edges};
use super::table::Table;
use crate::dataset::{Dataset, Features, Truth};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// Name of the column that says which nodes the model may see.
pub const OBSERVED: &str = "observed";

/// Which files to read.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the dataset.
    pub name: String,
    /// `id,y,observed[,pos_x,pos_y][,feat_*]`; an empty or `nan` y is unknown.
    pub nodes: PathBuf,
    /// `src,dst[,weight]`.
    pub edges: PathBuf,
    /// `id,x,post_mean,post_std`, each but `id` optional.
    pub truth: Option<PathBuf>,
    /// Column of `nodes` with 0 or 1.
    pub mask_column: String,
    /// Whether that column must be there; otherwise all known values are observed without it.
    pub mask_required: bool,
}

impl Options {
    /// Nodes and edges with the usual column `observed`.
    pub fn new(name: &str, nodes: impl Into<PathBuf>, edges: impl Into<PathBuf>) -> Self {
        Options {
            name: name.into(),
            nodes: nodes.into(),
            edges: edges.into(),
            truth: None,
            mask_column: OBSERVED.into(),
            mask_required: true,
        }
    }
}

/// Reads the tables.
///
/// ```
/// use dgmrf::dataset::import::csv;
/// # let dir = tempfile::tempdir().unwrap();
/// let (nodes, edges) = (dir.path().join("nodes.csv"), dir.path().join("edges.csv"));
/// std::fs::write(&nodes, "id,y,observed\n0,1.5,1\n1,,0\n2,2.5,1\n").unwrap();
/// std::fs::write(&edges, "src,dst\n0,1\n1,2\n2,1\n").unwrap();
/// let imported = csv::read(&csv::Options::new("path", nodes, edges))?;
/// assert_eq!(imported.data.graph.edges(), 2);
/// assert_eq!(imported.cleaning.duplicates, 1);
/// assert!(imported.data.y[1].is_nan());
/// # Ok::<(), dgmrf::Error>(())
/// ```
pub fn read(options: &Options) -> Result<Imported> {
    let mut table = Table::open(&options.nodes)?;
    let columns = Columns::find(&table, options)?;
    let mut ids = Ids::default();
    let mut y = Vec::new();
    let mut observed = Vec::new();
    let mut position = Vec::new();
    let mut features = Vec::new();
    while table.next()? {
        ids.push(&table, columns.id)?;
        let value = table.value(columns.y)?;
        let seen = columns.observed.map_or(Ok(value.is_finite()), |c| table.flag(c))?;
        if seen && !value.is_finite() {
            return Err(table.error("the node is observed but has no y"));
        }
        y.push(value);
        observed.push(seen);
        if let Some([a, b]) = columns.position {
            position.push([table.number(a)?, table.number(b)?]);
        }
        for &column in &columns.features {
            features.push(table.number(column)?);
        }
    }
    let order = ids.finish(&table, None)?;
    let n = order.nodes();
    let edges = read_edges(&options.edges, ["src", "dst"], Some("weight"), n)?;
    let (graph, cleaning) = edges.into_graph(n)?;
    order.check_isolated(&graph, &table, &options.edges)?;

    let width = columns.features.len();
    let names = columns.features.iter().map(|&c| table.header()[c].clone()).collect();
    let data = Dataset {
        name: options.name.clone(),
        graph,
        y: order.arrange(y, 1),
        observed: order.arrange(observed, 1),
        features: (width > 0).then(|| Features { names, values: order.arrange(features, width) }),
        position: columns.position.map(|_| order.arrange(position, 1)),
        truth: options.truth.as_ref().map(|path| read_truth(path, n)).transpose()?,
    };
    Ok(Imported::new(data, cleaning, &options.nodes))
}

/// Where the columns of `nodes.csv` are.
struct Columns {
    id: usize,
    y: usize,
    observed: Option<usize>,
    position: Option<[usize; 2]>,
    features: Vec<usize>,
}

impl Columns {
    fn find(table: &Table, options: &Options) -> Result<Self> {
        let valid = ["id", "y", OBSERVED, "pos_x", "pos_y", "feat_*", &options.mask_column];
        // The mask column usually is `observed`, which need not be listed twice.
        let listed = if options.mask_column == OBSERVED { 6 } else { 7 };
        table.only_columns(&valid[..listed])?;
        let observed = table.find(&options.mask_column);
        if observed.is_none() && options.mask_required {
            table.column(&options.mask_column)?;
        }
        let position = match (table.find("pos_x"), table.find("pos_y")) {
            (None, None) => None,
            _ => Some([table.column("pos_x")?, table.column("pos_y")?]),
        };
        let is_feature =
            |k: &usize| table.header()[*k].starts_with("feat_") && Some(*k) != observed;
        Ok(Columns {
            id: table.column("id")?,
            y: table.column("y")?,
            observed,
            position,
            features: (0..table.header().len()).filter(is_feature).collect(),
        })
    }
}

/// Reads `truth.csv`. `post_std_x` (without the noise) is known from the reference data and
/// skipped: [`Truth::post_std`] is that of y.
fn read_truth(path: &Path, nodes: usize) -> Result<Truth> {
    let mut table = Table::open(path)?;
    table.only_columns(&["id", "x", "post_mean", "post_std", "post_std_x"])?;
    let id = table.column("id")?;
    let columns = ["x", "post_mean", "post_std"].map(|name| table.find(name));
    if columns.iter().all(Option::is_none) {
        return Err(Error::parse(path, 1, "none of the columns x, post_mean, post_std is there"));
    }
    let mut ids = Ids::default();
    let mut values = [const { Vec::new() }; 3];
    while table.next()? {
        ids.push(&table, id)?;
        for (values, column) in values.iter_mut().zip(columns) {
            if let Some(column) = column {
                values.push(table.number(column)?);
            }
        }
    }
    let order = ids.finish(&table, Some(nodes))?;
    let mut arrays = values
        .into_iter()
        .zip(columns)
        .map(|(values, column)| column.map(|_| order.arrange(values, 1)));
    let mut next = || arrays.next().flatten();
    Ok(Truth { x: next(), post_mean: next(), post_std: next() })
}
