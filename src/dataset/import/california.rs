//! California housing (Pace & Barry 1997) from the raw StatLib file, as the paper prepares it.
//!
//! The steps are those of the authors' `california.py`: six features per row, the outliers of
//! their elliptic envelope dropped, logarithms and powers, everything scaled to `[0, 1]`,
//! projected positions, a Delaunay graph with inverse-distance weights. All nodes are observed;
//! the paper hides half of them.

use super::points::{EPSILON, Range, project, triangulate};
use super::table::Table;
use super::{Imported, envelope};
use crate::dataset::{Dataset, Features};
use crate::error::{Error, Result};
use crate::graph::Cleaning;
use crate::graph::delaunay::Weighting;
use std::path::{Path, PathBuf};

/// Columns of `cal_housing.data`, which has no header.
const RAW: [&str; 9] = [
    "longitude",
    "latitude",
    "housingMedianAge",
    "totalRooms",
    "totalBedrooms",
    "population",
    "households",
    "medianIncome",
    "medianHouseValue",
];

/// The eight features of the paper.
pub const FEATURES: [&str; 8] = [
    "income",
    "income^2",
    "income^3",
    "ln age",
    "ln rooms",
    "ln bedrooms",
    "ln occupants",
    "ln households",
];

/// What to read and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the dataset.
    pub name: String,
    /// The raw file `cal_housing.data`.
    pub input: PathBuf,
    /// Share of rows to drop as outliers of the robust envelope; 0 keeps all.
    pub outliers: f64,
    /// How the length of an edge becomes its weight.
    pub weighting: Weighting,
}

impl Options {
    /// As in the paper.
    pub fn new(name: &str, input: impl Into<PathBuf>) -> Self {
        Options {
            name: name.into(),
            input: input.into(),
            outliers: 0.005,
            weighting: Weighting::InverseRelative { epsilon: EPSILON },
        }
    }
}

/// Reads the raw file and prepares it.
pub fn read(options: &Options) -> Result<Imported> {
    if !(0.0..0.5).contains(&options.outliers) {
        return Err(Error::Setting(format!(
            "a share of {} outliers must be at least 0 and less than 0.5",
            options.outliers
        )));
    }
    let mut districts = read_districts(&options.input)?;
    let before = districts.len();
    if options.outliers > 0.0 {
        let raw: Vec<[f64; 6]> = districts.iter().map(District::raw_features).collect();
        let dropped = envelope::outliers(&raw, options.outliers)
            .map_err(|e| Error::file(&options.input, e.to_string()))?;
        let mut dropped = dropped.into_iter();
        districts.retain(|_| !dropped.next().unwrap_or(false));
    }
    let outliers = before - districts.len();

    let mut y: Vec<f64> = districts.iter().map(|d| d.value.ln()).collect();
    scale_to_unit(&mut y, 1);
    let mut values: Vec<f64> = districts.iter().flat_map(District::features).collect();
    scale_to_unit(&mut values, FEATURES.len());
    let mut position: Vec<[f64; 2]> = districts.iter().map(|d| d.place).collect();
    project(&mut position);
    // The authors triangulate in single precision.
    for c in position.as_flattened_mut() {
        *c = f64::from(*c as f32);
    }
    let graph = triangulate(&position, options.weighting, &options.input)?;
    let mut data = Dataset::new(&options.name, graph, y);
    data.features = Some(Features { names: FEATURES.map(String::from).to_vec(), values });
    data.position = Some(position);
    let mut imported = Imported::new(data, Cleaning::default(), &options.input);
    imported.outliers = outliers;
    Ok(imported)
}

/// One census block group, in the columns of scikit-learn's `fetch_california_housing`.
struct District {
    /// Longitude and latitude.
    place: [f64; 2],
    income: f64,
    age: f64,
    /// Rooms, bedrooms and people per household.
    rooms: f64,
    bedrooms: f64,
    occupants: f64,
    population: f64,
    /// In 100 000 dollars.
    value: f64,
}

impl District {
    fn raw_features(&self) -> [f64; 6] {
        [self.income, self.age, self.rooms, self.bedrooms, self.population, self.occupants]
    }

    /// In the order of [`FEATURES`].
    fn features(&self) -> [f64; 8] {
        [
            self.income,
            self.income.powi(2),
            self.income.powi(3),
            self.age.ln(),
            self.rooms.ln(),
            self.bedrooms.ln(),
            self.occupants.ln(),
            self.population.ln() - self.occupants.ln(),
        ]
    }
}

fn read_districts(path: &Path) -> Result<Vec<District>> {
    let mut table = Table::without_header(path, &RAW)?;
    let mut districts = Vec::new();
    while table.next()? {
        let mut row = [0.0; RAW.len()];
        for (column, slot) in row.iter_mut().enumerate() {
            *slot = table.number(column)?;
            if column >= 2 && *slot <= 0.0 {
                let message = format!("{} {slot} must be positive", RAW[column]);
                return Err(table.error(message));
            }
        }
        let [longitude, latitude, age, rooms, bedrooms, population, households, income, value] =
            row;
        districts.push(District {
            place: [longitude, latitude],
            income,
            age,
            rooms: rooms / households,
            bedrooms: bedrooms / households,
            occupants: population / households,
            population,
            value: value / 100_000.0,
        });
    }
    if districts.is_empty() {
        return Err(Error::file(path, "there are no rows"));
    }
    Ok(districts)
}

/// Moves every column of a row-major matrix to `[0, 1]`.
fn scale_to_unit(values: &mut [f64], width: usize) {
    for column in 0..width {
        let Range { min, max } = Range::of(values.iter().skip(column).step_by(width).copied());
        // A constant column carries nothing; it becomes 0 instead of NaN.
        let span = if max > min { max - min } else { 1.0 };
        for v in values.iter_mut().skip(column).step_by(width) {
            *v = (*v - min) / span;
        }
    }
}
