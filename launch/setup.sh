#!/usr/bin/env bash
# Make this machine ready for `cargo build`: system packages, Rust, libtorch. Safe to run again:
# it looks for each thing first, and a run that finds everything takes well under a second.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

usage() {
    cat <<EOT
Usage: launch/setup.sh [--cpu | --cuda | --no-torch]

Installs what is missing for building dgmrf: system packages (Debian, with root or sudo), Rust, and
libtorch $TORCH, which is shared by all clones of this user in
  $CACHE

  --cpu        libtorch without CUDA (0.5 GB to fetch)
  --cuda       libtorch with CUDA 13 and NVIDIA's libraries (2.5 GB to fetch)
  --no-torch   no libtorch; build with: cargo build --no-default-features
  (none)       what this clone has already; otherwise --cuda where nvidia-smi shows a GPU, else --cpu

Environment:
  LIBTORCH     use this libtorch $TORCH (a directory with include/ and lib/), fetch none
  DGMRF_CACHE  another cache directory, e.g. on scratch where \$HOME has a small quota
  CARGO_TARGET_DIR, or a directory 'target' of this clone's own: kept; otherwise all clones share
               $CACHE/target

No network here? Copy the wheels that setup asks for into $CACHE/download.
EOT
}

# ---- What we fetch: wheel, SHA-256, MB ----------------------------------------------------------
# The Python wheel is the one place where every package index has libtorch. Its C++ libraries do not
# depend on the Python version, so one wheel serves all machines and one checksum is enough.
# The versions of NVIDIA's libraries are those that the torch wheel itself asks for.
TORCH=2.13.0
TORCH_WHEEL=torch-$TORCH-cp311-cp311-manylinux_2_28_x86_64.whl
CPU_WHEELS="
$TORCH_WHEEL 60fcdcb2f3876e21146cb4524ef06397d727ca9ad5f020818547e25075fe3cb7 527
nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548 2
nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_x86_64.whl 4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8 11
"
CUDA_WHEELS="$CPU_WHEELS
nvidia_cublas-13.1.1.3-py3-none-manylinux_2_27_x86_64.whl 37936a16db8fe4ac1f065c2139360608a543a09275cb1a1af612e08cfa065436 423
nvidia_cuda_nvrtc-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575 90
nvidia_cufft-12.0.0.61-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 6c44f692dce8fd5ffd3e3df134b6cdb9c2f72d99cf40b62c32dde45eea9ddad3 214
nvidia_cufile-1.15.1.6-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 08a3ecefae5a01c7f5117351c64f17c7c62efa5fffdbe24fc7d298da19cd0b44 1
nvidia_curand-10.4.0.35-py3-none-manylinux_2_27_x86_64.whl 1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc 59
nvidia_cusolver-12.0.4.66-py3-none-manylinux_2_27_x86_64.whl 0a759da5dea5c0ea10fd307de75cdeb59e7ea4fcb8add0924859b944babf1112 200
nvidia_cusparse-12.6.3.3-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 2b3c89c88d01ee0e477cb7f82ef60a11a4bcd57b6b87c33f789350b59759360b 145
nvidia_nvjitlink-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl 13a74f429e23b921c1109976abefacc69835f2f433ebd323d3946e11d804e47b 40
nvidia_cudnn_cu13-9.20.0.48-py3-none-manylinux_2_27_x86_64.whl 0c45dd8eeb50b603f07995b1b300c62ffe6a1980482b82b3bcf94a4ca9d49304 366
nvidia_cusparselt_cu13-0.8.1-py3-none-manylinux2014_x86_64.whl 786ce87568c303fadb5afcc7102d454cd3040d75f6f8626f5db460d1871f4dd0 170
nvidia_nccl_cu13-2.29.7-py3-none-manylinux_2_18_x86_64.whl edd81538446786ec3b73972543e53bb43bcaf0bfc8ef76cb679fcc390ffe136d 205
nvidia_nvshmem_cu13-3.4.5-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80 60
"

# ---- System packages ----------------------------------------------------------------------------
# We ask for the capability, not for the Debian package: on a cluster the same things come from
# modules.
have() { command -v "$1" >/dev/null; }

