//! Positions with values: the graph is the Delaunay triangulation of the points.

use super::Imported;
use super::csv::OBSERVED;
use super::table::Table;
use crate::dataset::{Dataset, Features};
use crate::error::{Error, Result};
use crate::graph::delaunay::{self, Weighting};
use crate::graph::{Cleaning, Graph};
use std::path::{Path, PathBuf};

/// Which columns of a CSV to read, and how to connect the points. Other columns are ignored.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the dataset.
    pub name: String,
    /// The CSV file, one point per row.
    pub input: PathBuf,
    /// Column of the first coordinate (the longitude).
    pub x: String,
    /// Column of the second coordinate (the latitude).
    pub y: String,
    /// Column of the values; empty or `nan` is unknown.
    pub value: String,
    /// Columns of the features.
    pub features: Vec<String>,
    /// Column with 0 or 1; `None`: `observed` if it is there, else all known values are observed.
    pub mask_column: Option<String>,
    /// How the length of an edge becomes its weight.
    pub weighting: Weighting,
    /// Take positions as longitude and latitude in degrees and project them; see [`project`].
    pub project: bool,
}

/// ε of the paper's runs.
pub const EPSILON: f64 = 0.01;

impl Options {
    /// The columns of `nodes.csv`, and weights as the paper's code computes them.
    pub fn new(name: &str, input: impl Into<PathBuf>) -> Self {
        Options {
            name: name.into(),
            input: input.into(),
            x: "pos_x".into(),
            y: "pos_y".into(),
            value: "y".into(),
            features: Vec::new(),
            mask_column: None,
            weighting: Weighting::InverseRelative { epsilon: EPSILON },
            project: false,
        }
    }
}

/// Reads the points and triangulates them.
pub fn read(options: &Options) -> Result<Imported> {
    let mut table = Table::open(&options.input)?;
    let place = [table.column(&options.x)?, table.column(&options.y)?];
    let value = table.column(&options.value)?;
    let observed = match &options.mask_column {
        Some(name) => Some(table.column(name)?),
        None => table.find(OBSERVED),
    };
    let columns: Vec<usize> =
        options.features.iter().map(|name| table.column(name)).collect::<Result<_>>()?;
    let mut position = Vec::new();
    let mut y = Vec::new();
    let mut mask = Vec::new();
    let mut features = Vec::new();
    while table.next()? {
        position.push([table.number(place[0])?, table.number(place[1])?]);
        if options.project && !(-90.0..=90.0).contains(&position[position.len() - 1][1]) {
            let shown = table.shown(place[1]);
            return Err(
                table.error(format!("latitude {shown} is outside -90..90: swapped columns?"))
            );
        }
        y.push(table.value(value)?);
        if let Some(column) = observed {
            mask.push(table.flag(column)?);
            if mask[mask.len() - 1] && y[y.len() - 1].is_nan() {
                return Err(table.error("the point is observed but has no value"));
            }
        }
        for &column in &columns {
            features.push(table.number(column)?);
        }
    }
    if position.is_empty() {
        return Err(Error::file(&options.input, "there are no points below the header"));
    }
    if options.project {
        project(&mut position);
    }
    let graph = triangulate(&position, options.weighting, &options.input)?;
    let mut data = Dataset::new(&options.name, graph, y);
    data.position = Some(position);
    if observed.is_some() {
        data.observed = mask;
    }
    if !columns.is_empty() {
        data.features = Some(Features { names: options.features.clone(), values: features });
    }
    Ok(Imported::new(data, Cleaning::default(), &options.input))
}

/// The Delaunay graph of points that came from a file.
pub(super) fn triangulate(
    position: &[[f64; 2]],
    weighting: Weighting,
    file: &Path,
) -> Result<Graph> {
    if position.len() > u32::MAX as usize {
        return Err(Error::file(file, format!("{} points are too many", position.len())));
    }
    delaunay::graph(position, weighting).map_err(|e| Error::file(file, e.to_string()))
}

/// Equirectangular projection of (longitude, latitude) in degrees around the middle of their
/// range, scaled so that the first coordinate ends at 1 (the paper's `california.py`).
///
/// ```
/// let mut p = [[10.0, 59.0], [12.0, 61.0]];
/// dgmrf::dataset::import::points::project(&mut p);
/// assert!((p[1][0] - 1.0).abs() < 1e-15);
/// assert!((p[1][1] - 2.0).abs() < 1e-12); // at 60° a degree of latitude is two of longitude
/// ```
pub fn project(position: &mut [[f64; 2]]) {
    let middle = [0, 1].map(|axis| {
        let range = Range::of(position.iter().map(|p| p[axis]));
        (range.min + range.max) / 2.0
    });
    let shrink = middle[1].to_radians().cos();
    for p in position.iter_mut() {
        *p = [(p[0] - middle[0]) * shrink, p[1] - middle[1]];
    }
    let unit = Range::of(position.iter().map(|p| p[0])).max;
    // Points on one meridian have no width; they stay as they are.
    if unit > 0.0 {
        for c in position.as_flattened_mut() {
            *c /= unit;
        }
    }
}

/// Smallest and largest of some numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Range {
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Self {
        values.fold(Range { min: f64::INFINITY, max: f64::NEG_INFINITY }, |range, v| Range {
            min: range.min.min(v),
            max: range.max.max(v),
        })
    }
}
