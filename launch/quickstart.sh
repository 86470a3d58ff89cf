#!/usr/bin/env bash
# From a bare machine to a first result: set-up, release build, one run on a few MPI ranks.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

usage() {
    cat <<EOT
Usage: launch/quickstart.sh [--ranks N] [ARGUMENTS OF 'dgmrf run'...]

Sets the machine up (launch/setup.sh), builds dgmrf and runs configs/quickstart.toml on N (2) MPI
ranks of this machine. For example, with another seed:

    launch/quickstart.sh --ranks 4 --set train.seed=7
EOT
}

ranks=2
extra=()
while (($#)); do
    case $1 in
        --ranks) ranks=${2:-}; shift ;;
        --ranks=*) ranks=${1#*=} ;;
        -h | --help) usage; exit 0 ;;
        *) extra+=("$1") ;;
    esac
    shift || break # `--ranks` as the last word
done
[[ $ranks =~ ^[1-9][0-9]*$ ]] || { echo "error: --ranks wants a positive number" >&2; usage >&2; exit 2; }

timed "Set-up" ./launch/setup.sh
timed "Build" cargo build --release
timed "Run on $ranks ranks" mpi_run "$ranks" "$(dgmrf_binary)" run configs/quickstart.toml "${extra[@]}"
