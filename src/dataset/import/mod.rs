//! Datasets from files: one importer per public format, each a function from an `Options` struct
//! to an [`Imported`] dataset.
//!
//! [`csv`] reads the project's own tables, [`edgelist`] SNAP files, [`matrix_market`] matrices,
//! [`points`] positions (the graph is their Delaunay triangulation), [`musae`] and [`california`]
//! the raw files behind the paper's experiments. Every error names the file and, where there is
//! one, the line. Masks that do not come from a column are the caller's ([`Mask`]).

pub mod california;
pub mod csv;
pub mod edgelist;
mod envelope;
pub mod matrix_market;
pub mod musae;
pub mod points;
mod records;
mod table;
mod text;

use super::Dataset;
use super::mask::{self, Rect};
use crate::error::{Error, Result};
use crate::graph::Cleaning;
use std::path::PathBuf;

/// A dataset read from files, and what an importer did on the way.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The data; the importers check all that has a line in a file, [`Dataset::check`] the rest.
    pub data: Dataset,
    /// Edges that were dropped.
    pub cleaning: Cleaning,
    /// Rows that were dropped as outliers.
    pub outliers: usize,
    /// What the user should know, a sentence each.
    pub notes: Vec<String>,
    /// The file that holds the values of the nodes, for messages about them.
    pub values_file: PathBuf,
}

impl Imported {
    fn new(data: Dataset, cleaning: Cleaning, values_file: impl Into<PathBuf>) -> Self {
        let mut notes = Vec::new();
        if cleaning.conflicting_weights > 0 {
            notes.push(format!(
                "{} repeated edges came with another weight; the first weight was kept",
                cleaning.conflicting_weights
            ));
        }
        let values_file = values_file.into();
        Imported { data, cleaning, outliers: 0, notes, values_file }
    }

    /// Hides nodes and makes sure that something is left to learn from.
    pub fn hide(&mut self, mask: &Mask) -> Result<()> {
        if let Some(fraction) = mask.fraction {
            mask::hide_fraction(&mut self.data, fraction, mask.seed)?;
        }
        if !mask.rects.is_empty() {
            mask::hide_rects(&mut self.data, &mask.rects)?;
        }
        if self.data.observed_count() == 0 {
            return Err(Error::file(
                &self.values_file,
                "no node is observed: there is nothing to learn from \
                 (every value is unknown or hidden by the mask)",
            ));
        }
        Ok(())
    }
}

/// Which nodes to hide after an import.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Mask {
    /// Hide this share of the nodes with a value, instead of what the file says.
    pub fraction: Option<f64>,
    /// Which of them.
    pub seed: u64,
    /// Hide what lies in these rectangles, besides what is hidden already.
    pub rects: Vec<Rect>,
}
