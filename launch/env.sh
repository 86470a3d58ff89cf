# shellcheck shell=bash
# Common ground of the launch scripts. Source it, do not run it:
#
#     . "$(dirname "${BASH_SOURCE[0]}")/env.sh"
#
# It sets ROOT and CACHE, moves to ROOT, and defines say, die, timed, mpi_run and dgmrf_binary.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Per user, not per clone: libtorch (0.5 GB) and its bindings (minutes to compile) are shared.
CACHE=${DGMRF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/dgmrf}
[[ $CACHE == /* ]] || CACHE=$PWD/$CACHE
cd "$ROOT" || exit 1

# rustup puts cargo where only login shells look.
command -v cargo >/dev/null || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin

say() { printf '==> %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# timed LABEL COMMAND...: run a stage, say how long it took, keep its exit code.
timed() {
    local label=$1 start rc=0 ms verdict=ok
    shift
    start=$(date +%s%N)
    say "$label"
    "$@" || rc=$?
    ms=$((($(date +%s%N) - start) / 1000000))
    ((rc == 0)) || verdict="FAILED (exit $rc)"
    printf '<== %s: %s, %d.%d s\n' "$label" "$verdict" $((ms / 1000)) $((ms % 1000 / 100))
    return "$rc"
}

# mpi_run RANKS COMMAND...: several ranks on this machine. (On a cluster: launch/slurm.sh.)
# Settings go through the environment and not as mpirun options: other MPIs ignore them, and an
# mpirun that a test starts has them too. .cargo/config.toml says the same for `cargo test`.
mpi_run() {
    local ranks=$1 threads
    shift
    # Each rank would otherwise start one thread per core of the whole machine.
    threads=$(($(nproc) / ranks))
    OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))} mpirun -n "$ranks" "$@"
}

# Open MPI refuses root unless told twice; in containers and CI one usually is.
if ((EUID == 0)); then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# More ranks than cores is slow but legitimate (tests). Pinning is off because mpirun pins each of
# two ranks to *one core*, with all its threads. First Open MPI 4, then 5.
export OMPI_MCA_rmaps_base_oversubscribe=${OMPI_MCA_rmaps_base_oversubscribe:-1}
export OMPI_MCA_hwloc_base_binding_policy=${OMPI_MCA_hwloc_base_binding_policy:-none}
export PRTE_MCA_rmaps_default_mapping_policy=${PRTE_MCA_rmaps_default_mapping_policy:-:oversubscribe}
export PRTE_MCA_hwloc_default_binding_policy=${PRTE_MCA_hwloc_default_binding_policy:-none}
# Under a seccomp filter (Docker, Podman) one rank may be forbidden to read another's memory, and
# Open MPI 4 then floods the terminal with "Read -1, expected ...". Plain shared memory always works.
if grep -qs '^Seccomp:[[:space:]]*2' /proc/self/status; then
    export OMPI_MCA_btl_vader_single_copy_mechanism=none
fi

# The release binary, wherever CARGO_TARGET_DIR or a cargo setting puts it.
dgmrf_binary() {
    cargo metadata --format-version 1 --no-deps --offline |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1\/release\/dgmrf/p'
}