# bindgen (MPI bindings) loads libclang and needs clang's own headers with it: the bare runtime
# library (libclang1) is not enough, hence the look for the development link libclang.so. An
# llvm-config says where to look, not that anything is there: LLVM may be installed without clang.
have_libclang() {
    local llvm=
    [[ -z ${LIBCLANG_PATH:-} ]] || return 0
    ! have llvm-config || llvm=$(llvm-config --libdir 2>/dev/null)
    compgen -G "${llvm:-/usr/lib/llvm-*/lib}/libclang.so" >/dev/null ||
        compgen -G '/usr/lib/llvm-*/lib/libclang.so' >/dev/null ||
        compgen -G '/usr/lib*/libclang.so' >/dev/null
}

# missing_packages build|fetch: what is missing for that, by its Debian name, one per line.
missing_packages() {
    have c++ && have make || echo build-essential
    have cmake || echo cmake
    have pkg-config || echo pkg-config
    have mpicc || echo libopenmpi-dev
    have mpirun || have srun || echo openmpi-bin
    [[ -n ${HDF5_DIR:-} ]] || have h5cc || have h5pcc || pkg-config --exists hdf5 2>/dev/null ||
        echo libhdf5-dev
    have_libclang || echo libclang-dev
    # The rest is needed only to fetch libtorch.
    if [[ $1 == fetch ]]; then
        have curl || printf '%s\n' curl ca-certificates
        have unzip || echo unzip
        have python3 || echo python3
        python3 -c 'import pip' 2>/dev/null || echo python3-pip
    fi
}

# Sets as_root to what apt-get needs before it; fails where we may not install packages.
may_install() {
    have apt-get || return
    as_root=()
    ((EUID != 0)) || return 0
    as_root=(sudo)
    # sudo may ask for a password only where somebody can type it.
    have sudo && { sudo -n true 2>/dev/null || [[ -t 0 && -t 1 ]]; }
}

apt_install() {
    say "Installing with apt-get: $*"
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends "$@" </dev/null
    hash -r # forget where commands were not
}

