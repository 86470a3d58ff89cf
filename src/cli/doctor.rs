//! `dgmrf doctor`: is this installation able to run?

use super::{ranks, table};
use crate::comm::{self, World};
use crate::error::{Error, Result};
use crate::graph::EdgeList;
use crate::partition;

/// Show the versions of everything the program stands on, try each of it, and give a verdict.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dgmrf doctor\n  mpirun -n 2 dgmrf doctor --json")]
pub(super) struct Args {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ranks: ranks::Ranks,
}

pub(super) fn run(args: Args) -> Result<()> {
    ranks::run(
        || Ok((args.ranks, ())),
        |world, threads, ()| {
            let checks = [
                ("MPI", comm::library_version(), try_mpi(world)),
                ("HDF5", version(hdf5::library_version()), try_hdf5()),
                ("METIS", "5, built in".to_owned(), try_metis()),
                ("libtorch", torch_version(), try_torch()),
            ];
            let sick: Vec<String> = checks
                .iter()
                .filter_map(|(name, _, tried)| {
                    tried.as_ref().err().map(|why| format!("{name}: {why}"))
                })
                .collect();
            let failed = world.agree(if sick.is_empty() {
                Ok(())
            } else {
                Err(Error::Setting(sick.join("; ")))
            });
            let verdict = match &failed {
                Ok(()) => "ready".to_owned(),
                Err(error) => format!("not able to run: {error}"),
            };
            let cuda = cuda_devices();
            if world.is_root() && args.json {
                let json = serde_json::json!({
                    "version": env!("CARGO_PKG_VERSION"),
                    "mpi": checks[0].1, "hdf5": checks[1].1, "metis": checks[2].1,
                    "libtorch": checks[3].1,
                    "cuda_devices": cuda,
                    "ranks": world.size(), "ranks_per_machine": world.local_size(),
                    "threads_per_rank": threads,
                    "ready": failed.is_ok(), "verdict": verdict,
                });
                println!("{json:#}");
            } else if world.is_root() {
                let mut rows = vec![("dgmrf", env!("CARGO_PKG_VERSION").to_owned())];
                for (name, version, tried) in &checks {
                    let state = if tried.is_ok() { "works" } else { "FAILS" };
                    rows.push((name, format!("{version:<32} {state}")));
                }
                rows.push(("CUDA devices", cuda.to_string()));
                rows.push(("ranks", format!("{} ({} here)", world.size(), world.local_size())));
                rows.push(("threads", format!("{threads} per rank")));
                rows.push(("verdict", verdict));
                table::print_pairs(&rows);
            }
            failed
        },
    )
}

fn version((major, minor, patch): (u8, u8, u8)) -> String {
    format!("{major}.{minor}.{patch}")
}

fn try_mpi(world: &World) -> Result<()> {
    let mut ranks = [1.0];
    world.sum(&mut ranks);
    if ranks[0] != world.size() as f64 {
        let why = format!("{} of {} ranks answer", ranks[0], world.size());
        return Err(Error::Numeric(why));
    }
    Ok(())
}

/// A file in memory, there and back.
fn try_hdf5() -> Result<()> {
    let there_and_back = || -> hdf5::Result<Vec<f64>> {
        let file =
            hdf5::FileBuilder::new().with_fapl(|p| p.core_filebacked(false)).create("doctor")?;
        let data = file.new_dataset::<f64>().shape(2).create("x")?;
        data.write(&[1.0, 2.0])?;
        data.read_raw()
    };
    match there_and_back() {
        Ok(values) if values == [1.0, 2.0] => Ok(()),
        Ok(values) => Err(Error::Numeric(format!("wrote [1, 2], read {values:?}"))),
        Err(error) => Err(Error::Setting(error.to_string())),
    }
}

/// A ring of eight nodes falls into two arcs: two edges are cut.
fn try_metis() -> Result<()> {
    let mut ring = EdgeList::unweighted();
    (0..8).for_each(|i| ring.push(i, (i + 1) % 8, 1.0));
    let graph = ring.into_graph(8)?.0;
    let owner = partition::divide(&graph, 2, &partition::Options::default())?;
    let cut = graph.edge_iter().filter(|&(i, j, _)| owner[i as usize] != owner[j as usize]).count();
    match cut {
        2 => Ok(()),
        _ => Err(Error::Numeric(format!("cut {cut} edges of a ring instead of 2"))),
    }
}

#[cfg(feature = "torch")]
mod torch {
    use super::*;

    pub(super) fn torch_version() -> String {
        "2.13.0".to_owned()
    }

    pub(super) fn try_torch() -> Result<()> {
        let ones = tch::Tensor::ones([2, 2], (tch::Kind::Double, tch::Device::Cpu));
        let sum = ones.mm(&ones).sum(tch::Kind::Double).double_value(&[]);
        if sum != 8.0 {
            let why = format!("a product of ones sums to {sum} instead of 8");
            return Err(Error::Numeric(why));
        }
        Ok(())
    }

    pub(super) fn cuda_devices() -> usize {
        if tch::Cuda::is_available() { tch::Cuda::device_count().max(0) as usize } else { 0 }
    }
}

#[cfg(not(feature = "torch"))]
mod torch {
    use super::*;

    pub(super) fn torch_version() -> String {
        "not built in".to_owned()
    }

    pub(super) fn try_torch() -> Result<()> {
        Ok(())
    }

    pub(super) fn cuda_devices() -> usize {
        0
    }
}

use torch::{cuda_devices, torch_version, try_torch};
