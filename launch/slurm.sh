#!/usr/bin/env bash
# A Slurm job for dgmrf: copy it, adapt the lines marked <--, and submit it from the repository with
#
#     sbatch launch/slurm.sh configs/NAME.toml [ARGUMENTS OF 'dgmrf run'...]
#
# `dgmrf run` skips finished stages, so a job that was requeued or submitted again goes on where the
# last one stopped. Build before submitting, on a node of the same kind:
# launch/setup.sh --cuda && cargo build --release
#
#SBATCH --job-name=dgmrf
#SBATCH --nodes=1                  # <--
#SBATCH --ntasks-per-node=4        # <-- one rank per GPU
#SBATCH --gpus-per-node=4          # <-- all visible to all ranks of the node; each takes its own.
#                                        CPU only: delete this line, one rank per socket or NUMA node
#SBATCH --cpus-per-task=8          # <-- cores of the node / ranks per node
#SBATCH --time=04:00:00            # <--
#SBATCH --requeue                  # after a node failure
#SBATCH --open-mode=append         # one log through all restarts
#SBATCH --output=%x-%j.log
set -euo pipefail

# Slurm runs a copy of this file from its spool directory: the place to work in is where sbatch was.
cd "${SLURM_SUBMIT_DIR:?submit this with sbatch}"
config=${1:?usage: sbatch launch/slurm.sh CONFIG [ARGUMENTS...]}
shift
dgmrf=${DGMRF:-target/release/dgmrf}
[[ -x $dgmrf ]] || { echo "error: no $dgmrf; run: cargo build --release" >&2; exit 1; }

# module load openmpi hdf5         # <-- the same modules as for the build

# Since Slurm 22.05 a step no longer inherits --cpus-per-task; without this every rank gets one core.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$SRUN_CPUS_PER_TASK}

# --mpi=pmix: how srun and Open MPI find each other; see `srun --mpi=list` for what your site has.
exec srun --mpi="${DGMRF_SRUN_MPI:-pmix}" --cpu-bind=cores --kill-on-bad-exit=1 \
    "$dgmrf" run "$config" "$@"