install_packages() {
    local list
    mapfile -t list < <(missing_packages "$1")
    ((${#list[@]})) || return 0
    if ! may_install; then
        cat >&2 <<EOT
error: these are missing, and I may not install packages here: ${list[*]}

Either have an administrator run

    apt-get install -y --no-install-recommends ${list[*]}

or, on a cluster, load the modules for them (names vary, see 'module avail'), e.g.

    module load gcc cmake openmpi hdf5 llvm python

and run launch/setup.sh again. HDF5_DIR and LIBCLANG_PATH are honoured if a module sets them.
EOT
        exit 1
    fi
    apt_install "${list[@]}"
    mapfile -t list < <(missing_packages "$1")
    ((${#list[@]} == 0)) || die "still missing after apt-get: ${list[*]}"
}

# ---- Rust ---------------------------------------------------------------------------------------
ensure_rust() {
    # Debian has rustup from version 13 on; its rustc is always too old for us.
    if ! have cargo && may_install && apt-cache policy rustup | grep -q 'Candidate: [0-9]'; then
        apt_install rustup
    fi
    have cargo ||
        die "no cargo: install Rust as rustup.rs says (or 'module load rust'), then run this again"
    # The first cargo call makes rustup fetch the toolchain that rust-toolchain.toml names.
    local version
    version=$(cargo --version) || die "cargo does not run here (see above)"
    version=${version#cargo }
    [[ $(printf '%s\n' 1.94 "$version" | sort -V | head -n1) == 1.94 ]] ||
        die "cargo ${version%% *} is too old: 1.94 or newer is needed (rustup update stable)"
}

# ---- libtorch -----------------------------------------------------------------------------------
# The address of a wheel, from pip itself: so a mirror, a proxy or a private index that the user has
# configured for pip is honoured, and nothing is downloaded to find out.
wheel_url() {
    local listing
    listing=$(python3 -m pip index versions -vv "${1%%-*}" 2>/dev/null </dev/null) || return 0
    grep -oE "[a-z]+://[^ #]*/${1//./\\.}" <<<"$listing" | head -n1 || true
}

# fetch FILE SHA256 MB: into the current directory, continuing what an earlier run has begun.
fetch() {
    local file=$1 sha=$2 mb=$3 begun='' url try rc http tag progress=(--silent --show-error)
    if [[ ! -f $file ]]; then
        [[ ! -f $file.part ]] || begun=", continued at $(($(stat -c %s "$file.part") / 1000000)) MB"
        say "Fetching $file ($mb MB$begun)"
        url=$(wheel_url "$file")
        if [[ -n $url && $url != *'****'* ]]; then # pip masks passwords: then only pip can fetch
            [[ -t 2 ]] && progress=(--progress-bar)
            # Our own loop and not curl --retry: each try goes on where the last one stopped.
            for try in 1 2 3 4 5; do
                # A whole .part (killed just before the rename) has no rest to ask for.
                is_intact "$file.part" "$sha" && break
                rc=0
                http=$(curl "${progress[@]}" --fail --location --continue-at - --connect-timeout 30 \
                    --speed-limit 1000 --speed-time 60 --write-out '%{http_code}' \
                    --output "$file.part" "$url") || rc=$?
                ((rc != 0)) || break
                # The server has nothing after what we have (416), or cannot continue at all (33):
                # then what we have is of no use.
                if [[ $http == 416 || $rc == 33 ]]; then rm -f "$file.part"; fi
                ((try < 5)) || die "the download stopped; run this again to continue it"
                sleep "$try"
            done
            mv "$file.part" "$file"
        else
            tag=${file##*-} tag=${tag%%.*}
            python3 -m pip download --quiet --no-deps --only-binary :all: --implementation cp \
                --python-version 3.11 --platform "$tag" --dest . \
                "$(cut -d- -f1 <<<"$file")==$(cut -d- -f2 <<<"$file")" </dev/null ||
                die "pip finds no $file; copy it into $PWD by hand and run this again"
        fi
    fi
    if ! is_intact "$file" "$sha"; then
        rm -f "$file"
        die "$file does not have the expected SHA-256: refused and deleted"
    fi
}

is_intact() { [[ -f $1 ]] && sha256sum --check --status <<<"$2  $1"; }

# unpack VARIANT DIR: from the wheels in the current directory.
unpack() {
    local variant=$1 dir=$2 wheel
    if [[ $variant == cpu ]]; then
        unzip -q "$TORCH_WHEEL" 'torch/include/*' torch/lib/lib{torch_cpu,c10}.so \
            torch/lib/libgomp.so.1 -d "$dir"
        # The real libtorch.so does nothing but pull in the CUDA half.
        ln -s libtorch_cpu.so "$dir/torch/lib/libtorch.so"
        # libtorch_cpu.so has the CUDA profiler hooks linked in, and so needs these two to load.
        unzip -qj nvidia_cuda_runtime-*.whl '*/libcudart.so.13' -d "$dir/torch/lib"
        unzip -qj nvidia_cuda_cupti-*.whl '*/libcupti.so.13' -d "$dir/torch/lib"
    else
        unzip -q "$TORCH_WHEEL" 'torch/include/*' 'torch/lib/*.so*' -x '*/libtorch_python.so' -d "$dir"
        # All in one directory: every one of these libraries looks for the others in $ORIGIN.
        for wheel in nvidia_*.whl; do
            unzip -qoj "$wheel" '*/lib/*.so*' -d "$dir/torch/lib"
        done
    fi
    echo "$TORCH+$variant" >"$dir/torch/build-version" # torch-sys compares it with what it wants
}

# Must load with nothing but its own directory. libcuda comes with the driver, which a login node
# need not have.
check_loads() {
    local lost
    lost=$(LD_LIBRARY_PATH='' ldd "$1"/lib/libtorch.so | grep 'not found' | grep -v 'libcuda\.so' || true)
    [[ -z $lost ]] || die "libtorch in $1 does not load:"$'\n'"$lost"
}

install_libtorch() {
    local variant=$1 final=$2 wheels=$CPU_WHEELS need_mb=1300 free_mb tmp file sha mb
    [[ $variant == cuda ]] && wheels=$CUDA_WHEELS need_mb=8000
    mkdir -p "$CACHE/download"
    # Two clones may be set up at the same moment: the second waits, then finds the work done.
    exec 9>"$CACHE/lock"
    flock -n 9 || { say "Another setup is at work; waiting for it"; flock 9; }
    [[ -d $final ]] && return
    free_mb=$(df -Pm "$CACHE" | awk 'NR == 2 { print $4 }')
    ((free_mb >= need_mb)) ||
        die "$CACHE has $free_mb MB free, $need_mb MB are needed; set DGMRF_CACHE to a larger disk"
    (
        cd "$CACHE/download"
        while read -r file sha mb; do
            [[ -z $file ]] || fetch "$file" "$sha" "$mb"
        done <<<"$wheels"
        say "Unpacking libtorch $TORCH ($variant) to $final"
        rm -rf "$CACHE"/unpack.* # of a run that was killed; we hold the lock
        tmp=$(mktemp -d "$CACHE/unpack.XXXXXX")
        unpack "$variant" "$tmp"
        check_loads "$tmp/torch"
        mv -T "$tmp/torch" "$final" # only a whole libtorch ever gets the final name
        rm -rf "$tmp" "$CACHE/download"
    )
    exec 9>&-
}

# ---- Main ---------------------------------------------------------------------------------------
variant=auto
for arg in "$@"; do
    case $arg in
        --cpu | --cuda) variant=${arg#--} ;;
        --no-torch) variant=none ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
done

libtorch=
if [[ $variant == none ]]; then
    # "Do not fetch", not "forget": else the next full build would compile torch-sys again.
    [[ ! -d .libtorch/lib ]] || libtorch=$(realpath .libtorch)
else
    if [[ -n ${LIBTORCH:-} ]]; then
        say "Using LIBTORCH=$LIBTORCH"
        [[ -d $LIBTORCH/include/torch && -d $LIBTORCH/lib ]] ||
            die "LIBTORCH=$LIBTORCH has no include/torch and lib"
        variant=own libtorch=$(realpath "$LIBTORCH")
    elif [[ $variant == auto && -d .libtorch/lib ]]; then
        # Keep it: who chose --cuda on a login node without a GPU wants it in later runs too.
        variant=own libtorch=$(realpath .libtorch)
    elif [[ $(uname -sm) != 'Linux x86_64' ]]; then
        die "no libtorch to fetch for $(uname -sm): install libtorch $TORCH and set LIBTORCH, or use --no-torch"
    else
        if [[ $variant == auto ]]; then
            variant=cpu
            nvidia-smi -L 2>/dev/null | grep -q '^GPU' && variant=cuda
        fi
        libtorch=$CACHE/libtorch-$TORCH-$variant
    fi
fi

if [[ -n $libtorch && ! -d $libtorch ]]; then
    install_packages fetch
    ensure_rust
    install_libtorch "$variant" "$libtorch"
else
    install_packages build
    ensure_rust
fi

# Tell cargo, in a file that git ignores; .cargo/config.toml says why.
local_toml="# Written by launch/setup.sh; your own settings belong elsewhere."
if [[ -n $libtorch ]]; then
    ln -sfnT "$libtorch" .libtorch # for people and scripts; cargo gets the real path
    local_toml+=$'\n'"env.LIBTORCH = { value = '$libtorch', force = false }"
fi
# One target directory for all clones, so that a new clone finds torch-sys compiled; not where
# somebody has decided otherwise.
if [[ -z ${CARGO_TARGET_DIR:-} && (-L target || ! -e target) ]]; then
    mkdir -p "$CACHE/target"
    ln -sfnT "$CACHE/target" target # for people; cargo gets the real path
    local_toml+=$'\n'"build.target-dir = '$CACHE/target'"
fi
mkdir -p .cargo
[[ -f .cargo/local.toml && $(<.cargo/local.toml) == "$local_toml" ]] ||
    printf '%s\n' "$local_toml" >.cargo/local.toml

say "Ready: $(cargo --version | cut -d' ' -f1,2), libtorch ${libtorch:-none}"
