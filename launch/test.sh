#!/usr/bin/env bash
# Everything that must be green before a change lands; .ci/run calls this. A failing check does not
# stop the later ones, so that one run shows all that is wrong.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

usage() {
    cat <<EOT
Usage: launch/test.sh [--quick]

Set-up, formatting, clippy with and without libtorch, the whole test suite, and shellcheck on the
launch scripts where it is installed.

  --quick   without libtorch: no download, no torch-sys to compile, native engine only
EOT
}

quick=
for arg in "$@"; do
    case $arg in
        --quick) quick=1 ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
done

# In CI a Cargo.lock that does not fit Cargo.toml is a mistake; at the desk it is just work.
locked=()
[[ -z ${CI:-} ]] || locked=(--locked)

passed=0
failed=()
check() { if timed "$@"; then passed=$((passed + 1)); else failed+=("$1"); fi; }

# All in the release profile: torch-sys (minutes of C++) is compiled once, for the quickstart too.
lint() { cargo clippy --release "${locked[@]}" --all-targets "$@" -- -D warnings; }

# Adds up the closing lines of the many test binaries that cargo runs one after the other.
run_tests() {
    local log rc=0
    log=$(mktemp)
    cargo test --release "${locked[@]}" "$@" </dev/null | tee "$log" || rc=$?
    awk '/^test result:/ { pass += $4; fail += $6; skip += $8 }
        END { printf "tests: %d passed, %d failed, %d skipped\n", pass, fail, skip }' "$log"
    rm -f "$log"
    return "$rc"
}

timed "Set-up" ./launch/setup.sh ${quick:+--no-torch}
SECONDS=0
check "Format" cargo fmt --check
check "Clippy without libtorch" lint --no-default-features
if [[ $quick ]]; then
    check "Tests without libtorch" run_tests --no-default-features --no-fail-fast
else
    check "Clippy" lint
    check "Tests" run_tests --no-fail-fast
fi
if command -v shellcheck >/dev/null; then
    check "Shellcheck" shellcheck -x -P launch launch/*.sh .ci/run
else
    say "Shellcheck: not installed, skipped"
fi

if ((${#failed[@]})); then
    printf -v list '%s, ' "${failed[@]}"
    die "${#failed[@]} of $((passed + ${#failed[@]})) checks failed: ${list%, }"
fi
say "All $passed checks passed, $SECONDS s after set-up"
