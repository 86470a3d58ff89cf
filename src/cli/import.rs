//! `dgmrf import`: datasets from files.

use crate::dataset::import::{
    Imported, Mask, california, csv, edgelist, matrix_market, musae, points,
};
use crate::dataset::mask::Rect;
use crate::error::{Result, WithPath};
use crate::graph;
use crate::graph::delaunay::Weighting;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Make a dataset from files.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dgmrf import csv --nodes nodes.csv --edges edges.csv -o roads.h5
  dgmrf import points --input stations.csv --x lon --y lat --value temp --project -o stations.h5
  dgmrf import csv --help")]
pub(super) struct Args {
    // Boxed: the options of an import are much larger than those of other commands.
    #[command(subcommand)]
    format: Box<Format>,
}

#[derive(Debug, clap::Subcommand)]
enum Format {
    Csv(CsvArgs),
    Edgelist(EdgelistArgs),
    MatrixMarket(MatrixMarketArgs),
    Points(PointsArgs),
    Musae(MusaeArgs),
    California(CaliforniaArgs),
}

/// What every importer takes.
#[derive(Debug, clap::Args)]
struct Common {
    /// Dataset file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Name of the dataset [default: name of the output file]
    #[arg(long)]
    name: Option<String>,
    /// Hide this share of the nodes that have a value (replaces a mask from the file)
    #[arg(long, value_name = "F", help_heading = "Mask")]
    mask_fraction: Option<f64>,
    /// Seed of --mask-fraction
    #[arg(long, value_name = "SEED", default_value_t = 0, help_heading = "Mask")]
    mask_seed: u64,
    /// Hide the nodes in a rectangle of their positions (projected ones with a projection); may
    /// be given several times
    #[arg(long, value_name = "X0,Y0,X1,Y1", allow_hyphen_values = true, help_heading = "Mask")]
    mask_rect: Vec<Rect>,
    /// Print one JSON object instead of a sentence
    #[arg(long)]
    json: bool,
}

impl Common {
    fn name(&self) -> String {
        let stem = || self.output.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        self.name.clone().unwrap_or_else(stem)
    }

    fn mask(&self) -> Mask {
        Mask { fraction: self.mask_fraction, seed: self.mask_seed, rects: self.mask_rect.clone() }
    }
}

/// A mask that a column of the file holds.
#[derive(Debug, clap::Args)]
struct ColumnMask {
    /// Column with 1 for nodes the model may see, 0 for others [default: observed]
    #[arg(long, value_name = "NAME", help_heading = "Mask")]
    mask_column: Option<String>,
}

/// Tables of nodes and edges (this program's own format)
#[derive(Debug, clap::Args)]
#[command(after_help = "Files, columns in any order:
  nodes  id,y,observed[,pos_x,pos_y][,feat_*]   ids 0..N-1, y empty or nan where unknown
  edges  src,dst[,weight]
  truth  id,x,post_mean,post_std                post_std of y, noise included
Without a column `observed`, give --mask-column, --mask-fraction or --mask-rect.

Examples:
  dgmrf import csv --nodes nodes.csv --edges edges.csv -o roads.h5
  dgmrf import csv --nodes nodes.csv --edges edges.csv --truth truth.csv -o synth.h5
  dgmrf import csv --nodes nodes.csv --edges edges.csv --mask-fraction 0.5 --mask-seed 1 -o half.h5
  dgmrf import csv --nodes nodes.csv --edges edges.csv --mask-rect 0,0,0.2,0.2 -o hole.h5")]
struct CsvArgs {
    /// Table of the nodes
    #[arg(long, value_name = "FILE")]
    nodes: PathBuf,
    /// Table of the edges
    #[arg(long, value_name = "FILE")]
    edges: PathBuf,
    /// Table of the generating field and its posterior
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    #[command(flatten)]
    column: ColumnMask,
    #[command(flatten)]
    common: Common,
}

/// An edge list in the style of SNAP, and a file of values
#[derive(Debug, clap::Args)]
#[command(after_help = "Files:
  edges   `a b` or `a b weight` per line, between blanks, tabs or commas; # and % are comments
  values  `id value` per line, or a CSV with the header id,value or id,y
Node ids are any whole numbers. Nodes are numbered 0..N-1 by ascending id (--node-map keeps the
ids); nodes without a value are to be predicted.

Examples:
  dgmrf import edgelist --edges facebook_combined.txt --values ages.txt -o facebook.h5
  dgmrf import edgelist --edges email.txt --values v.csv --unweighted --node-map ids.csv -o email.h5")]
