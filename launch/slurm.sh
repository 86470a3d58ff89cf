#!/usr/bin/env bash
# A Slurm job for dgmrf: copy it, adapt the lines marked <--, and submit it from the repository with
#
#     sbatch launch/slurm.sh configs/NAME.toml [ARGUMENTS OF 'dgmrf run'...]
#
# The job outlives its time limit: two minutes before the end it asks dgmrf for a checkpoint, puts
# itself back into the queue, and continues from there. Build before submitting, on a node of the
# same kind: launch/setup.sh --cuda && cargo build --release
#
#SBATCH --job-name=dgmrf
#SBATCH --nodes=1                  # <--
#SBATCH --ntasks-per-node=4        # <-- one rank per GPU
#SBATCH --gpus-per-node=4          # <-- all visible to all ranks of the node; each takes its own.
#                                        CPU only: delete this line, one rank per socket or NUMA node
#SBATCH --cpus-per-task=8          # <-- cores of the node / ranks per node
#SBATCH --time=04:00:00            # <--
#SBATCH --signal=B:USR1@120        # to this shell, two minutes before the limit
#SBATCH --requeue                  # also after a node failure
#SBATCH --open-mode=append         # one log through all restarts
#SBATCH --output=%x-%j.log
set -euo pipefail

MAX_RESTARTS=20 # a run that never gets anywhere must not stay in the queue for ever

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

# In the background, because bash runs a trap only between commands: a srun in the foreground would
# keep the signal waiting until the time limit has killed the job. srun passes signals on to all ranks.
out_of_time=
trap 'out_of_time=1; echo "time limit is near: checkpoint and requeue"; kill -USR1 "$step" || true' USR1
# --mpi=pmix: how srun and Open MPI find each other; see `srun --mpi=list` for what your site has.
srun --mpi="${DGMRF_SRUN_MPI:-pmix}" --cpu-bind=cores --kill-on-bad-exit=1 \
    "$dgmrf" run "$config" --resume auto "$@" &
step=$!

# A trapped signal ends `wait` early, so wait again until the step is really gone.
status=0
wait "$step" || status=$?
while kill -0 "$step" 2>/dev/null; do
    status=0
    wait "$step" || status=$?
done

# `dgmrf run` continues from the newest checkpoint and skips finished stages, so a restart is right
# whether or not the last checkpoint was still written in time.
if [[ $out_of_time ]]; then
    if ((${SLURM_RESTART_COUNT:-0} < MAX_RESTARTS)); then
        exec scontrol requeue "$SLURM_JOB_ID"
    fi
    echo "error: still not finished after $MAX_RESTARTS restarts" >&2
    exit 1
fi
exit "$status"