struct EdgelistArgs {
    /// The edges
    #[arg(long, value_name = "FILE")]
    edges: PathBuf,
    /// The values
    #[arg(long, value_name = "FILE")]
    values: PathBuf,
    /// Ignore a third column of the edges (a weight or a time stamp)
    #[arg(long)]
    unweighted: bool,
    /// Write the ids of the nodes here: node,id
    #[arg(long, value_name = "FILE")]
    node_map: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// A Matrix Market file, and a file of values
#[derive(Debug, clap::Args)]
#[command(after_help = "Files:
  matrix  %%MatrixMarket matrix coordinate real|integer|pattern symmetric|general
  values  one value per line (nan: unknown), or %%MatrixMarket matrix array real general, N x 1
Entries are weights and must be positive, except on the diagonal, which is dropped.
In a general matrix (i, j) and (j, i) are the same edge.

Examples:
  dgmrf import matrix-market --matrix delaunay_n14.mtx --values y.txt --mask-fraction 0.5 -o d14.h5
  dgmrf import matrix-market --matrix stiffness.mtx --unweighted --values y.mtx -o fem.h5")]
struct MatrixMarketArgs {
    /// The matrix
    #[arg(long, value_name = "FILE")]
    matrix: PathBuf,
    /// The values
    #[arg(long, value_name = "FILE")]
    values: PathBuf,
    /// Take only the pattern: entries may have any sign
    #[arg(long)]
    unweighted: bool,
    #[command(flatten)]
    common: Common,
}

/// A CSV of positions and values; the graph is the Delaunay triangulation
#[derive(Debug, clap::Args)]
#[command(after_help = "Columns that are not named are ignored.

Examples:
  dgmrf import points --input stations.csv --x east --y north --value rain -o rain.h5
  dgmrf import points --input grid.csv --x lon --y lat --value temp --features elevation,slope \\
      --project --mask-rect -0.2,-0.2,0.2,0.2 -o grid.h5")]
struct PointsArgs {
    /// The CSV file
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// Column of the first coordinate (longitude)
    #[arg(long, value_name = "COL", default_value = "pos_x")]
    x: String,
    /// Column of the second coordinate (latitude)
    #[arg(long, value_name = "COL", default_value = "pos_y")]
    y: String,
    /// Column of the values; empty or nan where unknown
    #[arg(long, value_name = "COL", default_value = "y")]
    value: String,
    /// Columns of features
    #[arg(long, value_name = "COL,..", value_delimiter = ',')]
    features: Vec<String>,
    /// Positions are longitude and latitude in degrees: project them
    #[arg(long)]
    project: bool,
    #[command(flatten)]
    weighting: WeightingArgs,
    #[command(flatten)]
    column: ColumnMask,
    #[command(flatten)]
    common: Common,
}

/// The raw Wikipedia graphs of MUSAE (chameleon, squirrel)
#[derive(Debug, clap::Args)]
#[command(after_help = "Files: edges `id1,id2`, target `id,target`; y = ln(target).
All nodes are observed unless a mask is given; the paper hides half of them.

Examples:
  dgmrf import musae --edges chameleon_edges.csv --target chameleon_target.csv \\
      --mask-fraction 0.5 -o chameleon.h5")]
struct MusaeArgs {
    /// Edges, id1,id2
    #[arg(long, value_name = "FILE")]
    edges: PathBuf,
    /// Targets, id,target
    #[arg(long, value_name = "FILE")]
    target: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// The raw California housing file (cal_housing.data)
#[derive(Debug, clap::Args)]
#[command(after_help = "The paper's features, outliers, scaling, positions and weights.
All nodes are observed unless a mask is given; the paper hides half of them.

Examples:
  dgmrf import california --input cal_housing.data --mask-fraction 0.5 -o california.h5
  dgmrf import california --input cal_housing.data --outliers 0 -o all.h5")]
struct CaliforniaArgs {
    /// The raw file, 9 columns without a header
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// Share of rows to drop as outliers of a robust elliptic envelope; 0 keeps all
    #[arg(long, value_name = "SHARE", default_value_t = 0.005)]
    outliers: f64,
    #[command(flatten)]
    weighting: WeightingArgs,
    #[command(flatten)]
    common: Common,
}

/// How distances become weights.
#[derive(Debug, clap::Args)]
struct WeightingArgs {
    /// Weights of the edges by their length d
    #[arg(long, value_enum, default_value_t = Weights::InverseRelative)]
    weights: Weights,
    /// Epsilon of the weights
    #[arg(long, value_name = "E", default_value_t = points::EPSILON)]
    epsilon: f64,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Weights {
    /// No weights
    None,
    /// 1/(d + epsilon)
    Inverse,
    /// 1/(d/d_max + epsilon), d_max the longest edge
    InverseRelative,
}

impl WeightingArgs {
    fn weighting(&self) -> Result<Weighting> {
        let epsilon = self.epsilon;
        if !(epsilon.is_finite() && epsilon > 0.0) {
            return Err(crate::Error::Setting(format!("--epsilon {epsilon} must be positive")));
        }
        Ok(match self.weights {
            Weights::None => Weighting::None,
            Weights::Inverse => Weighting::Inverse { epsilon },
            Weights::InverseRelative => Weighting::InverseRelative { epsilon },
        })
    }
}

pub(super) fn run(args: Args) -> Result<()> {
    match *args.format {
        Format::Csv(args) => {
            let mut options = csv::Options::new(&args.common.name(), args.nodes, args.edges);
            options.truth = args.truth;
            let other_mask =
                args.common.mask_fraction.is_some() || !args.common.mask_rect.is_empty();
            options.mask_required = args.column.mask_column.is_some() || !other_mask;
            if let Some(column) = args.column.mask_column {
                options.mask_column = column;
            }
            finish(csv::read(&options)?, &args.common)
        }
        Format::Edgelist(args) => {
            let options = edgelist::Options {
                name: args.common.name(),
                edges: args.edges,
                values: args.values,
                unweighted: args.unweighted,
            };
            let (imported, ids) = edgelist::read(&options)?;
            // The map goes first: a dataset must not stay behind when the map cannot be written.
            let Some(map) = args.node_map else { return finish(imported, &args.common) };
            write_node_map(&map, &ids)?;
            finish(imported, &args.common).inspect_err(|_| drop(std::fs::remove_file(&map)))
        }
        Format::MatrixMarket(args) => {
            let options = matrix_market::Options {
                name: args.common.name(),
                matrix: args.matrix,
                values: args.values,
                unweighted: args.unweighted,
            };
            finish(matrix_market::read(&options)?, &args.common)
        }
        Format::Points(args) => {
            let options = points::Options {
                name: args.common.name(),
                input: args.input,
                x: args.x,
                y: args.y,
                value: args.value,
                features: args.features,
                mask_column: args.column.mask_column,
                weighting: args.weighting.weighting()?,
                project: args.project,
            };
            finish(points::read(&options)?, &args.common)
        }
        Format::Musae(args) => {
            let options =
                musae::Options { name: args.common.name(), edges: args.edges, target: args.target };
            finish(musae::read(&options)?, &args.common)
        }
        Format::California(args) => {
            let options = california::Options {
                name: args.common.name(),
                input: args.input,
                outliers: args.outliers,
                weighting: args.weighting.weighting()?,
            };
            finish(california::read(&options)?, &args.common)
        }
    }
}

/// The end of every importer: hide, write, say what was done.
fn finish(mut imported: Imported, common: &Common) -> Result<()> {
    imported.hide(&common.mask())?;
    let Imported { data, cleaning, outliers, notes, .. } = imported;
    for note in notes {
        eprintln!("note: {note}");
    }
    let dropped = [
        (cleaning.duplicates, "repeated edges"),
        (cleaning.self_loops, "self-loops"),
        (outliers as u64, "outlier rows"),
    ];
    for (count, what) in dropped.iter().filter(|(count, _)| *count > 0) {
        eprintln!("note: dropped {count} {what}");
    }
    if data.observed_count() == data.nodes() {
        eprintln!(
            "note: every node is observed; --mask-fraction hides some to test predictions on"
        );
    }
    if !common.json {
        return super::write_dataset(&data, &common.output);
    }
    super::save_dataset(&data, &common.output)?;
    let json = serde_json::json!({
        "name": data.name,
        "nodes": data.nodes(),
        "edges": data.graph.edges(),
        "observed": data.observed_count(),
        "features": data.features.as_ref().map_or(0, |f| f.names.len()),
        "weighted": data.graph.is_weighted(),
        "components": graph::components(&data.graph).count(),
        "duplicates": cleaning.duplicates,
        "self_loops": cleaning.self_loops,
        "conflicting_weights": cleaning.conflicting_weights,
        "outliers": outliers,
        "output": common.output,
    });
    println!("{json:#}");
    Ok(())
}

/// Which id of the edge list became which node.
fn write_node_map(path: &Path, ids: &[i64]) -> Result<()> {
    let write = || {
        let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
        writeln!(file, "node,id")?;
        for (node, id) in ids.iter().enumerate() {
            writeln!(file, "{node},{id}")?;
        }
        file.flush()
    };
    write().with_path(path, "")
}
